#!/usr/bin/env python3
"""End-to-end tests of `evenkeel serve`: e2e.py PROGRAM MODEL [NAME...]

MODEL is a checkpoint folder. Prints one line per test and closes with `N passed, N failed`."""
import json, os, socket, sys, threading, time

import counted
from client import Server, assemble

PROGRAM, MODEL, counted.only = sys.argv[1], sys.argv[2], sys.argv[3:]
TRAINED = "tiny" not in MODEL
WEATHER = {"type": "function", "function": {"name": "get_weather", "description": "Get the current weather for a city.",
           "parameters": {"type": "object", "properties": {"city": {"type": "string", "description": "The city"}}, "required": ["city"]}}}


def ask(text="What is the capital of Norway?", **more):
    return {"model": "m", "messages": [{"role": "user", "content": text}], "temperature": 0, "max_tokens": 24, **more}


def text_of(reply, i=0):
    return reply["choices"][i]["message"]["content"]


def plain(s):
    r = s.chat(ask())
    assert r["object"] == "chat.completion" and r["id"].startswith("chatcmpl-") and r["model"] == s.call("GET", "/v1/models")[2]["data"][0]["id"], r
    assert r["system_fingerprint"].startswith("ek3 ") and abs(r["created"] - time.time()) < 600, r
    c = r["choices"][0]
    assert len(r["choices"]) == 1 and c["index"] == 0 and c["logprobs"] is None, r
    assert c["message"]["role"] == "assistant" and isinstance(c["message"]["content"], str) and c["message"]["refusal"] is None, r
    assert "tool_calls" not in c["message"] and c["finish_reason"] in ("stop", "length"), r
    u = r["usage"]
    assert u["total_tokens"] == u["prompt_tokens"] + u["completion_tokens"] and 0 < u["completion_tokens"] <= 24, u
    assert u["prompt_tokens_details"]["cached_tokens"] <= u["prompt_tokens"] and "reasoning_tokens" in u["completion_tokens_details"], u
    assert "evenkeel" not in r, r


def stream_is_plain(s):
    for body in (ask(), ask(temperature=1, seed=5), ask(tools=[WEATHER]), ask(chat_template_kwargs={"enable_thinking": True}),
                 ask("Weather in Oslo?", tools=[WEATHER], max_tokens=60)):
        body["evenkeel"] = {"digest": True}
        r = s.chat(body)
        stream = s.stream(dict(body, stream_options={"include_usage": True}))
        frames = list(stream)
        assert stream.done, "no [DONE]"
        message, finish, usage = assemble(frames)
        want = r["choices"][0]["message"]
        assert message["content"] == (want["content"] or ""), (message, want)
        assert message.get("reasoning_content") == want.get("reasoning_content"), (message, want)
        strip = lambda m: [t["function"] for t in m.get("tool_calls", [])]
        assert strip(message) == strip(want), (message, want)
        for u in (usage, r["usage"]):
            u.pop("prompt_tokens_details")  # what the cache holds by then
        assert finish == r["choices"][0]["finish_reason"] and usage == r["usage"], (finish, usage, r)
        assert frames[-1]["choices"] == [] and all(f["usage"] is None for f in frames[:-1]), frames[-1]
        digests = [f["evenkeel"]["digest"] for f in frames if "evenkeel" in f]
        assert digests == [r["evenkeel"]["digest"]], (digests, r)
    frames = list(s.stream(ask()))
    assert not any("usage" in f for f in frames), "usage without being asked"


def sampling(s):
    hot = ask(temperature=1.0, seed=11, ignore_eos=True, max_tokens=16)
    a, b, other = s.chat(hot), s.chat(hot), s.chat(dict(hot, seed=12))
    assert text_of(a) == text_of(b), "same seed, different text"
    assert text_of(a) != text_of(other) or TRAINED, "another seed, same text"
    assert a["usage"]["completion_tokens"] == 16 and a["choices"][0]["finish_reason"] == "length", a
    three = s.chat(dict(hot, n=3))
    assert [c["index"] for c in three["choices"]] == [0, 1, 2] and text_of(three) == text_of(a), three
    assert three["usage"]["completion_tokens"] == 48, three
    frames = list(s.stream(dict(hot, n=3)))
    for i in range(3):
        assert assemble(frames, i)[0]["content"] == text_of(three, i)


