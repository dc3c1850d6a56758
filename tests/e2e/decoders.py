#!/usr/bin/env python3
"""Strangers' pictures that lie, last, crash their decoder or chatter cost nobody else anything: decoders.py PROGRAM DIR [NAME...]

DIR is a folder for a random model with eyes (seeing_model.py). Prints one line per test and closes with `N passed, N failed`."""
import base64, json, os, shutil, signal, struct, subprocess, sys, threading, time

import seeing_model
import counted
from client import Server
from drawn import png

PROGRAM, DIR, counted.only = os.path.abspath(sys.argv[1]), sys.argv[2], sys.argv[3:]
SEEDS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "fuzz", "corpus", "image")
PATH = "/v1/chat/completions"
TESTS = []


def test(f):
    TESTS.append(f)
    return f


def segment(marker, data):
    return bytes([0xFF, marker]) + struct.pack(">H", len(data) + 2) + data


def slow_jpeg(side=8000, scans=60):
    """Few bytes, and a scan after the other that refines nothing in all blocks of a large picture: seconds for a decoder."""
    components = b"".join(bytes([c, 0x11, 0]) for c in (1, 2, 3))
    code = lambda symbol: bytes([1] + [0] * 15 + [symbol])  # one symbol, of one bit
    out = b"\xFF\xD8" + segment(0xDB, b"\0" + bytes([1]) * 64) + segment(0xC2, struct.pack(">BHHB", 8, side, side, 3) + components)
    out += segment(0xC4, b"\x00" + code(0)) + segment(0xC4, b"\x10" + code(0xE0))  # nothing more in 16,384 blocks
    out += segment(0xDA, bytes([3, 1, 0, 2, 0, 3, 0, 0, 0, 0])) + b"\0" * 2000
    for i in range(scans):
        out += segment(0xDA, bytes([1, 1 + i % 3, 0, 1, 63, 0x01 if i < 3 else 0x10])) + b"\0" * 120
    return out + b"\xFF\xD9"


def seed(name):
    return open(os.path.join(SEEDS, name), "rb").read()


def said_size(picture, width, height):
    """The same with another size in the header."""
    at = picture.rindex(b"ispe") + 8
    return picture[:at] + struct.pack(">II", width, height) + picture[at + 8:]


GOOD, SLOW = png(64, 48, bytes(range(256)) * 36), slow_jpeg()


def ask(*pictures):
    url = lambda b: "data:image/png;base64," + base64.b64encode(b).decode()
    parts = [{"type": "image_url", "image_url": {"url": url(b)}} for b in pictures]
    return {"messages": [{"role": "user", "content": parts + [{"type": "text", "text": "?"}]}], "max_tokens": 2, "temperature": 0,
            "evenkeel": {"digest": True}}


def post(s, body, path=PATH):
    """(status, reply, seconds)"""
    begun = time.time()
    status, _, reply = s.call("POST", path, body)
    return status, reply, time.time() - begun


def goes_on(s):
    status, reply, _ = post(s, ask(GOOD))
    assert status == 200, reply
    return reply["evenkeel"]["digest"]


