#!/usr/bin/env python3
"""The official SDKs as clients of a server: clients.py EVENKEEL MODEL [NAME…]

Needs node, and the packages of tests/clients/package-lock.json (npm ci); runs openai_python.py too, which needs the
Python package openai."""
import os, subprocess, sys

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(here, "..", "e2e"))
from client import Server

NAMES = sorted(f for f in os.listdir(here) if f.endswith(".mjs") and f != "harness.mjs") + ["openai_python.py"]


def main(program, model, *names):
    failed = passed = 0
    with Server(program, "--model", model, "--max-requests", 4) as s:
        for name in names or NAMES:
            r = subprocess.run(["node" if name.endswith(".mjs") else sys.executable, os.path.join(here, name), f"http://127.0.0.1:{s.port}"],
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
