#!/usr/bin/env python3
"""Conversations as clients really send them back to `evenkeel serve`: results of tools away from their calls, damaged
arguments, items by reference. history.py PROGRAM MODEL [NAME...]

Two bodies mean the same if the replies have the same digest, which covers the bits of every logit. Prints one line per
test and closes with `N passed, N failed`."""
import base64, json, sys

import counted
from client import Server

PROGRAM, MODEL, counted.only = sys.argv[1], sys.argv[2], sys.argv[3:]
CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"
NAMES = ("weather", "time")
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
TOOLS = {CHAT: [{"type": "function", "function": {"name": n, "parameters": SCHEMA}} for n in NAMES],
         RESPONSES: [{"type": "function", "name": n, "parameters": SCHEMA} for n in NAMES],
         MESSAGES: [{"name": n, "input_schema": SCHEMA} for n in NAMES]}


def post(s, path, history, expect=200, **more):
    body = {"model": "m", "temperature": 0, "evenkeel": {"digest": True}, "tools": TOOLS[path], **more}
    body["input" if path == RESPONSES else "messages"] = history
    body.setdefault("max_output_tokens" if path == RESPONSES else "max_tokens", 4)
    status, _, reply = s.call("POST", path, body)
    assert status == expect, f"{path} {json.dumps(history)}: status {status}, not {expect}: {reply}"
    return reply


def digest(s, path, history, **more):
    return post(s, path, history, **more)["evenkeel"]["digest"]


# --- the same history in each API's words ---

def user(text="Weather?"):
    return {"role": "user", "content": text}


def chat_call(*calls, **more):
    return {"role": "assistant", "content": None, "tool_calls": [
        {"id": i, "type": "function", "function": {"name": n, "arguments": json.dumps({"city": c})}} for i, n, c in calls], **more}


def chat_result(i, text):
    return {"role": "tool", "tool_call_id": i, "content": text}


def said(text):
    return {"role": "assistant", "content": text}


def fc(i, name, city):
    return {"type": "function_call", "call_id": i, "name": name, "arguments": json.dumps({"city": city})}


def output(i, text):
    return {"type": "function_call_output", "call_id": i, "output": text}


def text(t):
    return {"type": "text", "text": t}


def use(i, name, city):
    return {"type": "tool_use", "id": i, "name": name, "input": {"city": city}}


def result(i, t):
    return {"type": "tool_result", "tool_use_id": i, "content": t}


A, B = ("a", "weather", "Oslo"), ("b", "time", "Rome")


def results_away_from_their_calls(s):
    # A text behind the call, last before the result: before the call.
    want = digest(s, CHAT, [user(), chat_call(A, content="Wait."), chat_result("a", "rain")])
    for path, history in (
            (CHAT, [user(), chat_call(A), said("Wait."), chat_result("a", "rain")]),
            (RESPONSES, [user(), fc(*A), said("Wait."), output("a", "rain")]),
            (MESSAGES, [user(), {"role": "assistant", "content": [use(*A), text("Wait.")]}, {"role": "user", "content": [result("a", "rain")]}]),
            (MESSAGES, [user(), {"role": "assistant", "content": [use(*A)]}, said("Wait."), {"role": "user", "content": [result("a", "rain")]}])):
        assert digest(s, path, history) == want, (path, history)
    # Others' messages: behind the result.
    for role in ("user", "system", "developer"):
        between = {"role": role, "content": "Hurry."}
        want = digest(s, CHAT, [user(), chat_call(A), chat_result("a", "rain"), between])
        assert digest(s, CHAT, [user(), chat_call(A), between, chat_result("a", "rain")]) == want, role
        assert digest(s, RESPONSES, [user(), fc(*A), between, output("a", "rain")]) == want, role
        if role == "user":
            for blocks in ([text("Hurry."), result("a", "rain")], [result("a", "rain"), text("Hurry.")]):
                assert digest(s, MESSAGES, [user(), {"role": "assistant", "content": [use(*A)]}, {"role": "user", "content": blocks}]) == want
            assert digest(s, MESSAGES, [user(), {"role": "assistant", "content": [use(*A)]}, between, {"role": "user", "content": [result("a", "rain")]}]) == want


