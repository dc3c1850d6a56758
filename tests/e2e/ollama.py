#!/usr/bin/env python3
"""Ollama's API of `evenkeel serve`, and the paths of llama.cpp's server: ollama.py PROGRAM MODEL [NAME...]

MODEL is a checkpoint folder. Requests are those that the ollama packages, Continue and Open WebUI make, by their sources.
Prints one line per test and closes with `N passed, N failed`."""
import json, os, re, subprocess, sys, tempfile, threading, time

import counted
from client import Server

PROGRAM, MODEL, counted.only = sys.argv[1], sys.argv[2], sys.argv[3:]
WEATHER = {"type": "function", "function": {"name": "get_weather", "description": "Weather of a city.", "parameters": {
    "type": "object", "properties": {"city": {"type": "string", "maxLength": 8}}, "required": ["city"]}}}
SCHEMA = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 6}, "age": {"type": "integer", "minimum": 1, "maximum": 9}},
          "required": ["name", "age"]}
HISTORY = [{"role": "user", "content": "What is the weather in Oslo?"},
           {"role": "assistant", "content": "", "thinking": "A tool knows.", "tool_calls": [{"function": {"name": "get_weather", "arguments": {"city": "Oslo"}}}]},
           {"role": "tool", "tool_name": "get_weather", "content": "rain, 7 degrees"}]
