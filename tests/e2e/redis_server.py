"""A server of Redis' protocol, for the tests of shared pages. Python standard library only."""
import os, shutil, socket, subprocess, tempfile, time

from client import free_port

NAMES = ["redis-server", "valkey-server", "redis-check-rdb"]  # Debian has the server in redis-tools, under the last name


def found():
    return next((shutil.which(n) for n in NAMES if shutil.which(n)), None)


class Redis:
    """One that keeps no file, on a free port of this machine. program: its path; default: found in PATH."""

    def __init__(self, *options, tls=False, program=None):
        self.program = program or found()
        self.port, self.tls_port, self.folder = free_port(), free_port() if tls else 0, tempfile.mkdtemp()
        self.options = options
        self.start()

    def start(self, *options):
        tls = ["--tls-port", str(self.tls_port)] if self.tls_port else []
        self.process = subprocess.Popen(["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--dir", self.folder, *tls, *self.options,
                                         *options], executable=self.program, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=self.folder)
        for _ in range(400):
            try:
                socket.create_connection(("127.0.0.1", self.port)).close()
                return
            except OSError:
                time.sleep(0.025)
        raise SystemExit("redis-server does not answer")

    def stop(self):
        self.process.kill()
        self.process.wait()

    def end(self):
        self.stop()
        shutil.rmtree(self.folder)

    def url(self, auth=""):
        return f"redis://{auth}127.0.0.1:{self.port}"

    def do(self, *words):
        with socket.create_connection(("127.0.0.1", self.port), timeout=10) as s, s.makefile("rb") as f:
            words = [w if isinstance(w, bytes) else str(w).encode() for w in words]
            s.sendall(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words))
            return self.reply(f)

    def reply(self, f):
        line = f.readline().strip()
        kind, rest = line[:1], line[1:]
        if kind == b"$":
            return None if rest == b"-1" else f.read(int(rest) + 2)[:-2]
        if kind == b"*":
            return [self.reply(f) for _ in range(int(rest))]
        return int(rest) if kind == b":" else line

    def pages(self):
        return sorted(self.do("KEYS", "evenkeel:page:1:*"))


def why_not():
    """Why no pages can be shared here, or None."""
    return None if found() else "no redis-server (redis-tools) on this machine"
