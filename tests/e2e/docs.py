#!/usr/bin/env python3
"""Runs the commands that README.md, CONTRIBUTING.md and docs/ tell people to run: docs.py PROGRAM BUILD_DIR

A command is a line of a shell block (fenced as sh, or a fenced or indented line that begins with a known program),
or a code span that begins with make, evenkeel or build/release/evenkeel. Targets of make are resolved with `make -n`;
programs run for real on the bundled model, curl against a server that the documented `serve` line started. What
cannot run stands in NOT_RUN with the reason. Prints a line per command that fails or is left out and closes with
`N passed, N failed, N skipped`."""
import atexit, glob, json, os, re, shlex, shutil, signal, socket, struct, subprocess, sys, tempfile, time, zlib

from client import free_port

PROGRAM, BUILD = os.path.abspath(sys.argv[1]), sys.argv[2]
MODEL = "models/pocket"
KNOWN = ("make", "evenkeel", "build/release/evenkeel", "curl", "cc", "python3", "tools/bench/plot.py", "tools/bench/compare.py", "tools/bench/agents.py",
         "tools/bench/apart.py")

# Commands that another check runs.
ELSEWHERE = {
    "curl http://127.0.0.1:8080/v1/audio/transcriptions -F file=@speech.wav -F model=e2b": "tests/e2e/hearing.py runs it against a model with ears, which the bundled one has not",
    'tools/bench/apart.py build/release/evenkeel --model random-e2b --a="--device cuda" --b="--device cpu"': "tests/e2e/apart.py runs it with instruction sets in the devices' places",
    "tools/bench/plot.py bench.json > bench.svg": "tests/e2e/compare.py draws results of its own",
    "evenkeel serve e2b --cache-replies 1G --cache-replies-prompts --cache-dir recorded": "tests/e2e/cassette.py records, exports and serves replies of the bundled model",
    "evenkeel replies export replies.jsonl --cache-dir recorded --model e2b": "the same",
    "evenkeel serve --model words --replies replies.jsonl --no-engine": "the same",
    "evenkeel replies import FILE --cache-dir DIR": "the same",
    "evenkeel ps --ready": "tests/e2e/program.py asks servers of its own",
    "evenkeel verify reply.json --key FILE.pub --model MODEL --prompt request.json": "tests/e2e/receipts.py runs it on keys and replies of its own",
    "evenkeel receipts key FILE": "the same",
    "evenkeel receipts show FILE": "the same",
    "evenkeel receipts log FILE": "the same",
    "evenkeel stop": "tests/e2e/program.py stops servers of its own; here it would stop those that other lines talk to",
    "build/release/evenkeel stop": "the same; tests/e2e/first.py runs README's",
    "cc main.c $(pkg-config --cflags --libs evenkeel) -o main": "tools/check/check_lib.sh runs the commands of docs/OPS.md with a prefix of its own",
}
# Commands that no check runs -> why not. They count as skipped.
NOT_RUN = {
    'build/release/evenkeel run --device vulkan "Hello"': "a device is needed; check_vulkan.sh runs it on lavapipe",
    "build/release/evenkeel inspect --device vulkan models/pocket": "the same",
    "build/release/evenkeel selftest --device vulkan --verbose": "the same, before a release",
    "evenkeel selftest --device cuda": "tools/check/check_gpu_device.sh runs it where there is a device",
    "build/release/evenkeel serve --device cuda:0,1": "two devices are needed; check_devices.sh runs emulated ones",
    "build/release/evenkeel serve --device cuda:0,1 --split layers": "the same",
    "build/release/evenkeel serve --device cuda:0,1 --split outputs": "the same",
    "build/release/evenkeel serve --device cuda:0,cpu --gpu-memory 12G": "a device is needed; check_devices.sh runs an emulated one",
}
# Run for real although it is a target of make.
REAL_TARGETS = {"make demo", "make help"}
# Documented commands of bench take minutes: the same with less to do.
LESS = ["--prompt", "16", "--generate", "2", "--batch", "1", "--runs", "1"]
LESS_OF_TOOL = {"tools/bench/compare.py": ["--clients", "1", "--words", "9", "--reply", "2", "--runs", "1"],
                "tools/bench/agents.py": ["--agents", "2", "--turns", "2", "--system-words", "90", "--result-words", "9", "--reply", "2"]}
