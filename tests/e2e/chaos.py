#!/usr/bin/env python3
"""Streams while replicas are killed: chaos.py PROGRAM MODEL [--seconds N] [--streams N]

Three replicas, of which one is killed (SIGKILL) every few seconds and started again. Half of the streams are read by
examples/resume.py, which goes from replica to replica; half come through HAProxy with deploy/haproxy-resume.cfg and
deploy/resume.lua, to a client that knows nothing of it. Every stream has the events that one replica alone gives, none
repeated, none lost. The replicas share pages by a Redis, where the program and this machine have it, that is killed, full,
emptied and damaged meanwhile. Closes with `N passed, N failed`."""
import http.client, json, os, random, re, shutil, signal, socket, subprocess, sys, tempfile, threading, time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "..", "examples"), HERE]  # in this order: both have a resume.py
from counted import check, closing
from client import Server, free_port
from redis_server import Redis, why_not
import resume

PROGRAM, MODEL = sys.argv[1], sys.argv[2]
option = lambda name, default: int(sys.argv[sys.argv.index(name) + 1]) if name in sys.argv else default
SECONDS, STREAMS, PAUSE = option("--seconds", 25), option("--streams", 50), 1.5

CHAT, MESSAGES, RESPONSES, TEXT = "/v1/chat/completions", "/v1/messages", "/v1/responses", "/v1/completions"
PARAMETERS = {"type": "object", "properties": {"to": {"type": "string"}, "subject": {"type": "string"}, "body": {"type": "string"}}, "required": ["to", "subject", "body"]}
TOOL = {"type": "function", "function": {"name": "send_email", "description": "Sends an email", "parameters": PARAMETERS}}
SCHEMA = {"type": "object", "properties": {"names": {"type": "array", "items": {"type": "string", "maxLength": 20}, "minItems": 6, "maxItems": 8},
          "days": {"type": "array", "items": {"enum": ["Friday", "Montag", "日曜日 🙂"]}, "minItems": 8, "maxItems": 9}}, "required": ["names", "days"], "additionalProperties": False}


PREFIX = "The ship has a wide deck and a deep hold. " * 20  # pages that all may share


def user(i, text):
    return [{"role": "system", "content": PREFIX}, {"role": "user", "content": f"{text} Please." + " Thank you." * (i % 5)}]


def ask(i):
    """(path, body) of stream i: each kind with its own seed."""
    mail = user(i, "Send an email to bob@example.com with the subject Trip and the body: We leave on Friday at nine.")
    story = user(i, "Tell me a long story of a ship.")
    common = {"temperature": i % 3 * 0.6, "stream": True}
    greedy = {"temperature": 0, "stream": True}
    return [
        (CHAT, {"messages": mail, "tools": [TOOL], "tool_choice": "required", "max_tokens": 200, "seed": i, **common}),
        (CHAT, {"messages": story, "response_format": {"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": SCHEMA}}, "max_tokens": 300,
                "seed": i, **common, "stream_options": {"include_usage": True}}),
        (CHAT, {"messages": story, "reasoning_effort": "high", "thinking_budget": 100, "max_tokens": 400, "ignore_eos": True, "seed": i, "frequency_penalty": 0.2, **common}),
        (TEXT, {"prompt": "1 2 3 4 5 6 7 8 " * 8, "max_tokens": 400, "ignore_eos": True, "seed": i, **common}),  # what drafts are good at
        (MESSAGES, {"system": PREFIX, "messages": story[1:], "max_tokens": 120, "thinking": {"type": "enabled", "budget_tokens": 1024}, **greedy}),
        (RESPONSES, {"input": story, "max_output_tokens": 100, "store": False, **greedy}),
    ][i % 6]


def ended(event, body):
    """Is it the last one that matters?"""
    if "choices" in event and body.get("stream_options"):
        return event["choices"] == []
    return event.get("type") in ("message_stop", "response.completed", "response.incomplete") or any(c["finish_reason"] for c in event.get("choices", []))


def bare(event):
    """Without what differs from run to run: ids, times, the cache, the states."""
    if isinstance(event, list):
        return [bare(v) for v in event]
    if not isinstance(event, dict):
        return event
    return {k: bare(v) for k, v in event.items() if k not in ("id", "item_id", "call_id", "created", "created_at", "evenkeel", "usage", "input_tokens_details",
                                                              "prompt_tokens_details", "completed_at")}


