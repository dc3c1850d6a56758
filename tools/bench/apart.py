#!/usr/bin/env python3
"""One prompt whose keys and values one server computes and another continues: apart.py PROGRAM [options]

Two kinds of server are given by their options, as --a="--device cuda" --b="--device cpu". The prompt is asked of a server of
each kind alone, then prepared by a server of one kind with --role prefill and answered by one of the other with --role
decode, in both directions; the pages go through a Redis that this program starts. Prints a row per way, and exits 1 if a
digest differs, or if the answering server computed more than a window of the prompt.

With random weights in the shapes of E2B, on a machine with a GPU:

    evenkeel convert --synthetic e2b --type mlx4 random-e2b
    tools/bench/apart.py build/release/evenkeel --model random-e2b

All prompts are random tokens, replies are greedy, and drafts are off, so that a token takes a step."""
import argparse, http.client, json, os, random, shlex, sys, time

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
sys.path[:0] = [os.path.join(ROOT, "tests", "e2e"), os.path.dirname(os.path.abspath(__file__))]
from client import Server  # noqa: E402
from redis_server import Redis, found  # noqa: E402
from streams import Parser, number, one_line  # noqa: E402

FIRST_ID, END_ID = 300, 500  # ids of plain text in every vocabulary
PAGE = 64
SHARED = "evenkeel_cache_shared_"


def arguments():
    p = Parser(prog="apart.py", description=__doc__.partition("\n")[0])
    p.add_argument("program", help="path of evenkeel")
    p.add_argument("--model", default="models/pocket", help="the model (default: the bundled one, whose context has 8,192 tokens)")
    p.add_argument("--tokens", type=number(65, 1000000), default=30000, metavar="N", help="length of the prompt (default: 30000)")
    p.add_argument("--reply", type=number(2, 10000), default=32, metavar="N", help="length of the reply (default: 32)")
    p.add_argument("--window", type=number(0, 1000000), default=1024, metavar="N", help="tokens that the answering server may compute beside a page (default: 1024)")
    p.add_argument("--a", default="--device auto", metavar="OPTIONS", help="options of one kind of server (default: --device auto)")
    p.add_argument("--b", default="--device cpu", metavar="OPTIONS", help="options of the other (default: --device cpu)")
    p.add_argument("--options", default="", metavar="OPTIONS", help="options of both, as --kv i8")
    p.add_argument("--one-way", action="store_true", help="only the first kind prepares")
    p.add_argument("--redis", default=found(), metavar="PATH", help="path of redis-server or valkey-server (default: as PATH has it)")
    return p.parse_args()


class Way:
    """A row: who prepared, who answered, when, and what."""

    def __init__(self, name):
        self.name, self.prepared = name, 0.0
        self.first = self.each = 0.0
        self.cached = self.tokens = self.written = self.read = 0
        self.digest = ""

    def ask(self, server, prompt, reply):
        """A streamed reply: its first event's time, and the rest per token. Returns the seconds until it had ended."""
        body = {"prompt": prompt, "max_tokens": reply, "temperature": 0, "stream": True, "stream_options": {"include_usage": True}, "evenkeel": {"digest": True}}
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=600)
        begun, first, last = time.monotonic(), None, None
        connection.request("POST", "/v1/completions", json.dumps(body), {"content-type": "application/json"})
        r = connection.getresponse()
        if r.status != 200:
            sys.exit(f"{self.name}: status {r.status}: {one_line(r.read())}")
        for line in r:
            if not line.startswith(b"data: {"):
                continue
            event = json.loads(line[6:])
            if "error" in event:
                sys.exit(f"{self.name}: {one_line(str(event['error'].get('message')))}")
            if event.get("choices"):
                last = time.monotonic()
                first = first or last
            self.digest = event.get("evenkeel", {}).get("digest") or self.digest
            usage = event.get("usage")
            if usage:
                self.cached, self.tokens = usage["prompt_tokens_details"]["cached_tokens"], usage["completion_tokens"]
        connection.close()
        self.first, self.each = first - begun, (last - first) / max(self.tokens - 1, 1)
        return time.monotonic() - begun

    def row(self):
        moved = f"{self.written / 1e6:.0f} / {self.read / 1e6:.0f}" if self.written else ""
        prepared = f"{self.prepared:.2f}" if self.prepared else ""
        return f"| {self.name} | {prepared} | {self.first:.2f} | {self.prepared + self.first:.2f} | {1000 * self.each:.1f} | {self.cached:,} | {moved} | `{self.digest}` |"


