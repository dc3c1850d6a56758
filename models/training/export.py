"""Weights to model folders.

    python3 models/training/export.py CHECKPOINT models/pocket           MLX layout, 4 bits, group 64
    python3 models/training/export.py CHECKPOINT build/pocket --bf16     Hugging Face layout

Both hold the same tokenizer. The MLX folder decodes to the values that training computed with.
"""
import json
import os
import shutil
import struct
import sys

import numpy as np
import torch

import model as M
import quant
import train

CODES = {"<u4": "U32", "<u2": "BF16", "<f4": "F32", "<i8": "I64"}


def write_safetensors(path, tensors, fmt):
    """{name: (numpy array, dtype code or None)}; uint16 arrays hold bf16 bits."""
    header, at = {"__metadata__": {"format": fmt}}, 0
    for name, x in sorted(tensors.items()):
        header[name] = {"dtype": CODES[x.dtype.str], "shape": list(x.shape), "data_offsets": [at, at + x.nbytes]}
        at += x.nbytes
    head = json.dumps(header, separators=(",", ":")).encode()
    head += b" " * (-len(head) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(head)) + head)
        for _, x in sorted(tensors.items()):
            f.write(np.ascontiguousarray(x).tobytes())


def read_safetensors(path):
    with open(path, "rb") as f:
        n = struct.unpack("<Q", f.read(8))[0]
        header = json.loads(f.read(n))
        blob = f.read()
    kinds = {v: k for k, v in CODES.items()}
    return {k: np.frombuffer(blob[v["data_offsets"][0]:v["data_offsets"][1]], kinds[v["dtype"]]).reshape(v["shape"])
            for k, v in header.items() if k != "__metadata__"}


def text_config(folder):
    """Of the text model, without what says how it is quantised."""
    with open(os.path.join(folder, "config.json")) as f:
        c = json.load(f)
    return {k: v for k, v in c.get("text_config", c).items() if k not in ("quantization", "quantization_config")}


