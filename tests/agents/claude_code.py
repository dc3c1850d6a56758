#!/usr/bin/env python3
"""Claude Code as a client of the server: claude_code.py PROGRAM MODEL CLAUDE

A session of four turns (headless, --resume) with its own prompt of some 17,000 tokens and its own tools, on MODEL with a
context of 64k. The bundled model is too small to act sensibly: it calls tools that do not exist and misspells arguments, which
is what a protocol has to bear. Checked is the protocol: every request is answered with 200, streams, tool calls get
results, thinking comes back with its signature, the prefix is read from the cache from the second request on, and nothing
goes to another host. Closes with `N passed, N failed`."""
import json, os, subprocess, sys, tempfile, uuid

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
from counted import check, closing
from client import Server
from recorder import Recorder, documented, long_context

PROGRAM, MODEL, CLAUDE = map(os.path.abspath, sys.argv[1:4])


def environment(recorder, home):
    """The documented settings with this test's address, short replies, and a proxy that refuses for all other hosts."""
    settings = dict(line.split("=", 1) for line in documented("env").splitlines())
    return {"PATH": os.environ["PATH"], "HOME": home, **settings, **recorder.proxies(),
            "ANTHROPIC_BASE_URL": recorder.url, "CLAUDE_CODE_MAX_OUTPUT_TOKENS": "200"}


def turn(env, folder, prompt, *args):
    """The events of one headless call."""
    r = subprocess.run([CLAUDE, "-p", prompt, "--output-format", "stream-json", "--verbose", "--include-partial-messages", "--max-turns", "5", *args],
                       env=env, cwd=folder, capture_output=True, text=True, timeout=180, stdin=subprocess.DEVNULL)
    events = [json.loads(line) for line in r.stdout.splitlines()]
    result = next((e for e in events if e["type"] == "result"), {})
    check(f"{prompt}: no error", r.returncode == 0 and result.get("is_error") is False or result.get("subtype") == "error_max_turns",
          (r.returncode, result, r.stderr[-500:]))
    partial = [e["event"]["type"] for e in events if e["type"] == "stream_event"]
    check(f"{prompt}: it streams", partial.count("content_block_delta") > 2 and partial.count("message_start") == partial.count("message_stop") > 0, partial[:20])
    return events


def blocks(events, kind, type):
    for e in events:
        if e["type"] == kind and isinstance(e["message"]["content"], list):
            yield from (b for b in e["message"]["content"] if b["type"] == type)


def usage(entry):
    for line in entry["reply"].splitlines():
        if line.startswith(b"data: ") and b'"message_start"' in line:
            return json.loads(line[6:])["message"]["usage"]
    return None


def shared(a, b):
    """The share of a's messages, tools and system that b begins with, without the line that is another in each request. The client
    writes a text as a list of one part in the last message, and as a string once it is not the last."""
    def plain(m):
        c = m["content"]
        return {**m, "content": c[0]["text"]} if isinstance(c, list) and len(c) == 1 and c[0]["type"] == "text" else m

    def parts(entry):
        o = json.loads(entry["body"])
        return [o.get("tools"), [s for s in o["system"] if "billing-header" not in s["text"]], *map(plain, o["messages"])]
    strip = lambda v: json.loads(json.dumps(v), object_hook=lambda d: {k: x for k, x in d.items() if k != "cache_control"})
    a, b = strip(parts(a)), strip(parts(b))
    return sum(x == y for x, y in zip(a, b)) / len(a)


def judge(recorder, events):
    posts = [e for e in recorder.seen if e["method"] == "POST" and e["path"].startswith("/v1/messages") and "count_tokens" not in e["path"]]
    check("every request is answered with 200", all(e["status"] == 200 for e in recorder.seen), [(e["method"], e["path"], e["status"], e["reply"][:200]) for e in recorder.seen if e["status"] != 200])
    check("requests of a whole session", len(posts) >= 5, len(posts))
    check("replies come in pieces", all(e["pieces"] > 2 for e in posts), [e["pieces"] for e in posts])
    check("streams end as they must", all(b"event: message_stop\n" in e["reply"] for e in posts), [e["reply"][-200:] for e in posts])
    calls = {b["id"] for b in blocks(events, "assistant", "tool_use")}
    results = {b["tool_use_id"] for b in blocks(events, "user", "tool_result")}
    check("tools are called and every call has its result", calls and calls == results, (calls, results))
    thoughts = list(blocks(events, "assistant", "thinking"))
    check("thinking has a signature", thoughts and all(t["signature"] for t in thoughts), thoughts[:3])
    use = [usage(e) for e in posts]
    check("usage", all(use), use)
    sizes = [u["input_tokens"] + u["cache_read_input_tokens"] for u in use]
    check("prompts are long", sizes[0] > 10000, sizes)
    for i in range(1, len(posts)):
        if shared(posts[i - 1], posts[i]) < 1:
            continue  # another conversation: a title, a summary
        # A new question makes the template drop the thoughts before it, so what follows them is new; what the first
        # request sent never is.
        check(f"request {i} reads its prefix from the cache", use[i]["cache_read_input_tokens"] >= 0.99 * sizes[0], (use[i], sizes[0]))
    check("most requests continue the one before", sum(shared(a, b) == 1 for a, b in zip(posts, posts[1:])) >= len(posts) // 2)
    print(f"measured: first request {sizes[0]} tokens, first byte after {posts[0]['seconds']:.2f} s; then " +
          ", ".join(f"{u['input_tokens']} new of {n} in {e['seconds']:.2f} s" for u, n, e in list(zip(use, sizes, posts))[1:6]))
    check("nothing for another host", not recorder.elsewhere, recorder.elsewhere)


def main():
    with tempfile.TemporaryDirectory() as d:
        long_context(MODEL, f"{d}/pocket")
        home, work = f"{d}/home", f"{d}/work"
        os.mkdir(home), os.mkdir(work)
        with open(f"{work}/notes.txt", "w") as f:
            f.write("A keel keeps a ship upright.\n")
        with Server(PROGRAM, "--model", f"{d}/pocket", "--max-requests", 4) as s:
            recorder = Recorder(s.port)
            env, session = environment(recorder, home), str(uuid.uuid4())
            events = turn(env, work, "Read the file notes.txt.", "--session-id", session)
            for prompt in ("What is the weather in Paris?", "Thank you. List the files.", "Read notes.txt again."):
                events += turn(env, work, prompt, "--resume", session)
            judge(recorder, events)
            recorder.shutdown()
    return closing()


if __name__ == "__main__":
    sys.exit(main())
