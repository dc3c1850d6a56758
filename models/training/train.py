"""Trains the bundled model, a piece at a time.

    python3 models/training/train.py --out DIR --seconds 480 [--resume DIR] --seed 1 [--lr 1,1,0.1]

The piece ends after --seconds of training; the learning rate follows --lr, factors spread evenly
over the piece. DIR gets the weights (three byte planes of float32, without its last byte) and
log.jsonl. Quantisation is in the loop from the first step, so any piece can be shipped.
"""
import argparse
import json
import os
import queue
import threading
import time

import numpy as np
import torch

import data
import model as M
import optim
import quant


def save(model, out):
    """float32 without the lowest byte, one file a byte plane: small enough to carry about."""
    os.makedirs(out, exist_ok=True)
    flat = torch.cat([p.detach().float().cpu().flatten() for _, p in sorted(model.named_parameters())]).numpy()
    b = flat.view(np.uint8).reshape(-1, 4)
    for k in (1, 2, 3):
        np.ascontiguousarray(b[:, k]).tofile(os.path.join(out, f"plane{k}.bin"))


def load(model, path):
    planes = [np.fromfile(os.path.join(path, f"plane{k}.bin"), np.uint8) for k in (1, 2, 3)]
    b = np.zeros((len(planes[0]), 4), np.uint8)
    for k in (1, 2, 3):
        b[:, k] = planes[k - 1]
    flat, n = torch.from_numpy(b.view(np.float32)[:, 0].copy()), 0
    with torch.no_grad():
        for _, p in sorted(model.named_parameters()):
            p.copy_(flat[n:n + p.numel()].view_as(p))
            n += p.numel()
    assert n == len(flat), "the checkpoint is of another shape"


def curve(points, x):
    """Piecewise linear through `points`, x in [0, 1]."""
    x = min(max(x, 0.0), 1.0) * (len(points) - 1)
    i = min(int(x), len(points) - 2)
    return points[i] + (points[i + 1] - points[i]) * (x - i)


@torch.no_grad()
def compare(model, loss, ids, targets, weights, start, rope, dtype):
    """The compiled loss of the first batch against plain dense attention, row by row."""
    total, norm = 0.0, weights.sum().item()
    for k in range(len(ids)):
        h, _, table = model.hidden(ids[k:k + 1], rope, M.dense_masks(model.c, start[k:k + 1]), dtype)
        ce = torch.nn.functional.cross_entropy(model.logits(h, table)[0], targets[k], reduction="none")
        total += (ce * weights[k]).sum().item() / norm
    print(f"first loss {loss:.4f}, with dense attention {total:.4f}", flush=True)
    if not abs(loss - total) < 0.01:
        raise SystemExit("the compiled attention differs")


def main():
    a = argparse.ArgumentParser()
    a.add_argument("--out", required=True)
    a.add_argument("--resume")
    a.add_argument("--tokenizer", default="models/pocket/tokenizer.json")
    a.add_argument("--seed", type=int, default=1)
    a.add_argument("--seconds", type=float, default=480)
    a.add_argument("--steps", type=int, default=1 << 30)
    a.add_argument("--rows", type=int, default=24)
    a.add_argument("--length", type=int, default=4096)
    a.add_argument("--workers", type=int, default=13)
    a.add_argument("--lr", default="1,1,0.1")
    a.add_argument("--warmup", type=int, default=150)
    a.add_argument("--no-quant", action="store_true")
    a.add_argument("--tiny", action="store_true", help="a small shape, for a smoke test on a CPU")
    o = a.parse_args()
    dev = "cuda" if torch.cuda.is_available() else "cpu"
    dtype = torch.bfloat16 if dev == "cuda" else torch.float32
    points = [float(x) for x in o.lr.split(",")]
    feed = data.Feed(o.tokenizer, o.seed, o.length, o.rows, o.workers)
    torch.manual_seed(o.seed)
    c = M.Config(hidden_size=64, intermediate_size=64, num_hidden_layers=5, num_kv_shared_layers=2, period=2) if o.tiny else M.Config()
    model = M.Model(c)
    if o.resume:
        load(model, o.resume)
    model.to(dev)
    if not o.no_quant:
        model.set_bits(quant.plan)
    opt = optim.Optimizer(model)
    full = "/tmp/optimizer.pt"
    if o.resume and os.path.exists(full):
        opt.load(torch.load(full, map_location=dev))
        print("optimiser state continues", flush=True)
    rope = M.rope_tables(c, o.length, dev)
    loss_fn = torch.compile(model.loss, dynamic=False) if dev == "cuda" else model.loss
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters, {o.rows * o.length:,} tokens a step on {dev}", flush=True)
    os.makedirs(o.out, exist_ok=True)
    log = open(os.path.join(o.out, "log.jsonl"), "a")

    ready = queue.Queue(maxsize=3)

    def prefetch():
        while True:
            x = [torch.from_numpy(y) for y in feed.next()]
            ready.put([y.pin_memory() for y in x] if dev == "cuda" else x)

    threading.Thread(target=prefetch, daemon=True).start()

    def batch():
        i, t, w, s = [y.to(dev, non_blocking=True) for y in ready.get()]
        return i.long(), t.long(), w, s.int()

    begun, step, sums, count, last = None, 0, torch.zeros(3, device=dev), 0, time.time()
    waited = 0.0
    while step < o.steps:
        t0 = time.time()
        ids, targets, weights, start = batch()
        waited += time.time() - t0
        loss, (ce, hit) = loss_fn(ids, targets, weights, start, rope, dtype)
        if step == 0 and dev == "cuda":
            compare(model, loss.item(), ids, targets, weights, start, rope, dtype)
        loss.backward()
        x = 0.0 if begun is None else (time.time() - begun) / o.seconds
        factor = curve(points, x) * min(1.0, (step + 1) / o.warmup)
        opt.step(factor)
        model.zero_grad(set_to_none=True)
        sums += torch.stack([loss.detach(), ce.detach(), hit])
        step, count = step + 1, count + 1
        if step == 3:           # compilation is over
            if dev == "cuda":
                torch.cuda.synchronize()
            begun = last = time.time()
            sums.zero_()
            count, waited = 0, 0.0
        if step % 100 == 0 or step == o.steps:
            s = (sums / max(count, 1)).tolist()
            now = time.time()
            rate = count * o.rows * o.length / max(now - last, 1e-9)
            rec = dict(seed=o.seed, step=step, tokens=step * o.rows * o.length, seconds=round(now - (begun or now), 1), loss=round(s[0], 4), answer_loss=round(s[1], 4),
                       answer_accuracy=round(s[2], 5), lr=round(factor, 4), tokens_per_s=int(rate), waited=round(waited, 2))
            log.write(json.dumps(rec) + "\n")
            log.flush()
            if step % 500 == 0 or step <= 300 or step == o.steps:
                print(rec, flush=True)
            if not np.isfinite(s[0]):
                feed.close()
                raise SystemExit("the loss is not a number")
            sums.zero_()
            count, last, waited = 0, now, 0.0
        if begun and time.time() - begun > o.seconds:
            break
    feed.close()
    if dev == "cuda":
        torch.cuda.synchronize()
    save(model, o.out)
    torch.save(opt.state(), full)
    print(f"saved after {step} steps, {step * o.rows * o.length:,} tokens", flush=True)


if __name__ == "__main__":
    main()
