"""Stored replies of the whole program: every request is asked of a server without a store, then twice of one with it; bodies and
streams have to be equal but for ids, times and counts of caches. Standard library only.

usage: replies.py EVENKEEL MODEL_DIR

The output's last line is `N passed, N failed`."""
import hashlib, http.client, json, os, re, shutil, signal, socket, sqlite3, subprocess, sys, tempfile, threading, time

from counted import check, closing
from stored import ASK, MODEL, PROGRAM, SCHEMA, Server, TOOLS, bare, cached, chat, differs, requests


def all_forms(cold, warm):
    for name, path, body in requests():
        want = cold.ask(path, body)
        first, again = warm.ask(path, body), warm.ask(path, body)
        check(f"{name}: computed", first[0] == 200 and bare(first[2]) == bare(want[2]) and cached(first) == "miss", differs(want, first))
        check(f"{name}: from the store", again[0] == 200 and bare(again[2]) == bare(want[2]) and cached(again) == "hit", differs(want, again))
        check(f"{name}: it says so", '"reply_cached":true' in again[2].replace(" ", "") or path.startswith("/api/"), again)
        check(f"{name}: pieces", len(again[2].split("\n")) == len(want[2].split("\n")), differs(want, again))


def cut_and_continued(cold, warm):
    """Each cut of one reply, upwards on one key and downwards on another."""
    for seed, cuts in ((21, (5, 9, 3, 9, 15, 14, 40, 400)), (22, (400, 40, 1, 2, 39))):
        longest = 0
        for n in cuts:
            for stream in (False, True):
                path, body = chat(temperature=1, seed=seed, max_tokens=n, stream=stream)
                want, got = cold.ask(path, body), warm.ask(path, body)
                check(f"cut {seed}.{n}.{stream}", bare(got[2]) == bare(want[2]), differs(want, got))
                state = "hit" if n <= longest or stream else "part" if longest else "miss"
                check(f"cut {seed}.{n}.{stream}: {state}", cached(got) == state or longest >= 40, (cached(got), state))
            longest = max(longest, n)
    path, body = chat(temperature=1, seed=23, max_tokens=30)
    warm.ask(path, body)
    for name, more in (("stop text", {"stop": ["e"]}), ("log-probabilities", {"logprobs": True, "top_logprobs": 20}), ("fewer", {"logprobs": True, "top_logprobs": 2}),
                       ("and longer", {"logprobs": True, "top_logprobs": 3, "max_tokens": 45}), ("without end", {"ignore_eos": True, "max_tokens": 50})):
        path, body = chat(temperature=1, seed=23, **{"max_tokens": 30, **more})
        want = cold.ask(path, body)
        for round in range(2):
            got = warm.ask(path, body)
            check(f"{name} after none, {round}", bare(got[2]) == bare(want[2]), differs(want, got))
            check(f"{name} after none, {round}: state", cached(got) == ("hit" if round or name in ("fewer", "stop text", "and longer") else "part"), cached(got))
    form = {"response_format": {"type": "json_schema", "json_schema": {"name": "q", "schema": SCHEMA, "strict": True}}}
    called = {"tools": TOOLS, "tool_choice": "required", "messages": [{"role": "user", "content": "Weather in Turin?"}]}
    for name, more in (("form", form), ("call", called), ("drawn form", {**form, "temperature": 1, "seed": 25}), ("thoughts", {"reasoning_effort": "high", "thinking_budget": 20})):
        for n in (1, 4, 9, 14, 60):
            path, body = chat(max_tokens=n, stream=n % 2 == 0, **more)
            want, got = cold.ask(path, body), warm.ask(path, body)
            check(f"{name} cut behind {n} and continued", bare(got[2]) == bare(want[2]), differs(want, got))
    path, body = chat(temperature=1, seed=24, max_tokens=10)
    warm.ask(path, body)
    body["n"] = 3
    want, got = cold.ask(path, body), warm.ask(path, body)
    check("two more choices", bare(got[2]) == bare(want[2]) and cached(got) == "part", differs(want, got))
    # 64 choices are submitted in several turns of the event loop, so the engine has news of the first before the last is there.
    body = {"prompt": "Numbers: ", "temperature": 0, "presence_penalty": 0.3, "frequency_penalty": 0.2, "ignore_eos": True, "max_tokens": 404}
    want = json.loads(cold.ask("/v1/completions", body)[2])["choices"][0]["text"]
    warm.ask("/v1/completions", {**body, "max_tokens": 400, "logprobs": 0})
    got = warm.ask("/v1/completions", {**body, "n": 64})
    wrong = [c["text"] for c in json.loads(got[2])["choices"] if c["text"] != want]
    check("many choices continue behind their stored tokens", not wrong and cached(got) == "part", (len(wrong), wrong[:1], want, cached(got)))


