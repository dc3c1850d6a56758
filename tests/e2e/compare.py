#!/usr/bin/env python3
"""tools/bench/compare.py, agents.py and plot.py, beside servers that this file plays; `bench --json`: compare.py PROGRAM MODEL

One server streams as other engines do and gives every third reply another text, one refuses, one breaks off. Closes with
`N passed, N failed`."""
import http.server, io, json, os, subprocess, sys, tempfile, threading, xml.etree.ElementTree

from client import Server
from counted import check, closing

PROGRAM, MODEL = sys.argv[1:3]
BENCH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools", "bench")
sys.path.insert(0, BENCH)
import streams


class Other(http.server.BaseHTTPRequestHandler):
    """mode: good, refuses, breaks, and others that test_replies has"""
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


def tool(name, *args, key="k1", timeout=120):
    env = {**os.environ, "EVENKEEL_BENCH_KEY": key}
    return subprocess.run([sys.executable, os.path.join(BENCH, name), *args], capture_output=True, text=True, timeout=timeout, env=env)


def beside(mode, name, *args, key="k1"):
    """A tool's run with the address of a server of this mode."""
    Other.mode, Other.seen = mode, []
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Other)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        return tool(name, f"http://127.0.0.1:{server.server_port}/v1/", *args, key=key)
    finally:
        server.shutdown()


def refused(status, says, *args, **more):
    r = tool(*args, **more)
    check(f"{args} is one line", r.returncode == status and says in r.stderr and len(r.stderr.splitlines()) == 1 and not r.stdout, (r.returncode, r.stderr))


# --- how a stream is read

def event(text):
    return f'data: {{"choices":[{{"index":0,"delta":{{"content":"{text}"}}}}]}}\n\n'


def read(text):
    reply = streams.Reply(0.0)
    reply.read(io.BytesIO(text.encode()))
    return reply


r = read(': ping\r\n\r\ndata: {"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}\r\n\r\n' + event("One") + event(" two")
         + 'event: chunk\ndata:{"choices":[{"delta":{"reasoning":"why","content":null}}],"usage":null}\n\n'
         'data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":4}}}\n\ndata: [DONE]\n\n')
check("a stream's counts", (r.error, r.done, r.pieces, len(r.gaps), r.prompt_tokens, r.cached_tokens, r.tokens, r.content())
      == ("", True, 3, 2, 7, 4, 3, "One two"), vars(r))
check("a completion's text", read('data: {"choices":[{"text":"One"}]}\n\ndata: {"choices":[{"text":" two"}]}\n').text == [["content", "One two"]])
why = 'data: {"choices":[{"delta":{%s}}]}\n\n'
texts = [read(t).text for t in (event("One two"), event("One") + event(" two"), event("One twO"), why % '"reasoning_content":"One two"',
                                why % '"reasoning":"One two"', why % '"reasoning_content":"One two","reasoning":"One two"')]
check("where a server cuts its pieces is no other text", texts[0] == texts[1] != texts[2], texts)
check("reasoning is another text, the same under both names", texts[3] not in texts[:3] and texts[3] == texts[4] == texts[5], texts)
for text, says in (('data: {"choices":[\n\n', "an event is not JSON: "), ("data: " + "[" * 100000 + "\n", "an event is not JSON: "),
                   ("data: [1]\n", "an event is no object: "), ('data: {"error":{"message":"out of slots"}}\n\n', "the server reports: out of slots"),
                   ('data: {"error":"x"}\n\n', "the server reports: an error without a message"),
                   ('data: {"error":{"message":"\\ud800\\u001b[2J"}}\n', "the server reports: ??[2J"),
                   ("data: " + "x" * (1 << 20) + "\n", "an event is longer than 1 MiB")):
    check(f"{text[:40]!r} is an error", read(text).error.startswith(says), read(text).error)
for text in ('data: {"choices":[7]}\n', 'data: {"choices":{"a":1},"usage":[]}\n', 'data: {"choices":[{"delta":null,"text":5}],"usage":{"prompt_tokens":"7"}}\n',
             'data: {"choices":[],"usage":{"prompt_tokens":true,"prompt_tokens_details":9}}\n'):
    r = read(text)
    check(f"{text!r} says nothing", (r.error, r.pieces, r.prompt_tokens) == ("", 0, 0), vars(r))

# --- compare.py

