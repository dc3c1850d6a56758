#!/usr/bin/env python3
"""A server over several devices, end to end: a chat, a stream, structured output, a picture, two at once and pages on
disk are as on the CPU, to the digest; what several devices left on disk one finds, and the other way round. Standard
library only.

usage: ranks.py EVENKEEL DIR DEVICES...

DIR is a folder for a random model with eyes (seeing_model.py); DEVICES are options, as "cuda:0,1 --split outputs". The
output's last line is `N passed, N failed`.
"""
import base64
import concurrent.futures
import json
import os
import sys
import tempfile

import seeing_model
from client import Server, assemble
from counted import check, closing
from drawn import png_of

PROGRAM, DIR, DEVICES = sys.argv[1], sys.argv[2], sys.argv[3:]
PICTURE = png_of(48, 48, b"".join(b"\0" + bytes(x * y % 251 for x in range(144)) for y in range(48)))
LONG = "A page of tokens stays on disk: " + " ".join(str(i) for i in range(60))
SCHEMA = {"type": "json_schema", "json_schema": {"name": "a", "strict": True, "schema": {
    "type": "object", "properties": {"a": {"enum": [3, 14]}}, "required": ["a"], "additionalProperties": False}}}


def body(content, **more):
    return {"model": "m", "messages": [{"role": "user", "content": content}], "max_tokens": 3, "temperature": 0, "evenkeel": {"digest": True}, **more}


SEEN = [{"type": "image_url", "image_url": {"url": "data:image/png;base64," + base64.b64encode(PICTURE).decode(), "detail": "low"}}, {"type": "text", "text": "?"}]
CHATS = {"a drawn reply": body("Hi", temperature=1, seed=7), "a form": body("a?", response_format=SCHEMA, max_tokens=12), "a picture": body(SEEN),
         "what is on disk": body(LONG)}


def said(reply):
    c = reply["choices"][0]
    return c["message"]["content"], c["finish_reason"], reply["evenkeel"]["digest"]


def server(device, folder):
    return Server(PROGRAM, "--model", DIR, "--device", *device.split(), "--ctx", "1024", "--kv-memory", "16M", "--max-requests", "2", "--draft", "off",
                  *(["--cache-dir", folder] if folder else []))


def ask_all(s):
    return {name: said(s.chat(b)) for name, b in CHATS.items()}


def pages_are_found(device, folder, want):
    with server(device, folder) as s:
        reply = s.chat(CHATS["what is on disk"])
    check(f"pages from disk on {device}", said(reply) == want, reply)
    check(f"pages from disk on {device} are found", reply["usage"]["prompt_tokens_details"]["cached_tokens"] >= 64, reply["usage"])


seeing_model.main(DIR)
with tempfile.TemporaryDirectory() as top:
    with server("cpu", None) as s:
        want = ask_all(s)
    check("the form is one", json.loads(want["a form"][0])["a"] in (3, 14), want["a form"])
    for i, device in enumerate(DEVICES):
        kept = os.path.join(top, str(i))
        with server(device, kept) as s:
            got = ask_all(s)
            for name in CHATS:
                check(f"{name} on {device}", got[name] == want[name], (got[name], want[name]))
            b = CHATS["a drawn reply"]
            message, finish, _ = assemble(s.stream(b))
            check(f"a stream on {device}", (message["content"], finish) == want["a drawn reply"][:2], message)
            with concurrent.futures.ThreadPoolExecutor(2) as two:
                both = list(two.map(lambda n: said(s.chat(CHATS[n])), ("a drawn reply", "a form")))
            check(f"two at once on {device}", both == [want["a drawn reply"], want["a form"]], both)
        pages_are_found("cuda:0", kept, want["what is on disk"])
        alone = os.path.join(top, f"{i}, one device")
        with server("cuda:0", alone) as s:
            s.chat(CHATS["what is on disk"])
        pages_are_found(device, alone, want["what is on disk"])
sys.exit(closing())
