"""Receipts of the whole program: what a server signs is recomputed here in Python, from tokens and from the logits that the program
writes for them, its signature by OpenSSL. Then `evenkeel verify` on good receipts and on what attackers make of them.

usage: receipts.py EVENKEEL MODEL_DIR

The output's last line is `N passed, N failed`."""
import base64, hashlib, json, os, shutil, sqlite3, struct, subprocess, sys, tempfile, time, zlib

import counted
from client import Server
from counted import check, closing, run

PROGRAM, MODEL = sys.argv[1], sys.argv[2]
counted.only = sys.argv[3:]
DIR = tempfile.TemporaryDirectory()
KEY = os.path.join(DIR.name, "key")
ASK = [{"role": "user", "content": "What is a keel? Answer in a few words."}]
TOOLS = [{"type": "function", "function": {"name": "weather", "description": "Weather of a place", "parameters": {
    "type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]}}}]
SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}}, "required": ["name", "age"], "additionalProperties": False}


def evenkeel(*words, status=0):
    p = subprocess.run([PROGRAM, *map(str, words)], capture_output=True, text=True)
    assert p.returncode == status, f"{words}: exit {p.returncode}, not {status}: {p.stdout}{p.stderr}"
    return p.stdout


def sha(*parts):
    return hashlib.sha256(b"".join(parts)).digest()


def payload(receipt):
    return json.loads(base64.b64decode(receipt["payload"]))["predicate"]


# --- the definition once more ---


def tokens_of(ids):
    return b"".join(struct.pack("<I", t) for t in ids)


def commitment(receipt, label, n, data):
    salt = sha(bytes.fromhex(receipt["opening"]["salt"]), label.encode())
    return sha(label.encode(), salt, struct.pack("<Q", n), data).hex()


def merkle(leaves):
    if len(leaves) < 2:
        return leaves[0] if leaves else sha(b"")
    k = 1
    while 2 * k < len(leaves):
        k *= 2
    return sha(b"\1", merkle(leaves[:k]), merkle(leaves[k:]))


def row_root(row):
    level = [sha(b"\0", row[i:i + 512]) for i in range(0, len(row), 512)]
    while len(level) > 1:
        level = [sha(b"\1", *level[i:i + 16]) for i in range(0, len(level), 16)]
    return level[0]


def logits(ids, n):
    """The last n rows for these tokens."""
    out = os.path.join(DIR.name, "rows")
    evenkeel("logits", "--model", MODEL, "--ids", ",".join(map(str, ids)), "--last", n, "--out", out)
    data = open(out, "rb").read()
    size = len(data) // n
    return [data[i:i + size] for i in range(0, len(data), size)]


def signature_holds(receipt, pub):
    data = base64.b64decode(receipt["payload"])
    kind = receipt["payloadType"].encode()
    message, sig = (os.path.join(DIR.name, name) for name in ("message", "sig"))
    open(message, "wb").write(b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(data), data))
    open(sig, "wb").write(base64.b64decode(receipt["signatures"][0]["sig"]))
    return subprocess.run(["openssl", "pkeyutl", "-verify", "-pubin", "-inkey", pub, "-rawin", "-in", message, "-sigfile", sig],
                          capture_output=True).returncode == 0


def recomputed(name, receipt):
    """Everything but the draws."""
    p, o = payload(receipt), receipt["opening"]
    check(f"{name}: signature", signature_holds(receipt, KEY + ".pub"))
    check(f"{name}: prompt", p["prompt"]["commitment"] == commitment(receipt, "prompt", len(o["prompt"]), tokens_of(o["prompt"])))
    check(f"{name}: reply", p["reply"]["commitment"] == commitment(receipt, "reply", len(o["reply"]), tokens_of(o["reply"])))
    stops = [s.encode() for s in o["stop"]]
    check(f"{name}: stops", p["ends"]["stop"] == commitment(receipt, "stop", len(stops), b"".join(struct.pack("<Q", len(s)) + s for s in stops)))
    form = o.get("form", "").encode()
    check(f"{name}: form", p["form"]["commitment"] == commitment(receipt, "form", len(form), form))
    roots = [row_root(r) for r in logits(o["prompt"] + o["reply"][:-1], len(o["reply"]))]
    check(f"{name}: rows", base64.b64decode(o["row_roots"]) == b"".join(roots))
    salt = sha(bytes.fromhex(o["salt"]), b"rows")
    leaves = [sha(b"\0", salt, struct.pack("<II", t, token), roots[t]) for t, token in enumerate(o["reply"])]
    check(f"{name}: root", p["rows"]["root"] == merkle(leaves).hex())


# --- what is asked ---


def wishes(**more):
    return {"receipt": {"nonce": "n1"}, **more}


def requests():
    """Name, path, body."""
    chat = {"messages": ASK, "temperature": 0, "max_tokens": 24, "evenkeel": wishes()}
    yield "greedy", "/v1/chat/completions", chat
    yield "sampled", "/v1/chat/completions", {**chat, "temperature": 1}
    yield "a seed of the client", "/v1/chat/completions", {**chat, "temperature": 1, "seed": 7, "frequency_penalty": 0.5, "logit_bias": {"50": -3}}
    yield "hot", "/v1/completions", {"prompt": "Zq", "temperature": 2, "top_p": 1, "top_k": 0, "max_tokens": 12, "evenkeel": wishes()}
    yield "short", "/v1/chat/completions", {**chat, "max_tokens": 6}
    yield "cut", "/v1/chat/completions", {**chat, "max_tokens": 3}
    yield "a stop text", "/v1/chat/completions", {**chat, "stop": [" a", "never"]}
    yield "calls", "/v1/chat/completions", {**chat, "messages": [{"role": "user", "content": "What is the weather in Oslo?"}], "tools": TOOLS}
    yield "a schema", "/v1/chat/completions", {**chat, "max_tokens": 40, "response_format": {"type": "json_schema", "json_schema": {"name": "p", "schema": SCHEMA, "strict": True}}}
    yield "thoughts", "/v1/chat/completions", {**chat, "max_tokens": 40, "reasoning_effort": "high"}
    yield "a limit of thoughts", "/v1/chat/completions", {**chat, "max_tokens": 40, "reasoning_effort": "high", "thinking_budget": 4}
    yield "two choices", "/v1/chat/completions", {**chat, "temperature": 1, "n": 2}
    yield "a continued text", "/v1/completions", {"prompt": "A keel is", "temperature": 1, "max_tokens": 12, "evenkeel": wishes()}
    yield "messages", "/v1/messages", {"model": "m", "max_tokens": 12, "temperature": 0, "messages": ASK, "evenkeel": wishes()}
    yield "responses", "/v1/responses", {"model": "m", "max_output_tokens": 12, "temperature": 0, "input": "What is a keel?", "evenkeel": wishes()}
    yield "ollama", "/api/chat", {"model": "m", "messages": ASK, "stream": False, "options": {"num_predict": 12, "seed": 3}, "evenkeel": wishes()}


