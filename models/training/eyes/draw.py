"""Pictures of four kinds, each a pure function of (seed, index): a coloured shape, several equal
shapes, a number of up to three digits, a word of up to five letters.

    python3 models/training/eyes/draw.py SEED INDEX OUT.png [--kind shape] [--text BOAT] [--scale 0.5] [--quiet]

`scene` chooses what is on a picture; a scene is a list of paths of line segments, filled or stroked,
which `render` paints in plain Python and paint.py on a GPU. Prints what the picture shows.
"""
import argparse
import json
import math
import os
import random
import struct
import sys
import zlib

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import words as w  # noqa: E402

import glyphs  # noqa: E402

KINDS = ("shape", "count", "number", "word")
COLORS = {"red": (215, 35, 35), "blue": (40, 70, 215), "green": (35, 160, 60), "yellow": (245, 215, 40), "black": (20, 20, 20), "white": (245, 245, 245),
          "orange": (245, 140, 30), "purple": (135, 45, 175), "pink": (250, 150, 195), "brown": (125, 75, 35)}
SHAPES = ("circle", "square", "triangle", "star", "ring", "cross", "heart", "diamond")
# Sizes that a budget of soft tokens keeps as they are; the first is that of a 4:3 picture.
SIZES = {70: ((432, 336), (384, 384), (336, 432), (528, 288), (480, 336), (288, 528), (336, 480), (576, 240)),
         140: ((624, 480), (528, 528), (480, 624), (768, 384)), 280: ((912, 672), (768, 768), (672, 912), (1056, 576))}
MIX = (.2, .33, .15, .32)       # how often each of KINDS


def outline(shape, n=16):
    """(points of a closed outline in [-1, 1], filled), y down."""
    def turn(k, r=1.0, start=-90.0):
        t = math.radians(start + k)
        return (r * math.cos(t), r * math.sin(t))
    if shape in ("circle", "ring"):
        return [turn(360 * i / n) for i in range(n)]
    if shape == "square":
        return [(-.86, -.86), (.86, -.86), (.86, .86), (-.86, .86)]
    if shape == "triangle":
        return [(0, -.95), (1, .8), (-1, .8)]
    if shape == "star":
        return [turn(36 * i, 1.05 if i % 2 == 0 else .43) for i in range(10)]
    if shape == "cross":
        a = .32
        return [(-a, -1), (a, -1), (a, -a), (1, -a), (1, a), (a, a), (a, 1), (-a, 1), (-a, a), (-1, a), (-1, -a), (-a, -a)]
    if shape == "heart":
        out = []
        for i in range(n):
            t = 2 * math.pi * i / n
            out.append((math.sin(t) ** 3, -(13 * math.cos(t) - 5 * math.cos(2 * t) - 2 * math.cos(3 * t) - math.cos(4 * t)) / 16.5))
        return out
    return [(0, -1.1), (.66, 0), (0, 1.1), (-.66, 0)]


def far(a, b, least):
    return sum((x - y) ** 2 for x, y in zip(a, b)) > least * least


def ground(r, fore):
    """Two corner colours of a background that `fore` stands out from."""
    while True:
        k = r.randrange(4)
        if k == 0:
            base = [r.randint(215, 255)] * 3
        elif k == 1:
            base = [r.randint(0, 50)] * 3
        elif k == 2:
            base = [r.randint(90, 255) for _ in range(3)]
        else:
            base = [r.randint(0, 255) for _ in range(3)]
        base = [min(255, max(0, v + r.randint(-8, 8))) for v in base]
        step = r.choice((0, 0, 20, 40))
        other = [min(255, max(0, v + r.randint(-step, step))) for v in base]
        if far(base, fore, 130) and far(other, fore, 130):
            return base, other


def tint(r, name):
    return [min(255, max(0, v + r.randint(-16, 16))) for v in COLORS[name]]


def path(points, closed, fill, radius, color):
    p = points + points[:1] if closed else points
    return dict(segs=[(*a, *b) for a, b in zip(p, p[1:])], fill=fill, radius=radius, color=color)


def one_shape(r, shape, color, x, y, size, turn, n=16):
    c, s = math.cos(turn) * size, math.sin(turn) * size
    pts = [(x + c * px - s * py, y + s * px + c * py) for px, py in outline(shape, n)]
    if shape == "ring":
        thick = size * r.uniform(.14, .22)
        pts = [(x + (px - x) * .82, y + (py - y) * .82) for px, py in pts]
        return path(pts, True, False, thick, color)
    return path(pts, True, True, size * .04, color)


