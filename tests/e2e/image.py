#!/usr/bin/env python3
"""An image that umoci has unpacked, run as its configuration says: image.py BUNDLE CONFIG.json PICTURE

The root is read-only but for /tmp; the user has no rights. Run by check_image.sh in namespaces of its own, with a loopback.
Standard library only; closes with `N passed, N failed`."""
import base64, http.client, json, os, shutil, signal, subprocess, sys, time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from counted import check, closing

ROOT, CONFIG, PICTURE = sys.argv[1] + "/rootfs", json.load(open(sys.argv[2]))["config"], sys.argv[3]
CHROOT = shutil.which("chroot") or "/usr/sbin/chroot"
ENV = dict(e.split("=", 1) for e in CONFIG["Env"])


def start(*argv):
    return subprocess.Popen([CHROOT, "--userspec", CONFIG["User"], ROOT, *argv], env=ENV, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def healthy():
    p = start(*CONFIG["Healthcheck"]["Test"][1:])
    said = p.communicate(timeout=20)
    return p.returncode == 0, said


def ask(body):
    c = http.client.HTTPConnection("127.0.0.1", 8080, timeout=60)
    c.request("POST", "/v1/chat/completions", json.dumps(body), {"content-type": "application/json"})
    r = c.getresponse()
    return r.status, json.loads(r.read())


def main():
    check("a user without rights", CONFIG["User"] == "10001:10001")
    check("a health check", CONFIG["Healthcheck"]["Test"][0] == "CMD", CONFIG)
    check("unhealthy without a server", not healthy()[0])
    begun = time.time()
    server = start(*CONFIG["Entrypoint"])
    while not healthy()[0] and server.poll() is None and time.time() < begun + 60:
        time.sleep(0.05)
    took = time.time() - begun
    check("healthy", healthy()[0], (healthy(), server.poll()))
    print(f"measured: ready after {took:.2f} s")
    status, reply = ask({"messages": [{"role": "user", "content": "Hello"}], "temperature": 0, "max_tokens": 8})
    check("an answer", status == 200 and reply["usage"]["completion_tokens"] == 8, reply)
    url = "data:image/png;base64," + base64.b64encode(open(PICTURE, "rb").read()).decode()
    status, reply = ask({"messages": [{"role": "user", "content": [{"type": "text", "text": "What is it?"}, {"type": "image_url", "image_url": {"url": url}}]}],
                         "temperature": 0, "max_tokens": 4})
    check("a picture", status == 200, reply)
    uid = [line.split()[1] for line in open(f"/proc/{server.pid}/status") if line.startswith("Uid:")]
    check("its user", uid == ["10001"], uid)
    server.send_signal(getattr(signal, CONFIG["StopSignal"]))
    _, said = server.communicate(timeout=30)
    check("it stops with 0", server.returncode == 0, (server.returncode, said))
    return closing()


sys.exit(main())
