#!/usr/bin/env python3
"""What Claude Code's own tools bring into a conversation: claude_tools.py PROGRAM MODEL CLAUDE

Its ToolSearch answers with references to tools, its Read of a picture with an image. The bundled model calls neither, so the first
reply of each session is a script; all others are the server's, on MODEL with a context of 64k. References have to be taken at once,
with the prefix in front of them cached; a picture is read where the model takes pictures, and stays in the conversation; else it has
to cost one refusal, after which the client drops it and goes on. Closes with `N passed, N failed`."""
import json, os, struct, subprocess, sys, tempfile, zlib

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
from counted import check, closing
from client import Server
from recorder import Recorder, documented, long_context

PROGRAM, MODEL, CLAUDE = map(os.path.abspath, sys.argv[1:4])


def call(name, arguments):
    """A stream of Messages that calls a tool."""
    message = {"id": "msg_script", "type": "message", "role": "assistant", "model": "gemma", "content": [], "stop_reason": None,
               "stop_sequence": None, "usage": {"input_tokens": 1, "output_tokens": 1}}
    events = [
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "tool_use", "id": "toolu_script", "name": name, "input": {}}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": json.dumps(arguments)}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use", "stop_sequence": None}, "usage": {"output_tokens": 1}},
        {"type": "message_stop"},
    ]
    return "".join(f"event: {e['type']}\ndata: {json.dumps(e)}\n\n" for e in events).encode()


def red_square(path):
    """A PNG of 64 by 64."""
    chunk = lambda kind, data: struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    rows = zlib.compress((b"\0" + b"\xff\0\0" * 64) * 64)
    with open(path, "wb") as f:
        f.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 64, 64, 8, 2, 0, 0, 0)) + chunk(b"IDAT", rows) + chunk(b"IEND", b""))


def session(server, folder, script):
    """Runs Claude Code; what it sent to the server, and its own result."""
    recorder = Recorder(server.port, script=[script])
    settings = dict(line.split("=", 1) for line in documented("env").splitlines())
    env = {"PATH": os.environ["PATH"], "HOME": f"{folder}/home", **settings, **recorder.proxies(),
           "ANTHROPIC_BASE_URL": recorder.url, "CLAUDE_CODE_MAX_OUTPUT_TOKENS": "200"}
    r = subprocess.run([CLAUDE, "-p", "Look at a.png", "--output-format", "stream-json", "--verbose", "--max-turns", "3"],
                       env=env, cwd=f"{folder}/files", capture_output=True, text=True, timeout=180, stdin=subprocess.DEVNULL)
    recorder.shutdown()
    result = next((e for e in map(json.loads, r.stdout.splitlines()) if e["type"] == "result"), {})
    return [e for e in recorder.seen if e["path"].startswith("/v1/messages")], result


def results(entry):
    """The contents of the tool results of a request, as JSON."""
    messages = json.loads(entry["body"])["messages"]
    return [json.dumps(b.get("content")) for m in messages if isinstance(m["content"], list) for b in m["content"] if b["type"] == "tool_result"]


def went_on(name, posts, result):
    check(f"{name}: the session goes on", result.get("subtype") in ("success", "error_max_turns") and posts[-1]["status"] == 200, result)


def references(server, folder):
    posts, result = session(server, folder, call("ToolSearch", {"query": "select:WebFetch,NotebookEdit", "max_results": 5}))
    check("references: sent", any('"tool_reference"' in r for r in results(posts[0])), results(posts[0]))
    check("references: every request is answered with 200", all(e["status"] == 200 for e in posts), [e["reply"][:300] for e in posts if e["status"] != 200])
    went_on("references", posts, result)
    usage = [json.loads(line[6:])["message"]["usage"] for e in posts for line in e["reply"].splitlines() if line.startswith(b'data: {"type":"message_start"')]
    sizes = [u["input_tokens"] + u["cache_read_input_tokens"] for u in usage]
    check("references: the prefix stays cached", all(u["cache_read_input_tokens"] >= 0.98 * sizes[0] for u in usage[1:]), usage)


def picture(server, folder):
    red_square(f"{folder}/files/a.png")
    posts, result = session(server, folder, call("Read", {"file_path": f"{folder}/files/a.png"}))
    check("picture: sent", any('"image"' in r for r in results(posts[0])), results(posts[0]))
    if "image" in server.call("GET", "/v1/models")[2]["data"][0]["architecture"]["input_modalities"]:
        check("picture: every request is answered with 200", all(e["status"] == 200 for e in posts), [(e["status"], e["reply"][:300]) for e in posts])
        check("picture: it stays", any('"image"' in r for r in results(posts[-1])), results(posts[-1]))
        went_on("picture", posts, result)
        return
    check("picture: one refusal", [e["status"] for e in posts][:2] == [400, 200] and sum(e["status"] != 200 for e in posts) == 1,
          [(e["status"], e["reply"][:300]) for e in posts])
    check("picture: dropped", not any('"image"' in r for r in results(posts[-1])), results(posts[-1]))
    went_on("picture", posts, result)


def main():
    with tempfile.TemporaryDirectory() as d:
        long_context(MODEL, f"{d}/pocket")
        os.mkdir(f"{d}/home"), os.mkdir(f"{d}/files")
        with Server(PROGRAM, "--model", f"{d}/pocket", "--max-requests", 4) as s:
            references(s, d)
            picture(s, d)
    return closing()


if __name__ == "__main__":
    sys.exit(main())
