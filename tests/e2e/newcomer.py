#!/usr/bin/env python3
"""The first evening at a terminal: newcomer.py PROGRAM MODEL [NAME...]

Lines that are written again at 40, 80 and 200 columns, piped input, paths that are dragged, Tab, Ctrl-C and Ctrl-Z. Standard
library only; prints a line per failure and closes with `N passed, N failed`."""
import json, os, re, resource, shlex, signal, struct, subprocess, sys, termios, tomllib, zlib

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import hub_server
from screen import ON, WEATHER, Chat, Terminal, plain, rows_of, run_all, test

PROGRAM, MODEL, ONLY = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2]), sys.argv[3:]


def call(home, *args, stdin="", **more):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("EVENKEEL_", "HF_"))} | {"HOME": home, "XDG_RUNTIME_DIR": home}
    return subprocess.run([PROGRAM, *args], input=stdin, capture_output=True, text=True, env=env, timeout=240, **more)


def once(home, *args, **more):
    return call(home, "run", "--model", MODEL, "--temperature", "0", "--max-tokens", "12", *args, **more)


def picture(path, shade=3):
    chunk = lambda kind, data: struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    rows = b"".join(b"\0" + bytes((x * shade % 256, y * 5 % 256, 99)[c] for x in range(64) for c in range(3)) for y in range(48))
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as f:
        f.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 64, 48, 8, 2, 0, 0, 0)) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))
    return path


# ------------------------------------------------------------------ lines that are written again

@test
def a_download_is_one_line_in_every_window(home):
    hub = hub_server.Hub()
    hub.repos["org/name"] = hub_server.Repo({"a-model-Q4_0.gguf": b"x" * 3000000}, speed=2000000)
    seen = {}
    for columns in (20, 40, 60, 80, 200):
        env = {"HF_HOME": os.path.join(home, str(columns)), "HF_ENDPOINT": hub.url, "HOME": home}
        with Terminal([PROGRAM, "pull", "org/name"], env=env, columns=columns) as t:
            t.end(60)
            bars = [plain(p.split("\n")[0]) for p in t.raw.split("\r\x1b[K") if " %" in p]
            assert len(bars) > 5, t.raw
            assert all(len(b) < columns for b in bars), (columns, bars)
            assert sum(" %" in r for r in rows_of(t.raw, columns)) == 0, "the last one is cleared, and none is above it"
            seen[columns] = max(bars, key=len)
    assert "file 1 of" in seen[200] and "/s" in seen[200] and "[" in seen[200], seen
    assert "left" in seen[80] and "[" in seen[80] and "of 3.00 MB" in seen[80], seen
    assert "of 3.00 MB" in seen[40] and "/s" not in seen[40], seen
    hub.close()


@test
def a_window_that_shrinks_is_noticed(home):
    hub = hub_server.Hub()
    hub.repos["org/name"] = hub_server.Repo({"a-model-Q4_0.gguf": b"x" * 4000000}, speed=1500000)
    with Terminal([PROGRAM, "pull", "org/name"], env={"HF_HOME": home, "HF_ENDPOINT": hub.url, "HOME": home}, columns=120) as t:
        t.until("file 1 of")
        t.resize(50)
        t.until("\r\x1b[K")
        t.until("\r\x1b[K")
        begun = t.seen
        t.end(60)
        bars = [plain(p.split("\n")[0]) for p in t.raw[begun:].split("\r\x1b[K") if " %" in p]
        assert bars and all(len(b) < 50 for b in bars), bars
    hub.close()


@test
def thoughts_stay_on_their_line(home):
    for columns in (40, 80, 200):
        with Chat(home, "--think", columns=columns) as t:
            t.ask("What is 12 plus 5?", seconds=60)
            lines = re.findall(r"\r\x1b\[K(?:\x1b\[2m)?(thinks: [^\r\n\x1b]*)", t.raw)
            assert lines and all(len(l) < columns for l in lines), (columns, lines)