def stop_strings(s):
    whole = text_of(s.chat(ask(ignore_eos=True, max_tokens=40)))
    stop = whole[len(whole) // 2:][:3]
    r = s.chat(ask(ignore_eos=True, max_tokens=40, stop=[stop, "never to be seen"]))
    assert text_of(r) == whole[:whole.index(stop)] and r["choices"][0]["finish_reason"] == "stop", (whole, stop, r)
    m, finish, _ = assemble(list(s.stream(ask(ignore_eos=True, max_tokens=40, stop=stop))))
    assert m["content"] == text_of(r) and finish == "stop"
    s.wait_idle()


def tools(s):
    none = s.chat(ask("Weather in Oslo?", tools=[WEATHER], tool_choice="none", max_tokens=60))
    assert "tool_calls" not in none["choices"][0]["message"], none


def tool_calls(s):
    if not TRAINED:
        raise counted.Skip("a model with random weights calls no tools")
    r = s.chat(ask("What's the weather in Oslo?", tools=[WEATHER], max_tokens=100))
    calls = r["choices"][0]["message"].get("tool_calls")
    assert calls and r["choices"][0]["finish_reason"] == "tool_calls", r
    assert calls[0]["type"] == "function" and calls[0]["id"].startswith("call_") and len(calls[0]["id"]) == 29, calls
    assert calls[0]["function"]["name"] == "get_weather" and json.loads(calls[0]["function"]["arguments"]) == {"city": "Oslo"}, calls
    assert r["choices"][0]["message"]["content"] is None, r
    frames = s.stream(ask("What's the weather in Oslo?", tools=[WEATHER], max_tokens=100, evenkeel={"whole_calls": True}))
    streamed = [t for f in frames for c in f["choices"] for t in c["delta"].get("tool_calls", [])]
    assert [(t["type"], t["id"][:5], t["function"]) for t in streamed] == [("function", "call_", c["function"]) for c in calls], streamed
    again = {"role": "tool", "tool_call_id": calls[0]["id"], "content": "4 C, rain"}
    body = ask("What's the weather in Oslo?", tools=[WEATHER], max_tokens=100)
    body["messages"] += [r["choices"][0]["message"], again]
    assert text_of(s.chat(body)), "no answer after the tool's result"


def company(s):
    texts = [f"Say something about the number {i * 37} and the word {'abc' * i}." for i in range(8)]
    bodies = [ask(t, max_tokens=20, evenkeel={"digest": True}, **more) for t in texts for more in ({}, {"temperature": 1.0, "seed": 3})]
    alone = [s.chat(b) for b in bodies]
    failures = []

    def one(i):
        time.sleep(0.01 * (i * 7 % 64))
        b = bodies[i % len(bodies)]
        if i % 3 == 0:
            frames = list(s.stream(b))
            got, digest = assemble(frames)[0]["content"], [f["evenkeel"]["digest"] for f in frames if "evenkeel" in f][0]
        else:
            r = s.chat(b)
            got, digest = text_of(r), r["evenkeel"]["digest"]
        want = alone[i % len(bodies)]
        if (got, digest) != (text_of(want) or "", want["evenkeel"]["digest"]):
            failures.append((i, got, text_of(want)))

    def guarded(i):
        try:
            one(i)
        except Exception as e:
            failures.append((i, repr(e)))

    threads = [threading.Thread(target=guarded, args=(i,)) for i in range(64)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not failures, failures[:3]


def idle(s):
    """A server without requests takes no processor time."""
    s.chat(ask())
    s.wait_idle()

    def ticks():
        fields = open(f"/proc/{s.process.pid}/stat").read().rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])

    used = []
    for _ in range(3):
        time.sleep(0.2)
        before = ticks()
        time.sleep(0.5)
        used.append(ticks() - before)
    assert min(used) == 0, f"{used} ticks of {os.sysconf('SC_CLK_TCK')} per second in half a second each"


