#!/usr/bin/env python3
"""The program around the chat, as a new user meets it: program.py PROGRAM MODEL [NAME...]

Help, names, the first line of a server, ps and stop, a download that asks, no network, inspect, list, selftest and bench.
Standard library only; prints a line per failure and closes with `N passed, N failed`."""
import contextlib, fcntl, json, os, re, resource, shutil, signal, socket, subprocess, sys, tempfile, time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import hub_server, tiny_model
from client import Server, free_port
from screen import ON, Skipped, Terminal, plain, run_all, test

PROGRAM, MODEL, ONLY = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2]), sys.argv[3:]
NAME = os.path.basename(MODEL)
HUB = hub_server.Hub()


def env(home, **more):
    keep = {k: v for k, v in os.environ.items()
            if not k.startswith(("EVENKEEL_", "HF_")) and not k.lower().endswith("_proxy") and k != "XDG_RUNTIME_DIR"}
    return {**keep, "HOME": home, "HF_HOME": os.path.join(home, "hf"), "HF_ENDPOINT": HUB.url, "XDG_RUNTIME_DIR": home, **more}


def run(home, *argv, status=0, **more):
    r = subprocess.run([PROGRAM, *map(str, argv)], capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL, env=env(home, **more))
    assert r.returncode == status, (argv, r)
    return r


def refused(home, status, *argv, says, **more):
    r = run(home, *argv, status=status, **more)
    assert r.stdout == "" and r.stderr.count("\n") == 1 and says in r.stderr, r
    return r.stderr


