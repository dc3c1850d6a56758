#!/usr/bin/env python3
"""Drafts from another server (--drafter-url): drafter_url.py PROGRAM MODEL

A right drafter: another process with the same model. Then servers that this file plays, which are slow, silent, wrong, rude or
endless. Replies, digests and ends are always those of a server without drafts. Closes with `N passed, N failed`."""
import http.server, json, os, random, socket, subprocess, sys, tempfile, threading, time

from client import Server
from counted import check, closing

PROGRAM, MODEL = sys.argv[1:3]
PROMPTS = ["List five parts of a ship, and say what each is for.", "Count from 1 to 30.", "Write a short text about a harbour in the morning."]
BASE = ["--model", MODEL, "--threads", 1]


def ask(server, prompt, **more):
    status, _, reply = server.call("POST", "/v1/completions", {"prompt": prompt, "max_tokens": 150, "temperature": 0, "ignore_eos": True,
                                                               "evenkeel": {"digest": True}, **more})
    assert status == 200, reply
    return reply["evenkeel"]["digest"], reply["choices"][0]["text"], reply["choices"][0]["finish_reason"]


SAMPLED = {"temperature": 0.9, "seed": 7}


def wanted():
    with Server(PROGRAM, *BASE, "--draft", "off") as alone:
        return [ask(alone, p) for p in PROMPTS] + [ask(alone, PROMPTS[2], **SAMPLED)]


def all_equal(name, server, want):
    begin = time.time()
    got = [ask(server, p) for p in PROMPTS] + [ask(server, PROMPTS[2], **SAMPLED)]
    check(f"{name}: the replies of a server without drafts", got == want, (got, want))
    return time.time() - begin


def metric(server, name):
    return server.metrics()[f"evenkeel_drafter_{name}_total"]


class Fake(http.server.BaseHTTPRequestHandler):
    """A server that is meant to draft. mode says how it behaves."""
    mode, protocol_version = "", "HTTP/1.1"
    tokens = {"random": lambda: [random.randrange(300, 2000) for _ in range(16)], "foreign": lambda: [5, 10 ** 9, -3, 2 ** 40],
              "negative": lambda: [-1] * 4, "many": lambda: [7] * 100000, "none": lambda: [], "fraction": lambda: [1.5], "stop": lambda: [106, 1, 106]}

    def log_message(self, *args):
        pass

    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        try:
            getattr(self, self.mode, self.say_tokens)()
        except (BrokenPipeError, ConnectionResetError):
            pass

    def say(self, body, status=200, **headers):
        self.send_response(status)
        for k, v in {"content-length": str(len(body)), **headers}.items():
            self.send_header(k, v)
        self.end_headers()
        self.wfile.write(body)

    def say_tokens(self):
        self.say(json.dumps({"object": "draft", "tokens": self.tokens[self.mode]()}).encode())

    def garbage(self):
        self.say(bytes(random.randrange(256) for _ in range(300)))

    def nested(self):
        self.say(b"[" * 3000)

    def stall(self):
        time.sleep(30)

    def dawdle(self):
        time.sleep(0.3)
        self.say(b'{"object":"draft","tokens":[9,9,9]}')

    def disconnect(self):
        self.connection.shutdown(socket.SHUT_RDWR)

    def redirect(self):
        self.say(b"", 302, location="/elsewhere")

    def error(self):
        self.say(b'{"error":{"message":"no \\u0007\n"}}', 500)

    def lost(self):
        self.say(b"{}", 409)

    def endless(self):
        self.send_response(200)
        self.end_headers()
        while True:
            self.wfile.write(b" " * 65536)


class Players(http.server.ThreadingHTTPServer):
    daemon_threads, block_on_close = True, False

    def handle_error(self, *args):
        pass


def right(want):
    with Server(PROGRAM, *BASE) as other, Server(PROGRAM, *BASE, "--drafter-url", f"http://127.0.0.1:{other.port}") as s:
        all_equal("right", s, want)
        asked, answered, accepted = (metric(s, n) for n in ("questions", "answers", "accepted_tokens"))
        check("right: it was asked, and has no line of log per question", asked > 0 and "event=request" not in other.said(), (asked, other.said()[-500:]))
        threads = [threading.Thread(target=all_equal, args=(f"together {i}", s, want)) for i in range(3)]
        [t.start() for t in threads], [t.join() for t in threads]
        print(f"right: {asked:.0f} questions, {answered:.0f} answers, {accepted:.0f} tokens accepted")


def pays(want):
    """Where a step takes longer than an answer, steps wait for answers, and there are fewer of them. A loaded machine may delay
    the first answers so long that none is awaited, so one of three servers has to wait (waits by a made-up clock:
    tests/engine/test_proposals.c)."""
    slow, drafted = [*BASE, "--isa", "scalar"], []
    with Server(PROGRAM, *slow, "--draft", "off") as s:
        check("slow steps, alone: the same reply", ask(s, PROMPTS[0], max_tokens=48) == want)
        alone = s.metrics()["evenkeel_steps_total"]
    with Server(PROGRAM, *BASE) as other:
        for _ in range(3):
            with Server(PROGRAM, *slow, "--drafter-url", f"http://127.0.0.1:{other.port}") as s:
                check("slow steps, with drafts: the same reply", ask(s, PROMPTS[0], max_tokens=48) == want)
                steps = s.metrics()["evenkeel_steps_total"]
                waited, asked, answered, accepted = (metric(s, n) for n in ("waited_microseconds", "questions", "answers", "accepted_tokens"))
            drafted.append(answered)
            check("slow steps: at most two thirds of them", steps * 3 < alone * 2, (steps, alone))
            check("slow steps: it was asked, it answered, and tokens of it stood", asked >= answered > 2 and accepted > 10, (asked, answered, accepted))
            if waited > 0:
                break
        check("slow steps: the other counts its drafts", other.metrics()["evenkeel_drafts_total"] >= sum(drafted), drafted)
    check("slow steps: some waited", waited > 0, waited)
    print(f"slow steps: {alone:.0f} without drafts, {steps:.0f} with them, which waited {waited / 1e6:.2f} s; {accepted:.0f} tokens accepted")