def parallel_calls(s):
    want = digest(s, CHAT, [user(), chat_call(A, B), chat_result("b", "noon"), chat_result("a", "rain"), user("Well?")])
    for path, history in (
            (CHAT, [user(), chat_call(A, B), chat_result("b", "noon"), user("Well?"), chat_result("a", "rain")]),
            (CHAT, [user(), chat_call(A, B), user("Well?"), chat_result("b", "noon"), chat_result("a", "rain")]),
            (RESPONSES, [user(), fc(*A), fc(*B), output("b", "noon"), user("Well?"), output("a", "rain")]),
            (MESSAGES, [user(), {"role": "assistant", "content": [use(*A), use(*B)]}, {"role": "user", "content": [result("b", "noon")]},
                        {"role": "user", "content": [text("Well?"), result("a", "rain")]}])):
        assert digest(s, path, history) == want, (path, history)
    # A text between them: each result behind its call.
    want = digest(s, CHAT, [user(), chat_call(A), chat_result("a", "rain"), chat_call(B, content="And"), chat_result("b", "noon")])
    for path, history in (
            (CHAT, [user(), chat_call(A), said("And"), chat_call(B), chat_result("a", "rain"), chat_result("b", "noon")]),
            (RESPONSES, [user(), fc(*A), said("And"), fc(*B), output("b", "noon"), output("a", "rain")]),
            (MESSAGES, [user(), {"role": "assistant", "content": [use(*A), text("And"), use(*B)]},
                        {"role": "user", "content": [result("a", "rain"), result("b", "noon")]}])):
        assert digest(s, path, history) == want, (path, history)


def the_same_id_again(s):
    a, b = ("call_0", "weather", "Oslo"), ("call_0", "time", "Rome")
    want = digest(s, CHAT, [user(), chat_call(A), chat_result("a", "rain"), user("Time?"), chat_call(B), chat_result("b", "noon")])
    for path, history in (
            (CHAT, [user(), chat_call(a), chat_result("call_0", "rain"), user("Time?"), chat_call(b), chat_result("call_0", "noon")]),
            (RESPONSES, [user(), fc(*a), output("call_0", "rain"), user("Time?"), fc(*b), output("call_0", "noon")])):
        assert digest(s, path, history) == want, (path, history)


def results_of_no_call(s):
    for path, history, param in (
            (CHAT, [user(), chat_result("call_9", "rain")], "messages"), (CHAT, [user(), chat_call(A), chat_result("a", "rain"), chat_result("call_9", "x")], "messages"),
            (RESPONSES, [user(), output("call_9", "rain")], "input"), (MESSAGES, [user(), {"role": "user", "content": [result("call_9", "rain")]}], None)):
        e = post(s, path, history, expect=400)
        assert "\"call_9\"" in e["error"]["message"] and e["error"]["type"] == "invalid_request_error", e
        assert e["error"]["param"] == param if param else e["type"] == "error", e
    # A call without a result is no fault: its client stopped there.
    for path, history in ((CHAT, [user(), chat_call(A), user("Never mind.")]), (RESPONSES, [user(), fc(*A), user("Never mind.")]),
                          (MESSAGES, [user(), {"role": "assistant", "content": [use(*A)]}, user("Never mind.")])):
        post(s, path, history)


def across_stored_responses(s):
    first = post(s, RESPONSES, [user(), fc(*A), said("Wait.")])
    items = [user(), fc(*A), said("Wait."), *first["output"], output("a", "rain")]
    assert digest(s, RESPONSES, [output("a", "rain")], previous_response_id=first["id"]) == digest(s, RESPONSES, items)
    e = post(s, RESPONSES, [output("call_9", "rain")], expect=400, previous_response_id=first["id"])
    assert "\"call_9\"" in e["error"]["message"] and e["error"]["param"] == "input", e


