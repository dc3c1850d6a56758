#!/usr/bin/env python3
"""What OpenAI's Python SDK makes of a streamed call: openai_python.py URL

Its accumulator (openai/lib/streaming/_deltas.py) adds the texts of deltas up, all but `type`. So each call's id and name
stand in its first delta alone: repeated in every delta, as some servers do, they come out many times over. Needs the
package `openai` (pip); says so and passes where it is not installed. Closes with `N passed, N failed`."""
import json, sys, urllib.request

try:
    from openai.lib.streaming._deltas import accumulate_delta
except ImportError:
    print("the Python package openai is not installed: not run")
    print("0 passed, 0 failed")
    sys.exit(0)

TOOL = {"type": "function", "function": {"name": "get_weather", "description": "Get the weather of a city.", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}
BODY = {"messages": [{"role": "user", "content": "What's the weather in Oslo?"}], "tools": [TOOL], "max_tokens": 100, "temperature": 0}


def ask(url, **more):
    request = urllib.request.Request(url + "/v1/chat/completions", json.dumps(BODY | more).encode(), {"content-type": "application/json"})
    return urllib.request.urlopen(request, timeout=60).read().decode()


def accumulate(deltas):
    whole = {}
    for delta in deltas:
        whole = accumulate_delta(whole, json.loads(json.dumps(delta)))  # it keeps and changes what it is given
    return whole["tool_calls"][0]


def main(url):
    frames = [json.loads(l[6:]) for l in ask(url, stream=True).splitlines() if l.startswith("data: {")]
    deltas = [c["delta"] for f in frames for c in f["choices"]]
    calls = [d["tool_calls"][0] for d in deltas if d.get("tool_calls")]
    want = json.loads(ask(url))["choices"][0]["message"]["tool_calls"][0]["function"]
    got = accumulate(deltas)
    results = [len(calls) > 2,
               got["function"] == want and got["id"] == calls[0]["id"] and got["type"] == "function"]
    for call in calls[1:]:
        call["id"], call["function"]["name"] = calls[0]["id"], want["name"]
    repeated = accumulate(deltas)
    results.append(repeated["function"]["name"] == want["name"] * len(calls) and repeated["id"] == calls[0]["id"] * len(calls))
    for name, good in zip(("a call is streamed in parts", "the accumulator makes the whole reply's call of them",
                           "and nonsense of repeated ids and names"), results):
        print("ok" if good else "FAIL", name)
    print(f"{sum(results)} passed, {len(results) - sum(results)} failed")
    return not all(results)


sys.exit(main(sys.argv[1]))
