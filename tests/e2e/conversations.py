"""/v1/conversations, and responses that continue one. conversations.py PROGRAM MODEL [NAME...]"""
import json, sys, threading
from urllib.parse import quote

import counted
from client import Server

PROGRAM, MODEL, counted.only = sys.argv[1], sys.argv[2], sys.argv[3:]
PATH, RESPONSES = "/v1/conversations", "/v1/responses"
JSON = {"content-type": "application/json"}


def ok(s, method, path, body=None, expect=200, headers=JSON):
    status, _, reply = s.call(method, path, body, headers)
    assert status == expect, (method, path, status, reply)
    return reply


def user(text):
    return {"role": "user", "content": text}


def ask(s, expect=200, headers=JSON, **body):
    return ok(s, "POST", RESPONSES, {"temperature": 0, "max_output_tokens": 8, "evenkeel": {"digest": True}, **body}, expect, headers)


def items(s, id_, query="?order=asc&limit=100"):
    return ok(s, "GET", f"{PATH}/{id_}/items{query}")["data"]


def texts(list_):
    return [p["text"] for i in list_ for p in i.get("content", [])]


def made_changed_deleted(s):
    for body in (None, b"", b" \n", {}, {"items": None, "metadata": None}, {"items": [], "metadata": {}}):
        c = ok(s, "POST", PATH, body)
        assert set(c) == {"id", "object", "created_at", "metadata"} and c["object"] == "conversation" and c["metadata"] == {} and c["id"].startswith("conv_"), c
        assert ok(s, "GET", f"{PATH}/{c['id']}") == c and items(s, c["id"]) == []
    c = ok(s, "POST", PATH, {"metadata": {"topic": "keels"}, "items": [user("Hello")]})
    assert c["metadata"] == {"topic": "keels"}
    more = {**c, "metadata": {"topic": "hulls", "a": "ü"}}
    assert ok(s, "POST", f"{PATH}/{c['id']}", {"metadata": more["metadata"]}) == more == ok(s, "GET", f"{PATH}/{c['id']}")
    assert texts(items(s, c["id"])) == ["Hello"]
    assert ok(s, "POST", f"{PATH}/{c['id']}", {"metadata": None})["metadata"] == {}
    assert ok(s, "DELETE", f"{PATH}/{c['id']}") == {"id": c["id"], "object": "conversation.deleted", "deleted": True}
    for method, path, body in (("GET", "", None), ("DELETE", "", None), ("POST", "", {"metadata": {}}), ("GET", "/items", None),
                               ("POST", "/items", {"items": [user("x")]}), ("GET", "/items/msg_1", None), ("DELETE", "/items/msg_1", None)):
        e = ok(s, method, f"{PATH}/{c['id']}{path}", body, 404)
        assert c["id"] in e["error"]["message"] and e["error"]["type"] == "not_found_error", e


def by_pages(s, path, all_, order):
    """All items by pages of 7."""
    got, after, n = [], "", 0
    while True:
        page = ok(s, "GET", f"{path}?order={order}&limit=7&include[]=x{after}")
        assert (page["first_id"], page["last_id"]) == (page["data"][0]["id"], page["data"][-1]["id"]), page
        got, after, n = got + page["data"], "&after=" + quote(page["last_id"]), n + 1
        if not page["has_more"]:
            break
    assert n == (len(all_) + 6) // 7 and got == (all_ if order == "asc" else all_[::-1]), (order, n)
    end = ok(s, "GET", f"{path}?order={order}{after}")
    assert end["data"] == [] and end["first_id"] is None and end["last_id"] is None and end["has_more"] is False, end


WRONG = (("limit=0", "limit"), ("limit=101", "limit"), ("limit=x", "limit"), ("limit=", "limit"), ("order=up", "order"), ("limit=" + 20 * "9", "limit"),
         ("after=" + 513 * "x", "after"), ("after=%00", "after"))


