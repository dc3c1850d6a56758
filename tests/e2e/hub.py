"""pull, list, rm and --model REPO against a server that plays the Hugging Face Hub (hub_server.py). Every failure must
be exit 1 and one line that says what to do, leave nothing half under a final name, and be resumed by the same command.

usage: hub.py EVENKEEL MODEL_DIR [WORD]       only the cases with WORD in their names

The output's last line is `N passed, N failed`.
"""
import concurrent.futures
import glob
import hashlib
import json
import os
import pty
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

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


# ------------------------------------------------------------------ what is fetched

@case
def a_model_and_nothing_else(c):
    c.serve({**SMALL, "model-00001-of-00002.safetensors": noise(30000, 2), "model-00002-of-00002.safetensors": noise(9 * MB, 3),
             "model.safetensors.index.json": b'{"weight_map":{}}', "model.safetensors": noise(5000, 9),
             "chat_template.jinja": b"x", "README.md": b"no", "pytorch_model.bin": noise(5000, 4),
             "original/weights.safetensors": noise(5000, 5), "copy.json": SMALL["config.json"]}, token="hf_secret")
    path = c.good(HF_TOKEN=" hf_secret\n")
    names = [*SMALL, "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
             "model.safetensors.index.json", "chat_template.jinja", "copy.json"]
    check(path == c.check_layout(names), f"the path is {path}")
    for role, _, _, token in c.repo.requests:
        check((token == "hf_secret") == (role == "hub"), f"a request to the {role} has the token {token}")
    check(any(r[0] == "cdn" for r in c.repo.requests), "nothing came from the other origin")
    before = c.repo.count("resolve")
    check(c.good(HF_TOKEN="hf_secret") == path and c.repo.count("resolve") == before, "fetched again")
    with open(os.path.join(c.home, "token"), "w") as f:
        f.write("hf_secret\n")
    c.good()
    check(c.good(HF_HUB_OFFLINE="1", HF_ENDPOINT="http://127.0.0.1:9") == path, "offline")


@case
def another_cache_and_a_mirror_below_a_path(c):
    c.serve({**SMALL, "model.safetensors": noise(5000, 6)})
    elsewhere = os.path.join(c.home, "else where")
    c.good(HF_HUB_CACHE=elsewhere, HF_ENDPOINT=HUB.url + "//")
    check(not os.path.exists(os.path.join(c.home, "hub")) and os.listdir(elsewhere), "HF_HUB_CACHE is not honoured")
    c.failed(c.pull(HF_ENDPOINT="ftp://x"), ["HF_ENDPOINT"])


@case
def gguf_by_quantisation_and_by_file(c):
    files = {f"m-{q}.gguf": noise(6000 + i, i) for i, q in enumerate(("Q4_K_M", "Q4_K_M_L", "q8_0", "UD-Q4_K_XL"))}
    files.update({f"BF16/m-BF16-0000{i}-of-00003.gguf": noise(7000 + i, i) for i in (1, 2, 3)})
    files.update({"mmproj-q8_0.gguf": noise(5000, 8), "m-mtp-q8_0.gguf": noise(5001, 8), "a b-Q6_K.gguf": noise(5002, 8),
                  "README.md": b"x", "n-Q5_0.gguf": b"1", "o-Q5_0.gguf": b"2", "p-Q3_K-00001-of-00002.gguf": b"3"})
    c.serve(files)
    check(c.good(":q4_k_m").endswith("/m-Q4_K_M.gguf"), "Q4_K_M")
    c.check_layout(["m-Q4_K_M.gguf"])
    check(c.good(":bf16").endswith("/BF16/m-BF16-00001-of-00003.gguf"), "BF16")
    check(c.good(":Q8_0").endswith("/m-q8_0.gguf"), "a projection or a drafter was taken for Q8_0")
    check(c.good(":BF16/m-BF16-00002-of-00003.gguf").endswith("/BF16/m-BF16-00001-of-00003.gguf"), "a part by name")
    check(c.good(":Q4_K_XL").endswith("/m-UD-Q4_K_XL.gguf"), "a part of the name")
    check(c.good(":a b-Q6_K.gguf").endswith("/a b-Q6_K.gguf"), "a name with a blank")
    c.check_layout(["m-Q4_K_M.gguf", "m-q8_0.gguf", "m-UD-Q4_K_XL.gguf", "a b-Q6_K.gguf",
                    *(f"BF16/m-BF16-0000{i}-of-00003.gguf" for i in (1, 2, 3))])
    c.bad(["several models", "m-Q4_K_M.gguf (0.0 GB)"])
    c.bad(["several files with Q5_0", "n-Q5_0.gguf", "o-Q5_0.gguf"], ":Q5_0")
    c.bad(["no quantisation Q9", "m-q8_0.gguf"], ":Q9")
    c.bad(["p-Q3_K-00002-of-00002.gguf is missing"], ":Q3_K")
    p = c.run("tokenize", "--model", c.repo_name + ":Q5_0", HF_ENDPOINT="http://127.0.0.1:9")
    c.failed(p, [f"`evenkeel pull {c.repo_name}:Q5_0` fetches it"], command="tokenize")
    listed = json.loads(c.run("list", "--json").out)
    check([m["repo"] for m in listed["models"]] == [c.repo_name] and listed["models"][0]["revision"] == "main", "list")
    check(listed["models"][0]["what"].startswith("GGUF: BF16/m-BF16-00001-of-00003.gguf, a b-Q6_K.gguf, m-Q4_K_M.gguf"), str(listed))


