#!/usr/bin/env python3
"""--kv-events and --kv-replay: a subscriber that knows the protocol alone rebuilds what the cache holds, through random requests, evictions,
gaps, replays and restarts, and agrees with what the index says. kv_events.py PROGRAM MODEL [REQUESTS]

Closes with `N passed, N failed`."""
import base64, json, os, random, signal, socket, subprocess, sys, threading, time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from client import Server, free_port
from counted import check, closing
from drawn import png
from kv_subscriber import Subscriber
import zmq

PROGRAM, MODEL = sys.argv[1:3]
REQUESTS = int(sys.argv[3]) if len(sys.argv) > 3 else 1500
SMALL = ("--model", MODEL, "--kv-memory", "24M", "--ctx", "1024", "--max-requests", "6", "--draft", "off")
SALTS = [None, None, None, "red", "blue"]


def debug(s):
    return s.call("GET", "/debug")[2]


def settled(s, subscriber):
    """The numbers of a server that does nothing, once the subscriber has all that was sent."""
    # A reply comes before the numbers of its last step. The engine's next request, which takes no page, comes behind them.
    s.call("POST", "/v1/completions", {"prompt": [2, 9, 9], "max_tokens": 1, "cache_hit_threshold": 1})
    deadline = time.time() + 60
    while True:
        assert not subscriber.error, subscriber.error
        d = debug(s)
        e = d["kv_events"]
        if d["running"] == d["waiting"] == 0 and e["pages"] == d["held"]["pages"] and d["held"]["late"] == 0:
            if subscriber.synced and (subscriber.last if subscriber.last is not None else -1) == e["sequence"] - 1:
                if debug(s) == d:
                    return d
        assert time.time() < deadline, (d, subscriber.last)
        time.sleep(0.02)


def agrees(name, s, subscriber):
    d = settled(s, subscriber)
    got = len(subscriber.pod.blocks), subscriber.pod.digest()
    check(f"{name}: what is held", got == (d["held"]["pages"], d["held"]["digest"]), (got, d["held"]))
    return d


class Client(threading.Thread):
    """Prompts of tokens that share beginnings, over one connection."""

    def __init__(self, s, seed, n):
        super().__init__()
        self.s, self.n, self.r, self.bad = s, n, random.Random(seed), []
        self.start()

    def prompt(self):
        r, out = self.r, []
        family = r.randrange(6)
        for part in range(r.randrange(1, 5)):
            branch = random.Random(f"{family}.{part}.{r.randrange(3) if part else 0}")
            family = family * 7 + branch.randrange(1000)
            out += [branch.randrange(300, 2000) for _ in range(branch.randrange(20, 200))]
        return out

    def run(self):
        c = self.s.open()
        for _ in range(self.n):
            body = {"prompt": self.prompt(), "max_tokens": self.r.choice([1, 1, 1, 2, 70]) if self.r.random() < 0.1 else 1, "temperature": 0}
            salt = self.r.choice(SALTS)
            if salt:
                body["cache_salt"] = salt
            c.request("POST", "/v1/completions", json.dumps(body), {"content-type": "application/json"})
            r = c.getresponse()
            text = r.read()
            if r.status != 200:
                self.bad.append((r.status, text[:200]))
        c.close()


