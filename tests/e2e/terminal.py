#!/usr/bin/env python3
"""`evenkeel run` as a person at a terminal sees it: terminal.py PROGRAM MODEL [NAME...]

Editing, history, messages of several lines, commands, Ctrl-C and Ctrl-D, thoughts, speed; and that pipes get plain text.
Standard library only; prints a line per failure and closes with `N passed, N failed`."""
import json, os, re, resource, signal, subprocess, sys, tempfile, time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from screen import ON, WEATHER, Chat, Terminal, plain, run_all, test

PROGRAM, MODEL, ONLY = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2]), sys.argv[3:]
TRAINED = "tiny" not in MODEL


@test
def the_start_is_two_lines(home):
    with Chat(home) as t:
        lines = t.start.split("\n")
        assert len(lines) == 3 and lines[2] == "> ", t.start
        assert os.path.basename(MODEL) in lines[0] and "context" in lines[0] and "on the CPU" in lines[0], lines
        assert "/help" in lines[1] and "Ctrl-D" in lines[1], lines
        assert "libcuda" not in t.raw and " GB" not in t.raw, t.raw
    with Chat(home, "--verbose") as t:
        assert "weights of" in t.start and "keys and values" in t.start, t.start


@test
def lines_are_edited(home):
    with Chat(home) as t:
        t.ask("Helo\x1b[D\x1b[Dl\x1b[C\x1b[C!")             # two to the left, a letter, and back
        t.ask("wrong word\x17right")                          # Ctrl-W takes the word away
        t.ask("nothing\x15all of it")                         # Ctrl-U the line
        t.ask("ac\x02b\x05d")                                 # Ctrl-B, Ctrl-E
        t.ask("größe…\x7f\x7f\x1b[D\x1b[Dx")                  # characters, not bytes
        assert t.asked() == ["Hello!", "wrong right", "all of it", "abcd", "grxöß"], t.asked()


@test
def the_history_comes_back(home):
    with Chat(home) as t:
        t.ask("the first")
        t.ask("the second")
        t.ask("\x1b[A\x1b[A")
        assert t.asked() == ["the first", "the second", "the first"], t.asked()
    path = os.path.join(home, ".local/state/evenkeel/history")
    assert os.stat(path).st_mode & 0o77 == 0, "others can read what was typed"
    with Chat(home) as t:  # killed before: what was typed is there all the same
        t.ask("/reset")
        t.ask("\x10\x10\x10")  # Ctrl-P: /reset, /save, the first
        assert t.asked() == ["the first"], t.asked()
    other = os.path.join(home, "other", "lines")
    with Chat(home, "--history", other) as t:
        t.ask("of another file")
        assert "another" in open(other).read()
    with Chat(home, "--history", "none") as t:
        t.ask("secret")
    assert "secret" not in open(path).read() + open(other).read()


@test
def a_paste_is_one_message(home):
    with Chat(home) as t:
        t.ask("\x1b[200~one\rtwo\n\tthree\r\x1b[201~")
        t.ask("look: \x1b[200~/etc/passwd\r/etc/group\x1b[201~ ok")
        t.ask("\x1b[200~/etc/passwd\r/etc/group\x1b[201~")
        assert t.asked() == ["one\ntwo\n\tthree", "look: /etc/passwd\n/etc/group ok", "/etc/passwd\n/etc/group"], t.asked()
        t.ask("\x1b[200~a\x1b[31mb\x07c\x1b[201~")           # nothing in it is obeyed
        assert t.asked()[-1] == "a[31mbc", t.asked()
        assert t.raw.count("\x1b[?2004h") == t.raw.count("\x1b[?2004l") + 1, "pastes are marked while a line is read, not else"


