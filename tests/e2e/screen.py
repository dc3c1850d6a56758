"""A program in a pseudo-terminal, for tests of what a person sees. Python standard library only."""
import errno, fcntl, json, os, pty, re, select, signal, struct, subprocess, sys, tempfile, termios, time, traceback


class Terminal:
    """`argv` with a terminal for standard input, output and error; use with `with`."""

    def __init__(self, argv, env=None, columns=100, term="xterm", errors_too=True, **more):
        self.fd, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))

        def lead():
            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        keep = {k: v for k, v in os.environ.items() if not k.startswith(("EVENKEEL_", "HF_")) and k not in ("NO_COLOR", "LC_ALL", "LANG")}
        keep.update(TERM=term, LC_CTYPE="C.UTF-8")
        keep.update(env or {})
        self.p = subprocess.Popen(argv, stdin=slave, stdout=slave, stderr=slave if errors_too else subprocess.DEVNULL,
                                  env={k: v for k, v in keep.items() if v is not None}, preexec_fn=lead, **more)
        os.close(slave)
        self.raw = ""   # all that was shown so far
        self.seen = 0   # up to here it was waited for

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.p.poll() is None:
            self.p.kill()
        self.p.wait()
        os.close(self.fd)

    def pump(self, seconds):
        """Reads what comes within the time; False at the end."""
        if not select.select([self.fd], [], [], seconds)[0]:
            return True
        try:
            part = os.read(self.fd, 65536)
        except OSError as e:
            if e.errno != errno.EIO:
                raise
            part = b""
        self.raw += part.decode("utf-8", "replace")
        return bool(part)

    def until(self, words, seconds=60):
        """Waits for a text behind what was waited for before, and returns what was shown up to it."""
        end = time.time() + seconds
        while True:
            at = self.raw.find(words, self.seen)
            if at >= 0:
                shown = self.raw[self.seen:at + len(words)]
                self.seen = at + len(words)
                return shown
            if time.time() > end or not self.pump(max(0, end - time.time())):
                raise AssertionError(f"{words!r} did not come; shown: {self.raw[self.seen:]!r}")

    def type(self, text):
        os.write(self.fd, text.encode())

    def line(self, text, prompt="> ", seconds=60):
        """Types a line and returns, without controls, what was shown up to the next prompt."""
        self.type(text + "\r")
        return plain(self.until("\n", seconds) + self.until(ON + prompt if ON else prompt, seconds))

    def resize(self, columns):
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))

    def end(self, seconds=60):
        """Waits for the end and returns the exit status and what was shown since."""
        end = time.time() + seconds
        while self.pump(max(0.0, end - time.time())):
            if time.time() > end:
                raise AssertionError(f"it goes on: {self.raw[self.seen:]!r}")
        self.p.wait(60)
        shown, self.seen = self.raw[self.seen:], len(self.raw)
        return self.p.returncode, plain(shown)


ON = "\x1b[?2004h"  # bracketed paste, which libedit's prompt follows


def rows_of(raw, columns):
    """What a terminal of this width shows of raw: its rows, each line that is too long as several."""
    rows, at = [[]], 0
    for part in re.findall(r"\x1b\[[0-9;?]*[A-Za-z]|.", raw, re.S):
        if part == "\r":
            at = 0
        elif part == "\n":
            rows.append([])
        elif part == "\x1b[K":
            del rows[-1][at:]
        elif part[0] != "\x1b" and part >= " ":
            if at == columns:
                rows.append([])
                at = 0
            rows[-1][at:at + 1] = part
            at += 1
    return ["".join(r) for r in rows]


def plain(text):
    """Without escape sequences and carriage returns: what a person reads."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[()][A-Z0-9]|\x1b[=>]", "", text).replace("\r", "")


WEATHER = [{"type": "function", "function": {"name": "get_weather", "description": "Get the current weather for a city.",
            "parameters": {"type": "object", "properties": {"city": {"type": "string", "description": "The city"}}, "required": ["city"]}}}]


class Chat(Terminal):
    """`run` of the script's MODEL by its PROGRAM at the first prompt, with a home of its own."""

    def __init__(self, home, *args, env=None, term="xterm", **more):
        self.home = home
        env = {"HOME": home, "XDG_STATE_HOME": None, **(env or {})}
        super().__init__([os.path.abspath(sys.argv[1]), "run", "--model", os.path.abspath(sys.argv[2]), "--temperature", "0", "--max-tokens", "40", *args], env=env, term=term, **more)
        self.on = ON if term != "dumb" else ""
        self.start = plain(self.until(self.on + "> "))

    def ask(self, text, prompt="> ", seconds=60, end="\r"):
        """Types and returns what was shown behind the line, up to the next prompt."""
        self.type(text + end)
        shown = plain(self.until(self.on + prompt, seconds))
        return shown[:-len(prompt)].split("\n", 1)[1] if "\n" in shown else shown

    def messages(self):
        path = os.path.join(self.home, f"saved-{self.seen}.json")
        said = self.ask(f"/save {path}")
        assert re.fullmatch(r"\d+ messages? saved\n", said), said
        return json.load(open(path))["messages"]

    def asked(self):
        return [m["content"] for m in self.messages() if m["role"] == "user"]


tests = []


def test(f):
    tests.append(f)
    return f


class Skipped(Exception):
    """What a test raises that cannot run here, with the reason."""


def run_all(only, done=None):
    """Each @test, or those that are named, with a home of its own; prints failures, with TIMES set each one's seconds, and the last line. The exit status."""
    failed, skipped, chosen = 0, 0, [t for t in tests if not only or t.__name__ in only]
    for t in chosen:
        begun = time.time()
        with tempfile.TemporaryDirectory() as home:
            try:
                t(home)
            except Skipped as why:
                skipped += 1
                print(f"skipped {t.__name__}: {why}")
            except Exception:
                failed += 1
                print(f"FAIL {t.__name__}: {traceback.format_exc(limit=3)}")
        if os.environ.get("TIMES"):
            print(f"{time.time() - begun:.1f} s {t.__name__}")
    if done:
        done()
    print(f"{len(chosen) - failed - skipped} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
    return 1 if failed else 0
