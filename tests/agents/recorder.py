"""What the agents' tests share: a recorder between client and server, and a model with a long context. Python standard
library only."""
import http.client, http.server, json, os, shutil, threading, time


class Recorder(http.server.ThreadingHTTPServer):
    """Passes requests on to the server as they come and keeps them; as a proxy for other hosts it refuses and notes them."""
    daemon_threads = True

    def __init__(self, target, limit=None, script=()):
        """limit: members that are added to every JSON body (a small model may never end a reply by itself). script: event streams
        that answer the first requests with tools in place of the server (it would not call the tool that a test is about)."""
        self.target, self.limit, self.seen, self.elsewhere, self.script = target, limit, [], [], list(script)
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def proxies(self):
        """Environment that sends every other host's requests here."""
        return dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), self.url) | dict.fromkeys(("no_proxy", "NO_PROXY"), "127.0.0.1")


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        if not self.path.startswith("/"):
            return self.refuse()
        if self.server.script and b'"tools"' in body:
            return self.play(self.server.script.pop(0))
        if self.server.limit and body:
            body = json.dumps({**json.loads(body), **self.server.limit}).encode()
        c = http.client.HTTPConnection("127.0.0.1", self.server.target, timeout=200)
        begin = time.time()
        c.request(self.command, self.path, body or None, {k: v for k, v in self.headers.items() if k.lower() not in ("host", "connection", "accept-encoding", "content-length")})
        r = c.getresponse()
        entry = {"method": self.command, "path": self.path, "headers": dict(self.headers), "body": body, "status": r.status, "reply": b"", "pieces": 0, "seconds": 0}
        self.server.seen.append(entry)
        self.send_response(r.status)
        for k, v in r.getheaders():
            if k.lower() not in ("transfer-encoding", "connection", "content-length", "date", "server"):
                self.send_header(k, v)
        self.send_header("connection", "close")
        self.end_headers()
        while piece := r.read1(65536):
            entry["seconds"] = entry["seconds"] or time.time() - begin
            entry["reply"] += piece
            entry["pieces"] += 1
            self.wfile.write(piece)
        self.close_connection = True

    do_GET = do_HEAD = do_POST

    def play(self, stream):
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        self.wfile.write(stream)
        self.close_connection = True

    def refuse(self):
        self.server.elsewhere.append(self.path)
        self.send_response(502)
        self.send_header("content-length", "0")
        self.end_headers()

    do_CONNECT = refuse

    def log_message(self, *args):
        pass


def long_context(model, folder):
    """The bundled model with room for 64k tokens, greedy."""
    shutil.copytree(model, folder)
    for name, change in (("config.json", {"max_position_embeddings": 65536}), ("generation_config.json", {"temperature": 0})):
        path = os.path.join(folder, name)
        o = json.load(open(path))
        (o.get("text_config", o)).update(change)
        json.dump(o, open(path, "w"))


def documented(language, heading=""):
    """The first block of docs/AGENTS.md in a language, behind a heading."""
    page = open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docs", "AGENTS.md"), encoding="utf-8").read()
    return page[page.index(heading):].split(f"```{language}\n")[1].split("```")[0]
