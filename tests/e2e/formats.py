#!/usr/bin/env python3
"""The bundled model in every format that convert writes: formats.py PROGRAM MODEL [--table]

Converts it, compares tokens, and takes the Kullback-Leibler divergence of the logits (exact arithmetic on both sides, so
that it is the weights' alone) at the last positions of the prompts of tests/golden/pocket-ids.txt. Fails where one is
above its bound. --table prints the rows of docs/MODELS.md, over more positions, with the speed of each file; --minifloats leaves the formats of convert out. Closes with
`N passed, N failed`."""
import array, json, math, os, shutil, subprocess, sys, tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import minifloats

PROGRAM, MODEL = sys.argv[1:3]
TABLE = "--table" in sys.argv
IDS = [line.strip() for line in open("tests/golden/pocket-ids.txt") if line[0].isdigit()]
IDS, LAST = (IDS, 60) if TABLE else (IDS[-2:], 8)  # English at the end, where the model is unsure
CHECKED = ("f32", "bf16", "q8_0", "q4_0", "q4_k", "mlx4")  # without --table; tests/convert measures the others' errors
VOCAB = 4096

# type -> bound of the mean divergence in nat: about twice what was measured
BOUND = {
    "f32": 0, "bf16": 1.2e-4, "f16": 1e-6, "q8_0": 0.0012, "q6_k": 0.002, "q5_k": 0.0062, "q5_1": 0.0072, "q5_0": 0.005, "q4_k": 0.035, "q4_1": 0.009,
    "q4_0": 0.027, "iq4_nl": 0.02, "iq4_xs": 0.022, "mxfp4": 0.09, "q3_k": 0.08, "q2_k": 0.26, "mlx8": 1.2e-4, "mlx6": 0.01, "mlx5": 0.02, "mlx4": 0.006,
    "mlx3": 0.5, "mlx2": 2,
}
FOLDERS = ("f32", "bf16", "f16")  # also written as GGUF
# floats of 4 and 8 bits, which convert reads alone: their bounds, and those whose kernels must give the bits of another
MINI = {"nvfp4": 0.04, "nvfp4-modelopt": 0.04, "nvfp4-mlx": 0.2, "mxfp4": 0.09, "mxfp4-mlx": 0.09, "mxfp8": 0.008, "mxfp8-mlx": 0.008,
        "fp8-row": 0.008, "fp8-tensor": 0.008, "fp8-tiles": 0.008, "fp8-e5m2": 0.03}
TWINS = {"nvfp4-modelopt": "nvfp4", "mxfp4-mlx": "mxfp4", "mxfp8-mlx": "mxfp8"}
MINI_CHECKED = ("nvfp4", "nvfp4-modelopt", "mxfp4", "mxfp4-mlx", "mxfp8", "fp8-row", "fp8-tiles")


def run(*args, **more):
    return subprocess.run([PROGRAM, *args], capture_output=True, text=True, check=True, timeout=300, **more).stdout


def logits(model, ids, work):
    out = os.path.join(work, "logits")
    run("logits", "--model", model, "--weights", "exact", "--kv", "f32", "--ids", ids, "--last", str(LAST), "--out", out)
    rows = array.array("f")
    rows.frombytes(open(out, "rb").read())
    return [rows[i:i + VOCAB] for i in range(0, len(rows), VOCAB)]


def log_softmax(row):
    top = max(row)
    norm = top + math.log(sum(map(math.exp, (x - top for x in row))))
    return [x - norm for x in row]


def divergence(want, got):
    total = 0.0
    for a, row in zip(want, got):
        b = log_softmax(row)
        total += sum(math.exp(x) * (x - y) for x, y in zip(a, b) if x > -25)
    return total / len(want)


def size_of(path):
    return sum(os.path.getsize(os.path.join(path, f)) for f in os.listdir(path) if "safetensors" in f) if os.path.isdir(path) else os.path.getsize(path)


def speed(model):
    r = json.loads(run("bench", "--model", model, "--prompt", "512", "--generate", "64", "--batch", "1", "--runs", "5", "--json"))
    return r["prompt"][0]["tokens_per_second"], r["generate"][0]["tokens_per_second"]


