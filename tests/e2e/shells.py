#!/usr/bin/env python3
"""Man pages, and completions in the shells that load them: shells.py PROGRAM MODEL [NAME...]

What is completed is compared with `--help-all`. Standard library only; prints a line per failure and closes with
`N passed, N failed`, and skips shells that are not installed."""
import os, re, shutil, subprocess, sys, tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from screen import Skipped, Terminal, plain, run_all, test

PROGRAM, ONLY = os.path.abspath(sys.argv[1]), sys.argv[3:]
ENV = {k: v for k, v in os.environ.items() if not k.startswith("EVENKEEL_")}


def said(*argv):
    return subprocess.run([PROGRAM, *argv], check=True, capture_output=True, text=True, timeout=60, env=ENV).stdout


COMMANDS = re.findall(r"^\| `([a-z]+)[ `]", said("help", "--markdown"), re.M)


def needed(program):
    if not shutil.which(program):
        raise Skipped(f"{program} is not installed (make setup-checks)")


def options_of(command):
    """Of --help-all: the names and the letters."""
    rows = re.findall(r"^ {2}(?: {4}|(-.), )(--[a-z-]+)(?: ?\[(=[a-z]+)\])?", said(command, "--help-all"), re.M)
    named = {"--help", "--help-all"}
    for letter, name, level in rows:
        named |= {name, *([letter] if letter else []), *([name + level] if level else [])}
    return named


def same(shell, command, got):
    want = options_of(command)
    # fish's own list names a letter only where its long form is asked for by it.
    if shell == "fish":
        want = {w for w in want if w.startswith("--") and "=" not in w}
    assert set(got) == want, (shell, command, sorted(set(got) ^ want))


# ------------------------------------------------------------------ man pages

def words(text):
    return re.sub(r"[\s`]+", "", text)


@test
def a_man_page_says_what_help_says(home):
    needed("man")
    for command in COMMANDS:
        page = os.path.join(home, f"evenkeel-{command}.1")
        with open(page, "w", encoding="utf-8") as f:
            f.write(said("help", "--man", command))
        r = subprocess.run(["man", "-P", "cat", "-l", page], capture_output=True, text=True, timeout=60,
                           env={**ENV, "MANWIDTH": "100", "LC_ALL": "C.UTF-8", "MANROFFSEQ": "", "GROFF_NO_SGR": "1"})
        shown = words(re.sub(r".\x08", "", r.stdout))
        help_ = said("help", command)
        assert help_ == said(command, "--help-all")
        # Rows: an option with its text, to the next one, to a blank line or to a group's name.
        rows = re.findall(r"^ {2}(?: {4}|-., )--.*(?:\n {20,}.*)*", help_, re.M)
        assert len(rows) == len([o for o in options_of(command) if o.startswith("--") and "=" not in o]) - 2, command
        for row in rows:
            assert words(row) in shown, (command, row)
        assert f"evenkeel-{command}-" in shown.replace("‐", "-"), shown[:200]


@test
def man_pages_have_no_warning(home):
    needed("man")
    pages = [("evenkeel", ["help", "--man"])] + [(f"evenkeel-{c}", ["help", "--man", c]) for c in COMMANDS]
    for name, argv in pages:
        path = os.path.join(home, name + ".1")
        with open(path, "w", encoding="utf-8") as f:
            f.write(said(*argv))
        for width in ("60", "80"):
            r = subprocess.run(["man", "--warnings=w", "-E", "UTF-8", "-l", "-Tutf8", "-Z", path], capture_output=True, text=True,
                               timeout=60, env={**ENV, "LC_ALL": "C.UTF-8", "MANROFFSEQ": "", "MANWIDTH": width})
            assert r.returncode == 0 and r.stderr == "" and r.stdout, (name, width, r.stderr)
    whole = said("help", "--man")
    assert all(f"evenkeel\\-{c} (1)" in whole for c in COMMANDS)


# ------------------------------------------------------------------ completions

def script(home, shell):
    path = os.path.join(home, "_evenkeel" if shell == "zsh" else f"evenkeel.{shell}")
    with open(path, "w", encoding="utf-8") as f:
        f.write(said("help", "--completion", shell))
    return path


def bash(home, lines):
    """The completions of each line, by the function that readline calls."""
    path = script(home, "bash")
    ask = "\n".join(f"""line={line!r}; read -ra COMP_WORDS <<<"$line"; [[ $line == *' ' ]] && COMP_WORDS+=('')
COMP_LINE=$line COMP_POINT=${{#line}} COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _evenkeel; echo "${{COMPREPLY[*]}}" """ for line in lines)
    r = subprocess.run(["bash", "--norc", "--noprofile", "-c", f"set -u; . {path}; complete -p evenkeel >/dev/null || exit 9\n{ask}"],
                       capture_output=True, text=True, timeout=60, cwd=home, env=ENV)
    assert r.returncode == 0 and r.stderr == "", r
    return [line.split() for line in r.stdout.split("\n")[:-1]]