def found(o):
    """The receipts of a reply, or of an event."""
    o = o.get("response", o) if isinstance(o.get("response"), dict) else o
    r = o.get("evenkeel", {}).get("receipt")
    return r if isinstance(r, list) else [r] if r else []


def streamed(server, path, body):
    c = server.open()
    c.request("POST", path, json.dumps({**body, "stream": True}), {"content-type": "application/json"})
    r = c.getresponse()
    events = []
    for line in r.read().decode().splitlines():
        line = line[6:] if line.startswith("data: ") else line
        if line.startswith("{"):
            events.append(json.loads(line))
    c.close()
    return [x for e in events for x in found(e)], events


REPLIES = {}  # name: (body, reply)


def every_api_signs(server):
    for name, path, body in requests():
        status, head, reply = server.call("POST", path, body)
        assert status == 200, (name, reply)
        REPLIES[name] = body, reply
        receipts = found(reply)
        check(f"{name}: one per choice", len(receipts) == body.get("n", 1), len(receipts))
        for r in receipts:
            recomputed(name, r)
        status, _, again = server.call("GET", "/v1/receipts/" + head["x-evenkeel-receipt"])
        check(f"{name}: by its id", status == 200 and (again if isinstance(again, list) else [again]) == receipts)
        others, events = streamed(server, path, body)
        check(f"{name}: streamed", len(others) == len(receipts), len(others))
        check(f"{name}: at the end of the stream", found(events[-1]) or found(events[-2]) or found(events[-3]))
        for a, b in zip(receipts, others):
            p, q = payload(a), payload(b)
            check(f"{name}: a stream is the same reply", a["opening"]["reply"] == b["opening"]["reply"] and a["opening"]["row_roots"] == b["opening"]["row_roots"])
            check(f"{name}: the same options", p["sampling"] == q["sampling"] and p["reply"]["finish"] == q["reply"]["finish"])
            check(f"{name}: other salts", p["reply"]["commitment"] != q["reply"]["commitment"] and p["rows"]["root"] != q["rows"]["root"])


def a_statement_says_who_gave_the_seed(server):
    def sampling(**more):
        return payload(found(server.chat({"messages": ASK, "max_tokens": 2, "evenkeel": {"receipt": True}, **more}))[0])["sampling"]
    check("greedy", sampling(temperature=0, seed=5)["seed_from"] == "none")
    check("client", (lambda s: (s["seed_from"], s["seed"]))(sampling(temperature=1, seed=5)) == ("client", "5"))
    check("server", sampling(temperature=1)["seed_from"] == "server")
    r = found(server.chat({"messages": ASK, "max_tokens": 2, "temperature": 1, "evenkeel": {"receipt": {"nonce": "of mine"}}}))[0]
    seed = int.from_bytes(sha(b"of mine", tokens_of(r["opening"]["prompt"]))[:8], "little") >> 11
    check("nonce", (payload(r)["sampling"]["seed_from"], payload(r)["sampling"]["seed"]) == ("nonce", str(seed)), payload(r)["sampling"])


def a_stored_reply_has_a_receipt(server):
    body = {"messages": ASK, "temperature": 0, "max_tokens": 20}
    first = server.chat(body)
    status, head, reply = server.call("POST", "/v1/chat/completions", {**body, "evenkeel": {"receipt": True}})
    check("its rows are read again", head["x-evenkeel-reply-cache"] == "part", head)
    check("the same reply", reply["choices"] == first["choices"])
    recomputed("stored", found(reply)[0])


def nothing_is_signed_unasked(server):
    reply = server.chat({"messages": ASK, "max_tokens": 2})
    check("no receipt", not found(reply))
    for bad in (1, "yes", {"nonce": 5}, {"nonce": ""}, {"nonce": "x" * 65}, {"nonce": "\n"}):
        server.chat({"messages": ASK, "max_tokens": 2, "evenkeel": {"receipt": bad}}, expect=400)
    status, _, keys = server.call("GET", "/v1/receipts/keys")
    x = keys["keys"][0]["x"]
    raw = base64.urlsafe_b64decode(x + "=" * (-len(x) % 4))
    pem = "".join(open(KEY + ".pub").read().splitlines()[1:-1])
    check("the key", base64.b64decode(pem)[-32:] == raw and keys["keys"][0]["kid"] == sha(base64.b64decode(pem)).hex())
    check("unknown ids", server.call("GET", "/v1/receipts/none")[0] == 404)
    check("counted", server.metrics()["evenkeel_receipts_total"] > 0)


def the_weights_are_sha256sum_s(server):
    line = subprocess.run("sha256sum config.json *.safetensors | LC_ALL=C sort | sha256sum", shell=True, cwd=MODEL, capture_output=True, text=True).stdout
    reply = server.chat({"messages": ASK, "max_tokens": 2, "evenkeel": {"receipt": True}})
    check("weights_sha256", payload(found(reply)[0])["weights_sha256"] == line.split()[0])


def a_new_key_signs_after_a_hangup(server):
    old = open(KEY).read(), open(KEY + ".pub").read()
    os.unlink(KEY), os.unlink(KEY + ".pub")
    evenkeel("receipts", "key", KEY)
    server.process.send_signal(1)
    assert server.says("event=receipts_key ")
    r = found(server.chat({"messages": ASK, "max_tokens": 2, "evenkeel": {"receipt": True}}))[0]
    check("the new one", signature_holds(r, KEY + ".pub"))
    keys = server.call("GET", "/v1/receipts/keys")[2]["keys"]
    check("both are named", len(keys) == 2 and "exp" in keys[1] and "exp" not in keys[0], keys)
    for path, text in zip((KEY, KEY + ".pub"), old):
        open(path, "w").write(text)


