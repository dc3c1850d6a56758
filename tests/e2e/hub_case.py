"""What hub.py and hub_failures.py test with: a cache and a repository of its own per case, and faults of the server that
plays the Hugging Face Hub (hub_server.py)."""
import glob
import os
import random
import re
import resource
import signal
import subprocess
import sys
import tempfile

from hub_server import Hub, Repo

# Programs start as at a terminal, however the tests were started: a shell's background and nohup ignore these.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

PROGRAM, MODEL = os.path.abspath(sys.argv[1]), sys.argv[2]
HUB = Hub()
ROOT = tempfile.mkdtemp(prefix="evenkeel-hub-")
MB = 1 << 20
VERBOSE = bool(os.environ.get("HUB_VERBOSE"))


def noise(n, seed):
    return random.Random(seed).randbytes(n)


BIG = noise(17 * MB + 12345, 1)  # three pieces
SMALL = {"config.json": b'{"model_type":"gemma4"}', "tokenizer.json": b"{}", "tokenizer_config.json": b"{}"}


class Wrong(Exception):
    pass


def check(truth, text):
    if not truth:
        raise Wrong(text)


class Case:
    """A cache of its own and a repository of its own."""

    def __init__(self, name):
        self.name, self.home = name, os.path.join(ROOT, name)
        self.repo_name = f"org/{name.replace('_', '-')}"
        os.makedirs(self.home)

    def serve(self, files=None, **fields):
        self.repo = Repo(files if files is not None else {**SMALL, "model.safetensors": BIG}, **fields)
        HUB.repos[self.repo_name] = self.repo
        return self.repo

    def env(self, **more):
        env = {k: v for k, v in os.environ.items()
               if not k.startswith(("HF_", "EVENKEEL_", "HUGGING", "TRANSFORMERS_")) and not k.lower().endswith("_proxy")}
        env.update(HF_ENDPOINT=HUB.url, HF_HOME=self.home, HOME=self.home)
        env.update(more)
        return {k: v for k, v in env.items() if v is not None}

    def start(self, *argv, limit=None, memory=None, **env):
        def before():
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            if limit:
                resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
            if memory:
                resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
        return subprocess.Popen([PROGRAM, *argv], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                text=True, env=self.env(**env), preexec_fn=before)

    def run(self, *argv, limit=None, **env):
        p = self.start(*argv, limit=limit, **env)
        p.out, p.err = p.communicate(timeout=60)
        return p

    def pull(self, suffix="", *options, **more):
        return self.run("pull", self.repo_name + suffix, *options, **more)

    def good(self, suffix="", *options, **more):
        p = self.pull(suffix, *options, **more)
        check(p.returncode == 0, f"pull ended with {p.returncode}: {p.err}")
        return p.out.strip()

    def bad(self, words, suffix="", *options, **more):
        return self.failed(self.pull(suffix, *options, **more), words)

    def failed(self, p, words, status=1, command="pull"):
        check(p.returncode == status, f"exit {p.returncode} instead of {status}: {p.err}{p.out}")
        lines = [x for x in p.err.splitlines() if x.startswith("evenkeel ")]
        check(len(lines) == 1 and lines[0].startswith(f"evenkeel {command}: ") and p.err.splitlines()[-1] == lines[0],
              f"not one line at the end: {p.err}")
        for w in words:
            check(w in lines[0], f"{w!r} is not in {lines[0]!r}")
        check(p.out == "", f"a result after a failure: {p.out}")
        return lines[0]

    @property
    def dir(self):
        return os.path.join(self.home, "hub", "models--" + self.repo_name.replace("/", "--"))

    def blobs(self, pattern="*"):
        return sorted(glob.glob(os.path.join(self.dir, "blobs", pattern)))

    def check_layout(self, names, commit=None):
        """What other tools rely on."""
        commit = commit or self.repo.commit
        snapshot = os.path.join(self.dir, "snapshots", commit)
        there = sorted(os.path.relpath(os.path.join(d, f), snapshot) for d, _, fs in os.walk(snapshot) for f in fs)
        check(there == sorted(names), f"the snapshot has {there} instead of {sorted(names)}")
        for name in names:
            path = os.path.join(snapshot, name)
            want = "../" * (2 + name.count("/")) + "blobs/" + self.repo.hash(name)
            check(os.readlink(path) == want, f"{name} leads to {os.readlink(path)} instead of {want}")
            with open(path, "rb") as f:
                check(f.read() == self.repo.files[name], f"{name} has another content")
        check(not self.blobs("*.incomplete"), "an incomplete file is left")
        with open(os.path.join(self.dir, "refs", "main")) as f:
            check(f.read() == self.repo.commit, "refs/main is not the commit")
        return snapshot

    def check_partial(self, name="model.safetensors", least=0, most=None):
        """Only the beginning of a file, under no final name."""
        path = os.path.join(self.dir, "blobs", self.repo.hash(name))
        check(not os.path.exists(path), f"{name} has its final name")
        with open(path + ".incomplete", "rb") as f:
            data = f.read()
        check(self.repo.files[name].startswith(data), "the incomplete file is no beginning of the file")
        check(len(data) >= least and (most is None or len(data) <= most), f"{len(data)} bytes are kept")
        check(not os.path.exists(os.path.join(self.dir, "refs", "main")), "a reference to half a model")
        return len(data)


CASES = []


def case(f):
    CASES.append(f)
    return f


def times(n, act):
    """A fault that happens to the first n requests for large files at the other origin."""
    left = [n]

    def fault(repo, request):
        with repo.lock:
            hit = request.server.role == "cdn" and left[0] > 0
            left[0] -= hit
        return hit and act(repo, request)
    return fault


def api_only(act):
    return lambda repo, request: "/api/" in request.path and act(repo, request)


def cut_after(n):
    """Sends n bytes of what was asked and breaks the connection."""
    def act(repo, request):
        name = request.path.split("/", 5)[5]
        first, last = map(int, re.fullmatch(r"bytes=(\d+)-(\d+)", request.headers["Range"]).groups())
        data = repo.files[name]
        request.send_response(206)
        request.send_header("Content-Range", f"bytes {first}-{last}/{len(data)}")
        request.send_header("Content-Length", str(last + 1 - first))
        request.end_headers()
        request.wfile.write(data[first:last + 1][:n])
        request.wfile.flush()
        request.cut()
        return True
    return act
