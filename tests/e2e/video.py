#!/usr/bin/env python3
"""Files of videos through `evenkeel serve --ffmpeg` and `run --ffmpeg`: video.py PROGRAM DIR [NAME...]

Most of it runs with a shell script in ffmpeg's place, which takes its frames out of the file that it is given: what is
tested is ours. Where ffmpeg is installed a film that it encodes itself is answered like its frames. Prints one line per
test and closes with `N passed, N failed, N skipped`."""
import base64, http.server, json, os, shutil, subprocess, sys, tempfile, threading, time, traceback

import seeing_model
from client import Server
from drawn import png

PROGRAM, DIR, ONLY = sys.argv[1], sys.argv[2], sys.argv[3:]
PATH = "/v1/chat/completions"

# A "video" is the first word of an Ogg file with lines behind it: frames per second, then a line of octal escapes for each frame. Its frames
# have 4 x 4 pixels. The word slow instead of a frame takes forever, bad ends in an error.
FAKE = r"""#!/bin/sh
case "$*" in
*-protocols*) echo 'ffmpeg version 6.1 fake' >&2; printf 'Input:\n  fd\n'; exit;;
esac
read head; read rate
case "$*" in
*framecrc*)
  printf '#tb 0: 1/%s\n#dimensions 0: 4x4\n' "$rate"
  i=0
  while read line; do printf '0,%s,%s,1,48,0x0\n' $i $i; i=$((i+1)); done;;
*)
  i=0
  while read -r line; do
    case "$*" in *"eq(n\\,$i)"*)
      [ "$line" = slow ] && while :; do :; done
      [ "$line" = bad ] && { echo "it is bad" >&2; exit 1; }
      printf "P6\n4 4\n255\n$line";;
    esac
    i=$((i+1))
  done;;
esac
"""


def pixels(i, seed=0):
    return bytes((i * 29 + seed * 101 + p * 5 + c * 40) % 150 + 100 for p in range(16) for c in range(3))


def film(n, rate=2, seed=0, words={}):
    lines = [words.get(i) or "".join("\\%03o" % b for b in pixels(i, seed)) for i in range(n)]
    return b"OggS\n" + "\n".join([str(rate), *lines, ""]).encode()


