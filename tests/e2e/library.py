#!/usr/bin/env python3
"""Programs over libevenkeel beside the server: library.py PROGRAM MODEL MANY [EXAMPLES]

MANY (tests/capi/installed/many.c) answers 64 requests in random orders from four threads, with as many cancelled ones
between them. The server answers the same requests one by one: tokens and digests must be equal. EXAMPLES has the programs of
examples/engine, which are run with the bundled model."""
import re, subprocess, sys

from client import Server

N = 64


def body(i, vocab):
    tokens = [2] + [300 + (i * 7919 + j * 104729) % (vocab - 300) for j in range(1, 2 + i % 39)]
    return {"model": "m", "prompt": tokens, "max_tokens": 3 + i % 14, "temperature": 0.8 if i % 3 else 0, "seed": i, "top_p": 1, "top_k": 0,
            "evenkeel": {"digest": True}}


def many(program, model, seed):
    done = subprocess.run([program, model, str(seed)], capture_output=True, text=True, timeout=580)
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


def main():
    program, model, built = sys.argv[1:4]
    passed = failed = 0
    runs = [many(built, model, seed) for seed in (1, 2)]
    vocab = runs[0][0]
    with Server(program, "--model", model, "--device", "cpu", "--ctx", 512) as s:
        for i in range(N):
            status, _, r = s.call("POST", "/v1/completions", body(i, vocab))
            assert status == 200, r
            want = (r["usage"]["completion_tokens"], r["evenkeel"]["digest"])
            got = [run[1][i] for run in runs]
            if all(g == want for g in got):
                passed += 1
            else:
                failed += 1
                print(f"request {i}: the server has {want}, the library {got}")
        for name, good, said in examples(sys.argv[4], model, s) if len(sys.argv) > 4 else ():
            passed, failed = passed + bool(good), failed + (not good)
            if not good:
                print(f"{name}: {said}")
    print(f"{passed} passed, {failed} failed")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
