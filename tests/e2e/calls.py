"""Wrong calls and odd files: exit 2 for a wrong call, 1 for a failure, one line that says what was wrong, and no wait.
Standard library only.

usage: calls.py EVENKEEL MODEL_DIR

The output's last line is `N passed, N failed`.
"""
import json

from counted import check, closing
import os
import signal
import subprocess
import sys
import tempfile
import time

# Programs start as at a terminal, however the tests were started: a shell's background and nohup ignore these.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

PROGRAM, MODEL = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
CONFIG = json.load(open(os.path.join(MODEL, "config.json"), encoding="utf-8"))
VOCAB, CONTEXT = (CONFIG.get("text_config", CONFIG)[k] for k in ("vocab_size", "max_position_embeddings"))
DRAFTER = MODEL + "-drafter"
LIMIT_SECONDS = 60  # what takes longer hangs, on a busy machine too
ENV = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "EVENKEEL_"))}


def run(*args, **more):
    more = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **more}
    try:
        r = subprocess.run([PROGRAM, *args], text=True, env=ENV, timeout=LIMIT_SECONDS, **more)
    except subprocess.TimeoutExpired:
        return -1, "", f"still running after {LIMIT_SECONDS} s"
    return r.returncode, r.stdout, "".join(l for l in (r.stderr or "").splitlines(True) if not l.startswith("evenkeel: "))


def refused(status, says, *args, **more):
    """Ends with this status and one line, of this command, with these words. What a model needs is said before."""
    code, out, err = run(*args, **more)
    one_line = err.count("\n") == 1 and err.startswith(f"evenkeel {args[0]}: ")
    check(" ".join(args)[:150], code == status and one_line and says in err and not out, f"{code}: {err[-500:]!r} {out[-200:]!r}")


def values_that_the_model_refuses(top):
    m, ids = ("--model", MODEL), f"2,{VOCAB}"
    out = os.path.join(top, "logits")
    refused(2, f"the model has {CONTEXT}", "bench", *m, "--prompt", str(CONTEXT))
    refused(2, f"the model has {CONTEXT}", "bench", *m, "--prompt", "8", "--depth", str(CONTEXT))
    refused(2, f"the vocabulary has {VOCAB}", "generate", *m, "--ids", ids)
    refused(2, f"the vocabulary has {VOCAB}", "logits", *m, "--ids", ids, "--out", out)
    refused(2, f"{CONTEXT}", "run", *m, "--ctx", str(CONTEXT + 1), "x")
    refused(2, f"{CONTEXT}", "serve", *m, "--ctx", str(CONTEXT + 1), "--port", "0")
    refused(2, f"{CONTEXT}", "inspect", MODEL, "--ctx", str(CONTEXT + 1))
    journal = os.path.join(top, "journal")
    with open(journal, "w") as file:
        file.write("{}\n")
    refused(2, f"{CONTEXT}", "replay", *m, "--ctx", str(CONTEXT + 1), journal)
    if os.path.isdir(DRAFTER):
        d = (*m, "--drafter", DRAFTER)
        refused(2, f"the vocabulary has {VOCAB}", "draft", *d, "--ids", ids, "--out", out)
        refused(2, f"the context is {CONTEXT}", "draft", *d, "--ids", ",".join("2" * CONTEXT), "--out", out)
    refused(2, "is no model", "list", "")
    check("nothing is left", os.listdir(top) == ["journal"], os.listdir(top))
    with open(out, "w", encoding="utf-8") as f:
        f.write("an earlier result")
    refused(2, f"the vocabulary has {VOCAB}", "logits", *m, "--ids", ids, "--out", out)
    check("a wrong call leaves an earlier result", os.path.exists(out) and open(out, encoding="utf-8").read() == "an earlier result")


