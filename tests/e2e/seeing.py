#!/usr/bin/env python3
"""Pictures and sounds through every API of `evenkeel serve`, and through `run`: seeing.py PROGRAM DIR [NAME...]

DIR is a folder for random models with eyes and ears (seeing_model.py) and for files. Prints one line per test and closes
with `N passed, N failed`."""
import base64, http.server, json, os, socket, struct, subprocess, sys, tempfile, threading, time, zlib

import seeing_model, tiny_model
import counted
from client import Server
from drawn import chunk, hum, png_of

PROGRAM, DIR, counted.only = sys.argv[1], sys.argv[2], sys.argv[3:]
TESTS = []


def test(f):
    TESTS.append(f)
    return f


# ---------------------------------------------------------------- files

def png(width, height, seed=0, level=6):
    if width * height < 10000:
        rows = b"".join(b"\0" + bytes((x * (3 + seed) + y * 5 + c * 40 + seed * 77) & 255 for x in range(width) for c in range(3)) for y in range(height))
    else:
        rows = (b"\0" + bytes(range(250)) * (3 * width // 250 + 1))[:1 + 3 * width] * height
    return png_of(width, height, rows, level)


def interlaced(width, height):
    """Black, in the seven turns of Adam7."""
    turns = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]
    rows = b"".join(bytes(1 + 3 * len(range(x, width, dx))) * len(range(y, height, dy)) for x, y, dx, dy in turns)
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 1)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows, 1)) + chunk(b"IEND", b"")


