"""Streamed replies of servers with OpenAI's API: what came, and when. For compare.py and agents.py beside it. Python
standard library only."""
import argparse, http.client, json, os, sys, time
from urllib.parse import urlsplit

MAX_LINE = 1 << 20  # bytes of an event
TIMEOUT = 3600  # seconds without a byte
KEY = "EVENKEEL_BENCH_KEY"  # environment: the API key, which other users could read on the command line


class Failed(Exception):
    """One line for the reader."""


class Parser(argparse.ArgumentParser):
    """Wrong arguments are one line."""

    def error(self, message):
        self.exit(2, f"{self.prog}: {message}; see --help\n")


def number(low, high):
    """The type of an argument: an integer from low to high."""
    def parse(text):
        value = int(text) if text.isdecimal() and len(text) < 12 else -1
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a number from {low} to {high}")
        return value
    return parse


class Server:
    """A server by its address, http(s)://HOST:PORT with or without /v1; its model is the first of its /v1/models."""

    def __init__(self, url, key=None):
        self.name = url
        try:
            parts = urlsplit(url)
            self.host, self.port = parts.hostname, parts.port
        except ValueError as e:
            raise Failed(f"{url[:200]}: {e}") from None
        if parts.scheme not in ("http", "https") or not self.host:
            raise Failed(f"{url[:200]} is no address of a server: http://HOST:PORT is")
        self.kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self.base = parts.path.rstrip("/").removesuffix("/v1") + "/v1"
        self.headers = {"content-type": "application/json", **({"authorization": f"Bearer {key}"} if key else {})}
        self.model = self.first_model()

    def ask(self, method, path, body=None):
        """A connection and its reply, once the head of the reply is there."""
        c = self.kind(self.host, self.port, timeout=TIMEOUT if body else 30)
        try:
            c.request(method, self.base + path, None if body is None else json.dumps(body).encode(), self.headers)
            return c, c.getresponse()
        except BaseException:
            c.close()
            raise

    def first_model(self):
        try:
            c, r = self.ask("GET", "/models")
            try:
                data = r.read(MAX_LINE)
            finally:
                c.close()
        except (OSError, http.client.HTTPException, ValueError) as e:
            raise Failed(f"{self.name}: {e or type(e).__name__}") from None
        if r.status != 200:
            raise Failed(f"{self.name}: /v1/models: status {r.status}: {one_line(data)}")
        try:
            name = json.loads(data)["data"][0]["id"]
        except (ValueError, LookupError, TypeError):
            name = None
        if not isinstance(name, str):
            raise Failed(f"{self.name}: /v1/models names no model: {one_line(data)}")
        return name

    def reply(self, path, body):
        """Sends body, streamed, and reads the reply to its end."""
        out = Reply(time.monotonic())
        body = {"model": self.model, "temperature": 0, **body, "stream": True, "stream_options": {"include_usage": True}}
        try:
            c, r = self.ask("POST", path, body)
            try:
                if r.status == 200:
                    out.read(r)
                else:
                    out.fail(f"status {r.status}: {one_line(r.read(MAX_LINE))}")
            finally:
                c.close()
        except (OSError, http.client.HTTPException) as e:
            out.fail(str(e) or type(e).__name__)
        out.ended = time.monotonic()
        if not out.done:
            out.fail("a stream ended without [DONE]")
        return out


def printable(text):
    """What a terminal may get."""
    return "".join(c if c.isprintable() else "?" for c in text)


def one_line(data):
    """The beginning of what a server sent, bytes or text."""
    text = data.decode(errors="replace") if isinstance(data, bytes) else data
    return printable(" ".join(text.split()))[:120]


class Reply:
    """What a stream said. Times are those of time.monotonic."""

    def __init__(self, begun):
        self.begun, self.ended, self.first, self.last = begun, None, None, None
        self.gaps = []  # seconds between two pieces of text
        self.text = []  # [kind, text] in turns: content or reasoning; where a server cuts pieces does not show
        self.pieces, self.done, self.error = 0, False, ""
        self.prompt_tokens = self.cached_tokens = self.completion_tokens = 0  # as the server counts them; 0: it does not

    @property
    def tokens(self):
        """Of the reply; pieces of text if the server does not count them."""
        return self.completion_tokens or self.pieces

    def content(self):
        return "".join(text for kind, text in self.text if kind == "content")

    def fail(self, text):
        self.error = self.error or text

    def read(self, lines):
        """Reads a stream of events from a file until it ends or is wrong."""
        while not self.error:
            line = lines.readline(MAX_LINE + 1)
            if not line:
                return
            if len(line) > MAX_LINE:
                return self.fail("an event is longer than 1 MiB")
            self.take_line(line, time.monotonic())

    def take_line(self, line, now):
        line = line.rstrip(b"\r\n")
        if not line.startswith(b"data:"):  # names of events, comments, blank lines
            return
        data = line[5:].removeprefix(b" ")
        if data == b"[DONE]":
            self.done = True
            return
        try:
            event = json.loads(data)
        except (ValueError, RecursionError):
            return self.fail(f"an event is not JSON: {one_line(data)}")
        if isinstance(event, dict):
            self.take_event(event, now)
        else:
            self.fail(f"an event is no object: {one_line(data)}")

    def take_event(self, event, now):
        error = event.get("error")
        if error is not None:
            message = error.get("message") if isinstance(error, dict) else None
            return self.fail(f"the server reports: {one_line(str(message or 'an error without a message'))}")
        self.take_usage(event.get("usage"))
        choices = event.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
        delta = choice["delta"] if isinstance(choice.get("delta"), dict) else {"content": choice.get("text")}
        self.take_piece("content", delta.get("content"), now)
        for name in ("reasoning_content", "reasoning"):  # servers disagree on the name; some say the same under both
            if isinstance(delta.get(name), str):
                self.take_piece("reasoning", delta[name], now)
                break

    def take_piece(self, kind, text, now):
        if not isinstance(text, str) or not text:
            return
        if self.first is None:
            self.first = now
        else:
            self.gaps.append(now - self.last)
        self.last = now
        self.pieces += 1
        if self.text and self.text[-1][0] == kind:
            self.text[-1][1] += text
        else:
            self.text.append([kind, text])

    def take_usage(self, usage):
        if not isinstance(usage, dict):
            return
        details = usage.get("prompt_tokens_details")
        counts = {**usage, "cached_tokens": details.get("cached_tokens") if isinstance(details, dict) else None}
        for name in ("prompt_tokens", "cached_tokens", "completion_tokens"):
            if type(counts.get(name)) is int:
                setattr(self, name, counts[name])


def quantile(values, share):
    """The value that this share of the values does not exceed; 0 without values."""
    values = sorted(values)
    return values[min(int(share * len(values)), len(values) - 1)] if values else 0.0


def key_of(args):
    return args.key or os.environ.get(KEY) or None


def run(main):
    """Runs a program's main; what failed is one line on standard error, with status 1."""
    try:
        sys.exit(main())
    except (Failed, AssertionError) as e:  # AssertionError: a server of --serve did not end well
        sys.exit(f"{os.path.basename(sys.argv[0])}: {printable(' '.join(str(e).split()))}")
    except KeyboardInterrupt:
        sys.exit(130)