ENV = {k: v for k, v in os.environ.items() if k == "EVENKEEL_THREADS" or not k.startswith(("MAKE", "EVENKEEL_", "HF_")) and k != "MFLAGS"}


def files_of_docs():
    return ["README.md", "CONTRIBUTING.md"] + sorted(glob.glob("docs/**/*.md", recursive=True))


def shell_lines(text):
    """Lines of shell blocks, without comments and with continued lines joined."""
    fence, joined = None, ""
    for line in text.splitlines():
        if line.lstrip().startswith("```"):
            fence = line.strip()[3:] if fence is None else None
            continue
        shell = fence in ("sh", "bash", "shell", "console")
        if fence not in (None, "") and not shell or fence is None and not line.startswith("    "):
            continue
        line = joined + re.sub(r"\s+#.*|^\s*#.*", "", line).strip()
        joined = line[:-1] + " " if line.endswith("\\") else ""
        if line and not joined and (shell or line.split()[0] in KNOWN):
            yield line


def spans(text):
    """Code spans outside of blocks that begin with make or the program."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.S | re.M)
    for span in re.findall(r"`([^`]+)`", text):
        span = " ".join(span.split())
        if re.match(r"(make|(build/release/)?evenkeel) [a-z]", span):
            yield span


def commands():
    """Command -> the files that name it, in order of appearance; servers first in their file."""
    out = {}
    for name in files_of_docs():
        text = open(name, encoding="utf-8").read()
        for c in [*shell_lines(text), *spans(text)]:
            if name not in out.setdefault(c, []):
                out[c].append(name)
        for command in re.findall(r"^\| `([a-z]+)", text, flags=re.M) if name == "docs/OPTIONS.md" else []:
            out.setdefault(f"evenkeel {command} --help", []).append(name)
    return out


class Servers:
    """Documented port -> a server on a free one, started by the documented command."""

    def __init__(self):
        self.port, self.process, self.named = {}, [], []

    def start(self, argv):
        documented = argv[argv.index("--port") + 1] if "--port" in argv else "8080"
        self.port[documented] = port = free_port()
        self.named.append(documented)
        if "--port" in argv:
            argv[argv.index("--port") + 1] = str(port)
        else:
            argv += ["--port", str(port)]
        argv = [re.sub(r"(?<=tcp://127\.0\.0\.1:)\d+", lambda _: str(free_port()), a) for a in argv]  # events and replays
        p = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=ENV)
        self.process.append(p)
        deadline = time.time() + 30
        while time.time() < deadline:
            if p.poll() is not None:
                return f"exit {p.returncode}: {p.stderr.read()[-500:]}"
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                return None
            except OSError:
                time.sleep(0.05)
        return "not listening after 30 s"

    def stop(self):
        wrong = []
        for p in self.process:
            p.send_signal(signal.SIGTERM)
        for p in self.process:
            try:
                if p.wait(20):
                    wrong.append(f"a server ended with {p.returncode}")
            except subprocess.TimeoutExpired:
                p.kill()
                wrong.append("a server did not stop")
        return wrong


def run(argv, limit=120):
    """None, or what went wrong."""
    try:
        r = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=limit, env=ENV, shell=isinstance(argv, str))
    except subprocess.TimeoutExpired:
        return f"still running after {limit} s"
    return None if r.returncode == 0 else f"exit {r.returncode}: {(r.stderr or r.stdout)[-700:].strip()}"


resolved = set()  # targets that a call of make has been through


def resolve(found):
    """All documented targets without variables in one call: reading the Makefile takes a second of a processor."""
    plain = [c for c in found if c.split()[0] == "make" and c not in REAL_TARGETS and c not in ELSEWHERE and c not in NOT_RUN and "=" not in c]
    targets = sorted({t for c in plain for t in shlex.split(c)[1:] or ["all"]})
    if not run(["make", "-n", "MAKE=:", *targets]):
        resolved.update(plain)


def make(command):
    args = shlex.split(command)[1:]
    if command in REAL_TARGETS:
        return run(["make", "--no-print-directory", f"B={BUILD}", *args])
    if command in resolved:
        return None
    return run(["make", "-n", "MAKE=:", *args])  # what it calls by make is in the Makefile, too


class Hub:
    """The Hub that `pull` asks, played here: every repository that the documents name, with the bundled model."""

    def __init__(self):
        sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
        import hub_server
        self.server, self.home = hub_server.Hub(), tempfile.mkdtemp(prefix="evenkeel-docs-")
        files = {n: open(os.path.join(MODEL, n), "rb").read() for n in os.listdir(MODEL) if n.endswith((".json", ".safetensors"))}
        text = "\n".join(open(f, encoding="utf-8").read() for f in files_of_docs())
        named = set(re.findall(r"evenkeel (?:pull|rm) ([^\s/`]+/[^\s@:`]+)", text))
        short = {row["name"]: row["model"] for row in json.loads(subprocess.run([PROGRAM, "names", "--json"], capture_output=True, text=True).stdout)}
        used = {n for n in short if re.search(rf"evenkeel (?:pull|rm|run|serve|serve --model|inspect) {n}[\s`]", text)}
        for repo in named | {short[n].split(":")[0] for n in used}:
            gguf = {"m-Q4_K_M.gguf": bytes(5000), "m-Q8_0.gguf": bytes(6000)}
            self.server.repos[repo] = hub_server.Repo(gguf if "GGUF" in repo else files)
        ENV.update(HF_ENDPOINT=self.server.url, HF_HOME=self.home, HF_TOKEN="", XDG_RUNTIME_DIR=self.home)
        for name in used | {r for r in named if "GGUF" not in r}:  # what runs them needs them, wherever it stands
            subprocess.run([PROGRAM, "pull", name], capture_output=True, env=ENV, check=True)

    def close(self):
        self.server.close()
        shutil.rmtree(self.home, ignore_errors=True)


def into_temp(argv):
    """A documented convert with its result in a temporary folder: the last argument that is no option or its value."""
    i, last = 2, None
    while i < len(argv):
        if argv[i].startswith("--"):
            i += argv[i] not in ("--force",)
        else:
            last = i
        i += 1
    folder = ENV["HF_HOME"]
    return argv[:last] + [os.path.join(folder, argv[last])] + argv[last + 1:]


def made(name):
    """A picture or a sound of our own, or a place for rows."""
    path = os.path.join(tempfile.gettempdir(), f"evenkeel-docs-{os.getpid()}.{name}")
    if name == "png":
        chunk = lambda kind, data: struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        rows = b"".join(b"\0" + bytes((x * 3, y * 5, 99)[c] for x in range(64) for c in range(3)) for y in range(48))
        data = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 64, 48, 8, 2, 0, 0, 0))
        data += chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    elif name == "f32":
        data = b"" # written by the command
    else:
        samples = b"".join(struct.pack("<h", i * 37 % 2000) for i in range(16000))
        data = b"RIFF" + struct.pack("<I", 36 + len(samples)) + b"WAVEfmt " + struct.pack("<IHHIIHH", 16, 1, 1, 16000, 32000, 2, 16)
        data += b"data" + struct.pack("<I", len(samples)) + samples
    with open(path, "wb") as out:
        out.write(data)
    atexit.register(lambda: os.path.exists(path) and os.remove(path))
    return path


def file_for(argv, i):
    """What stands for FILE: what the option before it takes."""
    return made({"--image": "png", "--audio": "wav"}[argv[i - 1]]) if argv[i - 1] in ("--image", "--audio") else "build/journal.jsonl"


def lines(name, servers):
    """A file of a batch, in the run's own folder; inputs and what is compared are there from the start."""
    path = os.path.join(ENV["HF_HOME"], name)
    if name in ("IN.jsonl", "A.jsonl", "B.jsonl") and not os.path.exists(path):
        with open(path, "w") as out:
            for i in range(4):
                body = {"model": "m", "messages": [{"role": "user", "content": f"Hello {i}"}], "max_tokens": 4}
                out.write(json.dumps({"custom_id": f"{i}", "method": "POST", "url": "/v1/chat/completions", "body": body}) + "\n")
    return path


