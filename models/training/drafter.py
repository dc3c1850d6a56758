"""The drafter (`gemma4_assistant`): three layers that read the frozen model's keys and values.

    python3 models/training/drafter.py models/pocket OUT [--seconds 120]

Position n holds the bonus token (accepted, not yet in the cache). A draft starts from its
embedding beside the model's hidden state at n-1 and sees positions 0..n-1; each further step takes
the last draft and the drafter's own projected state, at the same position n. All positions of a
row train at once, in rows short enough for plain dense attention. Labels are the frozen model's greedy choices on what it must produce.
"""
import argparse
import json
import os
import queue
import threading
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

import data
import export
import mixture
import model as M
import optim
import quant
import train

STEPS = 3
CONFIG = M.Config(hidden_size=128, intermediate_size=512, num_hidden_layers=3, period=3, num_kv_shared_layers=3,
                  hidden_size_per_layer_input=0, double_wide=False)


class Drafter(nn.Module):
    def __init__(self, c, backbone):
        super().__init__()
        h, self.c = c.hidden_size, c
        self.model = nn.Module()
        self.model.embed_tokens = M.Embedding(c.vocab_size, h, h ** -0.5)
        self.model.layers = nn.ModuleList([M.Layer(c, i) for i in range(c.num_hidden_layers)])
        self.model.norm = M.Norm(h)
        self.pre_projection, self.post_projection = M.Linear(2 * backbone, h), M.Linear(h, backbone)

    def forward(self, emb, hid, rope, masks, kv):
        """(logits, projected state) of one draft step at every position."""
        x = self.pre_projection(torch.cat([emb, hid], -1))
        for kind, layer in zip(self.c.kinds(), self.model.layers):
            x, _ = layer(x, None, rope[kind], masks, kv[kind])
        y = self.model.norm(x)
        e, table = self.post_projection(y), self.model.embed_tokens
        if table.bits:
            y = quant.fake_activation(y)
        return F.linear(y, table.table().to(y.dtype)).float(), e


def before(start):
    """Dense masks of positions before n. A document's first position sees itself, so that no row
    is empty; it never trains."""
    t = start.shape[1]
    q, k = torch.arange(t, device=start.device)[:, None], torch.arange(t, device=start.device)[None]
    m = ((k < q) & (k[None] >= start[:, :, None])) | (k == q) & (q == start[:, :, None])
    return {M.FULL: m[:, None], M.SLIDING: (m & (q - k < CONFIG.sliding_window))[:, None]}


def draft_loss(drafter, table, ids, choice, weights, hidden, kv, start, rope, dtype):
    """Mean loss over the draft steps, and each step's accuracy."""
    masks = before(start)
    hid = hidden.roll(1, 1)
    total, hits = 0.0, []
    for j in range(STEPS):
        emb = F.embedding(ids.roll(-j, 1), table).to(dtype) * table.shape[1] ** 0.5
        z, hid = drafter(emb, hid, rope, masks, kv)
        label, w = choice.roll(-j, 1), (weights.roll(-j, 1) >= 1).float()
        ce = F.cross_entropy(z.view(-1, z.shape[-1]), label.reshape(-1), reduction="none").view_as(w)
        total = total + (ce * w).sum() / w.sum() / STEPS
        hits.append(((z.argmax(-1) == label).float() * w).sum() / w.sum())
    return total, torch.stack(hits)


def frozen(folder, dev):
    model = M.Model(M.Config())
    weights = {k[len("model."):]: torch.from_numpy(np.array(v)) for k, v in export.dequantized(folder).items()}
    model.load_state_dict(weights)
    return model.to(dev).eval().requires_grad_(False)