@test
def three_quotes_hold_lines_together(home):
    with Chat(home) as t:
        t.type('"""first\r')
        t.until(ON + ". ")
        t.type("second\r")
        t.until(ON + ". ")
        t.ask('third"""')
        t.type('"""\r')
        t.until(ON + ". ")
        t.type("x\r")
        t.until(ON + ". ")
        t.ask('"""')
        t.ask('"""in one line"""')
        assert t.asked() == ["first\nsecond\nthird", "x", "in one line"], t.asked()
        t.type('"""never\r')
        t.until(ON + ". ")
        t.type("\x03")
        t.until(ON + "> ")
        assert len(t.asked()) == 3


@test
def the_system_message(home):
    with Chat(home, "--system", "Be brief.") as t:
        assert t.ask("/system") == "Be brief.\n"
        assert "is set" in t.ask("/system Answer in French.")
        t.ask("Hello")
        first = t.messages()
        assert [m["role"] for m in first] == ["system", "user", "assistant"] and first[0]["content"] == "Answer in French.", first
        t.ask("/system Now in Dutch.")
        assert [m["content"] for m in t.messages() if m["role"] == "system"] == ["Now in Dutch."]
        t.ask("/reset")
        assert [m["content"] for m in t.messages()] == ["Now in Dutch."], "a new conversation has it too"
        assert "no system message any more" in t.ask('/system ""') and t.messages() == []
        assert "sets one" in t.ask("/system")


@test
def all_sampling_options_are_set(home):
    good = {"temperature": "0.7", "top_k": "5", "top-p": "0.9", "min_p": "0.1", "repetition-penalty": "1.1", "seed": "9", "max_tokens": "3"}
    bad = {"temperature": ("hot", "from 0 to 100"), "top_k": ("-1", "from 0"), "top_p": ("2", "from 0 to 1"), "min_p": ("x", "from 0 to 1"),
           "repetition_penalty": ("0", "from 0.001"), "seed": ("1.5", "whole number"), "max_tokens": ("0", "from 1")}
    with Chat(home) as t:
        before = t.ask("/set")
        for name, value in good.items():
            said = t.ask(f"/set {name} {value}")
            assert said == f"{name.replace('-', '_')} is {value}\n", said
        shown = t.ask("/set")
        for name, value in good.items():
            assert f"{name.replace('-', '_')} {value}\n" in shown, (name, shown)
        for name, (value, says) in bad.items():
            said = t.ask(f"/set {name} {value}")
            assert said.startswith(f"{name} {value}: a ") and says in said and said.count("\n") == 1, said
        assert t.ask("/set") == shown, "a wrong value changes nothing"
        t.ask("Tell me a story.")
        assert "[3 tokens" in t.raw, "max_tokens counts"
        assert "did you mean temperature?" in t.ask("/set temperatur 1") and "lists them" in t.ask("/set colour red")
        assert "a value is needed" in t.ask("/set seed")
        for name in ("temperature", "top_k", "top_p", "min_p", "repetition_penalty", "seed", "max_tokens"):
            assert "own again" in t.ask(f"/set {name} default")
        after = t.ask("/set").splitlines()
        assert after[1:-2] == before.splitlines()[1:-2] and "max_tokens: the rest" in after[-2], (before, after)


