"""What mlx-lm asks of a folder of Gemma 4, restated from its sources (gemma4.py, gemma4_text.py and load_model in utils.py,
commit d78bf58e): the parameters that its classes have, in names and shapes, since it loads them with strict=True. mlx-lm
itself needs another machine. Standard library only."""
import glob, json, os, struct


def of_layer(c, i, key, in_full):
    """A size of layer i: per_layer_config counts alone where it stands, its numbers with zeros in front or without; else in_full is
    the key of full layers."""
    own = {int(k): v for k, v in (c.get("per_layer_config") or {}).items()}
    if own:
        return own.get(i, {}).get(key, c[key])
    return (in_full and c.get(in_full)) or c[key]


def plain(config):
    """The parameters before anything is quantised: name -> shape; and which modules can be quantised."""
    nested = config["model_type"] == "gemma4"
    c = dict(config["text_config"], vocab_size=config.get("vocab_size", 262144)) if nested else config
    top = "language_model.model." if nested else "model."
    hidden, heads, layers, p = c["hidden_size"], c["num_attention_heads"], c["num_hidden_layers"], c["hidden_size_per_layer_input"]
    first_shared = layers - c["num_kv_shared_layers"]
    vectors, modules = {top + "norm.weight": [hidden]}, {top + "embed_tokens": [c["vocab_size"], hidden]}
    if p:
        modules[top + "embed_tokens_per_layer"] = [c["vocab_size_per_layer_input"], layers * p]
        modules[top + "per_layer_model_projection"] = [layers * p, hidden]
        vectors[top + "per_layer_projection_norm.weight"] = [p]
    for i, kind in enumerate(c["layer_types"]):
        at, full = f"{top}layers.{i}.", kind == "full_attention"
        head = of_layer(c, i, "head_dim", full and "global_head_dim")
        equal = c["attention_k_eq_v"] and full
        kv = of_layer(c, i, "num_key_value_heads", equal and "num_global_key_value_heads")
        wide = c["intermediate_size"] * (2 if c["use_double_wide_mlp"] and i >= first_shared > 0 else 1)
        modules.update({at + "self_attn.q_proj": [heads * head, hidden], at + "self_attn.o_proj": [hidden, heads * head],
                        at + "mlp.gate_proj": [wide, hidden], at + "mlp.up_proj": [wide, hidden], at + "mlp.down_proj": [hidden, wide]})
        vectors[at + "self_attn.q_norm.weight"] = [head]
        if i < first_shared:
            vectors[at + "self_attn.k_norm.weight"] = [head]
            modules[at + "self_attn.k_proj"] = [kv * head, hidden]
            if not equal:
                modules[at + "self_attn.v_proj"] = [kv * head, hidden]
        norms = ["input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm"]
        if c["enable_moe_block"]:
            norms += ["post_feedforward_layernorm_1", "post_feedforward_layernorm_2", "pre_feedforward_layernorm_2"]
            n, width = c["num_experts"], c["moe_intermediate_size"]
            vectors[at + "router.scale"], vectors[at + "router.per_expert_scale"] = [hidden], [n]
            modules[at + "router.proj"] = [n, hidden]
            for name, shape in (("gate_proj", [n, width, hidden]), ("up_proj", [n, width, hidden]), ("down_proj", [n, hidden, width])):
                modules[f"{at}experts.switch_glu.{name}"] = shape
        if p:
            modules[at + "per_layer_input_gate"], modules[at + "per_layer_projection"] = [p, hidden], [hidden, p]
            norms.append("post_per_layer_input_norm")
        vectors.update({f"{at}{norm}.weight": [hidden] for norm in norms})
        vectors[at + "layer_scalar"] = [1]
    return vectors, modules


def stored(folder):
    out = {}
    for path in glob.glob(os.path.join(folder, "model*.safetensors")):
        with open(path, "rb") as f:
            head = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        head.pop("__metadata__", None)
        out.update({name: (t["dtype"], t["shape"]) for name, t in head.items()})
    return out


def sanitized(tensors, nested):
    """As mlx-lm's sanitize renames what transformers calls otherwise."""
    out = {}
    for name, (kind, shape) in tensors.items():
        if nested and name.startswith("model."):
            name = name[len("model."):].replace("language_model.", "language_model.model.")
        if name.endswith(".experts.gate_up_proj"):
            for part in ("gate_proj", "up_proj"):
                out[name.replace("gate_up_proj", f"switch_glu.{part}.weight")] = (kind, [shape[0], shape[1] // 2, shape[2]])
        else:
            out[name.replace(".experts.down_proj", ".experts.switch_glu.down_proj.weight") if name.endswith(".experts.down_proj") else name] = (kind, shape)
    return out


def problems(folder):
    """Why mlx-lm would not load it; nothing where it would."""
    config, wrong = json.load(open(os.path.join(folder, "config.json"))), []
    has = sanitized(stored(folder), config["model_type"] == "gemma4")
    quantization = config.get("quantization") or {}
    vectors, modules = plain(config)
    want = {name: (("F32", "F16", "BF16"), shape) for name, shape in vectors.items()}
    for name, shape in modules.items():
        own = quantization.get(name, name + ".scales" in has)
        if not own:
            want[name + ".weight"] = (("F32", "F16", "BF16"), shape)
            continue
        how = own if isinstance(own, dict) else quantization
        bits, group = how["bits"], how["group_size"]
        if how.get("mode", "affine") != "affine" or shape[-1] % group or shape[-1] * bits % 32:
            wrong.append(f"{name}: {how} for {shape}")
        want[name + ".weight"] = (("U32",), shape[:-1] + [shape[-1] * bits // 32])
        for part in (".scales", ".biases"):
            want[name + part] = (("F32", "F16", "BF16"), shape[:-1] + [shape[-1] // group])
    wrong += [f"{name} is missing" for name in want.keys() - has.keys()] + [f"{name} is not expected" for name in has.keys() - want.keys()]
    wrong += [f"{name}: {has[name]}, expected {want[name]}" for name in want.keys() & has.keys() if has[name][0] not in want[name][0] or has[name][1] != want[name][1]]
    known = {"bits", "group_size", "mode"} | modules.keys()
    return sorted(wrong) + [f"quantization of {name}, which is no module" for name in quantization if name not in known]