def a_stream_keeps_the_key_that_it_began_with():
    with Server(PROGRAM, "--model", MODEL, "--threads", 1, "--receipts", KEY) as s:
        first = open(KEY).read(), open(KEY + ".pub").read()
        for _ in range(5):  # on a loaded machine a stream may end before the new key is there
            events = iter(s.stream({"messages": ASK, "temperature": 0, "max_tokens": 3000, "ignore_eos": True, "evenkeel": wishes()}))
            next(events)
            old = open(KEY).read(), open(KEY + ".pub").read()
            os.unlink(KEY), os.unlink(KEY + ".pub")
            evenkeel("receipts", "key", KEY)
            news, deadline = s.said().count("event=receipts_key key="), time.time() + 60
            s.process.send_signal(1)
            while s.said().count("event=receipts_key key=") == news:
                assert time.time() < deadline
                time.sleep(0.02)
            ran = s.running() == 1
            receipt = [r for e in events for r in found(e)]
            if ran:
                break
        check("the stream still ran", ran)
        check("by the old key", len(receipt) == 1 and signature_holds(receipt[0], write("old.pub", old[1])))
        next_one = found(s.chat({"messages": ASK, "max_tokens": 2, "evenkeel": wishes()}))[0]
        check("the next one by the new key", signature_holds(next_one, KEY + ".pub"))
        expects("a long reply", 0, {"rows": "ok", "end": "ok"}, verify(receipt[0], key=write("old.pub", old[1])))
    for path, text in zip((KEY, KEY + ".pub"), first):
        open(path, "w").write(text)


def owners_see_their_own():
    with Server(PROGRAM, "--model", MODEL, "--threads", 1, "--receipts", KEY, "--api-key", "one,two") as s:
        def call(key, method, path, body=None):
            return s.call(method, path, body, {"content-type": "application/json", "authorization": f"Bearer {key}"})
        head = call("one", "POST", "/v1/chat/completions", {"messages": ASK, "max_tokens": 2, "evenkeel": {"receipt": True}})[1]
        path = "/v1/receipts/" + head["x-evenkeel-receipt"]
        check("its own", call("one", "GET", path)[0] == 200)
        check("not another's", call("two", "GET", path)[0] == 404)


def without_a_key_there_is_no_reply():
    with Server(PROGRAM, "--model", MODEL, "--threads", 1) as s:
        reply = s.chat({"messages": ASK, "max_tokens": 2, "evenkeel": {"receipt": True}}, expect=400)
        check("it says why", "--receipts" in reply["error"]["message"], reply)
        check("nor a path", s.call("GET", "/v1/receipts/keys")[0] == 404)
    for bad in (KEY + ".pub", "/nowhere", MODEL):
        p = subprocess.run([PROGRAM, "serve", "--model", MODEL, "--port", "0", "--receipts", bad], capture_output=True, text=True)
        check(f"{bad} is refused at the start", p.returncode in (1, 2) and "--receipts" in p.stderr, p.stderr)


# --- verify ---


def write(name, value):
    path = os.path.join(DIR.name, name)
    with open(path, "w") as f:
        f.write(value if isinstance(value, str) else json.dumps(value))
    return path


def verify(thing, *options, key=None, model=MODEL):
    """(exit status, {check: result}, the whole answer) for a receipt, a reply, or bytes."""
    path = write("thing", thing)
    p = subprocess.run([PROGRAM, "verify", path, "--key", key or KEY + ".pub", "--json", *(["--model", model] if model else []), *map(str, options)],
                       capture_output=True, text=True)
    said = json.loads(p.stdout) if p.stdout else {"receipts": [{"checks": []}]}
    return p.returncode, {c["name"]: c["result"] for r in said["receipts"] for c in r["checks"]}, p.stdout + p.stderr


def expects(name, want, how, got):
    """how: {check: result}"""
    check(name, got[0] == want and all(got[1].get(k) == v for k, v in how.items()), f"{got[0]}, not {want}; {got[2]}")


def signed_again(receipt, key=None):
    """What the key's holder may do: a changed statement and opening, with commitments that fit and a new signature."""
    statement, o = json.loads(base64.b64decode(receipt["payload"])), receipt["opening"]
    p = statement["predicate"]
    p["prompt"].update(n=len(o["prompt"]), commitment=commitment(receipt, "prompt", len(o["prompt"]), tokens_of(o["prompt"])))
    p["reply"].update(n=len(o["reply"]), commitment=commitment(receipt, "reply", len(o["reply"]), tokens_of(o["reply"])))
    stops = [s.encode() for s in o["stop"]]
    p["ends"]["stop"] = commitment(receipt, "stop", len(stops), b"".join(struct.pack("<Q", len(s)) + s for s in stops))
    roots, salt = base64.b64decode(o["row_roots"]), sha(bytes.fromhex(o["salt"]), b"rows")
    p["rows"]["root"] = merkle([sha(b"\0", salt, struct.pack("<II", t, x), roots[32 * t:32 * t + 32]) for t, x in enumerate(o["reply"])]).hex()
    statement["subject"][0]["digest"]["sha256"] = p["reply"]["commitment"]
    return sealed(receipt, json.dumps(statement, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode(), key or KEY)


def sealed(receipt, data, key):
    kind = receipt["payloadType"].encode()
    message, sig = (os.path.join(DIR.name, n) for n in ("message", "sig"))
    open(message, "wb").write(b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(data), data))
    subprocess.run(["openssl", "pkeyutl", "-sign", "-inkey", key, "-rawin", "-in", message, "-out", sig], check=True, capture_output=True)
    return {**receipt, "payload": base64.b64encode(data).decode(),
            "signatures": [{"keyid": receipt["signatures"][0]["keyid"], "sig": base64.b64encode(open(sig, "rb").read()).decode()}]}


