"""How often a running server's answers about held-out pictures are exact; standard library only.

    python3 models/training/eyes/eval.py --url http://127.0.0.1:PORT [--n 120] [--budget 70] [--scale 0.5]

A scale below 1 draws smaller pictures, which the server enlarges.
"""
import argparse
import base64
import json
import os
import random
import sys
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import draw  # noqa: E402
import questions  # noqa: E402

SEED = 1_500_000        # beyond what learn.py trains on


def main():
    a = argparse.ArgumentParser()
    a.add_argument("--url", required=True)
    a.add_argument("--n", type=int, default=120)
    a.add_argument("--budget", type=int, default=70)
    a.add_argument("--scale", type=float, default=0.5)
    o = a.parse_args()
    r, right, asked = random.Random(SEED), dict.fromkeys(draw.KINDS, 0), dict.fromkeys(draw.KINDS, 0)
    for i in range(o.n):
        s = draw.scene(SEED, i)
        question, want = questions.ask(r, s)
        url = "data:image/png;base64," + base64.b64encode(draw.png(*draw.render(s, o.scale))).decode()
        body = {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": question}]}],
                "temperature": 0, "max_tokens": 40, "evenkeel": {"image_tokens": o.budget}}
        request = urllib.request.Request(o.url + "/v1/chat/completions", json.dumps(body).encode(), {"content-type": "application/json"})
        with urllib.request.urlopen(request, timeout=120) as f:
            got = json.load(f)["choices"][0]["message"]["content"]
        asked[s["kind"]] += 1
        right[s["kind"]] += got == want
        if got != want:
            print(f"{s['kind']}: {question!r}: {got!r}, right is {want!r}", flush=True)
    print(", ".join(f"{k} {right[k]} of {asked[k]}" for k in draw.KINDS), f"({sum(right.values())} of {o.n})")


if __name__ == "__main__":
    main()
