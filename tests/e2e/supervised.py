#!/usr/bin/env python3
"""A server under a supervisor such as systemd, whose socket is this test's: supervised.py PROGRAM MODEL

READY=1 once /ready is 200 and not before, what runs, signs of life, STOPPING=1 before the last reply has ended; a supervisor
that does not read delays nothing. Standard library only; closes with `N passed, N failed`."""
import os, re, signal, socket, sys, tempfile, time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from counted import check, closing
from client import Server

PROGRAM, MODEL = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # a runner under nohup ignores it
# Without drafts it takes seconds: with them it can end between two signs of life.
LONG = {"messages": [{"role": "user", "content": "Hello"}], "temperature": 0, "ignore_eos": True, "stream": True}


class Supervisor:
    def __init__(self, name):
        self.name, self.socket = name, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind("\0" + name[1:] if name[0] == "@" else name)
        self.got = []

    def read(self):
        """What came meanwhile is added to got."""
        self.socket.setblocking(False)
        try:
            while True:
                self.got.append((time.time(), self.socket.recv(4096).decode()))
        except BlockingIOError:
            return self.got

    def wait(self, pattern, seconds=60):
        """The time of the first message with it; None if none comes."""
        deadline = time.time() + seconds
        while time.time() < deadline:
            for when, text in self.read():
                if re.search(pattern, text, re.M):
                    return when
            time.sleep(0.02)
        return None


def told(name, computing):
    """Signs of life are counted while it computes a reply, or before it does."""
    su = Supervisor(name)

    def lives():
        del su.got[:]
        time.sleep(2)
        alive = [when for when, text in su.read() if text == "WATCHDOG=1\n"]
        check(f"{name}: signs of life", len(alive) >= 3 and max(b - a for a, b in zip(alive, alive[1:])) < 0.9, alive)

    with Server(PROGRAM, "--model", MODEL, "--model-name", "one\nREADY=1", "--ctx", "8192", "--draft", "off", wait=False,
                env={"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "900000"}) as s:
        s.listens()
        ready_at, early = None, []
        while not ready_at and s.process.poll() is None:
            told = [t for _, t in su.read() if re.search("^READY=1$", t, re.M)]
            if s.call("GET", "/ready")[0] == 200:
                ready_at = time.time()
            else:
                early += told
            time.sleep(0.01)
        check(f"{name}: no READY=1 before /ready is 200", not early, early)
        when = su.wait("^READY=1$")
        check(f"{name}: READY=1", when is not None and when < ready_at + 2, su.got)
        first = su.got[0][1] if su.got else ""
        check(f"{name}: the model is loaded first", first == "STATUS=loads the model\n", su.got)
        ready = [t for _, t in su.got if "READY=1\n" in t]
        check(f"{name}: once, with what serves", len(ready) == 1 and re.fullmatch(r"READY=1\nSTATUS=one\?READY=1 on port \d+: ok, \d running, \d waiting\n", ready[0]) and str(s.port) in ready[0], ready)
        if not computing:
            lives()
        stream = s.stream({**LONG, "max_tokens": 8000 if computing else 2000})
        frames = iter(stream)
        next(frames)
        check(f"{name}: what runs", su.wait(r"^STATUS=.*: ok, 1 running, 0 waiting$"), su.got)
        if computing:
            lives()
        s.terminate()
        stopping = su.wait("^STOPPING=1$", 5)
        for _ in frames:
            pass
        ended = time.time()
        check(f"{name}: STOPPING=1 before the last reply has ended", stopping and stopping < ended and stream.done, (stopping, ended, su.got))
        s.wait(30)
        check(f"{name}: once", sum("STOPPING=1" in t for _, t in su.read()) == 1, su.got)


def silent():
    """The queue holds a few messages; the server answers, and READY=1 comes when there is room again."""
    name = f"@evenkeel-silent-{os.getpid()}"
    su = Supervisor(name)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
        other.setblocking(False)
        filled = 0
        try:
            while filled < 100000:
                other.sendto(b"STATUS=other\n", "\0" + name[1:])
                filled += 1
        except BlockingIOError:
            pass
        with Server(PROGRAM, "--model", MODEL, env={"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "300000"}) as s:
            deadline = time.time() + 60
            while s.call("GET", "/ready")[0] != 200 and time.time() < deadline:
                time.sleep(0.05)
            start = time.time()
            s.chat({"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4})
            check("a full queue delays nothing", time.time() - start < 10, time.time() - start)
            check("READY=1 comes once there is room", su.wait("^READY=1$"), su.got[-5:])
    # One that is gone: the server does not mind.
    su.socket.close()
    with Server(PROGRAM, "--model", MODEL, env={"NOTIFY_SOCKET": name}) as s:
        check("a supervisor that is gone", s.call("GET", "/health")[0] == 200)


def reloaded_early(dir):
    """SIGHUP while the model is loaded: the server does not end, and reads the keys again once it can."""
    name, keys = os.path.join(dir, "early"), os.path.join(dir, "keys")
    su = Supervisor(name)
    with open(keys, "w") as f:
        f.write("one\n")
    with Server(PROGRAM, "--model", MODEL, "--api-key-file", keys, wait=False, may_end=True, env={"NOTIFY_SOCKET": name}) as s:
        check("it says that it loads", su.wait("^STATUS=loads the model$"))
        with open(keys, "w") as f:
            f.write("two\n")
        s.process.send_signal(signal.SIGHUP)
        s.listens()
        check("SIGHUP while it loads is no end", s.process.poll() is None and s.says("event=keys outcome=read keys=1"), s.said())
        got = [s.call("GET", "/v1/models", headers={"authorization": f"Bearer {key}"})[0] for key in ("one", "two")]
        check("the new key counts", got == [401, 200], got)


def main():
    with tempfile.TemporaryDirectory() as dir:
        reloaded_early(dir)
        told(os.path.join(dir, "notify"), True)
        told(f"@evenkeel-supervised-{os.getpid()}", False)
    silent()
    return closing()


sys.exit(main())
