#!/usr/bin/env python3
"""selftest on a model that sees and hears, in each form in which towers are stored: senses.py PROGRAM DIR

A folder of transformers, one in the names of mlx-vlm beside codes of mlx-lm, and a GGUF with an mmproj file beside it or
named. Closes with `N passed, N failed`."""
import os, re, shutil, subprocess, sys

import mmproj, seeing_model
from counted import check, closing
from drawn import GIF, wav

PROGRAM, DIR = sys.argv[1], sys.argv[2]
at = lambda *names: os.path.join(DIR, *names)


def run(*args):
    return subprocess.run([PROGRAM, *args], capture_output=True, text=True, timeout=300)


def rows(*args):
    """name -> whether it passed, of the rows of selftest."""
    r = run("selftest", "--threads", "2", *args)
    lines = [l for l in r.stdout.splitlines() if l.startswith(("ok ", "FAIL "))]
    found = {m[2]: m[1] == "ok" for l in lines for m in [re.match(r"(ok|FAIL)\s+(pictures and sounds|pictures|sounds)\b", l)] if m}
    return found, r.stdout[-1500:] + r.stderr[-500:]


def features(kind, file, *args):
    r = run("features", f"--{kind}", file, "--out", at("rows.f32"), *args)
    if r.returncode:
        return r.stderr
    with open(at("rows.f32"), "rb") as f:
        return f.read()


def main():
    seeing_model.main(at("hf"))
    picture, sound = at("a.gif"), at("a.wav")
    with open(picture, "wb") as f:
        f.write(GIF)
    with open(sound, "wb") as f:
        f.write(wav((i * 37) % 601 * 50 for i in range(16000)))
    os.makedirs(at("gguf")), os.makedirs(at("apart")), os.makedirs(at("elsewhere"))
    for form, to in (("f32", at("gguf", "m.gguf")), ("mlx4", at("mlx"))):
        r = run("convert", at("hf"), to, "--type", form)
        check(f"convert to {form}", r.returncode == 0, r.stderr)
    mmproj.to_mlx(at("hf"), at("mlx"))
    mmproj.to_gguf(at("hf"), at("gguf", "mmproj-m.gguf"))
    shutil.copy(at("gguf", "m.gguf"), at("apart", "m.gguf"))
    shutil.copy(at("gguf", "mmproj-m.gguf"), at("elsewhere", "towers.gguf"))
    apart = ("--model", at("apart", "m.gguf"), "--mmproj", at("elsewhere", "towers.gguf"))
    forms = {"a folder of transformers": ("--model", at("hf")), "MLX": ("--model", at("mlx")),
             "GGUF with mmproj beside it": ("--model", at("gguf", "m.gguf")), "GGUF with --mmproj": apart}
    want = None
    for name, args in forms.items():
        got = [features("image", picture, *args), features("audio", sound, *args)]
        want = want or got
        check(f"{name}: the same rows", got == want and all(isinstance(g, bytes) and g for g in got), [str(g)[:200] for g in got])
        found, log = rows(*args)
        check(f"{name}: selftest sees and hears", found == {"pictures": True, "sounds": True}, log)
    found, log = rows("--model", at("apart", "m.gguf"))
    check("without towers there is no row", found == {}, log)
    with open(at("elsewhere", "towers.gguf"), "r+b") as f:
        f.truncate(os.path.getsize(f.name) // 2)
    found, log = rows(*apart)
    check("damaged towers are a row that fails", found == {"pictures and sounds": False}, log)
    return closing()


sys.exit(main())
