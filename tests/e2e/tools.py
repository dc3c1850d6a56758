#!/usr/bin/env python3
"""Tools of `evenkeel serve` that are more than functions: tools.py PROGRAM MODEL [NAME...]

MODEL is a checkpoint folder. Prints one line per test and closes with `N passed, N failed`."""
import json, re, sys

import counted
from client import Server

PROGRAM, MODEL, counted.only = sys.argv[1], sys.argv[2], sys.argv[3:]


def ok(reply):
    status, _, body = reply
    assert status == 200, (status, body)
    return body


def stream(s, path, body):
    """The JSON of every event."""
    c = s.open()
    try:
        c.request("POST", path, json.dumps({**body, "stream": True}).encode(), {"content-type": "application/json"})
        r = c.getresponse()
        assert r.status == 200, r.read()
        return [json.loads(line[6:]) for line in r.read().decode().splitlines() if line.startswith("data: {")]
    finally:
        c.close()


def bare(items):
    """Without ids, which follow from the reply's."""
    return [{k: v for k, v in i.items() if k not in ("id", "call_id")} for i in items]


def tool(name, **more):
    return {"name": name, "description": f"Does {name} to a city.", "input_schema": {"type": "object", "properties": {
            "city": {"type": "string", "maxLength": 8}}, "required": ["city"], "additionalProperties": False}, "strict": True, **more}


def a_reference_loads_a_tool(s):
    """Before it the tool is not in the prompt and cannot be called; after it, it can, and all that came before is from the cache."""
    find = {"name": "find", "description": "Finds tools. " * 40, "input_schema": {"type": "object"}}
    later = [tool(f"later_{i}", defer_loading=True) for i in range(40)]
    body = {"max_tokens": 24, "temperature": 0, "messages": [{"role": "user", "content": "Look for a tool that paints cities. " * 8}]}
    count = lambda b: ok(s.call("POST", "/v1/messages/count_tokens", b))["input_tokens"]
    alone, all_ = {**body, "tools": [find]}, {**body, "tools": [find, *later]}
    assert count({k: alone[k] for k in ("messages", "tools")}) == count({k: all_[k] for k in ("messages", "tools")})
    status, _, refused = s.call("POST", "/v1/messages", {**all_, "tool_choice": {"type": "tool", "name": "later_7"}})
    assert status == 400 and '"later_7"' in refused["error"]["message"], refused
    called = ok(s.call("POST", "/v1/messages", {**all_, "tool_choice": {"type": "any"}}))
    assert all(b["name"] == "find" for b in called["content"] if b["type"] == "tool_use"), called
    first = ok(s.call("POST", "/v1/messages", all_))
    prompt = first["usage"]["input_tokens"] + first["usage"]["cache_read_input_tokens"]
    more = [{"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_1", "name": "find", "input": {}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": [
                {"type": "tool_reference", "tool_name": "later_7"}, {"type": "tool_reference", "tool_name": "later_9"}]}]}]
    second = {**all_, "messages": body["messages"] + more}
    usage = ok(s.call("POST", "/v1/messages", {**second, "max_tokens": 1}))["usage"]
    assert usage["cache_read_input_tokens"] >= prompt - 1, (usage, prompt)
    assert usage["input_tokens"] < 400, usage # the call, its result and two declarations, not forty
    forced = {**second, "max_tokens": 60, "tool_choice": {"type": "tool", "name": "later_7"}}
    whole = [b["name"] for b in ok(s.call("POST", "/v1/messages", forced))["content"] if b["type"] == "tool_use"]
    blocks = [f["content_block"] for f in stream(s, "/v1/messages", forced) if f["type"] == "content_block_start"]
    assert whole == [b["name"] for b in blocks if b["type"] == "tool_use"] == ["later_7"], (whole, blocks)
    status, _, refused = s.call("POST", "/v1/messages", {**second, "tool_choice": {"type": "tool", "name": "later_8"}})
    assert status == 400 and '"later_8"' in refused["error"]["message"], refused


