#!/usr/bin/env python3
"""A server whose standard error is a pipe that nobody reads: unread.py PROGRAM MODEL

It answers as before, tells later how many lines were lost, and ends. Closes with `N passed, N failed`."""
import fcntl, http.client, json, os, signal, subprocess, sys, tempfile, threading, time

from counted import check, closing

PROGRAM, MODEL = sys.argv[1:3]
F_SETPIPE_SZ = 1031

with tempfile.TemporaryDirectory() as d:
    r, w = os.pipe()
    fcntl.fcntl(w, F_SETPIPE_SZ, 4096)
    flags = fcntl.fcntl(w, fcntl.F_GETFL)
    p = subprocess.Popen([PROGRAM, "serve", "--model", MODEL, "--port", "0", "--port-file", f"{d}/port"], stdout=subprocess.DEVNULL, stderr=w)
    try:
        deadline = time.time() + 60
        while not os.path.exists(f"{d}/port"):
            assert p.poll() is None and time.time() < deadline, "the server did not start"
            time.sleep(0.02)
        port = int(open(f"{d}/port").read())
        c = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        body = json.dumps({"messages": [{"role": "user", "content": "a"}], "max_tokens": 1, "temperature": 0})
        done, lost, begin = 0, [], time.time()
        try:
            while time.time() - begin < 30:  # each answer is a line of about 170 bytes: 256 KiB and the pipe hold 1,600
                c.request("POST", "/v1/tokenize", json.dumps({"content": "a"}))
                done += c.getresponse().read() != b""
                if done % 500 == 0:
                    c.request("GET", "/metrics")
                    lost = [l for l in c.getresponse().read().decode().splitlines() if l.startswith("evenkeel_log_lost_lines_total ")]
                    if lost and float(lost[0].split()[1]) > 0:
                        break
        except OSError as e:
            check("it goes on", False, f"after {done} requests: {e}")
        check("lines were lost and counted", lost and float(lost[0].split()[1]) > 0, lost)
        c.request("POST", "/v1/chat/completions", body)
        check("it answers", c.getresponse().read().startswith(b'{"id"'))
        c.close()
        check("the pipe is what it was", fcntl.fcntl(w, fcntl.F_GETFL) == flags)
        os.close(w)
        text = []
        reader = threading.Thread(target=lambda: [text.append(line) for line in os.fdopen(r)])
        reader.start()
        time.sleep(0.5)
        p.send_signal(signal.SIGTERM)
        check("it stops", p.wait(20) == 0)
        reader.join(5)
        check("the loss is told", any("event=log_lost lines=" in line for line in text), len(text))
        check("and what came last", "event=drain" in text[-1], text[-1:])
    finally:
        p.kill()
        p.wait()
sys.exit(closing())