# ------------------------------------------------------------------ what goes wrong

@case
def connections_that_break_are_resumed(c):
    c.serve(fault=times(12, cut_after(MB)))
    c.good()
    c.check_layout([*SMALL, "model.safetensors"])
    check(c.repo.sent + 12 * MB <= len(BIG) + 8 * 65536 + 12 * MB, "bytes were fetched twice")
    check(any((r[2] or "").startswith(f"bytes={MB}-") for r in c.repo.requests), "the first piece was not resumed")


@case
def a_server_that_is_gone_is_given_up_and_resumed(c):
    c.serve(fault=gone_after(9 * MB))
    c.bad(["model.safetensors", "without progress", "goes on where"], "", "--retries", "1", "--connections", "1")
    kept = c.check_partial(least=8 * MB)
    c.repo.fault = None
    asked = len(c.repo.requests)
    c.good()
    c.check_layout([*SMALL, "model.safetensors"])
    check(c.repo.first_range(asked) == kept, f"the second pull began at {c.repo.first_range(asked)} instead of {kept}")


def gone_after(n):
    """Every connection to the other origin breaks at byte n of the file."""
    def fault(repo, request):
        if request.server.role != "cdn":
            return False
        first, last = map(int, re.fullmatch(r"bytes=(\d+)-(\d+)", request.headers["Range"]).groups())
        return last >= n and cut_after(max(0, n - first))(repo, request)
    return fault


@case
def a_wrong_checksum_is_fetched_once_more(c):
    bodies = iter([True])
    lock = threading.Lock()

    def body(name, data):
        with lock:
            spoil = name == "model.safetensors" and next(bodies, False)
        return bytes([data[0] ^ 1]) + data[1:] if spoil else data
    c.serve({**SMALL, "model.safetensors": noise(100000, 7)}, body=body)
    p = c.pull()
    check(p.returncode == 0 and "once more" in p.err, p.err)
    c.check_layout([*SMALL, "model.safetensors"])


@case
def a_checksum_that_stays_wrong_fails(c):
    c.serve({**SMALL, "model.safetensors": noise(100000, 8)},
            body=lambda name, data: data[:-1] + b"?" if name == "config.json" else data)
    c.bad(["config.json", "hash", "twice and discarded"])
    shutil.rmtree(c.dir)  # the other files may have been complete
    c.repo.body = lambda name, data: data[:-1] + b"!" if name == "model.safetensors" else data
    c.bad(["model.safetensors", "hash", "twice and discarded"])
    check(not [b for b in c.blobs() if len(os.path.basename(b)) > 40], "something of the file is left")


@case
def an_incomplete_file_that_is_wrong_is_discarded(c):
    c.serve({**SMALL, "model.safetensors": noise(100000, 9)})
    os.makedirs(os.path.join(c.dir, "blobs"))
    with open(os.path.join(c.dir, "blobs", c.repo.hash("model.safetensors") + ".incomplete"), "wb") as f:
        f.write(b"x" * 50000)
    with open(os.path.join(c.dir, "blobs", c.repo.hash("config.json") + ".incomplete"), "wb") as f:
        f.write(b"x" * 5000)  # longer than the file
    with open(os.path.join(c.dir, "blobs", c.repo.hash("tokenizer_config.json")), "wb") as f:
        f.write(b"{")  # a blob that is damaged
    c.good()
    c.check_layout([*SMALL, "model.safetensors"])


