"""Trains pocket's eyes: tower and projector learn, the text decoder stays as shipped.

    python3 models/training/eyes/learn.py --out DIR --seconds 480 [--resume DIR] --seed 1 [--lr 1,1,0.1]

The loss is the cross entropy of the answers that the frozen decoder gives when it is shown the projected
tokens, and, for speed, that of a probe that reads the tower directly and is thrown away.
"""
import argparse
import json
import math
import os
import queue
import sys
import threading
import time

import numpy as np
import torch
import torch.nn.functional as F

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import export  # noqa: E402
import optim  # noqa: E402
import train  # noqa: E402

import asking  # noqa: E402
import draw  # noqa: E402
import paint  # noqa: E402
import tower as T  # noqa: E402

HELD_OUT = 1_000_000    # seeds from here on are never trained on


def to_device(b, dev):
    wide, high = b.pop("wide"), b.pop("high")
    t = {k: torch.from_numpy(v) for k, v in b.items()}
    if dev == "cuda":
        t = {k: v.pin_memory().to(dev, non_blocking=True) for k, v in t.items()}
    return dict({k: t[k].long() for k in ("ids", "at", "where", "what", "labels")}, segs=t["segs"], pics=t["pics"], keys=t["keys"], wide=wide, high=high)


def answer_loss(eyes, dec, probe, b, dtype, fast=False):
    """(loss of the answers, loss of the probe, right answers by kind, asked by kind, probe's right, probe's asked)"""
    patches = paint.paint(b["segs"], b["pics"], b["keys"], b["wide"], b["high"])
    pooled = eyes.pooled(patches, b["wide"] // 16, b["high"] // 16, dtype, fast)
    h = dec.hidden(b["ids"], eyes.project(pooled), b["at"], fast)
    z = dec.logits(h.gather(1, b["where"][..., None].expand(-1, -1, h.shape[-1])))
    want = b["what"]
    ce = F.cross_entropy(z.flatten(0, 1), want.flatten(), ignore_index=-1, reduction="none").view_as(want)
    good = ((z.argmax(-1) == want) | (want < 0)).all(1)
    kinds = F.one_hot(b["labels"][:, 0], 4)
    p_loss, p_right, p_asked = probe(pooled, b["labels"]) if probe is not None else (0.0, None, None)
    return ce.sum() / (want >= 0).sum(), p_loss, (kinds * good[:, None]).sum(0), kinds.sum(0), p_right, p_asked


@torch.no_grad()
def examine(eyes, dec, encode, dev, dtype, budget=70, batches=8, size=256, seed=HELD_OUT):
    """Exact answers, by kind, on pictures that were never trained on."""
    right, asked = torch.zeros(4, device=dev), torch.zeros(4, device=dev)
    for i in range(batches):
        _, _, r, a, _, _ = answer_loss(eyes, dec, None, to_device(asking.batch(encode, seed, i, size, budget), dev), dtype)
        right, asked = right + r, asked + a
    return {k: (int(r), int(a)) for k, r, a in zip(draw.KINDS, right.tolist(), asked.tolist())}


@torch.no_grad()
def find_bounds(eyes, encode, dev, batches=6, size=128, margin=1.5):
    """Bounds of the clipped linears: what held-out pictures reach, times a margin, rounded up to a power of two."""
    linears = {n: m for n, m in eyes.named_modules() if isinstance(m, T.Clipped)}
    for m in linears.values():
        m.seen = [0.0] * 4
    for i in range(batches):
        b = to_device(asking.batch(encode, HELD_OUT + 1, i, size, (70, 140, 280)[i % 3]), dev)
        eyes.pooled(paint.paint(b["segs"], b["pics"], b["keys"], b["wide"], b["high"]), b["wide"] // 16, b["high"] // 16, torch.float32)
    out = {}
    for n, m in linears.items():
        big = [2.0 ** math.ceil(math.log2(max(-lo, hi) * margin)) for lo, hi in (m.seen[:2], m.seen[2:])]
        m.seen, m.bounds = None, (-big[0], big[0], -big[1], big[1])
        out[n] = m.bounds
    return out


def save(out, eyes, probe, muon, adam):
    os.makedirs(out, exist_ok=True)
    torch.save(eyes.state_dict(), os.path.join(out, "eyes.pt"))
    torch.save({"probe": probe.state_dict(), "muon": [x.bfloat16() for x in muon.buffers]}, os.path.join(out, "rest.pt"))
    torch.save(adam.state_dict(), os.path.join(out, "adam.pt"))


def main():
    a = argparse.ArgumentParser()
    a.add_argument("--out", required=True)
    a.add_argument("--resume")
    a.add_argument("--model", default="models/pocket")
    a.add_argument("--seed", type=int, default=1)
    a.add_argument("--seconds", type=float, default=480)
    a.add_argument("--steps", type=int, default=1 << 30)
    a.add_argument("--batch", type=int, default=512)
    a.add_argument("--workers", type=int, default=12)
    a.add_argument("--lr", default="1,1,0.1")
    a.add_argument("--muon", type=float, default=0.01)
    a.add_argument("--warmup", type=int, default=100)
    a.add_argument("--probe", type=float, default=0.3)
    a.add_argument("--plain", action="store_true", help="not compiled")
    a.add_argument("--every", type=int, default=100)
    o = a.parse_args()
    dev = "cuda" if torch.cuda.is_available() else "cpu"
    dtype = torch.bfloat16 if dev == "cuda" else torch.float32
    points = [float(x) for x in o.lr.split(",")]
    feed = asking.Feed(o.model + "/tokenizer.json", o.seed, o.batch, o.workers)
    torch.manual_seed(o.seed)
    weights = export.dequantized(o.model)
    dec = T.Decoder(weights, dtype, dev)
    eyes, probe = T.Eyes(T.Config(), 256).to(dev), T.Probe(T.Config().hidden_size).to(dev)
    matrices = [p for p in eyes.parameters() if p.ndim == 2]
    norms, table = [p for p in eyes.parameters() if p.ndim == 1], [p for p in eyes.parameters() if p.ndim == 3]
    muon = optim.Muon(matrices, o.muon)
    base = [2e-3, 2e-3, 1e-3]
    adam = torch.optim.AdamW([{"params": g} for g in (norms, table, list(probe.parameters()))], lr=1e-3, betas=(.9, .95), weight_decay=0.0)
    if o.resume:
        eyes.load_state_dict(torch.load(os.path.join(o.resume, "eyes.pt"), map_location=dev))
        rest = torch.load(os.path.join(o.resume, "rest.pt"), map_location=dev)
        probe.load_state_dict(rest["probe"])
        for x, y in zip(muon.buffers, rest["muon"]):
            x.copy_(y)
        adam.load_state_dict(torch.load(os.path.join(o.resume, "adam.pt"), map_location=dev))
    if dev == "cuda" and not o.plain:
        torch._dynamo.config.cache_size_limit = 64
        for layer in list(eyes.vision_tower.encoder.layers) + list(dec.layers):
            layer.compile()
    print(f"{sum(p.numel() for p in eyes.parameters()):,} parameters, batches of {o.batch} on {dev}", flush=True)
    os.makedirs(o.out, exist_ok=True)
    log = open(os.path.join(o.out, "log.jsonl"), "a")
    ready = queue.Queue(maxsize=4)

    def prefetch():
        while True:
            ready.put(to_device(feed.next(), dev))
    threading.Thread(target=prefetch, daemon=True).start()

    zero = lambda: [torch.zeros(4, device=dev), torch.zeros(4, device=dev), torch.zeros(9, device=dev), torch.zeros(9, device=dev), torch.zeros(2, device=dev)]  # noqa: E731
    sums, count, step, begun, last, waited = zero(), 0, 0, None, time.time(), 0.0
    start = last
    while step < o.steps:
        t0 = time.time()
        b = ready.get()
        waited += time.time() - t0
        loss, p_loss, right, asked, p_right, p_asked = answer_loss(eyes, dec, probe, b, dtype, b["ids"].shape[1] == asking.LENGTH[70])
        (loss + o.probe * p_loss).backward()
        x = 0.0 if begun is None else (time.time() - begun) / o.seconds
        factor = train.curve(points, x) * min(1.0, (step + 1) / o.warmup)
        for g, lr in zip(adam.param_groups, base):
            g["lr"] = lr * factor
        muon.step(factor)
        adam.step()
        for p in list(eyes.parameters()) + list(probe.parameters()):
            p.grad = None
        for s, v in zip(sums, (right, asked, p_right, p_asked, torch.stack([loss.detach(), p_loss.detach()]))):
            s += v
        step, count = step + 1, count + 1
        if begun is None and (step == 12 or dev == "cpu"):
            if dev == "cuda":
                torch.cuda.synchronize()
            begun = time.time()
            print(f"compiled after {begun - start:.0f} s", flush=True)
        if step % o.every == 0 or step == o.steps:
            ok, all_, pok, pall, ls = (s.tolist() for s in sums)
            now = time.time()
            rec = dict(step=step, seconds=round(now - (begun or now), 1), loss=round(ls[0] / count, 4), probe_loss=round(ls[1] / count, 3),
                       right={k: round(n / max(m, 1), 4) for k, n, m in zip(draw.KINDS, ok, all_)},
                       probe=[round(n / max(m, 1), 3) for n, m in zip(pok, pall)], lr=round(factor, 3), steps_per_s=round(count / (now - last), 2), waited=round(waited, 2))
            log.write(json.dumps(rec) + "\n")
            log.flush()
            if step % (5 * o.every) == 0 or step <= 300:
                print(rec, flush=True)
            if not np.isfinite(ls[0]):
                feed.close()
                raise SystemExit("the loss is not a number")
            sums, count, last, waited = zero(), 0, now, 0.0
        if begun and time.time() - begun > o.seconds:
            break
    feed.close()
    save(o.out, eyes, probe, muon, adam)
    print(f"saved after {step} steps, {step} batches", flush=True)
    encode = asking.tokenizer.Encoder(o.model + "/tokenizer.json").encode
    # As shipped: weights in bf16, clamps, a decoder in float32.
    with torch.no_grad():
        for p in eyes.parameters():
            p.copy_(p.bfloat16())
    dec = T.Decoder(weights, torch.float32, dev)
    with open(os.path.join(o.out, "bounds.json"), "w") as f:
        json.dump(find_bounds(eyes, encode, dev, *((1, 2) if dev == "cpu" else ())), f, indent=1)
    for budget in (70, 140, 280):
        print("held out, as shipped,", budget, examine(eyes, dec, encode, dev, torch.float32, budget, *((1, 4) if dev == "cpu" else (16, 128))), flush=True)


if __name__ == "__main__":
    main()
