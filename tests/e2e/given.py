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
import tiny_model
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


def main(folder, mutual):
    """mutual: as in 12B, 26B-A4B and 31B the rows of an image see each other in sliding layers, whose window is shorter
    than the image here; a sound's never do."""
    tiny_model.CONFIG.update(use_bidirectional_attention="vision" if mutual else None, sliding_window=24 if mutual else 64)
    seeing_model.main(folder)
    model, name = Model(folder), "mutual" if mutual else "causal"
    a, b, tall, low, high = (os.path.join(folder, f) for f in ("a.png", "b.png", "tall.png", "low.wav", "high.wav"))
    picture(a, 96, 60, 1), picture(b, 96, 60, 2), picture(tall, 30, 90, 3), sound(low, 300), sound(high, 900)
    flat, narrow = run_of("image", "boi", "eoi", 10 * 6), run_of("image", "boi", "eoi", 4 * 14)
    heard = run_of("audio", "boa", "eoa", 6)  # 4,000 samples: 24 frames
    row = 512 * 4

    front = [2] + [9 + i % 30 for i in range(40)]
    one = front + flat + [11, 12, 13]
    want = model.logits(one, "--image", a)
    check(f"{name}: a row per position", len(want) == len(one) * row, f"{len(want)} bytes")
    for args in (["--chunk", "1"], ["--chunk", "7"], ["--chunk", "41"], ["--chunk", "59"], ["--chunk", "64"], ["--threads", "2"], ["--isa", "scalar"]):
        check(f"{name}: the same bits with {args}", model.logits(one, "--image", a, *args) == want, "they differ")
    other = model.logits(one, "--image", b)
    check(f"{name}: another picture, other logits", other[-row:] != want[-row:], "they are the same")
    n = len(front) + 1
    check(f"{name}: and the same in front of it", other[: n * row] == want[: n * row], "they differ")

    both = [2] + flat + narrow + [9] + heard + narrow + [11]  # two beside each other
    files = ["--image", a, "--image", tall, "--image", tall, "--audio", low]
    want = model.logits(both, *files)
    for args in (["--chunk", "1"], ["--chunk", "13"], ["--threads", "2"]):
        check(f"{name}: three pictures and a sound, {args}", model.logits(both, *files, *args) == want, "they differ")
    check(f"{name}: another sound", model.logits(both, *files[:-1], high)[-row:] != want[-row:], "the same")
    replies = {model.call("generate", both, "--image-tokens", "70", *files, "--max-tokens", "9", "--chunk", c)[1] for c in ("1", "20", "512")}
    check(f"{name}: one reply", len(replies) == 1 and len(replies.pop()) > 8, str(replies))
    return model, one, (a, b, tall, low), want


def refusals(model, one, a, b, tall, low):
    model.refused("is a place for an image, and none is attached for it", one)
    model.refused("2 images are attached, the prompt has 1 place for them", one, "--image", a, "--image", b)
    model.refused("1 sound is attached, the prompt has 0 places for them", one, "--image", a, "--audio", low)
    model.refused("image 1 has 56 soft tokens, the prompt has a place of 60 for it", one, "--image", tall)
    model.refused("a.png.none", one, "--image", a + ".none")
    model.refused("low.wav", one, "--image", low)


with tempfile.TemporaryDirectory() as temporary:
    model, one, files, causal = main(os.path.join(temporary, "causal"), False)
    refusals(model, one, *files)
    mutual = main(os.path.join(temporary, "mutual"), True)[-1]
    check("rows of an image see what is behind them", causal[: 3 * 2048] != mutual[: 3 * 2048], "they are the same")
sys.exit(closing())