def kept_apart(warm):
    path, body = chat(seed=31, max_tokens=4)
    warm.ask(path, body)
    check("the seed of a greedy reply does not count", cached(warm.ask(path, {**body, "seed": 99})) == "hit")
    check("nor does top_p", cached(warm.ask(path, {**body, "top_p": 0.5})) == "hit")
    check("nor a bias of zero", cached(warm.ask(path, {**body, "logit_bias": {"5": 0}})) == "hit")
    check("a salt is another", cached(warm.ask(path, {**body, "cache_salt": "a"})) == "miss")
    check("and its own", cached(warm.ask(path, {**body, "cache_salt": "a"})) == "hit")
    check("a seed of the server decides nothing", cached(warm.ask(path, {**body, "temperature": 1, "seed": None})) is None)
    check("nor does an absent temperature", cached(warm.ask(path, {**body, "temperature": None, "seed": None})) is None)
    check("temperature 1e-6 is greedy", cached(warm.ask(path, {**body, "temperature": 1e-6, "seed": None})) == "hit")
    new = {**body, "messages": [{"role": "user", "content": "Not to be stored"}]}
    for name, headers, more in (("no-store", {"cache_control": "max-age=1, no-store"}, {}), ("evenkeel.cache", {}, {"evenkeel": {"cache": False}})):
        for _ in range(2):
            check(f"{name}: neither looked up nor kept", cached(warm.ask(path, {**new, **more}, **headers)) is None)
    check("nothing was kept", cached(warm.ask(path, new)) == "miss")
    check("no-cache looks nothing up", cached(warm.ask(path, new, cache_control="no-cache")) == "miss")
    check("and it is still there", cached(warm.ask(path, new)) == "hit")
    status, _, text = warm.ask(path, {**new, "max_tokens": 3, "top_k": 3, "seed": 5, "temperature": 2}, cache_control="only-if-cached")
    check("only-if-cached: 424 with the key", status == 424 and re.search(r"key is [0-9a-f]{64}", text), (status, text))
    status, headers, _ = warm.ask(path, new, cache_control="only-if-cached")
    check("only-if-cached: there", status == 200 and headers["x-evenkeel-reply-cache"] == "hit")
    status, _, text = warm.ask(path, {**new, "seed": None, "temperature": 1}, cache_control="only-if-cached")
    check("only-if-cached: never stored", status == 424 and "never stored" in text, (status, text))
    status, _, text = warm.ask(path, {**body, "evenkeel": {"cache": 3}})
    check("evenkeel.cache is a truth value", status == 400 and "true or false" in text, (status, text))
    one = warm.ask(path, {"messages": ASK, "temperature": 0, "max_tokens": 7})
    two = warm.ask("/v1/messages", {"messages": ASK, "temperature": 0, "max_tokens": 7})
    check("two APIs share a reply", cached(two) == "hit" and json.loads(one[2])["choices"][0]["message"]["content"] == json.loads(two[2])["content"][0]["text"], (one, two))
    answers = [warm.ask("/v1/responses", {"input": "Store this.", "temperature": 0, "max_output_tokens": 5, "store": True}) for _ in range(2)]
    ids = [json.loads(a[2])["id"] for a in answers]
    check("two ids of one stored reply", len(set(ids)) == 2 and cached(answers[1]) == "hit", answers)


def device_and_bounds():
    warm = Server("--api-key", "one,two", stored="64K")
    head = {"authorization": "Bearer one"}
    path, body = chat(max_tokens=8)
    warm.ask(path, body, **head)
    check("a hit for its key", cached(warm.ask(path, body, **head)) == "hit")
    check("another key computes", cached(warm.ask(path, body, authorization="Bearer two")) == "miss")
    for i in range(120):
        warm.ask(path, {**body, "messages": [{"role": "user", "content": f"Number {i}"}], "max_tokens": 60, "ignore_eos": True}, **head)
    check("the key with most loses its own", cached(warm.ask(path, body, authorization="Bearer two")) == "hit")
    check("and the oldest are gone", cached(warm.ask(path, {**body, "messages": [{"role": "user", "content": "Number 0"}], "max_tokens": 60, "ignore_eos": True}, **head)) == "miss")
    warm.stop()


