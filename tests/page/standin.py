"""A model whose answers a test decides: an HTTP server that answers chat completions from a function and passes everything
else on to a real server, so that the real page runs. Python standard library only."""
import http.client, json, threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class StandIn:
    """answer(request) gives the deltas of a reply, as OpenAI has them, or (status, message) of a refusal; a delta that is a
    number is a pause in seconds. models: what /v1/models says, None for the real server's; without: paths whose files are
    empty. Use with `with`."""

    def __init__(self, real_port, answer, models=None, without=()):
        outer = self
        self.requests, self.models, self.answer, self.stop = [], models, answer, threading.Event()

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_GET(self):
                if outer.models is not None and self.path == "/v1/models":
                    return self.whole(200, "application/json", json.dumps(outer.models).encode())
                c = http.client.HTTPConnection("127.0.0.1", real_port, timeout=30)
                c.request("GET", self.path, headers={"if-none-match": self.headers.get("if-none-match") or '""'})
                r = c.getresponse()
                data = b"" if self.path in without else r.read()
                self.send_response(r.status)
                for k, v in r.getheaders():
                    if k.lower() not in ("content-length", "connection", "date", "transfer-encoding", "keep-alive"):
                        self.send_header(k, v)
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)
                c.close()

            def whole(self, status, kind, data):
                self.send_response(status)
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def do_POST(self):
                request = json.loads(self.rfile.read(int(self.headers["content-length"])))
                outer.requests.append(request)
                deltas = outer.answer(request)
                if isinstance(deltas, tuple):
                    return self.whole(deltas[0], "application/json", json.dumps({"error": {"message": deltas[1], "type": "invalid_request_error"}}).encode())
                self.send_response(200)
                self.send_header("content-type", "text/event-stream")
                self.send_header("connection", "close")
                self.end_headers()
                self.close_connection = True
                try:
                    self.stream(deltas)
                except (BrokenPipeError, ConnectionResetError):
                    pass

            def stream(self, deltas):
                finish = "stop"
                for d in deltas:
                    if isinstance(d, (int, float)):
                        outer.stop.wait(d)
                        continue
                    if "finish" in d:
                        finish = d["finish"]
                        continue
                    if "tool_calls" in d:
                        finish = "tool_calls"
                    self.event({"choices": [{"index": 0, "delta": d, "finish_reason": None}]})
                self.event({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}], "evenkeel": {"digest": "0123456789abcdef", "seed": 7}})
                self.event({"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 5}})
                self.wfile.write(b"data: [DONE]\n\n")

            def event(self, chunk):
                self.wfile.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")
                self.wfile.flush()

        class Quiet(ThreadingHTTPServer):
            def handle_error(self, *_):
                """A page that is left closes its connections."""

        self.server = Quiet(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.port = self.server.server_port
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        self.server.shutdown()
        self.server.server_close()


def last_text(request):
    """What the last message of a request says."""
    content = request["messages"][-1]["content"]
    return content if isinstance(content, str) else next((p["text"] for p in content if p["type"] == "text"), "")
