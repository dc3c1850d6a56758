"""One evaluation of the shipped model as a batch: 90 tool conversations and 30 questions about pictures, greedy.

    python3 models/training/batch.py --write IN     what `evenkeel batch` reads, the same bytes everywhere
    python3 models/training/batch.py --read OUT     how many are right

Standard library only. The conversations are 20 of the rows single and multi of eval.py and the 50 of natural.py; those of
several steps are asked step by step, each on the right history. Pictures and questions are those of eyes/eval.py.
"""
import argparse
import base64
import itertools
import json
import os
import random
import struct
import sys
import zlib

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "eyes")]
import draw  # noqa: E402
import eval as table  # noqa: E402
import grade  # noqa: E402
import mixture  # noqa: E402
import natural  # noqa: E402
import questions  # noqa: E402

EACH, PICTURES, SEED = 20, 30, 1_500_000


def stored(raw):
    """zlib's format without compression: compressed bytes depend on zlib's version."""
    parts = [raw[i:i + 65535] for i in range(0, len(raw), 65535)]
    blocks = b"".join(struct.pack("<BHH", i + 1 == len(parts), len(p), len(p) ^ 65535) + p for i, p in enumerate(parts))
    return b"\x78\x01" + blocks + struct.pack(">I", zlib.adler32(raw))


def line(name, messages, tools, max_tokens, **more):
    body = {"model": "pocket", "messages": messages, "temperature": 0, "max_tokens": max_tokens, "logprobs": True, **more}
    if tools:
        body["tools"] = tools
    return {"custom_id": name, "method": "POST", "url": "/v1/chat/completions", "body": body}


def conversations():
    """(row, number of the conversation, line, whether a reply is right)"""
    for row in ("single", "multi"):
        for e, ep in enumerate(mixture.eval_set(row, EACH)):
            for k, (i, kind, want) in enumerate(ep.checks):
                ask = line(f"{row} {e}.{k}", table.wire(ep.messages[:i]), ep.tools, 280)
                yield row, e, ask, lambda got, kind=kind, want=want: grade.passed(kind, want, got)
    for e, (tools, messages, want) in enumerate(natural.rows()):
        yield "natural", e, line(f"natural {e}", messages, tools, 120), lambda got, want=want: natural.right(want, got)


def pictures(drawn):
    """drawn: with their pixels, which take seconds to draw."""
    r = random.Random(SEED)
    for i in range(PICTURES):
        s = draw.scene(SEED, i)
        question, want = questions.ask(r, s)
        pixels = draw.png(*draw.render(s, 0.5), stored) if drawn else b""
        url = "data:image/png;base64," + base64.b64encode(pixels).decode()
        content = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": question}]
        ask = line(f"picture {i}", [{"role": "user", "content": content}], None, 40, evenkeel={"image_tokens": 70})
        yield "pictures", i, ask, lambda got, want=want: got["content"] == want


def main():
    a = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    a.add_argument("--write")
    a.add_argument("--read")
    o = a.parse_args()
    asked = itertools.chain(conversations(), pictures(drawn=bool(o.write)))
    if o.write:
        with open(o.write, "w") as f:
            f.writelines(json.dumps(ask, ensure_ascii=False, separators=(",", ":")) + "\n" for _, _, ask, _ in asked)
    if o.read:
        asked = list(asked)
        results = [json.loads(text) for text in open(o.read)]
        names = [ask["custom_id"] for _, _, ask, _ in asked]
        if [r["custom_id"] for r in results] != names:
            sys.exit(f"{o.read} is no result of this evaluation")
        right = {}
        for (row, e, _, ok), result in zip(asked, results):
            right.setdefault(row, {})[e] = right.get(row, {}).get(e, True) and ok(table.taken(result["response"]["body"]))
        print(", ".join(f"{row} {sum(v.values())} of {len(v)}" for row, v in right.items()))


if __name__ == "__main__":
    main()
