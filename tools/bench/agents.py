#!/usr/bin/env python3
"""An agents' day against a server with OpenAI's API.

Agents share a long system text. Each has a task of its own and a number of turns; a turn appends the result of a tool,
then asks for a short reply. All agents work at the same time, and each waits for its own reply. Prompts are a pure
function of the arguments and of the replies, so two servers with one model get the same work.

Requests are completions of plain text with `ignore_eos`, so that replies have the same length on every server;
--chat sends messages to /v1/chat/completions instead, for servers that have nothing else."""
import concurrent.futures, json, random, time

import streams

WORDS = ("file line error return path test build module value branch commit open close check buffer table index number thread "
         "client server query result field string offset parse write read call queue worker option default and or not the of "
         "in is to with from").split()
TASK_WORDS = 400  # of the text that only one agent has


def text_of(seed, words):
    r = random.Random(seed)
    return " ".join(WORDS[int(r.random() * len(WORDS))] for _ in range(words))


class Agent:
    """One conversation, as text and as messages."""

    def __init__(self, number, args):
        self.number, self.args, self.replies = number, args, []
        self.messages = [{"role": "system", "content": text_of(args.seed, args.system_words)}]
        self.add("user", f"Task {number}: " + text_of(f"{args.seed} task {number}", TASK_WORDS))

    def add(self, role, text):
        if self.messages[-1]["role"] == role:  # templates want turns
            self.messages[-1]["content"] += "\n\n" + text
        else:
            self.messages.append({"role": role, "content": text})

    def body(self):
        a = {"max_tokens": self.args.reply, "ignore_eos": True}
        if self.args.chat:
            return "/chat/completions", {**a, "messages": self.messages}
        return "/completions", {**a, "prompt": "\n\n".join(m["content"] for m in self.messages) + "\n\n"}

    def work(self, server):
        """Replies of all turns; none behind one that failed."""
        for turn in range(self.args.turns):
            self.add("user", f"Result {turn}: " + text_of(f"{self.args.seed} result {self.number} {turn}", self.args.result_words))
            reply = server.reply(*self.body())
            self.replies.append(reply)
            if reply.error:
                break
            self.add("assistant", reply.content())
        return self.replies


def measure(server, args):
    agents = [Agent(i, args) for i in range(args.agents)]
    begun = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(args.agents) as pool:
        replies = [r for part in pool.map(lambda a: a.work(server), agents) for r in part]
    wall = time.monotonic() - begun
    good = [r for r in replies if not r.error]
    first = [r.first - r.begun for r in good if r.first is not None]
    gaps = [g for r in good for g in r.gaps]
    return {"server": server.name, "model": server.model, "agents": args.agents, "turns": args.turns, "wall_seconds": wall,
            "requests": len(replies), "failed": len(replies) - len(good), "error": next((r.error for r in replies if r.error), ""),
            "prompt_tokens": sum(r.prompt_tokens for r in good), "cached_tokens": sum(r.cached_tokens for r in good),
            "tokens": sum(r.tokens for r in good), "tokens_counted": all(r.completion_tokens for r in good),
            "first_seconds": [streams.quantile(first, .5), max(first, default=0.0)],
            "gap_seconds": [streams.quantile(gaps, .5), max(gaps, default=0.0)]}


def print_table(x):
    first, gap = x["first_seconds"], [1e3 * g for g in x["gap_seconds"]]
    print(f"{x['agents']} agents, {x['turns']} turns each, {streams.printable(x['model'])}")
    print(f"wall         {x['wall_seconds']:.2f} s")
    print(f"first token  {first[0]:.3f} s median, {first[1]:.3f} s largest")
    print(f"gap          {gap[0]:.1f} ms median, {gap[1]:.0f} ms largest")
    print(f"prompts      {x['prompt_tokens']} tokens, {x['cached_tokens']} of them reported as read from a cache")
    print(f"replies      {x['tokens']} {'tokens' if x['tokens_counted'] else 'pieces of text'} in {x['requests']} requests, {x['failed']} failed")
    if x["error"]:
        print(f"first failure: {x['error']}")


def main():
    p = streams.Parser(description=__doc__.split("\n\n")[0])
    p.add_argument("url", metavar="URL", help="the server: http://HOST:PORT, with or without /v1")
    p.add_argument("--agents", type=streams.number(1, 1024), default=8, metavar="N", help="that work at the same time (8)")
    p.add_argument("--turns", type=streams.number(1, 10000), default=6, metavar="N", help="of each agent (6)")
    p.add_argument("--system-words", type=streams.number(1, 10000000), default=9000, metavar="N", help="words of the text that all share (9000)")
    p.add_argument("--result-words", type=streams.number(1, 10000000), default=1100, metavar="N", help="words of a tool's result (1100)")
    p.add_argument("--reply", type=streams.number(1, 100000), default=100, metavar="N", help="tokens of a reply (100)")
    p.add_argument("--seed", type=streams.number(0, 1000000), default=1, metavar="N", help="of all texts; another one finds no cache warm (1)")
    p.add_argument("--chat", action="store_true", help="chat messages instead of completions; replies may be shorter")
    p.add_argument("--key", metavar="KEY", help=f"API key; prefer {streams.KEY} in the environment")
    p.add_argument("--json", action="store_true", help="one line of JSON")
    args = p.parse_args()
    result = measure(streams.Server(args.url, streams.key_of(args)), args)
    if args.json:
        print(json.dumps(result))
    else:
        print_table(result)
    return 1 if result["failed"] else 0


if __name__ == "__main__":
    streams.run(main)