HISTORY_OPENAI = [HISTORY[0],
                  {"role": "assistant", "content": None, "reasoning_content": "A tool knows.", "tool_calls": [
                      {"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city":"Oslo"}'}}]},
                  {"role": "tool", "tool_call_id": "c1", "content": "rain, 7 degrees"}]


def user(text):
    return [{"role": "user", "content": text}]


def raw(s, method, path, body=None, headers=None):
    """(status, headers, text)"""
    c = s.open()
    try:
        c.request(method, path, json.dumps(body) if isinstance(body, (dict, list)) else body, headers or {"content-type": "application/json"})
        r = c.getresponse()
        return r.status, dict((k.lower(), v) for k, v in r.getheaders()), r.read().decode()
    finally:
        c.close()


def whole(s, path, body, status=200):
    got, headers, text = raw(s, "POST", path, {"model": "gemma4:latest", "stream": False, **body})
    assert got == status, (got, text)
    assert headers["content-type"] == "application/json", headers
    return json.loads(text)


def lines(s, path, body):
    got, headers, text = raw(s, "POST", path, {"model": "gemma4:latest", **body})
    assert got == 200 and headers["content-type"] == "application/x-ndjson", (got, headers, text)
    assert text.endswith("\n") and all(l.strip() for l in text[:-1].split("\n")), "an empty line: clients fail at it"
    all_ = [json.loads(l) for l in text.splitlines()]
    assert [l["done"] for l in all_] == [False] * (len(all_) - 1) + [True], text
    assert all(l["model"] == os.path.basename(os.path.realpath(MODEL)) and re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", l["created_at"]) for l in all_), text
    return all_


def said(replies):
    """What the lines of a stream, or a reply in one piece, say: content, thoughts, calls without ids."""
    messages = [r.get("message", {"content": r.get("response"), "thinking": r.get("thinking")}) for r in replies]
    calls = [{k: c["function"][k] for k in ("name", "arguments")} for m in messages for c in m.get("tool_calls", [])]
    return "".join(m.get("content") or "" for m in messages), "".join(m.get("thinking") or "" for m in messages), calls


def openai_said(reply):
    m = reply["choices"][0]["message"]
    calls = []
    for c in m.get("tool_calls") or []:
        try:
            arguments = json.loads(c["function"]["arguments"])
        except ValueError: # cut by the token limit
            arguments = None
        calls.append({"name": c["function"]["name"], "arguments": arguments})
    return m["content"] or "", m.get("reasoning_content") or "", calls


def same(a, b):
    calls = len(a[2]) == len(b[2]) and all(x["name"] == y["name"] and (y["arguments"] is None or x["arguments"] == y["arguments"]) for x, y in zip(a[2], b[2]))
    return a[:2] == b[:2] and calls


CONVERSATIONS = { # name: (Ollama's words, OpenAI's words)
    "plain": ({"messages": user("Hello"), "options": {"temperature": 0, "num_predict": 24}}, {"messages": user("Hello"), "temperature": 0, "max_tokens": 24}),
    "a system message": ({"messages": [{"role": "system", "content": "Be brief."}, *user("Who are you?")], "options": {"temperature": 0, "num_predict": 24}},
                         {"messages": [{"role": "system", "content": "Be brief."}, *user("Who are you?")], "temperature": 0, "max_tokens": 24}),
    "sampled": ({"messages": user("Tell me something."), "options": {"temperature": 1.3, "top_k": 30, "top_p": 0.9, "min_p": 0.01, "seed": 77, "num_predict": 30,
                                                                    "repeat_penalty": 1.2, "presence_penalty": 0.5, "frequency_penalty": 0.25, "num_ctx": 2048}},
                {"messages": user("Tell me something."), "temperature": 1.3, "top_k": 30, "top_p": 0.9, "min_p": 0.01, "seed": 77, "max_tokens": 30,
                 "repetition_penalty": 1.2, "presence_penalty": 0.5, "frequency_penalty": 0.25}),
    "the model's own sampling": ({"messages": user("Hi"), "options": {"seed": 5, "num_predict": 12}}, {"messages": user("Hi"), "seed": 5, "max_tokens": 12}),
    "thinking": ({"messages": user("How many legs have two cats?"), "think": True, "options": {"temperature": 0, "num_predict": 40}},
                 {"messages": user("How many legs have two cats?"), "reasoning_effort": "high", "temperature": 0, "max_tokens": 40}),
    "a level of thinking": ({"messages": user("Hi there"), "think": "low", "options": {"temperature": 0, "num_predict": 40}},
                            {"messages": user("Hi there"), "reasoning_effort": "low", "temperature": 0, "max_tokens": 40}),
    "no thinking": ({"messages": user("Hi there"), "think": False, "options": {"temperature": 0, "num_predict": 9}},
                    {"messages": user("Hi there"), "reasoning_effort": "none", "temperature": 0, "max_tokens": 9}),
    "tools": ({"messages": user("What is the weather in Paris?"), "tools": [WEATHER], "options": {"temperature": 0, "num_predict": 60}},
              {"messages": user("What is the weather in Paris?"), "tools": [WEATHER], "temperature": 0, "max_tokens": 60}),
    "a call that must be": ({"messages": user("Hello"), "tools": [WEATHER], "tool_choice": "required", "options": {"temperature": 0, "num_predict": 60}},
                            {"messages": user("Hello"), "tools": [WEATHER], "tool_choice": "required", "temperature": 0, "max_tokens": 60}),
    "a call that is cut": ({"messages": user("Hello"), "tools": [WEATHER], "tool_choice": "required", "options": {"temperature": 0, "num_predict": 6}},
                           {"messages": user("Hello"), "tools": [WEATHER], "tool_choice": "required", "temperature": 0, "max_tokens": 6}),
    "a result": ({"messages": HISTORY, "tools": [WEATHER], "options": {"temperature": 0, "num_predict": 30}},
                 {"messages": HISTORY_OPENAI, "tools": [WEATHER], "temperature": 0, "max_tokens": 30}),
    "a schema": ({"messages": user("A person, please."), "format": SCHEMA, "options": {"temperature": 0, "num_predict": 80}},
                 {"messages": user("A person, please."), "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}},
                  "temperature": 0, "max_tokens": 80}),
    "json": ({"messages": user("JSON, please."), "format": "json", "options": {"temperature": 0, "num_predict": 30}},
             {"messages": user("JSON, please."), "response_format": {"type": "json_object"}, "temperature": 0, "max_tokens": 30}),
    "a stop text": ({"messages": user("Hello"), "options": {"temperature": 0, "num_predict": 30, "stop": ["e", "o"]}},
                    {"messages": user("Hello"), "temperature": 0, "max_tokens": 30, "stop": ["e", "o"]}),
}


def one_conversation_two_apis(s):
    """Content, thoughts, calls and the bits of all logits: whole, streamed, and in OpenAI's words; alone and all at once."""
    alone = {}
    for name, (theirs, ours) in CONVERSATIONS.items():
        ask = {"evenkeel": {"digest": True}}
        one, many = whole(s, "/api/chat", theirs | ask), lines(s, "/api/chat", theirs | ask)
        openai = s.chat(ours | ask)
        alone[name] = digest = one["evenkeel"]["digest"]
        assert digest == many[-1]["evenkeel"]["digest"] == openai["evenkeel"]["digest"], (name, one, many, openai)
        assert said([one]) == said(many) and same(said([one]), openai_said(openai)), (name, one, many, openai)
        usage, reason = openai["usage"], openai["choices"][0]["finish_reason"]
        for last in (one, many[-1]):
            assert last["prompt_eval_count"] == usage["prompt_tokens"] and last["eval_count"] == usage["completion_tokens"], (name, last, usage)
            assert last["done_reason"] == ("length" if reason == "length" else "stop"), (name, last, reason)
            durations = [last[k] for k in ("load_duration", "prompt_eval_duration", "eval_duration")]
            assert all(isinstance(d, int) and d > 0 for d in durations) and last["total_duration"] >= sum(durations) - 3, last
    assert set(said(lines(s, "/api/chat", CONVERSATIONS["a schema"][0]))[0]) and json.loads(said([whole(s, "/api/chat", CONVERSATIONS["a schema"][0])])[0]).keys() == {"name", "age"}
    got = {}

    def ask(name, stream):
        body = CONVERSATIONS[name][0] | {"evenkeel": {"digest": True}}
        got[name, stream] = (lines(s, "/api/chat", body)[-1] if stream else whole(s, "/api/chat", body))["evenkeel"]["digest"]

    threads = [threading.Thread(target=ask, args=(n, k)) for n in CONVERSATIONS for k in (False, True)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert got == {(n, k): d for n, d in alone.items() for k in (False, True)}, (got, alone)


def generate(s):
    """A prompt is a chat of one message; a raw one is a completion."""
    ask = {"evenkeel": {"digest": True}, "options": {"temperature": 0, "num_predict": 20}}
    for more, messages, think in (({}, [], {}), ({"system": "Be brief."}, [{"role": "system", "content": "Be brief."}], {}), ({"think": True}, [], {"think": True})):
        one, many = whole(s, "/api/generate", {**ask, "prompt": "Who?", **more}), lines(s, "/api/generate", {**ask, "prompt": "Who?", **more})
        chat = whole(s, "/api/chat", {**ask, "messages": [*messages, *user("Who?")], **think})
        assert one["evenkeel"] == many[-1]["evenkeel"] == chat["evenkeel"], (one, chat)
        assert said([one]) == said(many) == said([chat]), (one, many, chat)
    text = "<|turn>user\nHello<turn|>\n<|turn>model\n"
    one, many = whole(s, "/api/generate", {**ask, "prompt": text, "raw": True}), lines(s, "/api/generate", {**ask, "prompt": text, "raw": True})
    status, _, plain = s.call("POST", "/v1/completions", {"prompt": text, "temperature": 0, "max_tokens": 20, "evenkeel": {"digest": True}})
    assert status == 200 and one["response"] == said(many)[0] == plain["choices"][0]["text"] and one["evenkeel"] == plain["evenkeel"], (one, plain)
    schema = whole(s, "/api/generate", {"prompt": "A person", "format": SCHEMA, "options": {"temperature": 0, "num_predict": 80}})
    assert json.loads(schema["response"]).keys() == {"name", "age"}, schema


def prompts_are_the_same(s):
    """The text of the prompt, as Ollama shows it, is that of the tokens that OpenAI's path renders."""
    for name, (theirs, ours) in CONVERSATIONS.items():
        shown = whole(s, "/api/chat", theirs | {"_debug_render_only": True})["_debug_info"]["rendered_template"]
        _, _, rendered = s.call("POST", "/v1/chat/completions/render", ours)
        _, _, text = s.call("POST", "/v1/detokenize", {"tokens": rendered["token_ids"]})
        assert shown == text["prompt"], (name, shown, text)
    shown = whole(s, "/api/generate", {"prompt": "hi", "raw": True, "_debug_render_only": True})
    assert shown["_debug_info"]["rendered_template"] == "<bos>hi" and shown["response"] == "", shown


def log_probabilities(s):
    theirs, ours = CONVERSATIONS["plain"]
    openai = s.chat(ours | {"logprobs": True, "top_logprobs": 2})["choices"][0]["logprobs"]["content"]
    one, many = whole(s, "/api/chat", theirs | {"logprobs": True, "top_logprobs": 2}), lines(s, "/api/chat", theirs | {"logprobs": True, "top_logprobs": 2})
    assert one["logprobs"] == [p for l in many for p in l.get("logprobs", [])] == openai, (one, openai)
    assert "logprobs" not in whole(s, "/api/chat", theirs | {"top_logprobs": 2})


def loading(s):
    for path, text in (("/api/chat", {"message": {"role": "assistant", "content": ""}}), ("/api/generate", {"response": ""})):
        for body, reason in (({}, "load"), ({"messages": [], "prompt": "", "keep_alive": "5m"}, "load"), ({"keep_alive": 0}, "unload"), ({"keep_alive": "0s", "prompt": ""}, "unload")):
            status, headers, reply = raw(s, "POST", path, {"model": "any/name:tag", **body})
            reply = json.loads(reply)
            assert status == 200 and headers["content-type"] == "application/json", (status, headers)
            assert reply.pop("created_at") and reply == {"model": os.path.basename(os.path.realpath(MODEL)), "done": True, "done_reason": reason, **text}, reply


def models(s):
    status, _, text = raw(s, "HEAD", "/")
    assert status == 200 and text == ""
    get = lambda path: json.loads(raw(s, "GET", path)[2])
    assert re.fullmatch(r"\d+\.\d+\.\d+", get("/api/version")["version"])
    [tag], [ps] = get("/api/tags")["models"], get("/api/ps")["models"]
    served = get("/v1/models")["data"][0]
    assert tag["name"] == tag["model"] == ps["name"] == ps["model"] == served["id"] + ":latest", (tag, ps)
    assert tag["size"] > 0 and re.fullmatch("[0-9a-f]{64}", tag["digest"]) and tag["details"]["family"] == "gemma4", tag
    assert ps["context_length"] == served["max_model_len"] and ps["expires_at"] > tag["modified_at"], ps
    for name in (tag["name"], served["id"], "gemma4:latest", "llama3.2"):
        status, _, show = s.call("POST", "/api/show", {"model": name})
        assert status == 200 and {"tools", "thinking", "completion"} <= set(show["capabilities"]), show
        assert f"num_ctx {served['max_model_len']}\n" in show["parameters"], show
        assert show["model_info"]["gemma4.context_length"] == served["max_model_len"]
    for body in ({"model": tag["name"]}, {"name": served["id"], "insecure": True}):
        status, headers, text = raw(s, "POST", "/api/pull", body)
        assert (status, headers["content-type"], text) == (200, "application/x-ndjson", '{"status":"success"}\n'), (status, headers, text)
    assert whole(s, "/api/pull", {"model": served["id"]})["status"] == "success"
    for method, path in (("POST", "/api/embed"), ("POST", "/api/embeddings"), ("POST", "/api/create"), ("POST", "/api/copy"), ("POST", "/api/push"),
                         ("DELETE", "/api/delete"), ("POST", "/api/blobs/sha256:00"), ("GET", "/api/none")):
        status, _, text = raw(s, method, path, {"model": "m", "input": "a"})
        assert status == 404 and json.loads(text).keys() == {"error"} and path in text, (method, path, status, text)
    assert raw(s, "HEAD", "/api/blobs/sha256:00")[0] == 404


BODIES = { # path: a body without its model
    "/v1/chat/completions": {"messages": user("Hi"), "max_tokens": 2}, "/v1/completions": {"prompt": "a", "max_tokens": 2}, "/v1/responses": {"input": "Hi", "max_output_tokens": 2},
    "/v1/messages": {"messages": user("Hi"), "max_tokens": 2}, "/api/chat": {"messages": user("Hi"), "stream": False, "options": {"num_predict": 2}},
    "/api/generate": {"prompt": "Hi", "stream": False, "options": {"num_predict": 2}}}


def names():
    """Replies name the model by the name that was asked for where it is one of its own; with --strict-model there are no others."""
    own = os.path.basename(os.path.realpath(MODEL))
    with Server(PROGRAM, "--model", MODEL, "--served-name", "gpt-9,org/other", "--strict-model") as strict, Server(PROGRAM, "--model", MODEL, "--served-name", "gpt-9,org/other") as s:
        assert [m["id"] for m in s.call("GET", "/v1/models")[2]["data"]] == [own, "gpt-9", "org/other"]
        assert s.call("GET", "/v1/models/org/other")[2]["id"] == "org/other" and s.call("GET", "/v1/models/gpt-10")[0] == 404
        for path, body in BODIES.items():
            for asked, want in ((own, own), (own.upper() + ":latest",) * 2, ("gpt-9",) * 2, ("org/other",) * 2, ("other", own), ("gpt-9:8b", own), ("gpt-5", own)):
                status, _, r = s.call("POST", path, {**body, "model": asked})
                assert status == 200 and r["model"] == want, (path, asked, r)
                status, _, r = strict.call("POST", path, {**body, "model": asked})
                assert status == (404 if asked != want else 200) and bool(r.get("error")) == (asked != want), (path, asked, r)
                assert asked == want or asked in json.dumps(r) and own in json.dumps(r), r
        status, _, r = strict.call("POST", "/v1/chat/completions", {**BODIES["/v1/chat/completions"], "model": "x"})
        assert r["error"]["code"] == "model_not_found" and r["error"]["param"] == "model", r
        for path in ("/v1/chat/completions", "/v1/messages"): # without one the served model is meant
            status, _, r = strict.call("POST", path, BODIES[path])
            assert status == 200 and r["model"] == own, r
        assert strict.call("POST", "/api/show", {"model": "llama3.2"})[0] == 404
        for path, body in (("/v1/tokenize", {"prompt": "a"}), ("/v1/tokenize", {"messages": user("a")}), ("/v1/detokenize", {"tokens": [2]}), ("/v1/responses/compact", {"input": "a"})):
            assert [strict.call("POST", path, {**body, **m})[0] for m in ({"model": "gpt-5"}, {"model": own}, {})] == [404, 200, 200], path
            assert s.call("POST", path, {**body, "model": "gpt-5"})[0] == 200 and s.call("POST", path, {**body, "model": 5})[0] == 400, path
    for bad in ("a,,b", ",", "a,", "x" * 257):
        r = subprocess.run([PROGRAM, "serve", "--model", MODEL, "--port", "0", "--served-name", bad], capture_output=True, text=True, timeout=60)
        assert r.returncode == 2 and "--served-name" in r.stderr, (bad, r)


HARMLESS = { # members that clients of today send and that change no answer here
    "/v1/chat/completions": {"store": False, "metadata": {"a": "b"}, "verbosity": "low", "prompt_cache_options": {}, "moderation": {}, "provider": {"order": []}, "reasoning": {"effort": "low"},
                             "cache_prompt": True, "dry_multiplier": 0.8, "rep_pen": 1.1, "x_label": 1, "x-trace": "t", "min_tokens": 0, "best_of": 1, "include_reasoning": True, "enable_thinking": False},
    "/v1/completions": {"best_of": 1, "user": "u", "echo": False, "n_predict": 2, "repeat_penalty": 1},
    "/v1/responses": {"access_programs": None, "client_metadata": {}, "context_management": [], "truncation": "auto", "max_tool_calls": 3, "service_tier": "auto"},
    "/v1/messages": {"metadata": {"user_id": "u"}, "container": "c", "context_management": {"edits": []}, "diagnostics": {}, "speed": "fast", "service_tier": "auto", "inference_geo": "eu",
                     "betas": [], "anthropic_version": "x", "cache_control": {"type": "ephemeral"}, "fallbacks": "default", "thread": None},
    "/api/chat": {"truncate": True, "shift": True, "keep_alive": 5, "think": False},
    "/api/generate": {"width": 1, "truncate": True, "keep_alive": "5m"}}


def members(s):
    """A member that no client's documentation has may change what is asked; ignored, something else would be answered in silence."""
    for path, body in BODIES.items():
        status, _, r = s.call("POST", path, {"model": "m", **body, **HARMLESS[path]})
        assert status == 200, (path, r)
        for name in ("continue_from", "thread_id", "previous_message_id", "Messages", "messages ", "", "a\"b\nc", "temperature\u0000"):
            status, _, r = s.call("POST", path, {"model": "m", **body, name: {"id": "x"}})
            text = json.dumps(r["error"])
            assert status == 400 and "no such member" in text and (name.strip() or '\\"\\"') [:9].split('"')[0] in text, (path, name, r)
            assert s.call("POST", path, {"model": "m", **body, name: None})[0] == 200
    tokenized = (("/v1/tokenize", {"prompt": "a", "add_special_tokens": True, "with_pieces": True}), ("/v1/tokenize", {"content": "a", "add_special": True, "parse_special": True}),
                 ("/v1/tokenize", {"messages": [{"role": "user", "content": "a"}], "add_generation_prompt": True, "return_token_strs": True}), ("/v1/detokenize", {"tokens": [2]}))
    for path, body in tokenized:
        assert s.call("POST", path, {"model": "m", **body, "x-trace": 1, "continue_from": None})[0] == 200, (path, body)
        status, _, r = s.call("POST", path, {**body, "continue_from": "x"})
        assert status == 400 and "no such member" in r["error"]["message"], (path, r)
    for path, name in (("/v1/completions", "messages"), ("/v1/chat/completions", "input"), ("/v1/messages", "previous_response_id"), ("/v1/chat/completions", "previous_response_id"),
                       ("/v1/chat/completions", "thread"), ("/v1/responses", "thread"), ("/api/chat", "thread"), ("/api/chat", "context")):
        status, _, r = s.call("POST", path, {"model": "m", **BODIES[path], name: "x"})
        assert status == 400 and name in json.dumps(r), (path, name, r)


def threads(s):
    """Anthropic's SDK goes on without a thread after this refusal."""
    for thread in ({"type": "other"}, 5, "x"):
        for path in ("/v1/messages", "/v1/messages/count_tokens"):
            status, _, r = s.call("POST", path, {"model": "m", **BODIES["/v1/messages"], "thread": thread})
            assert status == 400 and r["type"] == "error" and r["error"]["type"] == "invalid_request_error", r
            assert r["error"]["details"] == {"error_code": "thread_unsupported_request", "unsupported": ["thread"]}, r
    status, _, r = s.call("POST", "/v1/messages", {"model": "m", **BODIES["/v1/messages"], "mcp_servers": [{}]})
    assert status == 400 and "details" not in r["error"], r


def refusals(s):
    """One line, in Ollama's form, that names the field; and the server goes on."""
    chat = {"messages": user("hi")}
    for body, says in (({**chat, "options": {"temperature": "hot"}}, 'options: temperature: a number from 0 to 100 is needed, not "hot"'),
                       ({**chat, "options": {"stop": {"a": 1}}}, "stop"), ({**chat, "think": "x" * 200 + "\n"}, 'not "' + "x" * 80 + '…"'),
                       ({**chat, "format": 7}, "format"), ({**chat, "keep_alive": []}, "keep_alive"),
                       ({**chat, "tools": [{"type": "function"}]}, "tools"), ({"messages": {}}, "messages"), ({"messages": [1]}, "messages[0]"),
                       ({"messages": [{"role": "user", "content": "x", "images": ["AAAA"]}]}, "images"), ({"messages": [{"role": "boss\x1b[2J", "content": "x"}]}, "boss\\u001b[2J"),
                       ({"messages": [{"role": "tool", "tool_call_id": "none", "content": "x"}]}, "none"),
                       ({"messages": user("word " * 40000)}, "prompt is too long: "), ({**chat, "model": "m" * 300}, "model")):
        for stream in (True, False):
            got, _, text = raw(s, "POST", "/api/chat", {"model": "m", "stream": stream, **body})
            error = json.loads(text)
            assert got == 400 and error.keys() == {"error"} and says in error["error"] and "\n" not in error["error"], (body, got, text)
    for body in (b"{", b"[]", b"\xff\xfe", b"[" * 100000, b'{"model":"m","messages":' + b"[" * 5000):
        got, _, text = raw(s, "POST", "/api/chat", body)
        assert got == 400 and json.loads(text).keys() == {"error"}, (body[:20], got, text)
    got, headers, text = raw(s, "GET", "/api/chat")
    assert got == 405 and headers["allow"] == "POST" and json.loads(text).keys() == {"error"}, (got, text)
    got, _, text = raw(s, "POST", "/api/generate", {"model": "m", "prompt": "word " * 40000})
    assert got == 400 and "prompt is too long" in text, text
    got, _, text = raw(s, "POST", "/api/chat", chat, {"origin": "https://evil.example"})
    assert got == 403 and json.loads(text).keys() == {"error"}, (got, text)


def continues_requests(s):
    """What Continue's provider sends, and reads of the replies."""
    status, _, show = s.call("POST", "/api/show", {"name": "gemma4:e2b"})
    params = dict(re.fullmatch(r'(\S+)\s+((?:".*")|\S+)', l).groups() for l in show["parameters"].split("\n"))
    assert status == 200 and int(params["num_ctx"]) > 0 and ".Suffix" not in show["template"], show
    assert [m["name"] for m in json.loads(raw(s, "GET", "/api/tags")[2])["models"]]
    options = {"temperature": 0, "num_predict": 24, "num_ctx": int(params["num_ctx"]), "stop": ["<end>"]}
    body = {"messages": [{"role": "system", "content": "You edit code."}, *user("Say hello.")], "options": options, "think": False, "keep_alive": 1800, "stream": True}
    content, thoughts, _ = said(lines(s, "/api/chat", body))
    assert content and not thoughts
    tool = said(lines(s, "/api/chat", {**body, "messages": user("What is the weather in Rome?"), "tools": [WEATHER]}))
    if tool[2]: # Continue sends the call back without an id, and the result without a name
        call = {"function": tool[2][0]}
        then = [*user("What is the weather in Rome?"), {"role": "assistant", "content": "", "tool_calls": [call]}, {"role": "tool", "content": "sunny"}]
        lines(s, "/api/chat", {**body, "messages": then})
    assert said(lines(s, "/api/generate", {"prompt": "def add(a, b):\n", "raw": True, "options": options, "keep_alive": 1800, "stream": True}))[0] is not None
    got, _, text = raw(s, "POST", "/api/generate", {"model": "m", "prompt": "def f(", "suffix": "\n", "options": options})
    assert got == 400 and "suffix" in text # it does not ask, as the template has no suffix
    assert raw(s, "POST", "/api/embed", {"model": "m", "input": ["a"]})[0] == 404


def open_webuis_requests(s):
    """What Open WebUI's backend sends: tags and ps first, names with a tag, params beside and in options."""
    tags, ps = json.loads(raw(s, "GET", "/api/tags")[2]), json.loads(raw(s, "GET", "/api/ps")[2])
    name = tags["models"][0]["model"]
    assert ":" in name and {m["name"] for m in ps["models"]} == {name} and {"expires_at", "size_vram"} <= ps["models"][0].keys()
    assert tuple(map(int, json.loads(raw(s, "GET", "/api/version")[2])["version"].split("."))) >= (0, 6, 4)
    body = {"model": name, "messages": [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hello"}], "stream": True, "temperature": 0.7,
            "options": {"temperature": 0, "num_predict": 20, "seed": 1, "num_batch": 512, "num_keep": 4, "mirostat": 0, "tfs_z": 1, "use_mlock": False, "stop": []},
            "keep_alive": "5m", "format": "", "think": None, "tools": []}
    status, _, text = raw(s, "POST", "/api/chat", body)
    assert status == 200 and json.loads(text.splitlines()[-1])["done"], text
    then = {"model": name, "stream": False, "messages": [*user("And in Rome?"), {"role": "assistant", "content": "", "tool_calls": [
        {"index": 0, "id": "call_a", "type": "function", "function": {"name": "get_weather", "arguments": {"city": "Rome"}}}]},
        {"role": "tool", "tool_call_id": "call_a", "content": "hot"}], "tools": [WEATHER], "options": {"temperature": 0, "num_predict": 20}}
    status, _, text = raw(s, "POST", "/api/chat", then)
    assert status == 200 and json.loads(text)["done"], text
    status, _, text = raw(s, "POST", "/api/generate", {"model": name, "keep_alive": 0, "prompt": ""})
    assert status == 200 and json.loads(text)["done_reason"] == "unload", text


def becomes(true, seconds=60):
    """Whether it does within the time: /metrics is made anew after a moment only."""
    end = time.time() + seconds
    while not true() and time.time() < end:
        time.sleep(0.1)
    return true()


def gone(s):
    return int(re.search(r'^evenkeel_requests_total\{outcome="client_gone"\} (\d+)$', raw(s, "GET", "/metrics")[2], re.M)[1])


def an_abort(s):
    """A client that leaves ends its request, which would have gone on for long, and no other."""
    long = {"type": "array", "items": {"type": "integer"}, "minItems": 1500, "maxItems": 1500}
    c = s.open()
    c.request("POST", "/api/chat", json.dumps({"model": "m", "messages": user("Numbers."), "format": long, "options": {"temperature": 1, "seed": 1}}))
    r = c.getresponse()
    assert json.loads(r.readline())["done"] is False
    time.sleep(1.1)
    before = gone(s)
    theirs, ours = CONVERSATIONS["plain"]
    assert same(said([whole(s, "/api/chat", theirs)]), openai_said(s.chat(ours)))
    c.sock.close()
    r.close()
    c.close()
    s.wait_idle()
    assert becomes(lambda: gone(s) == before + 1), (gone(s), before)
    assert same(said([whole(s, "/api/chat", theirs)]), openai_said(s.chat(ours)))


def the_cache(s):
    """A prompt that was read through one API is found through the other; the count is of all of it."""
    text = "The keel of a ship is the beam on which all others stand. " * 12
    first = s.chat({"messages": user(text), "temperature": 0, "max_tokens": 2, "evenkeel": {"digest": True}})
    time.sleep(1.1)
    n, before = first["usage"]["prompt_tokens"], s.metrics()["evenkeel_cached_tokens_total"]
    ask = {"messages": user(text), "evenkeel": {"digest": True}, "options": {"temperature": 0, "num_predict": 2}}
    second = whole(s, "/api/chat", ask)
    found = lambda: s.metrics()["evenkeel_cached_tokens_total"] - before
    assert second["prompt_eval_count"] == n and becomes(lambda: found() >= n - 64), (second, n, found())
    salted = whole(s, "/api/chat", ask | {"cache_salt": "x"})
    assert salted["evenkeel"] == second["evenkeel"] == first["evenkeel"], (salted, second, first)


def llama_servers_paths(s):
    get = lambda path: json.loads(raw(s, "GET", path)[2])
    assert becomes(lambda: not any(x["is_processing"] for x in get("/slots")))
    props, slots, served = get("/props"), get("/slots"), get("/v1/models")["data"][0]
    assert props["default_generation_settings"]["n_ctx"] == served["max_model_len"] and props["total_slots"] == len(slots) == 4, props
    takes = served["architecture"]["input_modalities"]
    assert props["modalities"] == {"vision": "image" in takes, "audio": "audio" in takes} and props["model_alias"] == served["id"] and not props["is_sleeping"], props
    assert [x["id"] for x in slots] == [0, 1, 2, 3] and all(x["n_ctx"] == served["max_model_len"] and x["is_processing"] is False for x in slots), slots
    assert raw(s, "POST", "/props", {})[0] == 405 and raw(s, "POST", "/slots/0", {})[0] in (404, 405)
    stream = s.stream({"messages": user("On and on."), "max_tokens": 3000, "ignore_eos": True})
    next(iter(stream))
    assert becomes(lambda: any(x["is_processing"] for x in get("/slots")))
    stream.close()
    s.wait_idle()


def with_keys():
    with Server(PROGRAM, "--model", MODEL, "--api-key", "secret") as s:
        body = {"model": "m", "stream": False, **CONVERSATIONS["plain"][0]}
        bearer = {"authorization": "Bearer secret"}
        for method, path in (("POST", "/api/chat"), ("POST", "/api/generate"), ("POST", "/api/show"), ("POST", "/api/pull"), ("GET", "/api/tags"), ("GET", "/api/ps"),
                             ("POST", "/api/embed"), ("DELETE", "/api/delete")):
            status, headers, text = raw(s, method, path, body)
            assert status == 401 and json.loads(text).keys() == {"error"} and headers["www-authenticate"] == "Bearer", (path, status, text)
        for path in ("/props", "/slots"):
            assert raw(s, "GET", path)[0] == 401, path
        assert raw(s, "POST", "/api/chat", body, bearer)[0] == 200 and raw(s, "GET", "/api/tags", None, bearer)[0] == 200
        assert raw(s, "GET", "/api/version")[0] == 200 and raw(s, "HEAD", "/")[0] == 200


def a_journal():
    """What Ollama's API answered is replayed to the bit."""
    with tempfile.TemporaryDirectory() as d:
        journal = os.path.join(d, "journal")
        with Server(PROGRAM, "--model", MODEL, "--journal", journal, "--journal-prompts") as s:
            ids = [whole(s, "/api/chat", theirs)["id"] for theirs, _ in CONVERSATIONS.values()]
            ids.append(lines(s, "/api/generate", {"prompt": "One", "raw": True, "options": {"num_predict": 5}})[-1]["id"])
            whole(s, "/api/chat", {})
        entries = [json.loads(l) for l in open(journal)]
        assert [e["id"] for e in entries] == ids, (entries, ids)
        assert {e["api"] for e in entries} == {"/api/chat", "/api/generate"}, entries[0]
        r = subprocess.run([PROGRAM, "replay", "--model", MODEL, journal], capture_output=True, text=True, timeout=120)
        assert r.returncode == 0 and f"{len(ids)} agree, 0 differ, 0 skipped" in r.stdout, (r.stdout, r.stderr)


def prompt_progress(s):
    """llama-server's return_progress: chunks say how far the prompt is read, and change nothing else."""
    long = "One two three four five six seven. " * 120 + str(os.getpid())
    for path, body in (("/v1/chat/completions", {"messages": user(long)}), ("/v1/completions", {"prompt": long})):
        body = {"model": "m", "max_tokens": 4, "temperature": 0, "stream": True, "stream_options": {"include_usage": True}, **body}
        seen = []
        for again in (False, True):
            text = raw(s, "POST", path, {**body, "return_progress": True})[2]
            chunks = [json.loads(l[6:]) for l in text.splitlines() if l.startswith("data: {")]
            said_ = [c["prompt_progress"] for c in chunks if "prompt_progress" in c]
            total, cached = chunks[-1]["usage"]["prompt_tokens"], chunks[-1]["usage"]["prompt_tokens_details"]["cached_tokens"]
            assert said_ and set(said_[-1]) == {"total", "cache", "processed", "time_ms"}, text
            assert all(p["total"] == total and p["cache"] == cached <= p["processed"] for p in said_), (said_, total, cached)
            assert [p["processed"] for p in said_] == sorted(p["processed"] for p in said_) and said_[-1]["processed"] == total, said_
            assert "prompt_progress" in chunks[0] and not chunks[0]["choices"][0].get("delta"), chunks[0]
            assert (cached > total // 2) == again, (cached, again, total)
            seen.append([c["choices"] for c in chunks if "prompt_progress" not in c])
        plain = raw(s, "POST", path, body)[2]
        assert "prompt_progress" not in plain
        want = [json.loads(l[6:])["choices"] for l in plain.splitlines() if l.startswith("data: {")]
        assert seen == [want, want], (seen, want)


def chunks_of(s, path, body):
    """The chunks of a stream as the server framed them."""
    text = json.dumps(body).encode()
    with s.socket() as c:
        c.sendall(b"POST %s HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: %d\r\n\r\n%s" % (path.encode(), len(text), text))
        got = b"".join(iter(lambda: c.recv(65536), b""))
    head, _, rest = got.partition(b"\r\n\r\n")
    assert b" 200 " in head.splitlines()[0], got
    while True:
        size, _, rest = rest.partition(b"\r\n")
        if int(size, 16) == 0:
            return
        yield rest[:int(size, 16)]
        rest = rest[int(size, 16) + 2:]


def a_line_per_write():
    """Clients parse a line per read: each is a chunk of its own, and what a step adds is one line."""
    prompt = "a a a a a a a a a a " * 10
    with Server(PROGRAM, "--model", MODEL, "--draft", "ngram", "--draft-max", 8) as s:
        for path, body in (("/api/generate", {"prompt": prompt, "raw": True}), ("/api/chat", {"messages": user("Repeat: " + prompt)})):
            before = s.metrics()
            got = list(chunks_of(s, path, {"model": "m", "options": {"num_predict": 120, "temperature": 0}, **body}))
            after = s.metrics()
            steps, accepted = (after[f"evenkeel_{n}_total"] - before[f"evenkeel_{n}_total"] for n in ("steps", "accepted_tokens"))
            for c in got:
                assert c.strip() == b"" or (c.endswith(b"\n") and c.count(b"\n") == 1 and json.loads(c)), c
            texts = [c for c in got if c.strip() and not json.loads(c)["done"]]
            assert accepted > 10 or "pocket" not in MODEL, accepted
            assert len(texts) <= steps, f"{len(texts)} lines of text in {steps} steps"
            assert len(texts) <= 120 - accepted, f"{len(texts)} lines, {accepted} drafted tokens stood"


def main():
    shared = (one_conversation_two_apis, generate, prompts_are_the_same, log_probabilities, loading, models, members, threads, refusals, continues_requests, open_webuis_requests,
              prompt_progress, an_abort, the_cache, llama_servers_paths)
    with Server(PROGRAM, "--model", MODEL, "--max-requests", 4) as s:
        for test in (*((t, s) for t in shared), (names,), (with_keys,), (a_journal,), (a_line_per_write,)):
            counted.run(*test)
    return counted.closing()


sys.exit(main())
