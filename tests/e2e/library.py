#!/usr/bin/env python3
"""Programs over libevenkeel beside the server: library.py PROGRAM MODEL MANY [--bodies BODIES] [--examples DIR] [--device DEVICE]

MANY (tests/capi/installed/many.c) answers 64 requests in random orders from four threads, with as many cancelled ones
between them. The server answers the same requests one by one on the CPU: tokens and digests must be equal. So must those of
pictures and sounds that BODIES (bodies.c beside it) sees at once, and the sentences about wrong ones, by a random model. DIR
has the programs of examples/engine, which are run with MODEL. DEVICE: where the library computes; else on the CPU."""
import argparse, base64, json, re, subprocess, sys, tempfile

import seeing_model
from client import Server
from drawn import hum, png

N = 64


def body(i, vocab):
    tokens = [2] + [300 + (i * 7919 + j * 104729) % (vocab - 300) for j in range(1, 2 + i % 39)]
    return {"model": "m", "prompt": tokens, "max_tokens": 3 + i % 14, "temperature": 0.8 if i % 3 else 0, "seed": i, "top_p": 1, "top_k": 0,
            "evenkeel": {"digest": True}}


def many(program, model, seed, device):
    done = subprocess.run([program, model, str(seed), device], capture_output=True, text=True, timeout=580)
    assert done.returncode == 0, f"exit {done.returncode}: {done.stderr[-3000:]}"
    lines = [line.split() for line in done.stdout.splitlines()]
    print(f"seed {seed}: {done.stderr.strip().splitlines()[-1]}")
    assert int(done.stderr.split()[0]) > 0, "no request was cancelled while it ran"
    return int(lines[0][0]), {int(i): (int(n), digest) for i, n, digest in lines[1:]}


def example(folder, name, *args, said=""):
    done = subprocess.run([f"{folder}/{name}", *args], input=said, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, f"{name}: exit {done.returncode}: {done.stderr[-2000:]}"
    return done.stdout, done.stderr


def examples(folder, model, server):
    """(what it does, whether it did)"""
    ask = lambda *messages: server.chat({"messages": list(messages), "temperature": 0})["choices"][0]["message"]["content"]
    first, second = {"role": "user", "content": "Hello"}, {"role": "user", "content": "What is \"two\" plus 2?"}
    hello = ask(first)
    want = [hello, ask(first, {"role": "assistant", "content": hello}, second)]
    out, _ = example(folder, "chat", model, said=f"{first['content']}\n{second['content']}\n")
    yield "a chat of two turns", out.splitlines() == want, (out, want)
    (out, said), (again, _) = example(folder, "prompts", model), example(folder, "prompts", model)
    yield "a hundred prompts", re.fullmatch(r"\n100 replies, 0 wrong, \d+ tokens, all digests together [0-9a-f]{16}\n", out) and out == again, (out, again)
    yield "their progress", "1 of 100, " in said and "100 of 100, " in said, said[-300:]
    for question in "When?", "How many ships?":
        out, _ = example(folder, "mask", model, question)
        yield "a mask", re.fullmatch(r"\d{4}-\d\d-\d\d\n", out), out
    out, _ = example(folder, "loop", model)
    yield "a loop", len(out.splitlines()) == 3 and hello in out.splitlines(), out


def part(kind, data):
    return {"type": f"{kind}_url", f"{kind}_url": {"url": f"data:{kind}/*;base64," + base64.b64encode(data).decode()}}


def content(*parts):
    return {"model": "m", "messages": [{"role": "user", "content": [*parts, {"type": "text", "text": "Say."}]}], "max_tokens": 4, "temperature": 0,
            "evenkeel": {"digest": True}}


def senses(program, built, device):
    """(what it does, whether it did)"""
    pictures = [png(w, h, bytes(i * (7 + w) % 251 for i in range(3 * w * h))) for w, h in ((48, 48), (96, 50))]
    sounds = [hum(0.2), hum(1), hum(1, 5)]
    bodies = [content(part("audio", s)) for s in sounds] + [content(part("image", p)) for p in pictures]
    bodies += [content(part("image", pictures[0]), part("audio", sounds[1])), content(part("audio", sounds[1]), part("audio", sounds[0])), content()]
    bodies += [content(part("audio", sounds[1][:1000])), content(part("audio", b"no sound")), content(part("image", pictures[0][:60]))]
    with tempfile.TemporaryDirectory() as model:
        seeing_model.main(model)
        lines = "".join(json.dumps(b) + "\n" for b in bodies)
        done = subprocess.run([built, model, device], input=lines, capture_output=True, text=True, timeout=580)
        assert done.returncode == 0, f"exit {done.returncode}: {done.stderr[-3000:]}"
        got = done.stdout.splitlines()
        said = done.stderr.splitlines()[-1]
        yield "the device", (said == "on cpu") == (device == "cpu"), said
        with Server(program, "--model", model, "--device", "cpu", "--ctx", 1024) as s:
            for i, body in enumerate(bodies):
                status, _, r = s.call("POST", "/v1/chat/completions", body)
                if status == 200:
                    want = f"done {r['usage']['prompt_tokens']} {r['usage']['completion_tokens']} {r['evenkeel']['digest']} "
                else:
                    want = f"bad argument 0 0 {0:016x} {r['error']['message']}"
                yield f"body {i}", got[i] == want and (status == 200) == (i < 8), (got[i], want)
    yield "sounds differ", len({line.split()[3] for line in got[:8]}) == 8, got


def main():
    p = argparse.ArgumentParser()
    p.add_argument("words", nargs=3)
    for name in "bodies", "examples", "device":
        p.add_argument("--" + name)
    asked = p.parse_args()
    program, model, built = asked.words
    device = asked.device or "cpu"
    passed = failed = 0

    def count(results):
        nonlocal passed, failed
        for name, good, said in results:
            passed, failed = passed + bool(good), failed + (not good)
            if not good:
                print(f"{name}: {said}")

    runs = [many(built, model, seed, device) for seed in (1, 2)]
    vocab = runs[0][0]
    with Server(program, "--model", model, "--device", "cpu", "--ctx", 512) as s:
        for i in range(N):
            status, _, r = s.call("POST", "/v1/completions", body(i, vocab))
            assert status == 200, r
            want = (r["usage"]["completion_tokens"], r["evenkeel"]["digest"])
            got = [run[1][i] for run in runs]
            count([(f"request {i}: the server has {want}", all(g == want for g in got), got)])
        if asked.examples:
            count(examples(asked.examples, model, s))
    if asked.bodies:
        count(senses(program, asked.bodies, device))
    print(f"{passed} passed, {failed} failed")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
