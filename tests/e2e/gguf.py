#!/usr/bin/env python3
"""GGUF files on the whole program: gguf.py PROGRAM MODEL

The model as a folder of safetensors and as GGUF files that hold the same values: the same tokens, prompts, logits and
answers, whole and in parts; its drafter too. Then what a user gets wrong. Closes with `N passed, N failed`."""
import array, json, os, struct, subprocess, sys, tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from client import Server

PROGRAM, MODEL = sys.argv[1], sys.argv[2]
IDS = ",".join(str(i * 37 % 4000 + 5) for i in range(70))
CHAT = {"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello <|turn> there"}], "tools": []}
TEXT = 'Hello  world,\n\n\n  {"a": [1, 2]} <|turn>x<turn|> ▁ München 北京 🚀 <0x41>\t"\\'
results = []


def check(name, good, detail=""):
    results.append(bool(good))
    if not good:
        print(f"FAIL {name}: {detail}")


def run(*args, text=None):
    return subprocess.run([PROGRAM, *map(str, args)], input=text, capture_output=True, text=True, timeout=120)


def good(*args, text=None):
    r = run(*args, text=text)
    check(" ".join(map(str, args[:3])), r.returncode == 0, r.stderr)
    return r.stdout


def refused(name, says, *args):
    r = run(*args)
    lines = [l for l in r.stderr.splitlines() if l]
    check(name, r.returncode != 0 and len(lines) == 1 and says in r.stderr, f"exit {r.returncode}: {r.stderr}")


def logits(folder, model, *args):
    out = os.path.join(folder, "logits")
    good("logits", "--model", model, "--ids", IDS, "--out", out, *args)
    return open(out, "rb").read()


def faces(model):
    """What a model makes of text, a chat and a prompt."""
    with Server(PROGRAM, "--model", model) as s:
        reply = s.chat({**CHAT, "max_tokens": 8, "seed": 1, "evenkeel": {"digest": True}})
    # Not how many tokens were cached: the canary's first may be there or not.
    return (good("tokenize", "--model", model, text=TEXT), json.dumps([reply["evenkeel"], reply["usage"]["completion_tokens"], reply["choices"]]),
            good("run", "--model", model, "--max-tokens", "20", "--temperature", "1", "--seed", "3", "Which city is it?"),
            good("generate", "--model", model, "--ids", IDS, "--max-tokens", "12", "--json"))


def same(dir):
    hf, gguf, parts = (os.path.join(dir, n) for n in ("hf", "model.gguf", "parts"))
    good("convert", MODEL, hf, "--type", "bf16")
    good("convert", MODEL, gguf, "--type", "bf16")
    os.mkdir(parts)
    good("convert", MODEL, os.path.join(parts, "m.gguf"), "--type", "bf16", "--max-file-bytes", "12M")
    pieces = sorted(os.listdir(parts))
    check("several parts", len(pieces) > 2 and pieces[0].endswith(f"-00001-of-{len(pieces):05}.gguf"), pieces)
    want, face = logits(dir, hf), faces(hf)
    check("logits", len(want) > 70 * 4 * 1000)
    for name, model in (("file", gguf), ("folder of parts", parts), ("last part", os.path.join(parts, pieces[-1]))):
        check(f"{name}: the same bits", logits(dir, model) == want)
        got = faces(model)
        for i, what in enumerate(("tokens", "chat", "answer", "generated")):
            check(f"{name}: the same {what}", got[i] == face[i], f"{got[i][:200]} / {face[i][:200]}")
    return parts, pieces


def quantised(dir):
    """Codes of a file are the same whether they are widened to floats by us or read as they are."""
    for kind in ("q8_0", "q4_0"):
        gguf, wide = os.path.join(dir, f"{kind}.gguf"), os.path.join(dir, f"{kind}-f32.gguf")
        good("convert", MODEL, gguf, "--type", kind)
        good("convert", gguf, wide, "--type", "f32")
        about = json.loads(good("inspect", gguf, "--json"))
        check(f"{kind}: inspect", about["model"]["weight_bytes"] > 0 and kind in about["types"], about.get("types"))
        check(f"{kind}: exact values", logits(dir, gguf, "--weights", "exact") == logits(dir, wide, "--weights", "exact"))


