#!/usr/bin/env python3
"""Streams that continue: resume.py PROGRAM MODEL [SCENE...]

Every scene is streamed once, whole. Then it is cut behind each of its events and continued from there, at the server that
began it and at another one with other settings: what comes is what was missing, byte for byte. Then what is refused.
Closes with `N passed, N failed`."""
import base64, concurrent.futures, json, os, re, subprocess, sys, tempfile, time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from counted import check, closing
from client import Server
from drawn import png

PROGRAM, MODEL, ONLY = sys.argv[1], sys.argv[2], sys.argv[3:]
SMALL = "pocket" not in MODEL  # a random model: what it says is noise, and a sanitizer is slow
CHAT, TEXT, RESPONSES, MESSAGES, OLLAMA, GENERATE = ("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages",
                                                     "/api/chat", "/api/generate")

PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}, "unit": {"enum": ["celsius", "fahrenheit"]}}, "required": ["city"]}
WEATHER = {"type": "function", "function": {"name": "get_weather", "description": "Gets the current weather in a city.", "parameters": PARAMETERS}}
CODE = {"type": "custom", "custom": {"name": "run_code", "description": "Runs code.", "format": {"type": "grammar", "grammar": {
        "syntax": "regex", "definition": "print\\(\"[a-z☺é🙂 ]{3,12}\"\\)"}}}}
MAIL = {"type": "object", "properties": {"to": {"type": "string", "maxLength": 12}, "days": {"type": "array", "items": {"enum": ["Friday", "Montag", "日曜日"]},
        "minItems": 2, "maxItems": 3}, "n": {"type": "integer", "minimum": 1, "maximum": 99}}, "required": ["to", "days", "n"], "additionalProperties": False}
EMOJI = ["🙂🚢 naïve 👩‍👩‍👧 ☃ Ωμέγα 日本", "🙃"]


def user(text):
    return [{"role": "user", "content": text}]


PICTURE = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64," + base64.b64encode(png(48, 48, (b"\xff\x20\x20" * 24 + b"\x20\x20\xff" * 24) * 48)).decode()}},
                                        {"type": "text", "text": "What does it say?"}]}]
OSLO, THINK = user("What's the weather in Oslo?"), user("What is a keel?")
by_schema = {"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": MAIL}}
sampled = {"temperature": 1.2, "frequency_penalty": 0.4, "presence_penalty": 0.3, "repetition_penalty": 1.1, "top_k": 40, "top_p": 0.95}
greedy = {"temperature": 0}
responses_tool = {"type": "function", "name": "get_weather", "description": "Gets the current weather in a city.", "parameters": PARAMETERS}
messages_tool = {"name": "get_weather", "description": "Gets the current weather in a city.", "input_schema": PARAMETERS}
usage = {"stream_options": {"include_usage": True}}


