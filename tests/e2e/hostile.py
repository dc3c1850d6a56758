#!/usr/bin/env python3
"""Clients that mean harm, each with the effect it must not have on others: hostile.py PROGRAM MODEL [NAME...]

Every attack is bounded in requests, bytes and seconds, goes to a server of its own on 127.0.0.1 and stops by itself.
What is measured is CPU time of the server's event loop (its longest turn), memory, and how long others wait. Prints one
line per attack and closes with `N passed, N failed`."""
import json, re, socket, struct, sys, threading, time, traceback

from client import Server

PROGRAM, MODEL, ONLY = sys.argv[1], sys.argv[2], sys.argv[3:]
MAX_TURN = 20e-3   # seconds of CPU: the bound for all attacks together
MAX_WAIT = 3       # seconds that somebody else's GET /health may take on a busy machine


def resident(server):
    return int(re.search(r"VmRSS:\s+(\d+)", open(f"/proc/{server.process.pid}/status").read())[1]) / 1024


def head(method, path, n=None, close=False):
    length = "" if n is None else f"content-length: {n}\r\n"
    return f"{method} {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n{length}{'connection: close' + chr(13) + chr(10) if close else ''}\r\n".encode()


def post(path, body, close=False):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return head("POST", path, len(data), close) + data


def is_whole(data):
    top, found, rest = data.partition(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", top)
    return found and (len(rest) >= int(length[1]) if length else data.endswith(b"0\r\n\r\n"))


def ask(server, message, seconds=60):
    """The reply to message, which asks for the connection's end: (status, head, body)."""
    with server.socket(seconds) as c:
        c.sendall(message)
        parts = []
        while part := c.recv(1 << 20):
            parts.append(part)
    data = b"".join(parts)
    top, _, body = data.partition(b"\r\n\r\n")
    return int(top.split()[1]), top, body


class Others:
    """Somebody else, who asks for /health all the time: the longest wait."""

    def __init__(self, server):
        self.server, self.wait, self.n, self.ends, self.failed = server, 0, 0, False, None
        self.thread = threading.Thread(target=self.run)

    def run(self):
        try:
            while not self.ends:
                begin = time.time()
                status, _, _ = ask(self.server, head("GET", "/health", close=True))
                assert status == 200, status
                self.wait, self.n = max(self.wait, time.time() - begin), self.n + 1
                time.sleep(0.01)
        except Exception as e:
            self.failed = e

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ends = True
        self.thread.join()

    def check(self):
        assert not self.failed, repr(self.failed)
        assert self.n > 0 and self.wait < MAX_WAIT, f"/health took {self.wait:.1f} s"


def check_turn(server, max_turn=MAX_TURN):
    turn = server.metrics()["evenkeel_event_turn_seconds_max"]
    print(f"  longest turn {turn * 1e3:.1f} ms")
    assert turn <= max_turn, f"a turn of the event loop took {turn * 1e3:.1f} ms of CPU"


def never_reads(server, message):
    """A connection with a small window whose replies nobody reads."""
    c = socket.socket()
    c.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    c.settimeout(30)
    c.connect(("127.0.0.1", server.port))
    c.sendall(message)
    return c


def leave(*connections):
    for c in connections:
        c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        c.close()


def reads_all(c, seconds=30):
    c.settimeout(seconds)
    return b"".join(iter(lambda: c.recv(1 << 20), b""))


# --- the attacks ---

def pipelined_heads(s):
    """Packets of many requests that need no key."""
    many = head("HEAD", "/metrics")
    flood = many * (65536 // len(many))
    with Others(s) as others:
        attackers = []
        for _ in range(40):
            c = s.socket(30)
            c.sendall(flood)
            attackers.append(c)
        time.sleep(4)
        leave(*attackers)
    others.check()
    check_turn(s)


def one_per_turn(s):
    """All of one packet's requests are answered, in order, and so is what is cut in the middle."""
    paths = ["/health", "/v1/models", "/nothing"] * 20
    message = b"".join(head("GET", p, close=i + 1 == len(paths)) for i, p in enumerate(paths))
    for cut in (len(message), 100, 777):
        with s.socket() as c:
            c.sendall(message[:cut])
            time.sleep(0.05)
            c.sendall(message[cut:])
            data = reads_all(c)
        statuses = [int(x) for x in re.findall(rb"HTTP/1\.1 (\d+) ", data)]
        assert statuses == [200, 200, 404] * 20, statuses


def uploads(s):
    """Many large bodies at once."""
    part = b"x" * (256 << 10)
    with Others(s) as others:
        attackers = []
        for _ in range(48):
            c = s.socket(30)
            c.sendall(head("POST", "/v1/chat/completions", 3 << 20))
            attackers.append(c)
        for _ in range(11):
            for c in attackers:
                try:
                    c.sendall(part)
                except OSError:
                    pass  # refused, which is fair
        leave(*attackers)
    others.check()
    check_turn(s)


def store(s, pad):
    """The id of a stored response, whose request had pad bytes of members that nobody knows."""
    body = {"input": [{"role": "user", "content": "hi", "pad": "x" * pad}], "max_output_tokens": 1, "temperature": 0}
    status, _, reply = ask(s, post("/v1/responses", body, close=True))
    assert status == 200, reply[:300]
    return json.loads(reply)["id"]


def store_text(s, n):
    """The same with n bytes of text, which are kept."""
    items = [{"role": "user", "content": "hi"}, {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "x"}],
                                                 "encrypted_content": "x" * n}]
    status, _, reply = ask(s, post("/v1/responses", {"input": items, "max_output_tokens": 1, "temperature": 0}, close=True))
    assert status == 200, reply[:300]
    return json.loads(reply)["id"]


