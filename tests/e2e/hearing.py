#!/usr/bin/env python3
"""Transcriptions by `evenkeel serve`: hearing.py PROGRAM DIR

DIR is a folder for random models with ears and without (seeing_model.py). Prints one line per test and closes with
`N passed, N failed`."""
import http.client, json, os, shutil, subprocess, sys, threading

import seeing_model, tiny_model
import counted
from client import Server
from drawn import hum

PROGRAM, DIR = sys.argv[1], sys.argv[2]
TESTS = []


def test(f):
    TESTS.append(f)
    return f


SOUND = hum(1)


def form(sound, **fields):
    """As clients write it: the fields, then the file."""
    b = b"--7MA4YWxkTrZu0gW"
    out = b"".join(b + f'\r\nContent-Disposition: form-data; name="{k}"\r\n\r\n{v}\r\n'.encode() for k, v in fields.items())
    if sound is not None:
        out += b + b'\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\nContent-Type: audio/wav\r\n\r\n' + sound + b"\r\n"
    return out + b + b"--\r\n"


def post(s, body, type="multipart/form-data; boundary=7MA4YWxkTrZu0gW", path="/v1/audio/transcriptions"):
    c = http.client.HTTPConnection("127.0.0.1", s.port, timeout=120)
    try:
        c.request("POST", path, body, {"content-type": type})
        r = c.getresponse()
        return r.status, r.getheader("content-type"), r.read().decode()
    finally:
        c.close()


def ask(s, sound=SOUND, **fields):
    status, type, text = post(s, form(sound, **fields))
    assert status == 200, (status, text)
    return type, text


def refused(s, body, *says, status=400):
    got, _, text = post(s, body)
    assert got == status, (got, text)
    error = json.loads(text)["error"]
    for word in says:
        assert word in error["message"], (word, error)
    return error


@test
def forms_agree(s):
    type, text = ask(s, model="m")
    reply = json.loads(text)
    assert type == "application/json" and set(reply) == {"text", "usage"}, (type, reply)
    u = reply["usage"]
    assert u["type"] == "tokens" and u["input_token_details"]["audio_tokens"] == 25, u
    assert u["input_tokens"] == 25 + u["input_token_details"]["text_tokens"] and u["total_tokens"] == u["input_tokens"] + u["output_tokens"], u
    type, plain = ask(s, response_format="text")
    assert type.startswith("text/plain") and plain == reply["text"] + "\n", (type, plain, reply)
    verbose = json.loads(ask(s, response_format="verbose_json", language="de")[1])
    assert verbose["duration"] == 1 and verbose["language"] == "de" and verbose["task"] == "transcribe", verbose
    assert json.loads(ask(s, hum(1, 5))[1])["text"] != reply["text"]
    type, stream = ask(s, stream="true")
    events = [json.loads(line[6:]) for line in stream.split("\n") if line.startswith("data: {")]
    assert type.startswith("text/event-stream") and stream.endswith("data: [DONE]\n\n"), (type, stream[-200:])
    assert "".join(e["delta"] for e in events[:-1]) == events[-1]["text"] == reply["text"], events
    assert {e["type"] for e in events[:-1]} == {"transcript.text.delta"} and events[-1]["type"] == "transcript.text.done", events
    u["input_token_details"]["cached_audio_tokens"] = 25  # what the first request had encoded
    assert events[-1]["usage"] == u, events[-1]
    assert json.loads(post(s, form(SOUND), path="/audio/transcriptions")[2]) == {"text": reply["text"], "usage": u}


@test
def curl_sends_the_documented_line(s):
    if not shutil.which("curl"):
        return
    file = os.path.join(DIR, "speech.wav")
    with open(file, "wb") as f:
        f.write(SOUND)
    out = subprocess.run(["curl", "-sS", f"http://127.0.0.1:{s.port}/v1/audio/transcriptions", "-F", f"file=@{file}", "-F", "model=e2b"], capture_output=True, timeout=60)
    assert json.loads(out.stdout)["text"] == json.loads(ask(s)[1])["text"], out


@test
def the_same_in_company(s):
    """15 clips, each alone and all of them together, staggered by the order in which they arrive."""
    clips = [hum(0.5 + 0.1 * (i % 5), i) for i in range(15)]
    alone = [json.loads(ask(s, c)[1])["text"] for c in clips]
    together = [None] * 15
    def one(i):
        together[i] = json.loads(ask(s, clips[i])[1])["text"]
    threads = [threading.Thread(target=one, args=(i,)) for i in range(15)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert together == alone, [i for i in range(15) if together[i] != alone[i]]
    assert len(set(alone)) > 10, alone


@test
def long_sounds_are_heard_in_pieces(s):
    reply = json.loads(ask(s, hum(65))[1])
    assert reply["usage"]["input_token_details"]["audio_tokens"] == 750 + 750 + 125, reply
    refused(s, form(hum(601, rate=8000)), "file", "601.0 s", "at most 600 s")


@test
def forms_of_other_clients(s):
    """Words for no language, fields without a value, lines before the form, sounds of a pipe."""
    plain = json.loads(ask(s)[1])["text"]
    for fields in {"language": "auto"}, {"language": ""}, {"temperature": ""}, {"response_format": "", "seed": "", "prompt": "", "stream": ""}:
        assert json.loads(ask(s, **fields)[1])["text"] == plain, fields
    for before in b"\r\n", b"This is a multi-part message.\r\n":
        status, _, text = post(s, before + form(SOUND))
        assert status == 200 and json.loads(text)["text"] == plain, text
    at = SOUND.index(b"data") + 4
    for length in b"\x00\xf0\xff\x7f", b"\0\0\0\x80", b"\xff\xff\xff\xff", b"\0\0\0\0":
        assert json.loads(ask(s, SOUND[:at] + length + SOUND[at + 4:] + b"LIST\4\0\0\0INFO")[1])["text"] == plain, length


@test
def what_is_no_sound_is_refused(s):
    assert refused(s, form(None, model="m"), "a sound is needed")["param"] == "file"
    refused(s, form(b"no sound"), "file: not a sound of a known kind")
    refused(s, form(SOUND[:1000]), "file: damaged WAV sound")
    refused(s, form(SOUND, response_format="srt"), "no times")
    refused(s, form(SOUND)[:-6], "the body ends before its last boundary")
    refused(s, b'{"model":"m"}', "the body must be multipart/form-data")
    refused(s, b"", "the body must be multipart/form-data")
    assert json.loads(ask(s)[1])["text"], "the server goes on"


def models_without_ears_say_so(s):
    refused(s, form(SOUND), "has no ears")


def main():
    both, blind = (os.path.join(DIR, n) for n in ("hearing", "deaf"))
    seeing_model.main(both)
    tiny_model.main(blind)
    ctx = ("--ctx", "4096", "--max-requests", "16")
    with Server(PROGRAM, "--model", both, *ctx) as s:
        for f in TESTS:
            counted.run(f, s)
    with Server(PROGRAM, "--model", blind, *ctx) as s:
        counted.run(models_without_ears_say_so, s)
    return counted.closing()


if __name__ == "__main__":
    sys.exit(main())
