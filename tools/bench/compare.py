#!/usr/bin/env python3
"""Servers with OpenAI's API under the same traffic of chat clients, in turns: how fast replies come, and whether equal
requests get equal text.

    compare.py [--serve "evenkeel serve ARGUMENTS"] [URL...]

Every client waits for its own reply. Half of the requests are the same one, the others have half to one and a half times
as many words; clients begin at random times within 0.1 s. The requests are a pure function of the arguments, so that all
servers get the same ones. Each server is idle while another is measured. The table says what its columns are."""
import json, os, random, shlex, statistics, sys, threading, time
from collections import Counter

import streams

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tests", "e2e"))
import client

EACH = 2  # requests of a client, one after the other
MAX_DELAY = 0.1  # seconds: a client begins at a random time within, if there are several
REPEATED = 0  # the number of the request that comes again and again
WORDS = "harbour violet copper meadow signal lantern eleven quiet timber market planet silver garden bridge winter pencil".split()

LEGEND = """
clients           that chat at the same time, each waits for its own reply
requests          of all runs together
tokens/s          of all clients together
first ms 50/95 %  until the first piece of text: the median, and what 95 of 100 stay below
gap ms 50/95 %    between two pieces of one reply, likewise
largest           of these gaps, in ms
same text         replies to the repeated request that are equal, of all to it"""


class Own(client.Server):
    """A server that this program starts and ends; a large model takes minutes to load."""
    start_seconds = 3600


def number_of(seed, who, i):
    """Of a client's request i: every second one is the repeated one, neighbours alternate."""
    return REPEATED if (who + i) % 2 == 0 else (seed << 20) + who * EACH + i + 1


def prompt_of(number, words):
    r = random.Random(number)
    n = words if number == REPEATED else words // 2 + int(r.random() * (words + 1))
    return " ".join(WORDS[int(r.random() * len(WORDS))] for _ in range(n)) + "."


def run_once(server, clients, seed, args, each=EACH):
    """Seconds from the first request to the last reply, and [(number of the request, reply)]."""
    replies, lock = [], threading.Lock()

    def chat(who):
        if clients > 1:
            time.sleep(MAX_DELAY * random.Random(seed * 4096 + who).random())
        for i in range(each):
            number = number_of(seed, who, i)
            body = {"messages": [{"role": "user", "content": prompt_of(number, args.words)}], "max_tokens": args.reply}
            reply = server.reply("/chat/completions", body)
            with lock:
                replies.append((number, reply))

    threads = [threading.Thread(target=chat, args=(who,)) for who in range(clients)]
    begun = time.monotonic()
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return time.monotonic() - begun, replies


def agreeing(texts):
    """The largest number of equal texts."""
    return max(Counter(texts).values(), default=0)


class Side:
    """A server and its rows, one per number of clients: medians of the runs, sums of what is counted."""

    def __init__(self, server, name):
        self.server, self.name, self.rows, self.texts, self.counted, self.error = server, name, [], [], True, ""

    def begin_row(self, clients):
        self.runs, self.row_texts = [], []
        self.row = {"clients": clients, "requests": 0, "failed": 0, "prompt_tokens": 0, "tokens": 0}

    def take(self, seconds, replies):
        good = [(number, r) for number, r in replies if not r.error]
        self.error = self.error or next((r.error for _, r in replies if r.error), "")
        self.counted &= all(r.completion_tokens for _, r in good)
        row = self.row
        row["requests"] += len(replies)
        row["failed"] += len(replies) - len(good)
        row["prompt_tokens"] += sum(r.prompt_tokens for _, r in good)
        tokens = sum(r.tokens for _, r in good)
        row["tokens"] += tokens
        self.row_texts += [repr(r.text) for number, r in good if number == REPEATED]
        first = [r.first - r.begun for _, r in good if r.first is not None]
        gaps = [g for _, r in good for g in r.gaps]
        q = streams.quantile
        self.runs.append((tokens / seconds, q(first, .5), q(first, .95), q(gaps, .5), q(gaps, .95), max(gaps, default=0.0)))

    def end_row(self):
        speed, first, first95, gap, gap95 = (statistics.median(v) for v in list(zip(*self.runs))[:5])
        self.row |= {"tokens_per_second": speed, "first_seconds": [first, first95], "gap_seconds": [gap, gap95, max(r[5] for r in self.runs)],
                     "same_text": agreeing(self.row_texts), "repeated": len(self.row_texts)}
        self.rows.append(self.row)
        self.texts += self.row_texts

    def result(self):
        return {"server": self.name, "model": self.server.model, "same_text": agreeing(self.texts), "repeated": len(self.texts),
                "tokens_counted": self.counted, "rows": self.rows}

    def print(self):
        print(f"\n{streams.printable(self.name)} ({streams.printable(self.server.model)}){'' if self.counted else ': tokens are pieces of text'}")
        print(f"{'clients':>8} {'requests':>9} {'tokens/s':>10} {'first ms 50/95 %':>18} {'gap ms 50/95 %':>18} {'largest':>10} {'same text':>12}")
        for w in self.rows:
            first, gap = [1e3 * x for x in w["first_seconds"]], [1e3 * x for x in w["gap_seconds"]]
            print(f"{w['clients']:8d} {w['requests']:9d} {w['tokens_per_second']:10.1f} {first[0]:9.0f} {first[1]:8.0f} {gap[0]:9.1f} {gap[1]:8.1f} "
                  f"{gap[2]:10.0f} {w['same_text']:5d} of {w['repeated']:<4d}" + (f"  {w['failed']} failed" if w["failed"] else ""))
        print(f"all runs together: {agreeing(self.texts)} of {len(self.texts)} replies to the repeated request have the same text")
        if self.error:
            print(f"first failure: {streams.printable(self.error)}")


