#!/usr/bin/env python3
"""The command convert as a user meets it: convert.py PROGRAM MODEL

Wrong calls, what exists already, a full disk, a second writer, Ctrl-C, a damaged source: one line, and nothing left
behind. Memory while a model larger than it is written. Closes with `N passed, N failed`."""
import array, json, math, os, random, resource, shutil, signal, subprocess, sys, tempfile, time

from counted import check, closing

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import minifloats, mlx_names, tiny_model

# Programs start as at a terminal, however the tests were started: a shell's background and nohup ignore these.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

PROGRAM, MODEL = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])


def convert(*args, limits=(), cwd=None):
    def lower():
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # Python ignores it
        for which, value in limits:
            resource.setrlimit(which, (value, value))
    return subprocess.run([PROGRAM, "convert", *args], capture_output=True, text=True, timeout=400, preexec_fn=lower, cwd=cwd)


def refused(name, status, says, folder, *args, **more):
    before = sorted(os.listdir(folder))
    r = convert(*args, **more)
    one_line = r.stderr.count("\n") == 1 and r.stderr.startswith("evenkeel convert: ")
    check(name, r.returncode == status and one_line and says in r.stderr, f"{r.returncode} {r.stderr[-400:]}")
    check(f"{name}: nothing is left", sorted(os.listdir(folder)) == before, os.listdir(folder))


def wrong_calls(top):
    at = lambda n: os.path.join(top, n)
    refused("no type", 2, "--type", top, MODEL, at("x.gguf"))
    refused("another type", 2, "q4_k", top, MODEL, at("x.gguf"), "--type", "q4")
    refused("no source", 2, "SRC", top, at("x.gguf"), "--type", "q8_0")
    refused("two sources", 2, "not both", top, MODEL, at("x"), "--synthetic", "e2b", "--type", "mlx4")
    refused("layers of a file", 2, "--layers", top, MODEL, at("x"), "--layers", "3", "--type", "mlx4")
    refused("GGUF's type in a folder", 2, ".gguf", top, MODEL, at("x"), "--type", "q4_0")
    refused("MLX in a file", 2, "folder", top, MODEL, at("x.gguf"), "--type", "mlx4")
    refused("a source that is not there", 1, "nowhere", top, at("nowhere"), at("x.gguf"), "--type", "q8_0")
    refused("a folder that is not there", 1, "cannot be", top, MODEL, at("no/x.gguf"), "--type", "q8_0")
    refused("more layers than there are", 2, "60", top, at("x"), "--synthetic", "31b", "--layers", "61", "--type", "mlx4")
    refused("random weights of six bits", 2, "4 or 8", top, at("x"), "--synthetic", "12b", "--layers", "1", "--type", "mlx6")
    refused("no name of a target", 2, "DST is empty", top, MODEL, "", "--type", "mlx4", cwd=top)
    refused("no name of a target, random weights", 2, "DST is empty", top, "--synthetic", "e2b", "--layers", "1", "", "--type", "mlx4", cwd=top)
    refused("no name of a source", 2, "SRC is empty", top, "", at("x.gguf"), "--type", "q8_0")
    refused("a type of GGUF for no name", 2, "DST is empty", top, MODEL, "", "--type", "q4_0", cwd=top)


def what_exists(top):
    file, folder, other = os.path.join(top, "a.gguf"), os.path.join(top, "a"), os.path.join(top, "mine")
    for dst, kind in ((file, "q8_0"), (folder, "mlx8")):
        check(f"{kind} is written", convert(MODEL, dst, "--type", kind).returncode == 0)
    refused("a file that exists", 1, "--force", top, MODEL, file, "--type", "q8_0")
    refused("a folder that exists", 1, "--force", top, MODEL, folder, "--type", "mlx4")
    small = os.path.getsize(file)
    r = convert(MODEL, file, "--type", "f32", "--force")
    check("a file is replaced", r.returncode == 0 and os.path.getsize(file) > 3 * small, r.stderr)
    open(os.path.join(folder, "old.safetensors.bak"), "w").close()
    r = convert(MODEL, folder, "--type", "bf16", "--force")
    check("a folder is replaced", r.returncode == 0 and not os.path.exists(os.path.join(folder, "old.safetensors.bak")), r.stderr)
    os.makedirs(os.path.join(other, "deep"))
    refused("a folder of something else", 1, "no folder of a model", top, MODEL, other, "--type", "mlx4", "--force")
    r = convert(folder, folder, "--type", "f32", "--force")
    check("a model replaces itself", r.returncode == 0, r.stderr)
    shutil.rmtree(other)


