#!/usr/bin/env python3
"""Packed weights kept in a file: packed.py PROGRAM MODEL

Logits without the file, with a new one, with one that is found, and with every kind of damage to it: the same bytes.
Closes with `N passed, N failed`."""
import glob, os, resource, shutil, signal, struct, subprocess, sys, tempfile

import mmproj, seeing_model
from counted import check, closing
from drawn import GIF, wav

PROGRAM, MODEL = sys.argv[1:3]


def logits(*args, model=None, limit=None):
    """(logits, log)"""
    def lower():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # a write then fails as on a full disk
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    with tempfile.NamedTemporaryFile() as out:
        r = subprocess.run([PROGRAM, "logits", "--verbose", "--model", model or MODEL, "--ids", "2,5,9,11", "--last", "1", "--out", out.name, *args], capture_output=True,
                           text=True, timeout=120, preexec_fn=lower if limit else None)
        return out.read() if r.returncode == 0 else None, r.stderr


with tempfile.TemporaryDirectory() as top:
    folder = os.path.join(top, "kept")
    cached = ["--packed-cache", folder]
    want, _ = logits()

    def run(name, *args, found, says="", **how):
        got, log = logits(*cached, *args, **how)
        check(name, got == want and got, log[-300:])
        check(name + ": found", (".packed\n" in log and "B in " in log) == found, log[-300:])
        check(name + ": says", says in log, log[-300:])

    def files():
        return sorted(glob.glob(folder + "/*"))

    run("a full disk", found=False, says="is not written", limit=65536)
    check("a full disk leaves nothing", files() == [], files())
    run("the first start", found=False)
    check("one file", len(files()) == 1 and files()[0].endswith(".packed"), files())
    path = files()[0]
    whole = open(path, "rb").read()
    run("the second start", found=True)
    if len(glob.glob("/sys/devices/system/node/node[0-9]*")) < 2:  # else panels lie by node
        run("other threads", "--threads", "2", found=True)
    check("nothing was written again", open(path, "rb").read() == whole)

    for name, at in (("the first byte", 0), ("a size", 9), ("a hash", 40), ("the first weights", 4096 + 100), ("the last byte", len(whole) - 1)):
        damaged = bytearray(whole)
        damaged[at] ^= 4
        open(path, "wb").write(damaged)
        run(f"{name} flipped", found=False, says="is not used: its ")
        check(f"{name} flipped: mended", open(path, "rb").read() == whole)
    for n in (0, 10, 5000, len(whole) - 1):
        open(path, "wb").write(whole[:n])
        run(f"cut to {n} bytes", found=False, says="is not used: its size is another")
    open(path, "wb").write(whole + b"x")
    run("a byte too many", found=False, says="is not used: its size is another")
    check("still one file", files() == [path], files())

    isas = subprocess.run([PROGRAM, "version", "--isas"], capture_output=True, text=True).stdout.split()
    run("another instruction set", "--isa", isas[0], found=isas == ["scalar"])
    got, log = logits(*cached, "--activations", "16")
    check("another arithmetic is another file", got == logits("--activations", "16")[0] and ".packed\n" not in log, log)

    copy = os.path.join(top, "copy")
    shutil.copytree(MODEL, copy)
    run("another checkpoint", found=False, model=copy)
    run("another checkpoint again", found=True, model=copy)
    os.utime(os.path.join(copy, "config.json"))
    run("a checkpoint that was touched", found=False, model=copy)

    for f in files():
        os.unlink(f)
    both = [subprocess.Popen([PROGRAM, "logits", "--model", MODEL, "--ids", "2,5", "--out", os.path.join(top, f"o{i}"), *cached], stderr=subprocess.DEVNULL)
            for i in range(3)]
    check("three at once", [p.wait(60) for p in both] == [0, 0, 0] and len(files()) == 1, files())
    run("after three at once", found=True)
    got, log = logits("--packed-cache", "/nowhere/at/all")
    check("a folder that cannot be made is one line", got is None and "--packed-cache /nowhere/at/all: " in log.splitlines()[-1], log)


