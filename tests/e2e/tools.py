#!/usr/bin/env python3
"""Tools of `evenkeel serve` that are more than functions: tools.py PROGRAM MODEL [NAME...]

MODEL is a checkpoint folder. Prints one line per test and closes with `N passed, N failed`."""
import json, sys, time, traceback

from client import Server

PROGRAM, MODEL, ONLY = sys.argv[1], sys.argv[2], sys.argv[3:]


def ok(reply):
    status, _, body = reply
    assert status == 200, (status, body)
    return body


def stream(s, path, body):
    """The JSON of every event."""
    c = s.open()
    try:
        c.request("POST", path, json.dumps({**body, "stream": True}).encode(), {"content-type": "application/json"})
        r = c.getresponse()
        assert r.status == 200, r.read()
        return [json.loads(line[6:]) for line in r.read().decode().splitlines() if line.startswith("data: {")]
    finally:
        c.close()


def tool(name, **more):
    return {"name": name, "description": f"Does {name} to a city.", "input_schema": {"type": "object", "properties": {
            "city": {"type": "string", "maxLength": 8}}, "required": ["city"], "additionalProperties": False}, "strict": True, **more}


def a_reference_loads_a_tool(s):
    """Before it the tool is not in the prompt and cannot be called; after it, it can, and all that came before is from the cache."""
    find = {"name": "find", "description": "Finds tools. " * 40, "input_schema": {"type": "object"}}
    later = [tool(f"later_{i}", defer_loading=True) for i in range(40)]
    body = {"max_tokens": 24, "temperature": 0, "messages": [{"role": "user", "content": "Look for a tool that paints cities. " * 8}]}
    count = lambda b: ok(s.call("POST", "/v1/messages/count_tokens", b))["input_tokens"]
    alone, all_ = {**body, "tools": [find]}, {**body, "tools": [find, *later]}
    assert count({k: alone[k] for k in ("messages", "tools")}) == count({k: all_[k] for k in ("messages", "tools")})
    status, _, refused = s.call("POST", "/v1/messages", {**all_, "tool_choice": {"type": "tool", "name": "later_7"}})
    assert status == 400 and '"later_7"' in refused["error"]["message"], refused
    called = ok(s.call("POST", "/v1/messages", {**all_, "tool_choice": {"type": "any"}}))
    assert all(b["name"] == "find" for b in called["content"] if b["type"] == "tool_use"), called
    first = ok(s.call("POST", "/v1/messages", all_))
    prompt = first["usage"]["input_tokens"] + first["usage"]["cache_read_input_tokens"]
    more = [{"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_1", "name": "find", "input": {}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": [
                {"type": "tool_reference", "tool_name": "later_7"}, {"type": "tool_reference", "tool_name": "later_9"}]}]}]
    second = {**all_, "messages": body["messages"] + more}
    usage = ok(s.call("POST", "/v1/messages", {**second, "max_tokens": 1}))["usage"]
    assert usage["cache_read_input_tokens"] >= prompt - 1, (usage, prompt)
    assert usage["input_tokens"] < 400, usage # the call, its result and two declarations, not forty
    forced = {**second, "max_tokens": 60, "tool_choice": {"type": "tool", "name": "later_7"}}
    whole = [b["name"] for b in ok(s.call("POST", "/v1/messages", forced))["content"] if b["type"] == "tool_use"]
    blocks = [f["content_block"] for f in stream(s, "/v1/messages", forced) if f["type"] == "content_block_start"]
    assert whole == [b["name"] for b in blocks if b["type"] == "tool_use"] == ["later_7"], (whole, blocks)
    status, _, refused = s.call("POST", "/v1/messages", {**second, "tool_choice": {"type": "tool", "name": "later_8"}})
    assert status == 400 and '"later_8"' in refused["error"]["message"], refused


def main():
    passed = failed = 0
    with Server(PROGRAM, "--model", MODEL, "--ctx", 4096, "--max-requests", 4) as s:
        for test in (a_reference_loads_a_tool,):
            if ONLY and test.__name__ not in ONLY:
                continue
            begin = time.time()
            try:
                test(s)
                passed += 1
                print(f"ok   {test.__name__} ({time.time() - begin:.1f} s)", flush=True)
            except Exception:
                failed += 1
                print(f"FAIL {test.__name__}\n{traceback.format_exc()[-3000:]}", flush=True)
    print(f"{passed} passed, {failed} failed")
    return failed > 0 or passed == 0


sys.exit(main())