class Kind:
    """Servers of one kind, with what is shared by all that this run starts."""

    def __init__(self, args, options):
        self.args, self.options = args, options

    def start(self, *more):
        words = shlex.split(self.options) + shlex.split(self.args.options)
        try:
            server = Server(self.args.program, "--model", self.args.model, "--draft", "off", "--max-requests", 1, *words, *more)
        except AssertionError as e:
            sys.exit(f"apart.py: {e}")
        server.call("POST", "/v1/completions", {"prompt": [2] + [FIRST_ID] * 40, "max_tokens": 2, "temperature": 0})
        return server


def until(what, server, good, seconds=30):
    end = time.monotonic() + seconds
    while not good(server.metrics()):
        if time.monotonic() > end:
            sys.exit(f"{what}: not within {seconds} s\n{server.said()[-1000:]}")
        time.sleep(0.01)


def alone(kind, prompt, reply):
    way = Way(f"alone, {kind.options}")
    with kind.start("--cache-bytes", "0") as server:
        way.ask(server, prompt, reply)
    return way


def apart(redis, prepares, answers, prompt, reply):
    way = Way(f"{prepares.options} prepares, {answers.options} answers")
    redis.do("FLUSHALL")
    shared = ["--cache-shared", redis.url(), "--cache-shared-bytes", "8G"]
    with prepares.start(*shared, "--role", "prefill") as p, answers.start(*shared, "--role", "decode") as d:
        for server in (p, d):
            until("Redis is reached", server, lambda m: m[SHARED + "connections"] == 2)
        way.prepared = way.ask(p, prompt, reply)
        if way.tokens != 1:
            sys.exit(f"{way.name}: {way.tokens} tokens of the server that prepares, where 1 is due")
        way.ask(d, prompt, reply)
        way.written, way.read = p.metrics()[SHARED + "written_bytes_total"], d.metrics()[SHARED + "read_bytes_total"]
    return way


def main():
    args = arguments()
    if not args.redis:
        sys.exit("apart.py: no redis-server and no valkey-server on this machine; --redis PATH names one")
    if not os.access(args.redis, os.X_OK):
        sys.exit(f"apart.py: --redis {args.redis}: no program")
    a, b = Kind(args, args.a), Kind(args, args.b)
    draw = random.Random(58)
    prompt = [2] + [draw.randrange(FIRST_ID, END_ID) for _ in range(args.tokens - 1)]
    print("| way | prompt prepared, s | first token after it, s | together, s | per token, ms | tokens not computed | MB written / read | digest |\n|---|--:|--:|--:|--:|--:|--:|---|", flush=True)
    ways, redis = [], Redis(program=args.redis)
    try:
        for make in (lambda: alone(a, prompt, args.reply), lambda: alone(b, prompt, args.reply), lambda: apart(redis, a, b, prompt, args.reply),
                     lambda: None if args.one_way else apart(redis, b, a, prompt, args.reply)):
            way = make()
            if way:
                ways.append(way)
                print(way.row(), flush=True)
    finally:
        redis.end()
    digests = {w.digest for w in ways}
    if len(digests) != 1 or not ways[0].digest:
        sys.exit(f"apart.py: {len(digests)} digests, where all must be equal")
    for w in ways[2:]:
        if args.tokens - w.cached > PAGE + args.window:
            sys.exit(f"apart.py: {w.name}: only {w.cached} of {args.tokens} tokens came from the other server")
    print(f"{len(ways)} ways, {args.tokens} prompt tokens, {ways[0].tokens} reply tokens: digests equal")


if __name__ == "__main__":
    main()