def changed(receipt, change, opening=None, sign=True):
    """change: of the predicate, opening: of the opening."""
    r = json.loads(json.dumps(receipt))
    statement = json.loads(base64.b64decode(r["payload"]))
    change(statement["predicate"])
    r["payload"] = base64.b64encode(json.dumps(statement, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()).decode()
    if opening:
        opening(r["opening"])
    return signed_again(r) if sign else r


def with_rows(o):
    """The roots that these tokens have, as who computes them all would state them."""
    o["row_roots"] = base64.b64encode(b"".join(row_root(r) for r in logits(o["prompt"] + o["reply"][:-1], len(o["reply"])))).decode()


def good_ones_hold():
    for name, (body, reply) in REPLIES.items():
        path = write("body", body)
        got = verify(reply, "--prompt", path)
        expects(name, 0, {"signature": "ok", "opening": "ok", "your prompt": "ok", "your options": "ok", "model": "ok", "text": "ok", "end": "ok", "rows": "ok"}, got)
        check(f"{name}: its words", got[2].count('"words","result":"ok"') == len(found(reply)), got[2])
        if not reply.get("x"):
            check(f"{name}: every draw was made", "draws" not in got[1], got[2])
    body, reply = REPLIES["sampled"]
    for isa in ("scalar", "avx2"):
        if isa in evenkeel("version", "--isas").split():
            expects(f"on {isa}", 0, {"rows": "ok"}, verify(reply, "--isa", isa, "--threads", 2, "--chunk", 3))
    expects("form and signature alone", 0, {"signature": "ok", "opening": "ok"}, verify(reply, model=None))
    r = found(reply)[0]
    expects("without an opening", 0, {"signature": "ok", "opening": "unchecked"}, verify({k: v for k, v in r.items() if k != "opening"}, model=None))
    expects("a model, and no opening", 2, {"rows": "cannot"}, verify({k: v for k, v in r.items() if k != "opening"}))
    expects("as a list of ids", 0, {"your prompt": "ok"}, verify(r, "--prompt", write("ids", r["opening"]["prompt"])))
    expects("a text", 0, {"your prompt": "ok"}, verify(REPLIES["a continued text"][1], "--prompt", write("text", "A keel is")))
    one, two = (payload(x)["sampling"]["seed"] for x in found(REPLIES["two choices"][1]))
    check("choices have seeds of their own", one != two)
    words = subprocess.run([PROGRAM, "verify", write("thing", reply), "--key", KEY + ".pub", "--model", MODEL], capture_output=True, text=True)
    check("in words", words.returncode == 0 and "\nverified\n" in words.stdout and "not proven:" in words.stdout, words.stdout)


def strangers_change_a_receipt():
    """Who lacks the key."""
    body, reply = REPLIES["a seed of the client"]
    r = found(reply)[0]
    expects("an option", 1, {"signature": "wrong"}, verify(changed(r, lambda p: p["sampling"].update(seed="8"), sign=False)))
    data = json.loads(base64.b64decode(r["payload"]))
    data["predicate"]["sampling"]["seed"] = "8"
    expects("an option, with blanks", 1, {"signature": "wrong"}, verify({**r, "payload": base64.b64encode(json.dumps(data).encode()).decode()}))
    for what in ("prompt", "reply"):
        other = json.loads(json.dumps(r))
        other["opening"][what][1] += 1
        expects(f"a token of the {what}", 1, {"opening": "wrong"}, verify(other))
    other = json.loads(json.dumps(r))
    other["opening"]["salt"] = "00" * 32
    expects("a salt", 1, {"opening": "wrong"}, verify(other))
    edited = json.loads(json.dumps(reply))
    edited["choices"][0]["message"]["content"] += "."
    expects("the words of the reply", 1, {"words": "wrong"}, verify(edited))
    for name, edit in (("the words of the second choice", lambda c: c[1]["message"].update(content=c[1]["message"]["content"] + ".")),
                       ("another number for it, and other words", lambda c: c[1].update(index=7, message={"content": "Yes."})),
                       ("a second one before it", lambda c: c.insert(1, {**c[1], "message": {"content": "Yes."}})),
                       ("one left out", lambda c: c.pop()), ("the choices swapped", lambda c: c.reverse())):
        edited = json.loads(json.dumps(REPLIES["two choices"][1]))
        edit(edited["choices"])
        expects(name, 1, {"words": "wrong"}, verify(edited))
    edited = json.loads(json.dumps(reply))
    edited["choices"].append({"index": 1, "message": {"content": "Yes."}})
    expects("a choice without a receipt", 1, {"words": "wrong"}, verify(edited))
    expects("a prompt that is not it", 1, {"your prompt": "wrong"}, verify(r, "--prompt", write("p", {**body, "messages": [{"role": "user", "content": "Hi"}]})))
    for field, value in (("temperature", 0.5), ("seed", 8), ("max_tokens", 25), ("stop", ["x"]), ("frequency_penalty", 0.4),
                         ("response_format", {"type": "json_object"}), ("evenkeel", wishes(receipt={"nonce": "n2"}))):
        expects(f"asked for another {field}", 1, {"your options": "wrong"}, verify(r, "--prompt", write("p", {**body, field: value})))
    evenkeel("receipts", "key", KEY + "2")
    expects("another key", 2, {"signature": "cannot"}, verify(r, key=KEY + "2.pub"))
    forged = sealed(r, base64.b64decode(r["payload"]), KEY + "2")
    expects("signed by another key under this one's name", 1, {"signature": "wrong"}, verify(forged))
    expects("no key", 2, {}, verify(r, key="/nowhere"))
    expects("no file", 2, {}, (subprocess.run([PROGRAM, "verify", "/nowhere", "--key", KEY + ".pub"], capture_output=True).returncode, {}, ""))
    expects("no --key", 2, {}, (subprocess.run([PROGRAM, "verify", write("thing", r)], capture_output=True).returncode, {}, ""))
    identity = "-----BEGIN PUBLIC KEY-----\n" + base64.b64encode(bytes.fromhex("302a300506032b6570032100") + b"\1" + bytes(31)).decode() + "\n-----END PUBLIC KEY-----\n"
    expects("a key of small order", 2, {}, verify(r, key=write("small", identity)))
    for name, text in (("nothing", ""), ("no JSON", "{"), ("deep", "[" * 100000), ("a number", "5"), ("no receipt", "{}"),
                       ("many values", "[" + "1," * 5000000 + "1]")):
        begin = time.time()
        expects(name, 2, {}, verify(text, model=None))
        check(f"{name}: at once", time.time() - begin < 5)
    expects("another model", 2, {"model": "cannot"}, verify(r, model="/nowhere"))


def an_operator_lies():
    """Who has the key and the model, states something else, and signs that."""
    body, reply = REPLIES["hot"]
    r, ok = found(reply)[0], {"signature": "ok", "opening": "ok"}
    expects("nothing changed", 0, {**ok, "rows": "ok"}, verify(changed(r, lambda p: None)))

    def one_token(o):
        """Another token at place 2, and behind it what the model then gives."""
        n, o["reply"] = len(o["reply"]), o["reply"][:2] + [o["reply"][2] + 1]
        while len(o["reply"]) < n:
            row = logits(o["prompt"] + o["reply"], 1)[0]
            values = struct.unpack(f"<{len(row) // 4}f", row)
            o["reply"].append(values.index(max(values)))
        with_rows(o)

    def text_fits(p, o):
        """The text commitment of other tokens, by the program's own tokenizer."""
        text = subprocess.run([PROGRAM, "detokenize", "--model", MODEL], input=" ".join(map(str, o["reply"])), capture_output=True, text=True).stdout.rstrip("\n").encode()
        p["reply"]["text"] = commitment({"opening": o}, "text", len(text), text)

    other = json.loads(json.dumps(found(REPLIES["short"][1])[0]))
    one_token(other["opening"])
    lie = changed(other, lambda p: text_fits(p, other["opening"]))
    got = verify(lie)
    expects("one token, and all that follows from it", 1, {**ok, "rows": "wrong"}, got)
    check("it says where", "row 2 of" in got[2], got[2])
    n = len(r["opening"]["reply"])
    expects("a span without it", 0, {**ok, "rows": "ok", "other rows": "unchecked"}, verify(lie, "--span", "3:6"))
    expects("a span with it", 1, {"rows": "wrong"}, verify(lie, "--span", "2:3"))
    expects("a span beyond the end", 2, {"rows": "cannot"}, verify(r, "--span", f"0:{n + 1}"))
    expects("half a span", 0, {"rows": "ok"}, verify(r, "--span", "1:"))

    def half(x):
        return "%08x" % struct.unpack("<I", struct.pack("<f", x))[0]
    expects("the temperature", 1, {**ok, "rows": "wrong"}, verify(changed(r, lambda p: p["sampling"].update(temperature=half(3)))))
    expects("the seed", 1, {**ok, "seed": "wrong"}, verify(changed(r, lambda p: p["sampling"].update(seed="12"))))
    draws = [verify(changed(r, lambda p: p["sampling"].update(seed=str(k), seed_from="server")))[:2] for k in range(12, 24)]
    check("the seed, as the server's", any(got == 1 and how["rows"] == "wrong" for got, how in draws), draws)
    expects("seeds tried until one pleases", 0, {"seed": "unchecked"}, verify(server_seed()))
    cut = found(REPLIES["cut"][1])[0]
    expects("the limit", 1, {"end": "wrong"}, verify(changed(cut, lambda p: p["ends"].update(max_tokens=9))))
    expects("an end that is none", 1, {"end": "wrong"}, verify(changed(cut, lambda p: p["reply"].update(finish="stop"))))

    def shorter(o):
        o["reply"] = o["reply"][:-1]
        o["row_roots"] = base64.b64encode(base64.b64decode(o["row_roots"])[:-32]).decode()
    short = json.loads(json.dumps(cut))
    shorter(short["opening"])
    expects("cut early", 1, {"end": "wrong"}, verify(changed(short, lambda p: text_fits(p, short["opening"]))))
    stopped = found(REPLIES["a stop text"][1])[0]
    expects("a stop text left out", 1, {"end": "wrong"}, verify(changed(stopped, lambda p: None, lambda o: o.update(stop=[]))))
    expects("another text", 1, {"text": "wrong"}, verify(changed(r, lambda p: p["reply"].update(text="0" * 64))))

    def forged_rows(o):
        o["row_roots"] = base64.b64encode(bytes(32) * len(o["reply"])).decode()
    expects("rows that are none", 1, {"rows": "wrong"}, verify(changed(r, lambda p: None, forged_rows)))

    def hidden(o):
        o["prompt"] = o["prompt"][:1] + o["prompt"]
        with_rows(o)
    expects("a hidden token of the prompt", 1, {"your prompt": "wrong"}, verify(changed(r, lambda p: None, hidden), "--prompt", write("p", body)))
    schema = found(REPLIES["a schema"][1])[0]
    expects("a form left out of the opening", 1, {"opening": "wrong"}, verify({**schema, "opening": {k: v for k, v in schema["opening"].items() if k != "form"}}))


def server_seed():
    with Server(PROGRAM, "--model", MODEL, "--threads", 1, "--receipts", KEY) as s:
        return s.chat({"messages": ASK, "temperature": 1, "max_tokens": 5, "evenkeel": {"receipt": True}})


def another_model_or_arithmetic_is_found():
    """What is served is not what is stated."""
    copy = os.path.join(DIR.name, "model")
    shutil.copytree(MODEL, copy)
    path = os.path.join(copy, "model.safetensors")
    data = bytearray(open(path, "rb").read())
    data[len(data) // 2] ^= 0x10
    open(path, "wb").write(data)
    truth = payload(found(REPLIES["sampled"][1])[0])
    with Server(PROGRAM, "--model", copy, "--threads", 1, "--receipts", KEY) as s:
        r = found(s.chat(REPLIES["sampled"][0]))[0]
    expects("a model with one other byte", 1, {"signature": "ok", "model": "wrong"}, verify(r))
    expects("by its own", 0, {"model": "ok", "rows": "ok"}, verify(r, model=copy))
    expects("which is said to be the other", 1, {"model": "ok", "rows": "wrong"}, verify(changed(r, lambda p: p.update(weights_sha256=truth["weights_sha256"]))))
    with Server(PROGRAM, "--model", MODEL, "--threads", 1, "--kv", "8", "--receipts", KEY) as s:
        r = found(s.chat(REPLIES["sampled"][0]))[0]
    expects("other keys and values, as stated", 0, {"arithmetic": "ok", "rows": "ok"}, verify(r))
    expects("with options of its own", 2, {"arithmetic": "cannot"}, verify(r, "--kv", "f16"))
    expects("said to be better ones", 1, {"arithmetic": "ok", "rows": "wrong"}, verify(changed(r, lambda p: p.update(profile=truth["profile"]))))
    words = json.load(open(os.path.join(copy, "generation_config.json")))
    words["suppress_tokens"] = [5]
    json.dump(words, open(os.path.join(copy, "generation_config.json"), "w"))
    open(path, "wb").write(open(os.path.join(MODEL, "model.safetensors"), "rb").read())
    with Server(PROGRAM, "--model", copy, "--threads", 1, "--receipts", KEY) as s:
        r = found(s.chat(REPLIES["sampled"][0]))[0]
    expects("the same weights, other suppressed tokens", 1, {"model": "ok", "tokenizer": "wrong"}, verify(r))


def a_log_has_every_receipt():
    log = os.path.join(DIR.name, "log")
    options = ("--model", MODEL, "--threads", 1, "--receipts", KEY, "--receipts-log", log)
    ask = {"messages": ASK, "max_tokens": 3, "temperature": 0, "evenkeel": wishes()}

    def entries():
        lines = open(log).read().splitlines()
        for before, line in zip(lines, lines[1:]):
            check("a line names the one before it", json.loads(line)["prev"] == sha(before.encode()).hex())
        return [json.loads(line) for line in lines[1:]]

    def root(n):
        return merkle([sha(b"\0", bytes.fromhex(e["entry"])) for e in entries() if "entry" in e][:n]).hex()

    def by_id(s, head, more=""):
        return s.call("GET", f"/v1/receipts/{head['x-evenkeel-receipt']}{more}")[2]

    with Server(PROGRAM, *options) as s:
        heads = [s.call("POST", "/v1/chat/completions", ask)[1] for _ in range(3)]
        streamed(s, "/v1/chat/completions", {**ask, "n": 2})
        check("five entries", len(entries()) == 5 and os.stat(log).st_mode & 0o777 == 0o600, entries())
        first = by_id(s, heads[0])
        check("the root over them", first["log"]["root"] == root(5) and first["log"]["size"] == 5, first["log"])
        kept = write("kept", first["log"]["checkpoint"])
        expects("by its own checkpoint", 0, {"log": "ok", "signature": "ok"}, verify(first, model=None))
        expects("without a path", 2, {"log": "cannot"}, verify(found(s.chat(ask))[0], "--checkpoint", kept, model=None))
        for more in ("?size=9", "?size=x", "?size=-1"):
            check(f"refused: {more}", s.call("GET", f"/v1/receipts/{heads[0]['x-evenkeel-receipt']}{more}")[0] == 400)
        refused = subprocess.run([PROGRAM, "serve", "--port", "0", *map(str, options)], capture_output=True, text=True)
        check("one process writes", refused.returncode == 1 and "another process" in refused.stderr, refused.stderr)
        check("metrics", s.metrics()["evenkeel_receipts_log_entries"] == 6)
    check("the end has a root", entries()[-1].get("root") == root(6), entries()[-1])
    with open(log, "a") as f:
        f.write('{"entry":"00')  # a process that was killed within a line
    with Server(PROGRAM, *options) as s:
        head = s.call("POST", "/v1/chat/completions", ask)[1]
        late = by_id(s, head)
        check("it goes on", late["log"]["index"] == 6 and late["log"]["root"] == root(7), late["log"])
        expects("a kept checkpoint of more entries", 0, {"log": "ok"}, verify(late, "--checkpoint", write("now", late["log"]["checkpoint"]), model=None))
        expects("one from before", 1, {"log": "wrong"}, verify(late, "--checkpoint", kept, model=None))
        status, _, proof = s.call("GET", "/v1/receipts/log/consistency?from=5")
        check("consistency", status == 200 and (proof["from"], proof["to"]) == (5, 7) and proof["proof"], proof)
        old = open(KEY).read(), open(KEY + ".pub").read()
        os.unlink(KEY), os.unlink(KEY + ".pub")
        evenkeel("receipts", "key", KEY)
        s.process.send_signal(1)
        assert s.says("event=receipts_key ")
        note = [e for e in entries() if "rotation" in e]
        check("the old key signs the new one", len(note) == 1 and signature_holds(note[0]["rotation"], write("old.pub", old[1])), note)
        for path, text in zip((KEY, KEY + ".pub"), old):
            open(path, "w").write(text)
    check("receipts log", evenkeel("receipts", "log", log).strip().endswith(f"8 entries, root {root(8)}"))
    lines = open(log).read().splitlines(True)
    for name, text in (("removed", lines[:2] + lines[3:]), ("swapped", [lines[0], lines[2], lines[1], *lines[3:]]), ("twice", lines[:2] + lines[1:])):
        check(f"an entry {name}", "line" in subprocess.run([PROGRAM, "receipts", "log", write("bad", "".join(text))], capture_output=True, text=True).stderr)
    os.chmod(DIR.name, 0o700)


def the_operator_keeps_openings_and_hides_lengths():
    path = os.path.join(DIR.name, "openings")
    options = ("--model", MODEL, "--threads", 1, "--receipts", KEY, "--receipts-openings", path, "--receipts-hide-lengths")
    body = {"messages": ASK, "temperature": 1, "n": 2, "max_tokens": 6, "evenkeel": wishes()}
    lines = lambda p=path: [json.loads(line) for line in open(p)]
    with Server(PROGRAM, *options) as s:
        reply = s.chat(body)
        r = found(reply)
        check("a line for each", [(x["id"], x["choice"], x["receipt"]) for x in lines()] == [(reply["id"], i, x) for i, x in enumerate(r)], lines())
        check("nobody else's", os.stat(path).st_mode & 0o777 == 0o600, oct(os.stat(path).st_mode))
        check("no lengths", all("n" not in payload(x)[k] for x in r for k in ("prompt", "reply")) and "media" not in payload(r[0])["prompt"], payload(r[0]))
        expects("with all it opens", 0, {"opening": "ok", "your prompt": "ok", "your options": "ok", "end": "ok", "rows": "ok", "words": "ok"}, verify(reply, "--prompt", write("p", body)))
        expects("a line of the file", 0, {"opening": "ok", "rows": "ok"}, verify(lines()[1]))
        expects("another prompt", 1, {"your prompt": "wrong"}, verify(r[0], "--prompt", write("p", {**body, "messages": [{"role": "user", "content": "Hi"}]})))
        expects("no opening", 0, {"opening": "unchecked"}, verify({k: v for k, v in r[0].items() if k != "opening"}, model=None))
        for what in ("prompt", "reply"):
            for change in (lambda t: t.append(7), lambda t: t.pop()):
                other = json.loads(json.dumps({k: v for k, v in r[0].items()}))
                change(other["opening"][what])
                other["opening"].pop("row_roots")
                expects(f"a {what} of another length", 1, {"opening": "wrong"}, verify(other))
        some = json.loads(json.dumps(r[0]))
        some["opening"].pop("prompt")
        expects("the reply opened alone", 0, {"opening": "ok", "your prompt": "ok"}, verify(some, "--prompt", write("ids", r[0]["opening"]["prompt"]), model=None))
        text = evenkeel("receipts", "show", write("thing", r[0]))
        check("shown without", "prompt.n " not in text and "reply.commitment" in text, text)
        os.rename(path, path + ".old")
        s.process.send_signal(1)
        for _ in range(100):
            if os.path.exists(path):
                break
            time.sleep(0.05)
        s.chat(body)
        check("a new file after a hangup", len(lines()) == 2 and len(lines(path + ".old")) == 2)
        p = subprocess.run([PROGRAM, "serve", "--port", "0", *map(str, options)], capture_output=True, text=True)
        check("one process has it", p.returncode != 0 and "another process" in p.stderr, p.stderr)
    with open(path, "a") as f:
        f.write('{"id":"half')
    with Server(PROGRAM, *options) as s:
        s.chat(body)
        check("half a line is cut off", len(lines()) == 4 and s.says("a line that was not finished"))
    os.chmod(path, 0o644)
    p = subprocess.run([PROGRAM, "serve", "--port", "0", *map(str, options)], capture_output=True, text=True)
    check("others may not read it", p.returncode != 0 and "may be read by others" in p.stderr, p.stderr)
    os.chmod(path, 0o600)
    small = os.path.join(DIR.name, "small.openings")
    limited = write("limited", f'#!/bin/bash\nulimit -f 8; trap "" XFSZ; exec {os.path.abspath(PROGRAM)} "$@"\n')
    os.chmod(limited, 0o700)
    with Server(limited, *options[:6], "--receipts-openings", small) as s:
        got = [s.call("POST", "/v1/chat/completions", {**body, "n": 1})[0] for _ in range(4)]
        check("no line, no receipt", got[0] == 200 and got[-1] == 500 and len(lines(small)) == got.count(200), (got, len(lines(small))))
    for option in ("--receipts-hide-lengths", "--receipts-openings=x", "--receipts-log=x"):
        p = subprocess.run([PROGRAM, "serve", "--model", MODEL, "--port", "0", option], capture_output=True, text=True)
        check(f"{option} alone", p.returncode == 2 and f"{option.split('=')[0]} needs --receipts" in p.stderr, p.stderr)
    one, key = os.path.join(DIR.name, "one"), options[options.index("--receipts") + 1]
    before = open(key, "rb").read()
    for a, b in (("--receipts-log", one), ("--journal", one)), (("--receipts-openings", one), ("--receipts-log", DIR.name + "/./one")), (("--receipts", key), ("--port-file", key)):
        p = subprocess.run([PROGRAM, "serve", "--model", MODEL, "--port", "0", "--receipts", key, *a, *b], capture_output=True, text=True)
        said = p.returncode == 2 and "are one file" in p.stderr and a[0] in p.stderr and b[0] in p.stderr and not os.path.exists(one)
        check(f"{a[0]} and {b[0]} of one place", said and open(key, "rb").read() == before, p.stderr)


def picture(colour):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    rows = b"".join(b"\0" + bytes((x * 3, y * 5, colour)[c] for x in range(64) for c in range(3)) for y in range(48))
    data = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 64, 48, 8, 2, 0, 0, 0)) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return "data:image/png;base64," + base64.b64encode(data).decode()


