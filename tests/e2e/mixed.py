"""200 mixed requests (tools, forms, thoughts, pictures, seeds, log-probabilities, choices, stops, four APIs, whole and streamed) to a server
without a store and to one with it: at once in a random order, then again, then after a restart, then from a file without the engine. Whole
bodies have to be equal but for ids, times and counts of caches. Standard library only.

usage: mixed.py EVENKEEL MODEL_DIR [SEED]

The output's last line is `N passed, N failed`."""
import base64, collections, json, os, random, shutil, struct, subprocess, sys, tempfile, threading, zlib

from counted import check, closing
from stored import MODEL, PROGRAM, SCHEMA, SWAPPED, Server, TOOLS, bare, cached, differs

N, AT_ONCE = 200, 8
SEED = int(sys.argv[3]) if len(sys.argv) > 3 else 1
SUBJECTS = ["a keel", "the weather in Oslo", "tea", "a ship", "Rome", "an engine", "the number 7", "a poem of rain"]
MORE = {"type": "object", "properties": {"items": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 3}, "ok": {"type": "boolean"}}, "required": ["items", "ok"], "additionalProperties": False}


def png(shade, side=48):
    rows = b"".join(b"\0" + bytes((x * 5 * (y % 3 + 1) + c * 40 + shade) % 256 for x in range(side) for c in range(3)) for y in range(side))
    part = lambda kind, data: struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    return base64.b64encode(b"\x89PNG\r\n\x1a\n" + part(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)) + part(b"IDAT", zlib.compress(rows)) + part(b"IEND", b"")).decode()


def sampling(r):
    """What decides tokens, in OpenAI's words. Every request is decided."""
    kind = r.randrange(4)
    if kind == 0:
        return {"temperature": 0}
    s = {"temperature": r.choice([0.3, 0.7, 1, 1.5]), "seed": r.randrange(3), "top_p": r.choice([1, 0.9])}
    if kind == 2:
        s.update(top_k=r.choice([5, 40]), min_p=r.choice([0, 0.05]))
    if kind == 3:
        s.update(presence_penalty=0.4, frequency_penalty=0.2, logit_bias={str(r.randrange(200, 400)): -100, "300": 2})
    return s


def chat(r):
    subject = r.choice(SUBJECTS)
    messages = [{"role": "user", "content": f"Tell me of {subject}."}]
    body = {"messages": messages, "max_tokens": r.choice([1, 3, 8, 20, 45]), **sampling(r)}
    kind = r.randrange(7)
    if kind == 0:
        body.update(tools=TOOLS, tool_choice=r.choice(["auto", "required"]), max_tokens=50)
    if kind == 1:
        body.update(response_format={"type": "json_schema", "json_schema": {"name": "p", "strict": True, "schema": r.choice([SCHEMA, SWAPPED, MORE])}}, max_tokens=50)
    if kind == 2:
        body.update(reasoning_effort="high", thinking_budget=r.choice([4, 12]), max_tokens=30)
    if kind == 3:
        messages[0]["content"] = [{"type": "text", "text": f"Is it {subject}?"}, {"type": "image_url", "image_url": {"url": "data:image/png;base64," + png(r.randrange(2))}}]
        body["max_tokens"] = min(body["max_tokens"], 8)
    if kind == 4:
        messages += [{"role": "assistant", "content": None, "tool_calls": [{"id": f"call_{r.randrange(9)}", "type": "function", "function": {"name": "weather", "arguments": '{"place": "Oslo"}'}}]}]
        messages += [{"role": "tool", "tool_call_id": messages[1]["tool_calls"][0]["id"], "content": "4 degrees"}]
        body["tools"] = TOOLS
    if r.random() < 0.3:
        body.update(logprobs=True, top_logprobs=r.choice([0, 2, 5]))
    if r.random() < 0.3:
        body["stop"] = r.sample(["e", "the", ". ", "a "], r.randrange(1, 3))
    if r.random() < 0.2:
        body["n"] = r.choice([2, 3])
    if r.random() < 0.4:
        body.update(stream=True, stream_options={"include_usage": r.random() < 0.5})
    if r.random() < 0.5:
        body["evenkeel"] = {"digest": True}
    return "/v1/chat/completions", body


def some(body, r, names):
    return {there: body[here] for here, there in names.items() if here in body}


def messages(r):
    body = {"messages": [{"role": "user", "content": f"Tell me of {r.choice(SUBJECTS)}."}], "max_tokens": r.choice([2, 9, 30]), "temperature": 0, "stream": r.random() < 0.5}
    if r.random() < 0.4:
        body["tools"] = [{"name": "weather", "description": "Weather of a place", "input_schema": TOOLS[0]["function"]["parameters"]}]
        body["tool_choice"] = {"type": r.choice(["auto", "any"])}
    if r.random() < 0.3:
        body["stop_sequences"] = ["the"]
    return "/v1/messages", body