def damaged_arguments(s):
    def histories(arguments):
        return ((CHAT, [user(), {"role": "assistant", "content": None, "tool_calls": [
                    {"id": "a", "type": "function", "function": {"name": "weather", "arguments": arguments}}]}, chat_result("a", "rain")]),
                (RESPONSES, [user(), {"type": "function_call", "call_id": "a", "name": "weather", "arguments": arguments}, output("a", "rain")]),
                (MESSAGES, [user(), {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "weather", "input": arguments}]},
                            {"role": "user", "content": [result("a", "rain")]}]))

    for want, others in (('{"city":"Oslo"}', ('{"city":"Oslo",}', "{'city': 'Oslo'}", '{"city":"Oslo"}}', '{"city":"Oslo', {"city": "Oslo"}, '"{\\"city\\":\\"Oslo\\"}"')),
                         ("{}", ("", "null", "[]", None, [], {}))):
        right = digest(s, *histories(want)[0])
        for arguments in others:
            for path, history in histories(arguments):
                assert digest(s, path, history) == right, (path, arguments)
    for arguments in ("Oslo", '{"city" "Oslo"}', "[1,2]", [1, 2], 5, True, '"Oslo"', '{"a":1}{"b":2}'):  # as they are
        replies = {digest(s, path, history) for path, history in histories(arguments)}
        assert len(replies) == 1 and right not in replies, (arguments, replies)
    # A call that the token limit cut, sent back as it came; its client answers that it cannot read it.
    for max_tokens in range(1, 12):
        body = {"model": "m", "messages": [user("Weather in Oslo?")], "tools": TOOLS[CHAT], "tool_choice": "required", "temperature": 0, "max_tokens": max_tokens}
        message = s.chat(body)["choices"][0]["message"]
        results = [chat_result(c["id"], "This is no JSON.") for c in message.get("tool_calls", [])]
        post(s, CHAT, [user("Weather in Oslo?"), message, *results, user("Again.")])
        body = {"model": "m", "input": [user("Weather in Oslo?")], "tools": TOOLS[RESPONSES], "tool_choice": "required", "temperature": 0, "max_output_tokens": max_tokens}
        first = s.call("POST", RESPONSES, body)[2]
        results = [output(o["call_id"], "This is no JSON.") for o in first["output"] if o["type"] == "function_call"]
        again = digest(s, RESPONSES, [*results, user("Again.")], previous_response_id=first["id"])
        assert digest(s, RESPONSES, [user("Weather in Oslo?"), *first["output"], *results, user("Again.")]) == again, first


def items_by_reference(s):
    """The second turn of the AI SDK: texts and thoughts by reference, calls in words."""
    first = post(s, RESPONSES, [user("Hello")], reasoning={"effort": "low"})
    ask = {"role": "user", "content": [{"type": "input_text", "text": "And now?"}]}
    hello = {"role": "user", "content": [{"type": "input_text", "text": "Hello"}]}
    references = [{"type": "item_reference", "id": o["id"]} for o in first["output"]]
    assert references, first
    want = digest(s, RESPONSES, [hello, *first["output"], ask])
    second = post(s, RESPONSES, [hello, *references, ask], include=["reasoning.encrypted_content"])
    assert second["evenkeel"]["digest"] == want
    stored = s.call("GET", f"{RESPONSES}/{second['id']}/input_items?order=asc")[2]["data"]
    assert [i.get("id") for i in stored[1:-1]] == [r["id"] for r in references], stored
    call = post(s, RESPONSES, [user("Weather in Oslo?")], tool_choice="required", max_output_tokens=64)["output"][-1]
    results = [output(call["call_id"], "rain"), user()]
    assert digest(s, RESPONSES, [user(), {"id": call["id"]}, *results]) == digest(s, RESPONSES, [user(), call, *results])
    body = {"model": "m", "input": [hello, *references, ask]}
    whole = s.call("POST", RESPONSES + "/input_tokens", body)[2]
    assert whole["input_tokens"] == s.call("POST", RESPONSES + "/input_tokens", {**body, "input": [hello, *first["output"], ask]})[2]["input_tokens"], whole
    assert s.call("DELETE", f"{RESPONSES}/{first['id']}")[0] == 200
    post(s, RESPONSES, [hello, *references, ask])  # the second response has them too
    assert s.call("DELETE", f"{RESPONSES}/{second['id']}")[0] == 200
    unstored = post(s, RESPONSES, [user("Hello")], store=False)["output"][0]["id"]
    for missing in ("msg_none", unstored):
        e = post(s, RESPONSES, [hello, {"type": "item_reference", "id": missing}, ask], expect=404)
        assert missing in e["error"]["message"] and e["error"]["param"] == "input", e