b64 = lambda b: base64.b64encode(b).decode()
url = lambda b, kind="video/mp4": f"data:{kind};base64,{b64(b)}"
text = lambda s: {"type": "text", "text": s}
video = lambda b, **more: {"type": "video_url", "video_url": {"url": url(b), **more}}
user = lambda *parts: [{"role": "user", "content": list(parts)}]
OURS = {"evenkeel": {"digest": True}, "temperature": 0}
sampled = lambda n: [i * n // 32 for i in range(32)] if n > 32 else list(range(n))


def frames(indices, rate, seed=0, **more):
    return {"type": "video", "video": [url(png(4, 4, pixels(i, seed)), "image/png") for i in indices], "timestamps": [i / rate for i in indices], **more}


def ask(s, path, body, status=200):
    got, _, reply = s.call("POST", path, body)
    assert got == status, (path, got, reply)
    return reply


def chat(s, *parts, **more):
    return ask(s, PATH, {"messages": user(*parts), "max_tokens": 8, **OURS, **more})


digest = lambda reply: reply["evenkeel"]["digest"]


def refused(s, body, *says, path=PATH, status=400):
    reply = json.dumps(ask(s, path, body, status), ensure_ascii=False)
    for word in says:
        assert word in reply, (word, reply)
    assert "\\n" not in reply, reply


# ---------------------------------------------------------------- with the script

def a_file_is_its_frames(s):
    for n, rate in ((1, 2), (5, 2), (32, 1), (33, 2), (100, 10)):
        want = chat(s, frames(sampled(n), rate), text("What happens?"))
        got = chat(s, video(film(n, rate)), text("What happens?"))
        assert got["usage"] == {**want["usage"], "prompt_tokens_details": got["usage"]["prompt_tokens_details"]}, (n, got["usage"], want["usage"])
        assert digest(got) == digest(want), n
    assert digest(chat(s, video(film(5, 2, 1)), text("What happens?"))) != digest(chat(s, video(film(5)), text("What happens?")))
    low = chat(s, video(film(5), fps=1), text("?"))
    assert digest(low) == digest(chat(s, frames([0, 2], 2), text("?")))
    closer = chat(s, video(film(2), detail="high"), text("?"))
    assert digest(closer) == digest(chat(s, frames([0, 1], 2, detail="high"), text("?")))


def every_word_for_it(s):
    f = film(5)
    want = digest(chat(s, video(f), text("?")))
    for part in ({"type": "video_url", "video_url": url(f)}, {"type": "video", "video": url(f)}, {"type": "video", "video": {"url": url(f)}},
                 {"type": "input_video", "input_video": {"data": b64(f)}}, {"type": "input_video", "input_video": b64(f)},
                 {"type": "input_video", "input_video": {"url": url(f)}}, {"type": "input_video", "video_url": url(f)},
                 {"type": "file", "file": {"filename": "a.mp4", "file_data": url(f)}}):
        assert digest(chat(s, part, text("?"))) == want, part["type"]
    body = {"input": user({"type": "input_video", "video_url": url(f)}, {"type": "input_text", "text": "?"}), "max_output_tokens": 8, **OURS}
    first = ask(s, "/v1/responses", body)
    assert digest(first) == want
    more = {"input": "And?", "previous_response_id": first["id"], "max_output_tokens": 8, **OURS}
    plain = {**body, "input": body["input"] + first["output"] + [{"role": "user", "content": "And?"}]}
    assert digest(ask(s, "/v1/responses", more)) == digest(ask(s, "/v1/responses", plain))
    plain = ask(s, "/v1/responses", {**body, "input": user(frames(range(5), 2), {"type": "input_text", "text": "?"})})
    assert digest(ask(s, "/v1/responses", {**more, "previous_response_id": plain["id"]})) == digest(ask(s, "/v1/responses", more))
    call = {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "type": "function", "function": {"name": "shot", "arguments": "{}"}}]}
    tool = lambda p: {"messages": [*user(text("look")), call, {"role": "tool", "tool_call_id": "1", "content": [p]}], "max_tokens": 8, **OURS}
    assert digest(ask(s, PATH, tool(video(f)))) == digest(ask(s, PATH, tool(frames(range(5), 2))))
    count = s.call("POST", "/v1/responses/input_tokens", {"input": body["input"]})[2]["input_tokens"]
    assert count == first["usage"]["input_tokens"], count
    stream = list(s.stream({"messages": user(video(f), text("?")), "max_tokens": 8, "temperature": 0}))
    said = "".join(c["delta"].get("content") or "" for e in stream for c in e.get("choices", []))
    assert said == chat(s, video(f), text("?"))["choices"][0]["message"]["content"]


def what_is_refused(s):
    v = lambda part: {"messages": user(part)}
    refused(s, {"messages": user(video(film(20)), video(film(20, seed=1)))}, "20 frames are taken", "12 may be")
    refused(s, {"messages": user(video(film(40)), video(film(1)))}, "33 frames of videos", "at most 32")
    refused(s, v(video(film(100, 10), fps=10)), "100 frames are taken of a video of 100 at 10 per second")
    refused(s, v(video(film(3), fps=0)), "fps: a number")
    refused(s, v({**video(film(3)), "timestamps": [1]}), "timestamps belong to a list of frames")
    refused(s, v(video(film(3), detail="close")), "detail must be")
    refused(s, v(video(b"#EXTM3U\n#EXTINF:1,\nfile:///etc/passwd\n")), "a video: not a video of a known kind: it begins with the bytes 23 45 58 54")
    refused(s, v(video(b"")), "empty video")
    refused(s, v({"type": "video_url", "video_url": {"url": "file:///etc/passwd"}}), "must be a data: URL")
    refused(s, v({"type": "video_url", "video_url": {"url": "http://127.0.0.1:1/a.mp4"}}), "--media-urls")
    refused(s, v({"type": "video_url", "video_url": {"url": url(film(1), "text/plain")}}), "a video cannot be of type \\\"text/plain\\\"")
    refused(s, v({"type": "video_url", "video_url": {}}), "video_url needs a text url")
    refused(s, v({"type": "input_video", "input_video": {}}), "input_video needs a text data or url")
    refused(s, v({"type": "input_video", "input_video": {"data": "###"}}), "a video is not valid base64")
    refused(s, v({"type": "video", "video": 3}), "video needs a list")
    refused(s, v(video(film(3, words={1: "bad"}))), "damaged Ogg video: it is bad")
    refused(s, {"messages": [{"role": "system", "content": [video(film(1))]}]}, "messages of the user and results of tools")
    refused(s, v(video(film(3) + bytes(33 << 20))), "at most 33554432")


