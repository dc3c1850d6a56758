"""Damaged checkpoints: every one must end with exit 1 and one line on standard error that names
what is wrong, soon, and in little memory. Standard library only.

usage: damage.py EVENKEEL MODEL_DIR [--more N] [--only WORD]

Copies of MODEL_DIR are damaged one at a time: the safetensors file (lengths, header, entries,
tensors), config.json (missing, wrong and absurd values), the tokenizer and an index. --more N adds N files
with random bytes changed, which may be accepted or refused but never end in a signal. The output's
last line is `N passed, N failed`.
"""
import copy
import itertools
import json
import os
import random
import resource
import shutil
import struct
import subprocess
import sys
import tempfile
import zlib

LIMIT_BYTES, LIMIT_SECONDS = 8 << 30, 20
WEIGHTS = "model.safetensors"


def png_chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


PICTURE = b"\x89PNG\r\n\x1a\n" + png_chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)) \
    + png_chunk(b"IDAT", zlib.compress(bytes(4))) + png_chunk(b"IEND", b"")


class Model:
    """The undamaged files: texts whole, the weights as header and data."""

    def __init__(self, path):
        self.path = path
        self.files = [f for f in sorted(os.listdir(path)) if os.path.isfile(os.path.join(path, f))
                      and not f.startswith("golden")]
        with open(os.path.join(path, WEIGHTS), "rb") as f:
            self.raw = f.read()
        n = struct.unpack("<Q", self.raw[:8])[0]
        self.head = json.loads(self.raw[8:8 + n])
        self.data = self.raw[8 + n:]
        self.config = self.json("config.json")
        self.text = self.config.get("text_config") or self.config

    def json(self, name):
        with open(os.path.join(self.path, name), encoding="utf-8") as f:
            return json.load(f)

    def tensors(self):
        return [k for k in self.head if k != "__metadata__"]


class Case:
    """change: file name to bytes, None for a file that is missing. words: what the line must
    contain. status: the exit states that are right."""

    def __init__(self, name, change, words=(), command="logits", status=(1,)):
        self.name, self.change, self.words, self.command, self.status = name, change, words, command, status


def packed(head, data):
    text = head if isinstance(head, bytes) else json.dumps(head).encode()
    return struct.pack("<Q", len(text)) + text + data


