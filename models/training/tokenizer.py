"""Trains the tokenizer on generated text and writes tokenizer.json; also a small encoder.

    python3 models/training/tokenizer.py train OUT_DIR [SAMPLES]
    python3 models/training/tokenizer.py check TOKENIZER_JSON     (against the tokenizers library)

Two stages of merges. First pairs inside letter runs, never across a space; last, U+2581 in
front of frequent word beginnings. A word after a space then has the same pieces as the same word
after a quote, the first of them perhaps with U+2581: what a model must copy from a request into
a call differs in one token at most. Digits stay single, so numbers copy and add digit by digit.
"""
import collections
import json
import os
import re
import sys

import mixture
import words as w

SPACE = "\u2581"
VOCAB = 4096
NAMED = {0: "<pad>", 1: "<eos>", 2: "<bos>", 3: "<unk>", 4: "<mask>", 46: "<|tool>", 47: "<tool|>", 48: "<|tool_call>",
         49: "<tool_call|>", 50: "<|tool_response>", 51: "<tool_response|>", 52: '<|"|>', 98: "<|think|>", 100: "<|channel>",
         101: "<channel|>", 102: "<|image>", 103: "<|image|>", 104: "<image|>", 105: "<|turn>", 106: "<turn|>"}
FIRST_PLAIN = 107       # newline, as in the published vocabulary
PUNCT = [(":", "{"), ("}", ","), ("}", "}"), ('"', ":"), ('"', ","), ("{", '"'), ('"', "}"), ("[", '"'), ('"', "]"), ("\n", "\n"),
         (SPACE, SPACE), (SPACE * 2, SPACE * 2), (SPACE * 4, SPACE * 4)]
SPACED = 1250           # merges of U+2581 with a word beginning
SPECIAL = re.compile(r'<\|?(?:pad|eos|bos|unk|mask|tool|tool_call|tool_response|think|channel|turn)\|?>|<\|"\|>')
WORD = re.compile(r"[^\W\d_]+")


def specials():
    out, n = [], 0
    for i in range(FIRST_PLAIN):
        out.append(NAMED.get(i) or f"<unused{n}>")
        n += i not in NAMED
    return out


def corpus(samples):
    """Counts of letter runs, and of letter runs right after a space, over generated text."""
    words, after = collections.Counter(), collections.Counter()
    for i in range(samples):
        text = SPECIAL.sub("\0", mixture.text_of(mixture.sample(999, i)))
        words.update(WORD.findall(text))
        after.update(re.findall(r" ([^\W\d_]+)", text))
    return words, after


def train_merges(words, count):
    """Plain byte-pair training over weighted words; ties go to the smaller pair."""
    items = [(list(x), c ** 0.6) for x, c in sorted(words.items()) if len(x) > 1]
    pairs, where = collections.Counter(), collections.defaultdict(set)
    for n, (syms, c) in enumerate(items):
        for p in zip(syms, syms[1:]):
            pairs[p] += c
            where[p].add(n)
    merges = []
    while len(merges) < count:
        best = max(pairs, key=lambda p: (round(pairs[p], 6), p))
        merges.append(best)
        joined = best[0] + best[1]
        for n in where.pop(best):
            syms, c = items[n]
            for p in zip(syms, syms[1:]):
                pairs[p] -= c
            i, out = 0, []
            while i < len(syms):
                if i + 1 < len(syms) and syms[i] == best[0] and syms[i + 1] == best[1]:
                    out.append(joined)
                    i += 2
                else:
                    out.append(syms[i])
                    i += 1
            syms[:] = out
            for p in zip(syms, syms[1:]):
                pairs[p] += c
                where[p].add(n)
        del pairs[best]
    return merges


