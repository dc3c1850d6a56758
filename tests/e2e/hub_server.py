"""A server that plays the Hugging Face Hub: the API's list of files, `resolve` addresses that redirect large files to
another origin, ranges, and everything that can go wrong on the way. Standard library only, loopback only."""
import hashlib
import json
import re
import socket
import ssl
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

LFS_FROM = 4096  # files of this size on are large: sha256, and fetched from the other origin


class Repo:
    """files: name -> bytes. fault: a function of (repo, request) that returns True if it has answered."""

    def __init__(self, files, **fields):
        self.files = dict(files)
        self.token = None          # the token that is needed
        self.gated = False
        self.fault = None
        self.body = None           # a function of (name, bytes) -> bytes that are sent
        self.ranges = True
        self.size = {}             # name -> size that the API gives
        self.extra = []            # further entries of the API's list
        self.speed = None          # bytes per second of a connection
        self.redirect = True
        self.lock = threading.Lock()
        self.requests = []         # (server, path, range, token)
        self.sent = 0              # bytes of files
        self.hashed = {}
        self.__dict__.update(fields)
        self.revise()

    def revise(self):
        digest = hashlib.sha1()
        for name in sorted(self.files):
            digest.update(name.encode() + b"\0" + hashlib.sha1(self.files[name]).digest())
        self.commit = digest.hexdigest()

    def hash(self, name):
        data = self.files[name]
        if self.hashed.get(name, (None,))[0] is not data:
            large = len(data) >= LFS_FROM
            h = hashlib.sha256(data) if large else hashlib.sha1(b"blob %d\0" % len(data) + data)
            self.hashed[name] = data, h.hexdigest()
        return self.hashed[name][1]

    def siblings(self):
        out = []
        for name, data in self.files.items():
            size = self.size.get(name, len(data))
            entry = {"rfilename": name, "size": size, "blobId": "0" * 40}
            if len(data) >= LFS_FROM:
                entry["lfs"] = {"sha256": self.hash(name), "size": size, "pointerSize": 135}
            else:
                entry["blobId"] = self.hash(name)
            out.append(entry)
        return out + self.extra

    def count(self, pattern):
        with self.lock:
            return sum(1 for r in self.requests if re.search(pattern, r[1]))

    def first_range(self, since):
        """The first byte that was asked for at the other origin, from request number `since` on."""
        return min(int(r[2][6:].split("-")[0]) for r in self.requests[since:] if r[0] == "cdn" and r[2])


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def reply(self, status, body=b"", **headers):
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key.replace("_", "-"), value)
        if status != 204 and "Content_Length" not in headers:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def cut(self):
        """Closes the connection in the middle of whatever is being sent."""
        self.close_connection = True
        try:
            self.connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    def send_file(self, repo, name):
        data = repo.body(name, repo.files[name]) if repo.body else repo.files[name]
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or "")
        status, first, headers = 200, 0, {"ETag": f'"{repo.hash(name)}"', "X_Repo_Commit": repo.commit}
        part = data
        if asked and repo.ranges:
            first, last = int(asked[1]), min(int(asked[2] or len(data) - 1), len(data) - 1)
            if first >= len(data):
                return self.reply(416, Content_Range=f"bytes */{len(data)}")
            status, part = 206, data[first:last + 1]
            headers["Content_Range"] = f"bytes {first}-{last}/{len(data)}"
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(part)))
        self.end_headers()
        step = len(part) if not repo.speed else max(1, repo.speed // 20)
        for at in range(0, len(part), step or 1):
            self.wfile.write(part[at:at + step])
            with repo.lock:
                repo.sent += len(part[at:at + step])
            if repo.speed:
                time.sleep(0.05)

    def do_GET(self):
        hub = self.server.hub
        api = re.fullmatch(r"/api/models/([^/]+/[^/]+)/revision/([^?]+)\?blobs=true", self.path)
        file = re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", self.path)
        found = api or file
        repo = hub.repos.get(found[1]) if found else None
        token = (self.headers.get("Authorization") or "").removeprefix("Bearer ") or None
        if repo:
            with repo.lock:
                repo.requests.append((self.server.role, self.path, self.headers.get("Range"), token))
        try:
            if not repo:
                return self.reply(404 if token else 401, b'{"error":"Repository not found"}', X_Error_Code="RepoNotFound")
            if repo.fault and repo.fault(repo, self):
                return None
            if self.server.role == "hub" and repo.token and token != repo.token:
                status = 403 if token else 401
                return self.reply(status, X_Error_Code="GatedRepo" if repo.gated else "RepoNotFound")
            if api:
                if api[2] not in ("main", repo.commit):
                    return self.reply(404, X_Error_Code="RevisionNotFound")
                return self.reply(200, json.dumps({"id": api[1], "sha": repo.commit, "siblings": repo.siblings()}).encode(),
                                  Content_Type="application/json")
            name = file[3].replace("%20", " ")
            if name not in repo.files:
                return self.reply(404, X_Error_Code="EntryNotFound")
            if self.server.role == "hub" and repo.redirect and len(repo.files[name]) >= LFS_FROM:
                return self.reply(302, Location=f"{hub.cdn}{self.path}")
            return self.send_file(repo, name)
        except OSError:
            self.close_connection = True


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
    allow_reuse_address = True

    def handle_error(self, request, client_address):
        pass


class Hub:
    """Two origins: `url` is the API's, `cdn` where large files lie."""

    def __init__(self):
        self.repos, self.servers = {}, []
        for role in ("hub", "cdn"):
            server = Server(("127.0.0.1", 0), Handler)
            server.role, server.hub = role, self
            threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
            self.servers.append(server)
        self.url, self.cdn = (f"http://127.0.0.1:{s.server_address[1]}" for s in self.servers)

    def add_tls(self, cert, key):
        """A third origin, the API over https."""
        server = Server(("127.0.0.1", 0), Handler)
        server.role, server.hub = "hub", self
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(cert, key)
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        self.servers.append(server)
        return f"https://127.0.0.1:{server.server_address[1]}"

    def close(self):
        for server in self.servers:
            server.shutdown()
            server.server_close()
