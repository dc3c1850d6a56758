"""Replies that repeat themselves are told, and end where --stop-loops is on. loops.py PROGRAM MODEL [NAME...]"""
import json, sys

import counted
from client import Server

PROGRAM, MODEL, counted.only = sys.argv[1], sys.argv[2], sys.argv[3:]
CHAT, TEXT, RESPONSES, MESSAGES, OLLAMA = "/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages", "/api/chat"
OURS = {"temperature": 0, "evenkeel": {"digest": True}}
WEATHER = {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"const": "Oslo"}}, "required": ["city"]}}


def bias(s):
    """Makes the model write one letter for ever."""
    token = s.call("POST", "/tokenize", {"prompt": "a", "add_special_tokens": False})[2]["tokens"][-1]
    return {"logit_bias": {str(token): 100}, **OURS}


def bodies(s):
    """(path, body, where its finish reason is, what it is otherwise, what it is where it loops)"""
    user = [{"role": "user", "content": "Go on."}]
    yield CHAT, {"messages": user, "max_tokens": 300, **bias(s)}, lambda r: r["choices"][0]["finish_reason"], "length"
    yield TEXT, {"prompt": "Go on.", "max_tokens": 300, **bias(s)}, lambda r: r["choices"][0]["finish_reason"], "length"
    yield RESPONSES, {"input": "Go on.", "max_output_tokens": 300, **bias(s)}, lambda r: r["incomplete_details"]["reason"], "max_output_tokens"
    yield MESSAGES, {"messages": user, "max_tokens": 300, **bias(s)}, lambda r: r["stop_reason"], "max_tokens"


def tokens_of(r):
    u = r["usage"]
    return u.get("completion_tokens", u.get("output_tokens"))


def told(s):
    """Without the option nothing but what is told changes."""
    before = s.metrics()["evenkeel_loops_total"]
    for n, (path, body, reason, usual) in enumerate(bodies(s), 1):
        status, headers, r = s.call("POST", path, body)
        assert status == 200 and headers["x-evenkeel-loop"] == "tokens; period=1", (path, status, headers)
        assert reason(r) == usual and tokens_of(r) == 300, (path, r)
        assert s.metrics()["evenkeel_loops_total"] == before + n
        assert s.says(f"event=loop id={r['id']} choice=0 kind=tokens period=1 at_token=200 of=300 stopped=0"), s.said()[-2000:]
    for body in ({"max_tokens": 199, **bias(s)}, {"max_tokens": 300, **OURS}):
        _, headers, _ = s.call("POST", CHAT, {"messages": [{"role": "user", "content": "Go on."}], **body})
        assert "x-evenkeel-loop" not in headers, headers
    assert s.metrics()["evenkeel_loops_total"] == before + 4


def periods(s):
    for words, loops in (("ab", True), ("one two three four. ", True), (" ".join(f"word {n}" for n in range(100)), False)):
        text = words * (2000 // len(words))
        status, headers, r = s.call("POST", CHAT, {"messages": [{"role": "user", "content": "Go on."}], "guided_choice": [text], **OURS})
        assert status == 200 and r["choices"][0]["message"]["content"] == text and tokens_of(r) > 300, (status, r)
        assert headers.get("x-evenkeel-loop", "").startswith("tokens; period=") == loops, headers


def chat_calls(n, name="weather", between=()):
    out = [{"role": "user", "content": "Weather in Oslo?"}]
    for i in range(n):
        out += [{"role": "assistant", "tool_calls": [{"id": f"c{i}", "type": "function", "function": {"name": name, "arguments": json.dumps({"city": "Oslo"}, indent=i or None)}}]},
                {"role": "tool", "tool_call_id": f"c{i}", "content": "rain"}, *between]
    return out


CALL = {"tools": [{"type": "function", "function": WEATHER}], "tool_choice": "required", "max_tokens": 64, **OURS}


def calls(s, stops):
    for n, more, loops in ((3, {}, True), (2, {}, False), (4, {}, True), (3, {"between": [{"role": "user", "content": "Again."}]}, True), (0, {}, False)):
        body = {"messages": chat_calls(n, **more), "parallel_tool_calls": False, **CALL}
        _, headers, r = s.call("POST", CHAT, body)
        c = r["choices"][0]
        assert json.loads(c["message"]["tool_calls"][0]["function"]["arguments"]) == {"city": "Oslo"}, r
        assert headers.get("x-evenkeel-loop") == ("call" if loops else None), (n, more, headers)
        assert c["finish_reason"] == ("length" if loops and stops else "tool_calls"), (n, r)
    other = {"messages": [*chat_calls(2), *chat_calls(3, "time")[1:]], "parallel_tool_calls": False, **CALL,
             "tools": [*CALL["tools"], {"type": "function", "function": {"name": "time", "parameters": WEATHER["parameters"]}}],
             "tool_choice": {"type": "function", "function": {"name": "weather"}}}
    assert "x-evenkeel-loop" not in s.call("POST", CHAT, other)[1]


def told_calls(s):
    calls(s, False)


def stopped(s):
    with Server(PROGRAM, "--model", MODEL, "--stop-loops") as stops:
        for path, body, reason, _ in bodies(stops):
            whole = s.call("POST", path, body)[2]
            status, headers, r = stops.call("POST", path, body)
            assert status == 200 and headers["x-evenkeel-loop"] == "tokens; period=1" and reason(r) in ("length", "max_tokens", "max_output_tokens") and tokens_of(r) == 200, (path, r)
            # The tokens are those of a reply that a limit of 200 ends.
            key = "max_output_tokens" if path == RESPONSES else "max_tokens"
            assert r["evenkeel"]["digest"] == s.call("POST", path, {**body, key: 200})[2]["evenkeel"]["digest"] != whole["evenkeel"]["digest"], path
        c = stops.open()
        c.request("POST", CHAT, json.dumps({"messages": [{"role": "user", "content": "Go on."}], "max_tokens": 300, "stream": True, **bias(s)}), {"content-type": "application/json"})
        frames = [json.loads(l[6:]) for l in c.getresponse() if l.startswith(b"data: {")]
        assert frames[-1]["choices"][0]["finish_reason"] == "length", frames[-1]
        c.close()
        status, _, r = stops.call("POST", OLLAMA, {"model": "m", "messages": [{"role": "user", "content": "Go on."}], "stream": False, "format": {"const": "ab" * 500}})
        assert status == 200 and r["done_reason"] == "length" and r["eval_count"] < 400, r
        calls(stops, True)
        stops.wait_idle()
        plain = {"messages": [{"role": "user", "content": "What is a tiller?"}], "max_tokens": 40, **OURS}
        assert stops.call("POST", CHAT, plain)[2]["evenkeel"] == s.call("POST", CHAT, plain)[2]["evenkeel"]


def main():
    with Server(PROGRAM, "--model", MODEL) as s:
        for test in (told, periods, told_calls, stopped):
            counted.run(test, s)
    return counted.closing()


sys.exit(main())
