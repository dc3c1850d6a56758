"""The page below a path: under nginx, which removes the path or passes it on, and without a proxy (--path-prefix)."""
import contextlib, http.client, os, shutil, subprocess, tempfile, time

from client import Server, free_port
from looks import ANSWERS, IDLE, LAST, ask, click

CONF = """{user}daemon off; pid {d}/pid; error_log {d}/log warn; worker_processes 1; events {{}}
http {{ access_log off; client_body_temp_path {d}/b; proxy_temp_path {d}/p; fastcgi_temp_path {d}/f; uwsgi_temp_path {d}/u; scgi_temp_path {d}/s;
server {{ listen 127.0.0.1:{port}; proxy_buffering off; proxy_set_header Host $http_host;
location /removed/ {{ proxy_pass http://127.0.0.1:{to}/; }} location /deep/er {{ proxy_pass http://127.0.0.1:{to}; }} }} }}"""


@contextlib.contextmanager
def nginx(to):
    """A port with the server at /removed/, without that path, and at /deep/er, with it."""
    with tempfile.TemporaryDirectory() as d:
        port = free_port()
        with open(f"{d}/conf", "w") as f:
            f.write(CONF.format(d=d, port=port, to=to, user="user root; " if os.getuid() == 0 else ""))
        with open(f"{d}/out", "w+") as out:
            p = subprocess.Popen(["nginx", "-p", d, "-e", f"{d}/log", "-c", f"{d}/conf"], stdout=out, stderr=out)
            try:
                deadline = time.time() + 60
                while True:
                    try:
                        if get(port, "/removed/health")[0] == 200:
                            break
                    except OSError:
                        pass
                    assert p.poll() is None and time.time() < deadline, open(f"{d}/log").read()
                    time.sleep(0.05)
                yield port
            finally:
                p.terminate()
                p.wait(20)


def get(port, path, method="GET", body=None):
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    c.request(method, path, body, {"content-type": "application/json"})
    r = c.getresponse()
    out = r.status, {k.lower(): v for k, v in r.getheaders()}, r.read()
    c.close()
    return out


def works(check, b, url):
    """All of the page's files come from below the path, and it answers."""
    b.open(url)
    b.until("document.getElementById('g-state').textContent === 'ok'", what=f"the state at {url}")
    click(b, "#clear")
    ask(b, "What can you do?")
    b.until(f"{ANSWERS} === 1 && {IDLE}", what=f"an answer at {url}")
    check(f"{url}: an answer", b.js(f"{LAST}.querySelector('.digest')?.textContent.length") == 16, b.js(f"{LAST}.outerHTML"))
    base = "/" + "/".join(url.rstrip("/").split("/")[3:]) + "/"
    outside = b.js("performance.getEntriesByType('resource').map((e) => new URL(e.name).pathname)")
    check(f"{url}: nothing from elsewhere", len(outside) > 10 and all(p.startswith(base) for p in outside), outside)
    check(f"{url}: as Markdown", b.js(f"!!{LAST}.querySelector('.markdown p')"), b.js(f"{LAST}.outerHTML"))


def run(check, b, program, model):
    for wrong in ("llm", "/llm/", "/", "/a b", "/../x"):
        r = subprocess.run([program, "serve", "--model", model, "--path-prefix", wrong], capture_output=True, text=True, timeout=60)
        check(f"--path-prefix {wrong} is an error of one line", r.returncode == 2 and wrong in r.stderr and "slash" in r.stderr, (r.returncode, r.stderr))
    with Server(program, "--model", model, "--path-prefix", "/deep/er") as s:
        status, head, _ = get(s.port, "/deep/er")
        check("the path without its slash leads to the page", (status, head.get("location")) == (308, "/deep/er/"), (status, head))
        for path, want in (("/deep/er/", 200), ("/deep/er/v1/models", 200), ("/deep/er/health", 200), ("/health", 200), ("/", 200), ("/deep/erv1/models", 404), ("/deep/er/deep/er/", 404), ("/deep", 404)):
            status, _, body = get(s.port, path)
            check(f"{path} is {want}", status == want, (status, body[:200]))
        status, _, body = get(s.port, "/deep/er/v1/messages", "POST", "{")
        check("errors have the form of their API", status == 400 and b'"type":"error"' in body.replace(b" ", b""), body)
        works(check, b, f"http://127.0.0.1:{s.port}/deep/er/")
        if not shutil.which("nginx"):
            print("skipped the page under nginx: it is not installed (make setup-checks)")
            check.skipped += 1
            return
        with nginx(s.port) as port:
            for path in ("/removed/", "/deep/er/", "/deep/er"):
                works(check, b, f"http://127.0.0.1:{port}{path}")