@case
def status_401_403_404(c):
    c.serve(token="hf_right", gated=True)
    c.bad(["is gated (status 401)", f"{HUB.url}/{c.repo_name}", "HF_TOKEN"])
    c.bad(["is gated (status 403)", "token in HF_TOKEN", "accept its conditions"], HF_TOKEN="hf_wrong")
    c.repo.gated = False
    c.bad(["status 401", "no such repository, or it is private", "HF_TOKEN"])
    c.bad(["status 403", "token in HF_TOKEN is not valid"], HF_TOKEN="hf_wrong")
    c.bad(["has a character that no token has"], HF_TOKEN="hf wrong")
    c.repo.token = None
    c.bad(["no revision v9"], "@v9")
    c.good("@" + c.repo.commit)
    HUB.repos.pop(c.repo_name)
    c.bad(["status 404"], HF_TOKEN="hf_any")


@case
def a_file_that_is_listed_but_not_there(c):
    c.serve({**SMALL, "model.safetensors": noise(5000, 1)})
    c.repo.fault = lambda repo, request: "resolve" in request.path and "config.json" in request.path and \
        (request.reply(404, X_Error_Code="EntryNotFound") or True)
    c.bad(["config.json", "404"])


@case
def status_429_waits_as_long_as_it_says(c):
    left = [1, 1]

    def fault(repo, request):
        with repo.lock:
            which = 0 if "/api/" in request.path else 1
            hit, left[which] = left[which] > 0, left[which] - 1
        if hit and which == 0:
            request.reply(429, Retry_After="1")
        elif hit:
            request.reply(429, RateLimit='"resolvers";r=0;t=1')
        return hit
    c.serve({**SMALL, "model.safetensors": noise(5000, 2)}, fault=fault)
    start = time.time()
    c.good()
    check(time.time() - start >= 2, f"{time.time() - start:.2f} s")


@case
def status_429_has_an_end(c):
    c.serve(fault=lambda repo, request: request.reply(429, Retry_After="4000") or True)
    start = time.time()
    c.bad(["429", "67 minutes"])
    c.repo.fault = lambda repo, request: request.reply(429, Retry_After="0") or True
    c.bad(["429", "after 3 tries"], "", "--retries", "2")
    check(c.repo.count("/api/") == 4 and time.time() - start < 5, f"{c.repo.count('/api/')} requests")


@case
def status_500_may_pass(c):
    c.serve({**SMALL, "model.safetensors": noise(5000, 3)}, fault=times(2, lambda repo, r: r.reply(503) or True))
    c.good()
    c.repo.fault = lambda repo, r: r.reply(500) or True
    c.bad(["status 500", "2 tries"], "", "--retries", "1")


@case
def a_full_disk_keeps_what_came(c):
    c.serve()
    c.bad(["model.safetensors", "too large", "what came stays"], "", "--connections", "1", limit=4 * MB)
    c.check_partial(least=4 * MB, most=4 * MB)
    c.good()
    c.check_layout([*SMALL, "model.safetensors"])


@case
def a_disk_without_room_is_refused_first(c):
    c.serve(size={"model.safetensors": 10 ** 15})
    c.bad(["1000000.", "GB are still to fetch", "GB free", "HF_HUB_CACHE"])
    check(c.repo.count("resolve") == 0, "something was fetched")


@case
def a_small_file_system_is_full(c):
    at = os.path.join(c.home, "small")
    os.makedirs(at)
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=12m", "tmpfs", at], capture_output=True).returncode:
        return "no file system can be mounted here"
    try:
        c.serve()
        c.bad(["GB are still to fetch", "0.01 GB free"], HF_HUB_CACHE=at)
        check(c.repo.count("resolve") == 0, "something was fetched")
        c.repo.size["model.safetensors"] = 9 * MB  # the API says less than what another process then takes
        filler = os.path.join(at, "filler")
        c.repo.fault = times(1, lambda repo, request: open(filler, "wb").write(bytes(6 * MB)) and False)
        c.repo.files["model.safetensors"] = BIG[:9 * MB]
        c.bad(["No space left", "what came stays"], HF_HUB_CACHE=at)
        os.remove(filler)
        c.good(HF_HUB_CACHE=at)
    finally:
        subprocess.run(["umount", at], capture_output=True)
    return None