def stream(s, body):
    """(the message as a client puts it together, the extension of its last delta)"""
    c = s.open()
    c.request("POST", MESSAGES, json.dumps({**body, "stream": True}), {"content-type": "application/json"})
    r = c.getresponse()
    assert r.status == 200, r.read()
    message, blocks, extension = None, [], None
    for line in r:
        if not line.startswith(b"data: "):
            continue
        e = json.loads(line[6:])
        if e["type"] == "message_start":
            message = e["message"]
        elif e["type"] == "content_block_start":
            blocks.append(dict(e["content_block"], json=""))
        elif e["type"] == "content_block_delta":
            d, b = e["delta"], blocks[e["index"]]
            if d["type"] == "compaction_delta":
                b.update({k: v for k, v in d.items() if k != "type"})
                continue
            key = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature", "input_json_delta": "json"}[d["type"]]
            b[key] += d["partial_json" if key == "json" else key]
        elif e["type"] == "message_delta":
            extension = e["evenkeel"]
    c.close()
    for b in blocks:
        got = b.pop("json")
        if b["type"] == "tool_use":
            b["input"] = json.loads(got or "{}")
    return {**message, "content": blocks}, extension


def message_threads(s):
    system, first = "Answer with one tool call.", [user("Weather in Oslo?")]
    for turn in (post, lambda s, path, history, **more: (lambda m, x: {**m, "evenkeel": x})(
            *stream(s, {"model": "m", "temperature": 0, "max_tokens": 24, "messages": history, "evenkeel": {"digest": True}, **more}))):
        begun = turn(s, MESSAGES, first, system=system, tools=TOOLS[MESSAGES], max_tokens=24, tool_choice={"type": "any"},
                     thread={"type": "create"})
        assert begun["content"][-1]["type"] == "tool_use", begun
        whole = [*first, {"role": "assistant", "content": begun["content"]}]
        id_, new = begun["id"], [{"role": "user", "content": [result(begun["content"][-1]["id"], "rain")]}]
        for text_ in ("And in Rome?", "And tomorrow?"):
            body = {"model": "m", "temperature": 0, "max_tokens": 24, "messages": new, "evenkeel": {"digest": True},
                    "thread": {"type": "continue", "previous_message_id": id_}}
            counted = s.call("POST", MESSAGES + "/count_tokens", {k: body[k] for k in ("model", "messages", "thread")})[2]
            if turn is post:
                status, _, went_on = s.call("POST", MESSAGES, body)
                assert status == 200, went_on
            else:
                message, extension = stream(s, body)
                went_on = {**message, "evenkeel": extension}
            whole += new
            plain = post(s, MESSAGES, whole, system=system, max_tokens=24)
            assert went_on["evenkeel"]["digest"] == plain["evenkeel"]["digest"], (went_on, plain)
            assert [{**b, "id": 0} for b in went_on["content"]] == [{**b, "id": 0} for b in plain["content"]], (went_on, plain)
            u = plain["usage"]
            assert counted == {"input_tokens": u["input_tokens"] + u["cache_read_input_tokens"]}, (counted, u)
            assert went_on["usage"]["cache_read_input_tokens"] + went_on["usage"]["input_tokens"] == counted["input_tokens"], went_on
            id_ = went_on["id"]
            whole, new = [*whole, {"role": "assistant", "content": went_on["content"]}], [user(text_)]
    go_on = {"type": "continue", "previous_message_id": begun["id"]}
    # What the thread has may be sent again; anything else in its place is refused.
    post(s, MESSAGES, new, thread=go_on, system=system)
    for path in (MESSAGES, MESSAGES + "/count_tokens"):
        status, _, e = s.call("POST", path, {"model": "m", "max_tokens": 4, "messages": new, "system": "Else.", "thread": go_on})
        assert status == 400 and e["error"]["details"] == {"error_code": "thread_fingerprint_mismatch"}, e
    # Responses and messages do not know each other's ids.
    response = post(s, RESPONSES, [user()])["id"]
    assert s.call("GET", f"{RESPONSES}/{begun['id']}")[0] == s.call("DELETE", f"{RESPONSES}/{begun['id']}")[0] == 404
    post(s, RESPONSES, [user()], previous_response_id=begun["id"], expect=404)
    for unknown in ("msg_none", "", response, "x" * 500):
        e = post(s, MESSAGES, new, thread={**go_on, "previous_message_id": unknown}, expect=404)
        assert e["error"]["type"] == "not_found_error" and e["error"]["details"] == {"error_code": "thread_not_found"}, e
    for wrong in ({"type": "continue"}, {**go_on, "previous_message_id": 5}):
        post(s, MESSAGES, new, thread=wrong, expect=400)
    unthreaded = post(s, MESSAGES, first)["id"]
    post(s, MESSAGES, new, thread={**go_on, "previous_message_id": unthreaded}, expect=404)


