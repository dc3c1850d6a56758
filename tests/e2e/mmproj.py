"""The towers of a folder as other programs store them: llama.cpp's file beside a GGUF, and the names of mlx-vlm in a folder.
Restated from llama.cpp's converter (Gemma4VisionAudioModel) and mlx-vlm (models/gemma4). Standard library only."""
import json, math, os, re, struct

FIXED = {"vision_tower.patch_embedder.input_proj.weight": "v.patch_embd.weight", "vision_tower.patch_embedder.position_embedding_table": "v.position_embd.weight",
         "embed_vision.embedding_projection.weight": "mm.input_projection.weight", "embed_audio.embedding_projection.weight": "mm.a.input_projection.weight",
         "audio_tower.subsample_conv_projection.layer0.conv.weight": "a.conv1d.0.weight", "audio_tower.subsample_conv_projection.layer1.conv.weight": "a.conv1d.1.weight",
         "audio_tower.subsample_conv_projection.layer0.norm.weight": "a.conv1d.0.norm.weight", "audio_tower.subsample_conv_projection.layer1.norm.weight": "a.conv1d.1.norm.weight",
         "audio_tower.subsample_conv_projection.input_proj_linear.weight": "a.input_projection.weight", "audio_tower.output_proj.weight": "a.pre_encode.out.weight",
         "audio_tower.output_proj.bias": "a.pre_encode.out.bias"}
VISION = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_out", "self_attn.q_norm": "attn_q_norm",
          "self_attn.k_norm": "attn_k_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "input_layernorm": "ln1",
          "post_attention_layernorm": "attn_post_norm", "pre_feedforward_layernorm": "ln2", "post_feedforward_layernorm": "ffn_post_norm"}
AUDIO = {"feed_forward1.pre_layer_norm": "ffn_norm", "feed_forward1.post_layer_norm": "ffn_post_norm", "feed_forward1.ffw_layer_1": "ffn_up", "feed_forward1.ffw_layer_2": "ffn_down",
         "feed_forward2.pre_layer_norm": "ffn_norm_1", "feed_forward2.post_layer_norm": "ffn_post_norm_1", "feed_forward2.ffw_layer_1": "ffn_up_1", "feed_forward2.ffw_layer_2": "ffn_down_1",
         "norm_pre_attn": "attn_pre_norm", "norm_post_attn": "attn_post_norm", "norm_out": "ln2", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
         "self_attn.v_proj": "attn_v", "self_attn.post": "attn_out", "self_attn.relative_k_proj": "attn_k_rel", "self_attn.per_dim_scale": "per_dim_scale.weight",
         "lconv1d.pre_layer_norm": "conv_norm", "lconv1d.conv_norm": "norm_conv", "lconv1d.linear_start": "conv_pw1", "lconv1d.linear_end": "conv_pw2",
         "lconv1d.depthwise_conv1d": "conv_dw"}
IS_TOWER = re.compile(r"(vision_tower|embed_vision|audio_tower|embed_audio)\.")


def read(path):
    """name -> (dtype, shape, bytes) of a safetensors file."""
    with open(path, "rb") as f:
        head = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        body = f.read()
    return {n: (t["dtype"], t["shape"], body[slice(*t["data_offsets"])]) for n, t in head.items() if n != "__metadata__"}


def write(path, tensors):
    head, at = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        head[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(t[2] for t in tensors.values()))


def towers(folder):
    """Those of a folder of transformers, without "model."."""
    tensors = read(os.path.join(folder, "model.safetensors"))
    return {n.removeprefix("model."): t for n, t in tensors.items() if IS_TOWER.match(n.removeprefix("model."))}


def to_mlx(source, folder):
    """Puts the towers of source beside the text model of folder, which is one of mlx-lm."""
    at, index = os.path.join(folder, "model.safetensors"), os.path.join(folder, "model.safetensors.index.json")
    write(at, {**read(at), **towers(source)})
    if os.path.exists(index):
        os.unlink(index)
    with open(os.path.join(source, "config.json")) as f:
        whole = json.load(f)
    with open(os.path.join(folder, "config.json")) as f:
        config = json.load(f)
    config.update({k: v for k, v in whole.items() if k.endswith(("_token_id", "_token_index", "vision_config", "audio_config"))})
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump(config, f)


def gguf_name(name):
    if name in FIXED:
        return FIXED[name]
    tower, layer, rest = re.fullmatch(r"(vision_tower\.encoder|audio_tower)\.layers\.(\d+)\.(.*)", name).groups()
    names, letter = (VISION, "v") if tower.startswith("vision") else (AUDIO, "a")
    module = next(m for m in names if rest == m or rest.startswith(m + "."))
    return f"{letter}.blk.{layer}.{names[module]}{rest[len(module):].replace('.linear', '', 1)}"


def floats(data):
    return list(struct.unpack(f"<{len(data) // 4}f", data))


def stored(name, shape, data):
    """(shape, bytes) as the file has them: the patches' weights with channels outermost, the scale through softplus."""
    if name == "v.patch_embd.weight":
        rows, side, v = shape[0], math.isqrt(shape[1] // 3), floats(data)
        pixels = side * side
        out = [v[(r * pixels + p) * 3 + c] for r in range(rows) for c in range(3) for p in range(pixels)]
        return [rows, 3, side, side], struct.pack(f"<{len(out)}f", *out)
    if name.endswith("per_dim_scale.weight"):
        return shape, b"".join(struct.pack("<f", math.log1p(math.exp(x))) for x in floats(data))
    return shape or [1], data


def to_gguf(source, path):
    """Writes the towers of a folder of f32 as the file beside a GGUF."""
    with open(os.path.join(source, "config.json")) as f:
        config = json.load(f)
    text = lambda s: struct.pack("<Q", len(s)) + s.encode()
    meta = [text("general.architecture") + struct.pack("<I", 8) + text("clip")]
    for sense, key, names in (("vision", "vision_config", ("num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads", "patch_size")),
                              ("audio", "audio_config", ("num_hidden_layers", "hidden_size", None, "num_attention_heads", None))):
        for ours, theirs in zip(names, ("block_count", "embedding_length", "feed_forward_length", "attention.head_count", "patch_size")):
            if ours:
                meta.append(text(f"clip.{sense}.{theirs}") + struct.pack("<II", 4, config[key][ours]))
    meta.append(text("clip.vision.attention.layer_norm_epsilon") + struct.pack("<If", 6, 1e-6))
    infos, body = [], bytearray()
    for name, (dtype, shape, data) in towers(source).items():
        assert dtype == "F32", name
        theirs = gguf_name(name)
        shape, data = stored(theirs, shape, data)
        infos.append(text(theirs) + struct.pack("<I", len(shape)) + b"".join(struct.pack("<Q", d) for d in reversed(shape)) + struct.pack("<IQ", 0, len(body)))
        body += data + bytes(-len(data) % 32)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(infos), len(meta)) + b"".join(meta) + b"".join(infos)
    with open(path, "wb") as f:
        f.write(head + bytes(-len(head) % 32) + body)