def pages(s):
    c = ok(s, "POST", PATH, {"items": [user(str(i)) for i in range(20)]})["id"]
    for part in range(1, 3):
        added = ok(s, "POST", f"{PATH}/{c}/items?include[]=message.input_image.image_url", {"items": [user(str(20 * part + i)) for i in range(20)]})
        assert [texts([i]) for i in added["data"]] == [[str(20 * part + i)] for i in range(20)] and added["has_more"] is False, added
        assert (added["first_id"], added["last_id"]) == (added["data"][0]["id"], added["data"][-1]["id"]), added
    all_ = items(s, c)
    assert texts(all_) == [str(i) for i in range(60)] and len({i["id"] for i in all_}) == 60
    assert all_[0] == {"id": all_[0]["id"], "type": "message", "status": "completed", "role": "user", "content": [{"type": "input_text", "text": "0"}]}
    page = ok(s, "GET", f"{PATH}/{c}/items")
    assert page["object"] == "list" and texts(page["data"]) == [str(i) for i in range(59, 39, -1)] and page["has_more"] is True, page
    for order in ("asc", "desc"):
        by_pages(s, f"{PATH}/{c}/items", all_, order)
    one = all_[30]["id"]
    assert ok(s, "GET", f"{PATH}/{c}/items/{one}?include[]=x") == all_[30]
    assert ok(s, "DELETE", f"{PATH}/{c}/items/{one}")["id"] == c
    assert items(s, c) == all_[:30] + all_[31:]
    for method, path in (("GET", f"/items/{one}"), ("DELETE", f"/items/{one}"), ("GET", f"/items?after={one}")):
        assert one in ok(s, method, f"{PATH}/{c}{path}", None, 404)["error"]["message"]
    assert ok(s, "GET", f"{PATH}/{c}/items/{all_[31]['id']}") == all_[31]
    for query, param in WRONG:
        assert ok(s, "GET", f"{PATH}/{c}/items?{query}", None, 400)["error"]["param"] == param


def added_twice(s):
    """A client's second try: its items have ids of their own, and every page leads on."""
    c = ok(s, "POST", PATH, {})["id"]
    path = f"{PATH}/{c}/items"
    for i in range(12):
        page = ok(s, "POST", path, {"items": [{**user(str(i)), "id": "msg_1"}, {"type": "function_call_output", "call_id": "c", "output": "o"}]})
        assert page["data"] == items(s, c)[-2:] and page["first_id"] == page["data"][0]["id"] and (page["first_id"] == "msg_1") == (i == 0), page
    all_ = items(s, c)
    assert len({i["id"] for i in all_}) == 24 and texts(all_) == [str(i) for i in range(12)]
    for order in ("asc", "desc"):
        by_pages(s, path, all_, order)
    assert ok(s, "GET", f"{path}/{all_[2]['id']}") == all_[2]


def pages_of_input(s):
    """What a response was the reply to is read by the same pages; what came without an id has one."""
    given = [{**user(str(i)), **({"id": f'msg "{i}"'} if i % 10 == 3 else {})} for i in range(24)]
    r = ask(s, input=given)["id"]
    path = f"{RESPONSES}/{r}/input_items"
    newest = ok(s, "GET", path)
    assert [i["content"] for i in newest["data"]] == [str(i) for i in range(23, 3, -1)] and newest["has_more"] is True, newest
    all_ = ok(s, "GET", path + "?order=asc&limit=100")["data"]
    assert [i["content"] for i in all_] == [str(i) for i in range(24)] and len({i["id"] for i in all_}) == 24
    assert all_[3] == {**given[3], **all_[3]} and all_[4] == {"id": all_[4]["id"], **given[4]}
    for order in ("asc", "desc"):
        by_pages(s, path, all_, order)
    assert ok(s, "GET", f"{path}?order=asc&after=msg%20%223%22")["data"] == all_[4:]
    for query, param in WRONG:
        assert ok(s, "GET", f"{path}?{query}", None, 400)["error"]["param"] == param
    assert "msg_none" in ok(s, "GET", path + "?after=msg_none", None, 404)["error"]["message"]
    # Ids may be long, and one that occurs twice would lead back to its first page.
    twice = [{**user(str(i)), "id": "x" * 500 + str(i % 10)} for i in range(24)]
    path = f"{RESPONSES}/{ask(s, input=twice)['id']}/input_items"
    all_ = ok(s, "GET", path + "?order=asc&limit=100")["data"]
    assert [i["id"] for i in all_[:10]] == [i["id"] for i in twice[:10]] and len({i["id"] for i in all_}) == 24
    for order in ("asc", "desc"):
        by_pages(s, path, all_, order)
    # An item of it can be named in a later request.
    want = ask(s, input=[given[4], user("And now?")])["evenkeel"]["digest"]
    assert ask(s, input=[{"type": "item_reference", "id": all_[4]["id"]}, user("And now?")])["evenkeel"]["digest"] == want


