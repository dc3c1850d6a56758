"""Reference vectors for the six tiny configurations T1..T6, from transformers in float32.

    python3 tools/golden/make_golden.py [OUT]        (default OUT: tests/golden)

Weights are not stored: every element is a function of its tensor's name and its index, so a
test computes the same model from the config alone. For the tensor named n (Hugging Face name,
with the `model.` prefix), element i in row-major order:

    x = fnv1a64(n) ^ (i * 0x9E3779B97F4A7C15)          (64 bits, wrapping)
    z = splitmix64(x)                                  (finaliser, see below)
    u = float(z >> 40) * 2^-24                         (in [0, 1))
    w = 0.5f + u   if n contains "norm" or ends in layer_scalar, router.scale, per_expert_scale
        u - 0.5f   otherwise
    then rounded to bfloat16, ties to even, and used as float32.

The scales of both embeddings are rounded to bfloat16 too, as a run in the config's dtype has them;
the configs in FLOAT32 keep the roots as float32 has them.

Prompt ids: element i of the tensor named "<config>.prompt.<length>", 1 + z % (vocab - 1).

Each file holds: config (as transformers saves it), prompts: [{ids, rows, logits, tol, greedy,
sure}]. logits is base64 of little-endian float32, `rows` last positions, vocabulary wide. tol
bounds |ours - logits|: four times the distance between float32 and float64, at least 1e-4.
greedy is 16 tokens; the first `sure` of them have a margin that tol cannot turn.
"""
import base64
import json
import os
import sys
import tempfile

import numpy as np
import torch
from transformers import Gemma4ForCausalLM, Gemma4TextConfig

S, F = "sliding_attention", "full_attention"
GOLD = 0x9E3779B97F4A7C15
LENGTHS = (1, 7, 37, 150)
ROWS = 8
GREEDY = 16


def cfg(layers, rotated=0.25, **k):
    c = dict(vocab_size=99, hidden_size_per_layer_input=0, num_kv_shared_layers=0,
             attention_k_eq_v=False, num_global_key_value_heads=None, use_double_wide_mlp=False,
             enable_moe_block=False, num_experts=None, top_k_experts=None,
             moe_intermediate_size=None, final_logit_softcapping=30.0, rms_norm_eps=1e-6,
             tie_word_embeddings=True, use_bidirectional_attention=None,
             max_position_embeddings=512, pad_token_id=0, eos_token_id=1, bos_token_id=2,
             rope_parameters={
                 S: {"rope_type": "default", "rope_theta": 50.0},
                 F: {"rope_type": "proportional", "partial_rotary_factor": rotated,
                     "rope_theta": 500.0}})
    c.update(k)
    c["layer_types"] = [S if x == "S" else F for x in layers]
    c["num_hidden_layers"] = len(layers)
    c["vocab_size_per_layer_input"] = c["vocab_size"]
    return c


CONFIGS = {
    "T1": cfg("SFSSSF", hidden_size=64, intermediate_size=96, num_attention_heads=4,
              num_key_value_heads=1, head_dim=16, global_head_dim=32, sliding_window=8,
              num_kv_shared_layers=3, hidden_size_per_layer_input=8, use_double_wide_mlp=True),
    "T2": cfg("SSF", vocab_size=101, hidden_size=48, intermediate_size=40, num_attention_heads=4,
              num_key_value_heads=2, num_global_key_value_heads=1, head_dim=16, global_head_dim=32,
              sliding_window=4, attention_k_eq_v=True, enable_moe_block=True, num_experts=6,
              top_k_experts=2, moe_intermediate_size=24),
    "T3": cfg("SSSSSF", vocab_size=97, hidden_size=64, intermediate_size=96, num_attention_heads=8,
              num_key_value_heads=4, num_global_key_value_heads=2, head_dim=8, global_head_dim=16,
              sliding_window=6, attention_k_eq_v=True),
    "T4": cfg("SFSF", vocab_size=103, hidden_size=90, intermediate_size=52, num_attention_heads=9,
              num_key_value_heads=3, head_dim=20, global_head_dim=36, sliding_window=7),
    "T5": cfg("SSSFSF", rotated=0.5, vocab_size=107, hidden_size=32, intermediate_size=48,
              num_attention_heads=2, num_key_value_heads=2, head_dim=16, global_head_dim=16,
              sliding_window=3),
    "T6": cfg("SFSSFSSF", vocab_size=132, hidden_size=72, intermediate_size=28,
              num_attention_heads=6, num_key_value_heads=3, num_global_key_value_heads=2,
              head_dim=12, global_head_dim=24, sliding_window=5, num_kv_shared_layers=3,
              hidden_size_per_layer_input=10, use_double_wide_mlp=True, attention_k_eq_v=True,
              enable_moe_block=True, num_experts=5, top_k_experts=3, moe_intermediate_size=20),
}