def towers(top):
    """Those of a model that sees and hears: a file for each sense, under the same rules."""
    at = lambda *names: os.path.join(top, *names)
    seeing_model.main(at("hf"))
    with open(at("a.gif"), "wb") as f:
        f.write(GIF)
    with open(at("a.wav"), "wb") as f:
        f.write(wav((i * 37) % 601 * 50 for i in range(8000)))

    def rows(sense, model, *args):
        file = ("--image", at("a.gif")) if sense == "image" else ("--audio", at("a.wav"))
        r = subprocess.run([PROGRAM, "features", "--verbose", "--model", model, *file, "--out", at("rows"), *args], capture_output=True, text=True, timeout=120)
        with open(at("rows"), "rb") as f:
            return f.read() if r.returncode == 0 else None, r.stderr

    def run(name, sense, model, found, says="", want=None, kept="kept"):
        want = want or rows(sense, model)[0]
        got, log = rows(sense, model, "--packed-cache", at(kept))
        check(f"{sense}, {name}", got == want and got, log[-300:])
        check(f"{sense}, {name}: found", (".packed\n" in log and "B in " in log) == found, log[-300:])
        check(f"{sense}, {name}: says", says in log, log[-300:])
        return want

    for n, sense in enumerate(("image", "audio")):
        want = run("the first start", sense, at("hf"), False)
        files = set(glob.glob(at("kept", "*")))
        check(f"{sense}: a file of its own", len(files) == n + 1, files)
        path = max(files, key=os.path.getmtime)
        run("the second start", sense, at("hf"), True, want=want)
        whole = open(path, "rb").read()
        for at_byte in (9, 36, 4096 + 100, len(whole) - 1):
            damaged = bytearray(whole)
            damaged[at_byte] ^= 4
            open(path, "wb").write(damaged)
            run(f"byte {at_byte} flipped", sense, at("hf"), False, "is not used: its ", want)
            check(f"{sense}, byte {at_byte} flipped: mended", open(path, "rb").read() == whole)
        open(path, "wb").write(whole[:-1])
        run("cut", sense, at("hf"), False, "is not used: its size is another", want)
        run("mended", sense, at("hf"), True, want=want)
    os.utime(at("hf", "model.safetensors"))
    run("a checkpoint that was touched", "image", at("hf"), False)

    # Towers in a file of their own: it counts, wherever it lies, and the model's folder does not name it.
    os.makedirs(at("gguf")), os.makedirs(at("eyes"))
    subprocess.run([PROGRAM, "convert", at("hf"), at("gguf", "m.gguf"), "--type", "f32"], check=True, capture_output=True, timeout=60)
    of = at("eyes", "mm.gguf")
    named = lambda *args: rows("image", at("gguf", "m.gguf"), "--mmproj", of, *args)
    mmproj.to_gguf(at("hf"), of)
    one, first = named("--packed-cache", at("kept"))[0], named()[0]
    again, log = named("--packed-cache", at("kept"))
    check("a file of towers: found again", one == again == first and one and ".packed\n" in log, log[-300:])
    tensors = mmproj.read(at("hf", "model.safetensors"))
    name = "model.embed_vision.embedding_projection.weight"
    dtype, shape, data = tensors[name]
    tensors[name] = (dtype, shape, b"".join(struct.pack("<f", -x) for x in mmproj.floats(data)))
    mmproj.write(at("hf", "model.safetensors"), tensors)
    mmproj.to_gguf(at("hf"), of)
    other, log = named("--packed-cache", at("kept"))
    check("another file of towers under its name", other and other != one and other == named()[0] and ".packed\n" not in log, log[-300:])


with tempfile.TemporaryDirectory() as top:
    towers(top)
sys.exit(closing())