def continued(s):
    """A response sees what the conversation has, and adds to it what it was given and what it says."""
    c = ok(s, "POST", PATH, {"items": [user("My name is Ada."), {"role": "assistant", "content": "Hello, Ada."}]})["id"]
    before = [user("My name is Ada."), {"role": "assistant", "content": [{"type": "output_text", "text": "Hello, Ada."}]}]
    for n, (named, stream) in enumerate(((c, False), ({"id": c}, False), (c, True))):
        question = f"What is my name? ({n})"
        plain = ask(s, input=[*before, user(question)])
        if stream:
            h = s.open()
            h.request("POST", RESPONSES, json.dumps({"temperature": 0, "max_output_tokens": 8, "evenkeel": {"digest": True}, "conversation": named, "input": question,
                                                     "stream": True, "store": False}), JSON)
            events = [json.loads(l[6:]) for l in h.getresponse() if l.startswith(b"data: {")]
            h.close()
            r = events[-1]["response"]
            assert events[0]["response"]["conversation"] == {"id": c}
        else:
            r = ask(s, input=question, conversation=named)
        assert r["conversation"] == {"id": c} and r["evenkeel"]["digest"] == plain["evenkeel"]["digest"], (r, plain)
        now = items(s, c)
        assert now[-1] == r["output"][-1] and texts(now)[-2] == question and len(now) == 4 + 2 * n, now
        assert ok(s, "GET", f"{PATH}/{c}/items/{r['output'][-1]['id']}") == r["output"][-1]
        assert ok(s, "GET", RESPONSES + "/" + r["id"], None, 404 if stream else 200)
        before += [user(question), *r["output"]]
    count = ok(s, "POST", RESPONSES + "/input_tokens", {"conversation": c, "input": "x"})
    assert count == ok(s, "POST", RESPONSES + "/input_tokens", {"input": [*before, user("x")]}) and len(items(s, c)) == 8
    # Refused ones add nothing.
    assert ask(s, 400, conversation=c, input="x " * 40000)["error"]["code"] == "context_length_exceeded"
    assert len(items(s, c)) == 8
    e = ask(s, 400, conversation=c, input="x", previous_response_id="resp_1")
    assert e["error"]["param"] == "conversation" and "exclude" in e["error"]["message"], e
    for wrong in (5, [], {}, {"id": 5}, True):
        assert ask(s, 400, conversation=wrong, input="x")["error"]["param"] == "conversation"
    for unknown in ("conv_1", "", "resp_1", ask(s, input="x")["id"], "é" * 300):
        assert ask(s, 404, conversation=unknown, input="x")["error"]["param"] == "conversation"
    # In the background as well.
    r = ask(s, conversation=c, input="Goodbye.", background=True)
    while r["status"] in ("queued", "in_progress"):
        r = ok(s, "GET", RESPONSES + "/" + r["id"])
    assert items(s, c)[-1] == r["output"][-1], r