def an_interrupted_result(top):
    """Half a file must not be taken for a whole one."""
    out = os.path.join(top, "logits")
    p = subprocess.Popen([PROGRAM, "logits", "--model", MODEL, "--ids", ",".join("2" * (CONTEXT - 2)), "--chunk", "8", "--threads", "1", "--out", out],
                         env=ENV, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    deadline = time.time() + LIMIT_SECONDS
    while time.time() < deadline and not (os.path.exists(out) and os.path.getsize(out)):
        time.sleep(0.005)
    p.send_signal(signal.SIGINT)
    err = p.communicate(timeout=LIMIT_SECONDS)[1].splitlines()[-1]
    check("an interrupted result", p.returncode == 1 and err == "evenkeel logits: stopped; nothing was written" and not os.path.exists(out), f"{p.returncode}: {err} {os.listdir(top)}")


def words(top):
    """What is no token id is shown as it was written; names from files and arguments do not speak to a terminal."""
    for text, word in (("1 2 3x", "'3x'"), ("1 +2", "'+2'"), ("1.5", "'1.5'"), ("1 99999999999999999999", "'99999999999999999999'"), ("0x10", "'0x10'"), ("1;2", "'1;2'")):
        with tempfile.TemporaryFile("w+") as f:
            f.write(text)
            f.seek(0)
            refused(1, f"{word} is not a token id", "detokenize", "--model", MODEL, stdin=f)
    refused(2, "not both: a\\x0ab\\x1b[31m", "convert", "a\nb\033[31m", os.path.join(top, "x"), "--synthetic", "e2b", "--type", "mlx4")
    folder, file = os.path.join(top, "folder"), os.path.join(top, "one.safetensors")
    os.mkdir(folder)
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as f:
        json.dump({"model_type": "a\033[31m"}, f)
    head = json.dumps({"t\033[31m": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}}).encode()
    for path in (file, os.path.join(folder, "model.safetensors")):
        with open(path, "wb") as f:
            f.write(len(head).to_bytes(8, "little") + head + b"x")
    for path in (folder, file):
        code, text, _ = run("inspect", path)
        check(f"inspect {path}", code == 0 and "\033" not in text and "\\x1b[31m" in text, f"{code}: {text!r}")


def drafters(top):
    """A drafter as a model, and a model as a drafter, in a folder and in a file: it is said which option they are for."""
    if not os.path.isdir(DRAFTER):
        return
    file, out = os.path.join(top, "drafter.gguf"), os.path.join(top, "out")
    check("a drafter as a file", run("convert", DRAFTER, file, "--type", "q8_0")[0] == 0)
    for path in (DRAFTER, file):
        for call in (("run", "x"), ("serve", "--port", "0"), ("bench",), ("logits", "--ids", "2", "--out", out),
                     ("generate", "--ids", "2"), ("tokenize",), ("detokenize", "--jsonl"), ("selftest",)):
            refused(1, f"{path} is a drafter: it takes --drafter, and its model --model", *call, "--model", path)
    refused(1, "is no drafter", "draft", "--ids", "2", "--model", MODEL, "--drafter", MODEL)


def odd(path, kind):
    if kind == "a pipe":
        os.mkfifo(path)
    elif kind == "a folder":
        os.mkdir(path)
    elif kind == "a device":
        os.symlink("/dev/zero", path)
    else:
        os.symlink(os.path.basename(path), path)  # not to be opened by anyone, not by root either


def files_that_are_none(top):
    """In the place of each file of a model, and where a file is named."""
    out, kinds = os.path.join(top, "out"), ("a pipe", "a folder", "a device", "symbolic links")
    for kind in kinds:
        for name in ("config.json", "generation_config.json", "tokenizer.json", "model.safetensors"):
            model = os.path.join(top, f"{name} {kind}")
            os.mkdir(model)
            for other in os.listdir(MODEL):
                if other != name:
                    os.symlink(os.path.join(MODEL, other), os.path.join(model, other))
            odd(os.path.join(model, name), kind)
            for call in (("run", "x", "--model", model), ("tokenize", "--model", model),
                         ("logits", "--ids", "2", "--out", out, "--model", model), ("convert", model, out, "--type", "bf16")):
                if name == "tokenizer.json" and call[0] == "logits" or name != "tokenizer.json" and call[0] == "tokenize":
                    continue
                code, _, err = run(*call)
                check(f"{call[0]}: {name} is {kind}", code == 1 and err.count("\n") == 1 and f"/{name}: " in err and kind in err, f"{code}: {err[-300:]}")
            code, text, err = run("inspect", model)
            check(f"inspect: {name} is {kind}", kind in text + err and code == (0 if not err else 1), f"{code}: {text[:300]} {err}")
        for name in ("model.gguf", "one.safetensors"):
            path = os.path.join(top, kind + name)
            odd(path, kind)
            if kind != "a folder":
                for call in (("inspect", path), ("run", "x", "--model", path), ("convert", path, out, "--type", "bf16"), ("replay", path)):
                    refused(1, kind, *call)
        path = os.path.join(top, kind + "tools")
        odd(path, kind)
        refused(1, kind, "run", "x", "--model", MODEL, "--tools", path)
    check("nothing is written", not os.path.exists(out) and not os.path.exists(out + ".part"))