@test
def a_conversation_is_saved_and_loaded(home):
    path = os.path.join(home, "saved.json")
    with Chat(home, "--system", "Be kind.") as t:
        t.ask("Hello")
        t.ask("Do you like \"quotes\" and ünïcode?\x1b[200~\n\x1b[201~")
        want = t.messages()
        assert t.ask(f"/save {path}") == "5 messages saved\n" and os.stat(path).st_mode & 0o77 == 0
        resource.prlimit(t.p.pid, resource.RLIMIT_FSIZE, (16, 16))
        assert "File too large" in t.ask(f"/save {path}"), "a disk that is full"
    body = json.load(open(path))  # what was there before
    assert not os.path.exists(path + ".part")
    assert body["model"] == os.path.basename(MODEL) and body["messages"] == want and want[3]["content"] == 'Do you like "quotes" and ünïcode?', body
    with Chat(home) as t:
        assert t.ask(f"/load {path}").startswith("5 messages loaded") and t.messages() == want
        assert t.ask("/system") == "Be kind.\n"
        t.ask("And now?")
        assert len(t.messages()) == 7
        plain_list = os.path.join(home, "list.json")
        json.dump([{"role": "user", "content": "hi"}, {"role": "assistant", "content": [{"type": "text", "text": "ho"}]}], open(plain_list, "w"))
        assert t.ask(f"/load {plain_list}").startswith("2 messages loaded")
        other = os.path.join(home, "other.json")  # of a program that keeps more in it
        json.dump({"title": "t", "messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}]}, open(other, "w"))
        assert t.ask(f"/load {other}").startswith("2 messages loaded")
        assert t.ask("/system").startswith("there is no system message")
        kept = t.messages()
        for text, says in (("", "JSON"), ("{", "line 1"), ('{"messages": 3}', "messages"), ('[{"role": "king", "content": "x"}]', "role must be one of"),
                           ('[{"role": "user", "content": 3}]', "messages[0]"), ('{"x": 1}', "messages")):
            bad = os.path.join(home, "bad.json")
            open(bad, "w").write(text)
            said = t.ask(f"/load {bad}")
            assert says in said and "bad.json" in said and said.count("\n") == 1, (text, said)
        assert "No such file" in t.ask("/load /no/such/file") and "name of a file" in t.ask("/load") and "name of a file" in t.ask("/save")
        assert "/no/such" in t.ask("/save /no/such/folder/x")
        assert t.messages() == kept, "what cannot be read changes nothing"


@test
def another_model(home):
    other = os.path.join(home, "other-model")
    os.symlink(MODEL, other)
    with Chat(home) as t:
        assert t.ask("/model").startswith(f"{os.path.basename(MODEL)} on ")
        t.ask("Hello")
        before = t.messages()
        said = t.ask(f"/model {other}")
        assert other in said and t.messages() == before, (said, before)
        t.ask("Hello again")
        assert len(t.messages()) == 4
        said = t.ask("/model e2b")
        assert "evenkeel pull e2b" in said and "still " in said, said
        said = t.ask("/model /no/such/model")
        assert "no/such/model" in said and "still " in said, said
        broken = os.path.join(home, "broken")
        os.mkdir(broken)
        open(os.path.join(broken, "config.json"), "w").write("{}")
        said = t.ask(f"/model {broken}")
        assert "broken" in said and "still " in said, said
        t.ask("Are you there?")
        assert len(t.messages()) == 6, "the model before is open again"


@test
def no_eyes_and_no_ears(home):
    with Chat(home) as t:
        for call, organ in (("/image", "eyes"), ("/audio", "ears")):
            said, named = t.ask(call), t.ask(call + " /no/such/file")
            if "a file is needed" in said:  # it has them: what there is to see is not there
                assert "No such file" in named and named.count("\n") == 1, named
                continue
            assert f"this model has no {organ}" in said and said == named and said.count("\n") == 1, (said, named)
        assert t.messages() == []


@test
def tools_are_read_called_and_answered(home):
    path, bad = os.path.join(home, "tools.json"), os.path.join(home, "bad.json")
    json.dump(WEATHER, open(path, "w"))
    with Chat(home) as t:
        assert "no tools; /tools FILE" in t.ask("/tools")
        for text, says in (("{}", "a JSON list of"), ("[3]", "tool 1: it is no object"), ('[{"type": "function"}]', "tool 1: it has no object function"),
                           (json.dumps(WEATHER + [{"type": "function", "function": {}}]), "tool 2: its function has no name"), ("[", "line 1")):
            open(bad, "w").write(text)
            said = t.ask(f"/tools {bad}")
            assert says in said and "bad.json" in said and said.count("\n") == 1, (text, said)
        assert "No such file" in t.ask("/tools /no/such/file") and "no tools" in t.ask("/tools")
        said = t.ask(f"/tools {path}")
        assert said.startswith("1 tool: get_weather\n") and "asked for each result" in said, said
        if TRAINED:
            said = t.ask("What's the weather in Oslo?", prompt="result of get_weather> ")
            assert 'get_weather({"city":"Oslo"})' in said, said
            said = t.ask("4 C, rain")
            assert "4" in said, said
            roles = [m["role"] for m in t.messages()]
            assert roles == ["user", "assistant", "tool", "assistant"], roles
            call = t.messages()[1]["tool_calls"][0]
            assert call["function"]["name"] == "get_weather" and json.loads(call["function"]["arguments"]) == {"city": "Oslo"}
            saved = os.path.join(home, "with-tools.json")
            t.ask(f"/save {saved}")
            assert json.load(open(saved))["tools"] == WEATHER
            before = t.messages()
            t.ask("/reset")
            t.ask("/tools off")
            t.ask(f"/load {saved}")
            assert t.messages() == before and "get_weather" in t.ask("/tools"), "calls, results and tools come back"
        assert "no tools any more" in t.ask("/tools off") and "no tools;" in t.ask("/tools")


@test
def help_lists_what_there_is(home):
    with Chat(home) as t:
        said = t.ask("/help")
        names = re.findall(r"^  /(\w+)", said, re.M)
        for name in ("system", "set", "save", "load", "model", "image", "audio", "tools", "help", "stats", "think", "reset", "quit"):
            assert name in names, (name, said)
        assert '"""' in said and "Ctrl-C" in said and t.ask("/?") == said
        assert max(map(len, said.splitlines())) < 100
        assert "did you mean /system?" in t.ask("/sytem x") and "did you mean /tools?" in t.ask("/tool")
        assert "is not a command here; /help" in t.ask("/xyzzy")
        t.ask(" /help is what I type")
        assert t.asked() == [" /help is what I type"]


@test
def the_speed_is_shown_until_it_is_not_wanted(home):
    speed = re.compile(r"^\[\d+ tokens?(, \d+\.\d tokens/s)?\]$", re.M)
    whole = re.compile(r"reply +\d+ tokens?(, \d+\.\d tokens/s)?\nprompt +\d+ tokens, \d+ from the cache, first token after \d+\.\d\d s"
                       r"(, \d+\.\d tokens/s)?\ncontext +\d+ of \d+\n")
    with Chat(home) as t:
        assert t.ask("/stats") == "nothing was answered yet\n"
        assert speed.search(t.ask("Hello")), t.raw
        assert whole.fullmatch(t.ask("/stats")) and speed.search(t.ask("Hello")), t.raw
        assert "not shown" in t.ask("/stats off") and "not shown" in t.ask("/stats off") and "is needed" in t.ask("/stats 3")
        assert not speed.search(t.ask("Hello")) and whole.fullmatch(t.ask("/stats"))
    with Chat(home, "--no-stats") as t:
        assert not speed.search(t.ask("Hello"))
        assert "is shown" in t.ask("/stats on") and speed.search(t.ask("Hello"))


@test
def ctrl_d_ends_the_line_and_the_chat(home):
    with Chat(home) as t:
        t.ask("Hello", end="\x04")                            # behind text it sends the line
        t.ask("abXc\x1b[D\x1b[D\x04")                         # within it, a character goes
        assert t.asked() == ["Hello", "abc"], t.asked()
        t.type("\x04")
        status, shown = t.end()
        assert status == 0 and shown.endswith("\n"), (status, shown)
    for word in ("/quit", "/exit", "/bye"):
        with Chat(home) as t:
            t.type(word + "\r")
            assert t.end()[0] == 0


@test
def ctrl_c_stops_an_answer_and_not_the_program(home):
    slow = ("--isa", "scalar", "--threads", "1", "--draft", "off", "--device", "cpu") if TRAINED else ()
    with Chat(home, *slow) as t:
        t.type("half a line\x03")
        t.until(ON + "> ")
        if TRAINED:
            t.type("Tell me something about yourself.\r")
            t.until("\x1b[?2004l")
            t.pump(20)
            t.type("\x03")
            begun = time.time()
            cut = plain(t.until(ON + "> "))
            assert time.time() - begun < 5
            tokens = int(re.search(r"\[(\d+) token", cut)[1])
            assert tokens < 40, cut
        t.ask("Are you there?")
        asked = t.asked()
        assert "half a line" not in asked and asked[-1] == "Are you there?", asked
    p = Terminal([PROGRAM, "run", "--model", MODEL, *slow, "Tell me something about yourself."], env={"HOME": home})
    with p as t:
        if TRAINED:
            t.pump(20)
            t.type("\x03")
            assert t.end()[0] in (130, -2, 0)  # during the start it ends at once


@test
def thoughts_are_dimmed_and_folded(home):
    question = "What is 12 plus 5?"
    with Chat(home) as t:
        assert "nothing was thought" in t.ask("/thoughts") and "thinking is on" in t.ask("/think")
        if not TRAINED:
            return
        t.seen = len(t.raw)
        shown = t.ask(question)
        raw = t.raw
        whole = t.ask("/thoughts").strip()
        assert len(whole) > 10, whole
        fold = re.search(r"\x1b\[2mthought for \d+\.\d s, (\d+) characters; /thoughts shows them\x1b\[0m", raw)
        assert fold and int(fold[1]) == len(whole), (fold, whole)
        assert f"\n{whole}\n" not in shown, shown
        assert "thinking is off" in t.ask("/think off") and "is needed" in t.ask("/think maybe")
    with Chat(home, "--think", "--show-thoughts", columns=1000) as t:
        t.ask(question)
        assert f"\x1b[2m{whole}\x1b[0m" in t.raw.replace("\r\n", "\n") and "thought for" not in t.raw, t.raw


@test
def no_colour_where_none_is_wanted(home):
    for env, args in (({"NO_COLOR": "1"}, ()), ({"EVENKEEL_NO_COLOR": "1"}, ()), ({}, ("--no-color",))):
        with Chat(home, "--think", *args, env=env) as t:
            t.ask("What is 12 plus 5?")
            assert not re.search(r"\x1b\[[0-9;]*m", t.raw), (env, t.raw)
    with Chat(home, "--think", term="dumb") as t:
        t.ask("What is 12 plus 5?", end="\n")
        assert "\x1b" not in t.raw, t.raw


@test
def a_changed_window_ends_no_chat(home):
    """Where nothing is edited, too: the read that it interrupts goes on."""
    with Chat(home, term="dumb") as t:
        for number in (signal.SIGWINCH, signal.SIGCONT):
            os.kill(t.p.pid, number)
            time.sleep(0.2)
        t.ask("Hello", end="\n")


@test
def pipes_are_plain(home):
    env = {k: v for k, v in os.environ.items() if not k.startswith("EVENKEEL_")} | {"HOME": home}
    call = [PROGRAM, "run", "--model", MODEL, "--temperature", "0", "--max-tokens", "20"]
    one = subprocess.run([*call, "Hello"], capture_output=True, text=True, env=env, timeout=60)
    assert one.returncode == 0 and one.stderr == "" and "\x1b" not in one.stdout, one
    two = subprocess.run(call, input="Hello\n", capture_output=True, text=True, env=env, timeout=60)
    assert two.stdout == one.stdout and two.stderr == "" and two.returncode == 0, (one, two)
    for short in ([*call, "-p", "Hello"], [PROGRAM, "run", MODEL, "Hello", *call[4:]], [PROGRAM, "run", "-m", MODEL, *call[4:], "Hello"]):
        same = subprocess.run(short, capture_output=True, text=True, env=env, timeout=60)
        assert same.stdout == one.stdout and same.returncode == 0, same
    quoted = subprocess.run([*call, "--lines"], input='"""\nHello\n', capture_output=True, text=True, env=env, timeout=60)
    assert quoted.stdout.count("\n") >= 2 and quoted.returncode == 0, "each line is a message"
    assert not os.path.exists(os.path.join(home, ".local")), "what is piped in is no history"


sys.exit(run_all(ONLY))