done = {}  # what was run -> what went wrong


def program(command, servers):
    """What writes into a file is run without it."""
    command = command.split(" > ")[0]
    argv = shlex.split(command)
    stands_for = lambda i, a: lines(a, servers) if a.endswith(".jsonl") and "/" not in a else MODEL if a == "DIR" else file_for(argv, i) if a in ("FILE", "cat.png") else made("f32") if a == "rows.f32" else a
    if argv[1] == "batch":
        argv = [real_port(a, servers) for a in argv]
    argv = [PROGRAM] + [stands_for(i, a) for i, a in enumerate(argv) if i]
    if argv[1] == "serve" and "--help" not in argv:
        return servers.start(argv)
    if argv[1] == "convert" and "--help" not in argv:
        argv = into_temp(argv)
    if argv[1] == "bench" and "--help" not in argv:
        argv += LESS + (["--layers", "1"] if "--synthetic" in argv else []) + (["--pictures", "70"] if "--pictures" in argv else [])
    key = " ".join(argv).replace(f" --model {MODEL}", "")  # the bundled model is the default
    if key not in done:
        done[key] = run(argv)
    return done[key]


def real_port(command, servers):
    for documented, port in servers.port.items():
        command = command.replace(f"127.0.0.1:{documented}", f"127.0.0.1:{port}").replace(f"localhost:{documented}", f"127.0.0.1:{port}")
    return command