PICTURE, OTHER, SOUND = png(64, 48), png(64, 48, 1), hum(1)  # 266 and 25 tokens
b64 = lambda b: base64.b64encode(b).decode()
url = lambda b, kind="image/png": f"data:{kind};base64,{b64(b)}"
image = lambda b=PICTURE, **more: {"type": "image_url", "image_url": {"url": url(b), **more}}
sound = lambda b=SOUND: {"type": "input_audio", "input_audio": {"data": b64(b), "format": "wav"}}
text = lambda s: {"type": "text", "text": s}
block = lambda b=PICTURE: {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": b64(b)}}
user = lambda *parts: [{"role": "user", "content": list(parts)}]
OURS = {"evenkeel": {"digest": True}, "temperature": 0}


def ask(s, path, body, status=200):
    got, _, reply = s.call("POST", path, body)
    assert got == status, (path, got, reply)
    return reply


def chat(s, *parts, **more):
    return ask(s, "/v1/chat/completions", {"messages": user(*parts), "max_tokens": 8, **OURS, **more})


def tokens(s, *parts, **more):
    return chat(s, *parts, **more)["usage"]["prompt_tokens"]


def digest(reply):
    return reply["evenkeel"]["digest"]


def metrics(s):
    c = s.open()
    c.request("GET", "/metrics")
    r = c.getresponse().read().decode()
    c.close()
    return r


def refused(s, path, body, *says, status=400):
    reply = json.dumps(ask(s, path, body, status), ensure_ascii=False)
    for word in says:
        assert word in reply, (word, reply)
    return reply


# ---------------------------------------------------------------- one picture, every API

@test
def models_say_what_they_take(s):
    m = s.call("GET", "/v1/models")[2]["data"][0]
    assert m["architecture"]["input_modalities"] == ["text", "image", "audio"], m
    assert s.call("GET", "/props")[2]["modalities"] == {"vision": True, "audio": True}
    show = ask(s, "/api/show", {"model": "m"})
    assert {"vision", "audio"} <= set(show["capabilities"]), show["capabilities"]


@test
def the_same_in_every_api(s):
    want = chat(s, image(), text("What is it?"))
    assert want["usage"]["prompt_tokens_details"]["image_tokens"] == 266, want["usage"]
    plain = tokens(s, text("What is it?"))
    assert want["usage"]["prompt_tokens"] == plain + 266 + 2, (want["usage"], plain)
    said = want["choices"][0]["message"]["content"]
    r = ask(s, "/v1/responses", {"input": user({"type": "input_image", "detail": "auto", "image_url": url(PICTURE)}, {"type": "input_text", "text": "What is it?"}),
                                 "max_output_tokens": 8, **OURS})
    assert (digest(r), r["usage"]["input_tokens"]) == (digest(want), want["usage"]["prompt_tokens"]), r
    r = ask(s, "/v1/messages", {"messages": user(block(), text("What is it?")), "max_tokens": 8, "model": "m", **OURS})
    assert digest(r) == digest(want), r
    r = ask(s, "/api/chat", {"model": "m", "messages": [{"role": "user", "content": "What is it?", "images": [b64(PICTURE)]}], "stream": False,
                             "options": {"num_predict": 8, "temperature": 0}})
    assert (r["prompt_eval_count"], r["message"]["content"]) == (want["usage"]["prompt_tokens"], said), r
    r = ask(s, "/api/generate", {"model": "m", "prompt": "What is it?", "images": [b64(PICTURE)], "stream": False, "options": {"num_predict": 8, "temperature": 0}})
    assert (r["prompt_eval_count"], r["response"]) == (want["usage"]["prompt_tokens"], said), r


def frames(s, path, body):
    """The JSON of a stream: of events, or of lines."""
    c = s.open()
    c.request("POST", path, json.dumps({**body, "stream": True}), {"content-type": "application/json"})
    r = c.getresponse()
    raw = r.read().decode()
    c.close()
    assert r.status == 200, raw
    lines = [l[6:] if l.startswith("data: ") else l for l in raw.split("\n")]
    return [json.loads(l) for l in lines if l.strip().startswith("{")]


def usages(s, seed):
    """What every API says of a prompt with a picture and, where it takes one, a sound, whole and streamed: image tokens, of
    these kept; audio tokens, of these kept. Each time behind other words."""
    one, word = png(64, 48, seed), ""
    numbers = lambda u: [u.get(k) for k in ("image_tokens", "cached_image_tokens", "audio_tokens", "cached_audio_tokens")]
    for stream in (False, True):
        def of(path, body, get):
            nonlocal word
            word += "x "  # no prompt begins like one before
            body = body(word)
            if not stream:
                return numbers(get(ask(s, path, body)))
            return numbers(next(u for u in map(get, reversed(frames(s, path, body))) if u))
        parts = lambda w: [text(w), image(one), sound(hum(1, seed))]
        yield "chat", of("/v1/chat/completions", lambda w: {"messages": user(*parts(w)), "max_tokens": 2, "stream_options": {"include_usage": True}},
                         lambda f: (f.get("usage") or {}).get("prompt_tokens_details"))
        items = lambda w: user({"type": "input_text", "text": w}, {"type": "input_image", "detail": "auto", "image_url": url(one)})
        yield "responses", of("/v1/responses", lambda w: {"input": items(w), "max_output_tokens": 2},
                              lambda f: ((f.get("response") or f).get("usage") or {}).get("input_tokens_details"))
        yield "messages", of("/v1/messages", lambda w: {"model": "m", "max_tokens": 2, "messages": user(text(w), block(one))}, lambda f: f.get("usage"))
        yield "api/chat", of("/api/chat", lambda w: {"model": "m", "messages": [{"role": "user", "content": w, "images": [b64(one)]}], "options": {"num_predict": 2}, "stream": False},
                             lambda f: f if f.get("done") else None)
        yield "api/generate", of("/api/generate", lambda w: {"model": "m", "prompt": w, "images": [b64(one)], "options": {"num_predict": 2}, "stream": False},
                                 lambda f: f if f.get("done") else None)


@test
def usage_says_what_was_encoded(s):
    """The first prompt with a picture pays for it; those behind it in any API find its features."""
    got = list(usages(s, 90))
    assert len(got) == 10 and got[0] == ("chat", [266, 0, 25, 0]), got
    for api, numbers in got[1:]:
        assert numbers == [266, 266] + ([25, 25] if api == "chat" else [None, None]), (api, numbers)
    body = {"messages": user(image(png(64, 48, 91)), text("again and again")), "max_tokens": 2}
    first, then = (ask(s, "/v1/chat/completions", body)["usage"]["prompt_tokens_details"] for _ in range(2))
    assert (first["cached_image_tokens"], then["cached_image_tokens"]) == (0, 266), (first, then)
    assert then["cached_tokens"] > 266, then  # by the prefix cache
    m = metrics(s)
    for name in ("evenkeel_media_tokens_total", "evenkeel_media_cached_tokens_total", "evenkeel_media_encoded_total"):
        for kind in ("image", "sound"):
            n = next(float(l.split()[1]) for l in m.splitlines() if l.startswith(f'{name}{{kind="{kind}"}} '))
            assert n > 0, (name, kind)
    ask(s, "/v1/chat/completions", {"messages": user(text("a")), "max_tokens": 2})
    plain = ask(s, "/v1/chat/completions", {"messages": user(text("a")), "max_tokens": 2})["usage"]["prompt_tokens_details"]
    assert set(plain) == {"cached_tokens"}, plain


@test
def pixels_decide_and_their_coding_does_not(s):
    one = digest(chat(s, image(), text("?")))
    assert digest(chat(s, image(png(64, 48, 0, 1)), text("?"))) == one, "the same pixels"
    assert digest(chat(s, image(OTHER), text("?"))) != one, "other pixels"
    assert digest(chat(s, text("?"), image())) != one, "another place"
    two = digest(chat(s, image(), image(OTHER), text("?")))
    assert two != digest(chat(s, image(OTHER), image(), text("?"))), "another order"
    assert digest(chat(s, image(), image(OTHER), text("?"))) == two
    a, b = digest(chat(s, sound(), text("?"))), digest(chat(s, sound(hum(1, 5)), text("?")))
    assert a != b, "another sound"


@test
def transparency(s):
    clear = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 8, 8, 8, 6, 0, 0, 0)) + chunk(b"IDAT", zlib.compress((b"\0" + b"\x10\x20\x30\0" * 8) * 8)) + chunk(b"IEND", b"")
    ours = ({}, {"image_alpha": "drop"}, {"image_alpha": "white"})
    plain, drop, white = (digest(chat(s, image(clear), text("?"), evenkeel={"digest": True, **o})) for o in ours)
    assert plain == drop != white, (plain, drop, white)