def weight_cases(m):
    raw, size = m.raw, len(m.raw)
    n = struct.unpack("<Q", raw[:8])[0]

    def file(name, data, *words, **kw):
        return Case(f"weights: {name}", {WEIGHTS: data}, (WEIGHTS, *words), **kw)

    for at in (0, 1, 7, 8, 9, 100, 8 + n // 2, 8 + n - 1, 8 + n, 8 + n + 1, size // 2, size - 1):
        yield file(f"cut to {at} bytes", raw[:at])
    yield file("a byte too many", raw + b"\0")
    for length in (0, 1, 2, n - 1, n + 1, size, 1 << 31, 1 << 32, (1 << 63) - 1, 1 << 63, (1 << 64) - 1):
        yield file(f"header length {length}", struct.pack("<Q", length) + raw[8:])
    for name, text in (("empty object", b"{}"), ("a list", b"[]"), ("no JSON", b"{" * 40),
                       ("deep", b'{"a":' * 5000 + b"1" + b"}" * 5000), ("half UTF-8", b'{"\xc3":1}'),
                       ("zero byte", b'{"a\0b":1}'), ("only zeros", bytes(64)), ("a number", b'{"a":5}'),
                       ("an empty entry", b'{"a":{}}'),
                       ("key twice", b'{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},'
                                     b'"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}')):
        yield file(f"header is {name}", packed(text, m.data))

    names = m.tensors()
    big = max(names, key=lambda k: m.head[k]["data_offsets"][1] - m.head[k]["data_offsets"][0])
    norm = next(k for k in names if k.endswith("layers.0.input_layernorm.weight"))

    def entry(name, tensor, words=None, **fields):
        head = copy.deepcopy(m.head)
        head[tensor].update(fields)
        return file(f"{tensor}: {name}", packed(head, m.data), *(words if words is not None else (tensor,)))

    for t in (big, norm):
        e = m.head[t]
        begin, end = e["data_offsets"]
        shape = e["shape"]
        for name, offsets in (("backwards", [end, begin]), ("negative", [-1, end]), ("beyond", [begin, 1 << 50]),
                              ("not whole", [begin + 0.5, end]), ("three", [begin, end, end]), ("text", ["0", "8"]),
                              ("10^20", [begin, 10 ** 20]), ("short", [begin, end - 2])):
            words = ("header",) if name == "10^20" else (t,)
            yield entry(f"offsets {name}", t, words, data_offsets=offsets)
        for name, dtype in (("unknown", "Q9"), ("number", 5), ("empty", ""), ("8-bit float", "F8_E4M3FNUZ")):
            yield entry(f"type {name}", t, dtype=dtype)
        for name, dims in (("transposed", shape[::-1] if len(shape) > 1 and shape[0] != shape[1] else [1, *shape]),
                           ("flat", [-1]), ("huge", [1 << 40, 1 << 40]), ("too many", [1] * 70),
                           ("text", ["4"]), ("none", None), ("zero", [0, *shape])):
            yield entry(f"shape {name}", t, shape=dims)
        other = {"F32": "I32", "BF16": "I16", "F16": "I16", "U32": "I32"}[e["dtype"]]
        yield entry(f"type {other}", t, dtype=other)
        head = copy.deepcopy(m.head)
        head[t]["more"] = 1
        yield file(f"{t}: a fourth key", packed(head, m.data), t)

    last = max(names, key=lambda k: m.head[k]["data_offsets"][1])
    begin, end = m.head[last]["data_offsets"]
    head = copy.deepcopy(m.head)
    head[last]["data_offsets"] = [begin - 2, end - 2]
    yield file("tensors overlap", packed(head, m.data), "byte")
    head[last]["data_offsets"] = [begin + 2, end + 2]
    yield file("a hole", packed(head, m.data + b"\0\0"), last)
    head = copy.deepcopy(m.head)
    head["x.weight"] = {"dtype": "U8", "shape": [4], "data_offsets": [len(m.data), len(m.data) + 4]}
    yield file("an extra tensor", packed(head, m.data + b"abcd"), "x.weight")
    head["x" * 100000] = head.pop("x.weight")
    yield file("an extra tensor with a long name", packed(head, m.data + b"abcd"), "xxx")
    # Attention would not see such keys, and go on. Logits of text do not read towers, features of a picture do.
    for t in (k for k in m.tensors() if ".layers.1." in k or "_tower.patch_embedder." in k or ".embed_vision." in k):
        odd = {"BF16": b"\xc0\x7f", "F32": b"\x00\x00\x80\xff"}.get(m.head[t]["dtype"])
        at = 8 + n + m.head[t]["data_offsets"][0]
        if odd:
            module = t.rsplit(".", 1)[0].split(".layers.")[-1].removeprefix("model.")
            command = "features" if "_tower." in t or ".embed_vision." in t else "logits"
            yield Case(f"weights: no number in {t}", {WEIGHTS: raw[:at] + odd + raw[at + len(odd):]}, (module,), command)
    for t in missing_of(m):
        yield Case(f"weights: without {t}", {WEIGHTS: without(m, t)}, (t, WEIGHTS))
    yield Case("weights: none", {WEIGHTS: None}, (WEIGHTS.split(".")[1],))


def missing_of(m):
    """One tensor of each kind of module."""
    seen, out = set(), []
    for t in m.tensors():
        kind = ".".join(p for p in t.split(".") if not p.isdigit())
        if kind not in seen and "tower" not in t and "embed_vision" not in t and "embed_audio" not in t \
                and "vision_embedder" not in t and "lm_head" not in t and not kind.endswith(".scales"):
            seen.add(kind)
            out.append(t)
    return out


def without(m, tensor):
    """The file as a writer would have made it without one tensor."""
    begin, end = m.head[tensor]["data_offsets"]
    gone, head = end - begin, copy.deepcopy(m.head)
    del head[tensor]
    for e in head.values():
        if "data_offsets" in e and e["data_offsets"][0] >= end:
            e["data_offsets"] = [x - gone for x in e["data_offsets"]]
    return packed(head, m.data[:begin] + m.data[end:])


NUMBERS = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "max_position_embeddings",
           "hidden_size_per_layer_input", "num_kv_shared_layers", "rms_norm_eps", "intermediate_size",
           "num_key_value_heads", "head_dim", "sliding_window", "final_logit_softcapping", "num_experts",
           "top_k_experts", "moe_intermediate_size", "vocab_size_per_layer_input", "num_global_key_value_heads",
           "global_head_dim")