def responses(r):
    s = sampling(r)
    body = {"input": f"Tell me of {r.choice(SUBJECTS)}.", "max_output_tokens": r.choice([16, 30]), "stream": r.random() < 0.5, "temperature": 0,
            "store": r.random() < 0.5, **({"text": {"format": {"type": "json_schema", "name": "p", "strict": True, "schema": SCHEMA}}} if s.get("seed") == 1 else {})}
    if r.random() < 0.3:
        body["reasoning"] = {"effort": "high"}
    return "/v1/responses", body


def completions(r):
    body = {"prompt": r.choice(["A ship has", ["A keel is", "A mast is"], [2, 105, 817]]), "max_tokens": r.choice([3, 12]), "stream": r.random() < 0.4, **sampling(r)}
    if r.random() < 0.4:
        body["logprobs"] = r.choice([0, 3])
    if r.random() < 0.2:
        body["n"] = 2
    return "/v1/completions", body


def ollama(r):
    s = sampling(r)
    s.pop("logit_bias", None)
    body = {"model": "pocket", "messages": [{"role": "user", "content": f"Tell me of {r.choice(SUBJECTS)}."}], "options": {**s, "num_predict": r.choice([4, 16])}, "stream": r.random() < 0.5}
    if r.random() < 0.3:
        body["format"] = SCHEMA
    return "/api/chat", body


def all_requests():
    """A tenth are asked of again with another limit, form of reply or number of choices."""
    r, out = random.Random(SEED), []
    kinds = [chat] * 10 + [messages] * 3 + [responses] * 3 + [completions] * 3 + [ollama] * 2
    while len(out) < N:
        path, body = r.choice(kinds)(r)
        out.append((path, body))
        if path == "/v1/chat/completions" and r.random() < 0.25:
            changed = {**body, "max_tokens": body["max_tokens"] + r.choice([-1, 1, 7]) or 1, "stream": r.random() < 0.5}
            changed.pop("stream_options", None)
            if r.random() < 0.5:
                changed.update(logprobs=True, top_logprobs=r.choice([1, 4]))
            out.append((path, changed))
    return out[:N]


def ask_all(server, asks, order, at_once):
    got, lock, left = [None] * len(asks), threading.Lock(), list(order)

    def work():
        while True:
            with lock:
                if not left:
                    return
                i = left.pop()
            got[i] = server.ask(*asks[i])

    threads = [threading.Thread(target=work) for _ in range(at_once)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return got


def whole_lines(text):
    """Ollama's streams have a line per step, and what a step gives is a matter of drafts: here their words are put together."""
    lines = [json.loads(line) for line in text.splitlines()]
    words = "".join(line["message"].get("content", "") for line in lines)
    return words + bare(json.dumps(lines[-1], separators=(",", ":")))


def is_equal(ask, want, got):
    if want[0] != got[0]:
        return False
    words = whole_lines if ask[0].startswith("/api/") and want[0] == 200 else bare
    return words(want[2]) == words(got[2])


def compare(name, asks, want, got, states):
    bad = [(i, asks[i][0], differs(w, g)) for i, (w, g) in enumerate(zip(want, got)) if not is_equal(asks[i], w, g)]
    check(f"{name}: {len(asks) - len(bad)} of {len(asks)} bodies are equal", not bad, bad[:3])
    seen = collections.Counter(cached(g) for g in got)
    check(f"{name}: {dict(seen)}", set(seen) <= states, [asks[i] for i, g in enumerate(got) if cached(g) not in states][:3])


def main():
    asks = all_requests()
    r = random.Random(SEED + 1)
    shuffled = lambda: r.sample(range(N), N)
    folder = tempfile.mkdtemp()
    kept, tape = os.path.join(folder, "kept"), os.path.join(folder, "replies.jsonl")
    cold = Server(stored=None)
    want = ask_all(cold, asks, range(N), 1)
    check("every request has an answer", all(w[0] == 200 for w in want), [(a, w) for a, w in zip(asks, want) if w[0] != 200][:3])
    cold.stop()
    warm = Server("--cache-dir", kept, "--cache-replies-prompts", stored="64M")
    compare("at once", asks, want, ask_all(warm, asks, shuffled(), AT_ONCE), {"hit", "part", "miss"})
    compare("again", asks, want, ask_all(warm, asks, shuffled(), AT_ONCE), {"hit", "part"})
    compare("once more", asks, want, ask_all(warm, asks, shuffled(), AT_ONCE), {"hit"})
    warm.stop()
    warm = Server("--cache-dir", kept, "--audit-replies", "0.2", stored="64M")
    compare("from disk", asks, want, ask_all(warm, asks, shuffled(), AT_ONCE), {"hit"})
    check("nothing was found wrong", warm.metrics()["evenkeel_stored_replies_wrong_total"] == 0)
    warm.stop()
    done = subprocess.run([PROGRAM, "replies", "export", tape, "--cache-dir", kept, "--model", MODEL], capture_output=True, text=True)
    check("export", done.returncode == 0, done)
    away = Server("--replies", tape, "--no-engine", stored=None)
    compare("without the engine", asks, want, ask_all(away, asks, shuffled(), AT_ONCE), {"hit"})
    away.stop()
    shutil.rmtree(folder)
    sys.exit(closing())


main()
