"""Replies in a file, of the whole program: what a server kept answers elsewhere, without the model's weights, in every form; damage, other
models and forged lines cost what they touch. Standard library only.

usage: cassette.py EVENKEEL MODEL_DIR

The output's last line is `N passed, N failed`."""
import base64, hashlib, http.client, json, os, re, shutil, sqlite3, struct, subprocess, sys, tempfile, time, zlib

from counted import check, closing
from stored import MODEL, PROGRAM, Server, bare, cached, chat, differs, requests


def png(side=48):
    rows = b"".join(b"\0" + bytes((x * 5 * (y % 3 + 1) + c * 40) % 256 for x in range(side) for c in range(3)) for y in range(side))
    part = lambda kind, data: struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    return b"\x89PNG\r\n\x1a\n" + part(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)) + part(b"IDAT", zlib.compress(rows)) + part(b"IEND", b"")


def picture():
    url = "data:image/png;base64," + base64.b64encode(png()).decode()
    return chat(messages=[{"role": "user", "content": [{"type": "text", "text": "What is it?"}, {"type": "image_url", "image_url": {"url": url}}]}], max_tokens=8)


def command(*words):
    done = subprocess.run([PROGRAM, *words], capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def record(folder, bodies):
    warm = Server("--cache-dir", folder, "--cache-replies-prompts")
    for body in bodies:
        warm.ask(*body)
    warm.stop()


def words_alone():
    """The model's folder without its weights."""
    folder = tempfile.mkdtemp()
    for name in os.listdir(MODEL):
        if name.endswith(".json"):
            shutil.copy(os.path.join(MODEL, name), folder)
    return folder


def without_weights(cold, tape, bodies, words):
    server = Server("--replies", tape, "--no-engine", stored=None, model=words)
    check("it starts without the weights", server.process.poll() is None, server.process.poll() is not None and server.stop())
    for name, path, body in bodies:
        want, got = cold.ask(path, body), server.ask(path, body)
        wanted = bare(want[2]).replace('"model":"%s"' % os.path.basename(os.path.abspath(MODEL)), '"model":"M"')
        is_equal = bare(got[2]).replace('"model":"%s"' % os.path.basename(words), '"model":"M"') == wanted
        check(f"{name}: without weights", got[0] == 200 and cached(got) == "hit" and is_equal, differs(want, got))
    path, body = chat(messages=[{"role": "user", "content": "Nobody asked this."}])
    status, _, text = server.ask(path, body)
    there = cold_key(path, body)
    check("a miss is a 424 with its key", status == 424 and there in text and '"reply_not_stored"' in text, (status, text, there))
    nearest_is_named(server, tape, path, body, there)
    status, _, text = server.ask("/v1/messages", {"messages": body["messages"], "temperature": 0, "max_tokens": 9})
    check("in Anthropic's form too", status == 424 and json.loads(text)["type"] == "error", (status, text))
    status, _, text = server.ask(path, {**body, "temperature": 1})
    check("what nothing decides is never stored", status == 424 and "never stored" in text, (status, text))
    for more, says in (({"temperature": 0.5, "seed": 3}, r"temperature is 0.5 here and 1 there; the seed is 3 here and \d+ there"), ({"presence_penalty": 1}, "presence_penalty is 1 here and 0 there"),
                       ({"temperature": 1, "seed": 99}, r"the seed is 99 here and \d+ there"), ({"logit_bias": {"7": 1}}, "the logit_bias is another"),
                       ({"response_format": {"type": "json_object"}}, r"the mask is another \(.*\)")):
        status, _, text = server.ask(*chat(**more))
        check(f"{more}: what differs", status == 424 and re.search(r"; nearest is [0-9a-f]{64}: " + says + '"', text), (status, text))
    longer = next(b for n, p, b in bodies if n == "greedy")
    status, _, text = server.ask(path, {**longer, "max_tokens": 200, "ignore_eos": True})
    check("more than is stored is a miss", status == 424 and "is a part of the one that is asked for" in text, (status, text))
    status, _, text = server.ask(*picture())
    check("pictures need the files of the towers", status == 400, (status, text))
    c = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    c.request("GET", "/ready")
    check("it is ready", c.getresponse().status == 200)
    prints = [fingerprint(s) for s in (cold, server)]
    check("its fingerprint is the model's, for batches", prints[0] == prints[1] and "model_sha256" in prints[0], prints)
    check("nothing was computed", server.metrics()["evenkeel_engine_requests_total"] == 0, server.metrics())
    check("hits are of the file", server.metrics()['evenkeel_stored_replies_found_total{place="file"}'] > len(bodies), server.metrics())
    status, log = server.stop()
    check("it stops in order", status == 0, log[-1000:])


def nearest_is_named(server, tape, path, body, own):
    """By a search of all prompts in the file."""
    ids = json.loads(server.ask("/v1/chat/completions/render", body)[2])["token_ids"]
    prompts = {(r := json.loads(line))["key"]: r["ask"]["prompt"] for line in open(tape) if '"ask"' in line}
    shared = lambda a, b: next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
    text = server.ask(path, body)[2]
    key, at, here, there = re.search(r"nearest is ([0-9a-f]{64}): the prompts differ from token (\d+) on \((\d+) here, (\d+) there\)", text).groups()
    check("the nearest prompt", (int(at), int(here), int(there)) == (max(shared(ids, p) for p in prompts.values()), len(ids), len(prompts[key])) and
          shared(ids, prompts[key]) == int(at) and key != own, text)


def fingerprint(server):
    c = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    c.request("GET", "/v1/fingerprint")
    return c.getresponse().read().decode()


def cold_key(path, body):
    server = Server()
    text = server.ask(path, body, cache_control="only-if-cached")[2]
    server.stop()
    return re.search(r"key is ([0-9a-f]{64})", text).group(1)


def beside_an_engine(cold, tape, bodies):
    server = Server("--replies", tape, stored="64K")
    for name, path, body in bodies[:8]:
        want, got = cold.ask(path, body), server.ask(path, body)
        check(f"{name}: from the file", cached(got) == "hit" and bare(got[2]) == bare(want[2]), differs(want, got))
    path, body = chat(max_tokens=40, ignore_eos=True)
    want, got = cold.ask(path, body), server.ask(path, body)
    check("the engine goes on behind the file", cached(got) == "part" and bare(got[2]) == bare(want[2]), differs(want, got))
    path, body = chat(messages=[{"role": "user", "content": "New."}])
    want, got = cold.ask(path, body), server.ask(path, body)
    check("a miss is computed", cached(got) == "miss" and bare(got[2]) == bare(want[2]), differs(want, got))
    path, body = picture()
    want, got = cold.ask(path, body), server.ask(path, body)
    check("a picture from the file", cached(got) == "hit" and bare(got[2]) == bare(want[2]), differs(want, got))
    server.stop()


def forged(cold, tape, folder):
    """A wrong token with sums that fit: the audit finds it, and nothing of the file is used any more."""
    lines = open(tape).read().split("\n")
    sums = []
    for i, line in enumerate(lines):
        if '"key"' in line:
            before = line[:line.index(',"sum"')]
            if '"temperature":0.0' in before and '"mask":null' in before:
                before = re.sub(r'"tokens":\[(\d+)', lambda m: '"tokens":[%d' % (int(m.group(1)) ^ 1), before)
            sums.append(hashlib.sha256(before.encode()).hexdigest())
            lines[i] = before + ',"sum":"%s"}' % sums[-1]
        elif '"entries"' in line:
            lines[i] = '{"entries":%d,"sum":"%s"}' % (len(sums), hashlib.sha256("".join(sums).encode()).hexdigest())
    lie = os.path.join(folder, "lie.jsonl")
    open(lie, "w").write("\n".join(lines))
    server = Server("--replies", lie, "--audit-replies", "1")
    path, body = chat()
    want, got = cold.ask(path, body), server.ask(path, body)
    check("a forged line is believed at first", cached(got) == "hit" and bare(got[2]) != bare(want[2]), differs(want, got))
    for _ in range(100):
        if server.metrics()["evenkeel_stored_replies_wrong_total"] > 0:
            break
    for b in ((path, body), chat(temperature=1, seed=7)):
        want, got = cold.ask(*b), server.ask(*b)
        check("the audit takes the file out", cached(got) == "miss" and bare(got[2]) == bare(want[2]), differs(want, got))
    log = server.stop()[1]
    check("loudly", "event=reply_wrong" in log and "of the file" in log, log[-1000:])


def damaged(tape, folder, words):
    whole = open(tape).read()
    lines = whole.split("\n")
    bad = os.path.join(folder, "bad.jsonl")
    body = chat()

    def served(text, *says):
        open(bad, "w").write(text)
        server = Server("--replies", bad, "--no-engine", stored=None, model=words)
        hit = cached(server.ask(*body)) == "hit" if server.process.poll() is None else None
        log = server.stop()[1]
        check(f"it says {says}", all(s in log for s in says), log)
        return hit

    mine = next(i for i, line in enumerate(lines) if '"tokens"' in line and '"temperature":0.0' in line and '"mask":null' in line)
    other = next(i for i, line in enumerate(lines) if '"tokens"' in line and i != mine)
    broken = lines[:]
    broken[other] = broken[other].replace('"tokens":[', '"tokens":[1', 1)
    check("a damaged line costs itself", served("\n".join(broken), "is not used") is not None)
    check("a cut file gives what it has", served("\n".join(lines[:-2]), "the file was cut") is not None)
    later = whole.replace('"evenkeel_replies":1', '"evenkeel_replies":2')
    check("a later version is passed over", served(later, "version 2") is not True)
    check("a model of other words is refused", served(whole.replace(", words ", ", words 0"), "whose tokenizer or template is not that of --model") is None)
    check("no file of replies", served('{"a":1}\n', "no file of replies") is None)
    server = Server("--replies", bad.replace("bad", "gone"), stored=None)
    check("a file that is not there", "gone.jsonl" in server.stop()[1])
    open(bad, "w").write(whole.replace('"identity":"model ', '"identity":"model 0'))
    server = Server("--replies", bad, stored=None)
    log = server.stop()[1]
    check("another model's replies beside an engine", "its replies are of model 0" in log and "; this is model " in log, log)
    for words_ in (["--no-engine"], ["--replies", tape, "--no-engine", "--journal", "x"], ["--cache-replies-prompts"]):
        status, text = command("serve", *words_)
        check(f"{words_}: refused", status == 2, (status, text))


def moved(tape, folder, bodies):
    """Export, import and export again give one file."""
    there = os.path.join(folder, "there")
    status, text = command("replies", "import", tape, "--cache-dir", there)
    check("import", status == 0 and ", 0 lines refused" in text, (status, text))
    again = os.path.join(folder, "again.jsonl")
    status, text = command("replies", "export", again, "--cache-dir", there, "--model", MODEL)
    check("one store, one file", status == 0 and open(again).read() == open(tape).read(), (status, text))
    server = Server("--cache-dir", there)
    name, path, body = bodies[0]
    check("imported replies are hits", cached(server.ask(path, body)) == "hit")
    status, text = command("replies", "export", again, "--cache-dir", there, "--model", MODEL)
    check("a server has the store: the file stays", status == 1 and "in use by another process" in text and open(again).read() == open(tape).read(), (status, text))
    server.stop()
    server = Server("--cache-dir", there, "--api-key", "one")
    check("not for those with a key", cached(server.ask(path, body, authorization="Bearer one")) == "miss")
    server.stop()
    status, text = command("replies", "export", again, "--cache-dir", there, "--since", "0s")
    check("--since", status == 0 and ": 0 replies" in text, (status, text))
    status, text = command("replies", "import", again, "--cache-dir", there)
    check("no replies are taken from a file of none", status == 0 and ": 0 replies taken, 0 lines refused" in text, (status, text))
    status, text = command("replies", "export", again, "--cache-dir", there, "--since", "soon")
    check("--since says what it needs", status == 2 and "30m, 12h or 7d" in text, (status, text))
    kept = os.path.join(folder, "kept")
    open(kept, "w").write("an earlier export")
    status, text = command("replies", "export", kept, "--cache-dir", folder)
    check("a folder without replies", status == 1 and "no replies are stored there" in text and open(kept).read() == "an earlier export", (status, text))
    status, text = command("replies", "export", again, "--cache-dir", there + "x")
    check("no such folder", status == 1 and "therex" in text, (status, text))
    status, text = command("replies", "export", os.path.join(folder, "no", "where"), "--cache-dir", there)
    check("no such place", status == 1 and "cannot write" in text, (status, text))
    victim = os.path.join(folder, "victim")
    open(victim, "w").write("mine")
    linked = os.path.join(folder, "linked")
    os.symlink(victim, linked + ".new")
    status, text = command("replies", "export", linked, "--cache-dir", there, "--model", MODEL)
    check("links are not followed", status == 0 and open(victim).read() == "mine" and open(linked).read() == open(tape).read(), (status, text))
    check("prompts are nobody else's", os.stat(linked).st_mode & 0o777 == 0o600, oct(os.stat(linked).st_mode))
    limited = ["bash", "-c", 'ulimit -f 40; trap "" XFSZ; exec "$@"', "-", PROGRAM, "replies", "import", tape, "--cache-dir", os.path.join(folder, "full")]
    done = subprocess.run(limited, capture_output=True, text=True)
    check("a full disk is no success", done.returncode == 1 and re.search("; 0 replies were taken before", done.stderr) and "replies taken" not in done.stdout, done)
    unread(there, again)
    broken = open(tape).read().replace('"tokens":[', '"tokens":[1', 1)
    open(again, "w").write(broken)
    status, text = command("replies", "import", again, "--cache-dir", os.path.join(folder, "new"))
    check("import says what it refused", status == 1 and "line 2 is not taken" in text, (status, text))
    plain = os.path.join(folder, "plain")
    server = Server("--cache-dir", plain)
    server.ask(path, body)
    server.stop()
    status, text = command("replies", "export", again, "--cache-dir", plain)
    check("replies without their requests stay", status == 0 and "--cache-replies-prompts" in text, (status, text))


def unread(store, again):
    """A request that was kept and cannot be read: its record has a sum that fits."""
    copy = store + "-unread"
    shutil.copytree(store, copy)
    db = sqlite3.connect(next(os.path.join(copy, f) for f in os.listdir(copy) if f.endswith("-replies.sqlite")))
    key, record = db.execute("SELECT key, record FROM reply ORDER BY key").fetchone()
    at = record.index(b'{"')
    data = record[:at] + b"[" + record[at + 1:-32]
    db.execute("UPDATE reply SET record=? WHERE key=?", (data + hashlib.sha256(data).digest(), key))
    db.commit()
    db.close()
    status, text = command("replies", "export", again, "--cache-dir", copy)
    check("what cannot be read is told apart", status == 1 and "1 more replies are left out, because their requests cannot be read" in text and "1 more replies cannot be exported" in text, (status, text))


def signed(folder, store, words):
    """A file that is signed, by whom it is trusted, and one that somebody changed and gave sums that fit."""
    key, other, tape, lie = (os.path.join(folder, name) for name in ("key", "other", "signed.jsonl", "changed.jsonl"))
    status, text = command("receipts", "key", key)
    if "without" in text and status:
        return  # a build without libcrypto
    command("receipts", "key", other)
    status, text = command("replies", "export", tape, "--cache-dir", store, "--model", MODEL, "--sign", key)
    check("a signed export", status == 0, (status, text))
    lines = open(tape).read().split("\n")
    sums = []
    for i, line in enumerate(lines):
        if '"key":"' in line and '"tokens"' in line:
            before = re.sub(r'"tokens":\[(\d+)', lambda m: '"tokens":[%d' % (int(m.group(1)) ^ 1), line[:line.index(',"sum"')])
            sums.append(hashlib.sha256(before.encode()).hexdigest())
            lines[i] = before + ',"sum":"%s"}' % sums[-1]
        elif line.startswith('{"entries"'):
            lines[i] = re.sub(r'"sum":"[0-9a-f]{64}"', '"sum":"%s"' % hashlib.sha256("".join(sums).encode()).hexdigest(), line)
    open(lie, "w").write("\n".join(lines))
    body = chat()
    for name, file, trust, status in (("signed", tape, key, 200), ("by another", tape, other, 424), ("changed", lie, key, 424), ("either", tape, None, 200)):
        trusts = ["--trust", other + ".pub", "--trust", key + ".pub"] if not trust else ["--trust", trust + ".pub"]
        server = Server("--replies", file, "--no-engine", *trusts, stored=None, model=words)
        got = server.ask(*body)[0]
        log = server.stop()[1]
        check(f"{name}: {status}", got == status and (status == 200 or "not signed by a key that is trusted" in log), (got, log[-600:]))
    status, text = command("replies", "import", lie, "--cache-dir", os.path.join(folder, "trusting"), "--trust", key + ".pub")
    check("import trusts too", status == 1 and ": 0 replies taken" in text, (status, text))
    status, text = command("replies", "import", tape, "--cache-dir", os.path.join(folder, "trusting"), "--trust", key + ".pub")
    check("and takes what is signed", status == 0 and ", 0 lines refused" in text, (status, text))
    for words_ in (["serve", "--trust", key + ".pub"], ["replies", "import", tape, "--cache-dir", folder, "--trust", "nowhere.pub"], ["replies", "export", lie, "--cache-dir", store, "--sign", key + ".pub"]):
        status, text = command(*words_)
        check(f"{words_[0]} {words_[-2]}: refused", status != 0 and text, (status, text))


def main():
    folder, words = tempfile.mkdtemp(), words_alone()
    tape, store = os.path.join(folder, "replies.jsonl"), os.path.join(folder, "store")
    bodies = list(requests())
    record(store, [(path, body) for _, path, body in bodies] + [picture()])
    status, text = command("replies", "export", tape, "--cache-dir", store, "--model", MODEL)
    check("export", status == 0 and re.search(r": \d+ replies\n$", text), (status, text))
    check("its lines can be read", all(json.loads(line) for line in open(tape)) and "keel" in open(tape).read())
    cold = Server(stored=None)
    without_weights(cold, tape, bodies, words)
    beside_an_engine(cold, tape, bodies)
    forged(cold, tape, folder)
    damaged(tape, folder, words)
    moved(tape, folder, bodies)
    signed(folder, store, words)
    cold.stop()
    shutil.rmtree(folder)
    shutil.rmtree(words)
    sys.exit(closing())


main()