@contextlib.contextmanager
def serving(home, *args):
    """A server in `home`; yields its port, its process and its first line."""
    p = subprocess.Popen([PROGRAM, "serve", "--port", "0", *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env(home))
    try:
        line = p.stdout.readline()
        yield int(re.search(r"http://[^/]*:(\d+)/v1", line)[1]), p, line
    finally:
        if p.poll() is None:
            p.send_signal(signal.SIGTERM)
        p.communicate(timeout=30)


# ------------------------------------------------------------------ help

def soon(good, seconds=60):
    """Whether good() becomes so: on a busy machine a server is slow to answer ps."""
    deadline = time.time() + seconds
    while not good():
        if time.time() > deadline:
            return False
        time.sleep(0.2)
    return True


@test
def help_comes_in_groups(home):
    usage = run(home, "--help").stdout
    assert run(home, "-h").stdout == usage == run(home, "help").stdout
    assert usage.index("  run ") < usage.index("  serve ") < usage.index("  bench ") < usage.index("  logits "), usage
    for command in re.findall(r"^  ([a-z]+) {2,}[a-z]", usage, re.M):
        few, all_ = run(home, command, "--help").stdout, run(home, command, "--help-all").stdout
        assert run(home, command, "-h").stdout == few and run(home, "help", command).stdout == all_, command
        assert len(few) <= len(all_) and set(re.findall(r"^ +(?:-., )?(--[a-z-]+)", few, re.M)) <= set(re.findall(r"^ +(?:-., )?(--[a-z-]+)", all_, re.M))
        assert few.count("part of the answer") <= 1 and "speed only" not in few
        assert all(len(line) <= 110 or "|" in line for line in few.splitlines()), few
    serve = run(home, "serve", "--help").stdout
    for words in ("/v1/chat/completions", "/v1/responses", "/v1/messages", "browser", "/metrics", "-m, --model", "-p, --port", "-c, --ctx", "common options:"):
        assert words in serve, (words, serve)
    assert "--body-timeout" not in serve
    whole = run(home, "serve", "--help-all").stdout
    for group in ("common options:", "the model and how it runs:", "limits, memory and cache:", "the server:"):
        assert f"\n{group}\n" in whole, (group, whole)
    assert "--body-timeout" in whole and whole.index("common options:") < whole.index("the server:")


@test
def a_wrong_word_gets_the_right_one(home):
    assert "did you mean serve?" in refused(home, 2, "sevre", says="sevre is not a command")
    assert "did you mean --port?" in refused(home, 2, "serve", "--prot", "1", says="--prot is not an option")
    assert "see `evenkeel --help`" in refused(home, 2, "xyzzy", says="xyzzy is not a command")


@test
def the_pages_for_others_name_what_exists(home):
    """docs/FROM.md: each option of ours is one of some command, each command is one, and each setting of a chat."""
    text = open(os.path.join(os.path.dirname(__file__), "..", "..", "docs", "FROM.md"), encoding="utf-8").read()
    listed = run(home, "help", "--markdown").stdout
    options = set(re.findall(r"`(--?[a-z][a-z-]*)", listed))
    commands = set(re.findall(r"^\| `([a-z]+)", listed, re.M))
    variables = re.findall(r"`EVENKEEL_([A-Z_]+)", text)
    with Terminal([PROGRAM, "run", "--model", MODEL, "--history", "none"], env=env(home)) as t:
        t.until(ON + "> ")
        chat = set(re.findall(r"/[a-z?]+", t.line("/help"))) | {"/?", "/bye", "/clear"}
        settings = set(re.findall(r"^([a-z_]+)[ :]", t.line("/set"), re.M))
    seen = 0
    for line in text.splitlines():
        cells = [c.strip() for c in re.split(r"(?<!\\)\|", line)[1:-1]]
        if len(cells) != 2 or set(cells[0]) <= {"-", ":"}:
            continue
        for span in re.findall(r"`([^`]+)`", cells[1]):
            words = span.split()
            if words[0] == "evenkeel":
                assert words[1] in commands, span
            for word in words:
                if re.match(r"--?[a-z]", word):
                    seen += 1
                    assert word.split("=")[0] in options, (word, line)
            if words[0].startswith("/") and not words[0].startswith("/v1") and words[0] not in ("/health", "/metrics", "/ping", "/ready", "/tokenize", "/detokenize"):
                seen += 1
                assert words[0] in chat, (span, line)
                if words[0] == "/set" and len(words) > 1:
                    assert words[1] in settings, span
    assert seen > 60 and all(f"--{v.lower().replace('_', '-')}" in options for v in variables), seen


# ------------------------------------------------------------------ names and downloads

@test
def names_lists_the_short_names(home):
    table = run(home, "names").stdout
    rows = re.findall(r"^(\S+) +(\d+\.\d) GB  (?:yes|no, [\d.]+ GB short|on the GPU) +(\S+) +(\S.*)$", table, re.M)
    for size in ("e2b", "e4b", "12b", "26b", "31b"):
        of = {n: repo for n, _, repo, _ in rows if n.split(":")[0] == size}
        assert {size, f"{size}:q4", f"{size}:8bit", f"{size}:bf16"} <= set(of), of
        assert of[size] == of[f"{size}:q4"], of
    assert all(re.fullmatch(r"[\w.-]+/[\w.-]+(:\w+)?", repo) for _, _, repo, _ in rows) and len({n for n, *_ in rows}) == len(rows)
    assert len({line.find(line.split()[3]) for line in table.splitlines()[1:] if re.match(r"\S+ +\d", line)}) == 1, "columns stand below each other"
    listed = json.loads(run(home, "names", "--json").stdout)
    assert [(r["name"], r["model"]) for r in listed] == [(n, m) for n, _, m, _ in rows]
    free = next(int(l.split()[1]) * 1024 for l in open("/proc/meminfo") if l.startswith("MemAvailable"))
    for r in listed:  # as inspect has it
        if abs(r["needs_bytes"] - free) > 0.2 * free:
            assert r["fits"] == (r["needs_bytes"] < free) or "on the GPU" in table, (r, free)
    best = [r["name"] for r in listed if r["recommended"]]
    if free > 6e9:
        assert len(best) == 1 and best[0] == listed[0]["name"] and listed[0]["fits"] and f"`evenkeel run {best[0]}`" in table, best
    assert [r["name"].split(":")[0] for r in json.loads(run(home, "names", "26b", "--json").stdout)] == ["26b"] * 7
    refused(home, 1, "names", "qwen", says="there are e2b, e4b, 12b, 26b, 31b")


@test
def names_are_suggested(home):
    for word in ("gemma", "llama3", "llama", "e5b"):
        line = refused(home, 2, "pull", word, says="e2b, e4b, 12b, 26b, 31b")
        assert "evenkeel names" in line
    refused(home, 2, "pull", "gemma-4-12b-it-q9", says="12b, 12b:q4")
    refused(home, 2, "pull", "e2bb", says="did you mean e2b?")
    refused(home, 1, "run", "e2bb", says="did you mean e2b?")
    refused(home, 1, "run", "llama3", "hi", says="only Gemma 4 runs here")
    refused(home, 1, "run", "gemma4:e2b", says="`evenkeel pull e2b` fetches it")
    refused(home, 1, "serve", "gemma4:26b-a4b-it-q8_0", says="`evenkeel pull 26b:q8` fetches it")
    refused(home, 1, "run", "no-such.gguf", says="no-such.gguf: there is no such file or folder")
    refused(home, 1, "run", "google/gemma-4-E2B-it", says="`evenkeel pull google/gemma-4-E2B-it` fetches it")
    bundled = run(home, "run", "--max-tokens", "3", "Hello")
    assert bundled.stderr.startswith("the bundled model answers, ") and bundled.stderr.count("\n") == 1, bundled.stderr
    refused(home, 2, "rm", "gemma", says="e2b")
    refused(home, 1, "run", "-m", "e2b", "hi", says="`evenkeel pull e2b` fetches it, about 3.4 GB")
    refused(home, 1, "serve", "-m", "E2B:8BIT", "--port", "0", says="`evenkeel pull e2b:8bit` fetches it")


def gguf(home):
    path = os.path.join(home, "made.gguf")
    if not os.path.exists(path):
        run(home, "convert", MODEL, path, "--type", "q8_0", "--force")
    return open(path, "rb").read()


@test
def a_download_asks_first(home):
    data = gguf(home)
    repo = HUB.repos["google/gemma-4-E2B-it-qat-q4_0-gguf"] = hub_server.Repo({"gemma-4-E2B_q4_0-it.gguf": data, "gemma-4-E2B-it-mmproj.gguf": b"x" * 5000})
    cache = os.path.join(home, "hf", "hub")
    call = [PROGRAM, "run", "e2b", "--max-tokens", "8", "--history", "none"]
    with Terminal(call, env=env(home)) as t:
        asked = plain(t.until("[y/N] "))
        size = re.search(r"Fetch (\d+\.\d\d MB) into (\S+)\?", asked)
        assert "google/gemma-4-E2B-it-qat-q4_0-gguf is not here" in asked and size and size[2] == cache, asked
        assert abs(float(size[1].split()[0]) * 1e6 - len(data)) < 1e4, asked
        t.type("n\r")
        status, shown = t.end()
        assert status == 1 and "is not fetched" in shown, (status, shown)
    assert repo.sent == 0 and not os.path.exists(cache)
    with Terminal(call, env=env(home)) as t:
        t.until("[y/N] ")
        t.type("\x04")
        assert t.end()[0] == 1 and repo.sent == 0
    with Terminal(call, env=env(home)) as t:
        t.until("[y/N] ")
        t.type("y\r")
        start = plain(t.until(ON + "> "))
        assert "e2b on the CPU" in start, start
        assert "[" in t.line("Hello") and repo.sent == len(data)
        t.type("\x03")                      # the fetch's handlers are gone, the chat's are there
        t.until(ON + "> ")
        t.type("\x04")
        assert t.end()[0] == 0
    with Terminal(call, env=env(home)) as t:  # now it is here
        assert "[y/N]" not in t.until(ON + "> ")
    shutil.rmtree(cache)
    again = run(home, "run", "e2b", "--yes", "--max-tokens", "8", "Hello")
    assert again.stdout and repo.sent == 2 * len(data)
    table = run(home, "list").stdout
    assert "google/gemma-4-E2B-it-qat-q4_0-gguf" in table and "\n1 model, " in table, table
    head, row = table.splitlines()[:2]
    for column in ("repository", "revision", "last used", "what it is"):
        at = head.index(column)
        assert (at == 0 or row[at - 1] == " ") and row[at] != " ", (column, table)
    assert row[:head.index("size") + 4].endswith(" MB"), table
    assert run(home, "inspect", "e2b").stdout.startswith("model ")
    with serving(home, "-m", "e2b") as (port, p, line):
        assert " serves e2b on the CPU" in line, line
        assert soon(lambda: "e2b" in run(home, "ps").stdout)
    assert run(home, "pull", "e2b").stdout.endswith(".gguf\n")
    assert "freed" in run(home, "rm", "e2b", "-y").stdout


@test
def a_better_model_is_offered_once(home):
    best = next(r for r in json.loads(run(home, "names", "--json").stdout) if r["recommended"])
    HUB.repos[best["model"]] = hub_server.Repo({"gemma-4-q4_0-it.gguf": gguf(home)})
    call = [PROGRAM, "run", "--max-tokens", "4", "--history", "none"]
    with Terminal(call, env=env(home)) as t:  # who begins to talk does not answer, and is not asked to say it again
        t.until("[y/N] ")
        t.type("Hello, who are you there?\r")
        shown = plain(t.until(ON + "> "))
        assert "the bundled model answers" in shown and "> Hello, who are you there?" in shown and " tokens/s]" in shown, shown
        t.type("\x10")
        t.until("Hello, who are you there?")
        t.type("\x15\x04")
        assert t.end()[0] == 0
    with Terminal(call, env=env(home), columns=200) as t:
        asked = plain(t.until("[y/N] "))
        assert f"fetch {best['name']}, about {best['gigabytes']:.1f} GB" in asked, asked
        t.type("n\r")
        assert "the bundled model answers" in plain(t.until(ON + "> "))
    with Terminal(call, env=env(home)) as t:
        assert "[y/N]" not in t.until(ON + "> ")
    os.remove(os.path.join(home, ".local/state/evenkeel/bundled"))
    with Terminal([*call, "Hello"], env=env(home)) as t:
        assert "[y/N]" not in t.end(60)[1], "a question is answered at once"
    with Terminal(call, env=env(home)) as t:
        t.until("[y/N] ")
        t.type("y\r")
        assert f"{best['name']} on " in plain(t.until(ON + "> ", 60))


@test
def no_network_is_said_within_a_second(home):
    for address, says in (("http://no-such-host.invalid", "cannot be reached"), ("http://127.0.0.1:9", "cannot be reached")):
        begun = time.time()
        line = refused(home, 1, "pull", "e2b", says=says, HF_ENDPOINT=address)
        assert time.time() - begun < 1 and address in line and "is there a network?" in line, (time.time() - begun, line)
    with socket.socket() as s:  # somebody who takes the connection and says nothing
        s.bind(("127.0.0.1", 0))
        s.listen(5)
        p = subprocess.Popen([PROGRAM, "pull", "e2b"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                             env=env(home, HF_ENDPOINT=f"http://127.0.0.1:{s.getsockname()[1]}"),
                             preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))  # a background job ignores it
        begun = time.time()
        line = p.stderr.readline()
        assert time.time() - begun < 1.2 and "is there a network?" in line, (time.time() - begun, line)
        p.send_signal(signal.SIGINT)
        out, err = p.communicate(timeout=10)
        assert p.returncode == 1 and "interrupted" in err, err
    refused(home, 1, "pull", "e2b", says="HF_HUB_OFFLINE", HF_HUB_OFFLINE="1")


@test
def an_interrupt_ends_a_model_that_loads(home):
    """The file of the weights has a lease: a program that opens it waits there until the lease ends, 45 seconds later."""
    signal.signal(signal.SIGIO, signal.SIG_IGN)  # by which the system tells of that program
    folder = os.path.join(home, "leased")
    shutil.copytree(MODEL, folder)
    with open(os.path.join(folder, "model.safetensors"), "r+b") as weights:
        try:
            fcntl.fcntl(weights, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        except OSError as why:
            raise Skipped(f"a file system without leases: {why}")
        for words in (("generate", "--max-tokens", "2"), ("logits", "--out", os.path.join(home, "rows"))):
            p = subprocess.Popen([PROGRAM, *words, "--model", folder, "--ids", "2,9"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                 env=env(home), preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
            assert soon(lambda: p.poll() is not None or fcntl.fcntl(weights, fcntl.F_GETLEASE) != fcntl.F_WRLCK), "nobody opens the weights"
            p.send_signal(signal.SIGINT)
            try:
                out, err = p.communicate(timeout=10)
            except subprocess.TimeoutExpired:
                p.kill()
                p.communicate()
                raise
            assert p.returncode == -signal.SIGINT and out == "", (words, p.returncode, err)
            fcntl.fcntl(weights, fcntl.F_SETLEASE, fcntl.F_UNLCK)
            fcntl.fcntl(weights, fcntl.F_SETLEASE, fcntl.F_WRLCK)


@test
def a_list_without_models_helps(home):
    said = run(home, "list").stdout
    assert said.startswith("no models in ") and "`evenkeel pull e2b`" in said and said.count("\n") == 1, said


@test
def a_folder_without_a_model_is_called_one(home):
    empty = os.path.join(home, "empty")
    os.mkdir(empty)
    for call in (("inspect", empty), ("run", "-m", empty, "hi"), ("serve", "-m", empty, "--port", "0"), ("tokenize", "-m", empty)):
        refused(home, 1, *call, says=f"{empty} holds no model: neither config.json with safetensors nor a GGUF file")
    open(os.path.join(empty, "README.md"), "w").write("x")
    refused(home, 1, "inspect", empty, says="holds no model")


# ------------------------------------------------------------------ servers

@test
def a_server_says_one_line(home):
    with serving(home, "--model", MODEL) as (port, p, line):
        at = f"http://127.0.0.1:{port}"
        assert re.fullmatch(rf"evenkeel \S+ serves {NAME} on the CPU( \(no NVIDIA driver\))?, keys and values in i12, at {at}/v1; its page for people is {at}/\n", line), line
        with socket.create_connection(("127.0.0.1", port)) as s:
            s.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            assert b"200 OK" in s.recv(100)
        p.send_signal(signal.SIGTERM)
        out, err = p.communicate(timeout=30)
        assert out == "" and [l for l in err.splitlines() if "event=drain" not in l] == [], (out, err)
    with serving(home, "--model", MODEL, "--verbose") as (port, p, line):
        p.send_signal(signal.SIGTERM)
        err = p.communicate(timeout=30)[1]
        for words in ("weights of", "MB in memory", "keys and values in i12", "room for", "context"):
            assert words in err, (words, err)
        assert "cannot open" not in err and "0.00 GB" not in err, err
    chatted = run(home, "run", "--model", MODEL, "--max-tokens", "3", "Hello", XDG_RUNTIME_DIR=home)
    assert chatted.stderr == "", chatted.stderr


@test
def ps_lists_what_runs(home):
    assert run(home, "ps").stdout == "no server of yours runs on this machine; `evenkeel serve` starts one\n"
    assert json.loads(run(home, "ps", "--json").stdout) == []
    with serving(home, "--model", MODEL, "--ctx", "256") as (one, _, _), serving(home, "--model", MODEL, "--model-name", "other", "--api-key", "k") as (two, other, _):
        table = run(home, "ps").stdout.splitlines()
        assert len(table) == 3 and re.fullmatch(r"address +model +memory +context +clients +requests +for +process +device", table[0]), table
        until = time.time() + 60  # the canary of a start may still run
        while True:
            rows = {r["url"]: r for r in json.loads(run(home, "ps", "--json").stdout)}
            if not any(r["running"] for r in rows.values()) or time.time() > until:
                break
            time.sleep(0.05)
        # what a container's health check asks needs no folder and no key
        def ready(port):
            r = subprocess.run([PROGRAM, "ps", "--ready"], capture_output=True, text=True, timeout=20,
                               env=env("/nowhere", EVENKEEL_PORT=str(port), XDG_RUNTIME_DIR="/nowhere"))
            assert r.stdout == r.stderr == "" and r.returncode in (0, 1), r
            return r.returncode == 0
        assert soon(lambda: ready(one)) and soon(lambda: ready(two)) and not ready(free_port())
        a, b = rows[f"http://127.0.0.1:{one}"], rows[f"http://127.0.0.1:{two}"]
        assert a["model"] == NAME and b["model"] == "other" and a["context"] == 256 and b["pid"] == other.pid, rows
        assert a["memory_bytes"] > 1e6 and a["clients"] == 0 and a["running"] == 0 and a["device"] == "cpu", a
        with socket.create_connection(("127.0.0.1", two)) as s:
            s.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            s.recv(100)
            until = time.time() + 60  # ps reads /metrics, whose text is some time old on a busy machine
            while True:
                b, = (r for r in json.loads(run(home, "ps", "--json").stdout) if r["model"] == "other")
                if b["clients"] == 1 or time.time() > until:
                    break
                time.sleep(0.05)
            assert b["clients"] == 1, b
        # whoever is gone without a word, and a process that has got its number since, are not listed
        folder = os.path.join(home, "evenkeel")
        mine = json.load(open(os.path.join(folder, f"{other.pid}.json")))
        json.dump(mine | {"pid": os.getpid()}, open(os.path.join(folder, f"{os.getpid()}.json"), "w"))
        json.dump(mine | {"pid": 999999}, open(os.path.join(folder, "999999.json"), "w"))
        open(os.path.join(folder, "777.json"), "w").write("not JSON")
        assert len(json.loads(run(home, "ps", "--json").stdout)) == 2
        assert sorted(os.listdir(folder)) == sorted(os.listdir(folder)) and len(os.listdir(folder)) == 2, os.listdir(folder)
        other.send_signal(signal.SIGSTOP)  # one that does not answer holds nobody up
        begun = time.time()
        listed = json.loads(run(home, "ps", "--json").stdout)
        other.send_signal(signal.SIGCONT)
        assert time.time() - begun < 2 and len(listed) == 2 and -1 in [r["clients"] for r in listed], listed
    assert os.listdir(os.path.join(home, "evenkeel")) == [] and "no server" in run(home, "ps").stdout


@test
def ps_trusts_no_folder_of_others(home):
    folder = os.path.join(home, "evenkeel")
    os.mkdir(folder)
    os.chmod(folder, 0o777)
    with serving(home, "--model", MODEL) as (port, p, line):
        assert os.listdir(folder) == [] and "no server" in run(home, "ps").stdout
    os.chmod(folder, 0o700)
    os.rename(folder, folder + "-real")
    os.symlink(folder + "-real", folder)
    with serving(home, "--model", MODEL) as (port, p, line):
        assert os.listdir(folder) == [] and "no server" in run(home, "ps").stdout


@test
def stop_ends_servers(home):
    refused(home, 1, "stop", says="no server of yours runs")
    with serving(home, "--model", MODEL) as (one, p1, _), serving(home, "--model", MODEL, "--model-name", "two") as (two, p2, _), \
            serving(home, "--model", MODEL, "--model-name", "three") as (three, p3, _):
        line = refused(home, 2, "stop", says="3 servers run, name one by its port, or all with --all")
        assert f"{two} (two)" in line
        refused(home, 1, "stop", "four", says="no server of yours has the port or the model four")
        assert run(home, "stop", "two").stdout == f"stopped two at http://127.0.0.1:{two}\n" and p2.wait(5) == 0
        assert run(home, "stop", one).stdout.startswith(f"stopped {NAME} at") and p1.wait(5) == 0
        assert run(home, "stop").stdout.startswith("stopped three") and p3.wait(5) == 0
    with serving(home, "--model", MODEL) as (one, p1, _), serving(home, "--model", MODEL) as (two, p2, _):
        assert run(home, "stop", "--all").stdout.count("stopped ") == 2 and p1.wait(5) == p2.wait(5) == 0


# ------------------------------------------------------------------ selftest and bench

@test
def selftest_says_what_it_will_do(home):
    tiny = os.path.join(home, "tiny")
    tiny_model.main(tiny)
    lines = run(home, "selftest", "--model", tiny, "--threads", "2").stdout.splitlines()
    head = "\n".join(lines[:5])
    told = re.search(r"(\d+) rows: .*; about \d+ (s|minutes)\.", head, re.S)
    rows = [l for l in lines if l.startswith(("ok ", "FAIL "))]
    assert told and int(told[1]) == len(rows), (head, len(rows))
    assert "the plain C definition (scalar) last" in head.replace("\n", " "), head
    isas = run(home, "version", "--isas").stdout.split()
    assert rows[-1].split()[1] == "scalar" or len(isas) == 1, rows[-1]
    assert lines[-1] == f"{len(rows)} passed, 0 failed"


@test
def bench_explains_its_columns(home):
    shown = run(home, "bench", "--model", MODEL, "--prompt", "8", "--generate", "2", "--batch", "1", "--runs", "1").stdout
    for first in ("    prompt ", "     batch "):
        head = next(l for l in shown.splitlines() if l.startswith(first))
        before = shown[:shown.index(head)]
        for column in re.split(r"  +", head.strip()):
            assert re.search(rf"^{re.escape(column)} +\w.{{15,}}$", before, re.M) or column == "peak", (column, before)


@test
def bench_has_requests_with_masks(home):
    few = ("--model", MODEL, "--prompt", "8", "--generate", "4", "--batch", "1,3", "--runs", "1")
    r = json.loads(run(home, "bench", *few, "--structured", "2", "--json").stdout)
    assert [(x["batch"], x["structured"]) for x in r["generate"]] == [(1, 1), (3, 2)], r
    assert all(x["tokens_per_second"] > 0 for x in r["generate"]), r
    refused(home, 2, "bench", *few, "--structured", "4", says="--structured 4: the largest --batch has 3 requests")


def deep_model(folder, n_layers):
    """A tiny model with a context of 65,536 tokens."""
    kinds, config = tiny_model.KINDS, tiny_model.CONFIG
    tiny_model.KINDS = (kinds * n_layers)[:n_layers]
    tiny_model.CONFIG = config | {"max_position_embeddings": 65536, "num_hidden_layers": n_layers, "layer_types": tiny_model.KINDS,
                                  "per_layer_config": {f"{i:02d}": {"head_dim": tiny_model.FULL_HEAD} for i in range(1, n_layers, 2)}}
    try:
        tiny_model.main(folder)
    finally:
        tiny_model.KINDS, tiny_model.CONFIG = kinds, config


@test
def bench_has_depth_by_default(home):
    small, deep, heavy = (os.path.join(home, name) for name in ("small", "deep", "heavy"))
    tiny_model.main(small)
    deep_model(deep, 2)  # one layer of full attention over 32,768 tokens takes seconds
    less = ("--generate", "2", "--batch", "2,1", "--runs", "1", "--threads", "1")

    def measured(*args):
        r = json.loads(run(home, "bench", *args, "--json").stdout)
        return [x["tokens"] for x in r["prompt"]], [(x["batch"], x["depth"]) for x in r["generate"]]

    prompts, depths = measured("--model", deep, *less)
    assert prompts == [512, 2048, 32768] and depths == [(2, 0), (1, 0), (1, 32768)], (prompts, depths)
    prompts, depths = measured("--model", deep, "--prompt", "16", *less)
    assert prompts == [16] and depths == [(2, 0), (1, 0)], (prompts, depths)
    prompts, depths = measured("--model", deep, "--prompt", "16", "--depth", "40", *less)
    assert depths == [(2, 40), (1, 40)], depths
    shown = run(home, "bench", "--model", small, *less).stdout
    for what in ("prompt", "depth"):
        assert f"left out: {what} 32768, the model has a context of 4096 tokens\n" in shown, shown
    # A model of 8 layers on plain C takes a minute on any machine; one of 4 takes some 30 s, now more and now less.
    deep_model(heavy, 8)
    shown = run(home, "bench", "--model", heavy, "--isa", "scalar", *less).stdout
    for what in ("prompt", "depth"):
        assert re.search(rf"^left out: {what} 32768, \d+ s or more here; --{what} 32768 measures it$", shown, re.M), shown


@test
def bench_leaves_out_what_memory_does_not_hold(home):
    """32,768 tokens take 537 MB of keys and values, and half of the memory that may be taken is less."""
    if "san/" in PROGRAM:
        raise Skipped("sanitizers reserve terabytes")
    large, old = os.path.join(home, "large"), (tiny_model.FULL_HEAD, tiny_model.KV_HEADS)
    try:
        tiny_model.FULL_HEAD, tiny_model.KV_HEADS = 512, 2
        tiny_model.main(large)
    finally:
        tiny_model.FULL_HEAD, tiny_model.KV_HEADS = old
    heads = {k: v | {"head_dim": 512} for k, v in tiny_model.CONFIG["per_layer_config"].items()}
    with open(os.path.join(large, "config.json"), "w") as f:
        json.dump(tiny_model.CONFIG | {"max_position_embeddings": 65536, "num_key_value_heads": 2, "per_layer_config": heads}, f)
    less = ("--model", large, "--kv", "f32", "--device", "cpu", "--generate", "2", "--batch", "1", "--runs", "1", "--threads", "2")
    limit = (1 << 30, 1 << 30)
    r = subprocess.run([PROGRAM, "bench", *less], capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL, env=env(home),
                       preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, limit))
    assert r.returncode == 0, r
    for what in ("prompt", "depth"):
        assert f"left out: {what} 32768, 0.54 GB of keys and values, for which there is no room here\n" in r.stdout, r.stdout


@test
def bench_refuses_options_without_effect(home):
    refused(home, 2, "bench", "--model", MODEL, "--first-token", says="--pictures or --sounds is missing")


sys.exit(run_all(ONLY, done=HUB.close))
