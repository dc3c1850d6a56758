"""inspect: says of a checkpoint what it is, what it needs, whether it runs and why not, and refuses nothing that it can
describe. Standard library only.

usage: inspect.py EVENKEEL MODEL_DIR

The output's last line is `N passed, N failed`.
"""
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile

PROGRAM, MODEL = os.path.abspath(sys.argv[1]), sys.argv[2]
ROOT = tempfile.mkdtemp(prefix="evenkeel-inspect-")
CONFIG = json.load(open(os.path.join(MODEL, "config.json"), encoding="utf-8"))
TEXT = {**{k: v for k, v in CONFIG.items() if k.startswith("quantization")}, **(CONFIG.get("text_config") or CONFIG)}   # as a model without towers
ENV = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "EVENKEEL_"))}
ENV["HF_HOME"] = ROOT
wrong = []
passed = 0


def check(truth, text):
    global passed
    passed += bool(truth)
    if not truth:
        print(f"FAIL {text}")
        wrong.append(text)


def run(*argv):
    return subprocess.run([PROGRAM, *argv], capture_output=True, text=True, env=ENV, timeout=60)


def report(path, *options):
    p = run("inspect", path, "--json", *options)
    check(p.returncode == 0 and not p.stderr, f"inspect {path}: exit {p.returncode}: {p.stderr}")
    table = run("inspect", path, *options)
    check(table.returncode == 0 and table.stdout.startswith("model "), f"table of {path}: {table.stderr}")
    r = json.loads(p.stdout)
    check(("runs         yes" in table.stdout) == r["runs"], f"table and JSON of {path} differ: {table.stdout}")
    return r


def safetensors(path, tensors):
    """tensors: name -> (type, shape, bytes)."""
    head, data = {}, b""
    for name, (dtype, shape, part) in tensors.items():
        head[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(part)]}
        data += part
    text = json.dumps(head).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


def folder(name, config, tensors=None, link=False):
    path = os.path.join(ROOT, name)
    os.makedirs(path)
    with open(os.path.join(path, "config.json"), "w", encoding="utf-8") as f:
        json.dump(config, f)
    if tensors:
        safetensors(os.path.join(path, "model.safetensors"), tensors)
    if link:
        os.symlink(os.path.abspath(os.path.join(MODEL, "model.safetensors")), os.path.join(path, "model.safetensors"))
    return path


def a_model():
    r = report(MODEL)
    m = r["model"]
    check(r["runs"] and "why" not in r and r["what"].startswith("Gemma 4"), str(r)[:300])
    check(r["tensors"] == sum(t["tensors"] for t in r["types"].values()), "tensors")
    check(r["bytes"] == sum(t["bytes"] for t in r["types"].values()), "bytes")
    check(abs(m["weight_bytes"] + m["mapped_bytes"] - r["bytes"]) < r["bytes"] / 4 + 65536, "weights are far from the file's size")
    with open(os.path.join(MODEL, "model.safetensors"), "rb") as f:
        head = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
    towers = sum(t["data_offsets"][1] - t["data_offsets"][0] for name, t in head.items() if "_tower." in name or "embed_vision." in name)
    check(abs(m["tower_bytes"] - towers) < towers / 4 + 65536, f"towers: {m['tower_bytes']} bytes, {towers} in the file")
    kv = {k["kv"]: k for k in m["kv_formats"]}
    check({"f32", "f16", "bf16", "16", "8", "4"} <= set(kv), str(set(kv)))
    for name, k in kv.items():  # the table says what the model's own layout says
        own = json.loads(run("inspect", MODEL, "--json", "--kv", name).stdout)["model"]
        check(own["kv"]["full_bytes_per_token"] == k["full_bytes_per_token"]
              and own["kv"]["sliding_bytes_per_token"] == k["sliding_bytes_per_token"]
              and own["memory"][0]["kv_bytes"] == k["request_bytes"] * own["memory"][0]["batch"], f"--kv {name}: {own['kv']} and {k}")
        check(k["batch_that_fits"] >= k["batch_that_fits_full_context"] >= 0, f"--kv {name} fits")
    check(kv["f32"]["full_bytes_per_token"] == 2 * kv["f16"]["full_bytes_per_token"], "f32 and f16")
    short = report(MODEL, "--ctx", "128", "--batch", "3")["model"]
    check([(x["batch"], x["ctx"]) for x in short["memory"]] == [(3, 128)], str(short["memory"]))
    p = run("inspect", MODEL, "--ctx", "16000000")
    check(p.returncode == 2 and "the model's context is" in p.stderr, p.stderr)