OWN = f"{PROGRAM} serve --model {MODEL} --threads 1"
FEW = ("--words", "12", "--reply", "6")
r = beside("good", "compare.py", "--serve", OWN, *FEW, "--clients", "1,3", "--runs", "3", "--json")
check("exit", r.returncode == 0, r.stderr)
own, other = json.loads(r.stdout)["compare"] if r.returncode == 0 else ({}, {})
check("own replies agree", own.get("same_text") == own.get("repeated") == 12, own)
check("own tokens", own.get("tokens_counted") is True and all(w["failed"] == 0 and w["tokens"] > 0 and w["prompt_tokens"] > 0 for w in own["rows"]), own)
check("the other's model", other.get("model") == "other/model", other)
check("clients and requests", [(w["clients"], w["requests"]) for w in other.get("rows", [])] == [(1, 6), (3, 18)], other)
check("the other's replies differ", 0 < other.get("same_text", 0) < other.get("repeated", 0) == 12, other)
texts = [b["messages"][0]["content"] for b in Other.seen[1:]]  # the first warms up
check("half of the requests are the same", max(texts.count(t) for t in texts) == 12 and len(set(texts)) == 13, texts)
check("another run asks other questions", len(set(texts)) > len(texts) // 2, texts)
check("greedy and bounded", all(b["temperature"] == 0 and b["max_tokens"] == 6 and b["stream"] for b in Other.seen[1:]), Other.seen[1:2])


def plot(text):
    with tempfile.NamedTemporaryFile("w", suffix=".json") as f:
        f.write(text)
        f.flush()
        return subprocess.run([sys.executable, os.path.join(BENCH, "plot.py"), f.name], capture_output=True, text=True, timeout=30)


drawn = plot(r.stdout)
bars = sum(e.tag.endswith("rect") and e.find("*") is not None for e in xml.etree.ElementTree.fromstring(drawn.stdout or "<x/>").iter())
check("a bar per server and number of clients", drawn.returncode == 0 and bars == 4, (bars, drawn.stderr))

# --- bench --json

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


# --- compare.py: the table, and what goes wrong

r = beside("good", "compare.py", *FEW, "--clients", "2", "--runs", "1")
check("table", r.returncode == 0 and "replies to the repeated request have the same text" in r.stdout, r.stdout + r.stderr)
r = beside("refuses", "compare.py", *FEW, "--clients", "2", "--runs", "1")
check("refusals are counted", r.returncode == 1 and "4 failed" in r.stdout and "status 429" in r.stdout, r.stdout + r.stderr)
r = beside("breaks", "compare.py", *FEW, "--clients", "1", "--runs", "1")
check("broken streams are counted", r.returncode == 1 and "2 failed" in r.stdout and "[DONE]" in r.stdout, r.stdout + r.stderr)
r = beside("good", "compare.py", key="wrong")
check("a refused key is one line", r.returncode == 1 and "status 401" in r.stderr and len(r.stderr.splitlines()) == 1, r.stderr)
for name in ("compare.py", "agents.py"):
    refused(1, "Connection refused", name, "http://127.0.0.1:1")
    refused(1, "is no address of a server", name, "127.0.0.1:8080")
    refused(1, "is no address of a server", name, "file:///etc/passwd")
    refused(1, "Port", name, "http://127.0.0.1:99999")
    refused(2, "'0' is not a number from 1 to", name, "http://127.0.0.1:1", "--reply", "0")
refused(2, "a server is needed", "compare.py")
refused(2, "'x' is not a number from 1 to 1024", "compare.py", "http://127.0.0.1:1", "--clients", "1,x")
refused(1, "is no command of a server", "compare.py", "--serve", "evenkeel")
refused(1, "no-such-program", "compare.py", "--serve", "/no-such-program serve")
refused(1, "the server did not start", "compare.py", "--serve", f"{PROGRAM} serve --model /nowhere")

# --- agents.py

DAY = ("--agents", "3", "--turns", "2", "--system-words", "120", "--result-words", "30", "--reply", "5")
r = beside("good", "agents.py", *DAY, "--chat", "--json")
day = json.loads(r.stdout) if r.returncode == 0 else {}
check("a day of chat", (day.get("requests"), day.get("failed"), day.get("tokens"), day.get("model")) == (6, 0, 18, "other/model"), r.stdout + r.stderr)
system = {b["messages"][0]["content"] for b in Other.seen}
check("all share a system text", len(system) == 1 and len(system.pop().split()) == 120, system)
check("turns grow", sorted(len(b["messages"]) for b in Other.seen) == [2] * 3 + [4] * 3, [len(b["messages"]) for b in Other.seen])
later = [b["messages"] for b in Other.seen if len(b["messages"]) == 4]
check("a turn has the reply and a tool's result", all(m[2]["role"] == "assistant" and m[2]["content"].startswith("He He ") and
      m[3]["content"].startswith("Result 1: ") and len(m[3]["content"].split()) == 32 for m in later), later)
first = [json.dumps(b) for b in Other.seen if len(b["messages"]) == 2]
beside("good", "agents.py", *DAY, "--chat")
check("the same day again", sorted(first) == sorted(json.dumps(b) for b in Other.seen if len(b["messages"]) == 2), "first turns differ")
r = beside("refuses", "agents.py", *DAY)
check("an agent ends where it is refused", r.returncode == 1 and "3 requests, 3 failed" in r.stdout and "status 429: " in r.stdout, r.stdout + r.stderr)
with Server(PROGRAM, "--model", MODEL, "--threads", "1") as own:
    for chat in ((), ("--chat",)):
        r = tool("agents.py", f"http://127.0.0.1:{own.port}", *DAY, *chat, "--json")
        day = json.loads(r.stdout) if r.returncode == 0 else {}
        check(f"a day of the bundled model {chat}", day.get("requests") == 6 and day.get("failed") == 0 and day.get("tokens") == 30, r.stdout + r.stderr)
        check(f"its times {chat}", 0 < day.get("first_seconds", [0])[0] <= day["first_seconds"][1] < day["wall_seconds"] and
              0 <= day["gap_seconds"][0] <= day["gap_seconds"][1] < day["wall_seconds"], day)
        check(f"the shared text is read once {chat}", day["cached_tokens"] > day["prompt_tokens"] / 3, day)
    r = tool("agents.py", f"http://127.0.0.1:{own.port}", *DAY)
    check("a table", r.returncode == 0 and all(f"\n{name} " in r.stdout for name in ("wall", "first token", "gap", "prompts", "replies")), r.stdout + r.stderr)
sys.exit(closing())