def config_cases(m):
    moe = bool(m.text.get("enable_moe_block"))

    def text(name, data, *words, **kw):
        return Case(f"config: {name}", {"config.json": data}, ("config.json", *words), **kw)

    def set_key(key, value, *words, **kw):
        c = copy.deepcopy(m.config)
        (c.get("text_config") or c)[key] = value
        if c is not m.config and "text_config" in c:
            c.pop(key, None)
        return text(f"{key} = {json.dumps(value)[:40]}", json.dumps(c).encode(), *words, **kw)

    yield Case("config: none", {"config.json": None}, ("config.json",))
    whole = json.dumps(m.config).encode()
    for name, data in (("empty", b""), ("half", whole[:len(whole) // 2]), ("a list", b"[]"), ("a word", b"null"),
                       ("zero byte", whole[:20] + b"\0" + whole[20:]), ("no UTF-8", b'{"a":"\xff"}'),
                       ("deep", b"[" * 100000), ("empty object", b"{}"), ("twice", whole + whole),
                       ("key twice", b'{"model_type":"gemma4",' + whole[1:]),
                       ("10^400", b'{"vocab_size":1' + b"0" * 400 + b"}")):
        yield text(name, data)
    for key in NUMBERS:
        if m.text.get(key) is None or (key.startswith(("num_experts", "top_k", "moe")) and not moe):
            continue
        unused = key == "vocab_size_per_layer_input" and not m.text.get("hidden_size_per_layer_input")
        for value in (-1, 1 << 31, 1 << 62, 10 ** 30, "8", [], True, float("nan"), 1e300):
            words = () if value != value or value == 10 ** 30 else (key,)
            if not unused:
                yield set_key(key, value, *words)
    for key in ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size",
                "num_key_value_heads", "head_dim", "sliding_window", "rms_norm_eps", "max_position_embeddings"):
        yield set_key(key, 0, key)
    for key in ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size",
                "num_key_value_heads", "head_dim", "max_position_embeddings", "layer_types", "rope_parameters",
                "model_type"):
        c = copy.deepcopy(m.config)
        for at in (c, c.get("text_config") or c):
            at.pop(key, None)
        yield text(f"no {key}", json.dumps(c).encode(), key)
    layers, vocab, hidden = (m.text[k] for k in ("num_hidden_layers", "vocab_size", "hidden_size"))
    yield set_key("num_hidden_layers", 10 ** 9, "num_hidden_layers")
    yield set_key("num_hidden_layers", layers + 1, "layer_types")
    yield set_key("vocab_size", vocab + 1)
    yield set_key("vocab_size", 1)
    yield set_key("hidden_size", hidden * 2, WEIGHTS)
    yield set_key("hidden_size", 1 << 20)
    yield set_key("intermediate_size", m.text["intermediate_size"] + 32, WEIGHTS, "mlp")
    yield set_key("num_attention_heads", 7)
    yield set_key("num_attention_heads", 4096)
    yield set_key("head_dim", 3)
    yield set_key("num_kv_shared_layers", layers, "num_kv_shared_layers")
    yield set_key("num_kv_shared_layers", layers - 1)
    yield set_key("layer_types", ["sideways"] * layers, "layer_types")
    yield set_key("layer_types", 5, "layer_types")
    yield set_key("rope_parameters", [], "rope_parameters")
    yield set_key("rope_parameters", {"sliding_attention": {}, "full_attention": {}}, "rope_theta")
    for theta in (0, -1, "x", 1e300):
        yield set_key("rope_parameters", {k: {"rope_theta": theta} for k in ("sliding_attention", "full_attention")},
                      "rope_theta")
    yield set_key("hidden_activation", "relu", "hidden_activation")
    yield set_key("attention_bias", True, "attention_bias")
    yield set_key("tie_word_embeddings", False, "tie_word_embeddings")
    yield set_key("use_bidirectional_attention", "all", "use_bidirectional_attention")
    yield set_key("enable_moe_block", "yes", "enable_moe_block")
    for key, value in (("attention_bias", "x"), ("hidden_activation", -1), ("tie_word_embeddings", "x"), ("model_type", 5),
                       ("per_layer_config", 5), ("use_bidirectional_attention", True), ("rope_parameters", "x"),
                       ("layer_types", "x"), ("final_logit_softcapping", "x"), ("bos_token_id", "x"), ("quantization", 5)):
        yield set_key(key, value, f"{key} is {json.dumps(value)}, must be ")
    yield set_key("eos_token_id", -1, "eos_token_id")
    yield set_key("eos_token_id", [vocab], "eos_token_id")
    yield set_key("eos_token_id", list(range(40)), "eos_token_id")
    if moe:
        yield set_key("top_k_experts", m.text["num_experts"] + 1, "top_k_experts")
        yield set_key("num_experts", m.text["num_experts"] + 1, WEIGHTS)
        yield set_key("num_experts", 0, "num_experts")
    else:
        yield set_key("enable_moe_block", True)
    c = copy.deepcopy(m.config)
    c["model_type"] = "llama"
    yield text("model_type llama", json.dumps(c).encode(), "llama")
    if "quantization" in m.config:
        for name, section in (("bits 7", {"bits": 7, "group_size": 64}), ("bits 0", {"bits": 0, "group_size": 64}),
                              ("bits 1e9", {"bits": 1e9, "group_size": 64}), ("bits text", {"bits": "4"}),
                              ("group 48", {"bits": 4, "group_size": 48}), ("group 0", {"bits": 4, "group_size": 0}),
                              ("group -64", {"bits": 4, "group_size": -64}), ("a list", [4]), ("nothing", {}),
                              ("mode", {"bits": 4, "group_size": 64, "mode": "mxfp4"}),
                              ("method", {"bits": 4, "group_size": 64, "quant_method": "gptq"}),
                              ("other bits", {"bits": 3, "group_size": 128})):
            c = copy.deepcopy(m.config)
            c.pop("quantization_config", None)
            c["quantization"] = section
            yield Case(f"config: quantization {name}", {"config.json": json.dumps(c).encode()}, ("config.json",))
    for name, data in (("half", b'{"eos_token_id": ['), ("a list", b"[]"), ("temperature", b'{"temperature": -3}'),
                       ("eos", b'{"eos_token_id": "x"}'), ("suppress", b'{"suppress_tokens": [-5]}')):
        yield Case(f"generation_config: {name}", {"generation_config.json": data}, ("generation_config.json: ",))


