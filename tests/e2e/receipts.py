"""Receipts of the whole program: what a server signs is recomputed here in Python, from tokens and from the logits that the program
writes for them, its signature by OpenSSL. Then `evenkeel verify` on good receipts and on what attackers make of them.

usage: receipts.py EVENKEEL MODEL_DIR

The output's last line is `N passed, N failed`."""
import base64, hashlib, json, os, struct, subprocess, sys, tempfile, time

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
    yield "cut", "/v1/chat/completions", {**chat, "max_tokens": 3}
    yield "a stop text", "/v1/chat/completions", {**chat, "stop": ["ee", "never"]}
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


evenkeel("receipts", "key", KEY)
with Server(PROGRAM, "--model", MODEL, "--threads", 2, "--receipts", KEY, "--cache-replies", "1M") as s:
    for test in (every_api_signs, a_statement_says_who_gave_the_seed, a_stored_reply_has_a_receipt, nothing_is_signed_unasked,
                 the_weights_are_sha256sum_s, a_new_key_signs_after_a_hangup):
        run(test, s)
for test in (owners_see_their_own, without_a_key_there_is_no_reply):
    run(test)
sys.exit(closing())