def vanishing(s):
    long = ask(ignore_eos=True, max_tokens=10**12)
    streams = [s.stream(long) for _ in range(4)]
    for st in streams:
        next(iter(st))
        st.close()
    c = s.socket()
    body = json.dumps(dict(long, max_tokens=400)).encode()
    c.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
    time.sleep(0.05)
    c.close()  # before the first byte of a reply that does not stream
    s.wait_idle()
    s.chat(ask())


def read_all(c):
    data = b""
    try:
        while True:
            part = c.recv(65536)
            if not part:
                return data
            data += part
    except (ConnectionError, socket.timeout):
        return data


def one_byte_at_a_time(s):
    """--body-timeout is 2 here."""
    head, slow = s.socket(), s.socket()
    slow.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 5000\r\n\r\n")
    begin, ended = time.time(), {}
    while len(ended) < 2 and time.time() - begin < 10:
        for c in (head, slow):
            if c in ended:
                continue
            try:
                c.sendall(b"G" if c is head else b" ")
                c.settimeout(0.15)
                if c.recv(1000) is not None:
                    ended[c] = time.time() - begin
            except socket.timeout:
                pass
            except ConnectionError:
                ended[c] = time.time() - begin
        assert s.call("GET", "/health")[0] == 200
    assert len(ended) == 2 and all(1.5 < t < 6 for t in ended.values()), ended


def errors(s):
    def refused(status, method, path, body=None, headers=None, says=""):
        got, h, r = s.call(method, path, body, headers)
        assert got == status, (got, status, r)
        assert set(r["error"]) == {"message", "type", "param", "code"} and says in r["error"]["message"], r
        assert h["x-request-id"].startswith("req_"), h
        return h, r["error"]

    got, h, r = s.call("POST", "/v1/messages", {})
    assert got == 400 and r["type"] == "error" and h["request-id"] == h["x-request-id"], (got, h, r)
    chat = "/v1/chat/completions"
    for bad in (b"", b"{", b"\xff\xfe", b"[1,2", b"{\"messages\": nope}"):
        refused(400, "POST", chat, bad, says="JSON")
    refused(400, "POST", chat, b"[" * 100000)
    refused(400, "POST", chat, b'{"messages":' + b'{"a":' * 5000 + b"1" + b"}" * 5000 + b"}")
    refused(400, "POST", chat, {"messages": []})
    assert refused(400, "POST", chat, ask(temperature="hot"))[1]["param"] == "temperature"
    refused(400, "POST", chat, ask(tool_choice="required"), says="no tools")
    refused(400, "POST", chat, {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]})
    e = refused(400, "POST", chat, ask("hello " * 60000))[1]
    assert e["code"] == "context_length_exceeded", e
    refused(404, "GET", "/nothing")
    refused(404, "GET", "/v1/chat/completions/x")
    assert refused(404, "GET", "/v1/models/none/such")[1]["type"] == "not_found_error"
    assert refused(405, "GET", chat)[0]["allow"] == "POST"
    refused(405, "DELETE", "/v1/models")
    assert refused(405, "PUT", "/v1/responses/resp_x")[0]["allow"] == "GET, DELETE"
    refused(400, "POST", chat, b"a=b", {"content-type": "application/x-www-form-urlencoded"}, says="JSON")
    refused(415, "POST", chat, b"{}", {"content-type": "application/json", "content-encoding": "gzip"})
    for kind in ({}, {"content-type": "application/x-www-form-urlencoded"}, {"content-type": "text/plain"}):
        assert s.call("POST", chat, json.dumps(ask()).encode(), kind)[0] == 200, "a JSON body of any content-type is taken"
    assert s.call("POST", "/chat/completions", ask())[0] == 200 and s.call("GET", "/models")[0] == 200, "paths without /v1"
    s.chat(ask(max_tokens=10**12, stop="e" if not TRAINED else None))


