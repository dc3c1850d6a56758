"""Responses, conversations and threads in a folder (serve --store): kept.py PROGRAM MODEL [NAME...]

A server is killed, and another one on the folder goes on where it was: with the same bits as one that was not."""
import glob, json, os, signal, sys, tempfile, threading, time

import counted
from client import Server

PROGRAM, MODEL, counted.only = sys.argv[1], sys.argv[2], sys.argv[3:]
JSON = {"content-type": "application/json"}
ONE, TWO = ({**JSON, "authorization": "Bearer " + k} for k in ("one", "two"))


def serve(folder, *more, **how):
    return Server(PROGRAM, "--model", MODEL, "--store", folder, *more, **how)


def killed(s):
    """What was answered is there a moment later: the folder is written beside the replies."""
    time.sleep(0.5)
    s.process.kill()
    s.process.wait()
    s.process.returncode = 0


def ok(s, method, path, body=None, expect=200, headers=JSON):
    status, _, reply = s.call(method, path, body, headers)
    assert status == expect, (method, path, status, reply)
    return reply


def ask(s, expect=200, headers=JSON, **body):
    return ok(s, "POST", "/v1/responses", {"temperature": 0, "max_output_tokens": 8, "evenkeel": {"digest": True}, **body}, expect, headers)


def message(s, expect=200, **body):
    return ok(s, "POST", "/v1/messages", {"temperature": 0, "max_tokens": 8, "evenkeel": {"digest": True}, **body}, expect)


def files(folder):
    return glob.glob(os.path.join(folder, "*.response"))


def user(text):
    return {"role": "user", "content": text}


def goes_on(folder):
    with serve(folder) as s:
        first = ask(s, input="My name is Ada.")
        gone = ask(s, input="Forget me.")
        ok(s, "DELETE", f"/v1/responses/{gone['id']}")
        c = ok(s, "POST", "/v1/conversations", {"items": [user("My name is Ada.")], "metadata": {"topic": "keels"}})
        ask(s, input="Hello.", conversation=c["id"])
        items = ok(s, "GET", f"/v1/conversations/{c['id']}/items?order=asc")
        thread = message(s, messages=[user("My name is Ada.")], system="Be brief.", thread={"type": "create"})
        late = ask(s, input="Slowly.", background=True)
        while late["status"] in ("queued", "in_progress"):
            late = ok(s, "GET", f"/v1/responses/{late['id']}")
        stays = [ask(s, input="What is my name?", previous_response_id=first["id"], store=False), ask(s, input="What is my name?", conversation=c["id"], store=False),
                 message(s, messages=[user("What is my name?")], thread={"type": "continue", "previous_message_id": thread["id"]})]
        items = ok(s, "GET", f"/v1/conversations/{c['id']}/items?order=asc")
        killed(s)
    for how in ("killed", "stopped"):
        with serve(folder) as s:
            assert ok(s, "GET", f"/v1/responses/{first['id']}") == first and ok(s, "GET", f"/v1/responses/{late['id']}") == late
            assert ok(s, "GET", f"/v1/conversations/{c['id']}") == c
            assert ok(s, "GET", f"/v1/conversations/{c['id']}/items?order=asc")["data"] == items["data"], how
            ok(s, "GET", f"/v1/responses/{gone['id']}", None, 404)
            again = ask(s, input="What is my name?", previous_response_id=first["id"], store=False)
            assert again["evenkeel"]["digest"] == stays[0]["evenkeel"]["digest"], (again, stays[0])
            said = message(s, messages=[user("What is my name?")], thread={"type": "continue", "previous_message_id": thread["id"]})
            assert said["evenkeel"]["digest"] == stays[2]["evenkeel"]["digest"], (said, stays[2])
            by_reference = ask(s, input=[{"type": "item_reference", "id": items["data"][0]["id"]}, {"type": "item_reference", "id": first["output"][0]["id"]}], store=False)
            whole = ask(s, input=[user("My name is Ada."), first["output"][0]], store=False)
            assert by_reference["evenkeel"]["digest"] == whole["evenkeel"]["digest"]
            if how == "stopped":
                ok(s, "DELETE", f"/v1/conversations/{c['id']}")
            killed(s) if how == "killed" else s.stop()
    with serve(folder) as s:
        ok(s, "GET", f"/v1/conversations/{c['id']}", None, 404)