@test
def a_long_prompt_says_how_far_it_is(home):
    text = " ".join(f"{i} boats sail." for i in range(900))
    slow = ("--isa", "scalar", "--threads", "1", "--device", "cpu", "--chunk", "64")
    with Chat(home, *slow, columns=40) as t:
        t.type(f"\x1b[200~{text}\x1b[201~\r")
        t.until("reading the prompt, ", 60)
        t.until("reading the prompt, ", 60)
        share = int(t.until(" %").split(" ")[0])
        assert 0 < share <= 100, share
        t.type("\x03")
        t.until(ON + "> ", 60)
        assert not any("reading the prompt" in r for r in rows_of(t.raw, 10000)), "it is cleared"
    p = once(home, *slow, "--max-tokens", "1", stdin=text[:300])  # seconds of reading
    assert "reading" not in p.stderr + p.stdout, "nothing of it where no terminal is"


@test
def words_are_not_broken(home):
    with Chat(home, columns=20) as t:
        shown = t.ask("Tell me something about yourself.")
        said = t.messages()[-1]["content"]
        lines = re.sub(r"\n\[\d+ token[^\n]*\]\n$", "", shown).split("\n")
        assert max(map(len, lines)) <= 20 and len(lines) > 1, lines
        assert " ".join(" ".join(lines).split()) == " ".join(said.split()), (lines, said)
        stats = re.search(r"^\[.*\]$", shown, re.M)[0]
        assert stats.count(",") <= 1 and len(stats) < 30, stats


# ------------------------------------------------------------------ pipes

@test
def what_is_piped_in_stands_before_the_prompt(home):
    want = once(home, "The keel is red.\n\nWhat colour is it?")
    got = once(home, "What colour is it?", stdin="The keel is red.\n")
    assert got.stdout == want.stdout and want.returncode == 0 and got.stderr == "", (got, want)
    assert once(home, "-p", "What colour is it?", stdin="The keel is red.\n").stdout == want.stdout
    path = os.path.join(home, "notes")
    open(path, "w").write("The keel is red.\n")
    with open(path) as f:
        assert subprocess.run([PROGRAM, "run", "--model", MODEL, "--temperature", "0", "--max-tokens", "12", "What colour is it?"], stdin=f,
                              capture_output=True, text=True, timeout=60).stdout == want.stdout
    alone = once(home, "What colour is it?")
    with open("/dev/null") as f:
        assert subprocess.run([PROGRAM, "run", "--model", MODEL, "--temperature", "0", "--max-tokens", "12", "What colour is it?"], stdin=f,
                              capture_output=True, text=True, timeout=60).stdout == alone.stdout


@test
def a_piped_text_is_one_message(home):
    want = once(home, "Hello\nthere\n\nfriend")
    got = once(home, stdin="Hello\nthere\n\nfriend\n")
    assert got.stdout == want.stdout and want.returncode == 0, (got, want)
    lines = once(home, "--lines", stdin="Hello\nHello\n")
    assert lines.stdout.count(once(home, "Hello").stdout.strip()) >= 1 and lines.stdout.count("\n") >= 2, lines
    slash = once(home, stdin="/help\n")
    assert slash.returncode == 0 and "lists the commands" not in slash.stdout and "/quit" not in slash.stdout, "it is a text like any other"
    assert once(home, stdin="").stdout == ""
    both = once(home, "--lines", "x", stdin="y\n")
    assert both.returncode == 2 and "--lines" in both.stderr, both
    zero = once(home, "x", stdin="a\0b")
    assert zero.returncode == 1 and "zero byte" in zero.stderr and zero.stderr.count("\n") == 1, zero


@test
def a_reader_that_has_enough_is_no_failure(home):
    for args in ("run --model %s --max-tokens 60 Hello" % MODEL, "help --markdown", "names --json"):
        p = subprocess.run(f"{PROGRAM} {args} </dev/null | head -c 3", shell=True, capture_output=True, text=True, timeout=60)
        assert len(p.stdout) == 3 and p.stderr == "", (args, p)


@test
def a_call_has_no_empty_line_before_it(home):
    path = os.path.join(home, "tools.json")
    json.dump(WEATHER, open(path, "w"))
    p = once(home, "--tools", path, "--max-tokens", "40", "What's the weather in Oslo?")
    assert p.stdout.startswith("get_weather("), p


# ------------------------------------------------------------------ paths

