"""/openapi.json: what it describes is what is answered, whole and in streams. openapi.py PROGRAM MODEL

Every other test over HTTP compares its requests and replies with the description too (described.py)."""
import json, sys, time

import counted
import described
from client import Server

PROGRAM, MODEL = sys.argv[1:3]
USER = [{"role": "user", "content": "Hello"}]
TOOL = {"name": "f", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}}}
STREAMS = {
    "/v1/chat/completions": [{"messages": USER, "max_tokens": 8, "stream_options": {"include_usage": True}, "logprobs": True, "top_logprobs": 2},
                             {"messages": USER, "max_tokens": 64, "tools": [{"type": "function", "function": TOOL}], "tool_choice": "required"},
                             {"messages": USER, "max_tokens": 8, "reasoning_effort": "high", "return_progress": True}],
    "/v1/responses": [{"input": "Hello", "max_output_tokens": 8}, {"input": "Hello", "max_output_tokens": 64, "tools": [{"type": "function", **TOOL}], "tool_choice": "required"},
                      {"input": "Hello", "max_output_tokens": 8, "reasoning": {"effort": "high", "summary": "auto"}}, {"input": "Hello", "max_output_tokens": 8, "background": True}],
    "/v1/messages": [{"messages": USER, "max_tokens": 8}, {"messages": USER, "max_tokens": 64, "tools": [{"name": "f", "input_schema": TOOL["parameters"]}], "tool_choice": {"type": "any"}},
                     {"messages": USER, "max_tokens": 8, "thinking": {"type": "enabled"}}],
    "/api/chat": [{"model": "m", "messages": USER, "options": {"num_predict": 8}}, {"model": "m", "messages": USER, "tools": [{"type": "function", "function": TOOL}], "options": {"num_predict": 64}}],
    "/api/generate": [{"model": "m", "prompt": "Hello", "options": {"num_predict": 8}}],
}


def served(s):
    for accept in ("", "?x=1"):
        c = s.open()
        c.request("GET", "/openapi.json" + accept)
        r = c.getresponse()
        text = r.read()
        assert r.status == 200 and r.getheader("content-type") == "application/json" and json.loads(text) == described.SPEC
        c.request("GET", "/openapi.json", headers={"if-none-match": r.getheader("etag")})
        r = c.getresponse()
        assert r.status == 304 and r.read() == b""
        c.close()


def whole(s):
    deadline = time.time() + 30
    while s.call("GET", "/ready")[0] != 200 and time.time() < deadline:
        time.sleep(0.05)
    for path, operations in described.SPEC["paths"].items():
        if "get" in operations and "{" not in path and path != "/metrics":
            assert s.call("GET", path)[0] == 200, path
    for path, bodies in STREAMS.items():
        for body in bodies:
            status, _, reply = s.call("POST", path, {**body, "stream": False})
            assert status == 200, (path, body, reply)
    assert s.call("GET", "/v1/models", None, {"anthropic-version": "2023-06-01"})[0] == 200
    assert s.call("POST", "/v1/completions", {"prompt": "Hello", "max_tokens": 4, "logprobs": 2, "echo": True})[0] == 200
    assert s.call("POST", "/api/pull", {"model": "m", "stream": False})[0] in (200, 400)


def streams(s):
    for path, bodies in STREAMS.items():
        lines = path.startswith("/api/")
        for body in bodies:
            c = s.open()
            c.request("POST", path, json.dumps({**body, "stream": True}), {"content-type": "application/json"})
            r = c.getresponse()
            assert r.status == 200, r.read()
            events = [json.loads(l if lines else l[6:]) for l in r if l.startswith(b"{" if lines else b"data: {")]
            c.close()
            assert len(events) > 1, (path, body)
            for e in events:
                described.check_event(path, e, "application/x-ndjson" if lines else "text/event-stream")


def finds_what_differs(s):
    """The comparison itself: a member more, one that is missing, another type."""
    good = s.call("POST", "/v1/chat/completions", {"messages": USER, "max_tokens": 2})[2]
    def differs(change):
        reply = json.loads(json.dumps(good))
        change(reply)
        try:
            described.check("POST", "/v1/chat/completions", 200, {"messages": USER}, reply)
        except AssertionError:
            return True
        return False
    assert not differs(lambda r: None)
    assert differs(lambda r: r.update(more=1)) and differs(lambda r: r.pop("usage")) and differs(lambda r: r.update(created="1")) and differs(lambda r: r["choices"][0].update(finish_reason="end"))
    assert differs(lambda r: r["choices"][0]["message"].update(more=1)) and differs(lambda r: r.update(choices={}))
    for method, path, body in (("POST", "/v1/nothing", None), ("POST", "/v1/chat/completions", {"messages": "x"})):
        try:
            described.check(method, path, 200, body, good)
            assert False, path
        except AssertionError as e:
            assert "described" in str(e) or "was taken" in str(e), e


def main():
    with Server(PROGRAM, "--model", MODEL) as s:
        for test in (served, whole, streams, finds_what_differs):
            counted.run(test, s)
    return counted.closing()


sys.exit(main())