def events_of(lines):
    return [json.loads(line[6:]) for line in lines if line.startswith(b"data: {")]


class Harmed(Redis):
    """A server of shared pages, and what can happen to it."""

    def __init__(self):
        super().__init__()
        self.turn, self.done = 0, []

    def harm(self):
        how = ("damaged", "full", "emptied", "killed")[self.turn % 4]
        self.turn += 1
        if how == "damaged":
            keys = self.pages()[:200]
            for i, key in enumerate(keys):
                self.do("SETRANGE", key, 40 + i % 300, b"\xff\0wrong")
            how += f" {len(keys)} pages"
        elif how == "full":
            self.do("CONFIG", "SET", "maxmemory", "1mb")
        elif how == "emptied":
            self.do("FLUSHALL")
            self.do("CONFIG", "SET", "maxmemory", "0")
        else:
            self.stop()
            time.sleep(0.3)
            self.start()
        self.done.append(how)


class Replica:
    def __init__(self, port, redis=None):
        self.port, self.process, self.kills = port, None, 0
        self.shared = ["--cache-shared", f"redis://127.0.0.1:{redis.port}"] if redis else []
        self.start()

    def start(self):
        self.process = subprocess.Popen([PROGRAM, "serve", "--model", MODEL, "--port", str(self.port), "--max-requests", "64", "--threads", "1", *self.shared],
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def ready(self, seconds=60):
        deadline = time.time() + seconds
        while time.time() < deadline:
            try:
                c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
                c.request("GET", "/ready")
                if c.getresponse().status == 200:
                    return True
            except OSError:
                time.sleep(0.05)
        return False

    def cached(self):
        """Tokens of prompts, and of replies that go on, that came from its caches; pages that came from another replica; pages that were wrong."""
        try:
            c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
            c.request("GET", "/metrics")
            text = c.getresponse().read()
        except OSError:
            return [0, 0, 0]
        names = (rb"vllm:prefix_cache_hits_total\{.*\}", rb"evenkeel_cache_shared_hits_total", rb"evenkeel_cache_shared_wrong_pages_total")
        found = [re.search(rb"^" + name + rb" (\S+)$", text, re.M) for name in names]
        return [int(float(m[1])) if m else 0 for m in found]

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.kills += 1


def start_proxy(d, ports):
    """HAProxy as deploy/ has it, but for addresses; the port it listens on."""
    port, balanced = free_port(), free_port()
    conf, lua = open("deploy/haproxy-resume.cfg").read(), open("deploy/resume.lua").read()
    for was, becomes in [("bind :443 ssl crt /etc/haproxy/evenkeel.pem alpn h2,http/1.1", f"bind 127.0.0.1:{port}"), ("/etc/haproxy/resume.lua", f"{d}/resume.lua"), ("/run/haproxy/admin.sock", f"{d}/admin"),
                         ("127.0.0.1:8090", f"127.0.0.1:{balanced}"), ("inter 2s", "inter 200ms"), *[(f"127.0.0.1:{8081 + i}", f"127.0.0.1:{p}") for i, p in enumerate(ports)]]:
        assert was in conf, f"the configuration has no {was!r} any more"
        conf = conf.replace(was, becomes)
    assert "8090" in lua
    for name, text in (("conf", conf), ("resume.lua", lua.replace("8090", str(balanced)))):
        with open(f"{d}/{name}", "w") as f:
            f.write(text)
    r = subprocess.run(["haproxy", "-c", "-f", f"{d}/conf"], capture_output=True, text=True)
    check("the configuration has no warnings", r.returncode == 0 and "WARNING" not in r.stderr, r.stderr)
    with open(f"{d}/log", "w") as log:
        process = subprocess.Popen(["haproxy", "-db", "-f", f"{d}/conf"], stdout=log, stderr=log)
    deadline = time.time() + 60
    while process.poll() is None and time.time() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return port, process
        except OSError:
            time.sleep(0.05)
    raise OSError(f"haproxy did not start (exit {process.poll()}): " + open(f"{d}/log").read()[-1000:])


def try_proxy(d, ports):
    """A port that was free may not be any more."""
    for last in (False, False, True):
        try:
            return start_proxy(d, ports)
        except OSError:
            if last:
                raise


def main():
    want = {}
    with Server(PROGRAM, "--model", MODEL, "--max-requests", "64") as one:
        def alone(i):
            path, body = ask(i)
            c = one.open(120)
            c.request("POST", path, json.dumps(body), {"content-type": "application/json"})
            want[i] = [bare(e) for e in events_of(c.getresponse())]
            c.close()
        threads = [threading.Thread(target=alone, args=(i,)) for i in range(STREAMS)]
        [t.start() for t in threads]
        [t.join() for t in threads]
    check("every stream has events alone", all(len(want.get(i, [])) > 10 for i in range(STREAMS)), {i: len(w) for i, w in want.items()})

    ports = [free_port() for _ in range(3)]
    redis = None if why_not() else Harmed()
    replicas = [Replica(p, redis) for p in ports]
    check("three replicas start", all(r.ready() for r in replicas))
    folder = tempfile.TemporaryDirectory()
    proxy_port, proxy = try_proxy(folder.name, ports) if shutil.which("haproxy") else (0, None)
    stop, done, lock = time.time() + SECONDS, {"direct": 0, "proxied": 0}, threading.Lock()
    counts, cached = {"resumed": 0}, [0, 0, 0]

    def direct(i):
        path, body = ask(i)
        openings = [0]
        opened = resume.opener([f"http://127.0.0.1:{p}" for p in ports], path, body)

        def counting(at, state):
            openings[0] += state is not True
            return opened(at + i, state)
        got = list(resume.resuming(counting, lambda e: ended(e, body), 200, 0.1))
        with lock:
            counts["resumed"] += openings[0]
        return got

    def proxied(i):
        path, body = ask(i)
        c = http.client.HTTPConnection("127.0.0.1", proxy_port, timeout=120)
        c.request("POST", path, json.dumps(body), {"content-type": "application/json", "x-session-id": f"s{i}"})
        r = c.getresponse()
        got = events_of(r) if r.status == 200 else [{"status": r.status, "body": r.read().decode()}]
        c.close()
        return got

    def worker(i):
        how = "proxied" if proxy and i % 2 else "direct"
        while time.time() < stop:
            try:
                got = (proxied if how == "proxied" else direct)(i)
            except Exception as e:
                got = [{"exception": repr(e)}]
            ids = {e.get("id") for e in got if "choices" in e}
            check(f"stream {i}, {how}: no states for who asked for none", how == "direct" or not any("resume" in e.get("evenkeel", {}) for e in got))
            got = [bare(e) for e in got if e.get("type") != "ping"]
            expected = [e for e in want[i] if e.get("type") != "ping"]
            at = next((k for k, (x, y) in enumerate(zip(expected, got)) if x != y), min(len(expected), len(got)))
            check(f"stream {i}, {how} {ask(i)[0]}", got == expected, f"event {at} of {len(expected)} ({len(got)}): {got[at:at + 2]} instead of {expected[at:at + 2]}")
            check(f"stream {i}, {how}: one id", len(ids) <= 1, ids)
            with lock:
                done[how] += 1

    workers = [threading.Thread(target=worker, args=(i,)) for i in range(STREAMS)]
    [t.start() for t in workers]
    choose = random.Random(7)
    while time.time() < stop:
        time.sleep(PAUSE)
        r = choose.choice(replicas)
        cached = [x + y for x, y in zip(cached, r.cached())]
        r.kill()
        if redis:
            redis.harm()
        time.sleep(0.2)
        r.start()
        check("a replica is there again", r.ready())
    [t.join() for t in workers]
    for r in replicas:
        cached = [x + y for x, y in zip(cached, r.cached())]
    kills = sum(r.kills for r in replicas)
    for r in replicas:
        r.process.terminate()
        r.process.wait(20)
    if proxy:
        check("the proxy still runs", proxy.poll() is None, f"exit {proxy.poll()}: " + open(f"{folder.name}/log").read()[-1500:])
        proxy.terminate()
        proxy.wait(10)
    print(f"{kills} replicas killed in {SECONDS} s; {done['direct']} streams over examples/resume.py, resumed {counts['resumed']} times, {done['proxied']} through HAProxy; "
          f"{cached[0]} tokens from caches" + ("" if proxy else "; haproxy is not installed"))
    if redis:
        redis.end()
        print(f"Redis was {', '.join(redis.done)}; {cached[1]} pages came from other replicas, {cached[2]} were seen to be wrong")
        check("pages came from other replicas", cached[1] > 0)
    else:
        print(f"no pages were shared: {why_not()}")
    check("streams were resumed", counts["resumed"] > 0 and kills > 0)
    return closing()


sys.exit(main())
