#!/usr/bin/env python3
"""`evenkeel batch`, `diff` and /v1/fingerprint: batch.py PROGRAM MODEL [NAME...]

One input through engines and servers, whole, in shards, killed and stopped: the bytes of the result are the same. MODEL
is a checkpoint folder. Prints one line per test and closes with `N passed, N failed`."""
import base64, fcntl, hashlib, json, os, pty, random, resource, signal, socket, struct, subprocess, sys, tempfile, termios, time, traceback

from client import Server
from drawn import png_of

PROGRAM, MODEL, ONLY = sys.argv[1], sys.argv[2], sys.argv[3:]
DIR = tempfile.TemporaryDirectory()
TESTS, LONG, SHORT = [], 800, 200


def test(f):
    TESTS.append(f)
    return f


def path(name):
    return os.path.join(DIR.name, name)


def fresh(name):
    for end in ("", ".part", ".tmp", ".run.json"):
        if os.path.exists(path(name) + end):
            os.remove(path(name) + end)
    return path(name)


def sha(name):
    return hashlib.sha256(open(path(name), "rb").read()).hexdigest()


def run(*args, status=0, says=None, env=None, **more):
    """`evenkeel ARGS` to its end."""
    r = subprocess.run([PROGRAM, *map(str, args)], capture_output=True, text=True, env={**os.environ, **(env or {})}, timeout=300, **more)
    assert r.returncode == status, (args, r.returncode, r.stdout, r.stderr)
    if says:
        assert says in r.stdout + r.stderr, (says, r.stdout, r.stderr)
        assert r.stderr.count("\n") <= 1, r.stderr
    return r.stdout


def batch(out, *args, source="in.jsonl", **more):
    return run("batch", "--model", MODEL, path(source), path(out), *args, **more)


# ---------------------------------------------------------------- the input

def line(name, url, **body):
    return {"custom_id": name, "method": "POST", "url": url, "body": body}


def chat(name, text, **more):
    return line(name, "/v1/chat/completions", messages=[{"role": "user", "content": text}], **more)


def picture():
    rows = b"".join(b"\0" + bytes((x * 5 + y * 3 + c * 60) & 255 for x in range(64) for c in range(3)) for y in range(48))
    return "data:image/png;base64," + base64.b64encode(png_of(64, 48, rows)).decode()