def a_picture_comes_with_the_prompt():
    def body(colour):
        return {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": picture(colour)}}, {"type": "text", "text": "What is it?"}]}],
                "temperature": 0, "max_tokens": 6, "evenkeel": wishes()}
    with Server(PROGRAM, "--model", MODEL, "--threads", 1, "--receipts", KEY) as s:
        reply = s.chat(body(99))
    check("it is in the commitment", payload(found(reply)[0])["prompt"]["media"] == 1)
    expects("without it", 2, {"rows": "cannot", "opening": "ok"}, verify(reply))
    expects("with it", 0, {"rows": "ok", "your prompt": "ok"}, verify(reply, "--prompt", write("p", body(99))))
    expects("with another", 1, {"your prompt": "wrong"}, verify(reply, "--prompt", write("p", body(9))))


def drafts_and_a_continued_stream_change_nothing():
    body = {"messages": [{"role": "user", "content": "Count: one two three one two three one two three"}], "temperature": 0, "max_tokens": 30, "ignore_eos": True, "evenkeel": wishes()}
    receipts = []
    for mode in ("off", "ngram"):
        with Server(PROGRAM, "--model", MODEL, "--threads", 1, "--receipts", KEY, "--draft", mode) as s:
            receipts.append(found(s.chat(body))[0])
            state = streamed(s, "/v1/chat/completions", {**body, "evenkeel": wishes(resume=True)})[1]
            drafted = s.metrics()["evenkeel_drafted_tokens_total"]
    check("drafts were made", drafted > 0, drafted)
    check("the same rows", receipts[0]["opening"]["row_roots"] == receipts[1]["opening"]["row_roots"])
    expects("a drafted reply", 0, {"rows": "ok", "end": "ok"}, verify(receipts[1]))
    on = {"tokens": []}
    for event in state[:8]:
        more = event.get("evenkeel", {}).get("resume", {})
        on = {**on, **more, "tokens": on["tokens"] + more.get("tokens", [])}
    check("eight events have tokens", len(on["tokens"]) > 2, state[:3])
    with Server(PROGRAM, "--model", MODEL, "--threads", 1, "--receipts", KEY) as s:
        others, events = streamed(s, "/v1/chat/completions", {**body, "evenkeel": wishes(resume=on)})
    check("a continued stream has a receipt", len(others) == 1, events[-1:])
    check("of the whole reply", others and others[0]["opening"]["row_roots"] == receipts[0]["opening"]["row_roots"] and others[0]["opening"]["reply"] == receipts[0]["opening"]["reply"])
    expects("a continued reply", 0, {"rows": "ok", "end": "ok"}, verify(others[0]))