def no_device(cold):
    """A hit asks the engine nothing, and the journal says so."""
    journal = tempfile.mktemp()
    warm = Server("--journal", journal, "--journal-prompts")
    path, body = chat(max_tokens=12)
    warm.ask(path, body)
    before = warm.metrics()
    for _ in range(5):
        warm.ask(path, body)
    after = warm.metrics()
    check("hits are no requests of the engine", after["evenkeel_engine_requests_total"] - before["evenkeel_engine_requests_total"] < 2, (before, after))  # one may be the canary
    check("hits are counted", after['evenkeel_stored_replies_total{outcome="hit"}'] == 5, after)
    check("as are their tokens", after["evenkeel_stored_reply_tokens_total"] == 60, after)
    warm.ask(path, {**body, "max_tokens": 20})
    warm.stop()
    lines = [json.loads(line) for line in open(journal)]
    check("the journal tells them apart", [line.get("stored", 0) for line in lines] == [0] + 5 * [12] + [12], lines)
    check("with one digest", len({line["digest"] for line in lines[:6]}) == 1, lines)
    replayed = subprocess.run([PROGRAM, "replay", journal, "--model", MODEL, "--threads", "2"], capture_output=True, text=True)
    check("and runs again", replayed.returncode == 0, replayed.stdout + replayed.stderr)
    os.unlink(journal)


