#!/usr/bin/env python3
"""Coding agents over a compaction: compaction.py PROGRAM MODEL CLAUDE CODEX

Claude Code (by /compact, and by itself near the end of a small window) and Codex (by its own words, and by the compaction of the
Responses API, which it uses with servers named OpenAI) have a turn, a summary by the model, and further turns. Checked is that each
request is answered, that the summary reads the conversation before it from the cache, that it is sent back in place of that conversation,
and that the turn behind it has an answer. The bundled model would call tools where a summary is asked for: it is kept from that.
Closes with `N passed, N failed`."""
import json, os, subprocess, sys, tempfile, uuid

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
from counted import check, closing
from client import Server
from recorder import Recorder, documented, long_context

PROGRAM, MODEL, CLAUDE, CODEX = map(os.path.abspath, sys.argv[1:5])
QUIET = {"capture_output": True, "text": True, "timeout": 180, "stdin": subprocess.DEVNULL}


def lines(text):
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def frames(entry):
    return [json.loads(line[6:]) for line in entry["reply"].splitlines() if line.startswith(b"data: {")]


def answered(what, posts):
    check(f"{what}: every request is answered with 200", posts and all(e["status"] == 200 for e in posts), [(e["path"], e["status"], e["reply"][:300]) for e in posts])


# --- Claude Code ---

def claude(recorder, d, prompts, more):
    """The events and the requests of each of a session's headless calls."""
    home, session, out = os.path.join(d, uuid.uuid4().hex), str(uuid.uuid4()), []
    os.mkdir(home)
    settings = dict(line.split("=", 1) for line in documented("env").splitlines())
    env = {"PATH": os.environ["PATH"], "HOME": home, **settings, **recorder.proxies(), "ANTHROPIC_BASE_URL": recorder.url, "CLAUDE_CODE_MAX_OUTPUT_TOKENS": "200", **more}
    for i, prompt in enumerate(prompts):
        n = len(recorder.seen)
        r = subprocess.run([CLAUDE, "-p", prompt, "--tools", "Read", "--output-format", "stream-json", "--verbose", "--max-turns", "3", "--resume" if i else "--session-id", session],
                           env=env, cwd=f"{d}/work", **QUIET)
        check(f"Claude Code, {prompt}: no error", r.returncode == 0, (r.stdout[-500:], r.stderr[-500:]))
        out.append((lines(r.stdout), [e for e in recorder.seen[n:] if e["path"].startswith("/v1/messages")]))
    return out


def usage(entry):
    """Tokens of the prompt and those of them that were cached."""
    u = next(f["message"]["usage"] for f in frames(entry) if f["type"] == "message_start")
    return u["input_tokens"] + u["cache_read_input_tokens"], u["cache_read_input_tokens"]


def text_of(entry):
    return "".join(f["delta"].get("text", "") for f in frames(entry) if f["type"] == "content_block_delta")


def is_summary(entry):
    return b"Do NOT call any tools" in entry["body"]


def judge_claude(what, trigger, before, turn, after):
    """before: the turns that are summarized; turn: the call in which it happens; after: the request behind the summary."""
    boundary = [e for e in turn[0] if e.get("subtype") == "compact_boundary"]
    check(f"{what}: compacted", [b["compact_metadata"]["trigger"] for b in boundary] == [trigger], turn[0][:5])
    asked = [e for e in turn[1] if is_summary(e)]
    check(f"{what}: a summary was asked for", asked, [e["body"][-300:] for e in turn[1]])
    if not asked:
        return
    # The last turn's thoughts leave the prompt with the next question; all else is as it was.
    total, cached = usage(asked[0])
    whole = usage(before[-1])[0]
    check(f"{what}: what is summarized is read from the cache", cached >= 0.97 * whole, (cached, whole, total))
    summaries = [text.split("\n")[0] for text in (text_of(e).strip() for e in asked) if text]  # it may ask twice, and takes one
    check(f"{what}: there is a summary", summaries, asked[-1]["reply"][-500:])
    sent = json.dumps(json.loads(after["body"])["messages"], ensure_ascii=False)
    check(f"{what}: it is sent back", any(json.dumps(text, ensure_ascii=False)[1:-1] in sent for text in summaries), (summaries, sent[:600]))
    print(f"measured: Claude Code, {what}: a summary of {total} tokens, {cached} of them cached; behind it {usage(after)[0]}, {usage(after)[1]} cached")
    check(f"{what}: the turn behind it has an answer", text_of(after).strip() or b'"tool_use"' in after["reply"], after["reply"][-500:])
    check(f"{what}: that begins in the cache", usage(after)[1] > 1000, usage(after))


def claude_by_hand(recorder, d):
    one, compact, two, three = claude(recorder, d, ("Hello, my name is Ada.", "/compact", "What is my name?", "Thank you."), {})
    posts = one[1] + compact[1] + two[1] + three[1]
    answered("/compact", posts)
    judge_claude("/compact", "manual", one[1], compact, two[1][0])
    check("/compact: a later turn goes on from there", usage(three[1][0])[1] >= 0.9 * usage(two[1][-1])[0], (usage(three[1][0]), usage(two[1][-1])))