def trouble(top):
    at = lambda n: os.path.join(top, n)
    os.mkdir(at("mine"))
    for name, kind in (("link.gguf", "q8_0"), ("link", "mlx4")):  # what lies in the place of the part is another's
        target = at("mine/file") if kind == "q8_0" else at("mine")
        with open(at("mine/file"), "w") as f:
            f.write("mine")
        os.symlink(target, at(name + ".part"))
        refused(f"a link as {name}.part", 1, f"{name}.part", top, MODEL, at(name), "--type", kind)
        check(f"{name}.part is not followed", os.listdir(at("mine")) == ["file"] and open(at("mine/file"), "rb").read() == b"mine", os.listdir(at("mine")))
        os.unlink(at(name + ".part"))
    os.makedirs(at("y.part"))
    open(at("y.part/thesis.txt"), "w").close()
    refused("a folder of somebody in the place of the part", 1, "thesis.txt is not left over", top, MODEL, at("y"), "--type", "mlx4")
    os.remove(at("y.part/thesis.txt"))
    os.rmdir(at("y.part"))
    shutil.copytree(MODEL, at("z.part"))
    check("a file's model is written", convert(MODEL, at("z.gguf"), "--type", "q8_0").returncode == 0)
    os.rename(at("z.gguf"), at("z.gguf.part"))
    refused("a source in the place of the part", 1, "would be overwritten", top, at("z.part"), at("z"), "--type", "mlx4")
    refused("the same of a file", 1, "would be overwritten", top, at("z.gguf.part"), at("z.gguf"), "--type", "q4_0")
    shutil.rmtree(at("z.part"))
    os.remove(at("z.gguf.part"))
    refused("a file system with small files", 1, "cannot be written", top, MODEL, at("x.gguf"), "--type", "q8_0", limits=[(resource.RLIMIT_FSIZE, 1 << 20)])
    refused("the same for a folder", 1, "cannot be written", top, MODEL, at("x"), "--type", "mlx4", limits=[(resource.RLIMIT_FSIZE, 1 << 20)])
    room = os.statvfs("/dev/shm") if os.path.isdir("/dev/shm") else None
    if room and room.f_bavail * room.f_frsize < 100e9:
        refused("a full disk", 1, "are free", "/dev/shm", f"/dev/shm/evenkeel-{os.getpid()}.gguf", "--synthetic", "31b", "--type", "f32")
    shutil.copytree(MODEL, at("cut"))
    with open(at("cut/model.safetensors"), "r+b") as f:
        f.truncate(os.path.getsize(at("cut/model.safetensors")) - 1)
    refused("a damaged source", 1, "model.safetensors", top, at("cut"), at("x.gguf"), "--type", "q8_0")
    shutil.rmtree(at("cut"))


def writes_slowly(dst):
    return [PROGRAM, "convert", "--synthetic", "e2b", "--layers", "2", "--type", "q2_k", "--threads", "1", dst]


