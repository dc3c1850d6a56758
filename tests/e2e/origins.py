#!/usr/bin/env python3
"""A browser's requests from pages of others, and names that others gave this machine: origins.py PROGRAM MODEL

Loopback only; no browser: the headers are those that browsers send. Closes with `N passed, N failed`."""
import json, os, subprocess, sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from counted import check, closing
from client import Server

PROGRAM, MODEL = sys.argv[1:3]
CHAT = {"messages": [{"role": "user", "content": "hello"}], "temperature": 0, "max_tokens": 4}


def status(s, headers, method="POST", path="/v1/chat/completions", body=CHAT, says=""):
    """The status of a request with exactly these headers."""
    c = s.open()
    c.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
    data = json.dumps(body).encode() if method == "POST" else b""
    for k, v in dict({"host": f"127.0.0.1:{s.port}", "content-length": len(data)}, **headers).items():
        c.putheader(k, str(v))
    c.endheaders(data)
    r = c.getresponse()
    text = r.read().decode()
    c.close()
    return r.status if says in text else (r.status, text)


def without_keys():
    with Server(PROGRAM, "--model", MODEL) as s:
        own = f"http://127.0.0.1:{s.port}"
        before = s.metrics()["evenkeel_engine_requests_total"]
        for kind in ("text/plain", "text/plain;charset=UTF-8", "application/x-www-form-urlencoded", "multipart/form-data", "application/json"):
            got = status(s, {"origin": "https://evil.example", "content-type": kind}, says="evil.example")
            check(f"a foreign page's {kind}", got == 403, got)
        for origin in ("null", f"{own}.evil.example", "http://localhost.evil.example", own.replace("127.0.0.1", "10.0.0.1"), "http://localhost.", "http://evil.example/.localhost",
                       "http://evil.example:80.localhost", "chrome-extension://abc", "apps://x", "xapp://x", "app:x"):
            check(f"origin {origin}", status(s, {"origin": origin}) == 403)
        for path, body in (("/v1/messages", dict(CHAT)), ("/v1/responses", {"input": "hello"}), ("/v1/completions", {"prompt": "a"}),
                           ("/v1/tokenize", {"content": "a"}), ("/chat/completions", CHAT), ("/api/chat", {"model": "m", **CHAT}), ("/api/generate", {"model": "m", "prompt": "a"}),
                           ("/api/pull", {"model": "m"})):
            got = status(s, {"origin": "https://evil.example"}, path=path, body=body, says='"error"')
            check(f"a foreign page's POST {path}", got == 403, got)
        for method, path in (("POST", "/v1/chat/completions"), ("GET", "/"), ("GET", "/metrics"), ("GET", "/v1/models"), ("DELETE", "/v1/responses/resp_1"),
                             ("GET", "/api/tags"), ("DELETE", "/api/delete"), ("GET", "/slots")):
            got = status(s, {"host": f"rebound.evil.example:{s.port}"}, method, path, says="--allowed-hosts")
            check(f"a rebound name's {method} {path}", got == 403, got)
        check("nothing of it was run", s.metrics()["evenkeel_engine_requests_total"] <= before + 2, "")  # the canary's two
        for origin in ("app://obsidian.md", "tauri://localhost", "http://tauri.localhost", "vscode-webview://1a2b", "vscode-file://vscode-app", "file://", "http://0.0.0.0:3000"):
            check(f"a desktop program's {origin}", status(s, {"origin": origin}) == 200)
        for headers in ({}, {"origin": own}, {"origin": "http://localhost:3000"}, {"host": f"localhost:{s.port}", "origin": f"http://localhost:{s.port}"},
                        {"host": f"[::1]:{s.port}", "origin": f"http://[::1]:{s.port}"}, {"host": "app.localhost"}, {"host": "evenkeel:8080"}):
            got = status(s, headers)
            check(f"own {headers}", got == 200, got)
        check("the page", status(s, {}, "GET", "/") == 200)


def behind_a_proxy():
    with Server(PROGRAM, "--model", MODEL, "--allowed-hosts", "api.example.com", "--cors-origins", "https://page.example") as s:
        check("the name is passed through", status(s, {"host": "api.example.com"}) == 200)
        check("and its page", status(s, {"host": "api.example.com", "origin": "https://api.example.com"}) == 200)
        check("and one that is named", status(s, {"host": "api.example.com", "origin": "https://page.example"}) == 200)
        check("no other page", status(s, {"host": "api.example.com", "origin": "https://evil.example"}) == 403)
        check("no other name", status(s, {"host": "evil.example"}) == 403)


def patterns():
    """Those with *, and those that can match nothing, which are errors at once."""
    with Server(PROGRAM, "--model", MODEL, "--cors-origins", "https://*.example.com,chrome-extension://*,http://box.lan:*,https://*.ports.example:*") as s:
        for origin in ("https://a.example.com", "https://a.b.example.com", "chrome-extension://abcdef", "http://box.lan:5173", "https://x.ports.example:8443"):
            check(f"{origin} fits", status(s, {"origin": origin}) == 200)
        for origin in ("https://example.com", "https://a.example.com:8443", "http://a.example.com", "https://a.example.com.evil.example", "http://box.lan",
                       "http://box.lan.evil.example:80", "http://box.lan:5173x", "app://obsidian.md", "http://localhost:3000", "https://evil.example:1.ports.example:2"):
            check(f"{origin} does not", status(s, {"origin": origin}) == 403)
    for option, bad in [("--cors-origins", b) for b in ("example.com", "https://a.example/", "https://a.example/path", "app://*/", "*.example.com", "https://a.example:443", "http://a.example:80",
                                                         "https://a*.example", "https://a.*", "https://a.example:99999", "https://", "localhost:3000", "https://a b", "https://a,,https://b",
                                                         "https://u@a.example", "https://a.example?x", "https://müller.example", "://a", "1a://b")] \
            + [("--allowed-hosts", b) for b in ("*.example.com", "https://a.example", "a.example/", "a.example:", "a.example:x")]:
        r = subprocess.run([PROGRAM, "serve", "--model", MODEL, "--port", "0", option, bad], capture_output=True, text=True, timeout=60)
        check(f"{option} {bad}", r.returncode == 2 and option in r.stderr and len(r.stderr.splitlines()) <= 2, (r.returncode, r.stderr))


def in_a_container():
    with Server(PROGRAM, "--model", MODEL, "--host", "0.0.0.0") as s:
        check("any name", status(s, {"host": "box.lan:8080"}) == 200)
        check("its page", status(s, {"host": "box.lan:8080", "origin": "http://box.lan:8080"}) == 200)
        check("no foreign page", status(s, {"host": "box.lan:8080", "origin": "https://evil.example"}) == 403)


def with_keys():
    with Server(PROGRAM, "--model", MODEL, "--api-key", "k") as s:
        check("any name", status(s, {"host": "api.example.com", "authorization": "Bearer k"}) == 200)
        check("a page without the key", status(s, {"origin": "https://evil.example"}) == 401)


without_keys()
behind_a_proxy()
patterns()
in_a_container()
with_keys()
sys.exit(closing())