@torch.no_grad()
def measure(drafter, target, folder, dev, n=120):
    """Mean accepted of STEPS drafted, greedy, over the calls of the single-call set: rounds are
    walked along the gold answer, which the model reproduces."""
    encode = data.load_encoder(folder + "/tokenizer.json")
    accepted, rounds, calls = 0, 0, {"calls": [0, 0], "text": [0, 0]}
    for ep in mixture.eval_set("single", n):
        ep.checks = [(i, "calls" if "tool_calls" in m else "text", None) for i, m in enumerate(ep.messages) if m["role"] == "assistant"]
        for i, kind, _ in ep.checks:
            head = mixture.chat.render(ep.messages[:i], ep.tools, enable_thinking=ep.thinking)
            full = mixture.chat.render(ep.messages[:i + 1], ep.tools, add_generation_prompt=False, enable_thinking=ep.thinking)
            prompt, ids = list(encode(head)), list(encode(full))
            ids = ids[:-1] if kind == "text" else ids
            x = torch.tensor([ids], device=dev)
            start = torch.zeros(1, len(ids), dtype=torch.int32, device=dev)
            rope = M.rope_tables(CONFIG, len(ids), dev)
            h, kv, table = target.hidden(x, rope, M.dense_masks(target.c, start), torch.float32)
            masks, hid, toks, drafts = before(start), h.roll(1, 1), x, []
            for _ in range(STEPS):
                z, hid = drafter(F.embedding(toks, table) * table.shape[1] ** 0.5, hid, rope, masks, kv)
                toks = z.argmax(-1)
                drafts.append(toks[0].tolist())
            pos = len(prompt)           # the first generated token is the bonus token
            while pos + 1 < len(ids):
                room = min(STEPS, len(ids) - 1 - pos)
                a = 0
                while a < room and drafts[a][pos] == ids[pos + 1 + a]:
                    a += 1
                if room == STEPS:       # a round cut short by the end says nothing about a full one
                    accepted, rounds = accepted + a, rounds + 1
                    calls[kind][0] += a
                    calls[kind][1] += 1
                pos += a + 1
    return {"accepted": round(accepted / max(rounds, 1), 3), "rounds": rounds,
            **{k: round(a / max(b, 1), 3) for k, (a, b) in calls.items()}}


def config():
    text = export.config(CONFIG)
    for k in ("architectures", "dtype", "transformers_version"):
        text.pop(k)
    text.update(vocab_size_per_layer_input=0, final_logit_softcapping=None, use_double_wide_mlp=False, eos_token_id=1)
    return {"architectures": ["Gemma4AssistantForCausalLM"], "model_type": "gemma4_assistant", "dtype": "bfloat16", "transformers_version": "5.17.0",
            "backbone_hidden_size": M.Config().hidden_size, "use_ordered_embeddings": False, "num_centroids": 2048, "centroid_intermediate_top_k": 32,
            "tie_word_embeddings": True, "text_config": text}


def ship(drafter, out):
    os.makedirs(out, exist_ok=True)
    tensors, bits_of = export.quantized(dict(drafter.named_parameters()), prefix="")
    cfg = config()
    cfg["quantization"] = cfg["quantization_config"] = export.quantization(bits_of)
    export.dump(os.path.join(out, "config.json"), cfg)
    export.write_safetensors(os.path.join(out, "model.safetensors"), tensors, "mlx")
    print(out, os.path.getsize(os.path.join(out, "model.safetensors")), "bytes")


def shipped(out, dev):
    drafter = Drafter(CONFIG, M.Config().hidden_size)
    drafter.load_state_dict({k: torch.from_numpy(np.array(v)) for k, v in export.dequantized(out).items()})
    return drafter.to(dev).eval()


@torch.no_grad()
def agree(drafter, target, out, dev):
    """One draft step of transformers' class against ours, on a short prompt."""
    from transformers import Gemma4AssistantConfig, Gemma4AssistantForCausalLM
    with open(os.path.join(out, "config.json")) as f:
        cfg = json.load(f)
    cfg.pop("quantization"), cfg.pop("quantization_config")
    hf = Gemma4AssistantForCausalLM._from_config(Gemma4AssistantConfig(**cfg), dtype=torch.float32)
    missing, unexpected = hf.load_state_dict({k: torch.from_numpy(np.array(v)) for k, v in export.dequantized(out).items()}, strict=False)
    print("transformers' class loads; missing", [m for m in missing if m != "lm_head.weight"], "unexpected", unexpected)
    hf.tie_weights()
    hf.to(dev).eval()
    n = 60
    x = torch.randint(107, 4000, (1, n + 1), device=dev)
    start = torch.zeros(1, n + 1, dtype=torch.int32, device=dev)
    rope = M.rope_tables(CONFIG, n + 1, dev)
    h, kv, table = target.hidden(x, rope, M.dense_masks(target.c, start), torch.float32)
    emb = F.embedding(x, table) * table.shape[1] ** 0.5
    ours, _ = drafter(emb, h.roll(1, 1), rope, before(start), kv)
    theirs = hf(inputs_embeds=torch.cat([emb[:, n:], h[:, n - 1:n]], -1), position_ids=torch.tensor([[n]], device=dev),
                shared_kv_states={k: (a[:, :, :n].contiguous(), b[:, :, :n].contiguous()) for k, (a, b) in kv.items()}).logits
    print(f"drafter logits, ours against transformers: {(theirs[0, -1] - ours[0, n]).abs().max().item():.2e}", flush=True)