def load(s, n, seed):
    clients = [Client(s, f"{seed}.{i}", n // 6) for i in range(6)]
    for c in clients:
        c.join()
    bad = [b for c in clients for b in c.bad]
    check(f"{n} requests", not bad, bad[:3])


def held_is_usable(s, subscriber):
    """A page that was told of saves a prompt its tokens, under its salt and under no other."""
    got = []
    for n in range(6):
        settled(s, subscriber)  # what was asked last may have taken another's place
        leaves = sorted(h for h in subscriber.pod.leaves() if len(subscriber.pod.path(h)[0]) < 900)
        tokens, extra = subscriber.pod.path(random.Random(n).choice(leaves))
        body = {"prompt": tokens + [5, 6], "max_tokens": 1, "temperature": 0}
        if extra:
            check("the salt's own name", extra in (["red"], ["blue"]), extra)
            body["cache_salt"] = extra[0]
        reply = s.call("POST", "/v1/completions", body)[2]
        got.append((reply["usage"]["prompt_tokens_details"]["cached_tokens"], len(tokens)))
    check("what is told is held", all(cached >= n for cached, n in got), got)
    other = s.call("POST", "/v1/completions", dict(body, cache_salt="nobody's"))[2]["usage"]["prompt_tokens_details"]["cached_tokens"]
    check("nothing under another salt", other == 0, other)


def one_server():
    options = ("--kv-events", "@tcp://127.0.0.1:0", "--kv-replay", "tcp://127.0.0.1:0")
    with Server(PROGRAM, *SMALL, *options) as s:
        e = debug(s)["kv_events"]
        check("the ports that were taken", all(e[k].startswith("tcp://127.0.0.1:") and int(e[k].rsplit(":", 1)[1]) > 0 for k in ("endpoint", "replay")), e)
        live = Subscriber(e["endpoint"], e["replay"])
        deaf = zmq.Context.instance().socket(zmq.SUB)  # connected, subscribed, and never read
        deaf.setsockopt(zmq.RCVHWM, 1)
        deaf.setsockopt(zmq.RCVBUF, 4096)
        deaf.setsockopt(zmq.LINGER, 0)
        deaf.setsockopt(zmq.SUBSCRIBE, b"")
        deaf.connect(e["endpoint"])
        time.sleep(0.3)
        for part in range(5):
            load(s, REQUESTS // 5, part)
            d = agrees(f"part {part}", s, live)
            if part in (1, 3):  # a gap, and then what follows it
                live.lose(3 + part)
                load(s, 60, f"gap {part}")
                agrees(f"gap {part}", s, live)
            if part == 2:
                held_is_usable(s, live)
                pictures(s, live)
                late = Subscriber(e["endpoint"], e["replay"])
                load(s, 60, "late")
                agrees("one that came late", s, late)
                check("it had to ask", late.replays >= 1, late.replays)
                late.close()
        check("gaps were seen and filled", live.gaps >= 2 and live.replays >= 3, (live.gaps, live.replays))
        check("pages went, too", live.pod.removed > 100 and d["kv_events"]["removed_pages"] > 100, (live.pod.removed, d["kv_events"]))
        e = d["kv_events"]
        print(f"measured: {REQUESTS} requests: {e['batches']} batches, {e['bytes']} bytes, {e['stored_pages']} pages stored, {e['removed_pages']} removed")
        host = s.call("GET", "/v1/models")[2]["data"][0]["id"]
        check("the topic", live.topic == f"kv@127.0.0.1:{s.port}@{host}", live.topic)
        m = s.metrics()
        check("metrics", m["evenkeel_kv_events_pages"] == d["held"]["pages"] and m["evenkeel_kv_events_replays_total"] >= 4, m)
        hostile(s, e)
        load(s, 60, "after")
        agrees("after hostile peers", s, live)
        live.close()
        deaf.close()


def picture(colour):
    """A plain one of 160 by 160 pixels."""
    return {"type": "image_url", "image_url": {"url": "data:image/png;base64," + base64.b64encode(png(160, 160, bytes(colour) * 160 * 160)).decode()}}


def pictures(s, subscriber):
    """A picture's name in events is the one that /render says; two pictures have the same tokens and not the same blocks."""
    found = []
    for colour in ((250, 20, 20), (20, 20, 250)):
        body = {"messages": [{"role": "user", "content": [picture(colour), {"type": "text", "text": "What is it? " * 8}]}], "max_tokens": 1, "temperature": 0,
                "evenkeel": {"image_tokens": 70}}
        status, _, rendered = s.call("POST", "/v1/chat/completions/render", body)
        f = rendered.get("features", {})
        check("features", status == 200 and list(f.get("mm_hashes", {})) == ["image"] and len(f["mm_hashes"]["image"]) == 1, rendered)
        name, place = f["mm_hashes"]["image"][0], f["mm_placeholders"]["image"][0]
        ids = rendered["token_ids"]
        soft = ids[place["offset"]]
        check("where it stands", ids[place["offset"]:place["offset"] + place["length"]] == [soft] * place["length"] and ids.count(soft) == place["length"], place)
        s.call("POST", "/v1/chat/completions", body)
        settled(s, subscriber)
        mine = []
        for h, (_, tokens, extra) in subscriber.pod.blocks.items():
            path = subscriber.pod.path(h)[0]
            if path == ids[:len(path)] and (name in (extra or [])):
                mine.append((len(path) // 64 - 1, extra))
        want = [i for i in range(len(ids) // 64) if 64 * i < place["offset"] + place["length"] and 64 * (i + 1) > place["offset"]]
        check("each block of it has its name", sorted(mine) == [(i, [name]) for i in want] and want, (mine, want))
        found.append((name, ids))
    check("same tokens, other names", found[0][1] == found[1][1] and found[0][0] != found[1][0], found)


def hostile(s, e):
    """Bytes that are no ZeroMQ, and messages that are no requests."""
    for k in ("endpoint", "replay"):
        host, port = e[k][6:].rsplit(":", 1)
        for data in (b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 5000, b"\xff\0\0\0\0\0\0\0\x01\x7f\x03\0NULL" + b"\0" * 48 + b"\x04\xff" * 900, b""):
            with socket.create_connection((host, int(port)), 5) as c:
                try:
                    c.sendall(data)
                except OSError:
                    pass
    before = debug(s)["kv_events"]["bad_requests"]
    d = zmq.Context.instance().socket(zmq.DEALER)
    d.setsockopt(zmq.LINGER, 1000)
    d.connect(e["replay"])
    messages = [[b""], [b"", b"1234567"], [b"", b"123456789"], [b"x", b"12345678"], [b"", b"12345678", b""], [b""] * 9, [b"", b"x" * 900]]
    for m in messages:
        d.send_multipart(m)
    d.send_multipart([b"", b"\xff" * 8])
    check("far ahead: the end alone", d.poll(5000) and d.recv_multipart() == [b"", b"", b"\xff" * 8, b""])
    check("what is no request is counted", debug(s)["kv_events"]["bad_requests"] - before == len(messages), debug(s)["kv_events"])
    d.send_multipart([b"", b"x" * 100000])  # more than a request may have: the connection ends
    d.close()
    for _ in range(12):  # more replays at a time than are answered together, by peers that leave
        p = zmq.Context.instance().socket(zmq.DEALER)
        p.setsockopt(zmq.LINGER, 0)
        p.connect(e["replay"])
        p.send_multipart([b"", bytes(8)])
        p.close()


def restarts():
    """The numbers begin again: what was held is forgotten. The router binds, the servers connect; events are arrays."""
    port = free_port()
    router = Subscriber(f"tcp://127.0.0.1:{port}", bind=True, maps=False)
    options = ("--kv-events", f"tcp://127.0.0.1:{port},arrays,name=10.1.2.3:8000")
    for n in range(3):
        s = Server(PROGRAM, *SMALL, *options)
        load(s, 90 - 30 * n, f"restart {n}")
        agrees(f"restart {n}", s, router)
        check("a name of its own", router.topic.startswith("kv@10.1.2.3:8000@"), router.topic)
        s.process.send_signal(signal.SIGKILL if n % 2 == 0 else signal.SIGTERM)
        s.wait()
        s.process.stdout.close()
    check("restarts were seen", router.resets == 2, router.resets)
    check("each began with nothing", router.pod.cleared >= 3, router.pod.cleared)
    router.close()


def refused():
    """One line, before a model is loaded."""
    cases = [(("--kv-events", "nonsense"), "--kv-events nonsense: tcp://HOST:PORT is needed"),
             (("--kv-events", "tcp://h:0"), "--kv-events tcp://h:0: the port to connect to is 1 to 65535"),
             (("--kv-replay", "tcp://*:1"), "--kv-replay repeats what --kv-events publishes"),
             (("--kv-events", "tcp://*:5557", "--cache-bytes", "0"), "--kv-events tells of pages that --cache-bytes 0 does not keep"),
             (("--kv-events", "tcp://*:5557,name=a@b"), "--kv-events ...,name=a@b: name=HOST:PORT is needed, without @"),
             (("--kv-events", "tcp://*:5557,arrays,name="), "name=HOST:PORT is needed"),
             (("--kv-events", "x" * 600), "longer than 512 bytes"),
             (("--kv-events", "tcp://*:5557,lists"), "--kv-events ...,lists: name=HOST:PORT or arrays is needed"),
             (("--kv-events", "tcp://*:5557", "--kv-form", "arrays"), "--kv-form is gone: "),
             (("--open-paths", "/metrics,/v1/messages"), "--open-paths /v1/messages: it is none of")]
    for options, says in cases:
        r = subprocess.run([PROGRAM, "serve", "--model", MODEL, "--port", "0", *options], capture_output=True, text=True, timeout=60)
        check(f"{options}", r.returncode == 2 and says in r.stderr and r.stderr.count("\n") <= 2, (r.returncode, r.stderr))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        r = subprocess.run([PROGRAM, "serve", "--model", MODEL, "--port", "0", "--kv-events", f"@tcp://127.0.0.1:{taken.getsockname()[1]}"],
                           capture_output=True, text=True, timeout=60)
        check("a port that is taken", r.returncode == 1 and "cannot bind tcp://127.0.0.1:" in r.stderr and "in use" in r.stderr, r.stderr)


if __name__ == "__main__":
    refused()
    one_server()
    restarts()
    sys.exit(closing())
