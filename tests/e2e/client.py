"""A small HTTP client and a server process, for the end-to-end tests. Python standard library only."""
import http.client, json, os, signal, socket, subprocess, tempfile, time

import described


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def json_of(data):
    """Of a body; None where it is none."""
    try:
        return json.loads(data) if data else None
    except (ValueError, RecursionError):
        return None


class Server:
    """`evenkeel serve` on a free port; use with `with`, or end it by stop(). wait: whether it listens when this returns.
    may_end: one that ends instead is left for stop() to report. env: of its environment, beside ours."""
    start_seconds = 180  # an emulated device computes for seconds, on a busy machine for a minute

    def __init__(self, program, *args, wait=True, may_end=False, env=None):
        self.dir, self.may_end = tempfile.TemporaryDirectory(), may_end
        self.port_file = os.path.join(self.dir.name, "port")
        self.log = open(os.path.join(self.dir.name, "log"), "w+")
        self.process = subprocess.Popen([program, "serve", "--port", "0", "--port-file", self.port_file, *map(str, args)],
                                        stdout=subprocess.PIPE, stderr=self.log, text=True, env={**os.environ, **(env or {})})
        if wait:
            self.listens()

    def listens(self):
        deadline = time.time() + self.start_seconds
        while not os.path.exists(self.port_file):
            if self.process.poll() is not None or time.time() > deadline:
                if self.may_end and self.process.poll() is not None:
                    return
                raise AssertionError(f"the server did not start (exit {self.process.poll()}): {self.said()}")
            time.sleep(0.02)
        self.port = int(open(self.port_file).read())

    def said(self):
        """Its standard error so far."""
        return open(self.log.name).read()

    def says(self, text, seconds=60):
        deadline = time.time() + seconds
        while text not in self.said():
            if time.time() > deadline:
                return False
            time.sleep(0.02)
        return True

    def stop(self, how=signal.SIGTERM, seconds=60):
        """(exit status, what it said)"""
        if self.process.poll() is None:
            self.process.send_signal(how)
        status = self.process.wait(seconds)
        self.process.stdout.close()
        return status, self.said()

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                if kind is None:
                    raise AssertionError("the server did not stop within 60 s of SIGTERM")
        self.process.stdout.close()
        if kind is None and self.process.returncode != 0:
            self.log.seek(0)
            raise AssertionError(f"the server ended with {self.process.returncode}: {self.log.read()[-2000:]}")

    def terminate(self):
        self.process.send_signal(signal.SIGTERM)

    def wait(self, seconds=60):
        return self.process.wait(seconds)

    def open(self, timeout=60):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)

    def socket(self, timeout=60):
        return socket.create_connection(("127.0.0.1", self.port), timeout=timeout)

    def call(self, method, path, body=None, headers=None):
        """(status, headers, body as JSON)"""
        c = self.open()
        try:
            data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
            c.request(method, path, data, headers if headers is not None else {"content-type": "application/json"})
            r = c.getresponse()
            reply = json.loads(r.read() or b"null")
            described.check(method, path, r.status, json_of(data), reply)
            return r.status, dict((k.lower(), v) for k, v in r.getheaders()), reply
        finally:
            c.close()

    def chat(self, body, expect=200):
        status, _, reply = self.call("POST", "/v1/chat/completions", body)
        assert status == expect, f"status {status}, not {expect}: {reply}"
        return reply

    def stream(self, body):
        """An open stream; iterate for the JSON of every frame; .done tells whether [DONE] came."""
        return Stream(self, dict(body, stream=True))

    def metrics(self):
        """The lines of /metrics without labels, by name."""
        c = self.open()
        try:
            c.request("GET", "/metrics")
            lines = c.getresponse().read().decode().splitlines()
        finally:
            c.close()
        return {n: float(v) for n, _, v in (line.partition(" ") for line in lines) if "{" not in n and not n.startswith("#")}

    def running(self):
        return self.call("GET", "/health")[2]["running"]

    def wait_idle(self, seconds=60):
        deadline = time.time() + seconds
        while self.running():
            assert time.time() < deadline, "requests still run"
            time.sleep(0.05)


class Stream:
    def __init__(self, server, body):
        self.connection = server.open()
        self.connection.request("POST", "/v1/chat/completions", json.dumps(body), {"content-type": "application/json"})
        self.response = self.connection.getresponse()
        self.done = False
        assert self.response.status == 200, self.response.read()
        assert self.response.getheader("content-type").startswith("text/event-stream")

    def __iter__(self):
        for line in self.response:
            line = line.rstrip(b"\r\n")
            if not line or line.startswith(b":"):
                continue
            assert line.startswith(b"data: ") and not self.done, line
            if line == b"data: [DONE]":
                self.done = True
            else:
                event = json.loads(line[6:])
                described.check_event("/v1/chat/completions", event)
                yield event

    def close(self):
        """Vanish."""
        self.response.close()
        self.connection.close()


def assemble(frames, index=0):
    """What a strict accumulator makes of a stream: the message of one choice, its finish reason and the usage."""
    message, finish, usage, first = {"content": ""}, None, None, True
    for f in frames:
        if set(f) == {"error"}:  # said in a chunk, too
            assert f["error"]["message"], f
            continue
        assert f["object"] == "chat.completion.chunk" and f["id"] and f["model"] and f["created"], f
        usage = f.get("usage") or usage
        for c in f["choices"]:
            if c["index"] != index:
                continue
            assert finish is None, "a delta after the finish"
            d = c["delta"]
            if first:
                assert d in ({"role": "assistant", "content": ""}, {"role": "assistant", "content": None}), d
                first = False
            message["content"] += d.get("content") or ""
            if "reasoning_content" in d:
                assert d["reasoning"] == d["reasoning_content"], d
                message["reasoning_content"] = message.get("reasoning_content", "") + d["reasoning_content"]
            for t in d.get("tool_calls", []):
                calls = message.setdefault("tool_calls", [])
                if t["index"] == len(calls):
                    assert t["id"] and t["type"] == "function" and t["function"]["name"] and t["function"]["arguments"] == "", t
                    calls.append({"id": t["id"], "type": "function", "function": dict(t["function"])})
                else:
                    assert t["index"] == len(calls) - 1 and set(t) == {"index", "function"} and set(t["function"]) == {"arguments"}, t
                    calls[-1]["function"]["arguments"] += t["function"]["arguments"]
            finish = c["finish_reason"] or finish
    assert finish, "no finish_reason"
    return message, finish, usage