def calls(s):
    tools = [{"type": "function", "name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}]
    c = ok(s, "POST", PATH)["id"]
    r = ask(s, conversation=c, input="Weather in Oslo?", tools=tools, tool_choice="required", max_output_tokens=64)
    call = r["output"][-1]
    assert call["type"] == "function_call" and items(s, c)[-1] == call, r
    result = {"type": "function_call_output", "call_id": call["call_id"], "output": "rain"}
    with_items = ask(s, input=[user("Weather in Oslo?"), *r["output"], result], tools=tools)
    assert ask(s, conversation=c, input=[result], tools=tools)["evenkeel"]["digest"] == with_items["evenkeel"]["digest"]
    kept = [i for i in items(s, c) if i["type"] == "function_call_output"]
    assert len(kept) == 1 and kept[0] == {"id": kept[0]["id"], "type": "function_call_output", "status": "completed", "call_id": call["call_id"], "output": "rain"}, kept
    # Ids of a client's stay where they are free; a reference to an item of the conversation adds nothing.
    c = ok(s, "POST", PATH, {"items": [{**user("a"), "type": "message", "id": "msg_mine"}, {**user("b"), "type": "message", "id": "msg_mine"}, {**user("c"), "type": "message", "id": "no/path"}]})["id"]
    ids = [i["id"] for i in items(s, c)]
    assert ids[0] == "msg_mine" and len(set(ids)) == 3 and "no/path" not in ids, ids
    ask(s, conversation=c, input=[{"type": "item_reference", "id": "msg_mine"}, user("d")])
    assert texts(items(s, c))[:4] == ["a", "b", "c", "d"], items(s, c)
    # A summary stands for what is before it.
    ask(s, conversation=c, input=[{"type": "compaction_trigger"}], max_output_tokens=200)
    assert items(s, c)[-1]["type"] == "compaction" and "compaction_trigger" not in [i["type"] for i in items(s, c)]
    ask(s, conversation=c, input="And now?")


def refused(s):
    c = ok(s, "POST", PATH)["id"]
    for method, path, body, param in (
            ("POST", PATH, {"items": [user("x")] * 21}, "items"), ("POST", PATH, {"items": 5}, "items"), ("POST", PATH, {"items": [5]}, "items"),
            ("POST", PATH, {"items": [{"type": "smell"}]}, "items"), ("POST", PATH, {"metadata": {"a": 5}}, "metadata"), ("POST", PATH, {"metadata": []}, "metadata"),
            ("POST", f"{PATH}/{c}", {}, "metadata"), ("POST", f"{PATH}/{c}", {"metadata": {}, "items": []}, "items"), ("POST", f"{PATH}/{c}/items", {}, "items"),
            ("POST", f"{PATH}/{c}/items", {"items": [], "metadata": {}}, "metadata"), ("POST", PATH, {"thread": 5}, None), ("POST", f"{PATH}/{c}", b"", None),
            ("POST", PATH, b"x", None), ("POST", PATH, b"[]", None)):
        e = ok(s, method, path, body, 400)
        assert e["error"]["param"] == param and e["error"]["type"] == "invalid_request_error", (body, e)
    for method, path, allow in (("GET", PATH, "POST"), ("DELETE", PATH, "POST"), ("PUT", f"{PATH}/{c}", "GET, POST, DELETE"), ("DELETE", f"{PATH}/{c}/items", "GET, POST"),
                                ("POST", f"{PATH}/{c}/items/x", "GET, DELETE")):
        status, headers, _ = s.call(method, path)
        assert status == 405 and headers["allow"] == allow, (method, path, status, headers)
    for path in (f"{PATH}/{c}/else", f"{PATH}/{c}/items/a/b", f"{PATH}/{c}/itemss"):
        ok(s, "GET", path, None, 404)
    assert ok(s, "GET", f"/conversations/{c}/")["id"] == c and ok(s, "GET", f"{PATH}/{c}/items/") == ok(s, "GET", f"{PATH}/{c}/items")


def too_large(s):
    """A conversation has an end, and one that is refused stays as it was."""
    c = ok(s, "POST", PATH)["id"]
    for n in range(40):
        status, _, r = s.call("POST", f"{PATH}/{c}/items", {"items": [user("x" * (1 << 20))]})
        if status != 200:
            break
    assert 28 <= n <= 31 and status == 413, (n, status, r)
    assert [len(t) for t in texts(items(s, c))] == [1 << 20] * n
    assert ask(s, 413, conversation=c, input="x")["error"]["param"] == "conversation"
    assert ok(s, "DELETE", f"{PATH}/{c}/items/{items(s, c)[0]['id']}")["id"] == c and len(items(s, c)) == n - 1
    ok(s, "DELETE", f"{PATH}/{c}")


def at_once(s):
    """Eight clients add to one conversation: nothing is lost."""
    c = ok(s, "POST", PATH)["id"]

    def add(k):
        for i in range(20):
            ok(s, "POST", f"{PATH}/{c}/items", {"items": [user(f"{k}.{i}")]})
    threads = [threading.Thread(target=add, args=(k,)) for k in range(8)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    got, after = [], ""
    while True:
        page = ok(s, "GET", f"{PATH}/{c}/items?order=asc&limit=100{after}")
        got, after = got + texts(page["data"]), "&after=" + page["last_id"]
        if not page["has_more"]:
            break
    assert sorted(got) == sorted(f"{k}.{i}" for k in range(8) for i in range(20))
    for k in range(8):
        mine = [t for t in got if t.startswith(f"{k}.")]
        assert mine == [f"{k}.{i}" for i in range(20)], mine


def by_key():
    with Server(PROGRAM, "--model", MODEL, "--api-key", "one,two") as s:
        one, two = ({**JSON, "authorization": "Bearer " + k} for k in ("one", "two"))
        c = ok(s, "POST", PATH, {"items": [user("secret")]}, headers=one)["id"]
        for method, path, body in (("GET", "", None), ("GET", "/items", None), ("POST", "/items", {"items": [user("x")]}), ("POST", "", {"metadata": {}}), ("DELETE", "", None)):
            ok(s, method, f"{PATH}/{c}{path}", body, 404, two)
            ok(s, method, f"{PATH}/{c}{path}", body, 401)
        ask(s, 404, two, conversation=c, input="x")
        ask(s, 200, one, conversation=c, input="x")
        assert len(ok(s, "GET", f"{PATH}/{c}/items", None, 200, one)["data"]) == 3


def main():
    with Server(PROGRAM, "--model", MODEL) as s:
        for test in (made_changed_deleted, added_twice, pages, pages_of_input, continued, calls, refused, too_large, at_once):
            counted.run(test, s)
    counted.run(by_key)
    return counted.closing()


sys.exit(main())
