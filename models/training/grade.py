"""Model output to parts, and the graders of the pass table. Standard library only.

Two back ends share this: evaluate.py (transformers) has raw text with special tokens, eval.py
(our server) has parsed messages. Both end in `passed(kind, want, got)` with got =
{"content", "reasoning", "calls": [(name, arguments)]}.
"""
import json
import re

Q = '<|"|>'


class Malformed(ValueError):
    pass


class Reader:
    """The value grammar of a call: strings between markers, bare keys, JSON scalars."""

    def __init__(self, text):
        self.s, self.i = text, 0

    def take(self, lit):
        if not self.s.startswith(lit, self.i):
            raise Malformed(f"expected {lit} at {self.s[self.i:self.i + 20]!r}")
        self.i += len(lit)

    def members(self, close):
        out = {}
        if self.s.startswith(close, self.i):
            self.take(close)
            return out
        while True:
            j = self.s.find(":", self.i)
            if j < 0:
                raise Malformed("no key")
            key, self.i = self.s[self.i:j], j + 1
            out[key] = self.value()
            if self.s.startswith(",", self.i):
                self.take(",")
                continue
            self.take(close)
            return out

    def value(self):
        if self.s.startswith(Q, self.i):
            j = self.s.find(Q, self.i + len(Q))
            if j < 0:
                raise Malformed("open string")
            v, self.i = self.s[self.i + len(Q):j], j + len(Q)
            return v
        if self.s.startswith("{", self.i):
            self.take("{")
            return self.members("}")
        if self.s.startswith("[", self.i):
            self.take("[")
            out = []
            if self.s.startswith("]", self.i):
                self.take("]")
                return out
            while True:
                out.append(self.value())
                if self.s.startswith(",", self.i):
                    self.take(",")
                    continue
                self.take("]")
                return out
        m = re.compile(r"[^,}\]]+").match(self.s, self.i)
        if not m:
            raise Malformed("no value")
        self.i = m.end()
        try:
            return json.loads(m.group())
        except ValueError:
            raise Malformed(m.group())


def call(text):
    m = re.match(r"call:([^{]*)\{", text)
    if not m:
        raise Malformed(text[:40])
    r = Reader(text)
    r.i = m.end()
    args = r.members("}")
    if r.i != len(text):
        raise Malformed("text after the call")
    return m.group(1), args


def parse(text, open_thought=False):
    """Raw text (special tokens as text, up to the stop token) to parts."""
    if open_thought:
        text = "<|channel>thought\n" + text
    for stop in ("<turn|>", "<eos>", "<|tool_response>"):
        text = text.split(stop)[0]
    out = {"content": "", "reasoning": "", "calls": [], "malformed": False}
    while text:
        m = re.search(r"<\|channel>|<\|tool_call>", text)
        if not m:
            out["content"] += text
            break
        out["content"] += text[:m.start()]
        rest = text[m.end():]
        if m.group() == "<|channel>":
            body, _, text = rest.partition("<channel|>")
            out["reasoning"] += body.partition("\n")[2].rstrip("\n")
        else:
            body, _, text = rest.partition("<tool_call|>")
            try:
                out["calls"].append(call(body))
            except Malformed:
                out["malformed"] = True
                out["content"] += body
    return out


def equal(a, b):
    """JSON equality: 1 equals 1.0, true does not equal 1."""
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, (int, float)) and isinstance(b, (int, float)):
        return a == b
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(equal(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(equal(x, y) for x, y in zip(a, b))
    return type(a) is type(b) and a == b


def passed(kind, want, got):
    if kind == "calls":
        return len(want) == len(got["calls"]) and all(n == m and equal(a, b) for (n, a), (m, b) in zip(want, got["calls"]))
    if got["calls"] or got.get("malformed"):
        return False
    content = got["content"].strip()
    if kind == "exact":
        return content == want
    if kind == "text":
        return all(s.strip() in content for s in want)
    if kind == "answer":
        m = re.fullmatch(r"The answer is (.*)\.", content)
        return bool(m) and m.group(1) == want
    if kind == "json":
        try:
            return equal(json.loads(content), want)
        except ValueError:
            return False
    return bool(content)
