#!/usr/bin/env python3
"""Many connections at once: load.py PROGRAM MODEL [SECONDS [CONNECTIONS]]

Every connection sends requests one after another and checks each reply's digest against the one that the same request
had alone. Some leave in the middle of a reply, some send half a body. At the end nothing may run or be held, no request
may have taken long, and the server's memory may not have grown. Closes with `N passed, N failed`."""
import json, random, re, selectors, socket, sys, time

from client import Server

PROGRAM, MODEL = sys.argv[1:3]
SECONDS = float(sys.argv[3]) if len(sys.argv) > 3 else 6
CONNECTIONS = int(sys.argv[4]) if len(sys.argv) > 4 else 200
STUCK = 60  # seconds
DIGEST = re.compile(rb'"digest":"([0-9a-f]{16})"')


def bodies():
    for i in range(12):
        yield {"messages": [{"role": "user", "content": f"Say something about {i * 31} and {'many ' * (i * 7)}words."}],
               "max_tokens": 2 + i % 4, "temperature": i % 2, "seed": i, "ignore_eos": True, "stream": i % 3 == 0,
               "evenkeel": {"digest": True}}


def request(body, length=None):
    data = json.dumps(body).encode()
    return b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % (length or len(data)) + data


def is_whole(data):
    """Is this a whole reply?"""
    head, found, rest = data.partition(b"\r\n\r\n")
    if not found:
        return False
    if b"transfer-encoding: chunked" in head:
        return rest.endswith(b"0\r\n\r\n")
    return len(rest) >= int(re.search(rb"content-length: (\d+)", head)[1])


def ask_alone(port, message):
    with socket.create_connection(("127.0.0.1", port), 60) as c:
        c.sendall(message)
        data = b""
        while not is_whole(data):
            data += c.recv(65536)
    return DIGEST.search(data)[1]


def resident(pid):
    return int(re.search(r"VmRSS:\s+(\d+)", open(f"/proc/{pid}/status").read())[1]) / 1024


class Client:
    def __init__(self, load):
        self.load, self.socket = load, None
        self.connect()

    def connect(self):
        if self.socket:
            self.load.selector.unregister(self.socket)
            self.socket.close()
        self.socket = socket.create_connection(("127.0.0.1", self.load.port), 60)
        self.socket.setblocking(False)
        self.load.selector.register(self.socket, selectors.EVENT_READ, self)
        self.send()

    def send(self):
        load = self.load
        self.data, self.begin = b"", time.time()
        self.kind = load.dice.choices(("whole", "leaves", "half"), (92, 6, 2))[0]
        self.which = load.dice.randrange(len(load.messages))
        message = request(load.bodies[self.which], 10**6) if self.kind == "half" else load.messages[self.which]
        self.socket.send(message)

    def readable(self):
        load = self.load
        try:
            part = self.socket.recv(65536)
        except ConnectionError:
            part = b""
        self.data += part
        if self.kind == "leaves":  # with the first bytes of a reply
            load.left += 1
            self.connect()
        elif self.kind == "half" or not part:
            load.wrong.append((self.kind, self.data[:200]))
            self.connect()
        elif is_whole(self.data):
            found = DIGEST.search(self.data)
            if not self.data.startswith(b"HTTP/1.1 200 ") or not found or found[1] != load.digests[self.which]:
                load.wrong.append((self.which, load.digests[self.which], self.data[:400]))
            load.good += 1
            load.slowest = max(load.slowest, time.time() - self.begin)
            self.send()


class Load:
    def __init__(self, server):
        self.port, self.dice, self.selector = server.port, random.Random(1), selectors.DefaultSelector()
        self.bodies = list(bodies())
        self.messages = [request(b) for b in self.bodies]
        self.digests = [ask_alone(self.port, m) for m in self.messages]
        self.wrong, self.good, self.left, self.slowest = [], 0, 0, 0
        self.clients = [Client(self) for _ in range(CONNECTIONS)]

    def run(self, seconds, pid):
        end, memory, sample = time.time() + seconds, [], 0
        while time.time() < end and len(self.wrong) < 5:
            for key, _ in self.selector.select(0.2):
                key.data.readable()
            if time.time() > sample:
                sample = time.time() + 0.2
                memory.append(resident(pid))
                for c in self.clients:
                    if c.kind == "half" and time.time() - c.begin > 0.5:
                        c.connect()
                    elif time.time() - c.begin > STUCK:
                        self.wrong.append(("stuck", c.which, c.data[:200]))
                        c.connect()
        return memory


def main():
    checks = {}
    with Server(PROGRAM, "--model", MODEL, "--ctx", 512, "--max-requests", 16, "--body-timeout", 30) as s:
        load = Load(s)
        memory = load.run(SECONDS, s.process.pid)
        for c in load.clients:
            c.socket.close()
        s.wait_idle(20)
        time.sleep(1)
        metrics = s.metrics()
        early, late = max(memory[: max(1, len(memory) // 2)]), max(memory[len(memory) // 2:])
        print(f"measured: {load.good} replies in {SECONDS:.0f} s on {CONNECTIONS} connections, {load.left} clients left, slowest "
              f"{load.slowest:.1f} s, memory {early:.0f} then {late:.0f} MiB, longest turn {metrics['evenkeel_event_turn_seconds_max'] * 1e3:.1f} ms")
        checks["no wrong reply, none stuck"] = not load.wrong or load.wrong[:3]
        checks["enough replies"] = load.good > CONNECTIONS or load.good
        checks["memory is flat"] = late < early * 1.05 + 8 or memory
        checks["nothing is held"] = [metrics[n] for n in ("evenkeel_request_memory_bytes", "evenkeel_body_bytes", "evenkeel_requests_running",
                                                          "evenkeel_requests_waiting", "evenkeel_requests_preparing")] == [0] * 5 or metrics
    for name, good in checks.items():
        print(f"ok   {name}" if good is True else f"FAIL {name}: {good}")
    bad = sum(good is not True for good in checks.values())
    print(f"{len(checks) - bad} passed, {bad} failed")
    return bad > 0


sys.exit(main())
