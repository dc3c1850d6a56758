"""The shipped model as GGUF, Q8_0, for tests of the loader.

    python3 models/training/export_gguf.py models/pocket build/pocket-q8_0.gguf

Quantised again from what the 4-bit folder decodes to, so both files hold the same model up to
Q8_0's rounding. Norms, scalars and RoPE factors are float32, matrices and tables Q8_0.
"""
import json
import os
import struct
import sys

import numpy as np

import export
import model as M

F32, Q8_0, ALIGN = 0, 8, 32
U32, I32, FLOAT, BOOL, STRING, ARRAY = 4, 5, 6, 7, 8, 9
LAYER = {"input_layernorm": "attn_norm", "post_attention_layernorm": "post_attention_norm", "pre_feedforward_layernorm": "ffn_norm",
         "post_feedforward_layernorm": "post_ffw_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
         "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm", "mlp.gate_proj": "ffn_gate",
         "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "per_layer_input_gate": "inp_gate", "per_layer_projection": "proj",
         "post_per_layer_input_norm": "post_norm", "layer_scalar": "layer_output_scale"}
TOP = {"embed_tokens": "token_embd", "embed_tokens_per_layer": "per_layer_token_embd", "norm": "output_norm",
       "per_layer_model_projection": "per_layer_model_proj", "per_layer_projection_norm": "per_layer_proj_norm"}


def text(s):
    b = s.encode()
    return struct.pack("<Q", len(b)) + b


def scalar(kind, v):
    if kind == STRING:
        return text(v)
    return struct.pack({U32: "<I", I32: "<i", FLOAT: "<f", BOOL: "<?"}[kind], v)


def entry(key, kind, v):
    if isinstance(v, list):
        return text(key) + struct.pack("<IIQ", ARRAY, kind, len(v)) + b"".join(scalar(kind, x) for x in v)
    return text(key) + struct.pack("<I", kind) + scalar(kind, v)


def q8_0(w):
    x = w.reshape(-1, 32).astype(np.float32)
    d = (np.abs(x).max(1) / 127).astype(np.float16)
    s = d.astype(np.float32)
    q = np.where(s[:, None] > 0, np.rint(x / np.where(s > 0, s, 1)[:, None]), 0).clip(-127, 127).astype(np.int8)
    return np.concatenate([d.view(np.uint8).reshape(-1, 2), q.view(np.uint8)], 1).tobytes()


def renamed(name):
    name = name[len("model."):]
    base = name[:-len(".weight")] if name.endswith(".weight") else name
    if base.startswith("layers."):
        _, i, rest = base.split(".", 2)
        return f"blk.{i}.{LAYER[rest]}.weight"
    return TOP[base] + ".weight"


def metadata(folder, c):
    with open(os.path.join(folder, "tokenizer.json"), encoding="utf-8") as f:
        t = json.load(f)
    pieces = sorted(t["model"]["vocab"].items(), key=lambda kv: kv[1])
    special = {a["id"] for a in t["added_tokens"]}
    types = [3 if i in special else 6 if p.startswith("<0x") and len(p) == 6 else 1 for p, i in pieces]
    full = [k == M.FULL for k in c.kinds()]
    g = "gemma4."
    return [
        entry("general.architecture", STRING, "gemma4"), entry("general.name", STRING, "pocket"), entry("general.file_type", U32, 7),
        entry(g + "block_count", U32, c.num_hidden_layers), entry(g + "embedding_length", U32, c.hidden_size), entry(g + "context_length", U32, 8192),
        entry(g + "feed_forward_length", I32, [c.intermediate_size * (2 if i >= c.first_shared() else 1) for i in range(c.num_hidden_layers)]),
        entry(g + "attention.head_count", U32, c.num_attention_heads), entry(g + "attention.head_count_kv", U32, c.num_key_value_heads),
        entry(g + "attention.key_length", U32, c.global_head_dim), entry(g + "attention.value_length", U32, c.global_head_dim),
        entry(g + "attention.key_length_swa", U32, c.head_dim), entry(g + "attention.value_length_swa", U32, c.head_dim),
        entry(g + "attention.layer_norm_rms_epsilon", FLOAT, c.rms_norm_eps), entry(g + "attention.sliding_window", U32, c.sliding_window),
        entry(g + "attention.sliding_window_pattern", BOOL, [not x for x in full]), entry(g + "attention.shared_kv_layers", U32, c.num_kv_shared_layers),
        entry(g + "embedding_length_per_layer_input", U32, c.hidden_size_per_layer_input),
        entry(g + "rope.freq_base", FLOAT, 1e6), entry(g + "rope.freq_base_swa", FLOAT, 1e4),
        entry(g + "rope.dimension_count", U32, c.global_head_dim), entry(g + "rope.dimension_count_swa", U32, c.head_dim),
        entry(g + "final_logit_softcapping", FLOAT, c.final_logit_softcapping),
        entry("tokenizer.ggml.model", STRING, "gemma4"), entry("tokenizer.ggml.tokens", STRING, [p for p, _ in pieces]),
        entry("tokenizer.ggml.scores", FLOAT, [-float(i) for _, i in pieces]), entry("tokenizer.ggml.token_type", I32, types),
        entry("tokenizer.ggml.merges", STRING, [" ".join(m) for m in t["model"]["merges"]]),
        entry("tokenizer.ggml.bos_token_id", U32, 2), entry("tokenizer.ggml.eos_token_id", U32, 1), entry("tokenizer.ggml.eot_token_id", U32, 106),
        entry("tokenizer.ggml.padding_token_id", U32, 0), entry("tokenizer.ggml.unknown_token_id", U32, 3), entry("tokenizer.ggml.add_bos_token", BOOL, False),
        entry("tokenizer.ggml.add_space_prefix", BOOL, False)]


def main():
    folder, out = sys.argv[1:3]
    c = M.Config()
    tensors = {renamed(n): x for n, x in export.dequantized(folder).items()}
    turned = int(0.25 * c.global_head_dim // 2)
    tensors["rope_freqs.weight"] = np.array([1.0] * turned + [1e30] * (c.global_head_dim // 2 - turned), np.float32)
    head, blobs, at = b"", [], 0
    for name, x in tensors.items():
        quantise = x.ndim == 2
        b = q8_0(x) if quantise else np.ascontiguousarray(x, np.float32).tobytes()
        head += text(name) + struct.pack("<I", x.ndim) + b"".join(struct.pack("<Q", n) for n in reversed(x.shape)) + struct.pack("<IQ", Q8_0 if quantise else F32, at)
        b += b"\0" * (-len(b) % ALIGN)
        blobs.append(b)
        at += len(b)
    kv = metadata(folder, c)
    top = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(kv)) + b"".join(kv) + head
    with open(out, "wb") as f:
        f.write(top + b"\0" * (-len(top) % ALIGN) + b"".join(blobs))
    print(out, os.path.getsize(out), "bytes,", len(tensors), "tensors")


if __name__ == "__main__":
    main()