def claude_by_itself(recorder, d):
    turns = claude(recorder, d, ("Hello, my name is Ada.", "Tell me a story.", "What is my name?"), {"CLAUDE_AUTOCOMPACT_PCT_OVERRIDE": "5"})
    answered("a small window", [e for t in turns for e in t[1]])
    judge_claude("a small window", "auto", turns[1][1], turns[2], turns[2][1][-1])


# --- Codex ---

def codex(recorder, d, name):
    """The requests of each call."""
    home, out = os.path.join(d, uuid.uuid4().hex), []
    os.makedirs(f"{home}/.codex")
    settings = documented("toml").replace("http://127.0.0.1:8083", recorder.url).replace('effort = "medium"', 'effort = "none"').replace('name = "evenkeel"', f'name = "{name}"')
    with open(f"{home}/.codex/config.toml", "w") as f:
        f.write("model_auto_compact_token_limit = 5000\n" + settings)
    env = {"PATH": os.environ["PATH"], "HOME": home, "EVENKEEL_KEY": "none", **recorder.proxies()}
    for i, prompt in enumerate(("Hello, my name is Ada.", "Tell me a story.", "What is my name?")):
        n = len(recorder.seen)
        r = subprocess.run([CODEX, "exec", *(["resume", "--last"] if i else []), "--json", "--skip-git-repo-check", prompt], env=env, cwd=f"{d}/work", **QUIET)
        events = lines(r.stdout)
        said = [e["item"]["text"] for e in events if e.get("item", {}).get("type") == "agent_message"]
        check(f"Codex ({name}), {prompt}: an answer", r.returncode == 0 and events[-1]["type"] == "turn.completed" and said, (events[-3:], r.stderr[-500:]))
        out.append([e for e in recorder.seen[n:] if e["method"] == "POST"])
    answered(f"Codex ({name})", [e for turn in out for e in turn])
    return out


def ended(entry):
    return frames(entry)[-1]["response"]


def tokens(entry):
    u = ended(entry)["usage"]
    return u["input_tokens"], u["input_tokens_details"]["cached_tokens"]


def codex_by(recorder, d, name, asks, item_of):
    turns = codex(recorder, d, name)
    check(f"Codex ({name}): the later turns begin with a summary", [len(t) for t in turns] == [1, 2, 2], [len(t) for t in turns])
    for before, (summary, after) in zip(turns, turns[1:]):
        last = json.loads(summary["body"])["input"][-1]
        check(f"Codex ({name}): it asks for a summary", asks(last), last)
        what = item_of(ended(summary)["output"][-1])
        sent = json.loads(after["body"])["input"]
        check(f"Codex ({name}): it is sent back", what and any(what in json.dumps(i, ensure_ascii=False) for i in sent), (what, sent[-2:]))
        check(f"Codex ({name}): in place of what was said", not any(i.get("role") == "assistant" for i in sent), sent[-3:])
        size, cached = tokens(summary)
        # By its own words it leaves the tools out, which stand behind its instructions.
        check(f"Codex ({name}): what is summarized is read from the cache", cached >= (0.98 * tokens(before[-1])[0] if name == "OpenAI" else 0.6 * size), (size, cached, tokens(before[-1])))
        print(f"measured: Codex ({name}): a summary of {size} tokens, {cached} of them cached; behind it {tokens(after)[0]}, {tokens(after)[1]} cached")


def main():
    with tempfile.TemporaryDirectory() as d:
        long_context(MODEL, f"{d}/pocket")
        os.mkdir(f"{d}/work")
        with Server(PROGRAM, "--model", f"{d}/pocket", "--max-requests", 4) as s:
            recorder = Recorder(s.port, {"tool_choice": {"type": "none"}})
            claude_by_hand(recorder, d)
            claude_by_itself(recorder, d)
            check("nothing for another host", not recorder.elsewhere, recorder.elsewhere)
            recorder.shutdown()
            recorder = Recorder(s.port, {"max_output_tokens": 200, "tool_choice": "none"})
            codex_by(recorder, d, "evenkeel", lambda i: "CONTEXT CHECKPOINT COMPACTION" in json.dumps(i), lambda o: o["content"][0]["text"].strip())
            codex_by(recorder, d, "OpenAI", lambda i: i == {"type": "compaction_trigger"}, lambda o: o["encrypted_content"])
            check("Codex: nothing for another host", not recorder.elsewhere, recorder.elsewhere)
            recorder.shutdown()
            said = s.said()
            check("the server's log has nothing but replies", said.count("outcome=done") >= 12 and said.count("outcome=done") == said.count("outcome="), said[-2000:])
    return closing()


if __name__ == "__main__":
    sys.exit(main())