def lettering(r, text, wide, high, color):
    """One path of all the letters of `text`, placed at random."""
    kx, gap = r.uniform(.75, 1.1), r.uniform(2.5, 5)
    cell = glyphs.WIDTH * kx + gap
    most = min(.62 * high, .88 * wide * glyphs.HEIGHT / (cell * len(text)), 190)
    tall = r.uniform(min(42, most), most)
    u = tall / glyphs.HEIGHT
    turn, slant = math.radians(r.uniform(-8, 8)), r.uniform(-.18, .22)
    half_w, half_h = .5 * u * cell * len(text), .6 * tall
    bw = abs(half_w * math.cos(turn)) + abs(half_h * math.sin(turn)) + 4
    bh = abs(half_w * math.sin(turn)) + abs(half_h * math.cos(turn)) + 4
    cx = r.uniform(bw, wide - bw) if bw < wide / 2 else wide / 2
    cy = r.uniform(bh, high - bh) if bh < high / 2 else high / 2
    c, s = math.cos(turn), math.sin(turn)
    segs = []
    for i, ch in enumerate(text):
        dy = r.uniform(-.4, .4)
        for x0, y0, x1, y1 in glyphs.SEGMENTS[ch]:
            out = []
            for px, py in ((x0, y0), (x1, y1)):
                py = py - 6 + dy
                px = (i - (len(text) - 1) / 2) * cell + (px - 4) * kx - slant * py
                px, py = px * u, py * u
                out += [cx + c * px - s * py, cy + s * px + c * py]
            segs.append(tuple(out))
    return dict(segs=segs, fill=False, radius=u * r.uniform(.55, 1.15), color=color)


def a_word(r):
    k = r.random()
    if k < .4:
        while True:
            x = r.choice(r.choice((w.NOUN, w.ADJ, w.VERB)))
            if len(x) <= 5:
                return x.upper()
    n = r.choice((2, 3, 3, 4, 4, 5, 5, 5))
    if k < .65:
        while True:
            x = w.invented(r)
            if x.isalpha() and x.isascii() and len(x) >= n:
                return x[:n].upper()
    return "".join(r.choice("ABCDEFGHIJKLMNOPQRSTUVWXYZ") for _ in range(n if r.random() < .9 else 1))


def scene(seed, index, kind=None, size=SIZES[70][0], zoom=1.0, text=None):
    """What picture `index` of the stream `seed` shows; text: of a word or number, instead of a random one. zoom: drawn in a frame smaller by it, then enlarged to `size`."""
    r = random.Random(f"{seed}/{index}")
    s = small_scene(r, kind or r.choices(KINDS, MIX)[0], (size[0] / zoom, size[1] / zoom), text)
    s["size"] = size
    if zoom != 1:
        s["soft"] = max(1, s["soft"] * zoom * r.uniform(.5, 1))
        for p in s["paths"]:
            p["segs"], p["radius"] = [tuple(v * zoom for v in g) for g in p["segs"]], p["radius"] * zoom
    return s


def small_scene(r, kind, size, text):
    wide, high = size
    name = r.choice(list(COLORS))
    color = tint(r, name)
    out = dict(kind=kind, size=size, soft=r.choice((1, 1, 1, 1.5, 2, 3)), noise=r.choice((0, 0, 4, 10, 22)), key=r.getrandbits(31))
    base, other = ground(r, color)
    out["ground"] = (base, other, r.random() < .5)
    if kind in ("number", "word"):
        text = text or (str(r.randrange(10 ** r.randint(1, 3))) if kind == "number" else a_word(r))
        out.update(text=text, paths=[lettering(r, text, wide, high, color)])
        return out
    shape = r.choice(SHAPES)
    out.update(color=name, shape=shape)
    if kind == "shape":
        most = .46 * min(wide, high)
        size = r.uniform(26, most)
        x, y = r.uniform(size * 1.1, wide - size * 1.1), r.uniform(size * 1.1, high - size * 1.1)
        out.update(count=1, paths=[one_shape(r, shape, color, x, y, size, math.radians(r.uniform(-12, 12)))])
        return out
    n = r.randint(1, 9)
    spots, size = [], r.uniform(17, (60, 60, 56, 52, 46, 42, 38, 36, 34)[n - 1])
    while len(spots) < n:
        x, y = r.uniform(size * 1.15, wide - size * 1.15), r.uniform(size * 1.15, high - size * 1.15)
        if all(math.hypot(x - a, y - b) > size * 2.3 for a, b in spots):
            spots.append((x, y))
        elif r.random() < .02:
            size *= .97
    out.update(count=n, paths=[one_shape(r, shape, color, x, y, size * r.uniform(.85, 1), math.radians(r.uniform(-12, 12)), 10) for x, y in spots])
    return out