@case
def a_server_without_ranges(c):
    c.serve(ranges=False)
    c.good()
    c.check_layout([*SMALL, "model.safetensors"])
    shutil.rmtree(c.dir)
    c.bad(["too large"], "", limit=3 * MB)
    c.good()
    c.check_layout([*SMALL, "model.safetensors"])


@case
def a_connection_that_stands_still(c):
    c.serve({**SMALL, "model.safetensors": noise(300000, 4)})

    def stall(repo, request):
        request.send_response(206)
        request.send_header("Content-Range", "bytes 0-299999/300000")
        request.send_header("Content-Length", "300000")
        request.end_headers()
        request.wfile.write(repo.files["model.safetensors"][:1000])
        request.wfile.flush()
        program_ended.wait(60)
        request.cut()
        return True
    program_ended = threading.Event()
    c.repo.fault = times(1, stall)
    start = time.time()
    c.good(HF_HUB_DOWNLOAD_TIMEOUT="1")
    program_ended.set()
    check(time.time() - start < 9.5, "it waited for the server, or for the ten seconds of the default")


@case
def addresses_that_expire_are_asked_for_again(c):
    used, lock = set(), threading.Lock()

    def fault(repo, request):
        path, _, signature = request.path.partition("?")
        if request.server.role == "hub":
            if "model.safetensors" in path:
                request.reply(302, Location=f"{HUB.cdn}{path}?{len(repo.requests)}")
                return True
            return False
        with lock:
            fresh = signature not in used
            used.add(signature)
        request.send_file(repo, "model.safetensors") if fresh else request.reply(403)
        return True
    c.serve(fault=fault)
    c.good("", "--connections", "2")
    c.check_layout([*SMALL, "model.safetensors"])
    check(c.repo.count("/resolve/.*model.safetensors$") >= 3, "the address was not asked for again")


@case
def redirects_that_lead_astray(c):
    target = [""]
    c.serve(fault=lambda repo, r: "/resolve/" in r.path and (r.reply(302, Location=target[0] or r.path) or True))
    c.bad(["redirects more than 10 times"])
    target[0] = "file:///etc/passwd"
    c.bad(["redirects to no http address"])
    moved = Repo(c.repo.files)
    HUB.repos["org/moved"] = moved
    c.repo.fault = lambda repo, r: r.reply(307, Location=r.path.replace(c.repo_name, "org/moved", 1)) or True
    c.good("", HF_TOKEN="hf_x")  # a repository that was renamed, on the same host: the token goes along
    check(all(r[3] == ("hf_x" if r[0] == "hub" else None) for r in moved.requests), "tokens")
    c.check_layout([*SMALL, "model.safetensors"])


@case
def files_of_another_length(c):
    c.serve({**SMALL, "model.safetensors": noise(50000, 5)}, size={"model.safetensors": 60000})
    c.bad(["model.safetensors"], "", "--retries", "1")
    c.repo.size["model.safetensors"] = 40000
    c.bad(["model.safetensors"], "", "--retries", "1")
    check(not os.path.exists(os.path.join(c.dir, "refs", "main")), "a reference")


@case
def replies_that_are_none(c):
    c.serve()
    for body, words in ((b"<html>", ["the Hub's reply"]), (b"{}", ["no commit"]), (b"[" * 100000, ["the Hub's reply"]),
                        (json.dumps({"sha": "1" * 40}).encode(), ["no list of files"])):
        c.repo.fault = api_only(lambda repo, request, body=body: request.reply(200, body) or True)
        c.bad(words)
    c.repo.fault = api_only(lambda repo, request: request.reply(200, Content_Length="80000000") or request.cut() or True)
    c.bad(["/api/models/"], "", "--retries", "0")