def children():
    """Processes that run the script."""
    n = 0
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            n += FOLDER.encode() in open(f"/proc/{pid}/cmdline", "rb").read() and b"-protocol_whitelist" in open(f"/proc/{pid}/cmdline", "rb").read()
        except OSError:
            pass
    return n


def wait_for(what, seconds=60):
    deadline = time.time() + seconds
    while not what():
        assert time.time() < deadline, "it does not come"
        time.sleep(0.02)


def a_client_that_goes_ends_it(s):
    slow = json.dumps({"messages": user(video(film(3, words={1: "slow"}))), "max_tokens": 1})
    connections = [s.open() for _ in range(4)]
    for c in connections:
        c.request("POST", PATH, slow, {"content-type": "application/json"})
    wait_for(lambda: children() == 2)  # two at a time, the others wait
    begun = time.time()
    assert chat(s, text("Hello"))["usage"]["completion_tokens"] > 0  # nobody else notices
    png_url = {"type": "image_url", "image_url": {"url": url(png(4, 4, pixels(1)), "image/png")}}
    assert chat(s, png_url, text("Hello"))["usage"]["completion_tokens"] > 0
    assert time.time() - begun < 10
    for c in connections:
        c.close()
    wait_for(lambda: children() == 0)
    assert digest(chat(s, video(film(3)), text("?"))) == digest(chat(s, frames(range(3), 2), text("?")))


def many_at_once_give_the_same(s):
    bodies = [(video(film(n, 2, n)), frames(sampled(n), 2, n)) for n in (3, 7, 32, 40)]
    alone = [digest(chat(s, b, text("?"))) for _, b in bodies]
    got = [None] * 12
    def one(i):
        got[i] = digest(chat(s, bodies[i % 4][0], text("?")))
    threads = [threading.Thread(target=one, args=(i,)) for i in range(12)]
    [t.start() for t in threads], [t.join() for t in threads]
    assert got == alone * 3, (got, alone)


def memory_is_given_back(s):
    refused(s, {"messages": user(video(film(3, words={2: "bad"})))}, "it is bad")
    used = lambda: next(v for k, v in s.metrics().items() if k == "evenkeel_request_memory_bytes")
    wait_for(lambda: used() == 0)


class Host(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = film(6)
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def urls_are_fetched(s):
    host = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Host)
    threading.Thread(target=host.serve_forever, daemon=True).start()
    web = f"http://127.0.0.1:{host.server_port}/a.mp4"
    want = digest(chat(s, video(film(6)), video(film(5)), text("?")))
    assert digest(chat(s, {"type": "video_url", "video_url": {"url": web}}, video(film(5)), text("?"))) == want
    host.shutdown()


def without_the_option(s):
    for part in (video(film(1)), {"type": "input_video", "input_video": {"data": b64(film(1))}}, {"type": "video", "video": url(film(1))},
                 {"type": "file", "file": {"file_data": url(film(1))}}):
        refused(s, {"messages": user(part)}, "--ffmpeg")
    assert chat(s, frames([0, 1], 2), text("?"))["usage"]["prompt_tokens"] > 100