def main():
    a = argparse.ArgumentParser()
    a.add_argument("target")
    a.add_argument("out")
    a.add_argument("--seconds", type=float, default=95)
    a.add_argument("--seed", type=int, default=11)
    a.add_argument("--rows", type=int, default=32)
    a.add_argument("--length", type=int, default=1024)
    a.add_argument("--workers", type=int, default=14)
    a.add_argument("--steps", type=int, default=1 << 30)
    a.add_argument("--measure", type=int, default=120, help="conversations to measure acceptance on")
    o = a.parse_args()
    dev = "cuda" if torch.cuda.is_available() else "cpu"
    dtype = torch.bfloat16 if dev == "cuda" else torch.float32
    feed = data.Feed(o.target + "/tokenizer.json", o.seed, o.length, o.rows, o.workers)
    target = frozen(o.target, dev)
    torch.manual_seed(o.seed)
    drafter = Drafter(CONFIG, M.Config().hidden_size)
    drafter.set_bits = lambda plan: M.Model.set_bits(drafter, plan)
    drafter.to(dev).set_bits(quant.plan)
    opt, rope = optim.Optimizer(drafter), M.rope_tables(CONFIG, o.length, dev)

    def look(ids, start):
        """The frozen model's hidden states, keys and values, and greedy choices."""
        h, kv, table = target.hidden(ids, rope, M.dense_masks(target.c, start), dtype)
        return h, kv, target.logits(h, table).argmax(-1)
    table = target.embed_tokens.weight
    ready = queue.Queue(maxsize=3)

    def prefetch():
        while True:
            ready.put([torch.from_numpy(y) for y in feed.next()])
    threading.Thread(target=prefetch, daemon=True).start()
    begun, step, sums, count = None, 0, 0, 0
    print(f"{sum(p.numel() for p in drafter.parameters()):,} parameters in the drafter", flush=True)
    while step < o.steps:
        ids, _, weights, start = [y.to(dev) for y in ready.get()]
        ids, start = ids.long(), start.int()
        with torch.no_grad():
            h, kv, choice = look(ids, start)
        l, hits = draft_loss(drafter, table, ids, choice, weights, h, kv, start, rope, dtype)
        l.backward()
        x = 0.0 if begun is None else (time.time() - begun) / o.seconds
        opt.step(train.curve([1, 1, 0.5, 0], x) * min(1.0, (step + 1) / 100))
        drafter.zero_grad(set_to_none=True)
        sums, count, step = sums + torch.cat([l.detach()[None], hits.detach()]), count + 1, step + 1
        if step == 3:
            begun = time.time()
        if step in (10, 50, 100, 200) or step % 500 == 0 or step == o.steps:
            s = [round(v, 4) for v in (sums / count).tolist()]
            print(f"step {step} {time.time() - (begun or time.time()):.0f} s loss {s[0]} accuracy by step {s[1:]}", flush=True)
            if not np.isfinite(s[0]):
                feed.close()
                raise SystemExit("the loss is not a number")
            sums, count = 0, 0
        if begun and time.time() - begun > o.seconds:
            break
    feed.close()
    ship(drafter, o.out)
    done = shipped(o.out, dev)
    try:
        agree(done, target, o.out, dev)
    except Exception as e:      # the comparison is a report, the shipped file is already written
        print("comparison with transformers failed:", repr(e)[:300], flush=True)
    print("accepted of", STEPS, "drafted:", measure(done, target, o.target, dev, o.measure), flush=True)


if __name__ == "__main__":
    main()