@case
def names_that_leave_the_folder(c):
    c.serve()
    for name in ("../../../../evil", "/tmp/evil", "a/../../evil", "a//b", "a/./b", "evil\n.json", "..", "", "a\\b"):
        c.repo.extra = [{"rfilename": name, "size": 1, "blobId": "1" * 40}]
        c.bad(["lists a file", "outside its folder"])
    for name in ("a\u009b31m.gguf", "a\x7f", "a\u202egpj.exe", "a\u2028b", "a\x1b[2J"):  # what a terminal would obey
        c.repo.extra = [{"rfilename": name, "size": 1, "blobId": "1" * 40}]
        line = c.bad(["lists a file a\\"])
        check(line.isprintable(), f"a terminal gets {line!r}")
    for blob in ("../evil", "G" * 40, "1" * 39, "1" * 64):
        c.repo.extra = [{"rfilename": "x.json", "size": 1, "blobId": blob}]
        c.bad(["gives no hash"])
    c.repo.extra = [{"rfilename": "config.json", "size": 1, "blobId": "1" * 40}]
    c.bad(["twice"])
    check(not os.path.exists(c.dir), "something was written")
    for name in ("../x", "org/..", "org", "org/a--b", "org/x@../y", "org/x:../y", "-org/x", "a/b/c"):
        c.failed(c.run("pull", name), [name], status=2)


