#!/usr/bin/env python3
"""bench --compare against servers that this file plays: compare.py PROGRAM MODEL

One streams as other engines do and gives every third reply another text, one refuses, one breaks off. Closes with
`N passed, N failed`."""
import http.server, json, os, subprocess, sys, tempfile, threading, xml.etree.ElementTree

from counted import check, closing

PROGRAM, MODEL = sys.argv[1:3]


class Other(http.server.BaseHTTPRequestHandler):
    """mode: good, refuses, breaks"""
    mode, seen, lock, protocol_version = "good", [], threading.Lock(), "HTTP/1.1"

    def log_message(self, *args):
        pass

    def send(self, status, body):
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        if self.path == "/v1/models" and self.headers["authorization"] == "Bearer k1":
            self.send(200, {"data": [{"id": "other/model"}]})
        else:
            self.send(401, {"error": {"message": "no key"}})

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        with self.lock:
            self.seen.append(body)
            number = len(self.seen)
        if self.mode == "refuses":
            return self.send(429, {"error": {"message": "come back later"}})
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        for piece in ("He ", "He ", str(number % 3 == 0)):
            self.wfile.write(b"data: " + json.dumps({"choices": [{"index": 0, "delta": {"content": piece}}]}).encode() + b"\n\n")
        if self.mode == "good":
            self.wfile.write(b'data: {"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":3}}\n\ndata: [DONE]\n\n')
        self.close_connection = True


def compare(mode, *args, key="k1"):
    Other.mode, Other.seen = mode, []
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Other)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    env = {**os.environ, "EVENKEEL_COMPARE_KEY": key}
    r = subprocess.run([PROGRAM, "bench", "--model", MODEL, "--threads", "1", "--compare", f"http://127.0.0.1:{server.server_port}/v1/",
                        "--prompt", "12", "--generate", "6", *args], capture_output=True, text=True, timeout=120, env=env)
    server.shutdown()
    return r


r = compare("good", "--batch", "1,3", "--runs", "3", "--json")
check("exit", r.returncode == 0, r.stderr)
own, other = json.loads(r.stdout)["compare"] if r.returncode == 0 else ({}, {})
check("own replies agree", own.get("same_text") == own.get("repeated") == 12, own)
check("own tokens", own.get("tokens_counted") is True and all(w["failed"] == 0 and w["tokens"] > 0 for w in own["rows"]), own)
check("own tokens without HTTP", all(w["engine_tokens_per_second"] > 0 for w in own["rows"]) and "engine_tokens_per_second" not in other["rows"][0], own)
check("the other's model", other.get("model") == "other/model", other)
check("clients and requests", [(w["clients"], w["requests"]) for w in other.get("rows", [])] == [(1, 6), (3, 18)], other)
check("the other's replies differ", 0 < other.get("same_text", 0) < other.get("repeated", 0) == 12, other)
texts = [b["messages"][0]["content"] for b in Other.seen[1:]]  # the first warms up
check("half of the requests are the same", max(texts.count(t) for t in texts) == 12 and len(set(texts)) == 13, texts)
check("greedy and bounded", all(b["temperature"] == 0 and b["max_tokens"] == 6 and b["stream"] for b in Other.seen[1:]), Other.seen[1:2])

PLOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools", "bench", "plot.py")


def plot(text):
    with tempfile.NamedTemporaryFile("w", suffix=".json") as f:
        f.write(text)
        f.flush()
        return subprocess.run([sys.executable, PLOT, f.name], capture_output=True, text=True, timeout=30)


drawn = plot(r.stdout)
bars = sum(e.tag.endswith("rect") and e.find("*") is not None for e in xml.etree.ElementTree.fromstring(drawn.stdout or "<x/>").iter())
check("a bar per server and number of clients", drawn.returncode == 0 and bars == 4, (bars, drawn.stderr))
r = subprocess.run([PROGRAM, "bench", "--model", MODEL, "--threads", "1", "--prompt", "8,16", "--generate", "2", "--batch", "1", "--depth", "0,8", "--runs", "1",
                    "--json"], capture_output=True, text=True, timeout=120)
limits = json.loads(r.stdout)["limits"] if r.returncode == 0 else {}
check("limits", limits.get("read_bytes_per_second", 0) > 0 and set(limits) == {"read_bytes_per_second", "int8_macs_per_second", "amx_macs_per_second",
      "f32_macs_per_second"}, r.stdout + r.stderr)
seen = subprocess.run([PROGRAM, "bench", "--model", MODEL, "--threads", "1", "--device", "cpu", "--pictures", "70", "--first-token", "--prompt", "8",
                       "--runs", "1", "--json"], capture_output=True, text=True, timeout=120)
row = json.loads(seen.stdout)["pictures"][0] if seen.returncode == 0 else {}
check("a picture, and the first token with one", row.get("seconds", 0) > 0 and row.get("first_token_seconds", 0) > row.get("again_seconds", 0) > 0,
      seen.stdout + seen.stderr)
for wrong in (("--pictures", "71"), ("--sounds", "31"), ("--pictures", "70", "--sounds", "1")):
    seen = subprocess.run([PROGRAM, "bench", "--model", MODEL, *wrong], capture_output=True, text=True)
    check(f"{wrong} is refused", seen.returncode == 2 and len(seen.stderr.splitlines()) == 1, seen.stderr)
drawn = plot(r.stdout)
check("a bar per measurement", drawn.stdout.count("<title>") == 4, drawn.stderr)
drawn = plot("{}")
check("no result is one line", drawn.returncode == 1 and len(drawn.stderr.splitlines()) == 1, drawn.stderr)

r = compare("good", "--batch", "2", "--runs", "1")
check("table", r.returncode == 0 and "replies to the repeated request have the same text" in r.stdout, r.stdout + r.stderr)
r = compare("refuses", "--batch", "2", "--runs", "1")
check("refusals are counted", r.returncode == 0 and "4 failed" in r.stdout and "status 429" in r.stdout, r.stdout + r.stderr)
r = compare("breaks", "--batch", "1", "--runs", "1")
check("broken streams are counted", "2 failed" in r.stdout and "[DONE]" in r.stdout, r.stdout + r.stderr)
r = compare("good", key="wrong")
check("a refused key is one line", r.returncode == 1 and "status 401" in r.stderr and len(r.stderr.splitlines()) == 1, r.stderr)
r = subprocess.run([PROGRAM, "bench", "--compare", "http://127.0.0.1:1"], capture_output=True, text=True)
check("nobody there is one line", r.returncode == 1 and len(r.stderr.splitlines()) == 1, r.stderr)
r = subprocess.run([PROGRAM, "bench", "--compare", "http://127.0.0.1:1", "--synthetic", "e2b"], capture_output=True, text=True)
check("--synthetic is refused", r.returncode == 2, r.stderr)
sys.exit(closing())
