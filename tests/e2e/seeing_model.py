#!/usr/bin/env python3
"""The model of tiny_model.py with eyes and ears: seeing_model.py DIR [eyes] [ears]

Towers as those of E2B, two layers each, with random weights: what it answers means nothing, and depends on every
pixel and sample it was given. The same files every time; Python standard library only."""
import json, os, random, struct, sys

import tiny_model

IDS = {"image": 500, "audio": 501, "video": 502, "boi": 503, "eoi": 504, "boa": 505, "eoa": 506}
NAMES = {500: "<|image|>", 501: "<|audio|>", 502: "<|video|>", 503: "<|image>", 504: "<image|>", 505: "<|audio>", 506: "<audio|>"}
H, LAYERS, HEADS, MLP = 32, 2, 2, 48
VISION = {"model_type": "gemma4_vision", "hidden_size": H, "intermediate_size": MLP, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
          "num_key_value_heads": HEADS, "head_dim": H // HEADS, "hidden_activation": "gelu_pytorch_tanh", "rms_norm_eps": 1e-6,
          "max_position_embeddings": 131072, "attention_bias": False, "attention_dropout": 0.0, "rope_parameters": {"rope_theta": 100.0, "rope_type": "axial"},
          "pooling_kernel_size": 3, "patch_size": 16, "position_embedding_size": 4096, "use_clipped_linears": True, "standardize": False}
AUDIO = {"model_type": "gemma4_audio", "hidden_size": H, "num_hidden_layers": LAYERS, "num_attention_heads": 2, "hidden_act": "silu",
         "subsampling_conv_channels": [128, 4], "conv_kernel_size": 5, "residual_weight": 0.5, "attention_chunk_size": 12,
         "attention_context_left": 13, "attention_context_right": 0, "attention_logit_cap": 50.0, "attention_invalid_logits_value": -1e9,
         "use_clipped_linears": True, "rms_norm_eps": 1e-6, "gradient_clipping": 1e10, "output_proj_dims": 24}


def clipped(name, out, into):
    yield name + ".linear.weight", (out, into)
    for bound in ("input_min", "input_max", "output_min", "output_max"):
        yield f"{name}.{bound}", ()