def measure(sides, args):
    for s in sides:  # one request each that is not counted: weights not yet read, kernels not yet compiled
        run_once(s.server, 1, 0, args, each=1)
    for i, clients in enumerate(args.clients):
        for s in sides:
            s.begin_row(clients)
        for run in range(args.runs):
            for s in sides:  # in turns, because a machine's minutes are not equal
                s.take(*run_once(s.server, clients, i * args.runs + run + 1, args))
        for s in sides:
            s.end_row()


def start(command):
    """The server of --serve."""
    words = shlex.split(command)
    if len(words) < 2 or words[1] != "serve":
        raise streams.Failed(f"--serve: {command[:80]!r} is no command of a server: evenkeel serve ARGUMENTS is")
    try:
        return Own(words[0], *words[2:])
    except (OSError, AssertionError) as e:
        raise streams.Failed(f"--serve: {' '.join(str(e).split())[-600:]}") from None


def clients_of(text):
    one = streams.number(1, 1024)
    return [one(part) for part in text.split(",")]


def main():
    p = streams.Parser(description=__doc__.split("\n\n")[0])
    p.add_argument("urls", nargs="*", metavar="URL", help="a server that runs: http://HOST:PORT, with or without /v1")
    p.add_argument("--serve", metavar="COMMAND", help="starts this server too, first in the table: \"build/release/evenkeel serve --model DIR\"")
    p.add_argument("--clients", type=clients_of, default=[1, 2, 4, 8], metavar="1,2,...", help="numbers of clients that chat at the same time (1,2,4,8)")
    p.add_argument("--words", type=streams.number(1, 100000), default=512, metavar="N", help="words of the repeated prompt (512)")
    p.add_argument("--reply", type=streams.number(1, 100000), default=64, metavar="N", help="largest number of tokens of a reply (64)")
    p.add_argument("--runs", type=streams.number(1, 1000), default=5, metavar="N", help="runs of each server; medians are reported (5)")
    p.add_argument("--key", metavar="KEY", help=f"API key of the servers at URL; prefer {streams.KEY} in the environment")
    p.add_argument("--json", action="store_true", help="one line of JSON, which plot.py draws")
    args = p.parse_args()
    if not args.urls and not args.serve:
        p.error("a server is needed: URL or --serve")
    # Those that run first: a wrong address shall not cost the time to load a model.
    sides = [Side(streams.Server(url, streams.key_of(args)), url) for url in args.urls]
    if not args.serve:
        return report(sides, args)
    with start(args.serve) as own:
        return report([Side(streams.Server(f"http://127.0.0.1:{own.port}"), args.serve)] + sides, args)


def report(sides, args):
    measure(sides, args)
    if args.json:
        print(json.dumps({"compare": [s.result() for s in sides]}))
    else:
        print(f"traffic   chat requests of {args.words} words (half of them the same, the others half to one and a half times as\n"
              f"          long), at most {args.reply} tokens of reply, greedy; {args.runs} runs of each server in turns, medians")
        print(LEGEND)
        for s in sides:
            s.print()
    return 1 if any(w["failed"] for s in sides for w in s.rows) else 0


if __name__ == "__main__":
    streams.run(main)
