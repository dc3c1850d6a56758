"""The pass table with transformers, on the dequantised weights of a shipped folder, float32.

    python3 models/training/evaluate.py models/pocket [--only single,think] [--n 100] [--out FILE]

Also compares transformers' logits with those of model.py (--verify, done first by default).
"""
import argparse
import json
import time

import numpy as np
import torch
from transformers import Gemma4ForCausalLM, Gemma4TextConfig

import chat
import data
import export
import grade
import mixture
import model as M
import natural

STOPS = (1, 106, 50)


def load(folder, device):
    config = Gemma4TextConfig(**export.text_config(folder))
    model = Gemma4ForCausalLM._from_config(config, dtype=torch.float32, attn_implementation="sdpa")
    weights = {k: torch.from_numpy(np.array(v)) for k, v in export.dequantized(folder).items()}
    missing, unexpected = model.load_state_dict(weights, strict=False)
    missing = [m for m in missing if m != "lm_head.weight"]
    assert not missing and not unexpected, (missing, unexpected)
    model.tie_weights()
    return model.to(device).eval(), weights


@torch.no_grad()
def verify(hf, weights, encode, device):
    """Largest difference between transformers' logits and our training model's on real prompts."""
    c = M.Config()
    ours = M.Model(c)
    ours.load_state_dict({k[len("model."):]: v for k, v in weights.items()})
    ours.to(device).eval()
    worst = 0.0
    for i in range(6):
        ids = torch.tensor([list(encode(mixture.text_of(mixture.sample(997, i))))], device=device)
        t = ids.shape[1]
        start = torch.zeros(1, t, dtype=torch.int32, device=device)
        h, _, table = ours.hidden(ids, M.rope_tables(c, t, device), M.dense_masks(c, start), torch.float32)
        d = (ours.logits(h, table) - hf(input_ids=ids, use_cache=False).logits).abs().max().item()
        worst = max(worst, d)
    print(f"largest logit difference, ours against transformers: {worst:.2e}", flush=True)
    return worst


def prompts(name, n):
    """[(episode, check, prompt text, thought left open)]"""
    out = []
    for e, ep in enumerate(mixture.eval_set(name, n)):
        for check in ep.checks:
            text = chat.render(ep.messages[:check[0]], ep.tools, enable_thinking=ep.thinking)
            out.append((e, check, text, text.endswith("<|channel>thought\n")))
    return out


@torch.no_grad()
def generate(hf, batch, device, limit):
    """Greedy continuation of a batch of id lists, left-padded."""
    n = max(map(len, batch))
    ids = torch.zeros(len(batch), n, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for k, x in enumerate(batch):
        ids[k, n - len(x):], mask[k, n - len(x):] = torch.tensor(x), 1
    out = hf.generate(input_ids=ids.to(device), attention_mask=mask.to(device), max_new_tokens=limit, do_sample=False,
                      eos_token_id=list(STOPS), pad_token_id=0, temperature=None, top_k=None, top_p=None)
    res = []
    for row in out[:, n:].tolist():
        end = next((i for i, t in enumerate(row) if t in STOPS), len(row))
        res.append(row[:end])
    return res


def main():
    a = argparse.ArgumentParser()
    a.add_argument("folder")
    a.add_argument("--only", default=",".join(mixture.EVAL))
    a.add_argument("--n", type=int)
    a.add_argument("--out")
    a.add_argument("--failures", type=int, default=6)
    a.add_argument("--say", action="store_true", help="also the requests of natural.py")
    o = a.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    encode = data.load_encoder(o.folder + "/tokenizer.json")
    decode = data.tokenizer.Encoder(o.folder + "/tokenizer.json").decode
    hf, weights = load(o.folder, device)
    table = {"logit_difference": verify(hf, weights, encode, device)}
    failures = []
    for name in o.only.split(","):
        begun, todo = time.time(), prompts(name, o.n)
        todo.sort(key=lambda p: len(p[2]))
        good, size = {}, 200 if name in ("think", "direct", "exact") else 100 if name != "recall" else 50
        for k in range(0, len(todo), size):
            part = todo[k:k + size]
            outs = generate(hf, [list(encode(p[2])) for p in part], device, 350 if name == "think" else 280)
            for (e, check, text, opened), ids in zip(part, outs):
                raw = decode(ids)
                got = grade.parse(raw, opened)
                ok = grade.passed(check[1], check[2], got)
                good[e] = good.get(e, True) and ok
                if not ok:
                    failures.append((name, text[-500:], raw, str(check[2])))
        share = 100 * sum(good.values()) / len(good)
        table[name] = {"pass": sum(good.values()), "of": len(good), "percent": round(share, 1), "target": mixture.EVAL[name][2]}
        print(f"{name:8} {sum(good.values()):4} of {len(good):4}  {share:5.1f} %  target {mixture.EVAL[name][2]}  ({time.time() - begun:.0f} s)", flush=True)
    if o.say:
        table["natural"] = natural_rows(hf, encode, decode, device)
    if o.out:
        with open(o.out, "w") as f:
            json.dump({"table": table, "failures": failures[:400]}, f, indent=1, ensure_ascii=False)
    shown = {}
    for name, text, raw, want in failures:
        shown[name] = shown.get(name, 0) + 1
        if shown[name] <= o.failures:
            print(f"--- {name} ...{text[-170:]!r}\n GOT {raw[:170].split('<pad>')[0]!r}\nWANT {want[:170]}")


def natural_rows(hf, encode, decode, device):
    rows = natural.rows()
    outs = generate(hf, [list(encode(chat.render(m, t))) for t, m, _ in rows], device, 120)
    good = 0
    for (t, m, want), ids in zip(rows, outs):
        raw = decode(ids)
        ok = natural.right(want, grade.parse(raw))
        good += ok
        if not ok:
            print(f"natural: {m[-1]['content']!r} -> {raw!r}")
    print(f"natural  {good} of {len(rows)}", flush=True)
    return {"pass": good, "of": len(rows)}


if __name__ == "__main__":
    main()