def scenes(a):
    """(name, path, body); a: a server, for the texts that stop strings are made of."""
    plain = {"messages": THINK, "max_tokens": 24, **greedy}
    said = a.chat(plain)["choices"][0]["message"]["content"]
    middle = said[len(said) // 2:len(said) // 2 + 6] or "x"
    # what looks like the beginning of a stop text for a while, several times, and one that is
    stops = [said[i:i + 9] + "\u0001" for i in range(0, len(said) - 9, 7)] + ["zzzz"]
    yield "chat", CHAT, {**plain, **usage}
    yield "chat, sampled, seed drawn", CHAT, {"messages": THINK, "max_tokens": 30, **sampled}
    yield "chat, seed given, digest", CHAT, {"messages": THINK, "max_tokens": 20, "seed": -5, "evenkeel": {"digest": True}, **sampled}
    yield "chat, tool", CHAT, {"messages": OSLO, "tools": [WEATHER], "max_tokens": 40, **greedy, **usage}
    yield "chat, tool, whole calls", CHAT, {"messages": OSLO, "tools": [WEATHER], "max_tokens": 40, **greedy, "evenkeel": {"whole_calls": True}}
    yield "chat, tool required, sampled", CHAT, {"messages": THINK, "tools": [WEATHER], "tool_choice": "required", "max_tokens": 40, **sampled}
    yield "chat, custom tool", CHAT, {"messages": THINK, "tools": [CODE], "tool_choice": "required", "max_tokens": 40, "temperature": 1, "seed": 4}
    yield "chat, tool cut by the limit", CHAT, {"messages": OSLO, "tools": [WEATHER], "tool_choice": "required", "max_tokens": 9, **greedy}
    yield "chat, thinking", CHAT, {"messages": THINK, "max_tokens": 40, "reasoning_effort": "high", **sampled, "seed": 8, **usage}
    yield "chat, thinking with a budget", CHAT, {"messages": THINK, "max_tokens": 30, "reasoning_effort": "high", "thinking_budget": 9, **sampled, "seed": 3}
    yield "chat, thinking and tool", CHAT, {"messages": OSLO, "max_tokens": 50, "reasoning_effort": "low", "tools": [WEATHER], **greedy}
    yield "chat, schema", CHAT, {"messages": THINK, "max_tokens": 60, "response_format": by_schema, **greedy}
    yield "chat, schema, sampled, logprobs", CHAT, {"messages": THINK, "max_tokens": 30, "response_format": by_schema, "logprobs": True, "top_logprobs": 2, **sampled}
    yield "chat, any JSON", CHAT, {"messages": THINK, "max_tokens": 24, "response_format": {"type": "json_object"}, **sampled, "seed": 7}
    yield "chat, emoji", CHAT, {"messages": THINK, "max_tokens": 80, "guided_choice": EMOJI[:1], **greedy}
    yield "chat, emoji, logprobs", CHAT, {"messages": THINK, "max_tokens": 80, "guided_choice": EMOJI, "logprobs": True, "top_logprobs": 1, **greedy}
    yield "chat, stop", CHAT, {**plain, "stop": [*stops, middle]}
    yield "chat, stop candidates", CHAT, {**plain, "stop": stops, "logprobs": True}
    yield "chat, bias, no end", CHAT, {"messages": THINK, "max_tokens": 20, "ignore_eos": True, "logit_bias": {"9": 3, "11": -100}, **greedy}
    if not SMALL:
        yield "chat, picture", CHAT, {"messages": PICTURE, "max_tokens": 16, "ignore_eos": True, **greedy, **usage}
    yield "completions", TEXT, {"prompt": "A keel is", "max_tokens": 20, **greedy, **usage}
    yield "completions, echo, logprobs", TEXT, {"prompt": "A ship", "max_tokens": 12, "echo": True, "logprobs": 2, **greedy}
    yield "completions, sampled, special", TEXT, {"prompt": "A ship", "max_tokens": 20, "skip_special_tokens": False, "temperature": 3, "ignore_eos": True}
    yield "responses", RESPONSES, {"input": THINK, "max_output_tokens": 20, **greedy}
    yield "responses, tool", RESPONSES, {"input": OSLO, "tools": [responses_tool], "max_output_tokens": 40, **greedy, "store": False}
    yield "responses, thinking", RESPONSES, {"input": THINK, "max_output_tokens": 40, "reasoning": {"effort": "high"}, "include": ["reasoning.encrypted_content"], **sampled}
    yield "responses, summary", RESPONSES, {"input": THINK, "max_output_tokens": 30, "reasoning": {"effort": "high", "summary": "auto"}, "temperature": 1}
    yield "responses, logprobs, schema", RESPONSES, {"input": THINK, "max_output_tokens": 30, "top_logprobs": 2, "include": ["message.output_text.logprobs"],
                                                     "text": {"format": {"type": "json_schema", "name": "x", "schema": MAIL, "strict": True}}, **greedy}
    yield "messages", MESSAGES, {"messages": THINK, "max_tokens": 20, **greedy}
    yield "messages, tool", MESSAGES, {"messages": OSLO, "tools": [messages_tool], "max_tokens": 40, **greedy}
    yield "messages, thinking", MESSAGES, {"messages": THINK, "max_tokens": 40, "thinking": {"type": "enabled", "budget_tokens": 1024}, "temperature": 1}
    yield "messages, hidden thinking", MESSAGES, {"messages": THINK, "max_tokens": 40, "thinking": {"type": "enabled", "budget_tokens": 10, "display": "omitted"}, "temperature": 1}
    yield "messages, stop", MESSAGES, {"messages": THINK, "max_tokens": 24, "stop_sequences": [*stops[:3], middle], **greedy}
    yield "messages, schema", MESSAGES, {"messages": THINK, "max_tokens": 40, "output_config": {"format": {"type": "json_schema", "schema": MAIL}}, **greedy}
    yield "ollama", OLLAMA, {"model": "m", "messages": OSLO, "tools": [WEATHER], "options": {"temperature": 0, "num_predict": 40}}
    yield "ollama, thinking", OLLAMA, {"model": "m", "messages": THINK, "think": True, "options": {"num_predict": 30}, "logprobs": True}
    yield "ollama, generate", GENERATE, {"model": "m", "prompt": "What is a keel?", "format": MAIL, "options": {"temperature": 1, "num_predict": 30}}


def post(s, path, body):
    c = s.open(120)
    try:
        c.request("POST", path, json.dumps(body), {"content-type": "application/json"})
        r = c.getresponse()
        return r.status, r.read()
    finally:
        c.close()


def events(raw, path):
    """The events of a stream, each with what ends it; without the lines that only keep connections."""
    if path.startswith("/api/"):
        return [line.lstrip(b" ") for line in raw.splitlines(keepends=True)]
    return [b + b"\n\n" for b in raw.split(b"\n\n") if b and not b.startswith(b":")]


def timeless(raw):
    return re.sub(rb'"((?:total|load|prompt_eval|eval)_duration)":\d+', rb'"\1":0', raw)


def state_of(event):
    at = event.find(b"{")
    return json.loads(event[at:]).get("evenkeel", {}).get("resume") if at >= 0 else None


def merge(state, more):
    """What a client keeps."""
    return {**state, **more, "tokens": state.get("tokens", []) + more.get("tokens", [])}


def unmarked(raw):
    """Without states, ids and times."""
    raw = re.sub(rb',"evenkeel":\{"resume":\{[^{}]*\}\}|,"resume":\{[^{}]*\}', b"", timeless(raw))
    return re.sub(rb'"(id|item_id|call_id|created|created_at|completed_at|(?:cached|cached_image|cache_read_input|input)_tokens)":("[^"]*"|\d+)', b"", raw)


def asks(body, resume, stream=True):
    return {**body, "stream": stream, "evenkeel": {**body.get("evenkeel", {}), "resume": resume}}


def difference(want, got):
    i = next((i for i, (x, y) in enumerate(zip(want, got)) if x != y), min(len(want), len(got)))
    return f"at byte {i}: {got[max(0, i - 80):i + 120]!r} instead of {want[max(0, i - 80):i + 120]!r}"


def cut_everywhere(name, path, body, a, b, pool):
    status, raw = post(a, path, asks(body, True))
    check(f"{name}: streams", status == 200, raw)
    if status != 200:
        return 0
    whole = events(timeless(raw), path)
    states, state, told = [], {}, []
    for e in whole:
        more = state_of(e)
        if more:
            told += more.get("tokens", [])
            state = merge(state, more)
            check(f"{name}: counts its tokens", more["at"] == len(told) == len(state["tokens"]), more)
        states.append(state)
    check(f"{name}: every event but [DONE] has a state", all(state_of(e) for e in whole if b"[DONE]" not in e), whole)
    if body.get("temperature") == 0 or "seed" in body:
        plain = post(a, path, {**body, "stream": True})[1]
        check(f"{name}: without the wish it is the same", unmarked(plain) == unmarked(raw), difference(unmarked(plain), unmarked(raw)))

    def go_on(i):
        return post((a, b)[i % 2], path, asks(body, states[i]))
    cuts = [i for i, e in enumerate(whole) if b"[DONE]" not in e]
    for i, (status, raw) in zip(cuts, pool.map(go_on, cuts)):
        want, got = b"".join(whole[i + 1:]), b"".join(events(timeless(raw), path))
        check(f"{name}, cut behind event {i} of {len(whole)} ({states[i]['at']} tokens)", status == 200 and got == want,
              f"status {status}, {difference(want, got)}")
    return len(cuts)


def refused(s, path, body, says, status=400):
    got, raw = post(s, path, body)
    message = str(json.loads(raw).get("error", ""))
    check(f"refused: {says}", got == status and re.search(says, message), f"status {got}: {message}")


def what_is_refused(a, b):
    body = {"messages": OSLO, "tools": [WEATHER], "max_tokens": 40, "temperature": 1}
    state = {}
    for e in events(post(a, CHAT, asks(body, True))[1], CHAT)[:6]:
        state = merge(state, state_of(e) or {})
    n = len(state["tokens"])
    go_on = lambda **more: asks(body, {**state, **more})
    check("what is not changed goes on", post(b, CHAT, go_on())[0] == 200)
    refused(b, CHAT, go_on(digest="0123456789abcdef"), "digest: 0123456789abcdef belongs to other tokens, another body or another model")
    refused(b, CHAT, go_on(digest="0123"), "digest: 16 hex digits")
    refused(b, CHAT, go_on(digest=None), "digest: it is needed")
    refused(b, CHAT, go_on(tokens=[*state["tokens"][:-1], 5]), "digest: .* belongs to other tokens")
    refused(b, CHAT, go_on(tokens=state["tokens"][1:]), f"at: the stream had {n} tokens, {n - 1} are sent")
    refused(b, CHAT, go_on(tokens=[]), "tokens: a list")
    refused(b, CHAT, go_on(tokens="1,2"), "tokens: a list")
    refused(b, CHAT, go_on(tokens=[1, -1]), "tokens: item 1 is no token")
    refused(b, CHAT, go_on(tokens=[1, 2.5]), "tokens: item 1 is no token")
    refused(b, CHAT, go_on(tokens=[2**40]), "tokens: item 0 is no token")
    refused(b, CHAT, go_on(tokens=[5] * 300000), "tokens: there are 300000, the context has")
    refused(b, CHAT, go_on(tokens=[5] * 1100000), "JSON values", 413)
    refused(b, CHAT, go_on(id="cmpl-0"), "id: ids of this path begin with chatcmpl-")
    refused(b, CHAT, go_on(id="chatcmpl-\n\"x"), "id: the id of the stream")
    refused(b, CHAT, go_on(id="x" * 1000), "id: the id of the stream")
    refused(b, CHAT, go_on(seed=None), "seed: it is needed")
    refused(b, CHAT, go_on(seed=state["seed"] + 1), "digest")
    refused(b, CHAT, go_on(seed=-1), "seed: a whole number")
    refused(b, CHAT, go_on(created=None), "created: it is needed")
    refused(b, CHAT, go_on(events=-3), "events: a whole number")
    refused(b, CHAT, asks(body, 7), "resume: true, or what the events")
    for other in ({"messages": THINK}, {"temperature": 0.5}, {"max_tokens": 41}, {"tool_choice": "required"}, {"stop": ["x"]}, {"logprobs": True},
                  {"logit_bias": {"5": 1}}, {"tools": [{**WEATHER, "function": {**WEATHER["function"], "strict": True}}]}):
        refused(b, CHAT, {**go_on(), **other}, "digest: .* another body")
    refused(b, CHAT, {**go_on(), "max_tokens": n - 1}, f"tokens: there are {n}, the reply may have {n - 1}")
    refused(b, CHAT, {**go_on(), "n": 2}, "only a stream of one reply")
    refused(b, CHAT, {**asks(body, True), "n": 2}, "only a stream of one reply")
    refused(b, TEXT, {"prompt": ["a", "b"], "stream": True, "evenkeel": {"resume": True}}, "only a stream of one reply")
    whole = post(b, CHAT, asks(body, state, False))
    want = post(a, CHAT, {**body, "stream": False, "seed": state["seed"]})
    bare = lambda r: json.loads(r[1])["choices"][0]["message"]
    names = lambda m: [c["function"] for c in m.get("tool_calls", [])]
    check("a reply in one piece goes on as well", whole[0] == 200 and names(bare(whole)) == names(bare(want)) and bare(whole)["content"] == bare(want)["content"],
          (whole, want))
    check("without a stream the wish is nothing", post(b, CHAT, {**asks(body, True, False), "n": 2})[0] == 200)


def long_replies(a, b):
    """More tokens than the event loop replays itself; logits that are computed again, and compared."""
    for name, body in (("logprobs and digest", {"logprobs": True, "top_logprobs": 3, "ignore_eos": True, "evenkeel": {"digest": True}}),
                       ("schema", {"guided_json": {"type": "array", "items": {"enum": ["red", "grün"]}, "minItems": 240, "maxItems": 250}})):
        body = {"messages": THINK, "max_tokens": 700, "temperature": 1, "seed": 3, **body}
        whole = events(post(a, CHAT, asks(body, True))[1], CHAT)
        state, n = {}, len(whole) * 9 // 10
        for e in whole[:n]:
            state = merge(state, state_of(e))
        got = post(b, CHAT, asks(body, state))[1]
        check(f"{name}: behind {state['at']} tokens", state["at"] > 500 and got == b"".join(whole[n:]), difference(b"".join(whole[n:]), got))
        if "logits" in state:
            refused(b, CHAT, asks(body, {**state, "logits": "0123456789abcdef"}), "the logits have the digest [0-9a-f]{16} here and had 0123456789abcdef")


def journals(body):
    """A reply that went on is in the journal as one that did not, and is found again by replay."""
    with tempfile.TemporaryDirectory() as d:
        file = os.path.join(d, "journal")
        with Server(PROGRAM, "--model", MODEL, "--journal", file, "--journal-prompts") as s:
            whole = events(post(s, CHAT, asks(body, True))[1], CHAT)
            state = {}
            for e in whole[:len(whole) // 2]:
                state = merge(state, state_of(e))
            got = post(s, CHAT, asks(body, state))
            check("with a journal it goes on", got[1] == b"".join(whole[len(whole) // 2:]), got)
        first, second = [{k: v for k, v in json.loads(line).items() if k not in ("time", "id", "cached")} for line in open(file)]
        check("the journal has the same twice", first == second, (first, second))
        r = subprocess.run([PROGRAM, "replay", file, "--model", MODEL], capture_output=True, text=True, timeout=120)
        check("replay finds both", r.returncode == 0, r.stdout + r.stderr)


begin = time.time()
with Server(PROGRAM, "--model", MODEL) as a, Server(PROGRAM, "--model", MODEL, "--chunk", 7, "--threads", 2, "--draft", "off", "--cache-bytes", 0) as b, \
        concurrent.futures.ThreadPoolExecutor(6) as pool:
    n = 0
    for name, path, body in scenes(a):
        if ONLY and not any(name.startswith(o) for o in ONLY):
            continue
        if SMALL and path != CHAT:
            continue
        n += cut_everywhere(name, path, body, a, b, pool)
    if not ONLY:
        what_is_refused(a, b)
        if not SMALL:
            long_replies(a, b)
        journals({"messages": THINK, "tools": [WEATHER], "max_tokens": 30, "reasoning_effort": "low", **sampled, "seed": 4})
print(f"{n} cuts in {time.time() - begin:.1f} s")
sys.exit(closing())