class Encoder:
    """Encodes like the tokenizers library; cuts at spaces and newlines, which no merge crosses."""

    def __init__(self, path):
        with open(path, encoding="utf-8") as f:
            t = json.load(f)
        self.vocab = t["model"]["vocab"]
        self.rank = {tuple(m): i for i, m in enumerate(t["model"]["merges"])}
        self.added = {a["content"]: a["id"] for a in t["added_tokens"]}
        self.split = re.compile("(" + "|".join(re.escape(a) for a in sorted(self.added, key=len, reverse=True)) + ")")
        self.pieces = {i: p for p, i in self.vocab.items()}
        self.cache = {}

    def word(self, text):
        got = self.cache.get(text)
        if got is not None:
            return got
        syms = []
        for ch in text:
            syms += [ch] if ch in self.vocab else [f"<0x{b:02X}>" for b in ch.encode()]
        while len(syms) > 1:
            r, i = min((self.rank.get(p, 1 << 30), i) for i, p in enumerate(zip(syms, syms[1:])))
            if r == 1 << 30:
                break
            syms[i:i + 2] = [syms[i] + syms[i + 1]]
        self.cache[text] = ids = [self.vocab[s] for s in syms]
        return ids

    def encode(self, text):
        out = []
        for part in self.split.split(text):
            if part in self.added:
                out.append(self.added[part])
            elif part:
                for x in re.findall(r"\n+|▁*[^▁\n]+|▁+", part.replace(" ", SPACE)):
                    out += self.word(x)
        return out

    def decode(self, ids, skip_special=False):
        out = b""
        for i in ids:
            p = self.pieces[i]
            if re.fullmatch(r"<0x[0-9A-F]{2}>", p):
                out += bytes([int(p[3:5], 16)])
            elif not (skip_special and i < FIRST_PLAIN):
                out += p.replace(SPACE, " ").encode()
        return out.decode(errors="replace")


def train(out_dir, samples):
    words, after = corpus(samples)
    chars = sorted({chr(c) for c in range(33, 127)} | {x for x in "".join(w.ACCENT) if len(x) == 1} |
                   set("¡¿£€°§·×÷–—‘’“”„…•→½©ŁÅÄÖÜÉÇÑØÆŠŽČİ"))
    merges = list(PUNCT)
    head = specials() + ["\n", SPACE] + chars + [f"<0x{b:02X}>" for b in range(256)]
    letters = VOCAB - len(head) - len(PUNCT) - SPACED
    merges += train_merges({x: c for x, c in words.items() if all(ch in chars for ch in x)}, letters)
    vocab = {}
    for p in head + [a + b for a, b in merges]:
        vocab.setdefault(p, len(vocab))
    tmp = Encoder.__new__(Encoder)
    tmp.vocab, tmp.rank, tmp.cache = vocab, {m: i for i, m in enumerate(merges)}, {}
    tmp.pieces = {i: p for p, i in vocab.items()}
    firsts = collections.Counter({'"': 10 ** 9, "(": 10 ** 9 - 1})
    for x, c in after.items():
        firsts[tmp.pieces[tmp.word(x)[0]]] += c
    for p, _ in sorted(firsts.items(), key=lambda kv: (-kv[1], kv[0])):
        if len(vocab) == VOCAB:
            break
        if SPACE + p not in vocab and not p.startswith("<0x"):     # byte pieces take part in no merge
            merges.append((SPACE, p))
            vocab[SPACE + p] = len(vocab)
    assert len(vocab) == VOCAB, len(vocab)
    added = [{"id": i, "content": s, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
             for i, s in enumerate(specials())]
    t = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
         "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": SPACE},
         "pre_tokenizer": {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False},
         "post_processor": None,
         "decoder": {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": SPACE}, "content": " "},
                                                      {"type": "ByteFallback"}, {"type": "Fuse"}]},
         "model": {"type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None, "end_of_word_suffix": None,
                   "fuse_unk": True, "byte_fallback": True, "ignore_merges": False, "vocab": vocab, "merges": [list(m) for m in merges]}}
    os.makedirs(out_dir, exist_ok=True)
    with open(os.path.join(out_dir, "tokenizer.json"), "w", encoding="utf-8") as f:
        json.dump(t, f, ensure_ascii=False, indent=1)
        f.write("\n")


def check(path, samples=300):
    from tokenizers import Tokenizer
    lib, own, n = Tokenizer.from_file(path), Encoder(path), 0
    for i in range(samples):
        text = mixture.text_of(mixture.sample(998, i))
        ids = own.encode(text)
        assert lib.encode(text, add_special_tokens=False).ids == ids, text
        assert own.decode(ids) == text, text
        n += len(ids)
    print(f"{samples} samples, {n} tokens: same ids, text comes back")


if __name__ == "__main__":
    if sys.argv[1] == "train":
        train(sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 12000)
    else:
        check(sys.argv[2])
