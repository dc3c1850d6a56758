#!/usr/bin/env python3
"""opencode as a client of the server, over Chat Completions: opencode.py PROGRAM MODEL OPENCODE

A session of two turns (`opencode run`, the second with --continue) with its own prompt of some 10,000 tokens and its own
tools, on MODEL with a context of 64k, and with the settings of docs/AGENTS.md; as with Claude Code, what is checked is the
protocol. Closes with `N passed, N failed`."""
import json, os, subprocess, sys, tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
from counted import check, closing
from client import Server
from recorder import Recorder, documented, long_context

PROGRAM, MODEL, OPENCODE = map(os.path.abspath, sys.argv[1:4])


def prepare(recorder, home):
    """The environment of docs/AGENTS.md with this test's address, and a proxy that refuses for all other hosts."""
    os.makedirs(f"{home}/.config/opencode")
    with open(f"{home}/.config/opencode/opencode.json", "w") as f:
        # The bundled model calls tools only without thinking.
        f.write(documented("json").replace("http://127.0.0.1:8083", recorder.url).replace('"reasoningEffort": "medium"', '"reasoningEffort": "none"'))
    settings = dict(line.split("=", 1) for line in documented("env", "## opencode").splitlines())
    return {"PATH": os.environ["PATH"], "HOME": home, **settings, **recorder.proxies()}


def turn(env, work, prompt, *args):
    r = subprocess.run([OPENCODE, "run", "--format", "json", *args, prompt], env=env, cwd=work, capture_output=True, text=True,
                       timeout=240, stdin=subprocess.DEVNULL)
    events = [json.loads(line) for line in r.stdout.splitlines() if line.startswith("{")]
    check(f"{prompt}: no error", r.returncode == 0 and not [e for e in events if e["type"] == "error"], (r.returncode, events[-3:], r.stderr[-500:]))
    return events


def chunks(entry):
    return [json.loads(line[6:]) for line in entry["reply"].splitlines() if line.startswith(b"data: {")]


def usage(entry):
    return next((c["usage"] for c in reversed(chunks(entry)) if c.get("usage")), None)


def judge(recorder):
    posts = [e for e in recorder.seen if e["path"] == "/v1/chat/completions"]
    check("every request is answered with 200", len(posts) >= 3 and all(e["status"] == 200 for e in recorder.seen), [(e["path"], e["status"], e["reply"][:300]) for e in recorder.seen])
    check("replies come in pieces", all(e["pieces"] > 2 for e in posts), [e["pieces"] for e in posts])
    check("streams end as they must", all(e["reply"].rstrip().endswith(b"data: [DONE]") for e in posts), [e["reply"][-200:] for e in posts])
    deltas = [call for e in posts for c in chunks(e) for choice in c["choices"] for call in choice["delta"].get("tool_calls", [])]
    sent = {d["id"] for d in deltas if d.get("id")}
    last = json.loads(posts[-1]["body"])["messages"]
    calls = [c["id"] for m in last for c in m.get("tool_calls") or []]
    results = [m["tool_call_id"] for m in last if m["role"] == "tool"]
    check("tools are called and every call has its result", calls and calls == results and set(calls) <= sent, (calls, results, sent))
    talks = [e for e in posts if json.loads(e["body"]).get("tools")]
    use = [usage(e) for e in talks]
    check("usage", all(use), use)
    check("prompts are long", use[0]["prompt_tokens"] > 5000, use)
    # What a request repeats of the one before is read from the cache; a new question changes where thoughts are left out.
    first = use[0]["prompt_tokens"]
    cached = [u["prompt_tokens_details"]["cached_tokens"] for u in use[1:]]
    check("the prefix is read from the cache", cached and all(c >= 0.95 * first for c in cached), (first, cached))
    print(f"measured: first request {first} tokens, first byte after {talks[0]['seconds']:.2f} s; then " +
          ", ".join(f"{u['prompt_tokens'] - c} new of {u['prompt_tokens']} in {e['seconds']:.2f} s" for u, c, e in list(zip(use[1:], cached, talks[1:]))[:5]))
    # It looks for the types of its plugins at npm's registry and goes on without them; no setting switches that off.
    check("nothing but packages from another host", all(to.startswith("registry.") for to in recorder.elsewhere), recorder.elsewhere)


def main():
    with tempfile.TemporaryDirectory() as d:
        long_context(MODEL, f"{d}/pocket")
        folder = f"{d}/files"
        os.mkdir(folder)
        with open(f"{folder}/notes.txt", "w") as f:
            f.write("A keel keeps a ship upright.\n")
        with Server(PROGRAM, "--model", f"{d}/pocket", "--max-requests", 4) as s:
            recorder = Recorder(s.port, {"max_tokens": 200})
            env = prepare(recorder, f"{d}/home")
            turn(env, folder, "Read the file notes.txt.")
            turn(env, folder, "Thank you. List the files.", "--continue")
            recorder.shutdown()
        judge(recorder)
    return closing()


if __name__ == "__main__":
    sys.exit(main())