def on_disk(cold):
    """A restart, kill -9, bits of the file, and another --kv."""
    folder = tempfile.mkdtemp()
    bodies = [chat(temperature=1, seed=60 + i, max_tokens=12 + i, logprobs=i % 2 == 0) for i in range(6)]
    want = [cold.ask(*b) for b in bodies]
    warm = Server("--cache-dir", folder)
    for b in bodies:
        warm.ask(*b)
    time.sleep(0.3)
    warm.stop(signal.SIGKILL)
    warm = Server("--cache-dir", folder)
    got = [warm.ask(*b) for b in bodies]
    check("after kill -9: from disk", all(cached(g) == "hit" and bare(g[2]) == bare(w[2]) for g, w in zip(got, want)), [differs(w, g) for g, w in zip(got, want)])
    check("by its own count", warm.metrics()['evenkeel_stored_replies_found_total{place="disk"}'] == 6)
    path, body = chat(temperature=1, seed=60, max_tokens=30, logprobs=True)
    w, g = cold.ask(path, body), warm.ask(path, body)
    check("continued from disk", bare(w[2]) == bare(g[2]), differs(w, g))
    beside = Server("--cache-dir", folder, "--kv", "8")
    check("another --kv shares none", cached(beside.ask(*bodies[0])) == "miss")
    beside.stop()
    warm.stop()
    names = [f for f in os.listdir(folder) if f.endswith("-replies.sqlite")]
    check("a file for each, its owner's alone", len(names) == 2 and all(os.stat(os.path.join(folder, f)).st_mode & 0o777 == 0o600 for f in names), names)
    whole = {f: open(os.path.join(folder, f), "rb").read() for f in names}
    for i in range(3):
        for f in names:
            data = bytearray(whole[f])
            for at in range(4096 + 37 * i, len(data), 311):
                data[at] ^= 1 << (at % 8)
            open(os.path.join(folder, f), "wb").write(data if i < 2 else data[:len(data) // 2])
        warm = Server("--cache-dir", folder)
        got = [warm.ask(*b) for b in bodies]
        check(f"damaged file {i}: equal replies", all(bare(g[2]) == bare(w[2]) for g, w in zip(got, want)), [differs(w, g) for g, w in zip(got, want)])
        damaged = warm.metrics()["evenkeel_stored_replies_damaged_total"]
        status, log = warm.stop()
        check(f"damaged file {i}: and counted, and said", damaged > 0 and "stored replies: " in log, (damaged, log))
    shutil.rmtree(folder)


def forge(folder, change):
    """Puts a record with a sum that fits in the place of each: change(data, n) changes it, n tokens."""
    name = next(f for f in os.listdir(folder) if f.endswith("-replies.sqlite"))
    db = sqlite3.connect(os.path.join(folder, name))
    for key, record in db.execute("SELECT key, record FROM reply").fetchall():
        data = bytearray(record[:-32])
        change(data, int.from_bytes(record[40:44], "little"))
        db.execute("UPDATE reply SET record=? WHERE key=?", (bytes(data) + hashlib.sha256(data).digest(), key))
    db.commit()
    db.close()


def on_a_server(cold):
    """Two processes and a server of Redis' protocol, where this machine has one: what one computed the other answers, also continued."""
    program = next((p for p in ("redis-server", "valkey-server", "redis-check-rdb") if shutil.which(p)), None)
    if not program:
        return
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    folder = tempfile.mkdtemp()
    start = lambda: subprocess.Popen(["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", folder], executable=shutil.which(program), stdout=subprocess.DEVNULL)
    redis, url = start(), f"redis://127.0.0.1:{port}"
    one, two = Server("--cache-shared", url), Server("--cache-shared", url)
    time.sleep(0.5)
    bodies = [chat(temperature=1, seed=160 + i, max_tokens=12 + i, logprobs=i % 2 == 0, **({"tools": TOOLS, "tool_choice": "required"} if i == 3 else {})) for i in range(6)]
    for b in bodies:
        one.ask(*b)
    time.sleep(0.5)
    for i, b in enumerate(bodies):
        want, got = cold.ask(*b), two.ask(*b)
        check(f"from the server {i}", cached(got) == "hit" and bare(got[2]) == bare(want[2]), differs(want, got))
    check("by its own count", two.metrics()['evenkeel_stored_replies_found_total{place="shared"}'] == 6, two.metrics())
    path, body = bodies[2]
    want, got = cold.ask(path, {**body, "max_tokens": 40}), two.ask(path, {**body, "max_tokens": 40})
    check("continued from the server", cached(got) in ("part", "hit") and bare(got[2]) == bare(want[2]), differs(want, got))
    redis.kill()
    redis.wait()
    for i in range(3):
        b = chat(temperature=1, seed=180 + i, max_tokens=9)
        begun = time.time()
        want, got = cold.ask(*b), one.ask(*b)
        check("without the server: computed", cached(got) == "miss" and bare(got[2]) == bare(want[2]) and time.time() - begun < 5, differs(want, got))
    for s in (one, two):
        status, log = s.stop()
        check("it stops without the server", status == 0, log[-500:])
    shutil.rmtree(folder)


def read_again(cold):
    """A wrong record that is read again for its log-probabilities is dropped, and the reply is computed."""
    def last_token(data, n):
        data[48 + 4 * (n - 1)] ^= 1

    def middle_token(data, n):
        data[48 + 4 * (n // 2)] ^= 1

    def first_row(data, n):
        data[48 + 4 * n] ^= 1

    form = {"response_format": {"type": "json_schema", "json_schema": {"name": "r", "schema": SCHEMA, "strict": True}}}
    forms = [("whole", {}), ("streamed", {"stream": True, "stream_options": {"include_usage": True}}), ("under a schema", {**form, "max_tokens": 60}), ("thoughts", {"reasoning_effort": "high", "thinking_budget": 8}),
             ("two choices", {"n": 2}), ("with a bias", {"logit_bias": {"1000": 2, "42": -100}})]
    for change in (last_token, middle_token, first_row):
        folder = tempfile.mkdtemp()
        bodies = [chat(**{"temperature": 1, "seed": 120 + i, "max_tokens": 14, **more}) for i, (_, more) in enumerate(forms)]
        warm = Server("--cache-dir", folder)
        for b in bodies:
            warm.ask(*b)
        warm.stop()
        for (name, _), (path, body) in zip(forms, bodies):
            forge(folder, change)  # all of it: a wrong record takes the file with it
            copy = tempfile.mkdtemp()
            shutil.copytree(folder, copy, dirs_exist_ok=True)
            warm = Server("--cache-dir", copy)
            if name == "under a schema" and change is middle_token:
                behind = {**body, "max_tokens": body["max_tokens"] + 1, "ignore_eos": True}
                warm.ask(path, behind)
                want, got = cold.ask(path, behind), warm.ask(path, behind)
                check("a wrong record that nothing may follow is dropped", got[0] == want[0] and bare(got[2]) == bare(want[2]), differs(want, got))
                warm.stop()
                warm = Server("--cache-dir", shutil.copytree(folder, copy, dirs_exist_ok=True))
            body = {**body, "logprobs": True, "top_logprobs": 3}
            want, got = cold.ask(path, body), warm.ask(path, body)
            check(f"{change.__name__}, {name}: computed", got[0] == 200 and bare(got[2]) == bare(want[2]), differs(want, got))
            check(f"{change.__name__}, {name}: a miss, wholly or in part", cached(got) == "miss" or name == "two choices", cached(got))
            got = warm.ask(path, body)
            check(f"{change.__name__}, {name}: kept", cached(got) == "hit" and bare(got[2]) == bare(want[2]), differs(want, got))
            _, log = warm.stop()
            check(f"{change.__name__}, {name}: said", "event=reply_wrong" in log, log[-1000:])
            forge(folder, change)  # back
            shutil.rmtree(copy)
        shutil.rmtree(folder)


def audited(cold):
    """Hits that are right pass; a token of a record that was changed, with a sum that fits, is found."""
    folder = tempfile.mkdtemp()
    bodies = [chat(temperature=1, seed=80 + i, max_tokens=12) for i in range(3)] + [chat(max_tokens=30), chat(max_tokens=1, temperature=1, seed=90)]
    warm = Server("--cache-dir", folder, "--audit-replies", "1")
    for b in bodies + bodies:
        warm.ask(*b)
    for _ in range(100):
        if warm.metrics()["evenkeel_stored_replies_audits_total"] >= len(bodies):
            break
    m = warm.metrics()
    check("hits are computed again", m["evenkeel_stored_replies_audits_total"] == len(bodies) and m["evenkeel_stored_replies_wrong_total"] == 0, m)
    warm.stop()
    forge(folder, lambda data, n: data.__setitem__(48 + 4 * (n - 1), data[48 + 4 * (n - 1)] ^ 1))  # the last token: its row is right
    warm = Server("--cache-dir", folder, "--audit-replies", "1")
    lie, want = warm.ask(*bodies[0]), cold.ask(*bodies[0])
    check("a forged record is believed at first", cached(lie) == "hit" and bare(lie[2]) != bare(want[2]), differs(want, lie))
    for _ in range(100):
        if warm.metrics()["evenkeel_stored_replies_wrong_total"] > 0:
            break
    time.sleep(0.3)
    for b in bodies:
        want, got = cold.ask(*b), warm.ask(*b)
        check("the audit takes it out, with its file", cached(got) == "miss" and bare(got[2]) == bare(want[2]), differs(want, got))
    status, log = warm.stop()
    check("loudly", status == 0 and "event=reply_wrong" in log and "on disk" in log, log[-1000:])
    shutil.rmtree(folder)


def many_at_once(cold, warm):
    """Equal requests beside each other, and clients that leave."""
    path, body = chat(temperature=1, seed=51, max_tokens=60)
    want = cold.ask(path, body)
    got = []
    for _ in range(2):
        threads = [threading.Thread(target=lambda: got.append(warm.ask(path, body))) for _ in range(12)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    check("equal requests at once", all(bare(g[2]) == bare(want[2]) for g in got), got)
    path, body = chat(temperature=1, seed=52, max_tokens=300, stream=True, ignore_eos=True)
    c = http.client.HTTPConnection("127.0.0.1", warm.port, timeout=60)
    c.request("POST", path, json.dumps(body), {"content-type": "application/json"})
    c.getresponse().read(400)
    c.close()
    time.sleep(1)
    want, got = cold.ask(path, body), warm.ask(path, body)
    check("a reply whose client left is an open end", cached(got) in ("part", "hit") and bare(got[2]) == bare(want[2]), (cached(got), got[2][-400:]))


def measured(warm):
    """tools/bench/hits.py, which asks for hits alone."""
    tool = [sys.executable, "tools/bench/hits.py", f"http://127.0.0.1:{warm.port}", "--pid", str(warm.process.pid)]
    said = subprocess.run([*tool, "--hits", "300", "--connections", "8"], capture_output=True, text=True, timeout=60)
    check("hits are measured", said.returncode == 0 and said.stdout.startswith("300 replies, 0 of them no hits: "), said)
    check("and the server's time for them", "processor time per reply, us: " in said.stdout, said)


def main():
    cold, warm = Server(stored=None), Server()
    all_forms(cold, warm)
    cut_and_continued(cold, warm)
    kept_apart(warm)
    many_at_once(cold, warm)
    measured(warm)
    no_device(cold)
    on_disk(cold)
    on_a_server(cold)
    read_again(cold)
    audited(cold)
    device_and_bounds()
    check("servers without a store say nothing of it", "reply_cached" not in cold.ask(*chat())[2])
    for s in (cold, warm):
        status, log = s.stop()
        check("it stops in order", status == 0, log[-2000:])
    sys.exit(closing())


main()
