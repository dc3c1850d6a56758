#!/usr/bin/env python3
"""Structured output of `evenkeel serve`: structured.py PROGRAM MODEL [NAME...]

MODEL is a checkpoint folder. Prints one line per test and closes with `N passed, N failed`."""
import concurrent.futures, json, sys

import counted
from client import Server, assemble

PROGRAM, MODEL, counted.only = sys.argv[1], sys.argv[2], sys.argv[3:]


def valid(s, v, doc=None):
    """A small validator, from the specification, for the keywords below."""
    doc = doc or s
    if isinstance(s, bool):
        return s
    if "$ref" in s:
        return valid(doc["$defs"][s["$ref"].split("/")[-1]], v, doc)
    number = isinstance(v, (int, float)) and not isinstance(v, bool)
    kinds = {"null": v is None, "boolean": isinstance(v, bool), "string": isinstance(v, str), "array": isinstance(v, list),
             "object": isinstance(v, dict), "number": number, "integer": number and v == int(v)}
    types = s.get("type", [])
    ok = not types or any(kinds[t] for t in ([types] if isinstance(types, str) else types))
    ok &= "enum" not in s or v in s["enum"]
    ok &= "const" not in s or v == s["const"]
    ok &= "anyOf" not in s or any(valid(x, v, doc) for x in s["anyOf"])
    if number:
        ok &= s.get("minimum", v) <= v <= s.get("maximum", v)
    if isinstance(v, str):
        ok &= s.get("minLength", 0) <= len(v) <= s.get("maxLength", len(v))
    if isinstance(v, list):
        ok &= s.get("minItems", 0) <= len(v) <= s.get("maxItems", len(v)) and all(valid(s.get("items", True), x, doc) for x in v)
    if isinstance(v, dict):
        p, rest = s.get("properties", {}), s.get("additionalProperties", True)
        ok &= all(k in v for k in s.get("required", [])) and all(valid(p.get(k, rest), x, doc) for k, x in v.items())
    return bool(ok)


CITY = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 12}, "population": {"type": "integer", "minimum": 1000, "maximum": 40000000},
        "capital": {"type": "boolean"}}, "required": ["city", "population", "capital"], "additionalProperties": False}
LIST = {"type": "array", "items": {"enum": ["red", "green", "blue"]}, "minItems": 2, "maxItems": 3}
SCORE = {"type": "object", "properties": {"score": {"type": "number", "minimum": 0, "maximum": 1}, "label": {"type": ["string", "null"], "maxLength": 8}},
         "required": ["score", "label"]}