def a_long_one_is_proven_beside_the_event_loop():
    log = os.path.join(DIR.name, "long.log")
    with Server(PROGRAM, "--model", MODEL, "--threads", 1, "--receipts", KEY, "--receipts-log", log) as s:
        head = s.call("POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": "keel " * 1200}], "n": 64, "max_tokens": 1, "evenkeel": wishes()})[1]
        before = s.metrics()["evenkeel_event_turn_seconds_max"]
        receipts = [s.call("GET", "/v1/receipts/" + head["x-evenkeel-receipt"])[2] for _ in range(3)][2]
        check("one checkpoint for all", len(receipts) == 64 and len({r["log"]["checkpoint"] for r in receipts}) == 1, receipts[0]["log"])
        longest = s.metrics()["evenkeel_event_turn_seconds_max"]
        check("no turn was long", longest <= max(before, 0.003), (before, longest))  # 7 ms for 64 signatures


def a_reply_that_loops_has_one():
    with Server(PROGRAM, "--model", MODEL, "--threads", 1, "--receipts", KEY, "--stop-loops") as s:
        letter = s.call("POST", "/tokenize", {"prompt": "a", "add_special_tokens": False})[2]["tokens"][-1]
        body = {"messages": ASK, "temperature": 0, "max_tokens": 300, "logit_bias": {str(letter): 100}, "evenkeel": wishes()}
        reply = s.chat(body)
        r = found(reply)[0]
        check("its end is said", (payload(r)["reply"]["finish"], payload(r)["reply"]["n"]) == ("loop", 200), payload(r)["reply"])
        expects("tokens that loop", 0, {"end": "ok", "rows": "ok", "your options": "ok"}, verify(reply, "--prompt", write("p", body)))

        def shorter(o):
            o["reply"] = o["reply"][:-1]
            o["row_roots"] = base64.b64encode(base64.b64decode(o["row_roots"])[:-32]).decode()
        expects("cut before it loops", 1, {"end": "wrong"}, verify(changed(r, lambda p: None, shorter)))
        expects("said of a reply that a limit ended", 1, {"end": "wrong"}, verify(changed(found(REPLIES["cut"][1])[0], lambda p: p["reply"].update(finish="loop"))))
        expects("said to be a limit", 1, {"end": "wrong"}, verify(changed(r, lambda p: p["reply"].update(finish="length"))))
        call = {"id": "c", "type": "function", "function": {"name": "weather", "arguments": json.dumps({"city": "Oslo"})}}
        asked = [{"role": "user", "content": "Weather in Oslo?"}] + 3 * [{"role": "assistant", "tool_calls": [call]}, {"role": "tool", "tool_call_id": "c", "content": "rain"}]
        tool = {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"const": "Oslo"}}, "required": ["city"]}}
        body = {"messages": asked, "temperature": 0, "max_tokens": 64, "tools": [{"type": "function", "function": tool}], "tool_choice": "required",
                "parallel_tool_calls": False, "evenkeel": wishes()}
        reply = s.chat(body)
        check("the call once more", payload(found(reply)[0])["reply"]["finish"] == "loop", payload(found(reply)[0])["reply"])
        expects("a call once more", 0, {"end": "ok", "rows": "ok"}, verify(reply, "--prompt", write("p", body)))
        expects("without the calls before it", 0, {"end": "unchecked", "rows": "ok"}, verify(reply))
        fewer = {**body, "messages": [*asked[:5], {"role": "user", "content": "Once more."}]}
        other = found(s.chat(fewer))[0]
        expects("said of a call that is new", 1, {"end": "wrong"}, verify(changed(other, lambda p: p["reply"].update(finish="loop")), "--prompt", write("p", fewer)))
        body = {"messages": [{"role": "user", "content": "Not cached. " * 40}], "max_tokens": 4, "cache_hit_threshold": 0.9, "evenkeel": wishes()}
        status, head, reply = s.call("POST", "/v1/chat/completions", body)
        check("what is not computed has none", status == 200 and reply["choices"][0]["finish_reason"] == "cache_threshold" and not found(reply) and
              "x-evenkeel-receipt" not in head, (status, head, reply))
        receipts, events = streamed(s, "/v1/chat/completions", body)
        check("nor a stream of it", not receipts and events[-1]["choices"][0]["finish_reason"] == "cache_threshold", events)