def interrupted(top):
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        dst = os.path.join(top, "slow.gguf")
        p = subprocess.Popen(writes_slowly(dst), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        deadline = time.time() + 60
        while time.time() < deadline and not (os.path.exists(dst + ".part") and os.path.getsize(dst + ".part") > 0):
            time.sleep(0.02)
        check("it writes beside the name", os.path.exists(dst + ".part") and not os.path.exists(dst))
        if number == signal.SIGINT:
            refused("a second writer", 1, "another process", top, "--synthetic", "e2b", "--layers", "1", "--type", "q8_0", dst)
        p.send_signal(number)
        said = p.communicate(timeout=60)[1]
        check(f"{number.name} ends it", p.returncode == 1 and "stopped" in said, f"{p.returncode} {said[-300:]}")
        check("nothing is left", not os.path.exists(dst) and not os.path.exists(dst + ".part"), os.listdir(top))
    p = subprocess.Popen(["nohup", *writes_slowly(dst)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    deadline = time.time() + 60
    while time.time() < deadline and not os.path.exists(dst + ".part"):
        time.sleep(0.02)
    p.send_signal(signal.SIGHUP)
    time.sleep(0.3)
    check("under nohup it goes on", p.poll() is None and os.path.exists(dst + ".part"), p.poll())
    p.terminate()
    p.communicate(timeout=60)


def killed(top):
    """A killed one leaves its part and nothing under the name; the next gives what an undisturbed one gives."""
    for name, kind in (("file.gguf", "q2_k"), ("folder", "mlx4")):
        dst, clean = os.path.join(top, name), os.path.join(top, "clean-" + name)
        slow = [PROGRAM, "convert", "--synthetic", "e2b", "--layers", "2", "--type", kind, "--threads", "1", dst]
        p = subprocess.Popen(slow, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.time() + 60
        while time.time() < deadline and not os.path.exists(dst + ".part"):
            time.sleep(0.005)
        time.sleep(0.05)
        p.kill()
        p.wait(timeout=60)
        check(f"{name}: killed in the middle", os.path.exists(dst + ".part") and not os.path.exists(dst), os.listdir(top))
        for to in (dst, clean):
            r = convert(MODEL, to, "--type", "q8_0" if kind == "q2_k" else kind)
            check(f"{name}: it starts again", r.returncode == 0 and not os.path.exists(to + ".part"), r.stderr)
        bytes_of = lambda d: [(f, open(os.path.join(d, f), "rb").read()) for f in sorted(os.listdir(d))] if os.path.isdir(d) else open(d, "rb").read()
        check(f"{name}: the same bytes", bytes_of(dst) == bytes_of(clean))
    dst = os.path.join(top, "again")
    os.mkdir(dst + ".part")
    for name in ("model-00001-of-00002.safetensors", "model.safetensors.index.json", "config.json"):
        with open(os.path.join(dst + ".part", name), "w") as f:
            f.write("of another division into files")
    r = convert(MODEL, dst, "--type", "mlx8")
    check("what a killed one wrote is no part of the next", r.returncode == 0 and sorted(os.listdir(dst)) == sorted(os.listdir(os.path.join(top, "clean-folder"))), f"{r.stderr} {os.listdir(dst)}")
    dst = os.path.join(top, "again.gguf")
    with open(dst + ".part", "wb") as f:
        f.write(b"half a file" * 1000)
    r = convert(MODEL, dst, "--type", "q8_0")
    check("it starts again", r.returncode == 0 and not os.path.exists(dst + ".part"), r.stderr)


def memory(top):
    """400 MB of weights through 128 MB of memory, of which the tokenizer takes the most."""
    dst = os.path.join(top, "large")
    r = convert("--synthetic", "e2b", "--layers", "1", "--type", "mlx4", "--threads", "2", dst, limits=[(resource.RLIMIT_DATA, 128 << 20)])
    size = sum(os.path.getsize(os.path.join(dst, f)) for f in os.listdir(dst)) if r.returncode == 0 else 0
    check("memory", size > 250e6, f"{r.returncode} {size} {r.stderr[-300:]}")
    check("result", r.stdout.startswith(dst) and r.stdout.count("\n") == 1, r.stdout)
    if r.returncode == 0:
        check("mlx-lm's names of a model with towers", not mlx_names.problems(dst), mlx_names.problems(dst)[:5])
        loading(dst)
        shutil.rmtree(dst)
    r = convert("--synthetic", "e2b", "--layers", "1", "--type", "q4_0", dst + ".gguf")
    check("a GGUF file", r.returncode == 0, r.stderr)
    loading(dst + ".gguf")


def small_experts(folder):
    """A tiny model with experts whose full layers have one projection for keys and values, in bf16."""
    subprocess.run([sys.executable, os.path.join(HERE, "tiny_model.py"), folder], check=True)
    config = dict(tiny_model.CONFIG, enable_moe_block=True, num_experts=4, top_k_experts=2, moe_intermediate_size=64, attention_k_eq_v=True)
    vectors, modules = mlx_names.plain(config)
    shapes = dict(vectors, **{name + ".weight": shape for name, shape in modules.items() if ".switch_glu." not in name})
    for i in range(config["num_hidden_layers"]):
        at = f"model.layers.{i}.experts."
        shapes[at + "gate_up_proj"], shapes[at + "down_proj"] = [4, 128, 64], [4, 64, 64]
    values = [random.Random(1).choice((0x3d, 0xbd)) << 8 | i * 37 % 256 for i in range(4096)]
    bits = lambda shape: array.array("H", [values[i % 4096] for i in range(math.prod(shape))] if len(shape) > 1 else [0x3f80] * shape[0]).tobytes()
    minifloats.save(os.path.join(folder, "model.safetensors"), {name: ("BF16", shape, bits(shape)) for name, shape in shapes.items()})
    json.dump(config, open(os.path.join(folder, "config.json"), "w"))


def for_mlx(top):
    """mlx-lm loads with strict=True: the names and shapes that its classes have, no more and no fewer."""
    at = lambda n: os.path.join(top, n)
    small_experts(at("experts"))
    for source in (MODEL, at("experts")):
        for kind in ("mlx4", "mlx3", "bf16"):
            r = convert(source, at("out"), "--type", kind, "--force")
            wrong = [r.stderr] if r.returncode else mlx_names.problems(at("out"))
            check(f"mlx-lm's names of {os.path.basename(source)} as {kind}", not wrong, wrong[:5])


def loading(path):
    """What a file's pages take while they are packed leaves the process: at most 1.05 x the weights, and 40 MB of program and one step."""
    need = json.loads(subprocess.run([PROGRAM, "inspect", path, "--json"], capture_output=True, text=True, timeout=120).stdout)["model"]["weight_bytes"]
    p = subprocess.Popen([PROGRAM, "logits", "--model", path, "--ids", "2", "--last", "1", "--out", os.devnull], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    status, used = os.wait4(p.pid, 0)[1:]
    p.returncode = os.waitstatus_to_exitcode(status)
    peak = used.ru_maxrss * 1024
    check(f"loading {os.path.basename(path)}", p.returncode == 0 and need > 200e6 and peak <= 1.05 * need + 40e6, f"{p.returncode}: {peak / 1e6:.0f} MB for {need / 1e6:.0f} MB of weights")
    print(f"measured: loading {os.path.basename(path)} takes at most {peak / 1e6:.0f} MB, {need / 1e6:.0f} of them weights")


with tempfile.TemporaryDirectory() as folder:
    for part in (wrong_calls, what_exists, trouble, interrupted, killed, for_mlx, memory):
        work = os.path.join(folder, part.__name__)
        os.mkdir(work)
        part(work)
sys.exit(closing())