def bits_of(model, work, *args):
    out = os.path.join(work, "bits")
    run("logits", "--model", model, "--ids", IDS[-1], "--last", "4", "--out", out, *args)
    return open(out, "rb").read()


def small_floats(work, text, tokens, want):
    """Each against the values that its own definition gives, in exact arithmetic, and one layout against another."""
    source, own = os.path.join(work, "bf16-source"), {}
    failed = passed = 0
    run("convert", MODEL, source, "--type", "bf16")
    tied = bits_of(source, work, "--weights", "exact")
    for kind in MINI if TABLE else MINI_CHECKED:
        path, twin = os.path.join(work, kind), os.path.join(work, kind + "-values")
        minifloats.write(source, path, twin, kind, None if TABLE else 1)
        own[kind] = bits_of(path, work)
        got = [row for ids in IDS for row in logits(path, ids, work)]
        kl = divergence(want, got)
        about = json.loads(run("inspect", path, "--json"))
        section = minifloats.KINDS[kind][1]
        named = about["runs"] and all(section.get(k, "") in about["format"] for k in ("mode", "quant_method", "format", "quant_algo"))
        checks = {"values": bits_of(path, work, "--weights", "exact") == bits_of(twin, work, "--weights", "exact"),
                  "the other layout's bits": own[kind] == own.get(TWINS.get(kind), own[kind]),
                  "tokens": run("tokenize", "--model", path, input=text) == tokens, "inspect": named, f"divergence {kl:.3g}": kl <= MINI[kind]}
        for name, good in checks.items():
            passed, failed = passed + bool(good), failed + (not good)
            if not good:
                print(f"FAIL {kind}: {name}")
        if TABLE:
            prompt, generate = speed(path)
            print(f"| {kind} | {size_of(path) / 1e6:.1f} | {kl:.2g} | {prompt:.0f} | {generate:.0f} |", flush=True)
        shutil.rmtree(path), shutil.rmtree(twin)
        if TABLE:
            continue
        minifloats.write(source, path, twin, kind, 0, head=5)
        headed = bits_of(path, work, "--weights", "exact")
        for name, good in {"values of a head": headed == bits_of(twin, work, "--weights", "exact"), "a head is used": headed != tied}.items():
            passed, failed = passed + good, failed + (not good)
            if not good:
                print(f"FAIL {kind}: {name}")
        shutil.rmtree(path), shutil.rmtree(twin)
    return passed, failed


def main():
    failed = passed = 0
    text = "Hello <|turn>user\nWhat's the weather in Oslo?  42\t\u00e9\u4e2d\u2581x"
    with tempfile.TemporaryDirectory() as work:
        tokens = run("tokenize", "--model", MODEL, input=text)
        want = [log_softmax(row) for ids in IDS for row in logits(MODEL, ids, work)]
        for kind in [*BOUND, *(f + " folder" for f in FOLDERS)] if "--minifloats" not in sys.argv else []:
            name = kind.split()[0]
            if not TABLE and name not in CHECKED:
                continue
            path = os.path.join(work, name if "folder" in kind or "mlx" in kind else name + ".gguf")
            run("convert", MODEL, path, "--type", name)
            got = [row for ids in IDS for row in logits(path, ids, work)]
            kl = divergence(want, got)
            same = run("tokenize", "--model", path, input=text) == tokens
            good = same and kl <= BOUND[name]
            passed, failed = passed + good, failed + (not good)
            if not good:
                print(f"FAIL {kind}: divergence {kl:.3g} nat, bound {BOUND[name]:.3g}" + ("" if same else "; other tokens"))
            if TABLE:
                try:
                    prompt, generate = speed(path)
                    speeds = f"{prompt:.0f} | {generate:.0f}"
                except subprocess.CalledProcessError as e:
                    speeds = f"{e.stderr.strip().splitlines()[-1]} |"
                print(f"| {kind} | {size_of(path) / 1e6:.1f} | {kl:.2g} | {speeds} |", flush=True)
        more = small_floats(work, text, tokens, want)
        passed, failed = passed + more[0], failed + more[1]
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
