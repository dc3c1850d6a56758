#!/usr/bin/env python3
"""Tool calls survive staggered arrival: staggered.py PROGRAM MODEL [SEED [DIGESTS]]

Fifteen different tool-calling requests alone, all at once, and at random times: each call must be right
in every company, and the digest over all of a request's sampled logits must be the same in all three. DIGESTS: a
file for them, so that two devices' are compared."""
import json, random, sys, threading, time

from client import Server


def tool(name, description, required, **properties):
    return {"type": "function", "function": {"name": name, "description": description, "parameters": {
        "type": "object", "properties": {k: dict(zip(("type", "description"), v)) for k, v in properties.items()}, "required": required}}}


TOOLS = [
    tool("get_weather", "Get the current weather for a city.", ["city"], city=("string", "The city")),
    tool("set_timer", "Start a timer.", ["minutes"], minutes=("integer", "How many minutes")),
    tool("send_email", "Send an email.", ["to", "subject"], to=("string", "Address"), subject=("string", "Subject line")),
    tool("read_file", "Read a file.", ["path"], path=("string", "Path of the file")),
    tool("convert_currency", "Convert an amount of money.", ["amount", "from", "to"], amount=("number", "The amount"),
         **{"from": ("string", "Currency code"), "to": ("string", "Currency code")}),
    tool("get_stock_price", "Get the price of a stock.", ["symbol"], symbol=("string", "Ticker symbol")),
]

# (request, tools declared with it, name, arguments)
ASKED = [
    ("What's the weather in Oslo?", (0,), "get_weather", {"city": "Oslo"}),
    ("What's the weather in Trondheim?", (0, 1), "get_weather", {"city": "Trondheim"}),
    ("What is the weather in Lisbon right now?", (0, 3, 5), "get_weather", {"city": "Lisbon"}),
    ("How is the weather in Kyoto?", (2, 0), "get_weather", {"city": "Kyoto"}),
    ("Set a timer for 12 minutes.", (1,), "set_timer", {"minutes": 12}),
    ("Set a timer for 45 minutes.", (0, 1, 2, 3), "set_timer", {"minutes": 45}),
    ("Please set a timer for 7 minutes.", (1, 4), "set_timer", {"minutes": 7}),
    ("Read the file src/main.c", (3,), "read_file", {"path": "src/main.c"}),
    ("Read the file docs/notes.txt", (0, 1, 3), "read_file", {"path": "docs/notes.txt"}),
    ("Read the file /etc/hosts", (5, 3, 1), "read_file", {"path": "/etc/hosts"}),
    ("Convert 250 USD to EUR.", (4,), "convert_currency", {"amount": 250, "from": "USD", "to": "EUR"}),
    ("Convert 99 GBP to JPY.", (0, 4, 5), "convert_currency", {"amount": 99, "from": "GBP", "to": "JPY"}),
    ("What is the stock price of NVDA?", (5,), "get_stock_price", {"symbol": "NVDA"}),
    ("Get the stock price of TSLA.", (1, 5, 0), "get_stock_price", {"symbol": "TSLA"}),
    ("Send an email to mira@example.org with the subject Hello", (2,), "send_email", {"to": "mira@example.org", "subject": "Hello"}),
]


def body(i):
    text, tools, _, _ = ASKED[i]
    return {"model": "pocket", "messages": [{"role": "user", "content": text}], "tools": [TOOLS[t] for t in tools], "temperature": 0,
            "max_tokens": 100, "evenkeel": {"digest": True}}


def judge(i, reply):
    """(right, digest, what was called)"""
    calls = reply["choices"][0]["message"].get("tool_calls") or []
    got = [(c["function"]["name"], json.loads(c["function"]["arguments"])) for c in calls]
    return got == [ASKED[i][2:]], reply["evenkeel"]["digest"], got


def together(s, delays):
    out = [None] * len(ASKED)

    def one(i):
        time.sleep(delays[i])
        out[i] = judge(i, s.chat(body(i)))

    threads = [threading.Thread(target=one, args=(i,)) for i in range(len(ASKED))]
    [t.start() for t in threads]
    [t.join() for t in threads]
    return out


def main():
    program, model = sys.argv[1:3]
    r = random.Random(int(sys.argv[3], 0) if len(sys.argv) > 3 and sys.argv[3] else 1)
    n, passed, failed = len(ASKED), 0, 0
    with Server(program, "--model", model, "--max-requests", 16, "--ctx", 1024) as s:
        alone = [judge(i, s.chat(body(i))) for i in range(n)]
        rows = [("alone", alone), ("at once", together(s, [0] * n)),
                ("staggered", together(s, [r.random() * 1.5 for _ in range(n)])), ("staggered again", together(s, [r.random() * 0.4 for _ in range(n)]))]
    if len(sys.argv) > 4:
        with open(sys.argv[4], "w") as f:
            f.writelines(f"{x and x[1]}\n" for x in alone)
    for name, row in rows:
        right, same = sum(bool(x and x[0]) for x in row), sum(bool(x and x[1] == a[1]) for x, a in zip(row, alone))
        print(f"{name}: {right}/{n} right, {same}/{n} with the bits of alone")
        for i, x in enumerate(row):
            if not x or not x[0]:
                print(f"  {ASKED[i][0]!r}: {x and x[2]}")
        if right == n and same == n:
            passed += 1
        else:
            failed += 1
    print(f"{passed} passed, {failed} failed")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
