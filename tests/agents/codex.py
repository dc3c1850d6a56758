#!/usr/bin/env python3
"""Codex as a client of the server, over the Responses API: codex.py PROGRAM MODEL CODEX

Runs of `codex exec` with its own prompt of some 10,000 tokens and its own tools, on MODEL with a context of 64k, and with
the settings of docs/AGENTS.md: one as they are, which shows the model's thoughts, and one without thinking, for the bundled model
calls tools only then. As with Claude Code, what is checked is the protocol. Closes with `N passed, N failed`."""
import json, os, subprocess, sys, tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
from counted import check, closing
from client import Server
from recorder import Recorder, documented, long_context

PROGRAM, MODEL, CODEX = map(os.path.abspath, sys.argv[1:4])


def run(recorder, home, work, effort):
    os.makedirs(f"{home}/.codex")
    with open(f"{home}/.codex/config.toml", "w") as f:
        f.write(documented("toml").replace("http://127.0.0.1:8083", recorder.url).replace('effort = "medium"', f'effort = "{effort}"'))
    env = {"PATH": os.environ["PATH"], "HOME": home, "EVENKEEL_KEY": "none", **recorder.proxies()}
    r = subprocess.run([CODEX, "exec", "--json", "--skip-git-repo-check", "Read notes.txt"], env=env, cwd=work,
                       capture_output=True, text=True, timeout=180, stdin=subprocess.DEVNULL)
    return r, [json.loads(line) for line in r.stdout.splitlines()]


def completed(entry):
    """The response of the last event of a stream."""
    for line in reversed(entry["reply"].splitlines()):
        if line.startswith(b"data: ") and b'"response.completed"' in line:
            return json.loads(line[6:])["response"]
    return None


def ended(r, events, what):
    kinds = [e["type"] for e in events]
    check(f"{what}: no error", r.returncode == 0 and "turn.completed" in kinds and "turn.failed" not in kinds, (r.returncode, events[-3:], r.stderr[-500:]))


def judge_calls(posts):
    check("every request is answered with 200", len(posts) >= 2 and all(e["status"] == 200 for e in posts), [(e["path"], e["status"], e["reply"][:300]) for e in posts])
    check("replies come in pieces", all(e["pieces"] > 2 for e in posts), [e["pieces"] for e in posts])
    ends = [completed(e) for e in posts]
    check("streams end as they must", all(ends), [e["reply"][-200:] for e in posts])
    calls = [o["call_id"] for e in ends if e for o in e["output"] if o["type"] == "function_call"]
    results = [i["call_id"] for i in json.loads(posts[-1]["body"])["input"] if i.get("type") == "function_call_output"]
    check("tools are called and every call has its result", calls and calls == results, (calls, results))
    use = [e["usage"] for e in ends if e]
    check("prompts are long", use and use[0]["input_tokens"] > 5000, use)
    check("the prefix is read from the cache", len(use) > 1 and all(
        b["input_tokens_details"]["cached_tokens"] >= 0.98 * a["input_tokens"] for a, b in zip(use, use[1:])), use)


def main():
    with tempfile.TemporaryDirectory() as d:
        long_context(MODEL, f"{d}/pocket")
        os.mkdir(f"{d}/work")
        seen = {}
        with Server(PROGRAM, "--model", f"{d}/pocket", "--max-requests", 4) as s:
            for effort in ("none", "medium"):
                recorder = Recorder(s.port, {"max_output_tokens": 200})
                r, events = run(recorder, f"{d}/{effort}", f"{d}/work", effort)
                recorder.shutdown()
                ended(r, events, effort)
                check(f"{effort}: nothing for another host", not recorder.elsewhere, recorder.elsewhere)
                seen[effort] = [e for e in recorder.seen if e["path"] == "/v1/responses"], events
        judge_calls(seen["none"][0])
        thoughts = [e["item"]["text"] for e in seen["medium"][1] if e.get("item", {}).get("type") == "reasoning"]
        check("thoughts are shown", thoughts and all(thoughts), seen["medium"][1])
    return closing()


if __name__ == "__main__":
    sys.exit(main())
