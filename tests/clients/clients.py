#!/usr/bin/env python3
"""SDKs and frameworks as clients of a server: clients.py EVENKEEL MODEL [FILE…]

Without FILE the official SDKs of this folder, with the packages of its package-lock.json (npm ci); openai_python.py needs the
Python package openai. NODE names the program that runs .mjs files, `node` by default."""
import os, subprocess, sys, tempfile

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(here, "..", "e2e"))
from client import Server
import seeing_model

CASSETTE = "openai_cassette.mjs"
NAMES = sorted(f for f in os.listdir(here) if f.endswith(".mjs") and f not in ("harness.mjs", CASSETTE)) + ["openai_python.py"]


SEEING = {"pictures.mjs", "sounds.mjs", "ai_sdk_pictures.mjs"}  # of a random model with eyes and ears
sees = lambda name: os.path.basename(name) in SEEING


def run(program, model, names):
    failed = passed = 0
    with Server(program, "--model", model, "--max-requests", 4) as s:
        for name in names:
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
    return passed, failed


def recorded_and_replayed(program, model):
    """The suite CASSETTE against a server that keeps its replies, then against their file without the model: equal lines."""
    node = lambda port, *more: subprocess.run([os.environ.get("NODE", "node"), os.path.join(here, CASSETTE), f"http://127.0.0.1:{port}", *more], capture_output=True, text=True, timeout=240)
    with tempfile.TemporaryDirectory() as folder:
        kept, tape = os.path.join(folder, "kept"), os.path.join(folder, "replies.jsonl")
        with Server(program, "--model", model, "--cache-replies", "8M", "--cache-replies-prompts", "--cache-dir", kept) as s:
            first = node(s.port)
        subprocess.run([program, "replies", "export", tape, "--cache-dir", kept, "--model", model], check=True, capture_output=True)
        with Server(program, "--model", model, "--replies", tape, "--no-engine") as s:
            again = node(s.port, "replay")
    is_equal = first.returncode == again.returncode == 0 and first.stdout == again.stdout
    if not is_equal:
        print(f"{CASSETTE}: {first.stdout}{first.stderr}again: {again.stdout}{again.stderr}"[-6000:])
    return is_equal


def main(program, model, *files):
    names = files or NAMES
    passed, failed = run(program, model, [n for n in names if not sees(n)])
    if any(sees(n) for n in names):
        with tempfile.TemporaryDirectory() as folder:
            seeing_model.main(folder)
            more = run(program, folder, [n for n in names if sees(n)])
        passed, failed = passed + more[0], failed + more[1]
    if not files:
        is_equal = recorded_and_replayed(program, model)
        passed, failed = passed + is_equal, failed + (not is_equal)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


sys.exit(main(*sys.argv[1:]))