def threads_are_their_keys(s):
    with Server(PROGRAM, "--model", MODEL, "--api-key", "one,two") as s:
        def ask(key, thread):
            return s.call("POST", MESSAGES, {"model": "m", "max_tokens": 2, "messages": [user()], "thread": thread},
                          {"content-type": "application/json", "x-api-key": key})
        status, _, begun = ask("one", {"type": "create"})
        assert status == 200, begun
        go_on = {"type": "continue", "previous_message_id": begun["id"]}
        assert ask("one", go_on)[0] == 200 and ask("two", go_on)[0] == 404


def compaction_messages(s):
    said_ = [user("Hello"), said("Hello! How can I help you?"), user("What is 2 plus 3?"), said("The answer is 5.")]
    fixed = {"tools": TOOLS[MESSAGES], "system": "Be short."}
    before = post(s, MESSAGES, said_, max_tokens=4, **fixed)["usage"]
    for instructions in (None, "Say hello."):
        compaction = {"type": "summarize", **({"instructions": instructions} if instructions else {})}
        made = post(s, MESSAGES, said_, max_tokens=200, compaction=compaction, **fixed)
        (block,) = made["content"]
        assert made["stop_reason"] == "compaction" and block["type"] == "compaction" and block["content"].strip(), made
        assert made["usage"]["cache_read_input_tokens"] >= before["input_tokens"] + before["cache_read_input_tokens"] - 64 > 0, (made, before)
        streamed, extension = stream(s, {"model": "m", "temperature": 0, "max_tokens": 200, "messages": said_, "compaction": compaction,
                                         "evenkeel": {"digest": True}, **fixed})
        assert streamed["content"] == made["content"] and extension["digest"] == made["evenkeel"]["digest"], (streamed, made)
        # The conversation goes on over it: what came before the block is not read.
        want = digest(s, MESSAGES, [user("Summary of the conversation so far:\n\n" + block["content"]), user("And 4 plus 4?")], system="Be short.")
        for history in ([{"role": "assistant", "content": [block]}], [*said_, {"role": "assistant", "content": [block]}], [{"role": "user", "content": [block]}]):
            assert digest(s, MESSAGES, [*history, user("And 4 plus 4?")], system="Be short.") == want, history
    # One that failed stands for nothing, and a reply that a limit cut is none.
    failed = {"type": "compaction", "content": None}
    assert digest(s, MESSAGES, [*said_, {"role": "assistant", "content": [failed]}, user()]) == digest(s, MESSAGES, [*said_, user()])
    assert post(s, MESSAGES, said_, max_tokens=1, compaction={"type": "summarize"})["content"][0]["content"] is None
    for wrong in ({"type": "other"}, 5, {}):
        e = post(s, MESSAGES, said_, compaction=wrong, expect=400)
        assert "compaction" in e["error"]["message"], e
    post(s, MESSAGES, said_, compaction={"type": "summarize"}, context_management={"edits": []}, expect=400)
    body = {"model": "m", "messages": said_}
    assert s.call("POST", MESSAGES + "/count_tokens", {**body, "compaction": {"type": "summarize"}}) [2] == s.call("POST", MESSAGES + "/count_tokens", body)[2]