FLOAT32 = ("T6",)


def fnv1a64(name):
    h = 0xCBF29CE484222325
    for b in name.encode():
        h = ((h ^ b) * 0x100000001B3) & (2**64 - 1)
    return h


def hashes(name, n):
    with np.errstate(over="ignore"):
        x = np.uint64(fnv1a64(name)) ^ (np.arange(n, dtype=np.uint64) * np.uint64(GOLD))
        x = x + np.uint64(GOLD)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return x ^ (x >> np.uint64(31))


def weight(name, shape):
    u = (hashes(name, int(np.prod(shape))) >> np.uint64(40)).astype(np.float32) * np.float32(2.0**-24)
    unit = "norm" in name or name.endswith(("layer_scalar", "router.scale", "per_expert_scale"))
    w = (np.float32(0.5) + u) if unit else (u - np.float32(0.5))
    return torch.from_numpy(w.reshape(shape)).to(torch.bfloat16).float()


def build(c, dtype):
    config = Gemma4TextConfig(**c)
    model = Gemma4ForCausalLM._from_config(config, attn_implementation="eager", dtype=torch.float32,
                                           experts_implementation="eager")
    names = []
    with torch.no_grad():
        for name, t in model.state_dict().items():
            if name == "lm_head.weight":
                continue
            t.copy_(weight(name, tuple(t.shape)))
            names.append(name)
        for module in model.modules():
            if hasattr(module, "embed_scale"):
                module.embed_scale.copy_(module.embed_scale.to(dtype))
    model.tie_weights()
    return model.eval(), names


def saved_config(model, dtype):
    with tempfile.TemporaryDirectory() as d:
        model.config.save_pretrained(d)
        with open(os.path.join(d, "config.json")) as f:
            c = json.load(f)
    c["architectures"] = ["Gemma4ForCausalLM"]
    c["dtype"] = str(dtype).removeprefix("torch.")
    return c


@torch.no_grad()
def logits(model, ids):
    return model(input_ids=torch.tensor([ids]), use_cache=False).logits[0].double().numpy()


def one_prompt(name, length, single, double, vocab):
    ids = [int(1 + z % np.uint64(vocab - 1)) for z in hashes(f"{name}.prompt.{length}", length)]
    z32, z64 = logits(single, ids), logits(double, ids)
    tol = max(1e-4, 4 * float(np.abs(z32 - z64).max()))
    out, sure, certain = [], 0, True
    while len(out) < GREEDY:
        row = logits(single, ids + out)[-1]
        best, second = np.sort(row)[::-1][:2]
        out.append(int(row.argmax()))
        certain = certain and best - second > 2 * tol
        sure += certain
    rows = min(ROWS, length)
    blob = base64.b64encode(z32[-rows:].astype("<f4").tobytes()).decode()
    return {"ids": ids, "rows": rows, "tol": float(f"{tol:.3g}"), "greedy": out, "sure": int(sure), "logits": blob}


def main():
    out = sys.argv[1] if len(sys.argv) > 1 else "tests/golden"
    os.makedirs(out, exist_ok=True)
    for name, c in CONFIGS.items():
        dtype = torch.float32 if name in FLOAT32 else torch.bfloat16
        single, names = build(c, dtype)
        double = build(c, dtype)[0].double()
        prompts = [one_prompt(name, n, single, double, c["vocab_size"]) for n in LENGTHS]
        head = {"name": name, "config": saved_config(single, dtype), "tensors": names, "prompts": prompts}
        path = os.path.join(out, name + ".json")
        with open(path, "w") as f:
            json.dump(head, f, separators=(",", ":"))
            f.write("\n")
        print(name, "bytes", os.path.getsize(path), "tensors", len(names),
              "tol", [p["tol"] for p in prompts], "sure", [p["sure"] for p in prompts])


if __name__ == "__main__":
    main()