def saved_again():
    """As transformers saves a model since 5.15: the full layers' sizes in per_layer_config alone, under padded numbers, in
    the text's section or bare; at every door that reads a model."""
    old = {k: v for k, v in TEXT.items() if k not in ("global_head_dim", "num_global_key_value_heads", "per_layer_config")}
    full = [i for i, kind in enumerate(TEXT["layer_types"]) if kind == "full_attention"]
    wide = TEXT["global_head_dim"]

    def again(name, entries, nested):
        text = {**old, "per_layer_config": entries}
        split = {k: text.pop(k) for k in ("quantization", "quantization_config", "architectures") if k in text}
        config = {**split, "model_type": "gemma4", "text_config": text} if nested else {**split, **text}
        path = folder(name, config, link=True)
        for other in os.listdir(MODEL):
            if other != "config.json" and not os.path.exists(os.path.join(path, other)):
                os.symlink(os.path.abspath(os.path.join(MODEL, other)), os.path.join(path, other))
        return path

    def logits(path):
        out = os.path.join(ROOT, "logits")
        p = run("logits", "--model", path, "--ids", "2,105,9,88,3", "--out", out)
        check(p.returncode == 0, f"{path}: {p.stderr}")
        return open(out, "rb").read() if p.returncode == 0 else b""
    want = logits(MODEL)
    for width in (2, 5):
        for nested in (False, True):
            name = f"again-{width}-{nested}"
            path = again(name, {str(i).zfill(width): {"head_dim": wide} for i in full}, nested)
            check(report(path)["runs"], f"{name} does not run")
            check(want and logits(path) == want, f"{name}: other logits")
            p = run("run", "--model", path, "--max-tokens", "1", "hello")
            check(p.returncode == 0, f"run {name}: {p.stderr}")
            there = os.path.join(ROOT, name + "-mlx")
            p = run("convert", path, there, "--type", "mlx4")
            check(p.returncode == 0, f"convert {name}: {p.stderr}")
            written = json.load(open(os.path.join(there, "config.json"))) if p.returncode == 0 else {}
            written = written.get("text_config", written).get("per_layer_config")
            check(written == {str(i).zfill(len(str(full[-1]))): {"head_dim": wide} for i in full}, f"convert wrote {written}")
            p = run("convert", path, there + ".gguf", "--type", "q8_0")
            check(p.returncode == 0 and report(there + ".gguf")["runs"], f"convert {name} to GGUF: {p.stderr}")
    for name, entries, says in (("beyond", {"99": {"head_dim": wide}}, 'an entry "99"'), ("word", {"\u009bx": {}}, "\\u009bx"),
                                ("twice", {str(full[0]): {"head_dim": wide}, f"{full[0]:03d}": {"head_dim": wide}},
                                 f'twice, as "{full[0]}" and "{full[0]:03d}"')):
        path = again("again-" + name, entries, True)
        for call in (("run", "x", "--model", path), ("convert", path, os.path.join(ROOT, "out"), "--type", "f32")):
            p = run(*call)
            check(p.returncode == 1 and p.stderr.count("\n") == 1 and says in p.stderr, f"{call}: {p.stderr}")
        r = report(path)
        check(not r["runs"] and says in r["why"], f"inspect {path}: {r.get('why')}")


def what_cannot_run_is_described():
    q = {"quant_method": "gptq", "bits": 4, "group_size": 128}
    config = {k: v for k, v in TEXT.items() if k not in ("quantization", "quantization_config")}
    r = report(folder("quantised", {**config, "quantization_config": q}, {
        "model.layers.0.mlp.up_proj.qzeros": ("I32", [1], bytes(4)), "model.norm.weight": ("F16", [2], bytes(4))}))
    check(not r["runs"] and r["format"].startswith("gptq") and "4 bits in groups of 128" in r["format"], str(r)[:400])
    check("gptq" in r["why"] and r["model"]["kv_formats"] and r["types"]["I32"]["tensors"] == 1, str(r)[:400])
    r = report(folder("other", {"model_type": "llama", "architectures": ["LlamaForCausalLM"]},
                      {"model.norm.weight": ("BF16", [2], bytes(4))}))
    check(not r["runs"] and r["what"] == "llama, safetensors, bf16" and "llama" in r["why"], str(r)[:400])
    r = report(folder("weightless", TEXT))
    check(not r["runs"] and "model" in r and "safetensors" in r["why"], str(r)[:400])
    r = report(folder("speechless", TEXT, link=True))
    check(not r["runs"] and "tokenizer.json: No such file" in r["why"] and r["model"]["memory"], str(r)[:400])
    r = report(folder("shapes", {**TEXT, "vocab_size": 2 * TEXT.get("vocab_size", 4096)}, link=True))
    check(not r["runs"] and "shape" in r["why"] and r["bytes"] > 0, str(r)[:400])


