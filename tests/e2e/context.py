"""Context management: conversations that are edited or summarized before the reply. context.py PROGRAM MODEL [NAME...]

Two requests read the same if their replies have the same digest, which covers the bits of every logit."""
import base64, json, sys, threading, time

import counted
from client import Server

PROGRAM, MODEL, counted.only = sys.argv[1], sys.argv[2], sys.argv[3:]
RESPONSES, MESSAGES = "/v1/responses", "/v1/messages"
COMMON = {"temperature": 0, "evenkeel": {"digest": True}}
SAID = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hello! How can I help you?"}, {"role": "user", "content": "What is 2 plus 3?"},
        {"role": "assistant", "content": "The answer is 5."}, {"role": "user", "content": "And 4 plus 4?"}]
BEFORE = "Summary of the conversation so far:\n\n"
TOOLS = [{"name": n, "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}}} for n in ("weather", "time")]
CLEARED = "[This result was removed to save context.]"


def ask(s, path, body, expect=200):
    status, _, reply = s.call("POST", path, {**COMMON, **body})
    assert status == expect, (status, reply)
    return reply


def messages(s, list_, expect=200, **more):
    return ask(s, MESSAGES, {"max_tokens": 16, "messages": list_, **more}, expect)


def digest(reply):
    return reply["evenkeel"]["digest"]


def compact(at, **more):
    return {"context_management": {"edits": [{"type": "compact_20260112", "trigger": {"type": "input_tokens", "value": at}, **more}]}}


def events(s, path, body):
    c = s.open()
    c.request("POST", path, json.dumps({**COMMON, **body, "stream": True}), {"content-type": "application/json"})
    r = c.getresponse()
    assert r.status == 200, r.read()
    got = [json.loads(l[6:]) for l in r if l.startswith(b"data: {")]
    c.close()
    return got


def compacted_messages(s):
    plain = messages(s, SAID)
    n = plain["usage"]["input_tokens"] + plain["usage"]["cache_read_input_tokens"]
    untouched = messages(s, SAID, **compact(n))  # more than that, not as many
    assert digest(untouched) == digest(plain) and untouched["content"] == plain["content"], untouched
    assert untouched["context_management"] == {"applied_edits": []} and "context_management" not in plain and "iterations" not in untouched["usage"]
    for instructions in (None, "Say hello."):
        alone = messages(s, SAID, max_tokens=300, compaction={"type": "summarize", **({"instructions": instructions} if instructions else {})})
        summary = alone["content"][0]["content"]
        assert summary, alone
        whole = messages(s, SAID, **compact(n - 1, instructions=instructions))
        block, *rest = whole["content"]
        assert block == alone["content"][0] and rest, (whole, alone)
        want = messages(s, [{"role": "user", "content": BEFORE + summary}])
        assert digest(whole) == digest(want) and rest == want["content"] and whole["stop_reason"] == want["stop_reason"], (whole, want)
        u = whole["usage"]
        first, second = u["iterations"]
        assert (first["type"], second["type"]) == ("compaction", "message") and first["output_tokens"] == alone["usage"]["output_tokens"]
        assert first["cache_read_input_tokens"] >= n - 64, (u, n)  # the conversation before the summary was read already
        assert u["input_tokens"] + u["cache_read_input_tokens"] == want["usage"]["input_tokens"] + want["usage"]["cache_read_input_tokens"]
        # The same in a stream.
        got = events(s, MESSAGES, {"max_tokens": 16, "messages": SAID, **compact(n - 1, instructions=instructions)})
        starts = [e["content_block"]["type"] for e in got if e["type"] == "content_block_start"]
        assert starts == ["compaction", *[b["type"] for b in rest]], starts
        assert [e["index"] for e in got if e["type"] == "content_block_start"] == list(range(len(starts)))
        deltas = [e["delta"] for e in got if e["type"] == "content_block_delta"]
        assert deltas[0] == {"type": "compaction_delta", **{k: v for k, v in block.items() if k != "type"}}, deltas[0]
        assert "".join(d["text"] for d in deltas if d["type"] == "text_delta") == rest[-1]["text"]
        last = got[-2]
        assert last["evenkeel"]["digest"] == digest(whole) and [i["type"] for i in last["usage"]["iterations"]] == ["compaction", "message"], last
        # Sent back, it stands for what was before it.
        again = messages(s, [*SAID, {"role": "assistant", "content": whole["content"]}, {"role": "user", "content": "And then?"}])
        assert digest(again) == digest(messages(s, [{"role": "user", "content": BEFORE + summary}, {"role": "assistant", "content": rest}, {"role": "user", "content": "And then?"}]))
        # The client may want to see the summary first.
        paused = messages(s, SAID, max_tokens=300, **compact(n - 1, instructions=instructions, pause_after_compaction=True))
        assert paused["content"] == [block] and paused["stop_reason"] == "compaction", paused
        assert events(s, MESSAGES, {"max_tokens": 300, "messages": SAID, **compact(n - 1, instructions=instructions, pause_after_compaction=True)})[-2]["delta"]["stop_reason"] == "compaction"
    # Counting asks for no summary.
    counted_ = s.call("POST", MESSAGES + "/count_tokens", {"messages": SAID, **compact(1)})[2]
    assert counted_ == {"input_tokens": n, "context_management": {"original_input_tokens": n}}, counted_
    # A form and a choice are the reply's, not the summary's.
    r = messages(s, SAID, max_tokens=64, **compact(1), tools=TOOLS, tool_choice={"type": "any"})
    assert [b["type"] for b in r["content"]][0] == "compaction" and r["content"][-1]["type"] == "tool_use", r
    # In a thread.
    begun = messages(s, SAID, thread={"type": "create"}, **compact(n - 1))
    goes_on = {"thread": {"type": "continue", "previous_message_id": begun["id"]}}
    new = [{"role": "user", "content": "And then?"}]
    assert digest(messages(s, new, **goes_on)) == digest(messages(s, [*SAID, {"role": "assistant", "content": begun["content"]}, *new]))


def compacted_responses(s):
    plain = ask(s, RESPONSES, {"input": SAID, "max_output_tokens": 16})
    n = plain["usage"]["input_tokens"]
    managed = lambda at: {"context_management": [{"type": "compaction", "compact_threshold": at}]}
    assert digest(ask(s, RESPONSES, {"input": SAID, "max_output_tokens": 16, **managed(n)})) == digest(plain)
    alone = ask(s, RESPONSES, {"input": [*SAID, {"type": "compaction_trigger"}]})["output"][0]
    whole = ask(s, RESPONSES, {"input": SAID, "max_output_tokens": 16, **managed(n - 1)})
    item, *rest = whole["output"]
    assert item["type"] == "compaction" and item["encrypted_content"] == alone["encrypted_content"] and rest, whole
    want = ask(s, RESPONSES, {"input": [*SAID, item], "max_output_tokens": 16})
    assert digest(whole) == digest(want) and whole["usage"]["input_tokens"] == want["usage"]["input_tokens"], (whole, want)
    assert [(o["type"], o["content"]) for o in rest] == [(o["type"], o["content"]) for o in want["output"]]
    got = events(s, RESPONSES, {"input": SAID, "max_output_tokens": 16, **managed(n - 1)})
    added = [(e["output_index"], e["item"]["type"]) for e in got if e["type"] == "response.output_item.added"]
    assert added == [(i, o["type"]) for i, o in enumerate(whole["output"])], added
    end = got[-1]["response"]
    assert [o["type"] for o in end["output"]] == [o["type"] for o in whole["output"]] and end["evenkeel"]["digest"] == digest(whole)
    assert [e["item"] for e in got if e["type"] == "response.output_item.done"] == end["output"]
    assert len({o["id"] for o in end["output"]}) == len(end["output"]) and [e["sequence_number"] for e in got] == list(range(len(got)))
    # It is stored, and goes on; also in a conversation and in the background.
    more = {"input": "And then?", "max_output_tokens": 8}
    want = digest(ask(s, RESPONSES, {**more, "input": [*SAID, *whole["output"], {"role": "user", "content": "And then?"}]}))
    assert digest(ask(s, RESPONSES, {**more, "previous_response_id": whole["id"]})) == want
    c = s.call("POST", "/v1/conversations", {"items": SAID[:-1]})[2]["id"]
    r = ask(s, RESPONSES, {"conversation": c, "input": SAID[-1:], "max_output_tokens": 16, "background": True, **managed(n - 1)})
    while r["status"] in ("queued", "in_progress"):
        time.sleep(0.01)
        r = s.call("GET", RESPONSES + "/" + r["id"])[2]
    assert [o["type"] for o in r["output"]] == ["compaction", "message"] and digest(r) == digest(whole), r
    assert digest(ask(s, RESPONSES, {**more, "conversation": c})) == want
    assert s.call("POST", RESPONSES + "/input_tokens", {"input": SAID, **managed(1)})[2]["input_tokens"] == n


def use(i, name="weather"):
    return [{"role": "assistant", "content": [{"type": "thinking", "thinking": f"I look {i}.", "signature": "x"}, {"type": "tool_use", "id": f"t{i}", "name": name, "input": {"city": f"City {i}"}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": f"t{i}", "content": f"It rains in city {i}, as it has for many days, and the river is high."}]}]


def cleared_uses(s):
    def history(results=(), inputs=(), without=()):
        out = [{"role": "user", "content": "Weather everywhere?"}]
        for i in range(6):
            a, r = use(i, "time" if i == 1 else "weather")
            if i in results:
                r["content"][0]["content"] = CLEARED
            if i in inputs:
                a["content"][1]["input"] = {}
            if i in without:
                a["content"] = a["content"][1:]
            out += [a, r]
        return out

    def edited(edits, **more):
        return messages(s, history(), tools=TOOLS, context_management={"edits": edits}, **more)

    def read(**kinds):
        return messages(s, history(**kinds), tools=TOOLS)

    def uses(**more):
        return {"type": "clear_tool_uses_20250919", "trigger": {"type": "tool_uses", "value": 3}, **more}

    n = lambda r: r["usage"]["input_tokens"] + r["usage"]["cache_read_input_tokens"]
    plain = read()
    for edit, kinds in ((uses(), {"results": (0, 1, 2)}), (uses(keep={"type": "tool_uses", "value": 1}), {"results": range(5)}), (uses(exclude_tools=["time"]), {"results": (0, 2)}),
                        (uses(clear_tool_inputs=True), {"results": (0, 1, 2), "inputs": (0, 1, 2)}), (uses(clear_tool_inputs=["time"]), {"results": (0, 1, 2), "inputs": (1,)}),
                        (uses(keep={"type": "tool_uses", "value": 0}, trigger={"type": "input_tokens", "value": 10}), {"results": range(6)}),
                        ({"type": "clear_tool_uses_20250919", "trigger": {"type": "tool_uses", "value": 6}}, {}), (uses(trigger=None), {}), (uses(keep={"type": "tool_uses", "value": 9}), {}),
                        (uses(clear_at_least={"type": "input_tokens", "value": 1}), {"results": (0, 1, 2)}), (uses(clear_at_least={"type": "input_tokens", "value": 100000}), {})):
        got, want = edited([edit]), read(**kinds)
        assert digest(got) == digest(want), (edit, kinds)
        applied = got["context_management"]["applied_edits"]
        cleared = len(list(kinds.get("results", ())))
        assert applied == ([{"type": "clear_tool_uses_20250919", "cleared_tool_uses": cleared, "cleared_input_tokens": n(plain) - n(want)}] if cleared else []), (edit, applied)
        count = s.call("POST", MESSAGES + "/count_tokens", {"messages": history(), "tools": TOOLS, "context_management": {"edits": [edit]}})[2]
        assert count == {"input_tokens": n(want), "context_management": {"original_input_tokens": n(plain)}}, count
    # Thoughts, and both.
    for keep, without in ((None, range(5)), ({"type": "thinking_turns", "value": 2}, range(4)), ("all", ()), ({"type": "all"}, ())):
        edit = {"type": "clear_thinking_20251015", **({"keep": keep} if keep else {})}
        got = edited([edit])
        assert digest(got) == digest(read(without=without)), keep
        assert [e["cleared_thinking_turns"] for e in got["context_management"]["applied_edits"]] == ([len(without)] if without else []), got
    both = edited([{"type": "clear_thinking_20251015"}, uses()])
    assert digest(both) == digest(read(without=range(5), results=(0, 1, 2))) and len(both["context_management"]["applied_edits"]) == 2, both
    got = events(s, MESSAGES, {"messages": history(), "tools": TOOLS, "max_tokens": 16, "context_management": {"edits": [uses()]}})
    assert got[-2]["context_management"]["applied_edits"][0]["cleared_tool_uses"] == 3, got[-2]


def refused(s):
    for wrong, says in (({"type": "other"}, "must be summarize"), ("summarize", "must be summarize"), ({"type": "summarize", "instructions": 5}, "must be a text"),
                        ({"type": "summarize", "instructions": ["a"]}, "must be a text")):
        e = messages(s, SAID, 400, compaction=wrong)["error"]
        assert "compaction" in e["message"] and says in e["message"], e
    assert messages(s, SAID, max_tokens=300, compaction={"type": "summarize", "instructions": None})["stop_reason"] == "compaction"
    edit = {"type": "compact_20260112"}
    for body in (5, [], {"edits": 5}, {"edits": [5]}, {"edits": [{}]}, {"edits": [{"type": "smell"}]}, {"edits": [{**edit, "trigger": {"type": "tool_uses", "value": 1}}]},
                 {"edits": [{**edit, "trigger": {"type": "input_tokens"}}]}, {"edits": [{**edit, "trigger": {"type": "input_tokens", "value": -1}}]}, {"edits": [{**edit, "trigger": 5}]},
                 {"edits": [{**edit, "instructions": 5}]}, {"edits": [{**edit, "pause_after_compaction": "yes"}]}, {"edits": [{"type": "clear_tool_uses_20250919", "exclude_tools": "x"}]},
                 {"edits": [{"type": "clear_tool_uses_20250919", "clear_tool_inputs": 5}]}, {"edits": [{"type": "clear_thinking_20251015", "keep": "some"}]},
                 {"edits": [{"type": "clear_thinking_20251015"}] * 9}):
        e = messages(s, SAID, 400, context_management=body)
        assert "context_management" in e["error"]["message"], (body, e)
    for body in (5, {}, [5], [{}], [{"type": "smell"}], [{"type": "compaction", "compact_threshold": 0}], [{"type": "compaction", "compact_threshold": "x"}]):
        e = ask(s, RESPONSES, {"input": SAID, "context_management": body}, 400)
        assert e["error"]["param"] == "context_management", (body, e)
    for body in ({"edits": []}, {"edits": None}, {}):
        assert messages(s, SAID, context_management=body)["context_management"] == {"applied_edits": []}


def leaves_in_between(s):
    """A client that goes while the summary is written ends both; the summary in a stream is behind heartbeats only."""
    for stream in (False, True):
        c = s.open()
        c.request("POST", MESSAGES, json.dumps({"messages": SAID, "max_tokens": 400, **compact(1), "stream": stream}), {"content-type": "application/json"})
        time.sleep(0.003)
        c.close()
        s.wait_idle()
    assert messages(s, SAID)["content"]


def managed(at=1):
    return {"context_management": [{"type": "compaction", "compact_threshold": at}]}


def a_stop_string_is_the_reply_s(s):
    """It does not cut the summary, which stands for all that was said."""
    whole = messages(s, SAID, **compact(1))["content"][0]
    words = whole["content"].split()
    stop = f" {words[len(words) // 2]}"
    assert stop in whole["content"], whole
    r = messages(s, SAID, **compact(1), stop_sequences=[stop])
    assert r["content"][0] == whole, (r, whole)
    got = events(s, RESPONSES, {"input": SAID, "max_output_tokens": 16, "stop": [stop], **managed()})[-1]["response"]["output"][0]
    assert got["encrypted_content"] == ask(s, RESPONSES, {"input": SAID, "max_output_tokens": 16, **managed()})["output"][0]["encrypted_content"], got


def busy(s, n):
    """Connections of streams that go on."""
    out = []
    for _ in range(n):
        c = s.open()
        c.request("POST", "/v1/chat/completions", json.dumps({"messages": SAID, "max_tokens": 100000, "ignore_eos": True, "stream": True}), {"content-type": "application/json"})
        out.append(c)
    return out


def looping(s):
    """A body whose summary loops, and so ends while its request runs."""
    token = s.call("POST", "/tokenize", {"prompt": "a", "add_special_tokens": False})[2]["tokens"][-1]
    return {"logit_bias": {str(token): 100}}


def a_summary_ends_before_its_request():
    with Server(PROGRAM, "--model", MODEL, "--stop-loops", "--cache-replies", "1M") as s:
        bias = looping(s)
        before = busy(s, 8)  # steps take longer than reading a body
        for _ in range(5):
            r = messages(s, SAID, **compact(1), **bias)
            assert r["usage"]["iterations"][0]["output_tokens"] == 200 and r["content"][-1]["text"] == "a" * 16, r
            r = ask(s, RESPONSES, {"input": SAID, "max_output_tokens": 8, **managed(), **bias})
            assert r["status"] == "incomplete" and r["output"][-1]["content"][0]["text"] == "a" * 8, r
        got = events(s, MESSAGES, {"messages": SAID, "max_tokens": 16, **compact(1), **bias})
        assert got[-2]["delta"]["stop_reason"] == "max_tokens", got[-2]
        # Clients that leave around its end, streams and not.
        begun = time.time()
        messages(s, SAID, **compact(1), **bias)
        takes = time.time() - begun
        for i in range(40):
            c = s.open()
            c.request("POST", MESSAGES, json.dumps({"messages": SAID, "max_tokens": 16, **compact(1), **bias, "stream": i % 2 > 0}), {"content-type": "application/json"})
            time.sleep(takes * (0.6 + i / 80))
            c.close()
        for b in before:
            b.close()
        s.wait_idle()
        assert messages(s, SAID)["content"]


def in_the_background(s):
    """The events of both readings are those of one response: one beginning, numbers without a gap, one time."""
    plain = events(s, RESPONSES, {"input": SAID, "max_output_tokens": 16, **managed()})
    got = events(s, RESPONSES, {"input": SAID, "max_output_tokens": 16, "background": True, **managed()})
    assert [e["type"] for e in got] == ["response.created", "response.queued", *[e["type"] for e in plain[1:]]], [e["type"] for e in got]
    assert [e["sequence_number"] for e in got] == list(range(len(got))), [e["sequence_number"] for e in got]
    assert len({e["response"]["created_at"] for e in got if "response" in e}) == 1 and got[-1]["response"]["output"][0]["type"] == "compaction"
    id_ = got[0]["response"]["id"]
    c = s.open()
    c.request("GET", f"{RESPONSES}/{id_}?stream=true&starting_after=1")
    again = [json.loads(l[6:]) for l in c.getresponse() if l.startswith(b"data: {")]
    c.close()
    assert again == got[2:], again[:1]


def among_as_many_as_are_taken():
    """One that has begun is none too many: its second reading needs no place of its own."""
    with Server(PROGRAM, "--model", MODEL, "--max-requests", 1, "--queue", 2000) as s:
        before = busy(s, 10)  # until they leave all others wait
        first = ask(s, RESPONSES, {"input": SAID, "max_output_tokens": 4, "background": True, **managed()})["id"]
        c = s.open()
        n = 1
        while True:
            c.request("POST", RESPONSES, json.dumps({"input": "x", "max_output_tokens": 4, "background": True}), {"content-type": "application/json"})
            r = c.getresponse()
            r.read()
            if r.status != 200:
                break
            n += 1
        assert r.status in (429, 503) and n == 1024, (r.status, n)
        state = lambda: s.call("GET", RESPONSES + "/" + first)[2]
        assert state()["status"] == "queued", state()
        for b in before:
            b.close()
        while (got := state())["status"] in ("queued", "in_progress"):
            time.sleep(0.01)
        assert got["status"] == "incomplete" and got["output"][0]["type"] == "compaction", got


def a_second_reading_may_find_no_room():
    """It is refused as a first one is, and nothing of it is touched once it is freed."""
    with Server(PROGRAM, "--model", MODEL, "--prepare-threads", 1, "--limits", "prepare-queue=1", env={"MALLOC_PERTURB_": "90"}) as s:
        large = json.dumps({"messages": [{"role": "user", "content": "a b " * 50000}], "max_tokens": 1})
        stop = threading.Event()

        def presses():
            while not stop.is_set():
                s.call("POST", "/v1/chat/completions", large.encode())
        threads = [threading.Thread(target=presses) for _ in range(4)]
        for t in threads:
            t.start()
        late = 0
        try:
            for _ in range(2000):
                status, _, r = s.call("POST", MESSAGES, {**COMMON, "messages": SAID, "max_tokens": 4, **compact(1)})
                assert status == 200 or status == 429 and r["error"]["type"] == "rate_limit_error", (status, r)
                late = s.said().count("event=summary") - s.said().count("outcome=done")
                if late >= 3:
                    break
        finally:
            stop.set()
            for t in threads:
                t.join()
        assert late >= 3, s.said()[-2000:]
        assert messages(s, SAID)["content"]


def main():
    with Server(PROGRAM, "--model", MODEL) as s:
        for test in (compacted_messages, compacted_responses, cleared_uses, refused, leaves_in_between, a_stop_string_is_the_reply_s, in_the_background):
            counted.run(test, s)
    for test in (a_summary_ends_before_its_request, a_second_reading_may_find_no_room, among_as_many_as_are_taken):
        counted.run(test)
    return counted.closing()


sys.exit(main())
