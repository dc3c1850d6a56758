#!/usr/bin/env python3
"""README's first ten minutes, as they stand there: first.py PROGRAM MODEL

Each line of the block below "The first ten minutes" runs in its order, in a terminal, against a Hub that is played here.
Standard library only; closes with `N passed, N failed`."""
import os, re, shlex, sys, tempfile, time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import hub_server
from client import free_port
from screen import Terminal, plain

PROGRAM, MODEL = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
README = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "README.md")
# What each line must show, in their order; a line more in README needs one more here.
EXPECTED = [
    ("run", r"\S"),
    ("names", r"e2b +\d\.\d GB +(yes|no, [\d.]+ GB short|on the GPU) +google/gemma-4-E2B-it"),
    ("pull", r"/snapshots/"),
    ("run", r"\S"),
    ("serve", r"serves e2b on .*, keys and values in i12, at http://127\.0\.0\.1:\d+/v1; its page for people is http://127\.0\.0\.1:\d+/"),
    ("ps", r"http://127\.0\.0\.1:\d+ +e2b "),
    ("curl", r'"content":"[^"]'),
    ("stop", r"stopped e2b at http://127\.0\.0\.1:\d+"),
]


def lines():
    text = open(README, encoding="utf-8").read()
    block = re.search(r"The first ten minutes, in a terminal:\n\n```\n(.*?)```", text, re.S)[1]
    return [re.sub(r"\s+#.*", "", l) for l in block.splitlines() if l.strip()]


def main():
    hub, failed = hub_server.Hub(), 0
    files = {n: open(os.path.join(MODEL, n), "rb").read() for n in os.listdir(MODEL) if n.endswith((".json", ".safetensors"))}
    hub.repos["google/gemma-4-E2B-it-qat-q4_0-gguf"] = hub_server.Repo(files)
    commands, port = lines(), free_port()
    with tempfile.TemporaryDirectory() as home:
        env = {"HOME": home, "HF_HOME": home, "HF_ENDPOINT": hub.url, "XDG_RUNTIME_DIR": home, "EVENKEEL_MAX_TOKENS": "16", "EVENKEEL_PORT": str(port)}
        server = None
        for i, line in enumerate(commands):
            argv = shlex.split(line.replace("127.0.0.1:8080", f"127.0.0.1:{port}"))
            what = "curl" if argv[0] == "curl" else argv[1]
            argv = ["curl", "-sS", *argv[1:]] if what == "curl" else [PROGRAM, *argv[1:]]
            want = EXPECTED[i] if i < len(EXPECTED) else ("nothing", "nothing")
            begun = time.time()
            t = Terminal(argv, env=env)
            if what == "serve":
                t.until("for people is", 60)
                t.until("\n")
                server, status, shown = t, 0, plain(t.raw)
            else:
                status, shown = t.end(60)
                t.__exit__()
            if what != want[0] or status != 0 or not re.search(want[1], shown):
                failed += 1
                print(f"FAIL {line}: exit {status}, {want[1]!r} is not in {shown[-1500:]!r}")
            elif time.time() - begun > 5:
                print(f"{time.time() - begun:.0f} s: {line}")
        if server:
            status, shown = server.end(30)
            failed += status != 0
            server.__exit__()
    hub.close()
    if len(commands) != len(EXPECTED):
        failed += 1
        print(f"FAIL README has {len(commands)} lines, {len(EXPECTED)} are known")
    print(f"{len(commands) - failed} passed, {failed} failed")
    return 1 if failed else 0


sys.exit(main())
