#!/usr/bin/env python3
"""serve's start: start.py PROGRAM MODEL

What options alone say is told before the port is tried, a taken port before the model is looked at; files that it makes are its owner's and follow no links, and key files
that others can read are warned of. Standard library only; closes with `N passed, N failed`."""
import os, socket, sqlite3, stat, subprocess, sys, tempfile, time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from counted import check, closing
from client import Server

PROGRAM, MODEL = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])


def refused(name, says, *args, lines=1, status=1):
    start = time.time()
    try:
        r = subprocess.run([PROGRAM, "serve", *map(str, args)], capture_output=True, text=True, timeout=30)
    except subprocess.TimeoutExpired:
        return check(name, False, "it serves")
    check(name, r.returncode == status and r.stderr.count("\n") <= lines and says in (r.stderr.splitlines() or [""])[-1] and not r.stdout,
          f"exit {r.returncode} after {time.time() - start:.1f} s: {r.stderr}{r.stdout}")


def mode(path):
    return stat.S_IMODE(os.lstat(path).st_mode)


def ports(dir):
    """No model could be loaded from the folder: what is said of the port was said before."""
    empty = os.path.join(dir, "empty")
    os.mkdir(empty)
    for listens in (True, False):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            if listens:
                s.listen(1)
            port = s.getsockname()[1]
            for model in (empty, os.path.join(dir, "no-such-model"), MODEL):
                refused(f"taken port, {model}", f"cannot listen on 127.0.0.1 port {port}: Address already in use", "--model", model, "--port", port)
    refused("no host", "cannot listen on", "--model", empty, "--host", "no.such.host.invalid", "--port", "0")
    refused("a free port and no model", "empty", "--model", empty, "--port", "0")
    with Server(PROGRAM, "--model", MODEL) as one:
        refused("a server's port", "Address already in use; `evenkeel ps` lists your servers", "--model", empty, "--port", one.port)
        port = one.port
    with Server(PROGRAM, "--model", MODEL, "--port", port) as again:
        check("the port is free after a server", again.port == port)


def options(dir):
    """The port is taken, which is what is told once it is tried."""
    empty = os.path.join(dir, "keys")
    open(empty, "w").close()
    rows = ((2, "--role prefill needs --cache-shared", "--role", "prefill"), (2, "--role decode needs --cache-shared", "--role", "decode"),
            (2, "--open-paths /v1/messages: it is none of", "--open-paths", "/v1/messages"), (2, "--kv-replay repeats", "--kv-replay", "tcp://*:1"),
            (2, "--cache-shared: ", "--cache-shared", "http://h"), (2, "--cache-dir keeps what", "--cache-dir", dir, "--cache-bytes", "0"),
            (2, "device gpu; there are auto", "--device", "gpu"), (2, "kv: ", "--kv", "i3"), (2, "an empty API key", "--api-key", ","),
            (2, "no API key in it", "--api-key-file", empty), (1, "no-such-file", "--api-key-file", os.path.join(dir, "no-such-file")))
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        s.listen(1)
        for status, says, *args in rows:
            refused(f"told before the port: {args[0]}", says, "--model", os.path.join(dir, "no-such-model"), "--port", s.getsockname()[1], *args, status=status)


def port_file(dir):
    """Whoever may write into its folder cannot choose what is overwritten."""
    target = os.path.join(dir, "precious")
    open(target, "w").write("kept")
    at = os.path.join(dir, "port")
    os.symlink(target, at)
    p = subprocess.Popen([PROGRAM, "serve", "--model", MODEL, "--port", "0", "--port-file", at], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    line = p.stdout.readline()
    check("it serves", "serves" in line, line)
    check("the link is replaced, not followed", open(target).read() == "kept" and not os.path.islink(at), open(target).read())
    p.terminate()
    p.communicate(timeout=30)
    p = subprocess.Popen(["sh", "-c", f'ln -s {target} {at}.$$ && exec "$0" "$@"', PROGRAM, "serve", "--model", MODEL, "--port", "0", "--port-file", at],
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    line = p.stdout.readline()
    p.terminate()
    p.communicate(timeout=30)
    check("its temporary name is no way either", open(target).read() == "kept" and open(at).read().strip().isdigit(), line)


def key_files(dir):
    path = os.path.join(dir, "keys")
    open(path, "w").write("secret-1\n")
    for bits, says in ((0o644, "everybody on this machine can read its keys"), (0o640, "its group can read its keys"),
                       (0o660, "its group can change its keys"), (0o604, "everybody on this machine can read"), (0o600, None), (0o400, None)):
        os.chmod(path, bits)
        with Server(PROGRAM, "--model", MODEL, "--api-key-file", path) as s:
            pass
        said = open(s.log.name).read() if os.path.exists(s.log.name) else s.log.seek(0) or s.log.read()
        warned = [l for l in said.splitlines() if "chmod 600" in l]
        check(f"a key file of mode {bits:o}", (len(warned) == 1 and says in warned[0] and f"{bits:04o}" in warned[0]) if says else not warned, said)
        check("no key in the log", "secret" not in said, said)


def cache_files(dir):
    at = os.path.join(dir, "cache")
    def serve():
        with Server(PROGRAM, "--model", MODEL, "--cache-dir", at) as s:
            s.chat({"messages": [{"role": "user", "content": "hello " * 100}], "max_tokens": 1})
    old = os.umask(0)
    serve()
    os.umask(old)
    file, = (f for f in os.listdir(at) if f.endswith(".sqlite"))
    path = os.path.join(at, file)
    check("the cache is its owner's", mode(path) == 0o600 and mode(at) == 0o700, f"{mode(path):o} {mode(at):o}")
    os.chmod(path, 0o644)
    serve()
    check("an older one becomes it", mode(path) == 0o600, f"{mode(path):o}")
    os.remove(path)
    other = os.path.join(dir, "other.sqlite")
    with sqlite3.connect(other) as db:
        db.execute("CREATE TABLE notes(text TEXT)")
        db.execute("INSERT INTO notes VALUES('mine')")
    db.close()
    before = open(other, "rb").read()
    os.symlink(other, path)
    refused("a link", "is a link", "--model", MODEL, "--port", "0", "--cache-dir", at, lines=3)
    os.remove(path)
    os.rename(other, path)
    refused("another program's database", "the database of another program", "--model", MODEL, "--port", "0", "--cache-dir", at, lines=3)
    check("it is left as it is", open(path, "rb").read() == before)


def main():
    for part in (ports, options, port_file, key_files, cache_files):
        with tempfile.TemporaryDirectory() as dir:
            part(dir)
    return closing()


sys.exit(main())