def leave_behind(s, body, path=PATH):
    """A request whose client is still there; close() to leave."""
    c = s.socket()
    data = json.dumps(body).encode()
    c.sendall(b"POST %s HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % (path.encode(), len(data)) + data)
    return c


def children(pid):
    found = {}
    for p in filter(str.isdigit, os.listdir("/proc")):
        try:
            name, fields = open(f"/proc/{p}/stat").read().split("(", 1)[1].rsplit(")", 1)
        except (OSError, IndexError):
            continue
        fields = fields.split()
        if int(fields[1]) == pid and fields[0] != "Z" and name.startswith("evenkeel-dec"):
            found[int(p)] = int(fields[11]) + int(fields[12])  # hundredths of a second
    return found


def decoding(s):
    """(helper, decoder) where a decoder is at work."""
    for helper in children(s.process.pid):
        for decoder, ticks in children(helper).items():
            if ticks >= 5:
                return helper, decoder
    return None


def until(what, seconds=60):
    deadline = time.time() + seconds
    while True:
        got = what()
        if got:
            return got
        assert time.time() < deadline, "it does not come"
        time.sleep(0.01)


def resident(pid, key="VmHWM"):
    return next(int(line.split()[1]) for line in open(f"/proc/{pid}/status") if line.startswith(key + ":")) >> 10


# ---------------------------------------------------------------- what lasts

@test
def a_slow_picture_has_its_time(s):
    status, reply, _ = post(s, ask(SLOW))
    assert status >= 400 and "2 s of processor time" in json.dumps(reply), (status, reply)
    status, reply, _ = post(s, ask(*[SLOW] * 8))
    assert status >= 400 and "s of processor time" in json.dumps(reply), (status, reply)
    goes_on(s)


@test
def it_keeps_nobody_waiting(s):
    want = goes_on(s)
    c = leave_behind(s, ask(*[SLOW] * 3))
    until(lambda: decoding(s))
    other = png(640, 480, bytes(640 * 480 * 3))
    status, reply, took = post(s, ask(other))
    alive = decoding(s) is not None
    assert status == 200 and alive, (status, reply, "the slow one has ended" if not alive else "")
    large = {**ask(GOOD), "user": "a" * 300000}
    status, reply, took = post(s, large)
    assert status == 200 and reply["evenkeel"]["digest"] == want and took < 5, (status, reply, took)
    c.close()


@test
def it_ends_with_its_client(s):
    for path in (PATH, PATH + "/render"):
        before = s.metrics()["evenkeel_decoders_dropped_total"]
        c = leave_behind(s, ask(SLOW), path)
        _, decoder = until(lambda: decoding(s))
        c.close()
        until(lambda: not os.path.exists(f"/proc/{decoder}") and s.metrics()["evenkeel_decoders_dropped_total"] > before)
        goes_on(s)


@test
def a_killed_one_costs_one_request(s):
    want = goes_on(s)
    for which in (0, 1):
        until(lambda: not decoding(s))  # of a request before
        replies = []
        t = threading.Thread(target=lambda: replies.append(post(s, ask(SLOW))))
        t.start()
        os.kill(until(lambda: decoding(s))[which], signal.SIGKILL)
        t.join(30)
        assert replies and replies[0][0] >= 500 and "was killed" in json.dumps(replies[0][1]), replies
        assert goes_on(s) == want


# ---------------------------------------------------------------- what lies, and what is damaged

@test
def headers_that_lie(s):
    before = resident(s.process.pid)
    for name in ("small.avif", "small.heic"):
        for size in ((16, 16), (32, 32), (7000, 7000), (60000, 60000), (0, 0)):
            status, reply, took = post(s, ask(said_size(seed(name), *size)))
            assert status == 400 and "picture" in json.dumps(reply) and took < 10, (name, size, status, reply, took)
    assert resident(s.process.pid) - before < 64, "the server took memory for it"
    goes_on(s)


@test
def damage_is_equal_each_time(s):
    for name in ("small.avif", "small.heic"):
        whole = seed(name)
        for at in range(len(whole) // 2, len(whole), len(whole) // 7):
            damaged = whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1:]
            seen = set()
            for i in range(20 if at == len(whole) // 2 else 4):
                status, reply, _ = post(s, ask(damaged))
                seen.add(reply["evenkeel"]["digest"] if status == 200 else (status, json.dumps(reply)))
                assert status in (200, 400), reply
            assert len(seen) == 1, (name, at, seen)


@test
def a_chatty_decoder_is_heard(s):
    whole = seed("small.avif")
    chatty = whole[:274] + bytes([whole[274] ^ 0x55]) + whole[275:]  # of its sequence header: two lines each time
    before, begun, n = s.metrics()["evenkeel_decoder_lines_total"], time.time(), 60
    in_log = lambda: open(s.log.name).read().count("event=decoder_says text=")
    logged = in_log()
    for _ in range(n):
        status, reply, _ = post(s, ask(chatty))
        assert status == 400, reply
    until(lambda: s.metrics()["evenkeel_decoder_lines_total"] - before >= n)
    got, seconds = in_log() - logged, time.time() - begun
    assert 0 < got <= 10 * (seconds + 2), (got, seconds)
    goes_on(s)


# ---------------------------------------------------------------- ends

def stopped(model, signals):
    """Seconds until a server ends that has a slow picture under way."""
    with Server(PROGRAM, "--model", model, "--drain-timeout", 2) as s:
        goes_on(s)
        waiting = [leave_behind(s, ask(SLOW)) for _ in range(6)]
        until(lambda: decoding(s))
        helpers = list(children(s.process.pid))
        begun = time.time()
        for i in range(signals):
            s.terminate()
            time.sleep(0.2)
        s.wait(30)
        took = time.time() - begun
        until(lambda: not any(os.path.exists(f"/proc/{h}") for h in helpers))
        s.process.returncode = 0  # an end by force has a status of its own
        [c.close() for c in waiting]
    return took


def signals_end_it(model):
    took = stopped(model, 1)
    assert took < 2 + 6, f"{took:.1f} s after the first signal"
    took = stopped(model, 2)
    assert took < 3, f"{took:.1f} s after the second signal"
    took = stopped(model, 3)
    assert took < 2, f"{took:.1f} s after the third signal"


# ---------------------------------------------------------------- without it

def without_the_helper(model):
    folder = os.path.join(DIR, "alone")
    os.makedirs(folder)
    program = shutil.copy(PROGRAM, folder)
    with Server(program, "--model", model) as s:
        s.chat({"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 2})
        status, reply, _ = post(s, ask(GOOD))
        assert status >= 400 and "no program that decodes pictures and sounds" in json.dumps(reply), (status, reply)
        s.chat({"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 2})
        named = lambda: [l for l in open(s.log.name).read().splitlines() if "evenkeel-decode" in l]
        until(named)  # a thread of its own writes the log
        assert sum("pictures and sounds are refused" in l for l in named()) == 1, named()
        shutil.copy(os.path.join(os.path.dirname(PROGRAM), "evenkeel-decode"), folder)
        goes_on(s)
    file = os.path.join(DIR, "good.png")
    open(file, "wb").write(GOOD)
    os.unlink(os.path.join(folder, "evenkeel-decode"))
    p = subprocess.run([program, "preprocess", "--image", file], capture_output=True, text=True, timeout=60)
    assert p.returncode == 1 and p.stderr.count("\n") == 1 and "evenkeel-decode" in p.stderr, p


def main():
    model = os.path.join(DIR, "both")
    seeing_model.main(model)
    with Server(PROGRAM, "--model", model, "--ctx", 4096, "--max-requests", 4) as s:
        for f in TESTS:
            counted.run(f, s)
    counted.run(signals_end_it, model)
    counted.run(without_the_helper, model)
    return counted.closing()


if __name__ == "__main__":
    sys.exit(main())