def a_drafter():
    path = MODEL + "-drafter"
    if os.path.isdir(path):
        r = report(path)
        check(r["runs"] and r["drafter"] and "--drafter" in r["why"] and r["model"]["backbone_hidden_size"] > 0, str(r)[:400])


def files():
    path = os.path.join(ROOT, "one.safetensors")
    safetensors(path, {"a": ("F32", [1, 2], bytes(8)), "b": ("U8", [3], bytes(3))})
    r = report(path)
    check(not r["runs"] and r["types"] == {"F32": {"tensors": 1, "bytes": 8}, "U8": {"tensors": 1, "bytes": 3}}, str(r))
    check(re.search(r"^F32 +\[1, 2\] a$", run("inspect", path).stdout, re.M), "the tensors are not listed")
    for name, data in (("text.txt", b"hello"), ("damaged.safetensors", b"\xff" * 40), ("empty.safetensors", b"")):
        with open(os.path.join(ROOT, name), "wb") as f:
            f.write(data)
        p = run("inspect", os.path.join(ROOT, name))
        check(p.returncode == 1 and p.stderr.count("\n") == 1 and not p.stdout, f"{name}: {p.returncode} {p.stderr}")
    p = run("inspect", os.path.join(ROOT, "nothing here"))
    check(p.returncode == 1 and "No such file" in p.stderr, p.stderr)
    os.makedirs(os.path.join(ROOT, "bare"))
    check(run("inspect", os.path.join(ROOT, "bare")).returncode == 1, "an empty folder")


def gguf():
    path = os.path.join(ROOT, "m-q8_0.gguf")
    p = run("convert", MODEL, path, "--type", "q8_0")
    check(p.returncode == 0, p.stderr)
    r, own = report(path), report(MODEL)
    check(r["runs"] and r["container"] == "GGUF" and r["format"] == "q8_0" and r["types"]["q8_0"]["tensors"] > 0, str(r)[:400])
    check(r["model"]["kv_formats"][0]["full_bytes_per_token"] == own["model"]["kv_formats"][0]["full_bytes_per_token"]
          and r["model"]["variant"] == own["model"]["variant"], "another shape than the folder's")
    with open(path, "rb") as f:
        data = f.read()
    with open(os.path.join(ROOT, "other.gguf"), "wb") as f:
        f.write(data.replace(b"gemma4", b"llama4", 1))
    r = report(os.path.join(ROOT, "other.gguf"))
    check(not r["runs"] and r["what"] == "llama4, GGUF, q8_0" and "llama4" in r["why"] and r["bytes"] > 0, str(r)[:400])
    with open(os.path.join(ROOT, "cut.gguf"), "wb") as f:
        f.write(data[:3000])
    p = run("inspect", os.path.join(ROOT, "cut.gguf"))
    check(p.returncode == 1 and p.stderr.count("\n") == 1, p.stderr)
    for name, content, says in (("none.gguf", b"", "not a GGUF file"), ("GG.GGUF", b"GG", "not a GGUF file"),
                                ("page.gguf", b"<html>not found</html>" * 9, "not a GGUF file")):
        with open(os.path.join(ROOT, name), "wb") as f:
            f.write(content)
        for call in (("inspect",), ("run", "x", "--model"), ("convert", "--type", "f32", os.path.join(ROOT, "out"))):
            call = (*call[:-1], os.path.join(ROOT, name), call[-1]) if call[0] == "convert" else (*call, os.path.join(ROOT, name))
            p = run(*call)
            check(p.returncode == 1 and p.stderr.count("\n") == 1 and says in p.stderr, f"{call}: {p.stderr}")


def cut_weights():
    """Whatever holds them: the same answer, and nothing is said of a model that is not there as a whole."""
    path = os.path.join(ROOT, "weights-q8_0.gguf")
    check(run("convert", MODEL, path, "--type", "q8_0").returncode == 0, "convert")
    whole = os.path.join(ROOT, "whole")
    shutil.copytree(MODEL, whole)
    single = os.path.join(ROOT, "single.safetensors")
    shutil.copy(os.path.join(MODEL, "model.safetensors"), single)
    for what, file in ((path, path), (whole, os.path.join(whole, "model.safetensors")), (single, single)):
        check(run("inspect", what).returncode == 0, f"{what} is whole")
        os.truncate(file, os.path.getsize(file) - 70)
        p = run("inspect", what)
        check(p.returncode == 1 and not p.stdout and p.stderr.count("\n") == 1 and file + ": " in p.stderr
              and "was not copied whole" in p.stderr, f"{what}: {p.returncode} {p.stderr} {p.stdout[:200]}")