TREE = {"$ref": "#/$defs/node", "$defs": {"node": {"type": "object", "properties": {"name": {"type": "string", "maxLength": 4},
        "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}}, "required": ["name", "next"]}}}
SCHEMAS = [CITY, LIST, SCORE, TREE]
WEATHER = {"type": "function", "function": {"name": "get_weather", "description": "Get the current weather for a city.",
           "parameters": {"type": "object", "properties": {"city": {"type": "string", "maxLength": 20}, "days": {"type": "integer", "minimum": 1, "maximum": 9},
                          "unit": {"enum": ["celsius", "fahrenheit"]}}, "required": ["city", "unit"], "additionalProperties": False}}}
NOTE = {"type": "function", "function": {"name": "note", "parameters": {"type": "object", "properties": {"lines": dict(LIST)}, "required": ["lines"]}}}
PARAMETERS = {t["function"]["name"]: t["function"]["parameters"] for t in (WEATHER, NOTE)}


def ask(text="Tell me about Oslo.", **more):
    return {"model": "m", "messages": [{"role": "user", "content": text}], "temperature": 0, "max_tokens": 300, "evenkeel": {"digest": True}, **more}


def by_schema(schema):
    return {"type": "json_schema", "json_schema": {"name": "x", "schema": schema, "strict": True}}


def strict(tool):
    return {"type": "function", "function": dict(tool["function"], strict=True)}


def check_calls(message, schemas=PARAMETERS):
    for c in message["tool_calls"]:
        assert valid(schemas[c["function"]["name"]], json.loads(c["function"]["arguments"])), c


def json_by_schema(s):
    ended = 0
    for schema in SCHEMAS:
        for more in ({}, {"temperature": 1, "seed": 3}, {"temperature": 1.5, "top_k": 20, "seed": 4}, {"temperature": 1, "top_p": 0.9, "frequency_penalty": 0.5, "seed": 5}):
            r = s.chat(ask(response_format=by_schema(schema), **more))["choices"][0]
            if r["finish_reason"] == "stop":
                ended += 1
                assert valid(schema, json.loads(r["message"]["content"])), (schema, r)
            else:
                assert r["finish_reason"] == "length" and schema is TREE, r
    assert ended >= 12, ended


def json_object(s):
    for seed in range(4):
        r = s.chat(ask("Answer in JSON.", response_format={"type": "json_object"}, temperature=0.7, seed=seed))["choices"][0]
        assert r["message"]["content"].startswith("{"), r
        if r["finish_reason"] == "stop":
            assert isinstance(json.loads(r["message"]["content"]), dict), r


def thinking_ends_at_its_budget(s):
    """Alone and with tools or a form; the thought is the beginning of the one without a limit."""
    on = {"chat_template_kwargs": {"enable_thinking": True}, "max_tokens": 60}
    for more in ({}, {"tools": [WEATHER]}, {"response_format": by_schema(CITY), "max_tokens": 200}):
        for budget in (1, 4, 7, 5000):
            body = ask("Weather in Oslo?", temperature=0.9, seed=3, **{**on, **more})
            free, r = s.chat(body), s.chat({**body, "thinking_budget": budget})
            n = r["usage"]["completion_tokens_details"]["reasoning_tokens"]
            # the opening, two tokens of the header that a form insists on, and the closing marker
            assert n <= max(budget, 4) + 1, (budget, n)
            want, got = (x["choices"][0]["message"].get("reasoning_content") or "" for x in (free, r))
            assert want.startswith(got.rstrip("\ufffd")), (want, got)
            if budget == 5000:
                assert facts(r) == facts(free)


def cut_by_the_limit(s):
    whole = s.chat(ask(response_format=by_schema(CITY)))["choices"][0]["message"]["content"]
    r = s.chat(ask(response_format=by_schema(CITY), max_tokens=4))["choices"][0]
    assert r["finish_reason"] == "length" and r["message"]["content"] and whole.startswith(r["message"]["content"]), (r, whole)


def tool_choice(s):
    both = {"tools": [WEATHER, NOTE]}
    for seed, (choice, names) in enumerate([("required", {"get_weather", "note"}), ({"type": "function", "function": {"name": "note"}}, {"note"}),
                                            ({"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [{"type": "function", "function": {"name": "get_weather"}}]}},
                                             {"get_weather"})]):
        for temperature in (0, 1):
            r = s.chat(ask("Hello!", tool_choice=choice, temperature=temperature, seed=seed, parallel_tool_calls=False, **both))["choices"][0]
            assert r["finish_reason"] == "tool_calls" and len(r["message"]["tool_calls"]) == 1, r
            assert r["message"]["tool_calls"][0]["function"]["name"] in names, r
            check_calls(r["message"])


def strict_with_thinking(s):
    thinking = {"chat_template_kwargs": {"enable_thinking": True}}
    for seed in range(3):
        r = s.chat(ask("Weather in Oslo?", tools=[strict(WEATHER)], temperature=0.8, seed=seed, max_tokens=100, **thinking))["choices"][0]
        if "tool_calls" in r["message"]:
            check_calls(r["message"])
        r = s.chat(ask("Weather in Oslo?", tools=[WEATHER], tool_choice="required", temperature=0.8, seed=seed, **thinking))["choices"][0]
        assert "tool_calls" in r["message"] or r["finish_reason"] == "length", r
        if "tool_calls" in r["message"]:
            check_calls(r["message"])
        r = s.chat(ask(response_format=by_schema(CITY), temperature=0.8, seed=seed, **thinking))["choices"][0]
        if r["finish_reason"] == "stop":
            assert valid(CITY, json.loads(r["message"]["content"])), r


def streams(s):
    for body in (ask(response_format=by_schema(CITY)), ask("Hello!", tools=[WEATHER], tool_choice="required", parallel_tool_calls=False),
                 ask(response_format=by_schema(SCORE), temperature=1, seed=9)):
        want = s.chat(body)
        frames = list(s.stream(body))
        message, finish, _ = assemble(frames)
        have = want["choices"][0]
        assert finish == have["finish_reason"] and message["content"] == (have["message"]["content"] or ""), (message, have)
        calls = lambda m: [c["function"] for c in m.get("tool_calls", [])]
        assert calls(message) == calls(have["message"]), (message, have)
        assert [f["evenkeel"]["digest"] for f in frames if "evenkeel" in f][-1] == want["evenkeel"]["digest"], frames[-1]


def mixed():
    bodies = [ask(response_format=by_schema(x), temperature=t, seed=7) for x in SCHEMAS for t in (0, 1)]
    bodies += [ask("Hello!", tools=[WEATHER, NOTE], tool_choice="required", temperature=t, seed=8, max_tokens=80) for t in (0, 1)]
    bodies += [ask("What is the capital of Norway?", max_tokens=40), ask("Weather in Oslo?", tools=[strict(WEATHER)], max_tokens=60)]
    return bodies


def facts(reply):
    return reply["evenkeel"]["digest"], reply["choices"][0]["message"]["content"], json.dumps(reply["choices"][0]["message"].get("tool_calls", []))[-200:].split('"function"')[-1]


ALONE = []


def same_bits_in_company(s):
    bodies = mixed()
    ALONE[:] = [facts(s.chat(b)) for b in bodies]
    with concurrent.futures.ThreadPoolExecutor(len(bodies)) as pool:
        together = list(pool.map(lambda b: facts(s.chat(b)), bodies))
    assert together == ALONE, [(a, b) for a, b in zip(ALONE, together) if a != b][:2]


def same_bits_with_drafts():
    with Server(PROGRAM, "--model", MODEL, "--ctx", 1024, "--max-requests", 4, "--draft", "ngram") as s:
        bodies = mixed()
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            drafted = list(pool.map(lambda b: facts(s.chat(b)), bodies))
        assert drafted == ALONE, [(a, b) for a, b in zip(ALONE, drafted) if a != b][:2]


def refusals(s):
    def refused(param, says, **more):
        e = s.chat(ask(**more), expect=400)["error"]
        assert e["param"] == param and says in e["message"], e

    refused("response_format", '#/properties/zip: "pattern": at character 3: the lookahead (?! is not supported', response_format=by_schema({"type": "object", "properties": {"zip": {"pattern": "^(?!x)"}}}))
    refused("response_format", "no value", response_format=by_schema({"properties": {"a": {"$ref": "#"}}, "required": ["a"]}))
    refused("response_format", "needed", response_format={"type": "grammar"})
    refused("response_format", "schema", response_format={"type": "json_schema"})
    refused("tools", 'the tool "f"', tools=[strict({"function": {"name": "f", "parameters": {"type": "object", "not": {}}}})])
    refused("tool_choice", "no tools", tool_choice="required")
    refused("tool_choice", "no tool is named", tools=[WEATHER], tool_choice={"type": "function", "function": {"name": "other"}})
    refused("ignore_eos", "form", response_format={"type": "json_object"}, ignore_eos=True)
    loose = {"type": "json_schema", "json_schema": {"name": "x", "strict": False, "schema": {"type": "string", "pattern": "x(?=y)", "maxLength": 5}}}
    assert isinstance(json.loads(s.chat(ask(response_format=loose))["choices"][0]["message"]["content"]), str)


LOOSE = {"type": "object", "properties": {
    "zip": {"type": "string", "pattern": "^(?!0)[0-9]{4}$"}, "tags": {"type": "object", "propertyNames": {"type": "string"}, "additionalProperties": {"enum": ["x", "y"]}, "not": {"required": ["q"]}},
    "pet": {"oneOf": [{"$ref": "#/$defs/cat"}, {"$ref": "#/$defs/dog"}], "discriminator": {"propertyName": "kind"}}, "n": {"type": "number", "multipleOf": 1.0, "maximum": 9, "minimum": 1},
    "list": {"type": "array", "items": {"enum": ["a", "b"]}, "uniqueItems": True, "maxItems": 2}, "free": {"type": "any", "maxLength": 3}}, "required": ["zip", "pet", "n", "list"],
    "if": {"required": ["free"]}, "then": {"required": ["tags"]}, "additionalProperties": False,
    "$defs": {"cat": {"type": "object", "properties": {"kind": {"const": "cat", "default": "cat"}}}, "dog": {"type": "object", "properties": {"kind": {"const": "dog", "default": "dog"}}}}}


def check_loose(v):
    """What is kept of LOOSE."""
    assert isinstance(v, dict) and {"zip", "pet", "n", "list"} <= set(v) <= set(LOOSE["properties"]), v
    assert len(v["zip"]) == 4 and v["zip"].isdigit() and v["n"] in range(1, 10) and len(v["list"]) <= 2 and set(v["list"]) <= {"a", "b"}, v
    assert v["pet"].get("kind", "cat") in ("cat", "dog") and all(x in ("x", "y") for x in v.get("tags", {}).values()), v


def fail(text):
    raise AssertionError(text)


def ignored(s, path, body):
    """The reply, and what its header says was ignored."""
    status, headers, reply = s.call("POST", path, body)
    assert status == 200, reply
    return reply, headers.get("x-evenkeel-ignored-keywords", "")


def what_is_not_strict_is_kept(s):
    """By all doors; a strict one is refused by name. The name of the tool stands before the places."""
    tool = {"type": "function", "function": {"name": "loose", "parameters": LOOSE}}
    places = ["#/properties/zip/pattern", "#/properties/tags/not", "#/properties/list/uniqueItems", "#/properties/free/type", "#/if"]
    said = lambda text, name: all(name + p in text.split(", ") for p in places) or fail(text)
    for seed in range(2):
        for strict in ({}, {"strict": False}):
            more = {"temperature": 0.7, "seed": seed, "max_tokens": 400}
            r, text = ignored(s, "/v1/chat/completions", ask(response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": LOOSE, **strict}}, **more))
            said(text, "")
            if r["choices"][0]["finish_reason"] == "stop":
                check_loose(json.loads(r["choices"][0]["message"]["content"]))
            loose = {"type": "function", "function": dict(tool["function"], **strict)}
            r, text = ignored(s, "/v1/chat/completions", ask("Hello!", tools=[loose, WEATHER], tool_choice={"type": "function", "function": {"name": "loose"}}, **more))
            said(text, "loose")
            if r["choices"][0]["finish_reason"] == "tool_calls":
                check_loose(json.loads(r["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"]))
    _, text = ignored(s, "/v1/messages", {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "Hello!"}], "tools": [{"name": "loose", "input_schema": LOOSE}], "tool_choice": {"type": "any"}})
    said(text, "loose")
    _, text = ignored(s, "/v1/responses", {"model": "m", "max_output_tokens": 16, "input": "Hello!", "tools": [{"type": "function", "name": "loose", "parameters": LOOSE}], "tool_choice": "required"})
    said(text, "loose")
    _, text = ignored(s, "/v1/chat/completions", ask(tools=[tool], max_tokens=3))
    assert text == "", text
    e = s.chat(ask(response_format=by_schema(LOOSE)), expect=400)["error"]
    assert "is not supported" in e["message"], e


def no_tool_breaks_a_request(s):
    odd = [{"type": "function", "function": {"name": n, "parameters": p}} for n, p in (("a b", {}), ("list", {"type": "array"}), ("none", False), ("self", {"$ref": "#"}), ("text", {"type": "string"}),
        ("draft3", {"type": "object", "required": True, "properties": {"a": {"type": "object", "required": True, "properties": {"b": {"type": "string", "required": True}}}}}),
        ("items", {"type": "object", "properties": {"a": {"type": "array", "items": {"type": 7, "required": True}}}}), ("properties", {"type": "object", "properties": "x"}))]
    s.chat(ask(tools=[strict(WEATHER)] + odd, max_tokens=4))
    r = s.chat(ask("Hello!", tools=[WEATHER] + odd, tool_choice="required", max_tokens=200, parallel_tool_calls=False))["choices"][0]
    assert r["finish_reason"] == "length" or isinstance(json.loads(r["message"]["tool_calls"][0]["function"]["arguments"]), dict), r


def other_dialects(s):
    """What other servers call a schema is one; what does not exist here is refused by its name."""
    for more in ({"response_format": {"type": "json_object", "schema": CITY}}, {"guided_json": CITY}, {"guided_json": json.dumps(CITY)}, {"json_schema": CITY},
                 {"structured_outputs": {"json": CITY}}, {"structured_outputs": {"json": json.dumps(CITY)}}):
        assert valid(CITY, json.loads(s.chat(ask(**more))["choices"][0]["message"]["content"])), more
        status, _, r = s.call("POST", "/v1/completions", {"model": "m", "prompt": "Oslo in JSON: ", "max_tokens": 300, "temperature": 0, **more})
        assert status == 200 and valid(CITY, json.loads(r["choices"][0]["text"])), (more, r)
    assert s.chat(ask(structured_outputs={"json_object": True}))["choices"][0]["message"]["content"].startswith("{")
    for more in ({"guided_choice": ["no", "yes", "yes and no"]}, {"structured_outputs": {"choice": ["no", "yes", "yes and no"]}}):
        assert s.chat(ask(**more))["choices"][0]["message"]["content"] in ("no", "yes", "yes and no")
        status, _, r = s.call("POST", "/v1/completions", {"model": "m", "prompt": "Is it? ", **more})
        assert status == 200 and r["choices"][0]["text"] in ("no", "yes", "yes and no"), r
    for path, body in (("/v1/chat/completions", ask()), ("/v1/completions", {"model": "m", "prompt": "x"}), ("/v1/responses", {"model": "m", "input": "x"})):
        for key in ("guided_regex", "guided_grammar", "grammar", "regex", "ebnf", "structural_tag", "guided_whitespace_pattern"):
            status, _, r = s.call("POST", path, {**body, key: "[a-z]+"})
            assert status == 400 and r["error"]["param"] == key and "not supported" in r["error"]["message"], r
        for key in ("regex", "grammar", "structural_tag", "whitespace_pattern"):
            status, _, r = s.call("POST", path, {**body, "structured_outputs": {key: "[a-z]+"}})
            assert status == 400 and r["error"]["param"] == "structured_outputs." + key, r
        for key, v in (("guided_json", "{"), ("guided_choice", []), ("guided_choice", [""]), ("structured_outputs", 5), ("guided_json_object", 3)):
            status, _, r = s.call("POST", path, {**body, key: v})
            assert status == 400 and r["error"]["param"] == key, r
    status, _, r = s.call("POST", "/v1/chat/completions", ask(guided_json=CITY, response_format=by_schema(CITY)))
    assert status == 400 and r["error"]["param"] == "guided_json", r


def main():
    with Server(PROGRAM, "--model", MODEL, "--ctx", 1024, "--max-requests", 8, "--draft", "off") as s:
        for t in (json_by_schema, json_object, cut_by_the_limit, thinking_ends_at_its_budget, tool_choice, strict_with_thinking, streams, same_bits_in_company, refusals,
                  what_is_not_strict_is_kept, no_tool_breaks_a_request, other_dialects):
            counted.run(t, s)
    if ALONE:
        counted.run(same_bits_with_drafts)
    return counted.closing()


sys.exit(main())