def vision():
    t = "model.vision_tower."
    yield t + "patch_embedder.input_proj.weight", (H, 768)
    yield t + "patch_embedder.position_embedding_table", (2, VISION["position_embedding_size"], H)
    for i in range(LAYERS):
        p = f"{t}encoder.layers.{i}."
        for norm in ("input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm"):
            yield p + norm + ".weight", (H,)
        for x in "qkvo":
            yield from clipped(f"{p}self_attn.{x}_proj", H, H)
        for x in "qk":
            yield f"{p}self_attn.{x}_norm.weight", (H // HEADS,)
        for x, out, into in (("gate", MLP, H), ("up", MLP, H), ("down", H, MLP)):
            yield from clipped(f"{p}mlp.{x}_proj", out, into)
    yield "model.embed_vision.embedding_projection.weight", (tiny_model.HIDDEN, H)


def audio():
    t = "model.audio_tower."
    channels = AUDIO["subsampling_conv_channels"]
    for i, into in ((0, 1), (1, channels[0])):
        yield f"{t}subsample_conv_projection.layer{i}.conv.weight", (channels[i], into, 3, 3)
        yield f"{t}subsample_conv_projection.layer{i}.norm.weight", (channels[i],)
    yield t + "subsample_conv_projection.input_proj_linear.weight", (H, channels[0] // 4 * channels[1])
    for i in range(LAYERS):
        p = f"{t}layers.{i}."
        for ffw in ("feed_forward1", "feed_forward2"):
            yield f"{p}{ffw}.pre_layer_norm.weight", (H,)
            yield f"{p}{ffw}.post_layer_norm.weight", (H,)
            yield from clipped(f"{p}{ffw}.ffw_layer_1", 4 * H, H)
            yield from clipped(f"{p}{ffw}.ffw_layer_2", H, 4 * H)
        for norm in ("norm_pre_attn", "norm_post_attn", "norm_out"):
            yield f"{p}{norm}.weight", (H,)
        for x in ("q_proj", "k_proj", "v_proj", "post"):
            yield from clipped(f"{p}self_attn.{x}", H, H)
        yield p + "self_attn.relative_k_proj.weight", (H, H)
        yield p + "self_attn.per_dim_scale", (H // AUDIO["num_attention_heads"],)
        yield p + "lconv1d.pre_layer_norm.weight", (H,)
        yield p + "lconv1d.conv_norm.weight", (H,)
        yield p + "lconv1d.depthwise_conv1d.weight", (H, 1, AUDIO["conv_kernel_size"])
        yield from clipped(p + "lconv1d.linear_start", 2 * H, H)
        yield from clipped(p + "lconv1d.linear_end", H, H)
    yield t + "output_proj.weight", (AUDIO["output_proj_dims"], H)
    yield t + "output_proj.bias", (AUDIO["output_proj_dims"],)
    yield "model.embed_audio.embedding_projection.weight", (tiny_model.HIDDEN, AUDIO["output_proj_dims"])


def value(rng, name, shape):
    bound = {"min": -8.0, "max": 8.0}.get(name[-3:])
    if not shape:
        return [bound]
    n = 1
    for d in shape:
        n *= d
    if len(shape) == 1 and "bias" not in name:
        return [rng.uniform(0.5, 1.5) for _ in range(n)]
    # Rows of pictures must weigh as much as those of words, or nothing would depend on them.
    scale = 4.0 / shape[-1] ** 0.5 if "embed_" in name else 1.0 if "table" in name or "bias" in name else 1.5 / (n / shape[0]) ** 0.5
    return [rng.uniform(-scale, scale) for _ in range(n)]


def text(rng):
    for name, shape in tiny_model.shapes():
        n = 1
        for d in shape:
            n *= d
        scale = 1.0 if "embed" in name else 1.5 / shape[-1] ** 0.5
        one = 6.0 if "post_" in name else 1.0
        yield name.replace("model.", "model.language_model.", 1), shape, [one if len(shape) == 1 else rng.uniform(-scale, scale) for _ in range(n)]


def weights(path, towers):
    rng, head, body = random.Random(4), {}, bytearray()
    parts = list(text(rng)) + [(name, shape, value(rng, name, shape)) for tower in towers for name, shape in tower()]
    for name, shape, values in parts:
        data = struct.pack(f"<{len(values)}f", *values)
        head[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text_ = json.dumps(head).encode()
    text_ += b" " * (-len(text_) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text_)) + text_ + body)


def tokenizer():
    t = tiny_model.tokenizer()
    vocab = t["model"]["vocab"]
    for i, name in NAMES.items():
        old = next(p for p, n in vocab.items() if n == i)
        del vocab[old]
        vocab[name] = i
        t["added_tokens"].append({"id": i, "content": name, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True})
    return t


def main(folder, eyes=True, ears=True):
    os.makedirs(folder, exist_ok=True)
    config = {"architectures": ["Gemma4ForConditionalGeneration"], "model_type": "gemma4", "dtype": "float32", "text_config": tiny_model.CONFIG,
              "vision_config": VISION if eyes else None, "audio_config": AUDIO if ears else None, "tie_word_embeddings": True,
              "boi_token_id": IDS["boi"], "eoi_token_id": IDS["eoi"], "image_token_id": IDS["image"], "video_token_id": IDS["video"],
              "boa_token_id": IDS["boa"], "eoa_token_index": IDS["eoa"], "audio_token_id": IDS["audio"], "eos_token_id": [1, 106]}
    # A model that writes a placeholder would say nothing: it may not.
    generation = {"eos_token_id": [1, 106, 50], "temperature": 1.0, "top_k": 64, "top_p": 0.95, "suppress_tokens": sorted(NAMES)}
    for name, v in (("config.json", config), ("tokenizer.json", tokenizer()), ("tokenizer_config.json", {"chat_variant": "small"}),
                    ("generation_config.json", generation)):
        with open(os.path.join(folder, name), "w") as f:
            json.dump(v, f)
    weights(os.path.join(folder, "model.safetensors"), [vision] * eyes + [audio] * ears)


if __name__ == "__main__":
    senses = sys.argv[2:] or ["eyes", "ears"]
    main(sys.argv[1], "eyes" in senses, "ears" in senses)
