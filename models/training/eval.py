"""The pass table over HTTP: any server that speaks OpenAI's chat completions. Standard library only.

    python3 models/training/eval.py --url http://127.0.0.1:8080 [--only single,think] [--n 50]

Temperature 0, eight requests at a time. Conversations that need several calls are asked step by
step, each step on the right history, and count only if every step is right. Exit status 1 if a
row misses its target.
"""
import argparse
import concurrent.futures
import json
import sys
import time
import urllib.error
import urllib.request

import grade
import mixture
import natural


def wire(messages):
    """Our messages as OpenAI clients send them: arguments are JSON text."""
    out = []
    for m in messages:
        m = dict(m)
        if "tool_calls" in m:
            m["content"] = None
            m["tool_calls"] = [{**c, "function": {"name": c["function"]["name"],
                                                  "arguments": json.dumps(c["function"]["arguments"], ensure_ascii=False)}} for c in m["tool_calls"]]
        out.append(m)
    return out


def ask(url, messages, tools, thinking, max_tokens, timeout):
    body = {"model": "pocket", "messages": wire(messages), "temperature": 0, "max_tokens": max_tokens, "stream": False}
    if tools:
        body["tools"] = tools
    if thinking:
        body["chat_template_kwargs"] = {"enable_thinking": True}
    req = urllib.request.Request(url.rstrip("/") + "/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(req, timeout=timeout) as f:
        return taken(json.load(f))


def taken(reply):
    """A reply as grade.py reads it."""
    m = reply["choices"][0]["message"]
    calls, bad = [], False
    for c in m.get("tool_calls") or []:
        try:
            calls.append((c["function"]["name"], json.loads(c["function"]["arguments"])))
        except ValueError:
            bad = True
    return {"content": m.get("content") or "", "reasoning": m.get("reasoning_content") or "", "calls": calls, "malformed": bad}


def attempt(o, messages, tools, thinking, max_tokens):
    try:
        return ask(o.url, messages, tools, thinking, max_tokens, o.timeout)
    except (urllib.error.URLError, OSError, KeyError, ValueError) as e:
        why = e.read().decode(errors="replace")[:200] if isinstance(e, urllib.error.HTTPError) else repr(e)
        return {"content": "", "reasoning": "", "calls": [], "malformed": True, "error": why}


def row(o, name, pool):
    """(passed, of, [(request, what came, what was wanted)])"""
    jobs = [(e, ep, c) for e, ep in enumerate(mixture.eval_set(name, o.n)) for c in ep.checks]
    limit = 350 if name == "think" else 280
    gots = pool.map(lambda j: attempt(o, j[1].messages[:j[2][0]], j[1].tools, j[1].thinking, limit), jobs)
    good, failures = {}, []
    for (e, ep, (i, kind, want)), got in zip(jobs, gots):
        ok = grade.passed(kind, want, got)
        good[e] = good.get(e, True) and ok
        if not ok:
            failures.append((str(ep.messages[i - 1].get("content"))[-200:], got, want))
    return sum(good.values()), len(good), failures


def free(o, pool):
    """The requests of natural.py: reported, no target."""
    rows = natural.rows()
    gots = list(pool.map(lambda x: attempt(o, x[1], x[0], False, 120), rows))
    bad = [(m[-1]["content"], g, w) for (t, m, w), g in zip(rows, gots) if not natural.right(w, g)]
    return len(rows) - len(bad), len(rows), bad


def main():
    a = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    a.add_argument("--url", required=True)
    a.add_argument("--only", default=",".join(list(mixture.EVAL) + ["natural"]))
    a.add_argument("--n", type=int, help="requests a row instead of the full number")
    a.add_argument("--concurrency", type=int, default=8)
    a.add_argument("--timeout", type=float, default=300)
    a.add_argument("--failures", type=int, default=2, help="failures shown a row")
    a.add_argument("--out", help="write the table as JSON")
    o = a.parse_args()
    table, missed = {}, []
    with concurrent.futures.ThreadPoolExecutor(o.concurrency) as pool:
        for name in o.only.split(","):
            begun = time.time()
            good, of, failures = free(o, pool) if name == "natural" else row(o, name, pool)
            target = 0 if name == "natural" else mixture.EVAL[name][2]
            share = 100 * good / of
            table[name] = {"pass": good, "of": of, "percent": round(share, 1), "target": target, "seconds": round(time.time() - begun, 1)}
            if share < target:
                missed.append(name)
            print(f"{name:8} {good:4} of {of:4}  {share:5.1f} %" + (f"  target {target} %" if target else "  no target") + f"  {time.time() - begun:.0f} s", flush=True)
            for text, got, want in failures[:o.failures]:
                print(f"    asked {text!r}\n    came  {json.dumps(got, ensure_ascii=False)[:300]}\n    want  {json.dumps(want, ensure_ascii=False)[:300]}")
    if "think" in table and "direct" in table and table["think"]["percent"] <= table["direct"]["percent"]:
        missed.append("think is not better than direct")
    if o.out:
        with open(o.out, "w") as f:
            json.dump(table, f, indent=1)
            f.write("\n")
    print("all rows reach their targets" if not missed else "missed: " + ", ".join(missed))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
