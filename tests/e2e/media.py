#!/usr/bin/env python3
"""The command preprocess on files drawn here: what it prints and writes, and what it refuses. Usage: media.py EVENKEEL"""
import json
import math
import os
import struct
import subprocess
import sys
import tempfile
import wave
import zlib

from counted import check, closing
from drawn import chunk, png_of

EVENKEEL = os.path.abspath(sys.argv[1])


def run(*args):
    p = subprocess.run([EVENKEEL, "preprocess", *args], capture_output=True, timeout=60)
    return p.returncode, p.stdout.decode(), p.stderr.decode()


def refused(status, words, *args):
    code, out, err = run(*args)
    good = code == status and not out and err.count("\n") == 1 and words in err
    check(f"{args} ends with {status} and says {words!r}", good, f"{code} {out}{err}")


def image(file, out):
    width, height = 960, 672  # the size of 280 tokens: the resize changes nothing
    px = [bytes((7 * x + 13 * y + 29 * c + (x * y >> 3)) & 255 for x in range(width) for c in range(3)) for y in range(height)]
    rgb = b"".join(px)
    with open(file, "wb") as f:
        f.write(png_of(width, height, b"".join(b"\0" + row for row in px)))
    code, text, err = run("--image", file, "--json", "--out", out)
    crc = f"{zlib.crc32(rgb):08x}"
    want = {"width": width, "height": height, "rgb_crc32": crc, "resized_width": width, "resized_height": height, "resized_crc32": crc, "tokens": 280}
    check("an image", code == 0 and json.loads(text or "{}") == want, f"{code} {text}{err}")
    check("--out: the pixels", open(out, "rb").read() == rgb)
    code, text, err = run("--image", file, "--image-tokens", "70", "--out", out)
    check("70 tokens", code == 0 and "480 x 336" in text and os.path.getsize(out) == 480 * 336 * 3, f"{code} {text}{err}")
    kernels = [json.loads(run("--image", file, "--image-tokens", "1120", "--resize", r, "--json")[1])["resized_crc32"] for r in ("torch", "pillow")]
    check("two kernels", kernels[0] != kernels[1], kernels)
    whole = open(file, "rb").read()
    end = 12  # the empty chunk behind the pixels, which readers of pictures do without
    for n in (len(whole) - 1, len(whole) - end):
        with open(file, "wb") as f:
            f.write(whole[:n])
        code, text, err = run("--image", file, "--json")
        check(f"all pixels in the first {n} bytes", code == 0 and json.loads(text or "{}") == want, f"{code} {text}{err}")
    for n in (0, 4, 20, 33, 100, len(whole) // 2, len(whole) - end - 20):
        with open(file, "wb") as f:
            f.write(whole[:n])
        refused(1, "picture", "--image", file, "--json")
    # A bomb: a few bytes that claim 900 million pixels. Memory is bounded here, so that taking it would fail another way.
    with open(file, "wb") as f:
        f.write(png_of(30000, 30000, b"\0" * 1000))
    refused(1, "30000 x 30000 pixels, 900000000 together, at most 64000000", "--image", file)
    with open(file, "wb") as f:
        f.truncate((32 << 20) + 1)
    refused(1, "33554432", "--image", file)


def sound(file, out):
    samples = [int(16000 * math.sin(2 * math.pi * 440 * i / 16000)) for i in range(16000)]
    with wave.open(file, "wb") as w:
        w.setparams((1, 2, 16000, 0, "NONE", ""))
        w.writeframes(struct.pack("<16000h", *samples))
    code, text, err = run("--audio", file, "--json", "--out", out)
    want = {"samples": 16000, "frames": 99, "bins": 128, "tokens": 25}
    check("a sound", code == 0 and json.loads(text or "{}") == want, f"{code} {text}{err}")
    rows = struct.unpack("<%df" % (99 * 128), open(out, "rb").read())
    loudest = max(range(128), key=lambda b: rows[50 * 128 + b])
    # 440 Hz are 549.6 mel, the bins are 22.016 apart and the first lies at 22.016.
    check("the row of a tone", loudest == 24 and abs(rows[50 * 128] - math.log(0.001)) < 1e-6, f"bin {loudest}")
    refused(1, "not a picture", "--image", file)
    with wave.open(file, "wb") as w:
        w.setparams((1, 2, 16000, 0, "NONE", ""))
        w.writeframes(b"\0\0" * 160)
    refused(1, "161 to 480000", "--audio", file)
    with wave.open(file, "wb") as w:
        w.setparams((2, 2, 48000, 0, "NONE", ""))
        w.writeframes(b"\0\0\0\0" * (48000 * 30 + 1))
    refused(1, "at most 30 s", "--audio", file)


def pieces(file, out):
    """A sound of 65 s is three; the rows of the first are those that it has alone."""
    frames = b"".join(struct.pack("<h", i * 7919 % 20011 - 10000) for i in range(65 * 16000))
    def write(n):
        with wave.open(file, "wb") as w:
            w.setparams((1, 2, 16000, 0, "NONE", ""))
            w.writeframes(frames[:2 * n])
    write(480000)
    run("--audio", file, "--out", out)
    first = open(out, "rb").read()
    write(65 * 16000)
    refused(1, "at most 30 s", "--audio", file)
    code, text, err = run("--audio", file, "--cut-audio", "--json", "--out", out)
    want = {"samples": 65 * 16000, "frames": 2999 + 2999 + 499, "bins": 128, "tokens": 750 + 750 + 125}
    check("--cut-audio", code == 0 and json.loads(text or "{}") == want, f"{code} {text}{err}")
    rows = open(out, "rb").read()
    check("a piece is heard by itself", len(rows) == (2999 * 2 + 499) * 512 and rows[:len(first)] == first)
    write(16000)
    alike = [run("--audio", file, "--json", *more)[1] for more in ((), ("--cut-audio",))]
    check("one piece is the sound", alike[0] == alike[1] != "", alike)


def transparency(file, out):
    width, height = 960, 672
    rows = b"".join(b"\0" + bytes((200, 100, 0, 255 if y < 300 else 0)) * width for y in range(height))
    head = struct.pack(">IIBBBBB", width, height, 8, 6, 0, 0, 0)
    with open(file, "wb") as f:
        f.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))
    for alpha, below in (("drop", (200, 100, 0)), ("white", (255, 255, 255))):
        code, text, err = run("--image", file, "--alpha", alpha, "--out", out)
        got = open(out, "rb").read()
        check(f"--alpha {alpha}", code == 0 and got == bytes((200, 100, 0)) * width * 300 + bytes(below) * width * 372, f"{code} {err}")
    refused(2, "is the file that is read", "--image", file, "--out", os.path.join(os.path.dirname(file), ".", os.path.basename(file)))
    refused(2, "--alpha", "--image", file, "--alpha", "black")


with tempfile.TemporaryDirectory() as folder:
    names = os.path.join(folder, "file"), os.path.join(folder, "out")
    image(*names)
    sound(*names)
    pieces(*names)
    transparency(*names)
    refused(2, "--image FILE or --audio FILE")
    refused(2, "--image FILE or --audio FILE", "--image", names[0], "--audio", names[0])
    refused(2, "--image-tokens", "--image", names[0], "--image-tokens", "100")
    refused(2, "--resize", "--image", names[0], "--resize", "bilinear")
    refused(1, "none", "--image", os.path.join(folder, "none"))
    refused(1, "kind", "--audio", __file__)
    refused(1, "kind", "--image", __file__)
sys.exit(closing())