@test
def dragged_pictures_are_attached(home):
    picture(f"{home}/cat.png")
    picture(f"{home}/my pictures/a cat's (1).png", 7)
    odd = f"{home}/my pictures/a cat's (1).png"
    escaped = re.sub(r"([ '()])", r"\\\1", odd)
    url = "file://" + odd.replace(" ", "%20").replace("'", "%27").replace("(", "%28").replace(")", "%29")
    lines = [f"{home}/cat.png", f"What is in {home}/cat.png?", f"'{home}/cat.png' What is it?", f'Look at "{odd}" now', f"{escaped} What is it?",
             f"~/cat.png What is it?", f"What is {url}", f"{odd} What is it?", f"What is ~/my\\ pictures/a\\ cat\\'s\\ \\(1\\).png"]
    with Chat(home) as t:
        for line in lines:
            said = t.ask(line, seconds=60)
            assert re.search(r"\.png, 64 x 48 pixels, \d+ tokens", said.replace("\n", " ")) and "not a command" not in said, (line, said)
            if line == lines[0]:
                assert "it goes with the next message" in said, said
                t.ask("What is it?")
            content = [m for m in t.messages() if m["role"] == "user"][-1]["content"]
            assert [p["type"] for p in content] == ["image_url", "text"], (line, content)
            text = content[1]["text"]
            assert home not in text and "~" not in text and text.strip() == text and text, (line, text)
        t.ask(f"{home}/cat.png {shlex.quote(odd)} What differs?", seconds=60)
        assert [p["type"] for p in t.messages()[-2]["content"]] == ["image_url", "image_url", "text"], t.messages()[-2]
        t.ask("I don't know what cat.txt or /no/such/cat.png is")
        assert isinstance(t.messages()[-2]["content"], str)
        said = t.ask("/no/such/cat.png")
        assert "there is no such file: /no/such/cat.png" in said, said
        assert "is not a command here" in t.ask("/xyzzy")
    for name in ("scan.bmp", "scan.tiff", "song.m4a"):  # such are not read: said, and not taken for words in silence
        with open(f"{home}/{name}", "wb") as f:
            f.write(b"BM" + bytes(100))
        p = once(home, f"{home}/{name} What is it?")
        assert p.returncode == 0 and f"{home}/{name}: " in p.stderr or "this model has no ears" in p.stderr, (name, p)
    p = once(home, f"{home}/cat.png What is it?")
    assert p.returncode == 0 and "cat.png, 64 x 48" in p.stderr and p.stdout == once(home, "--image", f"{home}/cat.png", "What is it?").stdout, p


@test
def a_pdf_is_pictures_of_its_pages(home):
    """Given, by command, and dragged: the answer is that to the pictures."""
    from pdf_file import drawn, pdf
    data = pdf("A tiller steers.", "A keel keeps even.")
    path = f"{home}/two pages.pdf"
    with open(path, "wb") as f:
        f.write(data)
    broken = f"{home}/broken.pdf"
    with open(broken, "wb") as f:
        f.write(b"%PDF-1.4\nnothing")
    p = once(home, "--image", path, "--pdftoppm", "/no/pdftoppm", "What is it?")
    assert p.returncode != 0 and "/no/pdftoppm is no program" in p.stderr, p
    if not any(os.path.exists(d + "/pdftoppm") for d in ("/usr/bin", "/usr/local/bin")):
        p = once(home, "--image", path, "What is it?")
        assert p.returncode != 0 and "install poppler-utils" in p.stderr, p
        return
    args = []
    for i, page in enumerate(drawn(data)):
        with open(f"{home}/{i}.png", "wb") as f:
            f.write(page)
        args += ["--image", f"{home}/{i}.png"]
    want = once(home, *args, "What is it?")
    assert want.returncode == 0 and want.stdout.strip(), want
    assert once(home, "--image", path, "What is it?").stdout == want.stdout
    p = once(home, f"'{path}' What is it?")
    assert p.stdout == want.stdout and "of the first of 2 pages" in p.stderr, p
    p = once(home, "--image", broken, "What is it?")
    assert p.returncode != 0 and "a damaged PDF" in p.stderr, p
    with Chat(home) as t:
        assert "of the first of 2 pages" in t.ask(f"/image '{path}'").replace("\n", " ")
        t.ask("What is it?")
        assert [p["type"] for p in t.messages()[-2]["content"]] == ["image_url", "image_url", "text"], t.messages()[-2]
        assert "a damaged PDF" in t.ask(f"/image {broken}").replace("\n", " ")


