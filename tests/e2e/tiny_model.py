#!/usr/bin/env python3
"""Writes a tiny random Gemma 4 checkpoint with a byte-level tokenizer: tiny_model.py DIR

For tests of everything around a model where there is no trained one: its answers mean nothing
but are as reproducible as any. The same files every time; Python standard library only."""
import json, os, random, struct, sys

VOCAB, HIDDEN, LAYERS, HEADS, KV_HEADS, HEAD, FULL_HEAD, MLP = 512, 64, 4, 2, 1, 32, 64, 128
NAMED = {0: "<pad>", 1: "<eos>", 2: "<bos>", 3: "<unk>", 4: "<mask>", 46: "<|tool>", 47: "<tool|>", 48: "<|tool_call>",
         49: "<tool_call|>", 50: "<|tool_response>", 51: "<tool_response|>", 52: '<|"|>', 98: "<|think|>",
         100: "<|channel>", 101: "<channel|>", 105: "<|turn>", 106: "<turn|>"}


def tokenizer():
    pieces = [NAMED.get(i, f"<unused{i}>") for i in range(107)] + ["\n"]
    pieces += [f"<0x{b:02X}>" for b in range(256)]
    pieces += ["\u2581"] + [chr(c) for c in range(33, 127)] + ["th", "he", "in"]
    pieces += [f"<pad{i}>" for i in range(len(pieces), VOCAB)]
    special = lambda i: {"id": i, "content": pieces[i], "single_word": False, "lstrip": False, "rstrip": False,
                         "normalized": False, "special": True}
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [special(i) for i in range(107)],
        "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"},
        "pre_tokenizer": {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False},
        "post_processor": None,
        "decoder": {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "},
                                                     {"type": "ByteFallback"}, {"type": "Fuse"}]},
        "model": {"type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": True, "byte_fallback": True,
                  "vocab": {p: i for i, p in enumerate(pieces)}, "merges": [["t", "h"], ["h", "e"], ["i", "n"]]},
    }


KINDS = ["full_attention" if i % 2 else "sliding_attention" for i in range(LAYERS)]
CONFIG = {
    "architectures": ["Gemma4ForCausalLM"], "model_type": "gemma4_text", "dtype": "float32", "vocab_size": VOCAB,
    "hidden_size": HIDDEN, "intermediate_size": MLP, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS, "head_dim": HEAD, "per_layer_config": {f"{i:02d}": {"head_dim": FULL_HEAD} for i in range(LAYERS) if i % 2},
    "hidden_activation": "gelu_pytorch_tanh", "max_position_embeddings": 4096, "rms_norm_eps": 1e-6, "pad_token_id": 0,
    "eos_token_id": [1, 106], "bos_token_id": 2, "tie_word_embeddings": True, "sliding_window": 64, "layer_types": KINDS,
    "rope_parameters": {"sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
                        "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1000000.0}},
    "final_logit_softcapping": 30.0, "hidden_size_per_layer_input": 0, "vocab_size_per_layer_input": VOCAB,
    "attention_k_eq_v": False, "num_kv_shared_layers": 0, "enable_moe_block": False, "use_double_wide_mlp": False,
    "num_experts": None, "top_k_experts": None, "moe_intermediate_size": None,
}


def shapes():
    yield "model.embed_tokens.weight", (VOCAB, HIDDEN)
    yield "model.norm.weight", (HIDDEN,)
    for i, kind in enumerate(KINDS):
        head = FULL_HEAD if kind == "full_attention" else HEAD
        p = f"model.layers.{i}."
        for norm in ("input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm"):
            yield p + norm + ".weight", (HIDDEN,)
        yield p + "layer_scalar", (1,)
        yield p + "mlp.gate_proj.weight", (MLP, HIDDEN)
        yield p + "mlp.up_proj.weight", (MLP, HIDDEN)
        yield p + "mlp.down_proj.weight", (HIDDEN, MLP)
        yield p + "self_attn.q_proj.weight", (HEADS * head, HIDDEN)
        yield p + "self_attn.k_proj.weight", (KV_HEADS * head, HIDDEN)
        yield p + "self_attn.v_proj.weight", (KV_HEADS * head, HIDDEN)
        yield p + "self_attn.o_proj.weight", (HIDDEN, HEADS * head)
        yield p + "self_attn.q_norm.weight", (head,)
        yield p + "self_attn.k_norm.weight", (head,)


def weights(path):
    rng, head, body = random.Random(4), {}, bytearray()
    for name, shape in shapes():
        n = 1
        for d in shape:
            n *= d
        plain = len(shape) == 1  # norms and scalars
        scale = 1.0 if "embed" in name else 1.5 / shape[-1] ** 0.5
        # What layers add outweighs the embedding, or the model would repeat its last token for ever.
        one = 6.0 if "post_" in name else 1.0
        data = struct.pack(f"<{n}f", *((one if plain else rng.uniform(-scale, scale)) for _ in range(n)))
        head[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + body)


def main(folder):
    os.makedirs(folder, exist_ok=True)
    for name, value in (("config.json", CONFIG), ("tokenizer.json", tokenizer()), ("tokenizer_config.json", {"chat_variant": "small"}),
                        ("generation_config.json", {"eos_token_id": [1, 106, 50], "temperature": 1.0, "top_k": 64, "top_p": 0.95})):
        with open(os.path.join(folder, name), "w") as f:
            json.dump(value, f)
    weights(os.path.join(folder, "model.safetensors"))


if __name__ == "__main__":
    main(sys.argv[1])
