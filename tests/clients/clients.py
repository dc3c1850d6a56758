#!/usr/bin/env python3
"""SDKs and frameworks as clients of a server: clients.py EVENKEEL MODEL [FILE…]

Without FILE the official SDKs of this folder, with the packages of its package-lock.json (npm ci); openai_python.py needs the
Python package openai. NODE names the program that runs .mjs files, `node` by default."""
import os, subprocess, sys

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(here, "..", "e2e"))
from client import Server

NAMES = sorted(f for f in os.listdir(here) if f.endswith(".mjs") and f != "harness.mjs") + ["openai_python.py"]


def main(program, model, *files):
    failed = passed = 0
    with Server(program, "--model", model, "--max-requests", 4) as s:
        for name in files or NAMES:
            r = subprocess.run([os.environ.get("NODE", "node") if name.endswith(".mjs") else sys.executable, os.path.join(here, name), f"http://127.0.0.1:{s.port}"],
                               capture_output=True, text=True, timeout=240)
            last = (r.stdout.strip().splitlines() or [""])[-1]
            for line in r.stdout.splitlines()[:-1]:
                if not line.startswith("ok "):
                    print(f"{name}: {line}")
            if r.returncode not in (0, 1) or not last.endswith("failed"):
                print(f"{name}: exit {r.returncode}: {r.stderr[-2000:]}")
                failed += 1
                continue
            passed += int(last.split()[0])
            failed += int(last.split()[2])
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


sys.exit(main(*sys.argv[1:]))
