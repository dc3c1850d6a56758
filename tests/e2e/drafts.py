#!/usr/bin/env python3
"""Speculation that cannot be seen: drafts.py PROGRAM MODEL

The same requests with drafts off, from the text, and from a drafter, greedy and sampled, alone and together: the same
tokens, the same digests. Closes with `N passed, N failed`."""
import json, os, re, subprocess, sys, threading, urllib.request

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from counted import check, closing
from client import Server

PROGRAM, MODEL = sys.argv[1], sys.argv[2]
DRAFTER = MODEL + "-drafter"
MODES = [["--draft", "off"], ["--draft", "ngram"], ["--draft", "ngram", "--draft-max", "64"]]
if os.path.isdir(DRAFTER):
    MODES += [["--draft", "auto", "--drafter", DRAFTER], ["--drafter", DRAFTER, "--draft-max", "1"]]


def generate(ids, *args):
    r = subprocess.run([PROGRAM, "generate", "--model", MODEL, "--ids", ",".join(map(str, ids)), "--json", *args], capture_output=True,
                       text=True, timeout=120)
    return r.stdout if r.returncode == 0 else f"exit {r.returncode}: {r.stderr}"


TOOLS = [{"type": "function", "function": {"name": "send_email", "description": "Sends an email", "parameters": {"type": "object",
          "properties": {"to": {"type": "string"}, "subject": {"type": "string"}, "body": {"type": "string"}}, "required": ["to", "subject", "body"]}}}]


# The mask of a grammar cuts drafts.
FORM = {"tools": [], "response_format": {"type": "json_schema", "json_schema": {"name": "mail", "strict": True, "schema": {
    "type": "object", "properties": {"to": {"type": "string"}, "subject": {"type": "string"}, "days": {"type": "array", "items": {"enum": ["Friday", "Monday"]}}},
    "required": ["to", "subject", "days"], "additionalProperties": False}}}}


def body(i):
    text = "Send an email to bob@example.com with the subject Trip and the body: We leave on Friday at nine."
    return {"messages": [{"role": "user", "content": text + " Please." * i}], "tools": TOOLS, "max_tokens": 60 + i, "temperature": i % 3 * 0.5,
            "seed": i, "evenkeel": {"digest": True}, **({"stop": ["Friday"]} if i == 5 else {}), **(FORM if i == 3 else {})}


def serve(args, together):
    """The digests of all requests, and what the metrics say of drafts."""
    replies = {}
    with Server(PROGRAM, "--model", MODEL, *args) as s:
        def ask(i):
            replies[i] = s.chat(body(i))
        threads = [threading.Thread(target=ask, args=(i,)) for i in range(8)]
        for t in threads:
            t.start()
            if not together:
                t.join()
        [t.join() for t in threads]
        with urllib.request.urlopen(f"http://127.0.0.1:{s.port}/metrics", timeout=20) as r:
            metrics = r.read().decode()
    return replies, {k: int(re.search(rf"evenkeel_{k}_tokens_total (\d+)", metrics).group(1)) for k in ("drafted", "accepted")}


def face(reply):
    choice = reply["choices"][0]
    return reply["evenkeel"]["digest"], choice["finish_reason"], choice["message"]["content"]


period = [2] + [7, 8, 9, 10] * 12
for ids, more in [(period, ["--temperature", "0"]), (period, ["--temperature", "1", "--seed", "3", "--repetition-penalty", "1.1"]),
                  ([2, 5, 11], ["--temperature", "0", "--ignore-eos"])]:
    replies = [generate(ids, "--max-tokens", "90", *more, *mode) for mode in MODES]
    for mode, reply in zip(MODES[1:], replies[1:]):
        check(f"generate {' '.join(more)} {' '.join(mode)}", reply == replies[0], f"{reply[:200]} instead of {replies[0][:200]}")

want, counts = serve(MODES[0], False)
check("without drafts there are none", counts == {"drafted": 0, "accepted": 0}, counts)
for mode in MODES[1:]:
    for together in (False, True):
        got, counts = serve(mode, together)
        for i in want:
            check(f"request {i} {' '.join(mode)}", face(got[i]) == face(want[i]), f"{face(got[i])} instead of {face(want[i])}")
        if os.path.isdir(DRAFTER):  # a random model may not repeat itself
            check(f"tokens were drafted {' '.join(mode)}", counts["drafted"] > 0, counts)

if os.path.isdir(DRAFTER):
    draft = lambda *args: subprocess.run([PROGRAM, "draft", "--model", MODEL, *args], capture_output=True, text=True, timeout=60)
    r = draft("--drafter", DRAFTER, "--ids", "2,7,8,9", "--tokens", "5", "--json", "--kv", "f32")
    out = json.loads(r.stdout or "{}")
    check("draft", r.returncode == 0 and len(out["draft"]) == 5 and out["bonus"] >= 0, r.stdout + r.stderr)
    for args, says in [(["--ids", "2,7"], "--drafter is missing"), (["--drafter", DRAFTER], "--ids is missing"),
                       (["--drafter", MODEL, "--ids", "2,7"], "is no drafter: its model_type is"),
                       (["--drafter", DRAFTER, "--ids", "2,99999999"], "token id 99999999, the vocabulary has"),
                       (["--drafter", DRAFTER, "--ids", "2,7", "--tokens", "65"], "--tokens")]:
        r = draft(*args)
        check(f"draft {' '.join(args)}", r.returncode != 0 and says in r.stderr.splitlines()[-1], r.stderr)
sys.exit(closing())