PATCH = """start: begin_patch hunk+ end_patch
begin_patch: "*** Begin Patch" LF
end_patch: "*** End Patch" LF?
hunk: add_hunk | delete_hunk | update_hunk
add_hunk: "*** Add File: " filename LF add_line+
delete_hunk: "*** Delete File: " filename LF
update_hunk: "*** Update File: " filename LF change_move? change?
filename: /(.+)/
add_line: "+" /(.*)/ LF -> line
change_move: "*** Move to: " filename LF
change: (change_context | change_line)+ eof_line?
change_context: ("@@" | "@@ " /(.+)/) LF
change_line: ("+" | "-" | " ") /(.*)/ LF
eof_line: "*** End of File" LF
%import common.LF
"""
LINE = r"[^\n]+\n"
ANY = r"[^\n]*\n"
HUNK = (rf"(\*\*\* Add File: {LINE}(\+{ANY})+|\*\*\* Delete File: {LINE}|\*\*\* Update File: {LINE}(\*\*\* Move to: {LINE})?"
        rf"((@@\n|@@ {LINE}|[-+ ]{ANY})+(\*\*\* End of File\n)?)?)")
FORMATS = {  # what is asked for: the format of the tool, and the same said by Python's regular expressions
    "text": (None, r"(?s).*"),
    "regex": ({"type": "grammar", "syntax": "regex", "definition": "(ab|cd){2,3}!"}, r"(ab|cd){2,3}!"),
    "lark": ({"type": "grammar", "syntax": "lark", "definition": 'start: sum ("," sum)?\nsum: N "+" N\nN: DIGIT~1..2\n%import common.DIGIT'},
             r"\d{1,2}\+\d{1,2}(,\d{1,2}\+\d{1,2})?"),
    "patch": ({"type": "grammar", "syntax": "lark", "definition": PATCH}, rf"\*\*\* Begin Patch\n{HUNK}+\*\*\* End Patch\n?"),
}


def custom_tools(s):
    """The input is a text of the tool's format, at a temperature at which the model by itself would write none; a stream says the same."""
    for name, (grammar, like) in FORMATS.items():
        complete = 0
        for seed in range(8):
            if complete == 2:
                break
            more = {"temperature": 1.0, "seed": seed}
            tool = {"type": "custom", "name": "apply_patch", "description": "Applies a patch.", **({"format": grammar} if grammar else {})}
            ask = {"input": "Add a file a.txt that says hi.", "tools": [tool], "tool_choice": {"type": "custom", "name": "apply_patch"},
                   "max_output_tokens": 120, "store": False, **more}
            whole = ok(s.call("POST", "/v1/responses", ask))
            item = whole["output"][-1]
            assert item["type"] == "custom_tool_call" and item["name"] == "apply_patch" and item["id"].startswith("ctc_"), item
            events = stream(s, "/v1/responses", ask)
            assert bare(events[-1]["response"]["output"]) == bare(whole["output"]), (events[-1], whole)
            text = "".join(e["delta"] for e in events if e["type"] == "response.custom_tool_call_input.delta")
            done = [e["input"] for e in events if e["type"] == "response.custom_tool_call_input.done"]
            assert done == [text] == [item["input"]], (done, text, item)
            if whole["status"] == "incomplete":
                continue
            complete += 1
            assert re.fullmatch(like, text), (name, text)
            inner = grammar and {"type": "grammar", "grammar": {k: grammar[k] for k in ("syntax", "definition")}}
            custom = {k: tool[k] for k in ("name", "description")}
            chat = {"messages": [{"role": "user", "content": ask["input"]}], "max_tokens": 120, **more,
                    "tools": [{"type": "custom", "custom": {**custom, **({"format": inner} if inner else {})}}],
                    "tool_choice": {"type": "custom", "custom": {"name": "apply_patch"}}}
            call = ok(s.call("POST", "/v1/chat/completions", chat))["choices"][0]["message"]["tool_calls"][0]
            assert call["type"] == "custom" and call["custom"] == {"name": "apply_patch", "input": text}, (call, text)
            deltas = [t for f in stream(s, "/v1/chat/completions", chat) for c in f["choices"] for t in c["delta"].get("tool_calls", [])]
            assert deltas[0]["type"] == "custom" and deltas[0]["custom"] == {"name": "apply_patch", "input": ""}, deltas[0]
            assert "".join(t["custom"]["input"] for t in deltas) == text, deltas
            after = [{"role": "user", "content": ask["input"]}, item, {"type": "custom_tool_call_output", "call_id": item["call_id"], "output": "Done."}]
            ok(s.call("POST", "/v1/responses", {**ask, "input": after, "tool_choice": "auto", "max_output_tokens": 4}))
        assert complete > 0, name
    stored = ok(s.call("POST", "/v1/responses", {**ask, "store": True, "tools": [{**tool, "format": FORMATS["regex"][0]}]}))
    result = {"type": "custom_tool_call_output", "call_id": stored["output"][-1]["call_id"], "output": "Done."}
    ok(s.call("POST", "/v1/responses", {"previous_response_id": stored["id"], "input": [result], "tools": [tool], "max_output_tokens": 4}))
    status, _, body = s.call("POST", "/v1/responses", {**ask, "tools": [{**tool, "format": {"type": "grammar", "syntax": "regex", "definition": "(?=a)b"}}]})
    assert status == 400 and "pattern" in body["error"]["message"] and '"apply_patch"' in body["error"]["message"], body