@case
def a_list_without_end(c):
    """60 MB of a list, in the forms that take the most memory once they are read: refused, within a bound."""
    c.serve()
    sha = json.dumps({"sha": "1" * 40})[:-1]
    file = json.dumps({"rfilename": "x" * 40, "size": 1, "blobId": "1" * 40})
    for what, one, mb in (("objects", "{},", 60), ("files", file + ",", 60), ("objects", "{},", 7), ("lists", "[[],", 7), ("numbers", "0,", 7)):
        body = (sha + ', "siblings": [' + one * (mb * MB // len(one))).encode() + b"0]}"
        c.repo.fault = api_only(lambda repo, request: request.reply(200, body) or True)
        p = c.start("pull", c.repo_name, "--retries", "0", memory=400 * MB)
        out, err = p.communicate(timeout=60)
        err = "".join(l for l in err.splitlines(True) if not l.startswith("no answer from"))  # where making it takes long
        says = "the answer is longer than 8388608 bytes" if mb > 8 else "objects and lists with"
        check(p.returncode == 1 and not out and err.count("\n") == 1 and says in err, f"{mb} MB of {what}: {p.returncode} {err[:300]}")


# ------------------------------------------------------------------ processes

@case
def interrupted_it_goes_on(c):
    c.serve(speed=6 * MB)
    p = c.start("pull", c.repo_name, "--connections", "2")
    while c.repo.sent < 3 * MB and p.poll() is None:
        time.sleep(0.02)
    p.send_signal(signal.SIGINT)
    p.out, p.err = p.communicate(timeout=10)
    c.failed(p, ["interrupted", f"`evenkeel pull {c.repo_name}` goes on"])
    kept = c.check_partial(least=100000)
    c.repo.speed = None
    asked = len(c.repo.requests)
    c.good()
    check(c.repo.first_range(asked) == kept, "what was there came again")
    c.check_layout([*SMALL, "model.safetensors"])


@case
def killed_it_goes_on(c):
    c.serve(speed=8 * MB)
    p = c.start("pull", c.repo_name)
    while c.repo.sent < 4 * MB and p.poll() is None:
        time.sleep(0.02)
    p.kill()
    p.communicate()
    c.check_partial()
    c.repo.speed = None
    c.good()
    c.check_layout([*SMALL, "model.safetensors"])


@case
def two_processes_share_the_work(c):
    files = {f"model-0000{i}-of-00006.safetensors": noise(3 * MB + i, 20 + i) for i in range(1, 7)}
    c.serve({**SMALL, **files}, speed=12 * MB)
    both = [c.start("pull", c.repo_name, "--connections", "2") for _ in range(2)]
    for p in both:
        p.out, p.err = p.communicate(timeout=30)
    for p in both:
        check(p.returncode == 0, p.err)
    check(both[0].out == both[1].out, "two paths")
    c.check_layout([*SMALL, *files])
    total = sum(map(len, set(c.repo.files.values())))
    check(c.repo.sent == total, f"{c.repo.sent} bytes were sent of {total}")


def on_terminal(c, argv, answer=b""):
    """The exit status and what a terminal shows."""
    master, slave = pty.openpty()
    os.write(master, answer)
    p = subprocess.Popen([PROGRAM, *argv], stdin=slave, stdout=subprocess.PIPE, stderr=slave, env=c.env())
    os.close(slave)
    shown = b""
    try:
        while part := os.read(master, 65536):
            shown += part
    except OSError:  # the other end is closed
        pass
    os.close(master)
    out = p.communicate(timeout=30)[0]
    return p.returncode, shown.decode(errors="replace"), out.decode()


@case
def a_terminal_has_a_bar_and_a_question(c):
    c.serve({**SMALL, "model.safetensors": noise(MB, 1)}, speed=2 * MB)
    status, shown, out = on_terminal(c, ["pull", c.repo_name])
    check(status == 0 and out.count("\n") == 1, shown)
    check(re.search(r"\r\[#*\.+\] +\d+ %  .* of 1\.05 MB .*/s .* left  file 3 of 3", shown), repr(shown[-500:]))
    check("%" not in shown.rsplit("\r\x1b[K", 1)[1], "the bar is left there")
    status, shown, out = on_terminal(c, ["rm", c.repo_name], b"n\n")
    check(status == 0 and "nothing is removed" in shown and os.path.exists(c.dir), shown)
    status, shown, out = on_terminal(c, ["rm", c.repo_name], b"y\n")
    check(status == 0 and f"Remove {c.repo_name} (1.05 MB) from the cache? [y/N]" in shown, shown)
    check(out == "1.05 MB freed\n" and not os.path.exists(c.dir), out)


# ------------------------------------------------------------------ the cache

def pocket():
    out = {}
    for name in os.listdir(MODEL):
        path = os.path.join(MODEL, name)
        if os.path.isfile(path) and name.endswith((".json", ".safetensors")) and not name.startswith("golden"):
            with open(path, "rb") as f:
                out[name] = f.read()
    return out


@case
def a_model_by_its_name_needs_no_network(c):
    c.serve(pocket())
    dead = {"HF_ENDPOINT": "http://127.0.0.1:9", "HF_HUB_OFFLINE": None}
    for command in ("tokenize", "generate", "inspect"):
        argv = [c.repo_name] if command == "inspect" else ["--model", c.repo_name]
        argv += ["--ids", "2"] if command == "generate" else []
        c.failed(c.run(command, *argv, **dead), [f"`evenkeel pull {c.repo_name}` fetches it"], command=command)
    path = c.good()
    one = c.run("generate", "--model", c.repo_name, "--ids", "2,3,4", "--max-tokens", "3", "--json", **dead)
    two = c.run("generate", "--model", path, "--ids", "2,3,4", "--max-tokens", "3", "--json", **dead)
    check(one.returncode == 0 and one.out == two.out, one.err)
    check(c.run("inspect", c.repo_name, **dead).returncode == 0, "inspect")
    listed = json.loads(c.run("list", "--json", **dead).out)["models"]
    check(len(listed) == 1 and "Gemma 4" in listed[0]["what"] and listed[0]["path"] == path, str(listed))
    table = c.run("list", **dead).out
    check(c.repo_name in table and c.repo.commit[:8] in table, table)
    os.remove(os.path.realpath(os.path.join(path, "config.json")))
    c.failed(c.run("tokenize", "--model", c.repo_name, **dead), ["config.json is missing", "evenkeel pull"], command="tokenize")


@case
def a_gguf_model_by_its_quantisation(c):
    path = os.path.join(c.home, "m.gguf")
    check(c.run("convert", MODEL, path, "--type", "q8_0").returncode == 0, "convert")
    with open(path, "rb") as f:
        c.serve({"m-Q8_0.gguf": f.read(), "m-Q4_0.gguf": noise(5000, 1), "README.md": b"x"})
    c.good(":q8_0")
    dead = {"HF_ENDPOINT": "http://127.0.0.1:9"}
    one = c.run("generate", "--model", c.repo_name + ":Q8_0", "--ids", "2,3,4", "--max-tokens", "3", "--json", **dead)
    two = c.run("generate", "--model", path, "--ids", "2,3,4", "--max-tokens", "3", "--json", **dead)
    check(one.returncode == 0 and one.out == two.out, one.err)
    check(c.run("tokenize", "--model", c.repo_name, **dead).returncode == 0, "the only one that is there needs no name")
    check("GGUF, q8_0" in json.loads(c.run("list", "--json", **dead).out)["models"][0]["what"], "list")
    p = c.run("convert", c.repo_name + ":Q8_0", os.path.join(c.home, "again"), "--type", "mlx8", **dead)
    check(p.returncode == 0, p.err)


@case
def https_and_certificates(c):
    key, cert = (os.path.join(c.home, n) for n in ("key.pem", "cert.pem"))
    made = shutil.which("openssl") and subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", key, "-out", cert],
        capture_output=True).returncode == 0
    if not made:
        return "no certificate can be made here: openssl is not installed"
    c.serve({**SMALL, "model.safetensors": noise(5000, 1)}, redirect=False)
    secure = HUB.add_tls(cert, key)
    c.bad(["certificate"], "", "--retries", "3", HF_ENDPOINT=secure)
    check(not c.repo.requests, "a request without trust")
    c.good(HF_ENDPOINT=secure, CURL_CA_BUNDLE=cert)
    c.check_layout([*SMALL, "model.safetensors"])
    shutil.rmtree(c.dir)
    c.repo.redirect = True
    c.bad(["redirects from https to http"], HF_ENDPOINT=secure, CURL_CA_BUNDLE=cert)
    return None


@case
def rm_takes_what_nothing_else_needs(c):
    c.serve({"m-Q4_0.gguf": noise(5000, 1), "m-Q8_0.gguf": noise(6000, 2), "config.json": b"{}"})
    c.good(":Q4_0")
    c.good(":Q8_0")
    old = c.repo.commit
    c.repo.files["m-Q8_0.gguf"] = noise(7000, 3)
    c.repo.revise()
    c.good(":Q8_0")
    c.good(":Q4_0")
    check(c.repo.count("resolve.*Q4_0") == 2, "what has not changed was fetched again")  # resolve and the other origin
    check(len(os.listdir(os.path.join(c.dir, "snapshots"))) == 2, "the old revision is gone")
    c.failed(c.run("rm", c.repo_name), ["--yes"], command="rm")
    c.failed(c.run("rm", "org/none", "--yes"), ["org/none is not in the cache"], command="rm")
    c.failed(c.run("rm", c.repo_name + ":Q2_K", "--yes"), ["no quantisation Q2_K"], command="rm")
    p = c.run("rm", f"{c.repo_name}@{old}", "--yes")
    check(p.returncode == 0 and p.out == "6.00 KB freed\n", p.out + p.err)
    c.check_layout(["m-Q4_0.gguf", "m-Q8_0.gguf"])
    check(len(c.blobs()) == 2, "the old blob is left")
    p = c.run("rm", f"{c.repo_name}:Q4_0", "--yes")
    check(p.returncode == 0 and len(c.blobs()) == 1, p.err)
    c.check_layout(["m-Q8_0.gguf"])
    p = c.run("rm", c.repo_name, "--yes")
    check(p.returncode == 0 and p.out == "7.00 KB freed\n" and not os.path.exists(c.dir), p.out + p.err)
    check(os.listdir(os.path.join(c.home, "hub", ".locks")) == [], "locks are left")
    check(json.loads(c.run("list", "--json").out)["models"] == [], "list")


@case
def rm_waits_for_nobody(c):
    c.serve(speed=4 * MB)
    p = c.start("pull", c.repo_name)
    while c.repo.sent < MB and p.poll() is None:
        time.sleep(0.02)
    c.failed(c.run("rm", c.repo_name, "--yes"), ["another process is fetching it"], command="rm")
    c.repo.speed = None
    p.send_signal(signal.SIGTERM)
    p.communicate(timeout=10)
    check(p.returncode == 1, f"exit {p.returncode} after SIGTERM")
    listed = json.loads(c.run("list", "--json").out)["models"][0]
    check(listed["incomplete_bytes"] > 0 and "path" not in listed, str(listed))
    check(c.run("rm", c.repo_name, "--yes").returncode == 0 and not os.path.exists(c.dir), "rm")


def main():
    word = sys.argv[3] if len(sys.argv) > 3 else ""
    chosen = [f for f in CASES if word in f.__name__]
    passed = failed = skipped = 0

    def one(f):
        start = time.time()
        try:
            return f.__name__, f(Case(f.__name__)), None, time.time() - start
        except Exception as e:  # a server or a program that hangs is a failure like others
            return f.__name__, None, e if isinstance(e, Wrong) else repr(e), time.time() - start
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for name, skip, wrong, seconds in pool.map(one, chosen):
            passed, failed, skipped = passed + (not wrong and not skip), failed + bool(wrong), skipped + bool(skip)
            if wrong or skip or word or VERBOSE:
                print(f"{'FAIL' if wrong else 'skipped' if skip else 'ok'} {name} ({seconds:.1f} s){': ' if wrong or skip else ''}{wrong or skip or ''}")
    HUB.close()
    shutil.rmtree(ROOT, ignore_errors=True)
    print(f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
    return 1 if failed else 0


sys.exit(main())