def fish(home, lines):
    path = script(home, "fish")
    ask = "; ".join(f"complete -C '{line}'; echo ---" for line in lines)
    r = subprocess.run(["fish", "--no-config", "-c", f"source {path}; {ask}"], capture_output=True, text=True, timeout=60,
                       cwd=home, env={**ENV, "HOME": home})
    assert r.returncode == 0 and r.stderr == "", r
    return [[row.split("\t")[0] for row in part.split("\n") if row] for part in r.stdout.split("---\n")[:-1]]


# The widget prints what compadd is given instead of showing it, between marks.
ZSH = """
fpath=(%s $fpath); PROMPT='ready> '; LISTMAX=100000; autoload -Uz compinit; compinit -u -D
compadd() {
  if [[ ${@[1,(i)(-|--)]} == *-(O|A|D)\\ * ]]; then builtin compadd "$@"; return $?; fi
  local -a hits; builtin compadd -A hits "$@"; print -rl -- "hit "${^hits}; builtin compadd "$@"
}
ask() { print; print -r -- "<<<"; zle -C asked complete-word list; zle asked; print -r -- ">>>"; BUFFER=; zle send-break }
list() { _main_complete }
zle -N ask; bindkey '^X' ask; print set''up
"""


def zsh(home, lines):
    script(home, "zsh")
    rc = os.path.join(home, ".zshrc")
    with open(rc, "w", encoding="utf-8") as f:
        f.write(ZSH % home)
    found = []
    with Terminal(["zsh", "-i"], env={"HOME": home, "ZDOTDIR": home, "LC_ALL": "C.UTF-8"}, columns=1000, cwd=home) as t:
        t.until("ready> ")
        for line in lines:
            t.type(line + "\x18")
            t.until("<<<")
            found.append(re.findall(r"^hit (.*)$", plain(t.until(">>>")), re.M))
            t.until("ready> ")
    return [[hit for hit in hits if hit] for hits in found]


SHELLS = {"bash": bash, "zsh": zsh, "fish": fish}


def each(check):
    for shell in SHELLS:
        def one(home, shell=shell):
            needed(shell)
            check(home, shell, lambda *lines: SHELLS[shell](home, lines))
        one.__name__ = f"{check.__name__}_{shell}"
        test(one)


@each
def every_option_is_completed_by(home, shell, ask):
    commands = COMMANDS if shell != "zsh" else ["run", "serve", "bench", "help"]  # which takes its time; test_manual.c has all
    for command, got in zip(commands, ask(*(f"evenkeel {c} -" if shell != "fish" else f"evenkeel {c} --" for c in commands))):
        same(shell, command, got)


@each
def commands_are_completed_by(home, shell, ask):
    got, one = ask("evenkeel ", "evenkeel self")
    assert set(got) - {"--help", "--version"} == set(COMMANDS), (shell, got)
    assert "selftest" in one, (shell, one)


@each
def values_are_completed_by(home, shell, ask):
    open(os.path.join(home, "picture.png"), "w").close()
    os.mkdir(os.path.join(home, "folder"))
    kinds, device, role, model, help_, agents = ask("evenkeel convert --type ", "evenkeel run --device ", "evenkeel serve --role ",
                                                    "evenkeel run -m ", "evenkeel help ", "evenkeel agents ")
    assert {"q4_0", "bf16", "mlx8"} <= set(kinds), (shell, kinds)
    assert set(device) == {"auto", "cpu", "cuda", "vulkan"}, (shell, device)
    assert set(role) == {"both", "prefill", "decode"}, (shell, role)
    assert {"e2b", "31b", "e2b:q8"} <= {m.replace("\\", "") for m in model}, (shell, model)
    assert set(help_) == set(COMMANDS), (shell, help_)
    assert {"claude", "codex", "kilo"} <= set(agents), (shell, agents)
    if shell != "bash":  # bash leaves files and folders to readline
        (files, folders) = ask("evenkeel run --image ", "evenkeel serve --cache-dir ")
        assert any("picture.png" in f for f in files), (shell, files)
        assert any("folder" in f for f in folders) and not any("picture" in f for f in folders), (shell, folders)


@test
def readline_completes_words_with_signs(home):
    """A word of readline ends at a colon or an equals sign: what is completed is the rest."""
    path = script(home, "bash")
    os.mkdir(os.path.join(home, "some-folder"))
    with Terminal(["bash", "--norc", "--noprofile", "-i"], env={"HOME": home, "PS1": "ready> "}, cwd=home) as t:
        t.until("ready> ")
        t.type(f". {path}; evenkeel() {{ printf '<%s>' \"$@\"; echo; }}\r")
        t.until("ready> ")
        for typed, completed in (("run --temp\t1", "<run><--temperature><1>"), ("serve --role=pre\t", "<serve><--role=prefill>"),
                                 ("run 26b:bf\tx", "<run><26b:bf16><x>"), ("serve --cache-dir some-f\t", "<serve><--cache-dir><some-folder/>"),
                                 ("serve --verbose=c\t", "<serve><--verbose=cache>"), ("selft\t", "<selftest>")):
            t.type(f"evenkeel {typed}\r")
            t.until(completed)
            t.until("ready> ")


run_all(ONLY)
