#!/usr/bin/env python3
"""The journal and its replay: journal.py PROGRAM MODEL

A server with --journal answers requests of every kind, together and apart; `replay` must find every digest again in any
order and company, on other threads and instruction sets, sampled and with the reply's tokens as a prompt; and it must
notice a changed digest, token, seed or model. Closes with `N passed, N failed`."""
import json, os, random, signal, subprocess, sys, tempfile, threading, time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from counted import check, closing
from client import Server

PROGRAM, MODEL = sys.argv[1], sys.argv[2]


def replay(path, *args, model=MODEL):
    r = subprocess.run([PROGRAM, "replay", path, "--model", model, *args], capture_output=True, text=True, timeout=120)
    return r.returncode, r.stdout + r.stderr, (r.stdout.strip().splitlines() or [""])[-1]


TOOLS = [{"type": "function", "function": {"name": "get_weather", "description": "Weather of a city",
          "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}]


def bodies():
    ask = lambda text, **more: dict({"messages": [{"role": "user", "content": text}], "max_tokens": 24, "evenkeel": {"digest": True}}, **more)
    yield ask("What is the weather in Paris?", tools=TOOLS, temperature=0)
    yield ask("Tell me a story.", temperature=1, seed=7, top_p=0.9, top_k=40, min_p=0.01)
    yield ask("Tell me a story.", temperature=1.3, seed=-1, repetition_penalty=1.1, presence_penalty=0.5, frequency_penalty=-0.5)
    yield ask("Say something.", temperature=0.9)  # a seed that the server draws
    yield ask("Two answers.", n=2, temperature=1, seed=5)
    yield ask("Count.", stop=["e"], temperature=0)
    yield ask("Think.", reasoning_effort="high", temperature=0)
    yield ask("Think little.", reasoning_effort="high", thinking_budget=5, max_tokens=40, temperature=1, seed=11)
    yield ask("Biased.", logit_bias={"300": -100, "301": 5.5}, temperature=1, seed=3)
    yield ask("A city as JSON.", response_format={"type": "json_schema", "json_schema": {"name": "city", "strict": True, "schema": {
        "type": "object", "properties": {"city": {"type": "string", "maxLength": 8}}, "required": ["city"], "additionalProperties": False}}}, seed=9)
    yield ask("What is the weather in Rome?", tools=TOOLS, tool_choice="required", seed=2)
    yield ask("On and on.", ignore_eos=True, max_tokens=70, temperature=1, seed=1)


def serve_and_ask(journal):
    """The digest of each reply id, as clients saw them."""
    seen, lock = {}, threading.Lock()
    with Server(PROGRAM, "--model", MODEL, "--journal", journal, "--journal-prompts") as s:
        def whole(body):
            status, headers, reply = s.call("POST", "/v1/chat/completions", body)
            assert status == 200, reply
            with lock:
                check("the header carries the digest", headers.get("x-evenkeel-digest") == reply["evenkeel"]["digest"], headers)
                check("system_fingerprint is a numerics id", reply["system_fingerprint"].startswith("ek"), reply["system_fingerprint"])
                seen[reply["id"]] = reply["evenkeel"]["digest"]

        def stream(body):
            stream = s.stream(body)
            frames = list(stream)
            last = [f["evenkeel"]["digest"] for f in frames if f.get("evenkeel")]
            with lock:
                check("the last chunk carries the digest", len(last) == 1 and stream.done, last)
                seen[frames[0]["id"]] = last[0]

        threads = [threading.Thread(target=f, args=(b,)) for b in bodies() for f in (whole, stream)]
        random.Random(1).shuffle(threads)
        for t in threads:
            t.start()
            time.sleep(0.01)
        for t in threads:
            t.join()
        quiet = {"messages": [{"role": "user", "content": "Quietly."}], "max_tokens": 4, "temperature": 0}
        status, headers, reply = s.call("POST", "/v1/chat/completions", quiet)
        check("no digest unless asked for", status == 200 and "x-evenkeel-digest" not in headers and "evenkeel" not in reply, (headers, reply))
        gone = s.stream({"messages": [{"role": "user", "content": "Left alone."}], "ignore_eos": True, "max_tokens": 2000})
        for _ in zip(range(3), gone):
            pass
        gone.close()
        s.wait_idle()
    return seen


def every_api(s):
    """Header, body and last chunk in each API; the same question has the same digest in all that use the chat template."""
    digests = {}
    message = [{"role": "user", "content": "Hi"}]
    for path, body in (("/v1/chat/completions", {"messages": message, "max_tokens": 5}), ("/v1/messages", {"messages": message, "max_tokens": 5}),
                       ("/v1/responses", {"input": "Hi", "max_output_tokens": 5}), ("/v1/completions", {"prompt": "Hi", "max_tokens": 5}),
                       ("/api/chat", {"messages": message, "options": {"temperature": 0, "num_predict": 5}, "stream": False}),
                       ("/api/generate", {"prompt": "Hi", "options": {"temperature": 0, "num_predict": 5}, "stream": False})):
        body |= {"model": "m", "temperature": 0, "evenkeel": {"digest": True}}
        status, headers, reply = s.call("POST", path, body)
        digest = digests[path] = reply.get("evenkeel", {}).get("digest")
        c = s.open()
        c.request("POST", path, json.dumps(body | {"stream": True}), {"content-type": "application/json"})
        streamed = [l for l in c.getresponse().read().splitlines() if b'"digest"' in l]
        c.close()
        check(f"{path}: one digest in header, body and stream", status == 200 and digest and headers.get("x-evenkeel-digest") == digest and
              len(streamed) == 1 and f'"digest":"{digest}"'.encode() in streamed[0], (headers, reply, streamed))
    check("the APIs agree", len({d for p, d in digests.items() if p != "/v1/completions"}) == 1, digests)


def edit(path, to, change):
    """A copy of a journal whose lines were changed as objects."""
    with open(path) as f, open(to, "w") as out:
        for i, line in enumerate(f):
            o = json.loads(line)
            change(i, o)
            out.write(json.dumps(o) + "\n")


def main():
    with tempfile.TemporaryDirectory() as d:
        journal = os.path.join(d, "journal")
        seen = serve_and_ask(journal)
        lines = [json.loads(l) for l in open(journal)]
        check("every request was answered", len(seen) == 2 * len(list(bodies())), len(seen))
        check("a line per choice", len(lines) == len(seen) + 2 + 2, (len(lines), len(seen)))
        check("only the owner reads it", os.stat(journal).st_mode & 0o777 == 0o600, oct(os.stat(journal).st_mode))
        one = {l["id"]: l["digest"] for l in lines if sum(m["id"] == l["id"] for m in lines) == 1}
        check("clients and journal have the same digests", all(one.get(i, g) == g for i, g in seen.items()), "")
        n = len(lines)

        isas = subprocess.run([PROGRAM, "version", "--isas"], capture_output=True, text=True).stdout.split()
        fast = [i for i in isas if i != "scalar"]
        for args in (["--concurrency", "1"], ["--order", "reverse"], ["--order", "random", "--seed", "4", "--threads", "2"],
                     ["--order", "random", "--concurrency", "20", "--chunk", "7", *(["--isa", fast[0]] if fast else [])]):
            status, text, last = replay(journal, *args)
            check(f"replay {' '.join(args)}", status == 0 and last == f"{n} agree, 0 differ, 0 skipped" and
                  "logits alone" not in text, text[-600:])

        changed = os.path.join(d, "changed")
        def without_bounds(i, o):  # as of a program that kept none
            o.update(forced=True)
            for member in ("form", "thinking", "max_thinking"):
                o.pop(member, None)
        edit(journal, changed, without_bounds)
        status, text, last = replay(changed, "--order", "random")
        check("the replies' tokens as prompts", status == 0 and last == f"{n} agree, 0 differ, 0 skipped" and
              f"{n} of them by their logits alone" in text, text[-600:])

        free = [i for i, l in enumerate(lines) if not l.get("forced")]
        bound = [i for i, l in enumerate(lines) if l.get("forced")]
        check("replies under a mask: tools, a schema, a forced call, a limit of thoughts", len(bound) == 8, len(bound))
        check("each line says what bound its tokens", all("max_thinking" in lines[i] for i in bound) and
              sum("form" in lines[i] for i in bound) == 6, [sorted(lines[i]) for i in bound])
        of_schema = next(i for i in bound if "schema" in lines[i].get("form", {}))
        of_limit = next(i for i in bound if lines[i]["max_thinking"])

        def another_mask(i, o):  # the same logits to the first token; then the mask forces another one
            if i == of_schema:
                o["form"]["schema"]["properties"] = {"town": {"type": "string"}}
                o["form"]["schema"]["required"] = ["town"]
            if i == of_limit:
                o["max_thinking"] += 1
        edit(journal, changed, another_mask)
        status, text, last = replay(changed)
        check("another mask", status == 1 and last == f"{n - 2} agree, 2 differ, 0 skipped" and
              all(f"line {i + 1}," in text for i in (of_schema, of_limit)), text[-600:])

        def tamper(i, o):
            if i == free[0]:
                o["digest"] = f"{int(o['digest'], 16) ^ 1:016x}"
            if i == free[1]:
                o["reply"][-1] ^= 1
            if i == bound[0]:
                o["reply"][0] ^= 1
        edit(journal, changed, tamper)
        status, text, last = replay(changed)
        check("a changed digest and changed tokens", status == 1 and last == f"{n - 3} agree, 3 differ, 0 skipped" and
              all(f"line {i + 1}," in text for i in (free[0], free[1], bound[0])), text[-600:])

        with open(journal) as f, open(changed, "w") as out:
            for i, line in enumerate(f):
                out.write(line[: len(line) // 2] + "\n" if i == 0 else "\x00\xff{\n" if i == 1 else "\n" if i == 2 else '{"lost":3}\n' if i == 3 else line)
        status, text, last = replay(changed)
        check("damaged, empty and lost lines", status == 0 and last == f"{n - 4} agree, 0 differ, 5 skipped" and "line 1: JSON, line 1 column " in text and "line 2: JSON" in text, text[-600:])

        for member in ("model", "numerics"):
            edit(journal, changed, lambda i, o: o.update({member: "other"}))
            status, text, last = replay(changed)
            check(f"another {member}", status == 1 and last == f"0 agree, 0 differ, {n} skipped" and '"other"' in text or "other," in text, text[-600:])
        # what a terminal would obey, in what is shown of a line
        for member in ("model", "numerics"):
            edit(journal, changed, lambda i, o: o.update({member: "x\u009b2J\x1b[2J"}))
            status, text, last = replay(changed)
            check(f"a {member} that speaks to a terminal", status == 1 and "\\u009b2J\\x1b[2J" in text and text.replace("\n", "").isprintable(), repr(text[-300:]))
        edit(journal, changed, lambda i, o: (o.pop("prompt"), o.pop("reply")))
        status, text, last = replay(changed)
        check("no prompts", status == 1 and last == f"0 agree, 0 differ, {n} skipped", text[-300:])
        full = os.path.join(d, "full")
        os.symlink("/dev/full", full)
        with Server(PROGRAM, "--model", MODEL, "--journal", full) as s:
            for _ in range(3):
                status, _, reply = s.call("POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2})
                check("a full disk stops nobody", status == 200, reply)
            every_api(s)
            s.wait_idle()
            s.log.seek(0)
            check("and is logged once", s.log.read().count("No space left on device") == 1)
        r = subprocess.run([PROGRAM, "serve", "--model", MODEL, "--port", "0", "--journal", os.path.join(d, "none", "journal")], capture_output=True, text=True, timeout=60)
        check("a journal that cannot be made is refused", r.returncode == 1 and "journal" in r.stderr.splitlines()[-1], r.stderr)
        status, text, _ = replay(os.path.join(d, "missing"))
        check("no file", status == 1 and "missing" in text and text.count("\n") == 1, text)
    return closing()


if __name__ == "__main__":
    sys.exit(main())