WEATHER = {"type": "function", "function": {"name": "get_weather", "description": "The weather of a city", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}
SCHEMA = {"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": {
    "type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}}}


def lines():
    """Requests of every kind; some sampled without a seed, some of them wrong."""
    out = [chat(f"greedy {i}", f"What is {i} and {i * 7}?", temperature=0, max_tokens=24) for i in range(12)]
    out += [chat(f"sampled {i}", "Tell me something.", model="some-model", temperature=2, top_p=1, top_k=0, max_tokens=24) for i in range(12)]
    out += [chat(f"logprobs {i}", f"Name {i} things.", max_tokens=12, logprobs=True, top_logprobs=3) for i in range(6)]
    out += [chat("several", "One word.", n=3, max_tokens=8), chat("digest", "Hi", max_tokens=8, temperature=0, evenkeel={"digest": True}),
            chat("tools", "What's the weather in Oslo?", tools=[WEATHER], temperature=0), chat("tools, sampled", "Weather in Rome?", tools=[WEATHER]),
            chat("schema", "A number.", response_format=SCHEMA, max_tokens=20), chat("seed", "Hello", seed=7, max_tokens=9),
            chat("long prompt", "A wide deck and a deep hold. " * 60, max_tokens=4), chat("the same long prompt", "A wide deck and a deep hold. " * 60, max_tokens=5),
            line("picture", "/v1/chat/completions", max_tokens=8, temperature=0, messages=[{"role": "user", "content": [
                {"type": "image_url", "image_url": {"url": picture()}}, {"type": "text", "text": "What is it?"}]}]),
            line("texts", "/v1/completions", prompt=["The sky", "A ship"], max_tokens=8, logprobs=2, echo=True, temperature=0),
            line("tokens", "/v1/completions", prompt=[2, 17, 9], max_tokens=1, logprobs=1, echo=True, temperature=0, seed=1234),
            line("response", "/v1/responses", input="Hello", max_output_tokens=12, instructions="Be short."),
            {"custom_id": "message", "params": {"model": "claude", "max_tokens": 12, "messages": [{"role": "user", "content": "Hello"}]}},
            {"custom_id": "message with tools", "params": {"model": "claude", "max_tokens": 60, "temperature": 0, "messages": [{"role": "user", "content": "What's the weather in Oslo?"}],
             "tools": [{"name": "get_weather", "description": "The weather of a city", "input_schema": WEATHER["function"]["parameters"]}]}}]
    return out


def wrong():
    """What is a line of an error: (line, its status or None, a part of its sentence)."""
    return [(chat("streams", "x", stream=True), 400, "the replies of a batch are whole"),
            (chat("too long", "word " * 30000), 400, "prompt is too long: more than"),
            (chat("no such field", "x", nonsense=1), 400, "nonsense"),
            (line("no messages", "/v1/chat/completions", messages=3), 400, "messages"),
            (line("previous", "/v1/responses", input="x", previous_response_id="resp_1"), 404, "previous_response_id"),
            (chat("share", "x", cache_hit_threshold=0.5), 400, "cache_hit_threshold"),
            (line("embeddings", "/v1/embeddings", input="x"), None, "url must be"),
            ({**chat("get", "x"), "method": "GET"}, None, "method must be POST"),
            ({"method": "POST", "url": "/v1/completions", "body": {}}, None, "custom_id is needed"),
            ("not json", None, "no JSON object"), ('{"custom_id":"broken","params":{"a":[}', None, "brackets"),
            ({"custom_id": "no messages, Anthropic's", "params": {"model": "c", "max_tokens": 1, "messages": []}}, 400, "messages"),
            (line("far", "/v1/chat/completions", messages=[{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://127.0.0.1:1/x.png"}}]}]), 400, "")]


def write(name, rows):
    with open(path(name), "w") as f:
        f.writelines((r if isinstance(r, str) else json.dumps(r)) + "\n" for r in rows)


def first():
    """The result that all others are compared with."""
    if not os.path.exists(path("out")):
        rows = lines()
        for i, (row, _, _) in enumerate(wrong()):
            rows.insert(3 * i + 1, row)
        write("in.jsonl", rows)
        batch("out", "--errors", path("errors"))
    return path("out")


def same(name, *args, **more):
    first()
    fresh(name)
    batch(name, *args, **more)
    if sha(name) != sha("out"):
        raise AssertionError(run("diff", path("out"), path(name), status=1))
    os.remove(path(name))


# ---------------------------------------------------------------- what is in it

@test
def results_are_in_the_order_of_the_input_and_errors_are_lines():
    first()
    source = [l for l in open(path("in.jsonl"))]
    results = [json.loads(l) for l in open(path("out"))]
    assert len(source) == len(results)
    expected = {json.dumps(r) if not isinstance(r, str) else r: (status, says) for r, status, says in wrong()}
    for text, r in zip(source, results):
        text = text.rstrip("\n")
        try:
            name = json.loads(text).get("custom_id")
        except ValueError:
            name = None
        assert r["custom_id"] == name, (r, text)
        if text in expected:
            status, says = expected[text]
            assert says in json.dumps(r), (says, r)
            if "result" in r:
                assert r["result"]["type"] == "errored" and r["result"]["error"]["error"]["message"], r
            elif status is None:
                assert r["response"] is None and r["error"]["code"] == "invalid_line", r
            else:
                assert r["response"]["status_code"] == status and r["error"] is None, r
        elif "result" in r:
            m = r["result"]["message"]
            assert r["result"]["type"] == "succeeded" and m["content"] and m["usage"]["input_tokens"] > 0 and m["usage"]["cache_read_input_tokens"] == 0, r
        else:
            body, id_ = r["response"]["body"], hashlib.sha256(text.encode()).hexdigest()[:24]
            assert r["id"] == "batch_req_" + id_ and r["response"]["request_id"] == "req_" + id_ and body["id"].endswith(id_), r
            assert r["response"]["status_code"] == 200 and body.get("created", body.get("created_at")) == 0, r
            assert body["model"] == json.loads(text)["body"].get("model", "evenkeel"), r
    errors = [l for l in open(path("errors"))]
    assert len(errors) == len(wrong()) and all(e in open(path("out")).read() for e in errors)
    about = json.load(open(path("out.run.json")))
    assert about["output_sha256"] == sha("out") and about["run"]["input_sha256"] == sha("in.jsonl") and about["errors"] == len(errors), about


@test
def seeds_follow_from_the_custom_id():
    first()
    by_name = {r["custom_id"]: r for r in map(json.loads, open(path("out")))}
    for i in range(12):
        name = f"sampled {i}".encode()
        seed = int.from_bytes(hashlib.sha256(b"evenkeel.batch" + bytes(8) + name).digest()[:8], "little") >> 11
        assert by_name[name.decode()]["response"]["body"]["evenkeel"]["seed"] == seed
    texts = {by_name[f"sampled {i}"]["response"]["body"]["choices"][0]["message"]["content"] for i in range(12)}
    assert len(texts) > 1, texts  # one prompt, drawn differently
    fresh("other")
    batch("other", "--seed", 5)
    assert sha("other") != sha("out")
    said = run("diff", path("out"), path("other"), status=1)
    assert "line " in said and "sampled 0" in said, said


# ---------------------------------------------------------------- the same bytes

@test
def threads_instruction_sets_and_company_change_nothing():
    same("a", "--threads", 1, "--max-requests", 1)
    same("a", "--threads", 2, "--max-requests", 3, "--chunk", 7, "--draft", "off", env={"LC_ALL": "de_DE.UTF-8", "TZ": "Asia/Tokyo"})
    seen = set()
    for isa in run("version", "--isas").split():
        fresh("a")
        batch("a", "--shard", "1/8", "--isa", isa)
        seen.add(sha("a"))
    assert len(seen) == 1, seen


@test
def servers_give_the_same_bytes():
    first()
    with Server(PROGRAM, "--model", MODEL) as a, Server(PROGRAM, "--model", MODEL, "--max-requests", 2, "--queue", 70, "--cache-bytes", 0) as b:
        urls = ["--url", f"http://127.0.0.1:{a.port}", "--url", f"http://127.0.0.1:{b.port}/"]
        same("b", *urls)
        for s in (a, b):
            assert s.metrics()["evenkeel_steps_total"] > 0, "one of the servers had nothing to do"
        same("b", *urls[:2])
        same("b", *urls[2:], "--max-requests", 64)  # more than it takes: 429, asked again


@test
def a_server_that_stores_replies_gives_the_same_bytes():
    first()
    with Server(PROGRAM, "--model", MODEL, "--cache-replies", "64M") as s:
        for _ in range(2):
            same("b", "--url", f"http://127.0.0.1:{s.port}")


@test
def a_server_with_a_key():
    first()
    with Server(PROGRAM, "--model", MODEL, "--api-key", "sesame") as s:
        url = ("--url", f"http://127.0.0.1:{s.port}")
        fresh("b")
        batch("b", *url, status=2, says="status 401")
        same("b", *url, env={"EVENKEEL_API_KEY": "sesame"})
        assert s.call("GET", "/v1/fingerprint")[0] == 401


def grows(name, size, process):
    """The part's size when it has more bytes; 0 when the process ended before."""
    while process.poll() is None:
        if os.path.exists(path(name)) and os.path.getsize(path(name)) > size:
            return os.path.getsize(path(name))
        time.sleep(0.01)
    return 0


def answers(port, process, seconds=60):
    """Waits for a server to listen, while the process runs."""
    deadline = time.time() + seconds
    while process.poll() is None:
        try:
            return socket.create_connection(("127.0.0.1", port), 5).close()
        except OSError:
            assert time.time() < deadline, "a replica did not come back"
            time.sleep(0.02)


@test
def replicas_that_are_killed_and_come_back():
    want = long_sha()
    servers = [Server(PROGRAM, "--model", MODEL) for _ in range(3)]
    try:
        fresh("b")
        urls = [x for s in servers for x in ("--url", f"http://127.0.0.1:{s.port}")]
        p = subprocess.Popen([PROGRAM, "batch", path("long.jsonl"), path("b"), *urls], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        rnd, kills, size = random.Random(1), 0, 0
        while kills < 4 and (size := grows("b.part", size, p)):
            i = rnd.randrange(3)
            port = servers[i].port
            servers[i].process.kill()
            servers[i].process.wait()
            kills += 1
            again = subprocess.Popen([PROGRAM, "serve", "--model", MODEL, "--port", str(port)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            servers[i].process = again
            answers(port, p)
        out, err = p.communicate(timeout=200)
        assert p.returncode == 0 and kills >= 2, (kills, out, err)
        assert sha("b") == want, run("diff", path("long"), path("b"), status=1)
    finally:
        for s in servers:
            s.process.kill()
            s.process.wait()


@test
def a_server_of_another_kind_stops_the_run():
    first()
    with Server(PROGRAM, "--model", MODEL) as a, Server(PROGRAM, "--model", MODEL, "--kv", "8") as b:
        fresh("b")
        batch("b", "--url", f"http://127.0.0.1:{a.port}", "--url", f"http://127.0.0.1:{b.port}", status=2, says="its numerics is")
        fresh("b")
        batch("b", "--url", f"http://127.0.0.1:{a.port}", "--ctx", 256, status=2, says="its context is")
    fresh("b")
    batch("b", "--url", "ftp://127.0.0.1", status=2, says="--url ftp://127.0.0.1")


@test
def what_lm_evaluation_harness_asks():
    """Requests of its local-completions: a continuation's log-likelihood, alone and in a list, is the sum of the same numbers."""
    ask = lambda prompt: {"model": "pocket", "prompt": prompt, "temperature": 0, "max_tokens": 1, "logprobs": 1, "seed": 1234, "echo": True}
    with Server(PROGRAM, "--model", MODEL) as s:
        ids = [s.call("POST", "/v1/tokenize", {"prompt": t})[2]["tokens"] for t in ("The sky is blue", "The sky is green")]
        begin = next(i for i in range(len(ids[0])) if ids[0][i] != ids[1][i])
        def scores(choice):
            p = choice["logprobs"]
            n, top = p["token_logprobs"][begin:-1], p["top_logprobs"][begin:-1]
            assert p["token_logprobs"][0] is None and len(p["tokens"]) == len(p["token_logprobs"])
            return sum(n), all(x == max(t.values()) for x, t in zip(n, top))
        status, _, both = s.call("POST", "/v1/completions", ask(ids))
        assert status == 200 and [c["index"] for c in both["choices"]] == [0, 1], both
        alone = [s.call("POST", "/v1/completions", ask(i))[2]["choices"][0] for i in ids]
        assert [scores(c) for c in both["choices"]] == [scores(c) for c in alone]
        assert scores(alone[0]) != scores(alone[1])
    write("harness.jsonl", [line(f"{k}", "/v1/completions", **ask(i)) for k, i in enumerate([ids, *ids])])
    fresh("harness")
    batch("harness", source="harness.jsonl")
    bodies = [json.loads(l)["response"]["body"]["choices"] for l in open(path("harness"))]
    assert [c["logprobs"] for c in bodies[0]] == [c["logprobs"] for c in both["choices"]] == [bodies[1][0]["logprobs"], bodies[2][0]["logprobs"]]


# ---------------------------------------------------------------- killed, stopped, refused

def sha_of(name, n):
    """A batch of n lines, computed once."""
    if not os.path.exists(path(name)):
        write(name + ".jsonl", [chat(f"{i}", f"Count to {i}.", max_tokens=40, evenkeel={"digest": i % 2 == 0}) for i in range(n)])
        batch(name, source=name + ".jsonl")
    return sha(name)


def long_sha():
    """Seconds of work, for what is killed again and again."""
    return sha_of("long", LONG)


def short_sha():
    return sha_of("short", SHORT)


def records(name):
    """The indices of whole records in the part."""
    b, at, found = open(path(name), "rb").read(), 0, []
    while at + 24 <= len(b):
        index, n, _, check = struct.unpack_from("<QIIQ", b, at)
        if at + 24 + n > len(b):
            break
        body = b[at + 24:at + 24 + n]
        assert int(hashlib.sha256(b[at:at + 16] + body).hexdigest()[:16], 16) == check
        found.append(index)
        at += 24 + n
    return found[1:]  # without the head


@test
def killed_twenty_times():
    want, rnd, before = long_sha(), random.Random(7), []
    fresh("k")
    for kills in range(20):
        p = subprocess.Popen([PROGRAM, "batch", "--model", MODEL, path("long.jsonl"), path("k")], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        time.sleep(0.1 + 0.2 * rnd.random())
        p.kill()
        p.communicate()
        if os.path.exists(path("k.part")):
            now = records("k.part")
            assert now[:len(before)] == before, "a finished line was lost"
            assert len(set(now)) == len(now), "a line is there twice"
            before = now
        elif os.path.exists(path("k")):  # a fast machine: once more from the start
            assert sha("k") == want
            before = []
            fresh("k")
    said = batch("k", source="long.jsonl")
    assert f"{LONG - len(before)} computed now" in said, (len(before), said)
    assert sha("k") == want
    assert not os.path.exists(path("k.part")) and not os.path.exists(path("k.tmp"))
    assert "0 computed now" in batch("k", source="long.jsonl")  # the end of this very run: nothing to do


@test
def killed_during_the_last_copy():
    """OUT is there or not, never in half; the part is complete and OUT is written again."""
    want = long_sha()
    fresh("k")
    p = subprocess.Popen([PROGRAM, "batch", "--model", MODEL, path("long.jsonl"), path("k")], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    nearly = 0.95 * os.path.getsize(path("long"))
    while p.poll() is None and not (os.path.exists(path("k.part")) and os.path.getsize(path("k.part")) > nearly):
        time.sleep(0.001)
    while p.poll() is None and not os.path.exists(path("k.tmp")):
        pass
    p.kill()
    p.wait()
    if os.path.exists(path("k")):
        assert sha("k") == want
    batch("k", source="long.jsonl")
    assert sha("k") == want


@test
def stopped_by_a_signal_and_told_so():
    long_sha()
    for number in (signal.SIGINT, signal.SIGTERM):
        fresh("s")
        # One line at a time: on a busy machine many together can all be computed before the first is written.
        heard = lambda: signal.signal(number, signal.SIG_DFL)  # a shell's job in the background ignores SIGINT
        p = subprocess.Popen([PROGRAM, "batch", "--model", MODEL, "--max-requests", "1", path("long.jsonl"), path("s")], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=heard)
        while not os.path.exists(path("s.part")) or os.path.getsize(path("s.part")) < 2000:
            assert p.poll() is None
            time.sleep(0.001)
        p.send_signal(signal.SIGSTOP)  # a busy machine could end it before the other command says its line
        run("batch", "--model", MODEL, path("long.jsonl"), path("s"), status=1, says="another run is writing it")
        p.send_signal(number)
        p.send_signal(signal.SIGCONT)
        out, err = p.communicate(timeout=60)
        assert p.returncode == 1 and err == "evenkeel batch: stopped; the same command goes on\n", (number, p.returncode, err)
    batch("s", source="long.jsonl")
    assert sha("s") == long_sha()


@test
def a_full_disk_and_then_room():
    want = short_sha()
    fresh("f")
    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (40000, resource.RLIM_INFINITY))
    batch("f", source="short.jsonl", status=1, says="f.part: No space left", preexec_fn=limit)
    assert 10 < len(records("f.part")) < SHORT
    batch("f", source="short.jsonl")
    assert sha("f") == want


@test
def what_cannot_be_is_said_in_one_line():
    first()
    write("twice.jsonl", [chat("x", "a"), chat("y", "a"), chat("x", "b")])
    batch("n", source="twice.jsonl", status=2, says='custom_id "x" is on line 1 and on line 3')
    batch("n", source="none.jsonl", status=1, says="none.jsonl")
    batch("nowhere/n", status=1, says="nowhere/n.part")
    batch("n", source="", status=1, says="folder")
    batch("n", "--errors", path("in.jsonl"), status=2, says="in.jsonl is the input")
    batch("n", "--errors", path("./n.tmp"), status=2, says="n.tmp is the result's own file")
    batch("n", "--shard", "0/3", status=2, says="--shard 0/3")
    batch("n", "--shard", "4/3", status=2, says="--shard 4/3")
    batch("n", "--shard", "x", status=2, says="K/N is needed")
    batch("n", "--ctx", 10**7, status=2, says="--ctx 10000000, the model's context is")
    run("batch", path("in.jsonl"), status=2, says="two files are needed")
    run("batch", status=2, says="two files are needed")
    run("batch", "a", "b", "c", status=2, says="two files are needed")
    run("batch", "merge", path("m"), status=2, says="files are missing")
    open(path("n"), "w").write("mine\n")
    batch("n", status=2, says="it exists")
    assert open(path("n")).read() == "mine\n"
    fresh("n")
    write("empty.jsonl", [])
    assert ": 0 lines, 0 errors" in batch("n", source="empty.jsonl")
    assert open(path("n")).read() == ""
    write("one.jsonl", ["not json"])
    assert ": 1 line, 1 error," in batch("one", source="one.jsonl")


@test
def another_input_or_option_does_not_go_on_with_a_part():
    long_sha()
    fresh("o")
    # One line at a time: else a busy machine may see no part that is not whole.
    p = subprocess.Popen([PROGRAM, "batch", "--model", MODEL, "--max-requests", "1", path("long.jsonl"), path("o")], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while not os.path.exists(path("o.part")) or os.path.getsize(path("o.part")) < 5000:
        assert p.poll() is None, "it ended before it was killed"
        time.sleep(0.001)
    p.kill()
    p.communicate()
    batch("o", "--seed", 3, source="long.jsonl", status=2, says="with seed 0, not 3")
    batch("o", "--ctx", 512, source="long.jsonl", status=2, says="with fingerprint")
    batch("o", "--shard", "1/2", source="long.jsonl", status=2, says='with shard "1/1", not "1/2"')
    batch("o", source="in.jsonl", status=2, says="with input_sha256")


@test
def lines_by_the_hundred_thousand_take_little_memory():
    n = 300000
    with open(path("many.jsonl"), "w") as f:
        for i in range(n):
            f.write('{"custom_id":"request number %d","method":"PUT","url":"/v1/completions","body":{"prompt":"%s"}}\n' % (i, "x" * 200))
    fresh("many")
    p = subprocess.Popen([PROGRAM, "batch", "--model", MODEL, path("many.jsonl"), path("many")], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    most = 0
    while p.poll() is None:
        try:
            most = max(most, *(int(l.split()[1]) for l in open(f"/proc/{p.pid}/status") if l.startswith(("RssAnon", "RssShmem"))))
        except (OSError, ValueError, TypeError):
            pass
        time.sleep(0.02)
    out, err = p.communicate()
    assert p.returncode == 0 and f"{n} lines, {n} errors" in out, (out, err)
    small = n * 80 / 1024  # KiB: an entry, a name and a place in the part, while arrays grow
    assert most < 150 * 1024 + small, f"{most} KiB"
    for name in ("many", "many.jsonl"):
        os.remove(path(name))


# ---------------------------------------------------------------- shards, check, progress, fingerprint

@test
def shards_make_one_file():
    first()
    names = []
    for k in range(1, 6):
        names.append(fresh(f"shard{k}"))
        batch(f"shard{k}", "--shard", f"{k}/5")
    fresh("m")
    run("batch", "merge", path("m"), *reversed(names))
    assert sha("m") == sha("out")
    assert [json.load(open(path(f"{name}.run.json")))["errors"] for name in ("m", "out")] == [len(wrong())] * 2
    run("batch", "--model", MODEL, "--check", path("m"), "--every", 1, says="equal, 0 differ")
    run("batch", "--model", MODEL, "--check", path("shard2"), "--every", 1, says="equal, 0 differ")
    run("batch", "merge", path("m"), *names)
    with open(path("m"), "a") as f:
        f.write("{}\n")
    run("batch", "merge", path("m"), *names, status=2, says="it exists, and is another one")
    fresh("m")
    run("batch", "merge", path("m"), *names[:4], status=2, says="shard 5/5 is missing")
    run("batch", "merge", path("m"), *names, names[2], status=2, says="are both shard 3/5")
    fresh("seeded")
    batch("seeded", "--shard", "5/5", "--seed", 9)
    run("batch", "merge", path("m"), *names[:4], path("seeded"), status=2, says="differ in their seed")
    with open(names[0], "a") as f:
        f.write("{}\n")
    run("batch", "merge", path("m"), *names, status=2, says="not as its run left it")
    assert not os.path.exists(path("m"))


@test
def check_finds_a_changed_line():
    first()
    said = run("batch", "--model", MODEL, "--check", path("out"), "--every", 4)
    n = int(said.split()[0])
    assert 0 < n < len(open(path("out")).readlines()) and "0 differ" in said, said
    about = json.load(open(path("out.run.json")))
    bad = [l for l in open(path("out"))]
    i = next(i for i, l in enumerate(bad) if "logprobs 2" in l)
    r = json.loads(bad[i])
    r["response"]["body"]["choices"][0]["logprobs"]["content"][4]["logprob"] -= 1e-4
    bad[i] = json.dumps(r, separators=(",", ":"), ensure_ascii=False) + "\n"
    open(path("changed"), "w").writelines(bad)
    json.dump(about, open(path("changed.run.json"), "w"))
    said = run("batch", "--model", MODEL, "--check", path("changed"), "--every", 1, status=1)
    assert "1 differ" in said and f"line {i + 1}, custom_id \"logprobs 2\"" in said and "token 4 is" in said, said
    said = run("diff", path("out"), path("changed"), status=1)
    assert f"line {i + 1}, custom_id \"logprobs 2\": token 4 is" in said, said
    run("diff", path("out"), path("out"), says="equal")
    run("batch", "--model", MODEL, "--kv", "8", "--check", path("out"), status=2, says="is of another run")
    write("other.jsonl", lines()[:3])
    run("batch", "--model", MODEL, "--check", path("out"), path("other.jsonl"), status=2, says="it is not the input of")
    run("batch", "--check", path("in.jsonl"), status=1, says="in.jsonl.run.json")


@test
def progress_stays_within_a_terminals_width():
    short_sha()
    for width in (30, 120):
        fresh("p")
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
        p = subprocess.Popen([PROGRAM, "batch", "--model", MODEL, path("short.jsonl"), path("p")], stdout=subprocess.PIPE, stderr=slave)
        os.close(slave)
        said = b""
        while True:
            try:
                more = os.read(master, 4096)
            except OSError:
                break
            if not more:
                break
            said += more
        os.close(master)
        assert p.wait() == 0
        p.stdout.close()
        drawn = [d.replace("\x1b[K", "") for d in said.decode().split("\r")]
        assert all(len(d) < width for d in drawn), (width, drawn)
        assert any(f"of {SHORT}" in d or width == 30 and "%" in d for d in drawn), drawn
        if width == 120:
            assert any("lines/s" in d and "left" in d and "[" in d for d in drawn), drawn
        assert said.endswith(b"\r\x1b[K"), said[-40:]


@test
def a_fingerprint_names_what_decides():
    first()
    with Server(PROGRAM, "--model", MODEL) as s:
        status, _, f = s.call("GET", "/v1/fingerprint")
        assert status == 200 and f["object"] == "fingerprint" and len(f["model_sha256"]) == 64 and f["context"] > 0, f
        assert f == json.load(open(path("out.run.json")))["run"]["fingerprint"]
        c = s.open()
        c.request("GET", "/v1/fingerprint")
        text = c.getresponse().read().decode()
        c.close()
        inner = text[text.index('"model_sha256"'):text.index(',"sha256"')]
        assert hashlib.sha256(inner.encode()).hexdigest() == f["sha256"]
        reply = s.chat({"messages": [{"role": "user", "content": "x"}], "max_tokens": 1})
        assert reply["system_fingerprint"] == f["numerics"]
        for value, code in (("0" * 24, 200), ("0" * 24 + " seed=9", 200), ("0" * 23, 400), ("0" * 24 + " seed=", 400),
                            ("0" * 24 + " seed=9007199254740992", 400), ("0" * 24 + " more", 400), ("x" * 24, 400)):
            status, head, reply = s.call("POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}], "max_tokens": 1},
                                         {"x-evenkeel-batch": value})
            assert status == code, (value, status, reply)
            if code == 200:
                assert reply["id"] == "chatcmpl-" + "0" * 24 and reply["created"] == 0 and head["x-evenkeel-fingerprint"] == f["sha256"], reply
                assert ("9" in value) == (reply["evenkeel"]["seed"] == 9)
            else:
                assert "x-evenkeel-batch" in reply["error"]["message"], reply


def evaluation(program, *args):
    """tools/eval.py; its input, which takes seconds, is made once."""
    env = {**os.environ, "EVAL_INPUT": path("evaluation.jsonl")}
    return subprocess.run([sys.executable, "tools/eval.py", program, *args], capture_output=True, text=True, timeout=400, env=env)


@test
def one_evaluation_has_one_number():
    """`make eval`, here of a program that tools/carry.sh took away from its model; a random model has another one."""
    if os.path.basename(MODEL) != "pocket":
        return
    os.mkdir(path("copied"))
    subprocess.run(["tools/carry.sh", os.path.dirname(os.path.abspath(PROGRAM)), path("carried.tgz")], check=True)
    subprocess.run(["tar", "xzf", path("carried.tgz"), "-C", path("copied")], check=True)
    r = evaluation(path("copied/evenkeel"))
    assert r.returncode == 0 and "pictures 30 of 30" in r.stdout, (r.stdout, r.stderr)


@test
def an_evaluation_keeps_no_half_of_its_input():
    def small_disk():
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))

    kept = path("kept.jsonl")
    r = subprocess.run([sys.executable, "tools/eval.py", PROGRAM], capture_output=True, text=True, timeout=400, preexec_fn=small_disk,
                       env={**os.environ, "EVAL_INPUT": kept})
    assert r.returncode and "File too large" in r.stderr, (r.returncode, r.stderr)
    assert not [f for f in os.listdir(os.path.dirname(kept)) if f.startswith("kept")]


@test
def an_evaluation_shows_the_sentence_of_a_program_that_fails():
    for args in ((), ("--replicas", "2")):
        r = evaluation(PROGRAM, "--model", path("no-model"), *args)
        assert r.returncode and r.stderr.count("\n") == 1 and "no-model" in r.stderr, (args, r.returncode, r.stderr)
    for program, says in ((path("nowhere"), "nowhere: No such file"), ("/bin/false", "/bin/false version: exit status 1, without a word")):
        r = evaluation(program)
        assert r.returncode and r.stderr.count("\n") == 1 and says in r.stderr, (program, r.returncode, r.stderr)


def main():
    passed = failed = 0
    for t in TESTS:
        if ONLY and t.__name__ not in ONLY:
            continue
        begun = time.time()
        try:
            t()
            passed += 1
            print(f"ok   {t.__name__} ({time.time() - begun:.1f} s)", flush=True)
        except Exception:
            failed += 1
            print(f"FAIL {t.__name__}\n{traceback.format_exc()}", flush=True)
    print(f"{passed} passed, {failed} failed")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
