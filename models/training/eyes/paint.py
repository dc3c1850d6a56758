"""Scenes of draw.py to patches, a batch at a time: a Triton kernel on a GPU, plain PyTorch elsewhere.

A batch is two arrays: segments float32 [s, 10] = x0 y0 x1 y1 radius soft what R G B, what = fill + 2 if the
path ends here; pictures float32 [b, 10] = first count, two ground colours, across, noise; keys int32 [b].
Out: uint8 [b, patches, 768], a patch pixel by pixel with the channel fastest.
"""
import numpy as np
import torch

PATCH = 16


def flatten(scenes):
    segs, pics, keys = [], [], []
    for s in scenes:
        first = len(segs)
        for p in s["paths"]:
            n = len(p["segs"])
            segs += [(*g, p["radius"], s["soft"], p["fill"] + (2 if i == n - 1 else 0), *p["color"]) for i, g in enumerate(p["segs"])]
        base, other, across = s["ground"]
        pics.append((first, len(segs) - first, *base, *other, across, s["noise"]))
        keys.append(s["key"])
    return np.array(segs, np.float32), np.array(pics, np.float32), np.array(keys, np.int32)


def mix32(x):
    """The hash of draw.render, on int64 tensors."""
    m = 0xFFFFFFFF
    x = x & m
    x = x ^ (x >> 16)
    x = (x * 0x7FEB352D) & m
    x = x ^ (x >> 15)
    x = (x * 0x846CA68B) & m
    return x ^ (x >> 16)


def paint_plain(segs, pics, keys, wide, high):
    out = []
    y, x = torch.meshgrid(torch.arange(high), torch.arange(wide), indexing="ij")
    px, py = x + .5, y + .5
    for p, key in zip(pics, keys):
        t = (px / wide if p[8] else py / high)[..., None]
        v = p[2:5] + (p[5:8] - p[2:5]) * t
        best, inside = torch.full((high, wide), 1e18), torch.zeros(high, wide, dtype=torch.bool)
        for s in segs[int(p[0]):int(p[0] + p[1])]:
            dx, dy = s[2] - s[0], s[3] - s[1]
            t = (((px - s[0]) * dx + (py - s[1]) * dy) / (dx * dx + dy * dy + 1e-12)).clamp(0, 1)
            best = torch.minimum(best, (px - s[0] - t * dx) ** 2 + (py - s[1] - t * dy) ** 2)
            what = int(s[6])
            if what & 1:
                inside ^= ((s[1] > py) != (s[3] > py)) & (px < dx * (py - s[1]) / torch.where(dy == 0, 1.0, dy) + s[0])
            if what & 2:
                d = best.sqrt()
                cover = (.5 - (torch.where(inside, -d, d) - s[4]) / s[5]).clamp(0, 1)[..., None]
                v = v + (s[7:10] - v) * cover
                best, inside = torch.full((high, wide), 1e18), torch.zeros(high, wide, dtype=torch.bool)
        at = (y * wide + x)[..., None] * 3 + torch.arange(3)
        v = v + (mix32(at ^ int(key)).float() / 4294967296.0 * 2 - 1) * p[9]
        u = (v + .5).floor().clamp(0, 255).to(torch.uint8)
        out.append(u.view(high // PATCH, PATCH, wide // PATCH, PATCH, 3).transpose(1, 2).reshape(-1, PATCH * PATCH * 3))
    return torch.stack(out)


try:
    import triton
    import triton.language as tl

    @triton.jit
    def _hash(x):
        x = x ^ (x >> 16)
        x = x * 0x7FEB352D
        x = x ^ (x >> 15)
        x = x * 0x846CA68B
        return x ^ (x >> 16)

    @triton.jit
    def _store(out, v, noise, index, key):
        h = _hash((index ^ key).to(tl.uint32))
        v = v + (h.to(tl.float32) / 4294967296.0 * 2 - 1) * noise
        tl.store(out, tl.minimum(tl.maximum(tl.floor(v + 0.5), 0.0), 255.0).to(tl.uint8))

    @triton.jit
    def _paint(segs, pics, keys, out, wide, high, across_n):
        b, patch = tl.program_id(0), tl.program_id(1)
        i = tl.arange(0, 256)
        x = (patch % across_n) * 16 + i % 16
        y = (patch // across_n) * 16 + i // 16
        px, py = x.to(tl.float32) + 0.5, y.to(tl.float32) + 0.5
        p = pics + b * 10
        first, count = tl.load(p).to(tl.int32), tl.load(p + 1).to(tl.int32)
        t = tl.where(tl.load(p + 8) > 0, px / wide, py / high)
        r0, g0, b0 = tl.load(p + 2), tl.load(p + 3), tl.load(p + 4)
        vr = r0 + (tl.load(p + 5) - r0) * t
        vg = g0 + (tl.load(p + 6) - g0) * t
        vb = b0 + (tl.load(p + 7) - b0) * t
        best = tl.full((256,), 1e18, tl.float32)
        inside = tl.zeros((256,), tl.int32)
        for k in range(first, first + count):
            s = segs + k * 10
            x0, y0, x1, y1 = tl.load(s), tl.load(s + 1), tl.load(s + 2), tl.load(s + 3)
            dx, dy = x1 - x0, y1 - y0
            u = ((px - x0) * dx + (py - y0) * dy) / (dx * dx + dy * dy + 1e-12)
            u = tl.minimum(tl.maximum(u, 0.0), 1.0)
            ex, ey = px - x0 - u * dx, py - y0 - u * dy
            best = tl.minimum(best, ex * ex + ey * ey)
            what = tl.load(s + 6).to(tl.int32)
            safe = tl.where(dy == 0.0, 1.0, dy)
            cross = ((y0 > py) != (y1 > py)) & (px < dx * (py - y0) / safe + x0)
            inside = inside ^ (cross.to(tl.int32) & (what & 1))
            end = what >= 2
            d = tl.sqrt(best)
            sd = tl.where(inside > 0, -d, d)
            cover = 0.5 - (sd - tl.load(s + 4)) / tl.load(s + 5)
            cover = tl.where(end, tl.minimum(tl.maximum(cover, 0.0), 1.0), 0.0)
            vr += (tl.load(s + 7) - vr) * cover
            vg += (tl.load(s + 8) - vg) * cover
            vb += (tl.load(s + 9) - vb) * cover
            best = tl.where(end, 1e18, best)
            inside = tl.where(end, 0, inside)
        noise, key = tl.load(p + 9), tl.load(keys + b)
        at = (y * wide + x) * 3
        o = out + (b.to(tl.int64) * tl.num_programs(1) + patch) * 768 + i * 3
        _store(o, vr, noise, at, key)
        _store(o + 1, vg, noise, at + 1, key)
        _store(o + 2, vb, noise, at + 2, key)
except ImportError:
    triton = None


def paint(segs, pics, keys, wide, high):
    """Tensors of one device."""
    if not segs.is_cuda:
        return paint_plain(segs, pics, keys, wide, high)
    n = (wide // PATCH) * (high // PATCH)
    out = torch.empty(len(pics), n, 768, dtype=torch.uint8, device=segs.device)
    _paint[(len(pics), n)](segs, pics, keys, out, wide, high, wide // PATCH, num_warps=4)
    return out
