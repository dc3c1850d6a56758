"""Towers for pictures and sounds of the published shapes, with random weights, put into a folder of real shape; and
what a picture and a sound become before a tower: patches with places, log-mel rows or runs of samples."""
import json
import os
import struct
import wave
import zlib

import numpy as np

from folder import narrow

TOKENS = {"image": 258880, "audio": 258881, "boi": 255999, "eoi": 258882, "boa": 256000, "eoa": 258883}
SIDE = 48  # pixels of a token's square: 3 x 3 patches of 16
RATE = 16000
CLIP = 3.0  # bounds of clipped products: some of what is normed reaches them
SMALL = {"hidden_size": 768, "num_hidden_layers": 16, "num_attention_heads": 12, "num_key_value_heads": 12, "head_dim": 64,
         "intermediate_size": 3072, "use_clipped_linears": True, "standardize": False}
LARGE = {"hidden_size": 1152, "num_hidden_layers": 27, "num_attention_heads": 16, "num_key_value_heads": 16, "head_dim": 72,
         "intermediate_size": 4304, "use_clipped_linears": False, "standardize": True}
HEARING = {"model_type": "gemma4_audio", "hidden_size": 1024, "num_hidden_layers": 12, "num_attention_heads": 8,
           "subsampling_conv_channels": [128, 32], "output_proj_dims": 1536, "use_clipped_linears": True}
SEEING = {"e2b": SMALL, "e4b": SMALL, "26b": LARGE, "31b": LARGE}
MUTUAL = "12b", "26b", "31b"  # rows of a picture see each other in layers with a window


def linear(name, out, into, clipped):
    if not clipped:
        return [(name + ".linear.weight", (out, into))]
    return [(name + ".linear.weight", (out, into))] + [
        (f"{name}.{x}put_{y}", ()) for x in ("in", "out") for y in ("min", "max")]


def vision(c, layers):
    h, m, clip, t = c["hidden_size"], c["intermediate_size"], c["use_clipped_linears"], "model.vision_tower."
    out = [(t + "patch_embedder.input_proj.weight", (h, 768)),
           (t + "patch_embedder.position_embedding_table", (2, 10240, h))]
    for i in range(layers):
        p = f"{t}encoder.layers.{i}."
        out += [(f"{p}{x}layernorm.weight", (h,))
                for x in ("input_", "post_attention_", "pre_feedforward_", "post_feedforward_")]
        for x in "qkvo":
            out += linear(f"{p}self_attn.{x}_proj", h, h, clip)
        out += [(f"{p}self_attn.{x}_norm.weight", (c["head_dim"],)) for x in "qk"]
        for x, rows, into in (("gate", m, h), ("up", m, h), ("down", h, m)):
            out += linear(f"{p}mlp.{x}_proj", rows, into, clip)
    return out + ([(t + "std_bias", (h,)), (t + "std_scale", (h,))] if c["standardize"] else [])


