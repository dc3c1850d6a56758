"""Samples to packed rows of tokens, made by worker processes while the device trains.

A row is (ids, targets, weights, start): documents one after the other, never cut. A token that
the model must produce has weight 1, other tokens PROMPT, padding 0.
"""
import multiprocessing as mp
import os

import numpy as np

import mixture
import tokenizer

PROMPT = 0.1
POOL = 96       # documents a worker holds to choose from when it fills a row
BOS, OPEN, CLOSE, RESULT, RESULT_END, NEWLINE = 2, 105, 106, 50, 51, 107


def load_encoder(path):
    """text -> ids; the tokenizers library where there is one."""
    try:
        os.environ["TOKENIZERS_PARALLELISM"] = "false"
        from tokenizers import Tokenizer
        lib = Tokenizer.from_file(path)
        return lambda s: lib.encode(s, add_special_tokens=False).ids
    except ImportError:
        return tokenizer.Encoder(path).encode


def weigh(ids, model_ids, last_only):
    """Weight of each token as a target. Generated: what follows `<|turn>model\\n` up to `<turn|>`,
    without the results that were rendered into the turn."""
    w = np.full(len(ids), PROMPT, np.float32)
    w[0] = 0
    made, spans, i, n = False, [], 0, len(model_ids)
    while i < len(ids):
        x = ids[i]
        if x == OPEN:
            made = ids[i + 1:i + 1 + n] == model_ids
            i += 1 + (n if made else 0)
            if made:
                spans.append((i + 1, None))
        elif made:
            if x == CLOSE:
                spans[-1] = (spans[-1][0], i + 1)
                made = False
            elif x == RESULT:
                spans[-1] = (spans[-1][0], i + 1)
            elif x == RESULT_END:
                spans.append((i + 1, None))
        i += 1
    turns = [i for i, x in enumerate(ids) if x == OPEN]
    for a, b in spans:
        b = len(ids) if b is None else b
        if last_only and a < turns[-1]:
            w[a:b] = 0
        else:
            w[a:b] = 1
    return w


def documents(seed, first, step, encode):
    model_ids = list(encode("model"))
    i = first
    while True:
        ep = mixture.sample(seed, i)
        ids = list(encode(mixture.text_of(ep)))
        yield np.array(ids, np.int16), weigh(ids, model_ids, ep.last_only)
        i += step


def rows(docs, length):
    pool = []
    while True:
        ids, ws, start, n = [], [], np.zeros(length, np.int16), 0
        while True:
            while len(pool) < POOL:
                d = next(docs)
                if len(d[0]) <= length:
                    pool.append(d)
            fit = next((k for k, d in enumerate(pool) if len(d[0]) <= length - n), None)
            if fit is None:
                break
            d = pool.pop(fit)
            start[n:n + len(d[0])] = n
            ids.append(d[0])
            ws.append(d[1])
            n += len(d[0])
        start[n:] = n
        row, w = np.zeros(length + 1, np.int16), np.zeros(length + 1, np.float32)
        row[:n], w[:n] = np.concatenate(ids), np.concatenate(ws)
        yield row[:-1], row[1:], w[1:], start


def worker(queue, path, seed, first, step, length, group):
    it = rows(documents(seed, first, step, load_encoder(path)), length)
    while True:
        batch = [next(it) for _ in range(group)]
        queue.put(tuple(np.stack([b[k] for b in batch]) for k in range(4)))


class Feed:
    """Batches of `count` rows, from `workers` processes; sample indices are dealt out in turn."""

    def __init__(self, path, seed, length, count, workers, group=4):
        self.queue, self.need = mp.Queue(maxsize=64), count // group
        self.procs = [mp.Process(target=worker, args=(self.queue, path, seed, k, workers, length, group), daemon=True) for k in range(workers)]
        for p in self.procs:
            p.start()

    def next(self):
        parts = [self.queue.get() for _ in range(self.need)]
        return [np.concatenate([p[k] for p in parts]) for k in range(4)]

    def close(self):
        for p in self.procs:
            p.terminate()
