"""Batches of scenes and prompts, made by worker processes."""
import multiprocessing as mp
import os
import random
import sys

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import chat  # noqa: E402
import textdata  # noqa: E402
import tokenizer  # noqa: E402

import draw  # noqa: E402
import paint  # noqa: E402
from questions import ask  # noqa: E402

BOI, IMAGE, EOI = 102, 103, 104     # unused ids of the vocabulary, named in ship.py
ANSWER = 10
LENGTH = {70: 128, 140: 192, 280: 336}      # of a row, by the most soft tokens of a picture
SHARE = {70: 1, 140: .3, 280: .12}         # of a batch: larger pictures come in fewer at a time
CHARS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"


def prompt(r, s):
    """(text with one <|image|>, answer); sometimes the second question about a picture."""
    question, answer = ask(r, s)
    parts = [{"type": "image"}, {"type": "text", "text": question}]
    if r.random() < .3:
        parts.reverse()
    if r.random() < .1:
        parts[1 if parts[1]["type"] == "text" else 0]["text"] = question.lower().rstrip("?.")
    messages = [{"role": "user", "content": parts}]
    if r.random() < .12:
        again, second = ask(r, s)
        messages += [{"role": "assistant", "content": answer}, {"role": "user", "content": again}]
        answer = second
    if r.random() < .1:
        messages.insert(0, {"role": "system", "content": textdata.system(r)})
    return chat.render(messages), answer


def encoded(encode, r, s, tokens, length):
    """(ids [length], at [length], target positions [ANSWER], target ids [ANSWER]; -1 where there is none)."""
    while True:
        text, answer = prompt(r, s)
        before, after = text.split("<|image|>")
        ids = encode(before) + [BOI]
        first = len(ids)
        ids += [0] * tokens + [EOI] + encode(after)
        tail = encode(answer) + [106]
        if len(ids) + len(tail) <= length and len(tail) <= ANSWER:
            break
    n = len(ids)
    row = np.zeros(length, np.int16)
    row[:n], row[n:n + len(tail)] = ids, tail
    at = np.full(length, -1, np.int16)
    at[first:first + tokens] = np.arange(tokens)
    where, what = np.zeros(ANSWER, np.int16), np.full(ANSWER, -1, np.int16)
    where[:len(tail)], what[:len(tail)] = np.arange(n - 1, n - 1 + len(tail)), tail
    return row, at, where, what


def labels(s):
    out = [draw.KINDS.index(s["kind"]), -1, -1, -1] + [-1] * 5
    if "shape" in s:
        out[1:4] = list(draw.COLORS).index(s["color"]), draw.SHAPES.index(s["shape"]), s["count"] - 1
    else:
        out[4:] = [CHARS.index(s["text"][i]) if i < len(s["text"]) else 36 for i in range(5)]
    return out


def batch(encode, seed, index, count, budget=None):
    """Batch `index` of the stream `seed`: a dict of arrays."""
    r = random.Random(f"batch {seed}/{index}")
    budget = budget or r.choices((70, 140, 280), (.8, .08, .12))[0]
    sizes, n = draw.SIZES[budget], max(1, int(count * SHARE[budget]))
    wide, high = sizes[0] if r.random() < .5 else r.choice(sizes[1:])
    tokens = (wide // 48) * (high // 48)
    scenes = [draw.scene(seed, index * count + i, None, (wide, high), (budget / 70) ** .5) for i in range(n)]
    segs, pics, keys = paint.flatten(scenes)
    rows = [encoded(encode, r, s, tokens, LENGTH[budget]) for s in scenes]
    ids, at, where, what = (np.stack([x[k] for x in rows]) for k in range(4))
    return dict(wide=wide, high=high, segs=segs, pics=pics, keys=keys, ids=ids, at=at, where=where, what=what, labels=np.array([labels(s) for s in scenes], np.int8))


def worker(queue, path, seed, first, step, count):
    encode = tokenizer.Encoder(path).encode
    i = first
    while True:
        queue.put(batch(encode, seed, i, count))
        i += step


class Feed:
    def __init__(self, path, seed, count, workers):
        self.queue = mp.Queue(maxsize=32)
        self.procs = [mp.Process(target=worker, args=(self.queue, path, seed, k, workers, count), daemon=True) for k in range(workers)]
        for p in self.procs:
            p.start()

    def next(self):
        return self.queue.get()

    def close(self):
        for p in self.procs:
            p.terminate()
