"""Loss and pass-rate curves as a picture, from the logs of the pieces.

    python3 models/training/curves.py OUT.png models/training/runs/piece1.jsonl models/training/runs/piece2.jsonl
"""
import json
import os
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt


def main():
    out, logs = sys.argv[1], sys.argv[2:]
    x, loss, answer, wrong, lr, ends, at = [], [], [], [], [], [], 0
    for path in logs:
        with open(path) as f:
            recs = [json.loads(line) for line in f]
        for r in recs:
            x.append((at + r["tokens"]) / 1e6)
            loss.append(r["loss"])
            answer.append(r["answer_loss"])
            wrong.append(100 * (1 - r["answer_accuracy"]))
            lr.append(r["lr"])
        at += recs[-1]["tokens"]
        ends.append(at / 1e6)
    fig, (a, b, c) = plt.subplots(1, 3, figsize=(13, 3.8))
    a.plot(x, loss, lw=0.8, label="all tokens, as weighted")
    a.plot(x, answer, lw=0.8, label="tokens the model must produce")
    a.set_yscale("log")
    a.set_title("loss, 4 bits in the loop")
    a.legend(fontsize=8)
    b.plot(x, wrong, lw=0.8, color="tab:red", label="wrong tokens in answers, %")
    b.plot(x, lr, lw=0.8, color="tab:gray", label="learning rate, factor")
    b.set_yscale("log")
    b.set_ylim(0.02, 110)
    b.set_title("teacher-forced errors")
    b.legend(fontsize=8)
    for ax in (a, b):
        for e in ends:
            ax.axvline(e, color="tab:gray", lw=0.5, ls="--")
        ax.set_xlabel("million tokens")
    with open(os.path.join(os.path.dirname(logs[0]), "passes.json")) as f:
        passes = json.load(f)
    for name in passes["rows"]:
        c.plot([p["tokens"] / 1e6 for p in passes["points"] if name in p], [p[name] for p in passes["points"] if name in p], "o-", ms=4, lw=0.8, label=name)
    c.set_ylim(90, 100.5)
    c.set_title("pass rate at 4 bits, greedy, %")
    c.set_xlabel("million tokens")
    c.legend(fontsize=8, ncol=2)
    fig.tight_layout()
    fig.savefig(out, dpi=110)


if __name__ == "__main__":
    main()
