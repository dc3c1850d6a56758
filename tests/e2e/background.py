"""Responses that are made in the background: polling, events read again, cancelling, clients that leave, a server that
stops. Usage: background.py PROGRAM MODEL"""
import json, signal, sys, tempfile, time

import counted
from client import Server

PROGRAM, MODEL = sys.argv[1:3]
PATH = "/v1/responses"
SHORT = {"input": "What is a tiller?", "temperature": 0, "max_output_tokens": 12}


def ask(s, body, expect=200, headers=None):
    status, _, reply = s.call("POST", PATH, body, headers)
    assert status == expect, (status, reply)
    return reply


def get(s, id_, query="", expect=200, headers=None):
    status, _, reply = s.call("GET", f"{PATH}/{id_}{query}", headers=headers)
    assert status == expect, (status, reply)
    return reply


def until_ended(s, id_, headers=None):
    seen, deadline = [], time.time() + 60
    while True:
        r = get(s, id_, headers=headers)
        if r["status"] not in seen:
            seen.append(r["status"])
        if r["status"] not in ("queued", "in_progress"):
            return r, seen
        assert r["output"] == [] and r["usage"] is None and r["background"] is True, r
        assert time.time() < deadline, r
        time.sleep(0.01)


def same(a, b):
    """Two responses but for what a run decides: ids, times, caches."""
    def bare(v):
        if isinstance(v, dict):
            return {k: bare(x) for k, x in v.items() if k not in ("id", "created_at", "input_tokens_details", "background", "call_id", "evenkeel")}
        return [bare(x) for x in v] if isinstance(v, list) else v
    return bare(a) == bare(b)


def open_events(s, method, path, body=None):
    c = s.open()
    c.request(method, path, json.dumps(body) if body else None, {"content-type": "application/json"})
    r = c.getresponse()
    return c, r


def events(r):
    kind = None
    for line in r:
        if line.startswith(b"event: "):
            kind = line[7:].strip().decode()
        elif line.startswith(b"data: "):
            e = json.loads(line[6:])
            assert e["type"] == kind, (kind, e)
            yield e


def stream(s, method, path, body=None):
    c, r = open_events(s, method, path, body)
    assert r.status == 200 and r.getheader("content-type").startswith("text/event-stream"), r.read()
    got = list(events(r))
    c.close()
    return got