def heads_of_stored(s):
    """A body is not made for HEAD."""
    path = f"/v1/responses/{store_text(s, 20 << 20)}/input_items"
    flood = head("HEAD", path) * 30 + head("HEAD", path, close=True)
    with Others(s) as others:
        attackers = [s.socket(30) for _ in range(2)]
        for c in attackers:
            c.sendall(flood)
        statuses = [re.findall(rb"HTTP/1\.1 (\d+) ", reads_all(c)) for c in attackers]
        leave(*attackers)
    others.check()
    assert statuses == [[b"200"] * 31] * 2, statuses
    check_turn(s)


def unread_stored(s):
    """What is stored is small, and is sent from where it lies."""
    small, large = store(s, 20 << 20), store_text(s, 20 << 20)
    status, _, items = ask(s, head("GET", f"/v1/responses/{small}/input_items", close=True))
    assert status == 200 and len(items) < 1000, f"{len(items)} bytes of items are kept"
    status, _, items = ask(s, head("GET", f"/v1/responses/{large}/input_items", close=True))
    assert status == 200 and json.loads(items)["data"][1]["encrypted_content"] == "x" * (20 << 20)
    before = resident(s)
    attackers = [never_reads(s, head("GET", f"/v1/responses/{large}/input_items")) for _ in range(50)]
    with Others(s) as others:
        time.sleep(1)
    grown = resident(s) - before
    leave(*attackers)
    others.check()
    check_turn(s)
    assert grown < 100, f"50 readers of 20 MB took {grown:.0f} MiB"


def unread_tokens(s):
    """Replies that nobody reads are counted; what does not fit gets 503."""
    body = json.dumps({"content": "a b c d " * (300 << 10), "with_pieces": True, "return_token_strs": True}).encode()
    before, refused, attackers = resident(s), 0, []
    with Others(s) as others:
        for _ in range(12):
            c = never_reads(s, post("/v1/tokenize", body))
            refused += b" 503 " in c.recv(16)
            attackers.append(c)
        grown = resident(s) - before
        held = s.metrics()["evenkeel_request_memory_bytes"] / (1 << 20)
        leave(*attackers)
    others.check()
    check_turn(s)
    print(f"  {refused} of {len(attackers)} refused, {grown:.0f} MiB more, {held:.0f} MiB counted")
    assert refused > 0 and grown < 500, f"{refused} refused, {grown:.0f} MiB more"
    time.sleep(1)
    assert s.metrics()["evenkeel_request_memory_bytes"] == 0, s.metrics()["evenkeel_request_memory_bytes"]


ATTACKS = {
    "pipelined_heads": (pipelined_heads, []),
    "one_per_turn": (one_per_turn, []),
    "uploads": (uploads, []),
    "heads_of_stored": (heads_of_stored, []),
    "unread_stored": (unread_stored, []),
    "unread_tokens": (unread_tokens, ["--request-memory", "300M", "--stream-buffer", "64K"]),
}


def main():
    bad = 0
    chosen = {n: a for n, a in ATTACKS.items() if not ONLY or n in ONLY}
    for name, (attack, args) in chosen.items():
        begin = time.time()
        try:
            with Server(PROGRAM, "--model", MODEL, *args) as s:
                attack(s)
            print(f"ok   {name} ({time.time() - begin:.1f} s)", flush=True)
        except Exception as e:
            bad += 1
            traceback.print_exc()
            print(f"FAIL {name}: {e}", flush=True)
    print(f"{len(chosen) - bad} passed, {bad} failed")
    return bad > 0


if __name__ == "__main__":
    sys.exit(main())