def goes_and_comes(want):
    other = Server(PROGRAM, *BASE)
    with Server(PROGRAM, *BASE, "--drafter-url", f"http://127.0.0.1:{other.port}/") as s:
        all_equal("before it is killed", s, want)
        other.stop(9)
        all_equal("killed", s, want)
        check("killed: one line says so", s.says("no drafts from it for"), s.said())


def keys(want, folder):
    path = os.path.join(folder, "keys")
    with open(path, "w") as f:
        f.write("s3cret-of-mine\n")
    with Server(PROGRAM, *BASE, "--api-key-file", path) as other:
        with Server(PROGRAM, *BASE, env={"EVENKEEL_DRAFTER_URL": f"http://s3cret-of-mine@127.0.0.1:{other.port}"}) as s:
            all_equal("with a key", s, want)
            check("with a key: it answers", metric(s, "answers") > 0)
        with Server(PROGRAM, *BASE, "--drafter-url", f"http://s3cret-wrong@127.0.0.1:{other.port}") as s:
            all_equal("with a wrong key", s, want)
            check("with a wrong key: the log says so, without it", s.says("status 401") and "s3cret" not in s.said(), s.said())


def hostile(want):
    players = Players(("127.0.0.1", 0), Fake)
    threading.Thread(target=players.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{players.server_address[1]}"
    quiet = ("random", "none", "stop", "dawdle")
    for mode in (*quiet, "foreign", "negative", "many", "fraction", "garbage", "nested", "stall", "disconnect", "redirect", "error", "lost", "endless"):
        Fake.mode = mode
        with Server(PROGRAM, *BASE, "--drafter-url", url) as s:
            took = all_equal(mode, s, want)
            accepted = metric(s, "accepted_tokens")
            check(f"{mode}: it was asked", metric(s, "questions") > 0)
            if mode not in quiet + ("stall",):
                check(f"{mode}: the log says so, in one line of printable bytes", s.says("drafter http://127.0.0.1") and all(32 <= ord(c) or c == "\n" for c in s.said()), s.said())
                check(f"{mode}: it is left alone", metric(s, "questions") < 12, metric(s, "questions"))
        print(f"{mode}: {took:.2f} s, {accepted:.0f} accepted")


def endpoint():
    """What the drafting server refuses, and that a session is its owner's and short."""
    with Server(PROGRAM, *BASE, "--ctx", 512) as s:
        def post(body, data=None):
            return s.call("POST", "/v1/drafts", data or body)[::2]
        status, reply = post({"vocabulary": "0" * 16, "session": "ab", "from": 0, "max": 4, "tokens": [2, 300]})
        check("another vocabulary: 400, and this one's name", status == 400 and "vocabulary" in reply["error"]["message"], reply)
        name = reply["error"]["message"].split(" is ")[1].split(",")[0]
        q = {"vocabulary": name, "session": "ab", "from": 0, "max": 4, "tokens": [2, 300, 301]}
        status, first = post(q)
        check("a draft", status == 200 and first["object"] == "draft" and 1 <= len(first["tokens"]) <= 4, first)
        check("the same for the same", post({**q, "session": "cd"})[1] == first)
        check("only what is new", post({**q, "from": 3, "tokens": first["tokens"][:1]})[0] == 200)
        check("a session that is not there: 409", post({**q, "session": "ef", "from": 3})[0] == 409)
        check("more tokens than it has: 409", post({**q, "from": 400})[0] == 409)
        check("too long: 413", post({**q, "tokens": [2] * 600})[0] == 413 and post({**q, "from": 511})[0] == 413)
        for wrong in ({"max": 65}, {"max": 0}, {"tokens": []}, {"tokens": [4096]}, {"tokens": [-1]}, {"tokens": ["a"]}, {"session": ""}, {"session": "x y"}, {"more": 1},
                      {"tokens": [1.0]}, {"from": -1}):
            status, reply = post({**q, **wrong})
            check(f"{wrong}: refused", status == 400 and reply["error"]["message"], (status, reply))
        for data in (b"", b"[]", b"{", b"\xff" * 50, b"{}", b'{"max":1,"max":1}'):
            check(f"{data[:9]}: refused", s.call("POST", "/v1/drafts", data)[0] == 400)
        check("only POST", s.call("GET", "/v1/drafts")[0] == 405)


def refused():
    for url in ("redis://h", "http://", "http://@h", "http:///x", "http://a@b@c", "http://h/?q", 'http://h"'):
        r = subprocess.run([PROGRAM, "serve", *map(str, BASE), "--drafter-url", url], capture_output=True, text=True, timeout=30)
        check(f"{url}: one line", r.returncode != 0 and "--drafter-url" in r.stderr and r.stderr.count("\n") <= 2, r.stderr)


def main():
    want = wanted()
    right(want)
    with Server(PROGRAM, *BASE, "--draft", "off") as alone:
        short = ask(alone, PROMPTS[0], max_tokens=48)
    pays(short)
    goes_and_comes(want)
    with tempfile.TemporaryDirectory() as folder:
        keys(want, folder)
    hostile(want)
    endpoint()
    refused()
    sys.exit(closing())


if __name__ == "__main__":
    main()