def index_cases(m):
    name = WEIGHTS + ".index.json"
    every = {t: WEIGHTS for t in m.tensors()}
    some = m.tensors()[0]

    def index(what, weight_map, *words, **kw):
        data = weight_map if isinstance(weight_map, bytes) else json.dumps({"weight_map": weight_map}).encode()
        return Case(f"index: {what}", {name: data}, words, **kw)

    yield index("empty", b"", name)
    yield index("half", b'{"weight_map": {', name)
    yield index("no map", b"{}", name)
    yield index("empty map", {}, name)
    yield index("map of numbers", {some: 5}, name, some)
    yield index("missing file", {**every, some: "model-00002.safetensors"}, "model-00002.safetensors")
    yield index("a folder above", {**every, some: "../" + WEIGHTS}, name, some)
    yield index("another file of the folder", {**every, some: "config.json"}, "config.json")
    yield index("tensor no file holds", {**every, "y.weight": WEIGHTS}, name, "y.weight")
    yield index("100,000 files", {f"t{i}": f"f{i}.safetensors" for i in range(100000)}, "f0.safetensors")


def tokenizer_cases(m):
    if "tokenizer.json" not in m.files:
        return
    with open(os.path.join(m.path, "tokenizer.json"), "rb") as f:
        raw = f.read()
    t = json.loads(raw)

    def file(name, data, *words, **kw):
        return Case(f"tokenizer: {name}", {"tokenizer.json": data}, ("tokenizer.json", *words), command="tokenize", **kw)

    def edit(name, change, *words):
        e = copy.deepcopy(t)
        change(e)
        return file(name, json.dumps(e).encode(), *words)

    yield Case("tokenizer: none", {"tokenizer.json": None}, ("tokenizer.json",), command="tokenize")
    for at in (0, 1, 100, len(raw) // 4, len(raw) // 2, len(raw) - 3):
        yield file(f"cut to {at} bytes", raw[:at])
    yield file("a list", b"[]")
    yield file("empty object", b"{}")
    yield file("deep", b"[" * 100000)
    at = raw.index(b'"', raw.index(b'"vocab"') + 8) + 1
    yield file("piece no UTF-8", raw[:at] + b"\xff" + raw[at:], "vocab")
    yield file("piece with a zero byte", raw[:at] + b"\0" + raw[at:])
    yield edit("no model", lambda e: e.pop("model"), "model")
    yield edit("model WordPiece", lambda e: e["model"].update(type="WordPiece"))
    yield edit("no vocab", lambda e: e["model"].pop("vocab"), "vocab")
    yield edit("vocab empty", lambda e: e["model"].update(vocab={}))
    yield edit("vocab list", lambda e: e["model"].update(vocab=[1, 2]), "vocab")
    some = next(iter(t["model"]["vocab"]))
    for bad in (-1, 1 << 31, 1 << 62, "5", 1.5, None):
        yield edit(f"id {bad}", lambda e, bad=bad: e["model"]["vocab"].update({some: bad}))
    yield edit("id twice", lambda e: e["model"]["vocab"].update({some: 3}))
    yield edit("no merges", lambda e: e["model"].pop("merges"), "merges")
    for name, bad in (("number", 5), ("unknown parts", ["qqqqqq", "zzzzzzz"]), ("one part", ["a"]), ("three", ["a", "b", "c"]),
                      ("text", "ab"), ("list of numbers", [1, 2])):
        yield edit(f"merge {name}", lambda e, bad=bad: e["model"]["merges"].insert(3, bad), "merge")
    yield edit("added token without id", lambda e: e["added_tokens"][0].pop("id"), "added")
    yield edit("added token id 2^40", lambda e: e["added_tokens"][0].update(id=1 << 40), "added")
    yield edit("added token empty", lambda e: e["added_tokens"][0].update(content=""), "added")


def random_cases(m, n):
    rng = random.Random(7)
    head = struct.unpack("<Q", m.raw[:8])[0]
    for i in range(n):
        raw = bytearray(m.raw)
        for _ in range(rng.choice((1, 2, 5, 50))):
            raw[rng.randrange(8 + head)] = rng.randrange(256) if i % 2 else rng.choice(b'0123456789{}[]",:-')
        yield Case(f"random: {i}", {WEIGHTS: bytes(raw)}, status=(0, 1))


def lay_out(m, case, where):
    for f in m.files:
        if f not in case.change:
            os.symlink(os.path.join(os.path.abspath(m.path), f), os.path.join(where, f))
    for f, data in case.change.items():
        if data is not None:
            with open(os.path.join(where, f), "wb") as out:
                out.write(data)


def run(program, command, where):
    argv = [program, command, "--model", where]
    if command == "logits":
        argv += ["--ids", "2,3", "--last", "1", "--threads", "1", "--out", os.path.join(where, "out")]
    if command == "features":
        with open(os.path.join(where, "picture.png"), "wb") as out:
            out.write(PICTURE)
        argv += ["--image", os.path.join(where, "picture.png"), "--image-tokens", "70", "--threads", "1", "--out", os.path.join(where, "out")]

    def limit():
        resource.setrlimit(resource.RLIMIT_AS, (LIMIT_BYTES, LIMIT_BYTES))

    limits = None if "san/" in program else limit  # sanitizers reserve terabytes
    return subprocess.run(argv, input=b"a b", capture_output=True, timeout=LIMIT_SECONDS, preexec_fn=limits)


def judge(case, r):
    """None, or what is wrong."""
    text = r.stderr.decode("utf-8", "replace")
    if r.returncode not in case.status:
        return f"exit {r.returncode}: {text[-300:]!r}"
    if r.returncode == 0:
        return None
    if text.count("\n") != 1 or not text.endswith("\n") or len(text) > 1200:
        return f"not one line: {text[:600]!r}"
    lost = [w for w in case.words if w not in text]
    return f"does not name {lost}: {text!r}" if lost else None


def main():
    program, path = os.path.abspath(sys.argv[1]), sys.argv[2]
    more = int(sys.argv[sys.argv.index("--more") + 1]) if "--more" in sys.argv else 0
    only = sys.argv[sys.argv.index("--only") + 1] if "--only" in sys.argv else ""
    m = Model(path)
    passed = failed = 0
    for case in itertools.chain([Case("whole", {}, status=(0,))], weight_cases(m), config_cases(m), index_cases(m),
                                tokenizer_cases(m), random_cases(m, more)):
        if only not in case.name:
            continue
        where = tempfile.mkdtemp(prefix="damage-")
        try:
            lay_out(m, case, where)
            wrong = judge(case, run(program, case.command, where))
        except subprocess.TimeoutExpired:
            wrong = f"still running after {LIMIT_SECONDS} s"
        finally:
            shutil.rmtree(where)
        passed, failed = passed + (wrong is None), failed + (wrong is not None)
        if wrong:
            print(f"FAIL {case.name[:150]}: {wrong}")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
