"""Wrong calls and odd files: exit 2 for a wrong call, 1 for a failure, one line that says what was wrong, and no wait.
Standard library only.

usage: calls.py EVENKEEL MODEL_DIR

The output's last line is `N passed, N failed`.
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile

PROGRAM, MODEL = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
CONFIG = json.load(open(os.path.join(MODEL, "config.json"), encoding="utf-8"))
VOCAB, CONTEXT = (CONFIG.get("text_config", CONFIG)[k] for k in ("vocab_size", "max_position_embeddings"))
DRAFTER = MODEL + "-drafter"
LIMIT_SECONDS = 60
ENV = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "EVENKEEL_"))}
results = []


def check(name, good, detail=""):
    results.append(bool(good))
    if not good:
        print(f"FAIL {name}: {detail}")


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
    open(journal, "w").close()
    refused(2, f"{CONTEXT}", "replay", *m, "--ctx", str(CONTEXT + 1), journal)
    if os.path.isdir(DRAFTER):
        d = (*m, "--drafter", DRAFTER)
        refused(2, f"the vocabulary has {VOCAB}", "draft", *d, "--ids", ids, "--out", out)
        refused(2, f"the context is {CONTEXT}", "draft", *d, "--ids", ",".join("2" * CONTEXT), "--out", out)
    refused(2, "is no repository", "list", "")
    check("nothing is left", os.listdir(top) == ["journal"], os.listdir(top))


with tempfile.TemporaryDirectory(prefix="evenkeel-calls-") as folder:
    ENV["HF_HOME"] = folder
    for part in (values_that_the_model_refuses,):
        work = os.path.join(folder, part.__name__)
        os.mkdir(work)
        part(work)
print(f"{results.count(True)} passed, {results.count(False)} failed")
sys.exit(not all(results))