def by_key(folder):
    with serve(folder, "--api-key", "one,two") as s:
        r = ask(s, headers=ONE, input="A secret.")
        c = ok(s, "POST", "/v1/conversations", {"items": [user("secret")]}, 200, ONE)
        killed(s)
    assert oct(os.stat(folder).st_mode & 0o777) == "0o700" and all(os.stat(f).st_mode & 0o077 == 0 for f in files(folder))
    for keys, mine, others in (("one,two", ONE, TWO), ("two,one,three", ONE, TWO), (None, None, JSON)):
        with serve(folder, *(("--api-key", keys) if keys else ())) as s:
            for path in (f"/v1/responses/{r['id']}", f"/v1/responses/{r['id']}/input_items", f"/v1/conversations/{c['id']}", f"/v1/conversations/{c['id']}/items"):
                ok(s, "GET", path, None, 404, others)
                if mine:
                    ok(s, "GET", path, None, 200, mine)
            ask(s, 404, others, input="x", previous_response_id=r["id"])


def damaged(folder):
    with serve(folder) as s:
        ids = [ask(s, input=f"Number {i}.")["id"] for i in range(4)]
        killed(s)
    names = files(folder)
    assert len(names) == 4
    with open(names[0], "r+b") as f:
        f.seek(300)
        f.write(b"\0")
    with open(names[1], "r+b") as f:
        f.truncate(200)
    open(os.path.join(folder, "0" * 32 + ".response.part"), "w").close()
    with serve(folder) as s:
        there = [s.call("GET", f"/v1/responses/{i}")[0] for i in ids]
        assert sorted(there) == [200, 200, 404, 404], there
        said = s.said()
        assert said.count("event=store_skipped") == 2 and names[0] in said and names[1] in said and "entries=2 " in said, said
        ok(s, "GET", "/health")
    assert sorted(files(folder)) == sorted(names[2:]) and not glob.glob(folder + "/*.part")


def killed_while_it_writes(folder):
    """Each conversation is whole: a beginning of what was added, with all that was answered half a second before."""
    with serve(folder) as s:
        ids = [ok(s, "POST", "/v1/conversations")["id"] for _ in range(4)]
        answered, over = [[] for _ in ids], threading.Event()

        def add(k):
            n = 0
            try:
                while not over.is_set():
                    ok(s, "POST", f"/v1/conversations/{ids[k]}/items", {"items": [user(f"{k}.{n} " + "x" * 5000)]})
                    answered[k].append(time.time())
                    n += 1
            except (OSError, AssertionError, ValueError):
                pass
        threads = [threading.Thread(target=add, args=(k,)) for k in range(len(ids))]
        [t.start() for t in threads]
        time.sleep(2)
        at = time.time()
        s.process.kill()
        s.process.wait()
        s.process.returncode = 0
        over.set()
        [t.join() for t in threads]
    with serve(folder) as s:
        for k, id_ in enumerate(ids):
            got, after = [], ""
            while True:
                page = ok(s, "GET", f"/v1/conversations/{id_}/items?order=asc&limit=100{after}")
                got, after = got + page["data"], f"&after={page['last_id']}"
                if not page["has_more"]:
                    break
            texts = [i["content"][0]["text"].split()[0] for i in got]
            assert texts == [f"{k}.{n}" for n in range(len(texts))], texts
            must = sum(t < at - 0.5 for t in answered[k])
            assert must > 0 and len(texts) >= must, (len(texts), must, len(answered[k]))
        assert "store_skipped" not in s.said()


def bounds(folder):
    """128 MiB on disk as in memory."""
    with serve(folder) as s:
        c = []
        for i in range(6):
            c.append(ok(s, "POST", "/v1/conversations")["id"])
            for _ in range(20 if i else 28):
                ok(s, "POST", f"/v1/conversations/{c[i]}/items", {"items": [user("x" * (1 << 20))]})
        there = [s.call("GET", f"/v1/conversations/{i}")[0] for i in c]
        assert there[-1] == 200 and 404 in there, there
        s.stop()
    assert 64 << 20 < sum(os.path.getsize(f) for f in files(folder)) <= 128 << 20
    with serve(folder) as s:
        assert [s.call("GET", f"/v1/conversations/{i}")[0] for i in c] == there


def refused(folder):
    with serve(folder):
        for args, says in ((("--store", folder), "another server has it"), (("--store", os.path.abspath(__file__)), "Not a directory"), (("--store", folder + "/a/b"), "No such file"),
                           (("--store-age", "5"), "--store-age is for what --store keeps")):
            with Server(PROGRAM, "--model", MODEL, *args, wait=False) as s:
                status, said = s.stop(0)
                assert status != 0 and says in said, (args, status, said)
                s.process.returncode = 0
    with serve(folder, "--store-age", "1") as s:
        r = ask(s, input="x")
        s.stop()
    time.sleep(1.2)
    with serve(folder, "--store-age", "1") as s:
        ok(s, "GET", f"/v1/responses/{r['id']}", None, 404)


def main():
    for test in (goes_on, by_key, damaged, killed_while_it_writes, bounds, refused):
        with tempfile.TemporaryDirectory() as d:
            counted.run(test, os.path.join(d, "store"))
    return counted.closing()


sys.exit(main())