def curl(command, servers):
    for port in re.findall(r"(?:127\.0\.0\.1|localhost):(\d+)", command):
        if port != "8080" and servers.named.count(port) > 1:
            return f"{servers.named.count(port)} documented servers have port {port}: which one is meant?"
    command = real_port(command, servers)
    with tempfile.NamedTemporaryFile("r") as out:
        wrong = run(f"{command.replace('curl', 'curl -sS --fail-with-body --max-time 60', 1)} >{out.name}")
        reply = out.read()
    if wrong or not reply:
        return f"{wrong or 'no reply'} {reply[:300]}"
    try:
        json.loads(reply)
    except ValueError:
        if "data: [DONE]" not in reply and not reply.startswith("# HELP "):
            return f"neither JSON nor a whole stream: {reply[:300]}"
    return None


def judge(command, servers):
    first = command.split()[0]
    if first == "make":
        return make(command)
    if first in ("evenkeel", "build/release/evenkeel"):
        return program(command, servers)
    if first in LESS_OF_TOOL:
        return run(shlex.split(real_port(command.replace("build/release/evenkeel", PROGRAM), servers)) + LESS_OF_TOOL[first])
    if first == "curl":
        return curl(command, servers)
    return f"docs.py does not know how to run {first}; teach it, or say in NOT_RUN why not"


def main():
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
    if os.path.exists("build/journal.jsonl"):
        os.remove("build/journal.jsonl")  # replay is shown on what this run's server wrote
    hub, servers, passed, failed, skipped = Hub(), Servers(), 0, 0, 0
    found = commands()
    resolve(found)
    # servers before the curl lines that talk to them; the demo and other commands last
    order = sorted(found, key=lambda c: 0 if " serve" in c and "--help" not in c and not c.startswith("tools/") else 1 if c.startswith("curl") else 2)
    for c in order:
        if c in ELSEWHERE:
            continue
        if c in NOT_RUN:
            print(f"skipped {c}: {NOT_RUN[c]}")
            skipped += 1
            continue
        begin, wrong = time.time(), judge(c, servers)
        if wrong:
            print(f"FAIL {c} ({', '.join(found[c])}): {wrong}")
        elif time.time() - begin > 5:
            print(f"{time.time() - begin:.0f} s: {c}")
        passed, failed = passed + (wrong is None), failed + (wrong is not None)
    for wrong in servers.stop() + [f"no document names this command any more: {c}" for c in [*ELSEWHERE, *NOT_RUN] if c not in found]:
        print(f"FAIL {wrong}")
        failed += 1
    hub.close()
    if passed < 20:
        print(f"FAIL only {passed} commands were found and work")
        failed += 1
    print(f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