@test
def budgets(s):
    base = tokens(s, text("?"))
    for want, more in ((266, {}), (63, {"detail": "low"}), (1064, {"detail": "high"}), (266, {"detail": "auto"})):
        assert tokens(s, image(PICTURE, **more), text("?")) == base + want + 2, more
    for budget, want in ((70, 63), (140, 130), (280, 266), (560, 540), (1120, 1064)):
        got = tokens(s, image(), text("?"), evenkeel={"image_tokens": budget})
        assert got == base + want + 2, (budget, got - base)
    refused(s, "/v1/chat/completions", {"messages": user(image()), "evenkeel": {"image_tokens": 100}}, "image_tokens", "not 100")


@test
def counting_needs_no_pixels(s):
    want = tokens(s, image(), sound(), text("Hi"))
    assert ask(s, "/v1/responses/input_tokens", {"input": user({"type": "input_image", "image_url": url(PICTURE)}, sound(), {"type": "input_text", "text": "Hi"})})["input_tokens"] == want
    assert ask(s, "/v1/chat/completions/render", {"messages": user(image(), sound(), text("Hi"))})["token_ids"].count(500) == 266
    assert ask(s, "/tokenize", {"messages": user(image(), sound(), text("Hi"))})["count"] == want
    got = ask(s, "/v1/messages/count_tokens", {"model": "m", "messages": user(block(), text("Hi"))})["input_tokens"]
    assert got == tokens(s, image(), text("Hi")), got
    cut = png(3000, 2000)[:200]  # its header is whole
    ask(s, "/v1/messages/count_tokens", {"model": "m", "messages": user(block(cut))})
    refused(s, "/v1/messages", {"model": "m", "max_tokens": 1, "messages": user(block(cut))}, "image 1", "PNG")


