#!/usr/bin/env python3
"""Clients that take what others need: tenants.py PROGRAM MODEL

Slow bodies, idle connections, 64 replies at once; loopback only. Closes with `N passed, N failed`."""
import base64, http.client, json, os, socket, sys, tempfile, threading, time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from counted import check, closing
from client import Server
from drawn import png
import seeing_model

PROGRAM, MODEL = sys.argv[1:3]
CHAT = {"messages": [{"role": "user", "content": "hello"}], "temperature": 0, "max_tokens": 4}


def slow_bodies():
    """Four bodies fill the memory for them and then bring a byte now and then; an ordinary one is served within seconds."""
    with Server(PROGRAM, "--model", MODEL, "--max-body", "8M", "--request-memory", "64M", "--body-timeout", 60) as s:
        head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 8388600\r\n\r\n"
        slow = [s.socket() for _ in range(4)]
        for c in slow:
            c.sendall(head + b" " * 8_380_000)
        ordinary = dict(CHAT, user="x" * 100_000)
        while s.metrics()["evenkeel_body_bytes"] < 4 * 8_380_000:
            time.sleep(0.05)
        begin, got = time.time(), 0
        while got != 200 and time.time() - begin < 12:
            for c in slow:
                try:
                    c.sendall(b" ")
                except OSError:
                    pass
            got = s.call("POST", "/v1/chat/completions", ordinary)[0]
            time.sleep(0.4)
        check("an ordinary body beside slow ones", got == 200, f"{got} after {time.time() - begin:.1f} s")
        for c in slow:
            c.close()


def idle_connections():
    with Server(PROGRAM, "--model", MODEL, "--max-connections", 64) as s:
        idle = [s.socket() for _ in range(64)]
        for c in idle[::2]:
            c.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nho")
        time.sleep(0.3)
        begin = time.time()
        for path in ("/health", "/metrics", "/v1/models"):
            c = s.open()
            c.request("GET", path)
            got = c.getresponse().status
            c.close()
            check(f"{path} beside idle connections", got == 200, got)
        check("an answer beside idle connections", s.call("POST", "/v1/chat/completions", CHAT)[0] == 200)
        check("at once", time.time() - begin < 10, time.time() - begin)
        for c in idle:
            c.close()


def post(s, body, who, key=None):
    """From an address of its own: (status, reply, seconds)."""
    c = http.client.HTTPConnection("127.0.0.1", s.port, timeout=60, source_address=(who, 0))
    begin = time.time()
    c.request("POST", "/v1/chat/completions", json.dumps(body), {"x-api-key": key} if key else {})
    r = c.getresponse()
    text = r.read()
    c.close()
    return r.status, json.loads(text), time.time() - begin


def in_turn(*options, many=("127.0.0.1", None), one=("127.0.0.2", None)):
    """One client asks for 64 replies at once, and fills the queue; another's single request waits for what runs, not for all."""
    with Server(PROGRAM, "--model", MODEL, "--max-requests", 4, "--queue", 60, *options) as s:
        alone = post(s, CHAT, *one)[1]["choices"][0]["message"]
        long = dict(CHAT, n=64, max_tokens=120, ignore_eos=True, temperature=1, seed=1)
        got = []
        t = threading.Thread(target=lambda: got.append(post(s, long, *many)))
        t.start()
        while s.metrics()["evenkeel_requests_waiting"] < 40:
            time.sleep(0.01)
        status, refused, _ = post(s, CHAT, *many)
        check("the queue is full for who filled it", status == 429 or got, refused)
        status, reply, seconds = post(s, CHAT, *one)
        waiting = s.metrics()["evenkeel_requests_waiting"]
        check("another is served", status == 200, reply)
        check("before the many", waiting > 20, f"{waiting} wait, {seconds:.2f} s")
        check("with the same answer", status == 200 and reply["choices"][0]["message"] == alone, reply)
        t.join()
        check("the many get theirs", got[0][0] == 200 and len(got[0][1]["choices"]) == 64, got[0][0])


def ask(s, body, who, key=None):
    """Sends a request and does not wait for its reply."""
    c = http.client.HTTPConnection("127.0.0.1", s.port, timeout=60, source_address=(who, 0))
    c.request("POST", "/v1/chat/completions", json.dumps(body), {"x-api-key": key} if key else {})
    return c


def places(name, load, *options, model=MODEL, keys=["k%d" % i for i in range(40)], one=("127.0.0.1", "one")):
    """Others hold all places with what takes minutes: a request for two tokens is served within two seconds, as it is alone.
    Without keys an address is a client."""
    small = dict(CHAT, max_tokens=2)
    with Server(PROGRAM, "--model", model, *(("--api-key", ",".join(keys + ["one"])) if keys else ()), *options) as s:
        alone = post(s, small, *one)[1]["choices"][0]["message"]
        held = [ask(s, body, "127.0.0.1", key) for key, body in load(keys)]
        while s.metrics()["evenkeel_requests_running"] < 4:
            time.sleep(0.01)
        waits = []
        for _ in range(5):
            status, reply, seconds = post(s, small, *one)
            waits.append(seconds)
            check(f"two tokens beside {name}", status == 200 and reply["choices"][0]["message"] == alone, reply)
        check(f"their wait beside {name}", max(waits) < 2, waits)
        for c in held:
            c.close()


def seen(i, **more):
    """A request with a picture that no other has."""
    url = "data:image/png;base64," + base64.b64encode(png(480, 320, bytes((x * (i + 3) >> 4) % 256 for x in range(480 * 320 * 3)))).decode()
    return dict(CHAT, messages=[{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": "hello"}]}], **more)


LONG = dict(CHAT, max_tokens=4000, ignore_eos=True, temperature=1, seed=1)


def words(i):
    return [{"role": "user", "content": f"{i} " + " ".join(f"w{(j * 7919 + i * 31) % 997}" for j in range(1500))}]


places("64 replies of a key", lambda keys: [(keys[0], dict(LONG, n=64))])
places("many long replies of a key", lambda keys: [(keys[0], dict(LONG, seed=i)) for i in range(16)])
places("long prompts of a key", lambda keys: [(keys[0], dict(CHAT, messages=words(i))) for i in range(30)])
places("a long reply of each of 40 keys", lambda keys: [(k, LONG) for k in keys])
places("long replies of another address", lambda keys: [(None, dict(LONG, seed=i)) for i in range(16)], keys=[], one=("127.0.0.2", None))
with tempfile.TemporaryDirectory() as eyes:
    seeing_model.main(eyes)
    long = {"max_tokens": 3000, "ignore_eos": True, "temperature": 1}
    places("pictures of a key", lambda keys: [(keys[0], seen(i, seed=i, **long)) for i in range(24)], model=eyes)
slow_bodies()
idle_connections()
in_turn()
in_turn("--api-key", "a,b", many=("127.0.0.1", "a"), one=("127.0.0.1", "b"))
sys.exit(closing())