def published():
    """What a published model takes, on cards that are not here: no file of it is either."""
    def at(name, memory, device="cuda:0", *options):
        p = run("inspect", "--synthetic", name, "--bits", "4", "--ctx", "32768", "--device", device, "--gpu-memory", memory, "--json", *options)
        check(p.returncode == 0 and not p.stderr, f"{name} on {memory}: {p.stderr}")
        return json.loads(p.stdout)["model"]
    for name, memory, device, host in (("e2b", "6G", "cuda:0", 0), ("e4b", "8G", "cuda:0", 0), ("26b", "24G", "cuda:0", 0),
                                       ("26b", "12G", "cuda:0,cpu:layers", 13), ("31b", "24G", "cuda:0", 0), ("31b", "12G", "cuda:0-2", 0)):
        m = at(name, memory, device, "--split", "layers")
        said = re.match(r"layers (?:0 to (\d+) on the CPU, )?.*\(weights ([\d.]+) GB\).*; beside them keys and values of (\d+) requests? "
                        r"of 32768 tokens, ([\d.]+) GB each; a step of \d+ rows ([\d.]+) GB; pictures and sounds ([\d.]+) GB$", m["placing"])
        check(said, f"{name} on {memory}: {m['placing']}")
        if said:
            check((int(said[1]) + 1 if said[1] else 0) == host, f"{name} on {memory}: {m['placing']}")
            weights, n, each, step, towers = (float(said[i]) for i in range(2, 7))
            left = float(memory[:-1]) * 1.0738 - weights - step
            check(n * each <= left, f"{name} on {memory}: {m['placing']}")
            if device == "cuda:0":  # as many as have room, and a fifth of what weights leave is kept where a step takes less
                check(n * each <= left - towers < (n + 1) * each + (left + step) / 5 + 0.02, f"{name} on {memory}: {m['placing']}")
    places = {name: at(name, memory)["placing"] for name, memory in (("26b", "12G"), ("31b", "20G"))}
    check("--device cuda:0,cpu leaves the experts of 14 of 30 layers to the CPU" in places["26b"] and places["26b"].startswith("no: the weights need 14.20 GB"), str(places))
    check(re.match(r"no: the weights need 17.27 GB, a step of \d+ rows [\d.]+ GB, keys and values 3.59 GB, towers [\d.]+ GB, [\d.]+ GB in all; "
                   r"cuda:0 has room for 21.47 GB \(less is needed with .*\); 2 such devices would hold it .*, or --device cuda:0,cpu leaves \d+ of 60 layers to the CPU$", places["31b"]), str(places))
    experts = at("26b", "12G", "cuda:0,cpu")["placing"]
    check(experts.startswith("experts of layers 0 to 13 on the CPU, layers 0 to 29 and the head on cuda:0 (weights 8.20 GB); beside them"), experts)
    none = at("31b", "12G", "cuda:0,cpu:experts")["placing"]
    check(none == "no: the model has no experts that the CPU could have (cpu:layers)", none)
    for name, device, want in (("31b", "cuda:0,1", "outputs cut over cuda:0 and cuda:1 "), ("12b", "cuda:0,1", "outputs cut "), ("26b", "cuda:0,1", "outputs cut "),
                               ("e4b", "cuda:0-3", "layers "), ("31b", "cuda:0-8", "layers "), ("31b", "cuda:0,1,cpu", "layers ")):
        which = at(name, "40G", device)["placing"]  # a model whose weights take long to read is cut, if so many can have a part
        check(which.startswith(want), f"{name} on {device}: {which}")
    cheap = at("31b", "24G", "cuda:0", "--kv", "4")["placing"]
    check("keys and values of 4 requests" in cheap, cheap)
    two = run("inspect", "--synthetic", "e2b", MODEL)
    check(two.returncode == 2 and "either MODEL or --synthetic" in two.stderr, two.stderr)
    check(run("inspect").returncode == 2, "no model")
    table = run("inspect", "--synthetic", "e2b", "--layers", "5").stdout
    check(table.startswith("model        Gemma 4 own, published shape, 4 bits in groups of 64") and "layers       5: 4 sliding" in table, table[:300])


for part in (a_model, published, saved_again, what_cannot_run_is_described, a_drafter, files, gguf, cut_weights):
    part()
shutil.rmtree(ROOT, ignore_errors=True)
print(f"{passed} passed, {len(wrong)} failed")
sys.exit(1 if wrong else 0)