def slow_one(s, **more):
    """One that runs for a while, as a mask of all other tokens makes it."""
    return {"input": "Go on.", "temperature": 0, "max_output_tokens": 400, "text": {"format": {"type": "json_schema", "name": "n", "schema": {
        "type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 400}}}, "background": True, **more}


def polled(s):
    plain = ask(s, SHORT)
    begun = time.time()
    r = ask(s, {**SHORT, "background": True})
    assert r["status"] in ("queued", "in_progress") and r["background"] is True and r["output"] == [] and r["id"].startswith("resp_"), r
    done, seen = until_ended(s, r["id"])
    assert same(done, plain) and done["id"] == r["id"] and done["background"] is True and done["usage"]["output_tokens"] > 0, (done, plain, seen)
    assert get(s, r["id"], "/input_items")["data"][0]["content"] == SHORT["input"]
    # It is continued as any other.
    more = {"input": "And a keel?", "temperature": 0, "max_output_tokens": 8}
    assert same(ask(s, {**more, "previous_response_id": r["id"]})["output"], ask(s, {**more, "previous_response_id": plain["id"]})["output"])
    assert s.call("DELETE", f"{PATH}/{r['id']}")[0] == 200 and s.call("GET", f"{PATH}/{r['id']}")[0] == 404
    assert time.time() - begun < 30


def answers_at_once(s):
    r = ask(s, slow_one(s))
    first = get(s, r["id"])
    assert first["status"] in ("queued", "in_progress"), first
    assert get(s, r["id"], "/input_items", expect=404)["error"]["message"].count("being made") == 1
    assert ask(s, {"input": "x", "previous_response_id": r["id"]}, expect=404)
    done, seen = until_ended(s, r["id"])
    assert done["status"] == "incomplete" and done["incomplete_details"] == {"reason": "max_output_tokens"} and "in_progress" in seen, (seen, done)


def read_again(s):
    plain = [e for e in stream(s, "POST", PATH, {**SHORT, "stream": True})]
    for leaves in (False, True):
        c, r = open_events(s, "POST", PATH, {**SHORT, "background": True, "stream": True})
        assert r.status == 200
        first = next(events(r))
        id_ = first["response"]["id"]
        assert first["type"] == "response.created" and first["response"]["status"] == "queued", first
        mine = [first] if leaves else [first, *events(r)]
        c.close()
        again = stream(s, "GET", f"{PATH}/{id_}?stream=true")  # of one that runs, or ran
        assert [e["sequence_number"] for e in again] == list(range(len(again))), again
        assert again[:len(mine)] == mine and (leaves or again == mine), (again, mine)
        assert [e["type"] for e in again] == ["response.created", "response.queued", *[e["type"] for e in plain[1:]]]
        assert again[-1]["response"] == get(s, id_) and same(again[-1]["response"], plain[-1]["response"]), again[-1]
        for n in (0, 3, len(again) - 2, len(again) - 1):
            assert stream(s, "GET", f"{PATH}/{id_}?stream=true&starting_after={n}") == again[n + 1:], n
        assert stream(s, "GET", f"{PATH}/{id_}?starting_after=2&stream=true&include[]=x") == again[3:]
        for wrong in ("-1", "x", "", str(len(again)), "1e3", "99999999999999999999"):
            e = get(s, id_, f"?stream=true&starting_after={wrong}", expect=400)
            assert e["error"]["param"] == "starting_after", e
        assert get(s, id_, "?stream=false&starting_after=1")["status"] == again[-1]["response"]["status"]
        assert s.call("DELETE", f"{PATH}/{id_}")[0] == 200
        get(s, id_, "?stream=true", expect=404)
    # Only of those that were made with events.
    for body in ({**SHORT, "background": True}, SHORT):
        e = get(s, ask(s, body)["id"], "?stream=true", expect=400)
        assert e["error"]["param"] == "stream", e
    get(s, "resp_none", "?stream=true", expect=404)


def several_readers(s):
    c, r = open_events(s, "POST", PATH, slow_one(s, stream=True))
    first = next(events(r))
    id_ = first["response"]["id"]
    readers = [open_events(s, "GET", f"{PATH}/{id_}?stream=true") for _ in range(3)]
    early = [next(events(r)) for _, r in readers]
    assert early == [first] * 3
    c.close()
    readers[0][0].close()
    rest = [list(events(r)) for _, r in readers[1:]]
    assert rest[0] == rest[1] and rest[0][-1]["type"] == "response.incomplete" and len(rest[0]) > 300, [len(x) for x in rest]


def cancelled(s):
    for streams in (False, True):
        if streams:
            c, r = open_events(s, "POST", PATH, slow_one(s, stream=True))
            got = events(r)
            id_ = next(got)["response"]["id"]
        else:
            id_ = ask(s, slow_one(s))["id"]
        status, _, r = s.call("POST", f"{PATH}/{id_}/cancel")
        assert status == 200 and r["status"] == "cancelled" and r["id"] == id_ and r["output"] == [], r
        assert get(s, id_) == r and s.call("POST", f"{PATH}/{id_}/cancel")[2] == r
        assert get(s, id_, "/input_items")["data"], "its input is stored"
        if streams:
            assert not [e for e in got if e["type"] in ("response.completed", "response.incomplete", "response.failed")]
            c.close()
        s.wait_idle()
    done = ask(s, {**SHORT, "background": True})["id"]
    r, _ = until_ended(s, done)
    assert s.call("POST", f"{PATH}/{done}/cancel")[::2] == (200, r)  # it stays what it is
    e = s.call("POST", f"{PATH}/{ask(s, SHORT)['id']}/cancel")
    assert e[0] == 400 and "background" in e[2]["error"]["message"], e
    assert s.call("POST", f"{PATH}/resp_none/cancel")[0] == 404
    # Deleted while it runs.
    id_ = ask(s, slow_one(s))["id"]
    assert s.call("DELETE", f"{PATH}/{id_}")[0] == 200
    s.wait_idle()
    get(s, id_, expect=404)


def refused(s):
    for more, param in (({"store": False}, "background"), ({"background": "yes"}, "background"), ({"background": 1}, "background")):
        e = ask(s, {**SHORT, "background": True, **more}, expect=400)
        assert e["error"]["param"] == param, e
    assert ask(s, {"input": "x " * 40000, "background": True}, expect=400)["error"]["code"] == "context_length_exceeded"
    assert ask(s, {**SHORT, "background": False})["background"] is False
    assert s.call("POST", PATH + "/input_tokens", {"input": "x", "background": True})[0] == 200


def by_key():
    with Server(PROGRAM, "--model", MODEL, "--api-key", "one,two") as s:
        one, two = ({"content-type": "application/json", "authorization": "Bearer " + k} for k in ("one", "two"))
        id_ = ask(s, slow_one(s, stream=False), headers=one)["id"]
        get(s, id_, expect=404, headers=two)
        assert s.call("POST", f"{PATH}/{id_}/cancel", headers=two)[0] == s.call("DELETE", f"{PATH}/{id_}", headers=two)[0] == 404
        assert s.call("GET", f"{PATH}/{id_}?stream=true", headers=two)[0] == 404 and s.call("GET", f"{PATH}/{id_}")[0] == 401
        assert s.call("POST", f"{PATH}/{id_}/cancel", headers=one)[2]["status"] == "cancelled"


def too_long():
    with Server(PROGRAM, "--model", MODEL, "--request-timeout", 1, "--max-requests", 1) as s:
        ids = [ask(s, slow_one(s, max_output_tokens=390))["id"] for _ in range(30)]
        ends = [until_ended(s, i)[0] for i in ids]
        assert any(r["status"] == "failed" for r in ends), ends
        for r in ends:
            assert r["status"] != "failed" or (r["error"]["code"] == "server_error" and "--request-timeout" in r["error"]["message"]), r


def stops():
    """One without a reader is cancelled with the server, and stays so; a reader's has the time that others have."""
    with tempfile.TemporaryDirectory() as kept:
        with Server(PROGRAM, "--model", MODEL, "--store", kept) as s:
            ids = [ask(s, slow_one(s, max_output_tokens=4000))["id"] for _ in range(2)]
            begun = time.time()
            status, said = s.stop()
            assert status == 0 and time.time() - begun < 20, (status, said)
        with Server(PROGRAM, "--model", MODEL, "--store", kept) as s:
            for id_ in ids:
                r = get(s, id_)
                assert r["status"] == "cancelled" and r["background"] is True and r["output"] == [], r
    with Server(PROGRAM, "--model", MODEL) as s:
        c, r = open_events(s, "POST", PATH, slow_one(s, stream=True, max_output_tokens=60))
        got = events(r)
        next(got)
        s.process.send_signal(signal.SIGTERM)
        assert list(got)[-1]["type"] == "response.incomplete"
        assert s.wait() == 0


def main():
    with Server(PROGRAM, "--model", MODEL) as s:
        for test in (polled, answers_at_once, read_again, several_readers, cancelled, refused):
            counted.run(test, s)
    for test in (by_key, too_long, stops):
        counted.run(test)
    return counted.closing()


sys.exit(main())