def events_of(s, body):
    c = s.open()
    c.request("POST", RESPONSES, json.dumps({**body, "stream": True}), {"content-type": "application/json"})
    r = c.getresponse()
    got = [json.loads(l[6:]) for l in r if l.startswith(b"data: {")]
    c.close()
    return got


def compaction_responses(s):
    items = [user("Hello"), said("Hello! How can I help you?"), user("What is 2 plus 3?"), fc(*A), output("a", "5")]
    common = {"model": "m", "temperature": 0, "tools": TOOLS[RESPONSES], "instructions": "Be short.", "evenkeel": {"digest": True}}
    before = s.call("POST", RESPONSES, {**common, "input": items, "max_output_tokens": 2})[2]
    status, _, made = s.call("POST", RESPONSES + "/compact", {**common, "input": items, "max_output_tokens": 300})
    assert status == 200 and made["object"] == "response.compaction", made
    *users, item = made["output"]
    assert [(u["type"], u["role"], u["content"][0]["text"]) for u in users] == [("message", "user", "Hello"), ("message", "user", "What is 2 plus 3?")], made
    assert item["type"] == "compaction" and len({u["id"] for u in made["output"]}) == 3, made
    assert made["usage"]["input_tokens_details"]["cached_tokens"] >= before["usage"]["input_tokens"] - 64, (made, before)
    summary = base64.b64decode(item["encrypted_content"].partition("+")[2]).decode()
    assert summary.strip(), made
    asked = user("And 4 plus 4?")
    want = digest(s, RESPONSES, [user("Hello"), user("What is 2 plus 3?"), user("Summary of the conversation so far:\n\n" + summary), asked])
    assert digest(s, RESPONSES, [*made["output"], asked]) == want
    assert digest(s, RESPONSES, [*items, item, asked]) == want  # what the model and its tools said before it is not read
    # As Codex asks for it: the last item is a trigger, and the reply has the item alone.
    body = {**common, "input": [*items, {"type": "compaction_trigger"}], "max_output_tokens": 300}
    whole = s.call("POST", RESPONSES, body)[2]
    assert [(o["type"], o["encrypted_content"]) for o in whole["output"]] == [("compaction", item["encrypted_content"])], whole
    events = events_of(s, body)
    assert [e["type"].removeprefix("response.") for e in events] == ["created", "in_progress", "output_item.added", "output_item.done", "completed"], events
    assert events[3]["item"] == events[-1]["response"]["output"][0] and events[3]["item"]["encrypted_content"] == item["encrypted_content"], events
    # A summary that a limit cut replaces nothing.
    cut = s.call("POST", RESPONSES, {**body, "max_output_tokens": 1})[2]
    assert cut["status"] == "incomplete" and events_of(s, {**body, "max_output_tokens": 1})[3]["item"]["encrypted_content"] == cut["output"][0]["encrypted_content"], cut
    assert digest(s, RESPONSES, [*items, *cut["output"], asked]) == digest(s, RESPONSES, [*items, asked])
    # A conversation that the server has goes on over it, and so does a new one by reference.
    assert post(s, RESPONSES, [asked], previous_response_id=whole["id"])["evenkeel"]["digest"] == want
    refers = [user("Hello"), user("What is 2 plus 3?"), {"type": "item_reference", "id": whole["output"][0]["id"]}, asked]
    assert digest(s, RESPONSES, refers) == want
    stored = s.call("POST", RESPONSES + "/compact", {**common, "previous_response_id": before["id"]})
    assert stored[0] == 200 and stored[2]["output"][0]["content"][0]["text"] == "Hello", stored
    e = post(s, RESPONSES, [{"type": "compaction", "encrypted_content": "gAAAA"}, asked], expect=400)
    assert "encrypted_content" in e["error"]["message"], e
    assert s.call("POST", RESPONSES + "/compact", {"model": "m", "input": []})[0] == 400


TESTS = [compaction_messages, compaction_responses, message_threads, threads_are_their_keys, items_by_reference, damaged_arguments, results_away_from_their_calls, parallel_calls, the_same_id_again, results_of_no_call, across_stored_responses]


def main():
    with Server(PROGRAM, "--model", MODEL) as s:
        for test in TESTS:
            counted.run(test, s)
    return counted.closing()


sys.exit(main())