def audio(layers):
    h, t = HEARING["hidden_size"], "model.audio_tower."
    first, second = HEARING["subsampling_conv_channels"]
    out = [(f"{t}subsample_conv_projection.layer0.conv.weight", (first, 1, 3, 3)),
           (f"{t}subsample_conv_projection.layer0.norm.weight", (first,)),
           (f"{t}subsample_conv_projection.layer1.conv.weight", (second, first, 3, 3)),
           (f"{t}subsample_conv_projection.layer1.norm.weight", (second,)),
           (f"{t}subsample_conv_projection.input_proj_linear.weight", (h, first // 4 * second))]
    for i in range(layers):
        p = f"{t}layers.{i}."
        for x in ("feed_forward1", "feed_forward2"):
            out += [(f"{p}{x}.{y}_layer_norm.weight", (h,)) for y in ("pre", "post")]
            out += linear(f"{p}{x}.ffw_layer_1", 4 * h, h, True) + linear(f"{p}{x}.ffw_layer_2", h, 4 * h, True)
        out += [(f"{p}norm_{x}.weight", (h,)) for x in ("pre_attn", "post_attn", "out")]
        for x in ("q_proj", "k_proj", "v_proj", "post"):
            out += linear(f"{p}self_attn.{x}", h, h, True)
        out += [(p + "self_attn.relative_k_proj.weight", (h, h)), (p + "self_attn.per_dim_scale", (h // 8,)),
                (p + "lconv1d.pre_layer_norm.weight", (h,)), (p + "lconv1d.conv_norm.weight", (h,)),
                (p + "lconv1d.depthwise_conv1d.weight", (h, 1, 5))]
        out += linear(p + "lconv1d.linear_start", 2 * h, h, True) + linear(p + "lconv1d.linear_end", h, h, True)
    return out + [(t + "output_proj.weight", (1536, h)), (t + "output_proj.bias", (1536,))]


def value(rng, name, shape):
    if not shape:
        return np.float32(-CLIP if name.endswith("min") else CLIP)
    x = rng.standard_normal(shape, dtype=np.float32)
    if "position_embedding_table" in name:
        return x * np.float32(0.1)
    if len(shape) > 1:
        return x / np.float32(np.sqrt(np.prod(shape[1:])))
    if name.endswith(("bias", "per_dim_scale")):
        return x * np.float32(0.1)
    gain = 0.3 if "post_" in name or "norm_post" in name else 0.25 if "q_norm" in name else 1.0
    return np.float32(gain) * (1 + np.float32(0.1) * x)


def write(path, tensors):
    """tensors: name and float32 values. All are stored in bf16."""
    head, at, parts = {}, 0, []
    for name, x in tensors:
        data = narrow(x).reshape(x.shape)
        head[name] = {"dtype": "BF16", "shape": list(x.shape), "data_offsets": [at, at + data.nbytes]}
        at += data.nbytes
        parts.append(data)
    text = json.dumps({"__metadata__": {"format": "pt"}, **head}).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for data in parts:
            f.write(data.tobytes())


def add(folder, model, layers=None):
    """Puts the towers of model (e2b, e4b, 26b, 31b) into folder. layers: of each tower at most so many."""
    eyes, hidden, rng = SEEING[model], folder.text["hidden_size"], np.random.default_rng(11)
    n = min(layers or 99, eyes["num_hidden_layers"])
    shapes = vision(eyes, n) + [("model.embed_vision.embedding_projection.weight", (hidden, eyes["hidden_size"]))]
    c = dict(folder.config, vision_config={"model_type": "gemma4_vision", **eyes, "num_hidden_layers": n})
    if eyes is SMALL:
        m = min(layers or 99, HEARING["num_hidden_layers"])
        shapes += audio(m) + [("model.embed_audio.embedding_projection.weight", (hidden, 1536))]
        c["audio_config"] = {**HEARING, "num_hidden_layers": m}
    if model in MUTUAL:
        c["text_config"] = dict(folder.text, use_bidirectional_attention="vision")
    c.update(image_token_id=TOKENS["image"], audio_token_id=TOKENS["audio"], boi_token_id=TOKENS["boi"],
             eoi_token_id=TOKENS["eoi"], boa_token_id=TOKENS["boa"], eoa_token_index=TOKENS["eoa"], video_token_id=258884)
    write(os.path.join(folder.path, "towers.safetensors"), ((name, value(rng, name, s)) for name, s in shapes))
    index, where = os.path.join(folder.path, "model.safetensors.index.json"), {"metadata": {}, "weight_map": {}}
    if os.path.exists(index):
        with open(index) as f:
            where = json.load(f)
    else:
        where["weight_map"].update({name: "model.safetensors" for name in folder.names})
    where["weight_map"].update({name: "towers.safetensors" for name, _ in shapes})
    with open(index, "w") as f:
        json.dump(where, f)
    with open(os.path.join(folder.path, "config.json"), "w") as f:
        json.dump(c, f)


def picture(width, height):
    """RGB bytes, height x width x 3: waves, edges and noise."""
    y, x, c = np.meshgrid(np.arange(height), np.arange(width), np.arange(3), indexing="ij")
    z = 128 + 60 * np.sin(x / 37 + c) * np.cos(y / (23 + 5 * c)) + 40 * ((x // 64 + y // 48) % 2)
    return np.clip(z + np.random.default_rng(5).normal(0, 8, z.shape), 0, 255).astype(np.uint8)


def save_png(path, rgb):
    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    rows = np.concatenate([np.zeros((len(rgb), 1), np.uint8), rgb.reshape(len(rgb), -1)], 1)
    head = struct.pack(">IIBBBBB", rgb.shape[1], rgb.shape[0], 8, 2, 0, 0, 0)
    with open(path, "wb") as f:
        f.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows.tobytes(), 1)) + chunk(b"IEND", b""))


def patches(rgb, side=16):
    """Patches x values in 0 to 1, and the column and line of each."""
    lines, columns = rgb.shape[0] // side, rgb.shape[1] // side
    x = rgb.astype(np.float32) * np.float32(1 / 255)
    x = x.reshape(lines, side, columns, side, 3).transpose(0, 2, 1, 3, 4).reshape(lines * columns, -1)
    at = np.stack(np.meshgrid(np.arange(columns), np.arange(lines), indexing="xy"), -1).reshape(-1, 2)
    return x, at


def sound(seconds):
    """int16 samples: a rising tone with beats, and noise."""
    t = np.arange(int(seconds * RATE)) / RATE
    x = 9000 * np.sin(2 * np.pi * (200 + 300 * t) * t) * (0.6 + 0.4 * np.sin(9 * t))
    return (x + np.random.default_rng(6).normal(0, 400, t.shape)).astype(np.int16)


def save_wav(path, samples):
    with wave.open(path, "wb") as f:
        f.setnchannels(1), f.setsampwidth(2), f.setframerate(RATE)
        f.writeframes(samples.astype("<i2").tobytes())


def log_mel(samples):
    """Rows of 128 bins, 100 per second, in float64 rounded once."""
    n, frames = len(samples), (len(samples) - 1) // 160
    x = np.concatenate([np.zeros(160), samples / 32768.0, np.zeros(320)])
    window = (0.5 - 0.5 * np.cos(2 * np.pi * np.arange(320) / 320)).astype(np.float32).astype(np.float64)
    cut = np.stack([x[160 * i:160 * i + 320] for i in range(frames)]) * window
    power = np.abs(np.fft.rfft(cut, 512, axis=1))
    edge = 700 * (10 ** (np.linspace(0, 2595 * np.log10(1 + 8000 / 700), 130) / 2595) - 1)
    bins = np.arange(257)[:, None] * RATE / 512
    rise, fall = (bins - edge[:-2]) / (edge[1:-1] - edge[:-2]), (edge[2:] - bins) / (edge[2:] - edge[1:-1])
    return np.log(power @ np.maximum(0, np.minimum(rise, fall)) + 0.001).astype(np.float32)


def moved(x):
    """x, each value by one unit in the last place further from zero."""
    return np.nextafter(x, np.copysign(np.float32(np.inf), x), dtype=np.float32)


def content(kind, n):
    """A picture's or a sound's n tokens between its marks."""
    begin, end = ("boi", "eoi") if kind == "image" else ("boa", "eoa")
    return [TOKENS[begin]] + [TOKENS[kind]] * n + [TOKENS[end]]
