#!/usr/bin/env python3
"""GGUF files on the whole program: gguf.py PROGRAM MODEL

The model as a folder of safetensors and as GGUF files that hold the same values: the same tokens, prompts, logits and
answers, whole and in parts; its drafter too. Then what a user gets wrong. Closes with `N passed, N failed`."""
import array, json, os, struct, subprocess, sys, tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from counted import check, closing
from client import Server

PROGRAM, MODEL = sys.argv[1], sys.argv[2]
IDS = ",".join(str(i * 37 % 4000 + 5) for i in range(70))
CHAT = {"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello <|turn> there"}], "tools": []}
TEXT = 'Hello  world,\n\n\n  {"a": [1, 2]} <|turn>x<turn|> ▁ München 北京 🚀 <0x41>\t"\\'


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


SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}


def metadata(data):
    """(the bytes of each value by key, where the tensors' table begins)"""
    at, out = 24, {}

    def text():
        nonlocal at
        n = struct.unpack_from("<Q", data, at)[0]
        at += 8 + n
        return data[at - n:at].decode()

    def skip(kind):
        nonlocal at
        if kind == 8:
            text()
        elif kind == 9:
            inner, n = struct.unpack_from("<IQ", data, at)
            at += 12
            if inner in SIZES:
                at += SIZES[inner] * n
            else:
                for _ in range(n):
                    skip(inner)
        else:
            at += SIZES[kind]

    for _ in range(struct.unpack_from("<Q", data, 16)[0]):
        key, start = text(), at
        kind = struct.unpack_from("<I", data, at)[0]
        at += 4
        skip(kind)
        out[key] = data[start:at]
    return out, at


def relabelled(path, to, change):
    """The file with other metadata; change gets a dictionary of values as they are stored."""
    data = open(path, "rb").read()
    values, table = metadata(data)
    change(values)
    old = table
    for _ in range(struct.unpack_from("<Q", data, 8)[0]):
        n = struct.unpack_from("<Q", data, old)[0]
        old += 8 + n
        old += 4 + 8 * struct.unpack_from("<I", data, old)[0] + 12
    head = data[:16] + struct.pack("<Q", len(values)) + b"".join(struct.pack("<Q", len(k)) + k.encode() + v for k, v in values.items()) + data[table:old]
    open(to, "wb").write(head + b"\0" * (-len(head) % 32) + data[old + -old % 32:])


def llama(dir):
    """What `ollama create` makes of Gemma: another name for the tokenizer, ids as scores. And files that have scores alone."""
    text = lambda s: struct.pack("<IQ", 8, len(s)) + s.encode()
    floats = lambda v: struct.pack("<IIQ", 9, 6, len(v)) + array.array("f", v).tobytes()
    source, made = os.path.join(dir, "model.gguf"), os.path.join(dir, "llama.gguf")
    tokenizer = json.load(open(os.path.join(MODEL, "tokenizer.json")))["model"]
    vocab, n = tokenizer["vocab"], len(tokenizer["vocab"])
    rank = [-float(n)] * n
    for i, m in enumerate(tokenizer["merges"]):
        rank[vocab["".join(m if isinstance(m, list) else m.split(" "))]] = -float(i)

    def form(pre, scores, merges):
        def change(v):
            v["tokenizer.ggml.model"] = text("llama")
            v["tokenizer.ggml.scores"] = floats(scores)
            v.pop("tokenizer.ggml.add_space_prefix", None)  # ollama writes none
            v.pop("tokenizer.chat_template", None)
            if pre:
                v["tokenizer.ggml.pre"] = text(pre)
            if not merges:
                del v["tokenizer.ggml.merges"]
        return change

    want = faces(os.path.join(dir, "hf"))
    for name, change in (("of today", form("gemma4", range(n), True)), ("of an older version", form("default", range(n), True)),
                         ("with scores alone", form(None, rank, False))):
        relabelled(source, made, change)
        got = faces(made)
        for i, what in enumerate(("tokens", "chat", "answer", "generated")):
            check(f"a llama vocabulary {name}: the same {what}", got[i] == want[i], f"{got[i][:200]} / {want[i][:200]}")
        r = run("convert", made, os.path.join(dir, "from-llama"), "--type", "f32")
        check(f"a llama vocabulary {name}: converted", r.returncode == 0, r.stderr)
        check(f"a llama vocabulary {name}: its folder has the same tokens", r.returncode == 0 and good("tokenize", "--model", os.path.join(dir, "from-llama"), text=TEXT) == want[0])
        subprocess.run(["rm", "-rf", os.path.join(dir, "from-llama")])
    relabelled(source, made, form(None, [-1000.0] * n, False))
    refused("scores that say nothing", "its scores do not say which pieces make which", "tokenize", "--model", made)
    relabelled(source, made, lambda v: (form(None, rank, True)(v), v.update({"tokenizer.ggml.tokens": v["tokenizer.ggml.tokens"].replace(b"<|turn>", b"<start>", 1)})))
    refused("a vocabulary of others", "its vocabulary is not Gemma 4's: it has no <|turn>", "run", "--model", made, "x")


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
    llama(dir)
    mistakes(dir, parts, pieces)
sys.exit(closing())