def values(folder):
    """The tensors of an MLX folder as floats: name -> (shape, array), codes widened by one rounding as the format says."""
    data = open(os.path.join(folder, "model.safetensors"), "rb").read()
    config = json.load(open(os.path.join(folder, "config.json")))
    n = struct.unpack("<Q", data[:8])[0]
    head = json.loads(data[8:8 + n])
    head.pop("__metadata__", None)

    def raw(name, kind):
        lo, hi = head[name]["data_offsets"]
        return array.array(kind, data[8 + n + lo:8 + n + hi])

    def bf16(name):
        return [struct.unpack("<f", struct.pack("<I", h << 16))[0] for h in raw(name, "H")]

    out = {}
    for name, e in head.items():
        module = name.removesuffix(".weight")
        if name.endswith((".scales", ".biases")):
            continue
        if module + ".scales" not in head:
            assert e["dtype"] == "BF16", e
            out[name] = (e["shape"], array.array("f", bf16(name)))
            continue
        own = config["quantization"].get(module, config["quantization"])
        bits, group = own["bits"], own["group_size"]
        scale, bias, words = bf16(module + ".scales"), bf16(module + ".biases"), raw(name, "I")
        mask, per = (1 << bits) - 1, 32 // bits
        codes = [w >> bits * i & mask for w in words for i in range(per)]
        out[name] = ([e["shape"][0], e["shape"][1] * per], array.array("f", [scale[i // group] * c + bias[i // group] for i, c in enumerate(codes)]))
    return out


NAMES = {"self_attn.q_proj": "attn_q", "self_attn.q_norm": "attn_q_norm", "self_attn.o_proj": "attn_output", "input_layernorm": "attn_norm",
         "post_attention_layernorm": "post_attention_norm", "pre_feedforward_layernorm": "ffn_norm", "post_feedforward_layernorm": "post_ffw_norm",
         "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "layer_scalar": "layer_output_scale"}
SCHEMES = {"gemma4-assistant": ("nextn.{}_projection.weight", "embedding_length_out"), "gemma4_mtp": ("mtp_{}_proj.weight", "backbone_embedding_length"),
           "gemma4_assistant": ("mtp.{}_projection.weight", "n_embd_backbone")}


def drafter_name(name, pattern):
    if name.startswith("model.layers."):
        _, _, layer, rest = name.split(".", 3)
        return f"blk.{layer}.{NAMES[rest.removesuffix('.weight')]}.weight"
    return {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight"}.get(name) or pattern.format(name.split("_")[0])


def write_drafter(path, arch, source, tensors):
    """A drafter as F32 in one of the three ways of naming it."""
    top = json.load(open(os.path.join(source, "config.json")))
    c, (pattern, width) = top["text_config"], SCHEMES[arch]
    def text(s):
        return struct.pack("<Q", len(s.encode())) + s.encode()
    u32 = lambda v: struct.pack("<II", 4, v)
    f32 = lambda v: struct.pack("<If", 6, v)
    full = next(int(i) for i, t in enumerate(c["layer_types"]) if t == "full_attention")
    meta = {"block_count": u32(c["num_hidden_layers"]), "embedding_length": u32(c["hidden_size"]), "context_length": u32(c["max_position_embeddings"]),
            "attention.head_count": u32(c["num_attention_heads"]), "attention.head_count_kv": u32(c["num_key_value_heads"]),
            "feed_forward_length": u32(c["intermediate_size"]), "attention.key_length_swa": u32(c["head_dim"]),
            "attention.key_length": u32(next(v["head_dim"] for i, v in c["per_layer_config"].items() if int(i) == full)), "attention.layer_norm_rms_epsilon": f32(c["rms_norm_eps"]),
            "attention.sliding_window": u32(c["sliding_window"]), "rope.freq_base": f32(1e6), "rope.freq_base_swa": f32(1e4),
            "attention.sliding_window_pattern": struct.pack("<IIQ", 9, 7, len(c["layer_types"])) + bytes(t == "sliding_attention" for t in c["layer_types"]),
            width: u32(top["backbone_hidden_size"])}
    head = text("general.architecture") + struct.pack("<I", 8) + text(arch) + b"".join(text(f"{arch}.{k}") + v for k, v in meta.items())
    table, data = b"", bytearray()
    for name, (shape, v) in tensors.items():
        data += b"\0" * (-len(data) % 32)
        table += text(drafter_name(name, pattern)) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *reversed(shape), 0, len(data))
        data += v.tobytes()
    file = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(meta) + 1) + head + table
    open(path, "wb").write(file + b"\0" * (-len(file) % 32) + data)


def drafter(dir):
    source = MODEL + "-drafter"
    if not os.path.isdir(source):
        return
    tensors, out = values(source), os.path.join(dir, "draft-logits")
    def draft(d):
        guesses = good("draft", "--model", MODEL, "--drafter", d, "--ids", IDS, "--tokens", "6", "--json", "--weights", "exact", "--out", out)
        return guesses, open(out, "rb").read()
    want = draft(source)
    check("a drafter guesses", "draft" in want[0] and len(want[1]) > 1000, want[0])
    for arch in SCHEMES:
        path = os.path.join(dir, f"{arch}.gguf")
        write_drafter(path, arch, source, tensors)
        got = draft(path)
        check(f"{arch}: the same guesses and logits", got == want, got[0])
    for name, kind in (("f32", "f32"), ("f32.gguf", "f32"), ("f16.gguf", "f16"), ("q8_0.gguf", "q8_0"), ("mlx8", "mlx8")):
        there, back = (os.path.join(dir, f"draft-{n}") for n in (name, "back-" + name))
        good("convert", source, there, "--type", kind)
        got = draft(there)
        if kind == "f32":
            check(f"a drafter as {name}: the same guesses and logits", got == want, got[0])
        good("convert", there, back, "--type", "f32")
        check(f"a drafter as {name} and back: the same guesses and logits", draft(back) == got, got[0])
    with Server(PROGRAM, "--model", MODEL, "--drafter", there) as s:
        check("a converted drafter serves", s.chat({**CHAT, "max_tokens": 4})["usage"]["completion_tokens"] > 0)
    refused("a drafter is no model", "is a drafter", "logits", "--model", path, "--ids", "2", "--out", out)


def mistakes(dir, parts, pieces):
    one = os.path.join(dir, "model.gguf")
    two = os.path.join(dir, "two")
    os.mkdir(two)
    for n in ("a.gguf", "b.gguf", "mmproj-a.gguf"):
        os.link(one, os.path.join(two, n))
    refused("two models", "holds 2 models, name one of them: a.gguf, b.gguf", "run", "--model", two, "x")
    os.remove(os.path.join(two, "b.gguf"))
    good("tokenize", "--model", two, text="x")
    whole = open(one, "rb").read()
    for n in (0, 3, 20, 5000, len(whole) // 2, len(whole) - 40):
        cut = os.path.join(dir, "cut.gguf")
        open(cut, "wb").write(whole[:n])
        refused(f"cut at {n}", "cut.gguf", "logits", "--model", cut, "--ids", "2,3", "--out", os.path.join(dir, "x"))
    os.remove(os.path.join(parts, pieces[1]))
    refused("a part is missing", pieces[1], "run", "--model", os.path.join(parts, pieces[0]), "x")


with tempfile.TemporaryDirectory() as dir:
    parts, pieces = same(dir)
    quantised(dir)
    drafter(dir)
    mistakes(dir, parts, pieces)
print(f"{results.count(True)} passed, {results.count(False)} failed")
sys.exit(not all(results))
