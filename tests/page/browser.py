"""Headless Chromium over its debugging pipe. Python standard library only."""
import base64, json, os, select, shutil, subprocess, tempfile, time


def program():
    """The browser's program; None without."""
    return next((p for p in map(shutil.which, ("chromium", "chromium-browser", "google-chrome")) if p), None)


class Browser:
    """One page; use with `with`. Exceptions of the page's scripts and refusals of its content policy are collected in
    .problems."""

    def __init__(self):
        self.profile = tempfile.mkdtemp(prefix="evenkeel-page-")
        to_us, from_us = os.pipe(), os.pipe()
        flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--mute-audio",
                 "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions",
                 "--disable-default-apps", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
                 "--hide-scrollbars", f"--user-data-dir={self.profile}", "--remote-debugging-pipe", "about:blank"]
        self.process = subprocess.Popen(
            ["bash", "-c", f'exec "$@" 3<&{from_us[0]} 4>&{to_us[1]}', "browser", program(), *flags],
            pass_fds=(from_us[0], to_us[1]), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(from_us[0])
        os.close(to_us[1])
        self.out, self.inn = from_us[1], to_us[0]
        self.rest, self.number, self.problems, self.session = b"", 0, [], None
        target = next(t for t in self.send("Target.getTargets")["targetInfos"] if t["type"] == "page")
        self.session = self.send("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(domain + ".enable")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.out)
        os.close(self.inn)
        shutil.rmtree(self.profile, ignore_errors=True)

    def _read(self, deadline):
        while b"\0" not in self.rest:
            if not select.select([self.inn], [], [], max(0, deadline - time.time()))[0]:
                raise AssertionError("the browser does not answer")
            part = os.read(self.inn, 1 << 20)
            if not part:
                raise AssertionError("the browser has ended")
            self.rest += part
        line, self.rest = self.rest.split(b"\0", 1)
        return json.loads(line)

    def _note(self, message):
        kind, p = message.get("method"), message.get("params", {})
        if kind == "Runtime.consoleAPICalled":
            self.problems.append("a line in the console: " + " ".join(str(a.get("value", a.get("description"))) for a in p["args"])[:300])
        elif kind == "Runtime.exceptionThrown":
            d = p["exceptionDetails"]
            self.problems.append(d.get("exception", {}).get("description") or d["text"])
        elif kind == "Log.entryAdded" and p["entry"]["level"] == "error" and p["entry"]["source"] != "network":
            self.problems.append(p["entry"]["text"])
        elif kind == "Network.requestWillBeSent" and not p["request"]["url"].startswith(("http://127.0.0.1:", "blob:http://127.0.0.1:", "data:", "about:")):
            self.problems.append("a request for " + p["request"]["url"][:200])

    def send(self, method, **params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.out, json.dumps(message).encode() + b"\0")
        deadline = time.time() + 30
        while True:
            m = self._read(deadline)
            if m.get("id") == self.number:
                assert "error" not in m, (method, m["error"])
                return m["result"]
            self._note(m)

    def js(self, expression):
        """The value of an expression; promises are awaited."""
        r = self.send("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True, userGesture=True)
        assert "exceptionDetails" not in r, (expression, r["exceptionDetails"].get("exception", {}).get("description"))
        return r["result"].get("value")

    def until(self, expression, seconds=60, what=""):
        deadline = time.time() + seconds
        while True:
            try:
                value = self.js(expression)
            except AssertionError as e:  # the page went away while it was asked, as it does when it is loaded again
                if "navigated or closed" not in str(e):
                    raise
                value = None
            if value:
                return value
            assert time.time() < deadline, f"{what or expression} did not come true in {seconds} s"
            time.sleep(0.03)

    def open(self, url):
        self.send("Page.navigate", url=url)
        self.until("document.readyState === 'complete' && location.href.startsWith('http')")

    def size(self, width, height, dark=False, calm=False):
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.send("Emulation.setEmulatedMedia", features=[
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
            {"name": "prefers-reduced-motion", "value": "reduce" if calm else "no-preference"}])

    def key(self, key, text=None, modifiers=0):
        code = {"Enter": 13, "Tab": 9, "Escape": 27, " ": 32, "ArrowUp": 38, "/": 191}.get(key) or ord(key.upper())
        name = {"/": "Slash"}.get(key, f"Key{key.upper()}" if key.isalpha() and len(key) == 1 else key)
        self.send("Input.dispatchKeyEvent", type="keyDown", key=key, code=name, windowsVirtualKeyCode=code, modifiers=modifiers, **({"text": text} if text else {}))
        self.send("Input.dispatchKeyEvent", type="keyUp", key=key, code=name, windowsVirtualKeyCode=code, modifiers=modifiers)

    def type(self, text):
        self.send("Input.insertText", text=text)

    def screenshot(self, path):
        with open(path, "wb") as f:
            f.write(base64.b64decode(self.send("Page.captureScreenshot", format="png")["data"]))