@test
def a_message_of_many_paths_does_not_wait(home):
    used = lambda: sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])  # of processors: a busy machine's clock goes on
    begun = used()
    assert once(home, "x " + "/bin/x " * 2000, "--ctx", "64").returncode == 1, "the prompt is too long"
    assert used() - begun < 10


@test
def commands_take_paths_as_a_shell_does(home):
    picture(f"{home}/my pictures/a cat.png")
    with Chat(home) as t:
        for typed in (f"'{home}/my pictures/a cat.png'", f'"{home}/my pictures/a cat.png"', f"{home}/my\\ pictures/a\\ cat.png", "~/my\\ pictures/a\\ cat.png",
                      f"{home}/my pictures/a cat.png", "'~/my pictures/a cat.png'"):
            assert "it goes with the next message" in t.ask(f"/image {typed}").replace("\n", " "), typed
        assert t.ask(f"/image ~/my\\ pictures/a\\ cat.png '{home}/my pictures/a cat.png'").replace("\n", " ").count("it goes with") == 2
        t.ask("/reset")
        t.ask("Hello")
        for typed, real in (("~/one.json", "one.json"), ("'~/two words.json'", "two words.json"), ("~/three\\ words.json", "three words.json")):
            assert "messages saved" in t.ask(f"/save {typed}")
            assert os.path.exists(os.path.join(home, real)), os.listdir(home)
            assert "2 messages loaded" in t.ask(f"/load {typed}")
        open(os.path.join(home, "my tools.json"), "w").write(json.dumps(WEATHER))
        assert "get_weather" in t.ask("/tools ~/my\\ tools.json")


@test
def tab_completes_commands_and_paths(home):
    picture(f"{home}/pictures/a cat.png")
    picture(f"{home}/pictures/a dog.png")
    with Chat(home, cwd=home) as t:
        t.ask("/sa\t~/x.json")
        assert os.path.exists(f"{home}/x.json"), os.listdir(home)
        assert "temperature is 0.5" in t.ask("/se\ttemp\t0.5")
        assert "a cat.png" in t.ask("/im\tpic\ta\\ c\t")
        assert "a dog.png" in t.ask(f"/image ~/pictures/a\\ d\t")
        assert "a dog.png" in t.ask("/image 'pictures/a d\t")
        for name, quote in (("it's one.png", "'"), ('say "b".png', '"'), ("back\\slash.png", '"'), ("back\\slash.png", "'")):
            picture(f"{home}/quoted/{name}")
            assert "it goes with" in t.ask(f"/image {quote}quoted/{name[:2]}\t").replace("\n", " "), (name, t.raw[-300:])
        t.type("/image pictures/\t\t")
        t.until("a\\ cat.png")
        t.until("a\\ dog.png")
        assert "a cat.png" in t.ask("c\t")  # the list changes nothing that was typed
        assert "is not a command" in t.ask("/xy\tz")
        said = t.ask("/st\toff")
        assert "not shown" in said, said


# ------------------------------------------------------------------ Ctrl-C, Ctrl-Z

@test
def ctrl_c_leaves_a_turn(home):
    path = os.path.join(home, "tools.json")
    json.dump(WEATHER, open(path, "w"))
    with Chat(home, "--tools", path) as t:
        t.ask("Hello")
        before = t.messages()
        for end in ("\x03", "half a result\x03", "\x04"):
            t.ask("What's the weather in Oslo?", prompt="result of get_weather> ")
            t.type(end)
            assert "the turn is left" in plain(t.until(ON + "> ")), end
            assert t.messages() == before, t.messages()
        t.ask("What's the weather in Oslo?", prompt="result of get_weather> ")
        t.ask("4 C, rain")
        assert [m["role"] for m in t.messages()[2:]] == ["user", "assistant", "tool", "assistant"]