def run_takes_files(model):
    name, bad, saved = (os.path.join(FOLDER, n) for n in ("a.mp4", "bad.mp4", "saved.json"))
    open(name, "wb").write(film(5))
    open(bad, "wb").write(b"hello")
    def run(*args, stdin=""):
        p = subprocess.run([PROGRAM, "run", "--model", model, "--temperature", "0", "--max-tokens", "8", *(["--lines"] if stdin else []), *args], input=stdin, capture_output=True, text=True, timeout=60)
        return p.returncode, p.stdout, p.stderr
    fake = f"--ffmpeg={SCRIPT}"
    code, plain, err = run("What happens?")
    code, said, err = run(fake, "--video", name, "What happens?")
    assert code == 0 and said != plain, (code, said, err)
    code, out, err = run(fake, "--video", bad, "What?")
    assert code == 1 and "bad.mp4" in err and err.count("\n") == 1, (code, out, err)
    code, out, err = run("--video", name, "What?")
    assert code == 1 and "--ffmpeg" in err, (code, out, err)
    code, out, err = run("--ffmpeg", "/usr/nothing", "What?")
    assert code == 1 and "--ffmpeg: /usr/nothing is no program" in err, (code, out, err)
    code, out, err = run(fake, stdin=f"/video {name}\nWhat happens?\n/save {saved}\n")
    assert code == 0 and "2.5 s, 4 x 4 pixels, 5 frames of 64 tokens" in out and said.strip() in out, (out, said)
    assert json.load(open(saved))["messages"][0]["content"][0] == {"type": "video_url", "video_url": {"url": url(film(5), "video/ogg")}}
    code, again, err = run(fake, stdin=f"/load {saved}\nAnd?\n")
    assert code == 0 and "2 messages loaded" in again, (again, err)
    code, again, err = run(stdin=f"/load {saved}\nAnd?\n")
    assert "--ffmpeg" in again, again


# ---------------------------------------------------------------- with ffmpeg

def a_film_is_answered_like_its_frames(s):
    n, w, h, rate = 48, 64, 48, 12
    rgb = lambda i: bytes((x * 3 + y * 5 + c * 40 + i * 9) & 255 for y in range(h) for x in range(w) for c in range(3))
    raw = os.path.join(FOLDER, "raw")
    open(raw, "wb").write(b"".join(rgb(i) for i in range(n)))
    picked = sampled(n)
    want = {"type": "video", "video": [url(png(w, h, rgb(i)), "image/png") for i in picked], "timestamps": [i / rate for i in picked]}
    want = digest(chat(s, want, text("What happens?")))
    for words in ("-c:v png -pix_fmt rgb24 -f mov", "-c:v ffv1 -pix_fmt bgr0 -f matroska", "-c:v png -pix_fmt rgb24 -f avi"):
        out = os.path.join(FOLDER, "film")
        subprocess.run(["ffmpeg", "-loglevel", "error", "-y", "-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{w}x{h}", "-r", str(rate), "-i", raw, *words.split(), out], check=True)
        got = chat(s, video(open(out, "rb").read()), text("What happens?"))
        assert digest(got) == want, words


def main():
    global FOLDER, SCRIPT
    FOLDER = tempfile.mkdtemp(dir=DIR)
    os.chmod(DIR, 0o755), os.chmod(FOLDER, 0o755)  # a server of root runs it as nobody
    SCRIPT = os.path.join(FOLDER, "ffmpeg")
    open(SCRIPT, "w").write(FAKE)
    os.chmod(SCRIPT, 0o755)
    model = os.path.join(DIR, "eyes")
    seeing_model.main(model, True, False)
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    def one(f, *args):
        if ONLY and f.__name__ not in ONLY:
            return
        try:
            f(*args)
            counts["passed"] += 1
            print(f"ok {f.__name__}")
        except Exception:
            counts["failed"] += 1
            print(f"FAIL {f.__name__}")
            traceback.print_exc(file=sys.stdout)
        sys.stdout.flush()
    ctx = ("--model", model, "--ctx", "4096", "--max-requests", "8")
    with Server(PROGRAM, *ctx, "--ffmpeg", SCRIPT) as s:
        for f in (a_file_is_its_frames, every_word_for_it, what_is_refused, a_client_that_goes_ends_it, many_at_once_give_the_same, memory_is_given_back):
            one(f, s)
    with Server(PROGRAM, *ctx, "--ffmpeg", SCRIPT, "--media-urls", "all") as s:
        one(urls_are_fetched, s)
    with Server(PROGRAM, *ctx) as s:
        one(without_the_option, s)
    one(run_takes_files, model)
    if shutil.which("ffmpeg"):
        with Server(PROGRAM, *ctx, "--ffmpeg") as s:
            one(a_film_is_answered_like_its_frames, s)
    else:
        print("skip a_film_is_answered_like_its_frames: ffmpeg is not installed (make setup-checks)")
        counts["skipped"] += 1
    print(", ".join(f"{n} {word}" for word, n in counts.items()))
    return counts["failed"] > 0


if __name__ == "__main__":
    sys.exit(main())