def files_that_may_not_be_read(top):
    """As nobody, where this is root, who may read everything."""
    path = os.path.join(top, "model.gguf")
    code, _, err = run("convert", MODEL, path, "--type", "q8_0")
    check("a GGUF file", code == 0, err)
    os.chmod(path, 0)
    who = {"user": 65534} if os.geteuid() == 0 else {}
    if who and subprocess.run(["test", "-x", PROGRAM], user=65534).returncode:
        return print("not run: nobody may not run the program")
    for call in (("inspect", path), ("run", "x", "--model", path), ("convert", path, os.path.join(top, "out"), "--type", "bf16")):
        refused(1, "Permission denied", *call, **who)


def streams(top):
    """Closed, full, or no file: one line says so, and nothing else is written in their place."""
    calls = [("version",), ("help",), ("inspect", MODEL), ("generate", "--model", MODEL, "--ids", "2"), ("run", "--model", MODEL, "x"),
             ("tokenize", "--model", MODEL), ("tokenize", "--model", MODEL, "--jsonl"), ("parse",), ("list",),
             ("bench", "--model", MODEL, "--prompt", "8", "--batch", "1", "--generate", "2", "--runs", "1")]
    text = os.path.join(top, "text")
    with open(text, "w", encoding="utf-8") as f:
        f.write('"x"\n')
    for call in calls:
        for name in ("closed", "full"):
            with open("/dev/full", "w") as full, open(text) as f:
                code, _, err = run(*call, stdin=f, **({"stdout": full} if name == "full" else {"stdout": None, "preexec_fn": lambda: os.close(1)}))
            own = [l for l in err.splitlines() if "standard output could not be written" in l]
            check(f"{' '.join(call)}: output {name}", code == 1 and len(own) == 1, f"{code}: {err}")
    for call in (("tokenize", "--model", MODEL), ("tokenize", "--model", MODEL, "--jsonl"), ("render",), ("parse", "--jsonl"), ("run", "--model", MODEL)):
        refused(1, "Bad file descriptor", *call, stdin=None, preexec_fn=lambda: os.close(0))
        fd = os.open(top, os.O_RDONLY)
        refused(1, "Is a directory", *call, stdin=fd)
        os.close(fd)


def closed_streams_are_not_files(top):
    """A file that is opened gets the number of a stream that was closed, and what is printed goes there."""
    journal, port = os.path.join(top, "journal"), os.path.join(top, "port")
    p = subprocess.Popen([PROGRAM, "serve", "--model", MODEL, "--port", "0", "--journal", journal, "--port-file", port],
                         env=ENV, preexec_fn=lambda: os.closerange(1, 3))
    deadline = time.time() + LIMIT_SECONDS
    while time.time() < deadline and not os.path.exists(port) and p.poll() is None:
        time.sleep(0.02)
    time.sleep(0.2)
    p.terminate()
    code = p.wait(timeout=LIMIT_SECONDS)
    check("a server without streams", os.path.exists(port) and not open(journal).read(), f"{code} {open(journal).read()[:300]}")


with tempfile.TemporaryDirectory(prefix="evenkeel-calls-") as folder:
    ENV["HF_HOME"] = folder
    os.chmod(folder, 0o755)
    for part in (values_that_the_model_refuses, an_interrupted_result, words, drafters, files_that_are_none, files_that_may_not_be_read, streams, closed_streams_are_not_files):
        work = os.path.join(folder, part.__name__)
        os.mkdir(work)
        part(work)
sys.exit(closing())