@test
def the_prompt_is_back_after_a_stop(home):
    with Chat(home) as t:
        t.type("half")
        t.until("half")
        t.p.send_signal(signal.SIGSTOP)
        mode = termios.tcgetattr(t.fd)
        mode[3] |= termios.ECHO | termios.ICANON
        termios.tcsetattr(t.fd, termios.TCSANOW, mode)  # as a shell does it
        t.p.send_signal(signal.SIGCONT)
        assert "> half" in plain(t.until("half")), t.raw
        assert not termios.tcgetattr(t.fd)[3] & termios.ECHO, "what is typed is not shown twice"
        t.ask(" a line")
        assert t.asked() == ["half a line"], t.asked()


# ------------------------------------------------------------------ agents, and the page for the first hour

CLIENTS = {"claude": ".claude/settings.json", "codex": ".codex/config.toml", "opencode": ".config/opencode/opencode.json", "qwen": ".qwen/settings.json",
           "hermes": ".hermes/config.yaml", "openclaw": ".openclaw/openclaw.json", "kilo": ".config/kilo/kilo.json"}


def settings(name, text):
    """What a client reads: JSON, TOML, or of YAML the block `model` and the names of the others."""
    if CLIENTS[name].endswith(".json"):
        return json.loads(text)
    if CLIENTS[name].endswith(".toml"):
        return tomllib.loads(text)
    assert not re.search(r"^\s*\t", text, re.M) and len(re.findall(r"^model:", text, re.M)) == 1, text
    block = re.search(r"^model:\n((?:  .*\n)+)", text, re.M)[1]
    return {"model": dict(l.strip().replace('"', "").split(": ", 1) for l in block.splitlines()), **{k: 1 for k in re.findall(r"^(\w+):", text, re.M) if k != "model"}}


