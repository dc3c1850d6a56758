"""Equal requests at once: the first computes, the others read its tokens as they come, and go on where they want more or its client
leaves. Whole bodies are those of a server without a store. Standard library only.

usage: together.py EVENKEEL MODEL_DIR

The output's last line is `N passed, N failed`."""
import http.client, json, signal, sys, threading, time

from counted import check, closing
from stored import Server, TOOLS, bare, cached, chat, differs

LONG = {"temperature": 1, "max_tokens": 200, "ignore_eos": True}


def together(asks):
    """All at once, the first one a moment before the others: their answers."""
    got = [None] * len(asks)

    def work(i):
        got[i] = asks[i]()

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(asks))]
    for i, t in enumerate(threads):
        t.start()
        time.sleep(0.03 if i == 0 else 0)
    for t in threads:
        t.join()
    return got


def one_computes(cold, warm):
    """Equal requests that come while the first one runs read its tokens; whoever wants more than it has goes on."""
    form = {"response_format": {"type": "json_schema", "json_schema": {"name": "l", "schema": {"type": "array", "items": {"type": "integer"}, "minItems": 40}, "strict": True}}}
    ask = lambda path, body, **headers: lambda: warm.ask(path, body, **headers)
    shared = 0
    for round, more in enumerate(({}, {"logprobs": True, "top_logprobs": 4}, {"tools": TOOLS}, form, {"reasoning_effort": "high", "thinking_budget": 60})):
        lead = {**LONG, **more, "seed": 300 + round}
        variants = [{}, {"stream": True}, {"max_tokens": 30}, {"max_tokens": 230}, {"stop": ["e", "1"], "max_tokens": 220}, {"stream": True, "max_tokens": 205, "stream_options": {"include_usage": True}},
                    {"logprobs": True, "top_logprobs": 2}, {"ignore_eos": False}, {"n": 2}]
        bodies = [chat(**lead)] + [chat(**{**lead, **v}) for v in variants]
        want = [cold.ask(*b) for b in bodies]
        before = warm.metrics()["evenkeel_engine_requests_total"]
        got = together([ask(*b) for b in bodies])
        asked = warm.metrics()["evenkeel_engine_requests_total"] - before
        for i, (w, g) in enumerate(zip(want, got)):
            check(f"together {round}.{i}", w[0] == g[0] and bare(g[2]) == bare(w[2]), differs(w, g))
        shared += sum(cached(g) in ("part", "hit") for g in got)
        check(f"together {round}: {asked} requests for 11 replies", asked < 9, asked)
        again = [warm.ask(*b) for b in bodies]
        check(f"together {round}: and once more", all(bare(g[2]) == bare(w[2]) for g, w in zip(again, want)), [differs(w, g) for g, w in zip(again, want)][:2])
    check("most had nothing to compute", shared > 20, shared)
    before = warm.metrics()["evenkeel_engine_requests_total"]
    path, body = chat(temperature=0, n=3, max_tokens=20, messages=[{"role": "user", "content": "Three of one."}])
    want, got = cold.ask(path, body), warm.ask(path, body)
    check("equal choices are computed once", bare(got[2]) == bare(want[2]) and warm.metrics()["evenkeel_engine_requests_total"] - before <= 2, differs(want, got))


def clients_leave(cold, warm):
    """The first one's client leaves in the middle; so do those of some who follow."""
    ask = lambda path, body: lambda: warm.ask(path, body)
    for round in range(4):
        path, body = chat(**{**LONG, "seed": 400 + round, "max_tokens": 500, "stream": True})
        want = [cold.ask(path, body), cold.ask(path, {**body, "stream": False, "max_tokens": 400})]
        c = http.client.HTTPConnection("127.0.0.1", warm.port, timeout=60)
        c.request("POST", path, json.dumps(body), {"content-type": "application/json"})
        first = c.getresponse()
        first.read(200)

        def leaves():
            d = http.client.HTTPConnection("127.0.0.1", warm.port, timeout=60)
            d.request("POST", path, json.dumps(body), {"content-type": "application/json"})
            d.getresponse().read(300 + 100 * round)
            d.close()

        def lead_leaves():
            time.sleep(0.01 * round)
            c.close()
            first.close()

        got = together([leaves, ask(path, body), ask(path, {**body, "stream": False, "max_tokens": 400}), lead_leaves, leaves, ask(path, body)])
        for i, w in ((1, want[0]), (2, want[1]), (5, want[0])):
            check(f"the first one left {round}.{i}", got[i][0] == 200 and bare(got[i][2]) == bare(w[2]), differs(w, got[i]))


def keys_and_ends(cold):
    """A key's owner sees nothing of another's, and the end of the server is everybody's."""
    warm = Server("--api-key", "one,two")
    ask = lambda path, body, **headers: lambda: warm.ask(path, body, **headers)
    path, body = chat(**{**LONG, "seed": 500, "max_tokens": 500})
    got = together([ask(path, body, authorization="Bearer one"), ask(path, body, authorization="Bearer two")])
    check("keys are apart", [cached(g) for g in got] == ["miss", "miss"] and bare(got[0][2]) == bare(got[1][2]), [cached(g) for g in got])
    path, body = chat(**{**LONG, "seed": 501, "max_tokens": 3000, "stream": True})
    answers = []

    def stopped():
        try:
            answers.append(warm.ask(path, body, authorization="Bearer one")[2])
        except Exception as e:
            answers.append(repr(e))

    threads = [threading.Thread(target=stopped) for _ in range(5)]
    for t in threads:
        t.start()
    time.sleep(0.1)
    for _ in range(2):
        if warm.process.poll() is None:
            warm.process.send_signal(signal.SIGTERM)
        time.sleep(0.02)
    for t in threads:
        t.join()
    status = warm.process.wait(timeout=60)
    log = warm.stop()[1]
    check("followers end with the server", status == 0 and len(answers) == 5 and "AddressSanitizer" not in log, (status, log[-1500:], [a[-200:] for a in answers]))


def main():
    cold, warm = Server(stored=None), Server()
    one_computes(cold, warm)
    clients_leave(cold, warm)
    check("nothing was found wrong", warm.metrics()["evenkeel_stored_replies_wrong_total"] == 0)
    keys_and_ends(cold)
    for s in (cold, warm):
        status, log = s.stop()
        check("it stops in order", status == 0, log[-1000:])
    sys.exit(closing())


main()