def a_forged_stored_reply_gets_no_receipt():
    """A record with a sum that fits and another token: its rows are computed for the receipt, and so it is found."""
    folder = os.path.join(DIR.name, "stored")
    options = ("--model", MODEL, "--threads", 1, "--receipts", KEY, "--cache-replies", "1M", "--cache-dir", folder)
    bodies = [{"messages": ASK, "temperature": 1, "seed": 30 + i, "max_tokens": 12, "n": 1 + i} for i in range(2)]
    with Server(PROGRAM, *options) as s:
        want = [s.chat(body)["choices"] for body in bodies]
    db = sqlite3.connect(next(os.path.join(folder, f) for f in os.listdir(folder) if f.endswith("-replies.sqlite")))
    for key, record in db.execute("SELECT key, record FROM reply").fetchall():
        data = bytearray(record[:-32])
        data[48 + 4 * (int.from_bytes(record[40:44], "little") // 2)] ^= 1
        db.execute("UPDATE reply SET record=? WHERE key=?", (bytes(data) + sha(data), key))
    db.commit()
    db.close()
    with Server(PROGRAM, *options) as s:
        for body, choices in zip(bodies, want):
            for stream in (False, True):
                ask = {**body, "evenkeel": wishes()}
                receipts = streamed(s, "/v1/chat/completions", ask)[0] if stream else found(reply := s.chat(ask))
                check("one for each choice", len(receipts) == body["n"], len(receipts))
                check("the model's words", stream or reply["choices"] == choices, choices)
                for r in receipts:
                    expects("a receipt of the computed reply", 0, {"rows": "ok", "end": "ok", "text": "ok"}, verify(r))
        check("it is said", s.says("event=reply_wrong"))


def a_device_s_receipt_is_verified_on_a_cpu():
    """CUDA kernels on the device made of a CPU (tests/emulate), where it is built and the program has kernels."""
    folder = os.path.join(os.path.dirname(PROGRAM), "tests/emulate")
    env = {"LD_LIBRARY_PATH": folder}
    if not os.path.exists(os.path.join(folder, "libcuda.so.1")):
        raise counted.Skip("there is no emulated device in this build")
    if subprocess.run([PROGRAM, "inspect", "--device", "cuda", MODEL], capture_output=True, env={**os.environ, **env}).returncode:
        raise counted.Skip("this program has no CUDA kernels")
    with Server(PROGRAM, "--model", MODEL, "--device", "cuda:0", "--receipts", KEY, env=env) as s:
        device = found(s.chat({"messages": ASK, "temperature": 1, "seed": 5, "max_tokens": 3, "evenkeel": wishes()}))[0]
    expects("on the CPU", 0, {"rows": "ok", "arithmetic": "ok"}, verify(device, "--device", "cpu"))
    expects("in plain C", 0, {"rows": "ok"}, verify(device, "--device", "cpu", "--isa", "scalar"))


def people_can_read_it():
    text = evenkeel("receipts", "show", write("thing", REPLIES["two choices"][1]))
    lines = dict(line.split(None, 1) for line in text.splitlines() if line.strip())
    p = payload(found(REPLIES["two choices"][1])[1])
    check("the second one's members", lines["weights_sha256"] == p["weights_sha256"] and lines["reply.n"] == str(p["reply"]["n"]) and lines["sampling.seed"] == p["sampling"]["seed"], text)
    check("floats", "(1)" in lines["sampling.temperature"], text)
    check("one block each", text.count("weights_sha256") == 2, text)
    evil = found(REPLIES["greedy"][1])[0]
    text = evenkeel("receipts", "show", write("thing", changed(evil, lambda p: p.update(program="\u001b[2J\nweights_sha256 x"))))
    check("a stranger's text moves no terminal", "\x1b" not in text and text.count("\nweights_sha256") == 1, text)
    evenkeel("receipts", "show", write("thing", "{}"), status=1)
    evenkeel("receipts", "sign", KEY, status=2)


evenkeel("receipts", "key", KEY)
with Server(PROGRAM, "--model", MODEL, "--threads", 2, "--receipts", KEY, "--cache-replies", "1M") as s:
    for test in (every_api_signs, a_statement_says_who_gave_the_seed, a_stored_reply_has_a_receipt, nothing_is_signed_unasked,
                 the_weights_are_sha256sum_s, a_new_key_signs_after_a_hangup):
        run(test, s)
for test in (a_stream_keeps_the_key_that_it_began_with, owners_see_their_own, without_a_key_there_is_no_reply, good_ones_hold, strangers_change_a_receipt, an_operator_lies,
             another_model_or_arithmetic_is_found, a_log_has_every_receipt, a_picture_comes_with_the_prompt,
             drafts_and_a_continued_stream_change_nothing, a_long_one_is_proven_beside_the_event_loop, the_operator_keeps_openings_and_hides_lengths, a_reply_that_loops_has_one, a_forged_stored_reply_gets_no_receipt, people_can_read_it):
    run(test)
if os.environ.get("TIER") != "check":  # ten seconds
    run(a_device_s_receipt_is_verified_on_a_cpu)
sys.exit(closing())
