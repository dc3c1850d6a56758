#!/usr/bin/env python3
"""Clients that take what others need: tenants.py PROGRAM MODEL

Slow bodies, idle connections; loopback only. Closes with `N passed, N failed`."""
import json, os, socket, sys, threading, time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from client import Server

PROGRAM, MODEL = sys.argv[1:3]
CHAT = {"messages": [{"role": "user", "content": "hello"}], "temperature": 0, "max_tokens": 4}
passed = failed = 0


def check(name, good, detail=""):
    global passed, failed
    passed, failed = passed + bool(good), failed + (not good)
    if not good:
        print(f"FAIL {name}: {detail}")


def slow_bodies():
    """Four bodies fill the memory for them and then bring a byte now and then; an ordinary one is served within seconds."""
    with Server(PROGRAM, "--model", MODEL, "--max-body", "8M", "--request-memory", "64M", "--body-timeout", 60) as s:
        head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 8388600\r\n\r\n"
        slow = [s.socket() for _ in range(4)]
        for c in slow:
            c.sendall(head + b" " * 8_380_000)
        ordinary = dict(CHAT, ignored="x" * 100_000)
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


slow_bodies()
idle_connections()
print(f"{passed} passed, {failed} failed")
sys.exit(failed > 0)
