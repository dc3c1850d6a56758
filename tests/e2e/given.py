#!/usr/bin/env python3
"""logits and generate with pictures and sounds beside ids: the same bits however the prompt is cut, others for another
picture, and what is refused. Usage: given.py EVENKEEL"""
import math
import os
import struct
import subprocess
import sys
import tempfile
import wave
import zlib

import seeing_model
from counted import check, closing

EVENKEEL = os.path.abspath(sys.argv[1])
IDS = seeing_model.IDS


def chunk(name, data):
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def picture(path, width, height, salt):
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    rows = b"".join(b"\0" + bytes((x * 7 * salt + y * 13 + c * 29 + (x * y >> 3)) & 255 for x in range(width) for c in range(3)) for y in range(height))
    with open(path, "wb") as f:
        f.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def sound(path, hertz):
    with wave.open(path, "wb") as f:
        f.setnchannels(1), f.setsampwidth(2), f.setframerate(16000)
        f.writeframes(b"".join(struct.pack("<h", round(9000 * math.sin(2 * math.pi * hertz * i / 16000))) for i in range(4000)))


def run(*args):
    p = subprocess.run([EVENKEEL, *args], capture_output=True, timeout=120)
    return p.returncode, p.stdout.decode(), p.stderr.decode()


class Model:
    def __init__(self, folder):
        self.folder, self.out = folder, os.path.join(folder, "out.f32")

    def call(self, command, ids, *args):
        return run(command, "--model", self.folder, "--ids", ",".join(map(str, ids)), *args)

    def logits(self, ids, *args):
        code, _, err = self.call("logits", ids, "--out", self.out, "--image-tokens", "70", *args)
        if code:
            check(f"logits {args}", False, err)
            return b""
        return open(self.out, "rb").read()

    def refused(self, words, ids, *args):
        code, out, err = self.call("logits", ids, "--out", self.out, "--image-tokens", "70", *args)
        check(f"refused with {words!r}", code == 2 and not out and err.count("\n") == 1 and words in err, f"{code} {out}{err}")


def run_of(kind, begin, end, n):
    return [IDS[begin]] + [IDS[kind]] * n + [IDS[end]]


def main(folder):
    seeing_model.main(folder)
    model = Model(folder)
    a, b, tall, low, high = (os.path.join(folder, name) for name in ("a.png", "b.png", "tall.png", "low.wav", "high.wav"))
    picture(a, 96, 60, 1), picture(b, 96, 60, 2), picture(tall, 30, 90, 3), sound(low, 300), sound(high, 900)
    flat, narrow = run_of("image", "boi", "eoi", 10 * 6), run_of("image", "boi", "eoi", 4 * 14)
    heard = run_of("audio", "boa", "eoa", 6)  # 4,000 samples: 24 frames

    one = [2, 9] + flat + [11, 12, 13]
    want = model.logits(one, "--image", a)
    check("a row per position", len(want) == len(one) * 512 * 4, f"{len(want)} bytes")
    for args in (["--chunk", "1"], ["--chunk", "7"], ["--chunk", "59"], ["--chunk", "64"], ["--threads", "1"], ["--isa", "scalar"]):
        check(f"the same bits with {args}", model.logits(one, "--image", a, *args) == want, "they differ")
    other = model.logits(one, "--image", b)
    last = 512 * 4
    check("another picture, other logits", other[-last:] != want[-last:], "they are the same")
    check("and the same in front of it", other[: 3 * last] == want[: 3 * last], "they differ")

    both = [2] + flat + [9] + heard + narrow + [11]
    files = ["--image", a, "--image", tall, "--audio", low]
    want = model.logits(both, *files)
    for args in (["--chunk", "1"], ["--chunk", "13"], ["--threads", "1"]):
        check(f"two pictures and a sound, {args}", model.logits(both, *files, *args) == want, "they differ")
    check("another sound", model.logits(both, "--image", a, "--image", tall, "--audio", high)[-last:] != want[-last:], "the same")
    replies = {model.call("generate", both, "--image-tokens", "70", *files, "--max-tokens", "9", "--chunk", c)[1] for c in ("1", "20", "512")}
    check("one reply", len(replies) == 1 and len(replies.pop()) > 8, str(replies))

    model.refused("is a place for an image, and none is attached for it", one)
    model.refused("2 images are attached, the prompt has 1 place for them", one, "--image", a, "--image", b)
    model.refused("1 sound is attached, the prompt has 0 places for them", one, "--image", a, "--audio", low)
    model.refused("image 1 has 56 soft tokens, the prompt has a place of 60 for it", one, "--image", tall)
    model.refused("none.png", one, "--image", os.path.join(folder, "none.png"))
    model.refused("low.wav", one, "--image", low)


with tempfile.TemporaryDirectory() as temporary:
    main(os.path.join(temporary, "model"))
sys.exit(closing())