def client_tools(s):
    """Tools with published schemas: calls are items of their own type, whole and streamed, and their results are taken."""
    for type_, choice in (("local_shell", "local_shell"), ("shell", "shell"), ("apply_patch", "apply_patch")):
        ask = {"input": "List the files.", "tools": [{"type": type_}], "tool_choice": {"type": choice}, "max_output_tokens": 200, "temperature": 0}
        whole = ok(s.call("POST", "/v1/responses", ask))
        item = whole["output"][-1]
        assert item["type"] == type_ + "_call", item
        if whole["status"] == "completed":
            if type_ == "apply_patch":
                assert item["operation"]["type"] in ("create_file", "update_file", "delete_file") and isinstance(item["operation"]["path"], str)
            else:
                command = item["action"]["commands" if type_ == "shell" else "command"]
                assert isinstance(command, list) and all(isinstance(c, str) for c in command), item
        events = stream(s, "/v1/responses", ask)
        assert bare(events[-1]["response"]["output"]) == bare(whole["output"])
        assert [e["type"][9:] for e in events if "item" in e][-2:] == ["output_item.added", "output_item.done"]
        result = {"local_shell": {"type": "local_shell_call_output", "id": item["id"], "output": "a.txt"},
                  "shell": {"type": "shell_call_output", "call_id": item["call_id"], "output": [{"stdout": "a.txt", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}]},
                  "apply_patch": {"type": "apply_patch_call_output", "call_id": item["call_id"], "status": "completed"}}[type_]
        if item["status"] == "completed":
            then = {"tools": ask["tools"], "max_output_tokens": 4}
            ok(s.call("POST", "/v1/responses", {**then, "input": [{"role": "user", "content": "List the files."}, item, result]}))
            ok(s.call("POST", "/v1/responses", {**then, "previous_response_id": whole["id"], "input": [result]}))
    for type_, name in (("bash_20250124", "bash"), ("text_editor_20250728", "str_replace_based_edit_tool"), ("memory_20250818", "memory")):
        ask = {"max_tokens": 200, "temperature": 0, "tools": [{"type": type_, "name": name}], "tool_choice": {"type": "tool", "name": name},
               "messages": [{"role": "user", "content": "Show the file a.txt."}]}
        block = ok(s.call("POST", "/v1/messages", ask))["content"][-1]
        assert block["type"] == "tool_use" and block["name"] == name, block
        if name != "bash":
            assert block["input"]["command"] in ("view", "create", "str_replace", "insert", "delete", "rename"), block


def main():
    with Server(PROGRAM, "--model", MODEL, "--ctx", 4096, "--max-requests", 4) as s:
        for test in (a_reference_loads_a_tool, custom_tools, client_tools):
            counted.run(test, s)
    return counted.closing()


sys.exit(main())