def has_server(name, v, url, model, ctx):
    if name == "claude":
        fits = int(v["env"]["CLAUDE_CODE_MAX_OUTPUT_TOKENS"]) == min(8192, ctx // 4)  # a prompt has room beside the longest reply
        return fits and v["env"]["ANTHROPIC_BASE_URL"] == url and v["env"]["ANTHROPIC_MODEL"] == model and v["env"]["CLAUDE_CODE_MAX_CONTEXT_TOKENS"] == str(ctx)
    if name == "codex":
        return v["model"] == model and v["model_provider"] == "evenkeel" and v["model_providers"]["evenkeel"]["base_url"] == url + "/v1" and v["model_context_window"] == ctx
    if name in ("opencode", "kilo"):
        p = v["provider"]["evenkeel"]
        return v["model"] == f"evenkeel/{model}" and p["options"]["baseURL"] == url + "/v1" and p["models"][model]["limit"] == {"context": ctx, "output": min(8192, ctx // 4)}
    if name == "qwen":
        return v["env"]["OPENAI_BASE_URL"] == url + "/v1" and v["env"]["OPENAI_MODEL"] == model and v["security"]["auth"]["selectedType"] == "openai"
    if name == "hermes":
        return v["model"] == {"provider": "custom", "base_url": url + "/v1", "default": model, "context_length": str(ctx)}
    p = v["models"]["providers"]["evenkeel"]
    return p["baseUrl"] == url + "/v1" and p["models"][0]["id"] == model and p["models"][0]["contextWindow"] == ctx and v["agents"]["defaults"]["model"]["primary"] == f"evenkeel/{model}"


OLD = {".json": '{"theme": "dark", "env": {"MINE": "1"}, "model": {"temperature": 0.3}, "provider": {"other": {"name": "o"}}, "models": {"providers": {"other": {"baseUrl": "x"}}}}',
       ".toml": '# mine\nmodel = "old"\napproval_policy = "never"\n\n[model_providers.evenkeel]\nname = "old"\nbase_url = "http://old"\n\n[model_providers.other]\nname = "o"\n\n[tui]\ntheme = "dark"\n',
       ".yaml": "# mine\n---\nmodel:\n  provider: openrouter\n# of mine\n  default: old\nterminal:\n  backend: local\n"}

SPELLED = """developer_instructions = \"\"\"
Say \\\"\"\" twice.
model names are written out.
[model_providers.evenkeel]
model = "in a text"
\"\"\"
lists = [
  ["a"], # ]
  [']'],
]
"model" = \'\'\'
old\'\'\'
model_provider="old"
[ model_providers . "evenkeel" ]
name = "old"
[tui]
model = "dark"
"""


@test
def agents_get_their_settings(home):
    for name in CLIENTS:
        text = call(home, "agents", name).stdout
        assert has_server(name, settings(name, text), "http://127.0.0.1:8080", "gemma", 65536), (name, text)
    text = call(home, "agents", "copilot").stdout
    assert "export COPILOT_PROVIDER_BASE_URL='http://127.0.0.1:8080/v1'\n" in text and "export COPILOT_MODEL='gemma'\n" in text, text
    for other, name in (("Claude", "claude"), ("claude-code", "claude"), ("claude code", "claude"), ("codex-cli", "codex"), ("qwen-code", "qwen"), ("KiloCode", "kilo"), ("hermes-agent", "hermes"), ("OpenCode", "opencode")):
        assert call(home, "agents", other).stdout == call(home, "agents", name).stdout, other
    for other in ("claudette", "cod", "codex-", "kilo-x"):
        assert call(home, "agents", other).returncode == 2, other
    wrong = call(home, "agents", "cursor")
    assert wrong.returncode == 2 and "claude, codex" in wrong.stderr, wrong
    assert call(home, "agents", "copilot", "--write", "--yes").returncode == 2
    env = {k: v for k, v in os.environ.items() if not k.startswith("EVENKEEL_")} | {"HOME": home, "XDG_RUNTIME_DIR": home}
    for keys in ((), ("--api-key", "k1")):
        server = subprocess.Popen([PROGRAM, "serve", MODEL, "--port", "0", "--ctx", "512", "--model-name", "a keel; #1", *keys], stdout=subprocess.PIPE, text=True, env=env)
        try:
            url = re.search(r"at (http://127\.0\.0\.1:\d+)/v1", server.stdout.readline())[1]
            for name in CLIENTS:
                p = call(home, "agents", name)
                v = settings(name, p.stdout)
                if name == "hermes" and keys:
                    assert v["model"].pop("api_key") == "none"
                assert has_server(name, v, url, "a keel; #1", 512), (name, p)
                says = "EVENKEEL_KEY" if name == "codex" else '"none"'
                assert (f"the server has keys: put one in" in p.stderr and says in p.stderr) if keys else not p.stderr, p
                if name == "codex":
                    assert v["model_providers"]["evenkeel"].get("env_key") == ("EVENKEEL_KEY" if keys else None), v
            lines = call(home, "agents", "copilot").stdout
            shell = subprocess.run(["sh", "-c", lines + 'printf "%s|%s" "$COPILOT_MODEL" "$COPILOT_PROVIDER_API_KEY"'], capture_output=True, text=True)
            assert shell.stdout == "a keel; #1|" + ("none" if keys else ""), (lines, shell)
        finally:
            server.terminate()
            server.wait()


@test
def settings_are_merged_and_kept(home):
    for name, file in CLIENTS.items():
        path = os.path.join(home, file)
        asked = call(home, "agents", name, "--write")
        assert asked.returncode == 2 and "--yes" in asked.stderr and not os.path.exists(path), asked
        assert call(home, "agents", name, "--write", "--yes").returncode == 0
        assert has_server(name, settings(name, open(path).read()), "http://127.0.0.1:8080", "gemma", 65536), name
        assert not os.path.exists(path + ".before-evenkeel") and os.stat(path).st_mode & 0o77 == 0
        old = OLD[os.path.splitext(path)[1]]
        open(path, "w").write(old)
        for _ in range(2):
            assert call(home, "agents", name, "--write", "--yes").returncode == 0
        v = settings(name, open(path).read())
        assert has_server(name, v, "http://127.0.0.1:8080", "gemma", 65536), (name, v)
        assert open(path + ".before-evenkeel").read() == old, "the first one stays"
        if file.endswith(".json"):
            assert v["theme"] == "dark" and v["env"]["MINE"] == "1" and v["provider"]["other"] == {"name": "o"} and v["models"]["providers"]["other"], v
        elif file.endswith(".toml"):
            assert v["approval_policy"] == "never" and v["model_providers"]["other"]["name"] == "o" and v["tui"]["theme"] == "dark" and "# mine" in open(path).read(), v
        else:
            assert v["terminal"] and "# mine\n---\nmodel:" in open(path).read() and open(path).read().endswith("# of mine\nterminal:\n  backend: local\n") and "openrouter" not in open(path).read(), v
    path = os.path.join(home, CLIENTS["codex"])  # texts and lists of several lines, names spelled in other ways
    open(path, "w").write(SPELLED)
    for _ in range(2):
        assert call(home, "agents", "codex", "--write", "--yes").returncode == 0
    was, v = tomllib.loads(SPELLED), tomllib.loads(open(path).read())
    assert all(v[k] == was[k] for k in ("developer_instructions", "lists", "tui")) and has_server("codex", v, "http://127.0.0.1:8080", "gemma", 65536), v
    path, real = os.path.join(home, CLIENTS["qwen"]), os.path.join(home, "kept.json")
    os.rename(path, real)
    os.symlink(real, path)
    open(real, "w").write("{}")
    assert call(home, "agents", "qwen", "--write", "--yes").returncode == 0
    assert os.path.islink(path) and has_server("qwen", json.load(open(real)), "http://127.0.0.1:8080", "gemma", 65536)
    path = os.path.join(home, CLIENTS["claude"])
    open(path, "w").write('{"a": 1, // a comment\n}')
    bad = call(home, "agents", "claude", "--write", "--yes")
    assert bad.returncode == 1 and "line 1" in bad.stderr and open(path).read().startswith('{"a"'), bad
    with Terminal([PROGRAM, "agents", "qwen", "--write"], env={"HOME": home, "XDG_RUNTIME_DIR": home}) as t:
        before = open(os.path.join(home, CLIENTS["qwen"])).read()
        t.until("[y/N] ")
        t.type("n\r")
        assert "nothing is written" in t.end()[1] and open(os.path.join(home, CLIENTS["qwen"])).read() == before


@test
def the_first_hour_goes_as_its_page_says(home):
    page = open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docs", "FIRST-HOUR.md"), encoding="utf-8").read()
    lines = [l for block in re.findall(r"```\n(.*?)```", page, re.S) for l in block.splitlines()]
    says = {"names": r"To begin with: `evenkeel run \w+`|no, [\d.]+ GB short", "pull": "/snapshots/", "list": "1 model, ", "ps": r"http://127\.0\.0\.1:\d+ +\S+ ",
            "agents": '"ANTHROPIC_BASE_URL": "http://127', "stop": "stopped "}
    hub = hub_server.Hub()
    hub.repos["google/gemma-4-E2B-it-qat-q4_0-gguf"] = hub_server.Repo({n: open(os.path.join(MODEL, n), "rb").read() for n in os.listdir(MODEL) if n.endswith((".json", ".safetensors"))})
    env = {"HOME": home, "HF_HOME": home, "HF_ENDPOINT": hub.url, "XDG_RUNTIME_DIR": home, "EVENKEEL_MAX_TOKENS": "12", "EVENKEEL_PORT": "0"}
    open_now, ran = [], 0
    for i, line in enumerate(lines):
        if line.startswith("make"):
            continue
        ran += 1
        if line.startswith("> "):
            chat = open_now[-1]
            chat.type(line[2:] + "\r")
            if line == "> /quit":
                assert chat.end(30)[0] == 0
            else:
                assert plain(chat.until(ON + "> ", 60)).strip(), line
            continue
        argv = shlex.split(line)
        t = Terminal([PROGRAM, *argv[1:]], env=env, columns=80)
        if argv[1] == "serve":
            t.until("for people is", 60)
            open_now.append(t)
        elif i + 1 < len(lines) and lines[i + 1].startswith("> "):
            t.until(ON + "> ", 60)
            open_now.append(t)
        else:
            status, shown = t.end(60)
            assert status == 0 and re.search(says.get(argv[1], r"\S"), shown), (line, status, shown)
            t.__exit__()
    for t in open_now:
        t.__exit__()
    hub.close()
    assert ran >= 12, ran


sys.exit(run_all(ONLY))
