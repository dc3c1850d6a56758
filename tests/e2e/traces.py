"""A request's traceparent in log, journal and exemplars. traces.py PROGRAM MODEL"""
import json, os, re, sys, tempfile

import counted
from client import Server

PROGRAM, MODEL = sys.argv[1:3]
TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PATHS = {"/v1/chat/completions": {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 3}, "/v1/responses": {"input": "Hi", "max_output_tokens": 3},
         "/v1/messages": {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 3}, "/v1/completions": {"prompt": "Hi", "max_tokens": 3}}


def metrics(s, accept=None):
    c = s.open()
    c.request("GET", "/metrics", headers={"accept": accept} if accept else {})
    r = c.getresponse()
    text = r.read().decode()
    c.close()
    return r.getheader("content-type"), text


def taken_over(s, journal):
    def ask(path, trace, body=None, **more):
        headers = {"content-type": "application/json", **({"traceparent": trace} if trace else {}), **more}
        return s.call("POST", path, PATHS[path] if body is None else body, headers)

    want = {}
    for i, path in enumerate(PATHS):
        trace = f"{i + 1:032x}"
        status, _, r = ask(path, f"00-{trace}-{SPAN}-01")
        assert status == 200, r
        want[r["id"]] = trace
        assert s.says(f"event=request id={r['id']} trace={trace} outcome=done"), s.said()[-500:]
    for bad in (None, "", "00", f"00-{'0' * 32}-{SPAN}-01", f"00-{TRACE.upper()}-{SPAN}-01", f"00-{TRACE}-{SPAN}-01; x=\"y\"", "x" * 5000):
        status, _, r = ask("/v1/chat/completions", bad)
        assert status == 200, (bad, r)
        want[r["id"]] = None
        assert s.says(f"event=request id={r['id']} outcome=done"), (bad, s.said()[-500:])
    assert ask("/v1/chat/completions", f"00-{TRACE}-{SPAN}-00", {"messages": 5})[0] == 400
    assert s.says(f" trace={TRACE} status=400 path="), s.said()[-500:]
    s.wait_idle()
    lines = {}
    for _ in range(100):
        lines = {l["id"]: l.get("trace") for l in map(json.loads, open(journal))}
        if len(lines) == len(want):
            break
    assert lines == want, (lines, want)


def exemplars(s):
    other = TRACE[::-1]
    s.call("POST", "/v1/chat/completions", PATHS["/v1/chat/completions"], {"content-type": "application/json", "traceparent": f"00-{other}-{SPAN}-01"})
    s.wait_idle()
    kind, plain = metrics(s)
    assert kind.startswith("text/plain; version=0.0.4") and " # {" not in plain and "# EOF" not in plain
    kind, text = metrics(s, "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5")
    assert kind == "application/openmetrics-text; version=1.0.0; charset=utf-8" and text.endswith("\n# EOF\n"), kind
    for name in ("evenkeel_first_token_seconds", "evenkeel_request_seconds", "evenkeel_prepare_seconds"):
        found = re.findall(rf'^{name}_bucket{{le="([^"]+)"}} \d+ # {{trace_id="{other}"}} (\S+) (\S+)$', text, re.M)
        assert len(found) == 1, (name, found)
        bound, value, at = found[0]
        first = re.search(rf'^{name}_bucket{{le="([^"]+)"}}', text, re.M).group(1)
        least = 0 if bound == first else float(bound) / 2
        assert least < float(value) <= float(bound) and float(at) > 1.7e9, found
    # Every family is said once, before its samples, and counters' samples have the suffix.
    family, kinds = None, {}
    for line in text.splitlines()[:-1]:
        if line.startswith("# TYPE "):
            _, _, family, kind = line.split()
            assert family not in kinds, line
            kinds[family] = kind
        elif not line.startswith("# HELP "):
            name = re.match(r"[a-zA-Z_:][a-zA-Z0-9_:]*", line)[0]
            suffixes = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count"), "gauge": ("",)}[kinds[family]]
            assert name in {family + x for x in suffixes}, (family, line)


def main():
    with tempfile.TemporaryDirectory() as d:
        journal = os.path.join(d, "journal")
        with Server(PROGRAM, "--model", MODEL, "--journal", journal) as s:
            counted.run(taken_over, s, journal)
            counted.run(exemplars, s)
    return counted.closing()


sys.exit(main())