def models(s):
    r = s.call("GET", "/v1/models")[2]
    assert r["object"] == "list" and len(r["data"]) == 1, r
    m = r["data"][0]
    assert set(m) >= {"id", "object", "created", "owned_by"} and m["object"] == "model" and m["id"] == "a/b c", m
    assert m["max_model_len"] == m["context_length"] == 512, m
    assert s.call("GET", "/v1/models/a/b%20c")[2] == m
    assert s.call("GET", "/health")[2]["status"] == "ok"


def huge_body(s):
    c = s.socket()
    c.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 104857600\r\n\r\n")
    block, sent = b" " * (1 << 20), 0
    try:
        for _ in range(100):
            c.sendall(block)
            sent += 1
    except ConnectionError:
        pass
    reply = read_all(c)
    assert reply.startswith(b"HTTP/1.1 413 ") and b'"error"' in reply, (sent, reply[:200])
    c = s.socket()  # the same without a length
    c.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n")
    try:
        for _ in range(100):
            c.sendall(b"100000\r\n" + block + b"\r\n")
    except ConnectionError:
        pass
    reply = read_all(c)
    assert not reply or reply.startswith(b"HTTP/1.1 413 "), reply[:200]
    s.chat(ask())


def raw_http(s):
    def reply_to(data):
        c = s.socket(10)
        c.sendall(data)
        return read_all(c)

    assert b" 200 " not in reply_to(b"nonsense\r\n\r\n")
    assert reply_to(b"GET / HTTP/3.0\r\n\r\n").startswith(b"HTTP/1.1 505 ")
    assert reply_to(b"GET / HTTP/1.1\r\nhost: x\r\na: " + b"x" * 90000 + b"\r\n\r\n").startswith(b"HTTP/1.1 431 ")
    post = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n"
    assert reply_to(post + b"content-length: -1\r\n\r\n").startswith(b"HTTP/1.1 400 ")
    assert reply_to(post + b"content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n").startswith(b"HTTP/1.1 400 ")
    assert reply_to(b"GET /health HTTP/1.0\r\n\r\n").endswith(b"}")
    two = reply_to(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\nHEAD /v1/models HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
    assert two.count(b"HTTP/1.1 200 OK") == 2 and two.endswith(b"\r\n\r\n"), two
    body = json.dumps(ask(max_tokens=3)).encode()
    chunked = b"".join(b"%x\r\n%s\r\n" % (len(body[i:i + 7]), body[i:i + 7]) for i in range(0, len(body), 7)) + b"0\r\n\r\n"
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nconnection: close\r\n"
    assert b"chat.completion" in reply_to(head + b"transfer-encoding: chunked\r\n\r\n" + chunked)
    c = s.socket(10)
    c.sendall(head + b"expect: 100-continue\r\ncontent-length: %d\r\n\r\n" % len(body))
    assert c.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
    c.sendall(body)
    assert b"chat.completion" in read_all(c)
    old = json.dumps(ask(max_tokens=3, stream=True)).encode()
    r = reply_to(b"POST /v1/chat/completions HTTP/1.0\r\ncontent-length: %d\r\n\r\n" % len(old) + old)
    assert b"transfer-encoding" not in r and r.endswith(b"data: [DONE]\n\n"), r
    k = s.open()  # several requests on one connection
    for _ in range(3):
        k.request("POST", "/v1/chat/completions", body, {"content-type": "application/json"})
        assert k.getresponse().read()
    k.close()


def slow_reader(s):
    """Reads nothing of a long stream while others are served; --stream-buffer is small here."""
    c = socket.socket()
    c.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    c.settimeout(60)
    c.connect(("127.0.0.1", s.port))
    body = json.dumps(ask(stream=True, ignore_eos=True, max_tokens=400, n=16)).encode()
    c.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
    s.chat(ask())
    s.wait_idle(30)
    s.chat(ask())
    time.sleep(0.6)
    got = read_all(c)
    # It is cut. A client that reads again soon enough is told so; one that does not finds the connection closed.
    end = got[-2000:]
    assert got.startswith(b"HTTP/1.1 200 ") and (b"[DONE]" not in end or b'data: {"error":' in end), end


def queue_full():
    with Server(PROGRAM, "--model", MODEL, "--max-requests", 1, "--queue", 1) as s:
        first = s.stream(ask(ignore_eos=True, max_tokens=10**12))
        frames = iter(first)
        next(frames)
        statuses = []

        def one():
            status, headers, _ = s.call("POST", "/v1/chat/completions", ask(max_tokens=2))
            statuses.append((status, headers.get("retry-after")))

        threads = [threading.Thread(target=one) for _ in range(4)]
        [t.start() for t in threads]
        deadline = time.time() + 60
        while len(statuses) < 3 and time.time() < deadline:
            time.sleep(0.01)
        first.close()
        [t.join() for t in threads]
        assert sorted(statuses, key=str) == [(200, None)] + [(429, "1")] * 3, statuses


def connections():
    """What carries a request keeps its place; beyond the limit only health is answered."""
    with Server(PROGRAM, "--model", MODEL, "--max-connections", 4) as s:
        busy = [s.socket() for _ in range(4)]
        for c in busy:
            c.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 5000\r\n\r\n{")
        time.sleep(0.3)
        begin = time.time()
        status, headers, reply = s.call("GET", "/v1/models")
        assert status == 503 and "connections" in reply["error"]["message"] and headers["retry-after"], (status, reply)
        assert s.call("GET", "/health")[0] == 200
        assert time.time() - begin < 2, "the refusal took long"
        [c.close() for c in busy]
        deadline = time.time() + 60
        while True:  # room again once the server has noticed
            if s.call("GET", "/v1/models")[0] == 200:
                return
            assert time.time() < deadline, "the connections do not come back"
            time.sleep(0.1)


def sigterm():
    with Server(PROGRAM, "--model", MODEL, "--ctx", 512) as s:
        stream = s.stream(ask(ignore_eos=True, max_tokens=300))
        frames = iter(stream)
        got = [next(frames)]
        s.terminate()
        got += list(frames)
        message, finish, _ = assemble(got)
        assert finish == "length" and stream.done, finish
        assert s.wait() == 0
        try:
            s.socket(2)
            raise AssertionError("it still listens")
        except ConnectionError:
            pass


def sigterm_twice():
    with Server(PROGRAM, "--model", MODEL) as s:
        stream = s.stream(ask(ignore_eos=True, max_tokens=10**12))
        frames = iter(stream)
        got = [next(frames)]
        s.terminate()
        time.sleep(0.3)
        s.terminate()
        got += list(frames)
        assert assemble(got)[1] in ("error", "length") and stream.done
        assert s.wait() == 0


def two_keys():
    """What one key stored, another one cannot see, continue or delete; nor does it share cached prefixes."""
    with Server(PROGRAM, "--model", MODEL, "--ctx", 512, "--max-requests", 2, "--api-key", "anna,ben") as s:
        as_ = lambda key: {"authorization": "Bearer " + key}
        body = {"model": "m", "input": "What is the capital of Norway? " * 12, "max_output_tokens": 4, "temperature": 0}
        assert s.call("POST", "/v1/responses", body)[0] == 401 and s.call("POST", "/v1/responses", body, as_("carl"))[0] == 401
        c = s.socket()  # a stranger's body is not asked for, and its bytes take no memory
        c.sendall(b"POST /v1/responses HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 1000000\r\n\r\n")
        assert c.recv(65536).startswith(b"HTTP/1.1 401 "), "a body is read before the key"
        c.close()
        status, _, r = s.call("POST", "/v1/responses", body, as_("anna"))
        assert status == 200 and r["id"].startswith("resp_"), r
        path = "/v1/responses/" + r["id"]
        assert s.call("GET", path, None, as_("ben"))[0] == 404 and s.call("DELETE", path, None, as_("ben"))[0] == 404
        more = {**body, "input": "And of Sweden?", "previous_response_id": r["id"]}
        assert s.call("POST", "/v1/responses", more, as_("ben"))[0] in (400, 404), "another key's response was continued"
        assert s.call("POST", "/v1/responses", more, as_("anna"))[0] == 200
        cached = lambda key: s.call("POST", "/v1/responses", body, as_(key))[2]["usage"]["input_tokens_details"]["cached_tokens"]
        assert cached("ben") == 0 and cached("anna") > 0, "prefixes are shared within a key only"
        assert s.call("GET", path, None, as_("anna"))[2]["id"] == r["id"]
        assert s.call("DELETE", path, None, as_("anna"))[0] == 200 and s.call("GET", path, None, as_("anna"))[0] == 404


def refusals_in_the_log():
    """A line for each that names what was wrong, nothing of what messages said, and no more lines than somebody can read."""
    with Server(PROGRAM, "--model", MODEL, "--ctx", 512, "--max-requests", 2) as s:
        lines = lambda word: [l for l in open(os.path.join(s.dir.name, "log")) if f"event={word} " in l]

        def written(n):
            """The lines of refusals, once there are n: the log is written by a thread of its own."""
            until = time.time() + 60
            while len(lines("refused")) < n and time.time() < until:
                time.sleep(0.01)
            return lines("refused")

        assert s.call("POST", "/v1/chat/completions", {"messages": "my secret"})[0] == 400
        assert s.call("GET", "/v1/nothing")[0] == 404
        first = written(2)
        assert len(first) == 2 and 'status=400 path="/v1/chat/completions" reason="messages: a list of ' in first[0] and "status=404" in first[1], first
        user = lambda *content: [{"role": "user", "content": [{"type": "text", "text": "my secret"}, *content]}]
        tool = lambda schema: [{"type": "function", "function": {"name": "f", "strict": True, "parameters": {"type": "object", "properties": {"x": schema}}}}]
        named = ( # what was wrong, in the words of the body, escaped and cut
            ("/v1/messages", {"max_tokens": 1, "messages": user({"type": "image"})}, "(capability_rejected: image_block)"),
            ("/v1/messages", {"max_tokens": 1, "messages": user({"type": "a\x1b[2J\n" + 99 * "b"})}, "a\\\\u001b[2J\\\\n" + 74 * "b" + "…"),
            ("/v1/chat/completions", {"messages": user(), "tools": tool({"type": "string", "pattern": "(?=a)"})}, "pattern"),
            ("/v1/chat/completions", {"messages": user(), "temperature": -7.5}, "from 0 to 100 is needed, not -7.5"),
            ("/v1/responses", {"input": user({"type": "input_smell"})}, 'input[0]: parts of type \\"input_smell\\"'),
        )
        for i, (path, body, word) in enumerate(named):
            assert s.call("POST", path, body)[0] == 400
            last = written(3 + i)[-1]
            assert f'path="{path}"' in last and word in last and last.endswith('"\n'), (last, word)
        begin = time.time()
        for _ in range(120):
            assert s.call("POST", "/v1/chat/completions", {"messages": "my secret"})[0] == 400
        assert 40 < len(lines("refused")) <= 51 + 10 * (time.time() - begin), len(lines("refused"))  # 50, then 10 a second
        time.sleep(0.3)
        s.call("GET", "/v1/nothing")
        counted_lines = lambda: sum(int(l.split("lines=")[1]) for l in lines("refused_suppressed")) + len(lines("refused"))
        until = time.time() + 60
        while counted_lines() < 123 + len(named) and time.time() < until:
            time.sleep(0.01)
        assert counted_lines() == 123 + len(named), counted_lines()
        s.log.seek(0)
        assert "secret" not in s.log.read()


def main():
    shared = [plain, stream_is_plain, sampling, stop_strings, tools, tool_calls, company, idle, vanishing, one_byte_at_a_time, errors, models,
              huge_body, raw_http, slow_reader]
    own = [two_keys, refusals_in_the_log, queue_full, connections, sigterm, sigterm_twice]
    try:
        with Server(PROGRAM, "--model", MODEL, "--model-name", "a/b c", "--ctx", 512, "--max-requests", 8, "--body-timeout", 2,
                    "--stream-buffer", 65536, "--max-body", 32 << 20) as s:
            for t in shared:
                counted.run(t, s)
    except AssertionError as e:
        counted.check("the server", False, e)
    for t in own:
        counted.run(t)
    return counted.closing()


sys.exit(main())
