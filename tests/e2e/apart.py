#!/usr/bin/env python3
"""Prompts that one machine computes and another, of a different instruction set, answers: apart.py PROGRAM MODEL

tools/bench/apart.py in both directions, and its refusals; then prompts whose lengths are about those of a page and of the
sliding window, between two servers. Closes with `N passed, N failed`; exit status 77 where there is no Redis."""
import json, os, random, subprocess, sys

from client import Server
from counted import check, closing
from redis_server import Redis, why_not

PROGRAM, MODEL = sys.argv[1:3]
TOOL = [sys.executable, "tools/bench/apart.py", PROGRAM, "--model", MODEL, "--window", "600"]


def two_kinds():
    """Options of two servers that compute with different instructions, or at least with different threads."""
    isas = subprocess.run([PROGRAM, "version", "--isas"], capture_output=True, text=True, check=True).stdout.split()
    fast = [i for i in isas if i != "scalar"]
    return ["--threads 1", "--threads 2"] if len(fast) < 2 else [f"--isa {fast[0]} --threads 1", f"--isa {fast[-1]} --threads 2"]


def tool(*args):
    return subprocess.run([*TOOL, *args], capture_output=True, text=True, timeout=300)


def shows_both_times(a, b):
    r = tool("--tokens", "1500", "--reply", "8", f"--a={a}", f"--b={b}")
    rows = [line.split("|")[1:-1] for line in r.stdout.splitlines() if line.startswith("| ") and "`" in line]
    check("the demonstration ends well", r.returncode == 0 and "digests equal" in r.stdout and r.stderr == "", (r.stdout, r.stderr))
    check("four ways, one digest", len(rows) == 4 and len({row[-1] for row in rows}) == 1, r.stdout)
    check("both alone compute all, the others a page and a window", [int(row[5].replace(",", "")) >= 832 for row in rows] == [False, False, True, True], r.stdout)
    check("prepared and answered have times", all(float(row[1]) > 0 and float(row[2]) > 0 for row in rows[2:]), r.stdout)


def refuses(a, b):
    r = tool("--tokens", "300", "--reply", "4", "--one-way", f"--a={a} --kv i12", f"--b={b} --kv i8")
    check("other keys and values: another digest is an error", r.returncode == 1 and "2 digests" in r.stderr, (r.stdout, r.stderr))
    r = tool("--tokens", "1500", "--reply", "4", "--one-way", f"--a={a}", f"--b={b} --cache-bytes 1M")
    check("pages that do not come: an error", r.returncode == 1 and "tokens came from the other server" in r.stderr, (r.stdout, r.stderr))
    r = tool("--tokens", "300", "--a=--nothing")
    check("an unknown option: the server's sentence", r.returncode == 1 and "--nothing" in r.stderr, r.stderr)
    r = tool("--redis", "/nowhere/redis-server")
    check("no Redis: one line", r.returncode == 1 and r.stderr.count("\n") == 1 and "/nowhere/redis-server" in r.stderr, r.stderr)


def ask(server, prompt, tokens):
    status, _, reply = server.call("POST", "/v1/completions", {"prompt": prompt, "max_tokens": tokens, "temperature": 0, "evenkeel": {"digest": True}})
    assert status == 200, reply
    return reply["evenkeel"]["digest"], reply["choices"][0]["text"], reply["usage"]["prompt_tokens_details"]["cached_tokens"]


def window():
    c = json.load(open(os.path.join(MODEL, "config.json")))
    return c.get("text_config", c)["sliding_window"]


def any_length(a, b):
    """A prompt's last token is computed where the reply is, and its page is never overwritten: about pages and the window."""
    redis, draw = Redis(), random.Random(36)
    shared = ["--model", MODEL, "--cache-shared", redis.url()]
    lengths = sorted({n for at in (64, 128, 192, window()) for n in (at - 1, at, at + 1)})
    with Server(PROGRAM, *shared, *a.split(), "--role", "prefill") as p, Server(PROGRAM, *shared, *b.split(), "--role", "decode") as d, \
            Server(PROGRAM, "--model", MODEL, "--cache-bytes", 0) as alone:
        for n in lengths:
            prompt = [2] + [draw.randrange(300, 500) for _ in range(n - 1)]
            want = ask(alone, prompt, 12)
            ask(p, prompt, 12)
            got = ask(d, prompt, 12)
            check(f"{n} tokens: the reply of a server alone", got[:2] == want[:2], (got, want))
            check(f"{n} tokens: no warning", "--role decode computed" not in d.said())
            check(f"{n} tokens: whole pages before the last token came", got[2] == min(n // 64 * 64, n - 1), got)
        for _ in range(2):
            ask(d, [2] + [draw.randrange(300, 500) for _ in range(window() + 80)], 2)
        check("a prompt that nobody prepared: counted", d.metrics()["evenkeel_decode_computed_prompts_total"] == 2, d.metrics())
        check("a prompt that nobody prepared: one line", d.says("--role decode computed") and d.said().count("--role decode computed") == 1, d.said()[-900:])
    redis.end()


def main():
    if why_not():
        print(f"{why_not()}: not run")
        sys.exit(77)
    a, b = two_kinds()
    shows_both_times(a, b)
    refuses(a, b)
    any_length(a, b)
    sys.exit(closing())


if __name__ == "__main__":
    main()