def coverage(p, soft, wide, high):
    """{pixel: share of it that the path covers}"""
    reach, fill, out = p["radius"] + soft, p["fill"], {}
    xs = [v for s in p["segs"] for v in (s[0], s[2])]
    ys = [v for s in p["segs"] for v in (s[1], s[3])]
    boxes = [(min(xs), min(ys), max(xs), max(ys), p["segs"])] if fill else \
            [(min(s[0], s[2]), min(s[1], s[3]), max(s[0], s[2]), max(s[1], s[3]), [s]) for s in p["segs"]]
    for left, top, right, bottom, segs in boxes:
        for y in range(max(0, int(top - reach)), min(high, int(bottom + reach) + 1)):
            py = y + .5
            for x in range(max(0, int(left - reach)), min(wide, int(right + reach) + 1)):
                px, best, inside = x + .5, 1e18, False
                for x0, y0, x1, y1 in segs:
                    dx, dy = x1 - x0, y1 - y0
                    t = ((px - x0) * dx + (py - y0) * dy) / (dx * dx + dy * dy + 1e-12)
                    t = 1.0 if t > 1 else t if t > 0 else 0.0
                    ex, ey = px - x0 - t * dx, py - y0 - t * dy
                    square = ex * ex + ey * ey
                    if square < best:
                        best = square
                    if fill and (y0 > py) != (y1 > py) and px < dx * (py - y0) / dy + x0:
                        inside = not inside
                d = math.sqrt(best)
                cover = .5 - ((-d if inside else d) - p["radius"]) / soft
                if cover > out.get((x, y), 0):
                    out[x, y] = min(1.0, cover)
    return out


def render(s, scale=1.0):
    """(width, height, RGB bytes). A scale below 1 gives a smaller picture of the same scene."""
    wide, high = round(s["size"][0] * scale), round(s["size"][1] * scale)
    base, other, across = s["ground"]
    n = wide if across else high
    ground = [[a + (b - a) * ((i + .5) / n) for a, b in zip(base, other)] for i in range(n)]
    rows = [ground[:] if across else [ground[y]] * wide for y in range(high)]
    for p in s["paths"]:
        q = dict(p, segs=[tuple(v * scale for v in g) for g in p["segs"]], radius=p["radius"] * scale)
        for (x, y), cover in coverage(q, max(1.0, s["soft"] * scale), wide, high).items():
            rows[y][x] = [a + (b - a) * cover for a, b in zip(rows[y][x], p["color"])]
    noise, key = s["noise"], s["key"]
    out, i = bytearray(3 * wide * high), 0
    for row in rows:
        for px in row:
            for v in px:
                if noise:  # of a hash of the number of the byte
                    h = i ^ key
                    h = (h ^ h >> 16) * 0x7FEB352D & 0xFFFFFFFF
                    h = (h ^ h >> 15) * 0x846CA68B & 0xFFFFFFFF
                    v += ((h ^ h >> 16) / 4294967296.0 * 2 - 1) * noise
                v += .5
                out[i] = 255 if v >= 255 else int(v) if v > 0 else 0
                i += 1
    return wide, high, bytes(out)


def png(wide, high, rgb, pack=lambda raw: zlib.compress(raw, 9)):
    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
    raw = b"".join(b"\0" + rgb[y * wide * 3:(y + 1) * wide * 3] for y in range(high))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", wide, high, 8, 2, 0, 0, 0)) + chunk(b"IDAT", pack(raw)) + chunk(b"IEND", b"")


def shown(s):
    return {k: s[k] for k in ("kind", "color", "shape", "count", "text") if k in s}


def main():
    a = argparse.ArgumentParser()
    a.add_argument("seed", type=int)
    a.add_argument("index", type=int)
    a.add_argument("out")
    a.add_argument("--kind", choices=KINDS)
    a.add_argument("--text", help="of a number or a word; letters are upper case")
    a.add_argument("--scale", type=float, default=1.0)
    a.add_argument("--quiet", action="store_true", help="without noise, for a small file")
    o = a.parse_args()
    s = scene(o.seed, o.index, o.kind or (o.text and ("number" if o.text.isdigit() else "word")), text=o.text)
    if o.quiet:
        s["noise"] = 0
    with open(o.out, "wb") as f:
        f.write(png(*render(s, o.scale)))
    print(json.dumps(shown(s)))


if __name__ == "__main__":
    main()