@test
def sounds_and_videos(s):
    r = chat(s, sound(), text("?"))
    base = tokens(s, text("?"))
    assert r["usage"]["prompt_tokens_details"]["audio_tokens"] == 25, r["usage"]
    assert r["usage"]["prompt_tokens"] == base + 25 + 2
    frames = [url(PICTURE), {"url": url(OTHER)}]
    r = chat(s, {"type": "video", "video": frames, "timestamps": [0, 61.9]}, text("?"))
    spelled = len(ask(s, "/tokenize", {"content": "00:00 "})["tokens"]) + len(ask(s, "/tokenize", {"content": " 01:01 "})["tokens"])
    assert r["usage"]["prompt_tokens"] == base + 2 * (63 + 2) + spelled, (r["usage"], base, spelled)
    assert digest(r) != digest(chat(s, {"type": "video", "video": frames, "timestamps": [0, 62]}, text("?")))
    assert digest(r) != digest(chat(s, {"type": "video", "video": frames[::-1], "timestamps": [0, 61.9]}, text("?")))


@test
def results_of_tools_have_pictures(s):
    called = [{"role": "user", "content": "Look."}, {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "shot", "input": {}}]}]
    result = lambda *content: called + user({"type": "tool_result", "tool_use_id": "t1", "content": list(content)})
    body = lambda *content: {"model": "m", "max_tokens": 8, "messages": result(*content), **OURS}
    one = ask(s, "/v1/messages", body(text("Here:"), block()))
    assert digest(one) != digest(ask(s, "/v1/messages", body(text("Here:"), block(OTHER))))
    whole = lambda r: r["usage"]["input_tokens"] + r["usage"]["cache_read_input_tokens"]
    assert whole(one) == whole(ask(s, "/v1/messages", body(text("Here:")))) + 268
    made = [{"type": "message", "role": "user", "content": "Look."}, {"type": "function_call", "call_id": "t1", "name": "shot", "arguments": "{}"}]
    r = ask(s, "/v1/responses", {"max_output_tokens": 8, **OURS, "input": made + [
        {"type": "function_call_output", "call_id": "t1", "output": [{"type": "input_text", "text": "Here:"}, {"type": "input_image", "image_url": url(PICTURE)}]}]})
    assert digest(r) == digest(one), r
    r = ask(s, "/v1/chat/completions", {"max_tokens": 8, **OURS, "messages": [
        {"role": "user", "content": "Look."}, {"role": "assistant", "tool_calls": [{"id": "t1", "type": "function", "function": {"name": "shot", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "t1", "content": [text("Here:"), image()]}]})
    assert digest(r) == digest(one), r


# ---------------------------------------------------------------- conversations and company

@test
def earlier_turns_keep_their_pictures(s):
    first = user({"type": "input_image", "image_url": url(PICTURE)}, {"type": "input_text", "text": "One"})
    a = ask(s, "/v1/responses", {"input": first, "max_output_tokens": 8, **OURS})
    then = {"input": "And now?", "max_output_tokens": 8, **OURS}
    b = ask(s, "/v1/responses", {**then, "previous_response_id": a["id"]})
    whole = ask(s, "/v1/responses", {**then, "input": first + a["output"] + user({"type": "input_text", "text": "And now?"})})
    assert digest(b) == digest(whole) and b["usage"]["input_tokens"] == whole["usage"]["input_tokens"], (b["usage"], whole["usage"])
    assert b["usage"]["input_tokens"] > 266
    kept = s.call("GET", f"/v1/responses/{a['id']}/input_items")[2]["data"]
    assert kept[0]["content"][0]["image_url"] == url(PICTURE), "it can be read again"


@test
def streams_and_company_change_nothing(s):
    bodies = [{"messages": user(image(png(64, 48, i)), text(f"Nr. {i}")), "max_tokens": 8, **OURS} for i in range(4)]
    bodies += [{"messages": user(text(f"Tell me {i}.")), "max_tokens": 8, **OURS} for i in range(4)]
    alone = [digest(ask(s, "/v1/chat/completions", b)) for b in bodies]
    together = [None] * len(bodies)
    def one(i):
        c = s.open()
        c.request("POST", "/v1/chat/completions", json.dumps({**bodies[i], "stream": i % 2 == 0}), {"content-type": "application/json"})
        raw = c.getresponse().read().decode()
        c.close()
        frames = [json.loads(l[6:]) for l in raw.split("\n") if l.startswith("data: {")] if i % 2 == 0 else [json.loads(raw)]
        together[i] = next(f["evenkeel"]["digest"] for f in frames if f.get("evenkeel", {}).get("digest"))
    threads = [threading.Thread(target=one, args=(i,)) for i in range(len(bodies))]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert together == alone, (together, alone)


@test
def spelled_placeholders_are_text(s):
    for words in ("<|image|>", "<|image><|image|><image|>", "<|audio|> <|video|>"):
        r = chat(s, text(words), image(), text(words))
        assert r["usage"]["prompt_tokens_details"]["image_tokens"] == 266, r["usage"]
        chat(s, text(words))


# ---------------------------------------------------------------- what is refused

@test
def bad_files_fail_their_own_request(s):
    chatting = lambda part: {"messages": user(text("a"), part)}
    path = "/v1/chat/completions"
    bomb = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 30000, 30000, 8, 2, 0, 0, 0)) + chunk(b"IEND", b"")
    errors = []
    def good():
        for _ in range(6):
            if s.call("POST", path, {"messages": user(image(), text("?")), "max_tokens": 2})[0] != 200:
                errors.append("a good request failed")
    t = threading.Thread(target=good)
    t.start()
    refused(s, path, chatting(image(PICTURE[:-30])), "image 1", "PNG")
    refused(s, path, chatting(image(bomb)), "900000000", "64000000")
    refused(s, path, chatting(image(b"hello")), "not a picture")
    refused(s, path, chatting(image(b"")), "an image")
    refused(s, path, chatting(image(hum(0.1))), "an image")
    refused(s, path, chatting(sound(PICTURE)), "a sound")
    refused(s, path, chatting(sound(hum(31))), "30")
    refused(s, path, chatting({"type": "image_url", "image_url": {"url": "data:image/png;base64,A"}}), "base64")
    refused(s, path, chatting({"type": "image_url", "image_url": {"url": "http://127.0.0.1:1/a.png"}}), "--media-urls")
    refused(s, path, chatting({"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}), "file:///etc/passwd")
    refused(s, path, {"messages": user(*[image()] * 129)}, "129 images", "128")
    refused(s, path, {"messages": user(*[sound()] * 5)}, "5 sounds", "4")
    refused(s, path, {"messages": user(*[image(PICTURE, detail="high")] * 8)}, "prompt is too long", "maximum")
    refused(s, "/v1/messages", {"model": "m", "max_tokens": 1, "messages": user(block(b"hello"))}, "(capability_rejected: image_block)")
    # whichever stage finds it: the header, the pixels, the URL, the number
    whole = block(PICTURE)
    by_url = {"type": "image", "source": {"type": "url", "url": "http://127.0.0.1:1/a.png"}}
    for b in [block(PICTURE[:20])], [block(PICTURE[:-30])], [whole, text("?"), block(PICTURE[:len(PICTURE) // 2])], [by_url], [whole] * 129:
        refused(s, "/v1/messages", {"model": "m", "max_tokens": 1, "messages": user(*b)}, "(capability_rejected: image_block)\"")
        result = [{"role": "user", "content": "?"}, {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {}}]}]
        result += user({"type": "tool_result", "tool_use_id": "t", "content": b})
        refused(s, "/v1/messages", {"model": "m", "max_tokens": 1, "messages": result}, "(capability_rejected: image_block)\"")
    t.join()
    assert not errors, errors


@test
def a_session_has_many_pictures(s):
    """One screenshot a turn, far beyond 16."""
    turns = sum(([*user(image(png(48, 48, k), detail="low"), text("?")), {"role": "assistant", "content": "ok"}] for k in range(40)), [])
    r = s.call("POST", "/v1/chat/completions", {"messages": turns + user(text("Go on.")), "max_tokens": 1})
    assert r[0] == 200 and r[2]["usage"]["prompt_tokens_details"]["image_tokens"] >= 40, r


@test
def large_bodies_come_in(s):
    noise = png(8, 8) + os.urandom(34 << 20)  # what lies behind the end of a picture is not looked at, but counts
    refused(s, "/v1/chat/completions", {"messages": user(image(noise))}, "at most 33554432")
    r = chat(s, image(png(8, 8) + bytes(24 << 20)), text("?"))
    assert r["usage"]["prompt_tokens_details"]["image_tokens"] == 256, r["usage"]


def blind_models_say_so(s):
    path = "/v1/chat/completions"
    refused(s, path, {"messages": user(image())}, "no eyes (vision tower)", "it takes text alone")
    refused(s, path, {"messages": user(sound())}, "no ears (audio tower)", "it takes text alone")
    refused(s, "/v1/messages", {"model": "m", "max_tokens": 1, "messages": user(block())}, "no eyes", "(capability_rejected: image_block)")
    refused(s, "/v1/responses", {"input": user({"type": "input_image", "image_url": url(PICTURE)})}, "no eyes")
    refused(s, "/api/chat", {"model": "m", "messages": [{"role": "user", "content": "?", "images": [b64(PICTURE)]}]}, "no eyes")
    assert s.call("GET", "/v1/models")[2]["data"][0]["architecture"]["input_modalities"] == ["text"]


def deaf_models_say_so(s):
    refused(s, "/v1/chat/completions", {"messages": user(sound())}, "no ears (audio tower)", "it takes text and images")
    assert tokens(s, image()) > 266


def memory_is_counted(s):
    used = lambda: next(float(l.split()[1]) for l in metrics(s).splitlines() if l.startswith("evenkeel_request_memory_bytes "))
    path = "/v1/chat/completions"
    refused(s, path, {"messages": user(image(interlaced(5000, 5000)))}, "MiB", status=413)  # 75 MB of pixels, of 64 MiB for all
    assert tokens(s, image(png(5000, 5000)), text("?")) > 256  # which are never in memory where rows come in order
    refused(s, path, {"messages": user(image(png(2000, 2000)[:-40]))}, "image 1")
    assert tokens(s, image(png(1000, 1000)), text("?")) > 256
    for _ in range(50):
        if used() == 0:
            return
        time.sleep(0.1)
    raise AssertionError(f"{used()} bytes stay counted")


# ---------------------------------------------------------------- URLs

class Files(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/slow.png":
            time.sleep(20)
        if self.path == "/loop":
            self.send_response(302)
            self.send_header("location", "/loop")
            return self.end_headers()
        if self.path == "/there":
            self.send_response(302)
            self.send_header("location", "/a.png")
            return self.end_headers()
        if self.path == "/file":
            self.send_response(302)
            self.send_header("location", "file:///etc/passwd")
            return self.end_headers()
        if self.path not in ("/a.png", "/large.png"):
            return self.send_error(404)
        self.send_response(200)
        self.end_headers()
        self.wfile.write(PICTURE)
        for _ in range(40 if self.path == "/large.png" else 0):
            try:
                self.wfile.write(bytes(1 << 20))
            except OSError:
                return

    def log_message(self, *_):
        pass


def urls_are_fetched(s):
    files = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Files)
    threading.Thread(target=files.serve_forever, daemon=True).start()
    at = f"http://127.0.0.1:{files.server_port}"
    far = lambda path: {"type": "image_url", "image_url": {"url": at + path}}
    want = digest(chat(s, image(), text("?")))
    assert digest(chat(s, far("/a.png"), text("?"))) == want
    assert digest(chat(s, far("/there"), text("?"))) == want, "behind a redirect"
    assert digest(chat(s, far("/a.png"), far("/there"), text("?"))) == digest(chat(s, image(), image(), text("?")))
    r = ask(s, "/v1/messages", {"model": "m", "max_tokens": 8, **OURS, "messages": user({"type": "image", "source": {"type": "url", "url": at + "/a.png"}}, text("?"))})
    assert digest(r) == want
    path, one = "/v1/chat/completions", lambda p: {"messages": user(far(p))}
    refused(s, path, one("/none"), "status 404")
    refused(s, path, one("/loop"), "redirects")
    refused(s, path, one("/file"), "cannot be fetched")
    refused(s, path, one("/large.png"), "33554432")
    refused(s, path, {"messages": user({"type": "image_url", "image_url": {"url": "http://127.0.0.1:1/a b"}})}, "no blanks")
    begin = time.time()
    slow = threading.Thread(target=lambda: refused(s, path, one("/slow.png"), "is too slow"))
    slow.start()
    for _ in range(5):
        chat(s, text("?"))  # others go on
    assert time.time() - begin < 8, "others wait for a slow host"
    slow.join()
    files.shutdown()


def urls_of_this_machine_are_not(s):
    for host in ("127.0.0.1", "localhost", "[::1]", "0.0.0.0", "169.254.169.254", "10.0.0.1", "127.1", "2130706433", "[::ffff:127.0.0.1]"):
        refused(s, "/v1/chat/completions", {"messages": user({"type": "image_url", "image_url": {"url": f"http://{host}:{s.port}/v1/models"}})},
                "an address that is not fetched from")


# ---------------------------------------------------------------- run

def run_takes_files(model):
    folder = tempfile.mkdtemp(dir=DIR)
    names = {}
    for name, data in (("a.png", PICTURE), ("b.png", OTHER), ("a.wav", SOUND), ("bad.png", b"hello")):
        names[name] = os.path.join(folder, name)
        open(names[name], "wb").write(data)
    def run(*args, stdin=""):
        p = subprocess.run([PROGRAM, "run", "--model", model, "--temperature", "0", "--max-tokens", "8", *(["--lines"] if stdin else []), *args], input=stdin, capture_output=True, text=True, timeout=60)
        return p.returncode, p.stdout, p.stderr
    said = {}
    for key, args in (("none", ()), ("a", ("--image", names["a.png"])), ("b", ("--image", names["b.png"])), ("ab", ("--image", names["a.png"], "--image", names["b.png"])),
                      ("wav", ("--audio", names["a.wav"]))):
        code, out, err = run(*args, "What is it?")
        assert code == 0, (key, out, err)
        said[key] = out
    assert len(set(said.values())) == len(said), said
    code, out, err = run("--image", names["bad.png"], "What?")
    assert code == 1 and "bad.png" in err and err.count("\n") == 1, (code, out, err)
    saved = os.path.join(folder, "saved.json")
    code, out, err = run(stdin=f"/image {names['a.png']}\nWhat is it?\n/save {saved}\n")
    assert code == 0 and "64 x 48 pixels, 266 tokens" in out and said["a"].strip() in out, (out, said)
    part = json.load(open(saved))["messages"][0]["content"][0]
    assert part["image_url"]["url"] == url(PICTURE), part
    code, again, err = run(stdin=f"/load {saved}\nAnd?\n")
    code, without, err = run(stdin=f"/load {saved}\n/reset\nAnd?\n")
    assert code == 0 and again.split("\n")[1:] != without.split("\n")[2:], (again, without)
    code, out, err = run(stdin=f"/image {names['bad.png']}\n/audio\n/image /no/such\n")
    assert out.count("\n") == 3 and "bad.png" in out and "a file is needed" in out, out


# ---------------------------------------------------------------- all of them

def main():
    both, eyes, blind = (os.path.join(DIR, n) for n in ("both", "eyes", "blind"))
    seeing_model.main(both)
    seeing_model.main(eyes, True, False)
    tiny_model.main(blind)
    ctx = ("--ctx", "4096", "--max-requests", "8")
    with Server(PROGRAM, "--model", both, *ctx) as s:
        for f in TESTS:
            counted.run(f, s)
    with Server(PROGRAM, "--model", both, *ctx, "--media-urls", "all") as s:
        counted.run(urls_are_fetched, s)
    with Server(PROGRAM, "--model", both, *ctx, "--request-memory", "64M") as s:
        counted.run(memory_is_counted, s)
    with Server(PROGRAM, "--model", eyes, *ctx, "--media-urls", "public") as s:
        counted.run(urls_of_this_machine_are_not, s)
        counted.run(deaf_models_say_so, s)
    with Server(PROGRAM, "--model", blind, *ctx) as s:
        counted.run(blind_models_say_so, s)
    counted.run(run_takes_files, both)
    return counted.closing()


if __name__ == "__main__":
    sys.exit(main())
