#!/usr/bin/env python3
"""The bundled model sees: eyes.py PROGRAM MODEL [SEED]

Fifteen different pictures alone, all at once, and at random times beside requests without pictures: at least 14 of the
answers must be right, and each request's digest over all its sampled logits must be the same in all companies. The
pictures are drawn here, by the program that drew those of the training, from a seed that training never used."""
import base64, os, random, sys, threading, time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "models", "training", "eyes"))
import draw
from client import Server

SEED, LEAST = 2_000_000, 14
ASKED = {"shape": "What do you see?", "count": "How many shapes are there?", "number": "What number is this?", "word": "What does it say?"}
# (kind, size drawn at: of 1 with 70 tokens the program keeps every pixel, the others it enlarges, budget of tokens)
PICTURES = [(kind, scale, budget) for kind in ("shape", "count", "number", "word") for scale, budget in ((1, 70), (0.5, 70), (0.5, 140), (0.75, 280))][:15]
BESIDE = ["Reply with exactly: keel and mast", "Hello", "My name is Mira. What is my name?", "Say only: 42", "What can you do?"]


def scene(i):
    """(what is on picture i, what the model must say of it)"""
    kind = PICTURES[i][0]
    s = draw.scene(SEED, i, kind)
    s["noise"] = min(s["noise"], 6)
    return s, s.get("text") or (str(s["count"]) if kind == "count" else f"A{'n' if s['color'][0] == 'o' else ''} {s['color']} {s['shape']}.")


def picture(i):
    s, answer = scene(i)
    return "data:image/png;base64," + base64.b64encode(draw.png(*draw.render(s, PICTURES[i][1]))).decode(), answer


def request(content, **ours):
    return {"model": "pocket", "messages": [{"role": "user", "content": content}], "temperature": 0, "max_tokens": 40, "evenkeel": {"digest": True, **ours}}


def asked(i, url):
    kind, _, budget = PICTURES[i]
    return request([{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": ASKED[kind]}], image_tokens=budget)


def face(reply):
    return reply["choices"][0]["message"]["content"], reply["evenkeel"]["digest"]


def together(s, bodies, delays):
    out = [None] * len(bodies)

    def one(i):
        time.sleep(delays[i])
        out[i] = face(s.chat(bodies[i]))

    threads = [threading.Thread(target=one, args=(i,)) for i in range(len(bodies))]
    [t.start() for t in threads]
    [t.join() for t in threads]
    return out


def main():
    program, model = sys.argv[1:3]
    r = random.Random(int(sys.argv[3], 0) if len(sys.argv) > 3 else 1)
    drawn = [picture(i) for i in range(len(PICTURES))]
    pictures, texts = [asked(i, url) for i, (url, _) in enumerate(drawn)], [request(t) for t in BESIDE]
    n, bodies, failed, passed = len(pictures), pictures + texts, 0, 0

    def check(name, good, said=""):
        nonlocal failed, passed
        passed, failed = passed + good, failed + (not good)
        print(f"{'ok  ' if good else 'FAIL'} {name}{': ' if said else ''}{said}")

    with Server(program, "--model", model, "--max-requests", 16, "--ctx", 1024) as s:
        alone = [face(s.chat(b)) for b in bodies]
        right = sum(words == want for (words, _), (_, want) in zip(alone, drawn))
        for (words, _), (_, want), (kind, *_) in zip(alone, drawn, PICTURES):
            if words != want:
                print(f"  {kind}: {words!r}, shown is {want!r}")
        check(f"at least {LEAST} of {n} right", right >= LEAST, f"{right}")
        check("different pictures, different bits", len({d for _, d in alone[:n]}) == n)
        for name, run in (("at once", [0] * len(bodies)), ("staggered", [r.random() * 1.5 for _ in bodies]), ("staggered again", [r.random() * 0.4 for _ in bodies])):
            row = together(s, bodies, run)
            check(f"{name}: the words and bits of alone", row == alone, f"{sum(x == a for x, a in zip(row, alone))}/{len(bodies)}")
    with Server(program, "--model", model, "--max-requests", 16, "--ctx", 1024) as s:   # nothing was looked at before
        row = together(s, bodies, [0] * len(bodies))
        check("at once in a new server: the words and bits of alone", row == alone, f"{sum(x == a for x, a in zip(row, alone))}/{len(bodies)}")
    print(f"{passed} passed, {failed} failed")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