def dequantized(folder):
    """{name: float32 array} of an MLX folder's text model, named as in a model without towers."""
    with open(os.path.join(folder, "config.json")) as f:
        q = json.load(f)["quantization"]
    t, out = read_safetensors(os.path.join(folder, "model.safetensors")), {}
    for name, x in t.items():
        if name.endswith((".scales", ".biases")) or name.startswith(("model.vision_tower.", "model.embed_vision.")):
            continue
        base, own = name[:-len(".weight")], name.replace("model.language_model.", "model.")
        if x.dtype.str != "<u4":
            out[own] = quant.from_bf16(x) if x.dtype.str == "<u2" else x
            continue
        bits = q.get(base, q)["bits"]
        codes = (x[..., None] >> (np.arange(32 // bits, dtype=np.uint32) * bits)) & (2 ** bits - 1)
        codes = codes.reshape(x.shape[0], -1, quant.GROUP).astype(np.float32)
        s, b = quant.from_bf16(t[base + ".scales"]), quant.from_bf16(t[base + ".biases"])
        out[own] = (codes * s[..., None] + b[..., None]).reshape(x.shape[0], -1)
    return out


def per_layer(c, kinds):
    """As transformers writes it: the numbers padded with zeros to the width of the largest."""
    full = [i for i, k in enumerate(kinds) if k == M.FULL]
    return {str(i).zfill(len(str(full[-1]))): {"head_dim": c.global_head_dim} for i in full}


def config(c):
    kinds = c.kinds()
    return {
        "architectures": ["Gemma4ForCausalLM"], "model_type": "gemma4_text", "dtype": "bfloat16", "transformers_version": "5.17.0",
        "vocab_size": c.vocab_size, "vocab_size_per_layer_input": c.vocab_size, "hidden_size": c.hidden_size,
        "intermediate_size": c.intermediate_size, "num_hidden_layers": c.num_hidden_layers, "num_attention_heads": c.num_attention_heads,
        "num_key_value_heads": c.num_key_value_heads, "num_global_key_value_heads": None, "head_dim": c.head_dim,
        "global_head_dim": c.global_head_dim, "per_layer_config": per_layer(c, kinds),
        "hidden_size_per_layer_input": c.hidden_size_per_layer_input, "num_kv_shared_layers": c.num_kv_shared_layers,
        "use_double_wide_mlp": True, "layer_types": kinds, "sliding_window": c.sliding_window, "attention_k_eq_v": False,
        "attention_bias": False, "attention_dropout": 0.0, "enable_moe_block": False, "num_experts": None, "top_k_experts": None,
        "moe_intermediate_size": None, "hidden_activation": "gelu_pytorch_tanh", "rms_norm_eps": 1e-06, "initializer_range": 0.02,
        "max_position_embeddings": 8192, "final_logit_softcapping": c.final_logit_softcapping, "tie_word_embeddings": True,
        "use_bidirectional_attention": None, "use_cache": True, "pad_token_id": 0, "eos_token_id": [1, 106], "bos_token_id": 2,
        "rope_parameters": {
            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
            "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1000000.0}}}


def dump(path, x):
    with open(path, "w") as f:
        json.dump(x, f, indent=1)
        f.write("\n")


def companions(out, tokenizer):
    os.makedirs(out, exist_ok=True)
    target = os.path.join(out, "tokenizer.json")
    if os.path.abspath(tokenizer) != os.path.abspath(target):
        shutil.copyfile(tokenizer, target)
    dump(os.path.join(out, "generation_config.json"), {"bos_token_id": 2, "pad_token_id": 0, "eos_token_id": [1, 106, 50], "do_sample": True,
                                                       "temperature": 1.0, "top_k": 64, "top_p": 0.95, "transformers_version": "5.17.0"})
    dump(os.path.join(out, "tokenizer_config.json"), {
        "tokenizer_class": "PreTrainedTokenizerFast", "chat_variant": "small", "add_bos_token": False, "add_eos_token": False, "clean_up_tokenization_spaces": False,
        "model_max_length": 8192, "padding_side": "left", "bos_token": "<bos>", "eos_token": "<eos>", "pad_token": "<pad>", "unk_token": "<unk>", "mask_token": "<mask>"})


def quantized(named, prefix="model.", plan=quant.plan):
    """named: {parameter name: tensor}. (tensors of an MLX file, module path -> bits)"""
    tensors, bits_of = {}, {}
    for name, p in named.items():
        x, full = p.detach().float().cpu().numpy(), prefix + name
        if x.ndim == 2 and name.endswith(".weight"):
            base = full[:-len(".weight")]
            bits = plan(base)
            w, s, b, _ = quant.quantize(x, bits)
            tensors[full], tensors[base + ".scales"], tensors[base + ".biases"] = w, s, b
            bits_of[base] = bits
        else:
            tensors[full] = quant.to_bf16(x)
    return tensors, bits_of


def quantization(bits_of):
    q = {"group_size": quant.GROUP, "bits": 4, "mode": "affine"}
    q.update({k: {"group_size": quant.GROUP, "bits": b} for k, b in sorted(bits_of.items()) if b != 4})
    return q


def main():
    checkpoint, out = sys.argv[1:3]
    c = M.Config()
    model = M.Model(c)
    train.load(model, checkpoint)
    companions(out, os.environ.get("TOKENIZER", "models/pocket/tokenizer.json"))
    cfg, named = config(c), dict(model.named_parameters())
    if "--bf16" in sys.argv:
        tensors, fmt = {"model." + n: quant.to_bf16(p.detach().float().numpy()) for n, p in named.items()}, "pt"
    else:
        tensors, bits_of = quantized(named)
        cfg["quantization"] = cfg["quantization_config"] = quantization(bits_of)
        fmt = "mlx"
    dump(os.path.join(out, "config.json"), cfg)
    write_safetensors(os.path.join(out, "model.safetensors"), tensors, fmt)
    print(out, os.path.getsize(os.path.join(out, "model.safetensors")), "bytes,", sum(p.numel() for p in named.values()), "parameters")


if __name__ == "__main__":
    main()
