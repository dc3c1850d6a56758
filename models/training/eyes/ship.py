"""Puts trained eyes into a model folder. No byte of the text model's tensors changes; their names gain
"language_model.", as models with towers have them.

    python3 models/training/eyes/ship.py CHECKPOINT models/pocket
"""
import json
import os
import sys

import numpy as np
import torch

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import export  # noqa: E402
import quant  # noqa: E402

import asking  # noqa: E402
import tower as T  # noqa: E402

BUDGET = 70
NAMES = {asking.BOI: "<|image>", asking.IMAGE: "<|image|>", asking.EOI: "<image|>"}
OWN = ("model.vision_tower.", "model.embed_vision.")


def within(name):
    """Name of a text model's tensor or module in a model with towers."""
    return name if name.startswith("model.language_model.") else "model.language_model." + name[len("model."):]


def tensors(folder, checkpoint):
    out = {within(k): v for k, v in export.read_safetensors(os.path.join(folder, "model.safetensors")).items() if not k.startswith(OWN)}
    for name, p in torch.load(os.path.join(checkpoint, "eyes.pt"), map_location="cpu").items():
        out["model." + name] = quant.to_bf16(p.float().numpy())
    with open(os.path.join(checkpoint, "bounds.json")) as f:
        bounds = json.load(f)
    for module, four in bounds.items():
        for key, v in zip(("input_min", "input_max", "output_min", "output_max"), four):
            out[f"model.{module}.{key}"] = quant.to_bf16(np.float32(v)).reshape(())
    return out


def config(old):
    text = old.get("text_config") or {k: v for k, v in old.items() if k not in ("architectures", "transformers_version", "quantization", "quantization_config")}
    q = {within(k) if k.startswith("model.") else k: v for k, v in old["quantization"].items()}
    c = T.Config()
    return {
        "architectures": ["Gemma4ForConditionalGeneration"], "model_type": "gemma4", "dtype": "bfloat16", "transformers_version": "5.17.0",
        "boi_token_id": asking.BOI, "image_token_id": asking.IMAGE, "eoi_token_id": asking.EOI, "eos_token_id": [1, 106], "tie_word_embeddings": True,
        "text_config": text, "audio_config": None,
        "vision_config": {
            "model_type": "gemma4_vision", "dtype": "bfloat16", "hidden_size": c.hidden_size, "intermediate_size": c.intermediate_size,
            "num_hidden_layers": c.num_hidden_layers, "num_attention_heads": c.num_attention_heads, "num_key_value_heads": c.num_attention_heads,
            "head_dim": c.head_dim, "hidden_activation": "gelu_pytorch_tanh", "rms_norm_eps": 1e-06, "max_position_embeddings": 131072,
            "attention_bias": False, "attention_dropout": 0.0, "rope_parameters": {"rope_type": "axial", "rope_theta": c.rope_theta},
            "patch_size": T.PATCH, "pooling_kernel_size": T.POOL, "position_embedding_size": c.position_embedding_size,
            "use_clipped_linears": True, "standardize": False, "initializer_range": 0.02},
        "quantization": q, "quantization_config": q}


def processor():
    return {"processor_class": "Gemma4Processor", "image_seq_length": BUDGET, "image_processor": {
        "image_processor_type": "Gemma4ImageProcessor", "do_convert_rgb": True, "do_resize": True, "do_rescale": True, "rescale_factor": 1 / 255,
        "do_normalize": False, "image_mean": [0.0, 0.0, 0.0], "image_std": [1.0, 1.0, 1.0], "resample": 3,
        "patch_size": T.PATCH, "pooling_kernel_size": T.POOL, "max_soft_tokens": BUDGET}}


def name_tokens(path):
    """Three unused tokens get their names; every id stays where it is."""
    with open(path, encoding="utf-8") as f:
        t = json.load(f)
    for a in t["added_tokens"]:
        a["content"] = NAMES.get(a["id"], a["content"])
    vocab = {NAMES.get(i, p): i for p, i in t["model"]["vocab"].items()}
    assert sorted(vocab.values()) == sorted(t["model"]["vocab"].values())
    t["model"]["vocab"] = vocab
    with open(path, "w", encoding="utf-8") as f:
        json.dump(t, f, ensure_ascii=False, indent=1)
        f.write("\n")


def main():
    checkpoint, folder = sys.argv[1:3]
    path = os.path.join(folder, "config.json")
    new = tensors(folder, checkpoint)
    export.write_safetensors(os.path.join(folder, "model.safetensors"), new, "mlx")
    with open(path) as f:
        old = json.load(f)
    export.dump(path, config(old))
    export.dump(os.path.join(folder, "processor_config.json"), processor())
    name_tokens(os.path.join(folder, "tokenizer.json"))
    path = os.path.join(folder, "tokenizer_config.json")
    with open(path) as f:
        t = json.load(f)
    t.update({"boi_token": NAMES[asking.BOI], "image_token": NAMES[asking.IMAGE], "eoi_token": NAMES[asking.EOI]})
    export.dump(path, t)
    print(folder, os.path.getsize(os.path.join(folder, "model.safetensors")), "bytes")


if __name__ == "__main__":
    main()
