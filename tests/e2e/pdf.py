"""PDFs in requests, read by pdftotext and drawn by pdftoppm: pdf.py PROGRAM MODEL. Where they are not installed only refusals are tried.

A PDF is read as the file of its text is, or as the pictures of its pages are: replies have the same digest, which covers the bits of
every logit."""
import base64, http.client, json, os, subprocess, sys, tempfile, time

import counted
from client import Server
from pdf_file import drawn, endless, pdf

PROGRAM, MODEL = sys.argv[1:3]
HAS = all(any(os.path.exists(f"{p}/{n}") for p in ("/usr/bin", "/usr/local/bin")) for n in ("pdftotext", "pdftoppm"))
OURS = {"temperature": 0, "evenkeel": {"digest": True}}


def bodies(data, media):
    coded = base64.b64encode(data).decode()
    url = f"data:{media};base64,{coded}"
    yield "/v1/chat/completions", {"max_tokens": 8, "messages": [{"role": "user", "content": [{"type": "file", "file": {"filename": "a", "file_data": url}}, {"type": "text", "text": "What steers?"}]}]}
    yield "/v1/responses", {"max_output_tokens": 8, "input": [{"role": "user", "content": [{"type": "input_file", "filename": "a", "file_data": url}, {"type": "input_text", "text": "What steers?"}]}]}
    yield "/v1/messages", {"max_tokens": 8, "messages": [{"role": "user", "content": [
        {"type": "document", "title": "a", "source": {"type": "base64", "media_type": media, "data": coded}}, {"type": "text", "text": "What steers?"}]}]}


def ask(s, path, body, expect=200):
    status, _, r = s.call("POST", path, {**OURS, **body})
    assert status == expect, (path, status, r)
    return r


def as_its_text(s):
    data = pdf("A tiller steers.", "A keel keeps even.")
    with tempfile.NamedTemporaryFile(suffix=".pdf") as f:
        f.write(data)
        f.flush()
        text = subprocess.run(["pdftotext", "-q", "-enc", "UTF-8", "-eol", "unix", f.name, "-"], capture_output=True, check=True).stdout
    assert b"tiller" in text and b"keel" in text, text
    for (path, body), (_, plain) in zip(bodies(data, "application/pdf"), bodies(text, "text/plain")):
        assert ask(s, path, body)["evenkeel"]["digest"] == ask(s, path, plain)["evenkeel"]["digest"], path
    path, body = next(bodies(data, "application/octet-stream"))
    body["messages"][0]["content"][0]["file"]["file_data"] = base64.b64encode(data).decode()  # its bytes say what it is
    ask(s, path, body)
    count = s.call("POST", "/v1/messages/count_tokens", {k: v for k, v in list(bodies(data, "application/pdf"))[2][1].items() if k != "max_tokens"})
    assert count[0] == 200 and count[2] == s.call("POST", "/v1/messages/count_tokens", {k: v for k, v in list(bodies(text, "text/plain"))[2][1].items() if k != "max_tokens"})[2], count


def refused(s):
    for data, says in ((pdf(""), "without text"), (b"%PDF-1.4\nnothing", "damaged PDF")):
        for path, body in bodies(data, "application/pdf"):
            e = ask(s, path, body, 400)["error"]
            assert says in e["message"], (path, e)
            assert path != "/v1/messages" or e["message"].endswith("(capability_rejected: document_block)"), e


def as_pictures(data):
    """The same requests with pictures in place of the pages."""
    coded = [base64.b64encode(p).decode() for p in drawn(data)]
    text = lambda kind, word: {"type": kind, "text": word}
    begin, end, asks = "<document>\n<filename>a</filename>\n", "</document>", "What steers?"
    url = lambda c: "data:image/png;base64," + c
    yield "/v1/chat/completions", {"max_tokens": 8, "messages": [{"role": "user", "content": [
        text("text", begin), *({"type": "image_url", "image_url": {"url": url(c)}} for c in coded), text("text", end), text("text", asks)]}]}
    yield "/v1/responses", {"max_output_tokens": 8, "input": [{"role": "user", "content": [
        text("input_text", begin), *({"type": "input_image", "image_url": url(c)} for c in coded), text("input_text", end), text("input_text", asks)]}]}
    title = "<document>\n<title>a</title>\n"
    yield "/v1/messages", {"max_tokens": 8, "messages": [{"role": "user", "content": [
        text("text", title), *({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": c}} for c in coded), text("text", end), text("text", asks)]}]}


def chosen(body, how):
    """The request with the choice at its PDF alone."""
    body = json.loads(json.dumps(body))
    part = (body.get("messages") or body["input"])[0]["content"][0]
    part.get("file", part)["pdf"] = how
    return body


def each_by_itself(s):
    """A choice at the part is the part's, whatever the request says; what is stored has it."""
    for path, body in bodies(pdf("A tiller steers.", "A keel keeps even."), "application/pdf"):
        digest = lambda body, **more: ask(s, path, {**body, "evenkeel": {"digest": True, **more}})["evenkeel"]["digest"]
        text, pages = digest(body), digest(body, pdf="pages")
        assert text != pages and digest(chosen(body, "pages")) == pages and digest(chosen(body, "text"), pdf="pages") == text and digest(chosen(body, None)) == text, path
    path, body = list(bodies(pdf("x"), "application/pdf"))[1]
    first = ask(s, path, chosen(body, "pages"))
    more = ask(s, path, {"max_output_tokens": 8, "input": "And now?", "previous_response_id": first["id"]})
    assert more["usage"]["input_tokens_details"]["image_tokens"] == first["usage"]["input_tokens_details"]["image_tokens"] > 0, more
    assert s.call("GET", "/v1/models")[2]["data"][0]["evenkeel"] == {"pdf": ["text", "pages"]}


def as_its_pages(s):
    """With any budget, and beside a picture; a digest of the text differs."""
    data = pdf("A tiller steers.", "A keel keeps even.")
    for budget in (70, 280):
        for (path, body), (_, pictures) in zip(bodies(data, "application/pdf"), as_pictures(data)):
            ours = {"digest": True, "image_tokens": budget}
            pages = ask(s, path, {**body, "evenkeel": {**ours, "pdf": "pages"}})
            want = ask(s, path, {**pictures, "evenkeel": ours})
            assert pages["evenkeel"]["digest"] == want["evenkeel"]["digest"], (path, pages, want)
            assert pages["evenkeel"]["digest"] != ask(s, path, {**body, "evenkeel": {**ours, "pdf": "text"}})["evenkeel"]["digest"]
            details = pages["usage"].get("prompt_tokens_details") or pages["usage"].get("input_tokens_details") or pages["usage"]
            assert budget < details["image_tokens"] <= 2 * budget, (path, details)
    # A page without text, which has none to read, is a picture as well; a stream has the same.
    for path, body in bodies(pdf(""), "application/pdf"):
        ask(s, path, {**body, "evenkeel": {"digest": True, "pdf": "pages"}})
    # Stored, and continued by a request that says it again.
    path, body = list(bodies(data, "application/pdf"))[1]
    first = ask(s, path, {**body, "evenkeel": {"pdf": "pages"}})
    more = {"max_output_tokens": 8, "input": "And now?", "previous_response_id": first["id"]}
    assert ask(s, path, {**more, "evenkeel": {"pdf": "pages"}})["usage"]["input_tokens_details"]["image_tokens"] > 0
    n = s.call("POST", "/v1/messages/count_tokens", {**{k: v for k, v in list(bodies(data, "application/pdf"))[2][1].items() if k != "max_tokens"}, "evenkeel": {"pdf": "pages"}})[2]["input_tokens"]
    pictures = list(as_pictures(data))[2][1]
    assert n == s.call("POST", "/v1/messages/count_tokens", {"messages": pictures["messages"]})[2]["input_tokens"]


def pages_refused(s):
    for data, says, n in ((b"%PDF-1.4\nnothing", "damaged PDF", 3), (pdf(*"x" * 65), "more than 64 pages", 1)):
        for path, body in list(bodies(data, "application/pdf"))[-n:]:
            e = ask(s, path, {**body, "evenkeel": {"pdf": "pages"}}, 400)["error"]
            assert says in e["message"], (path, e)
            assert path != "/v1/messages" or e["message"].endswith("(capability_rejected: document_block)"), e
    for path, body in bodies(pdf("x"), "application/pdf"):
        for wrong in ("page", "", 5, True, ["pages"]):
            e = ask(s, path, {**body, "evenkeel": {"pdf": wrong}}, 400)["error"]
            assert 'evenkeel: pdf must be "text" or "pages"' in e["message"], (wrong, e)
            e = ask(s, path, chosen(body, wrong), 400)["error"]
            assert 'pdf must be "text" or "pages"' in e["message"], (wrong, e)
    path, body = next(bodies(pdf("x"), "application/pdf"))
    part = body["messages"][0]["content"][0]
    e = ask(s, path, {**body, "messages": [{"role": "user", "content": [part] * 9}], "evenkeel": {"pdf": "pages"}}, 400)["error"]
    assert "more than 8 PDFs" in e["message"], e
    e = ask(s, path, {**body, "messages": [{"role": "system", "content": [part]}, *body["messages"]], "evenkeel": {"pdf": "pages"}}, 400)["error"]
    assert "application/pdf" in e["message"], e


def few_pages(s):
    """All pictures of a request count together."""
    path, body = next(bodies(pdf("x", "y", "z"), "application/pdf"))
    part = body["messages"][0]["content"][0]
    e = ask(s, path, {**body, "messages": [{"role": "user", "content": [part, part]}], "evenkeel": {"pdf": "pages"}}, 400)["error"]
    assert "more than 1 pages" in e["message"], e
    ask(s, path, {**body, "evenkeel": {"pdf": "pages"}})
    e = ask(s, path, body, 400)["error"]  # as text, there is nothing that reads it
    assert "application/pdf" in e["message"], e


def several_at_once(s):
    """Eight of one request, and others beside them."""
    content = [{"type": "file", "file": {"filename": str(i), "file_data": "data:application/pdf;base64," + base64.b64encode(pdf(f"Number {i}.")).decode()}} for i in range(8)]
    texts = [{"type": "file", "file": {"filename": str(i), "file_data": "data:text/plain;base64," + base64.b64encode(f"Number {i}.\n\f".encode()).decode()}} for i in range(8)]
    one, other = ({"max_tokens": 4, "messages": [{"role": "user", "content": c}]} for c in (content, texts))
    assert ask(s, "/v1/chat/completions", one)["usage"]["prompt_tokens"] == ask(s, "/v1/chat/completions", other)["usage"]["prompt_tokens"]


def bounded(s):
    """32 are read; one more is refused before any is."""
    def body(n):
        data = "data:application/pdf;base64," + base64.b64encode(pdf("A.")).decode()
        return {"max_tokens": 2, "messages": [{"role": "user", "content": n * [{"type": "file", "file": {"file_data": data}}]}]}
    ask(s, "/v1/chat/completions", body(32))
    began = time.time()
    assert "more than 32 PDFs" in ask(s, "/v1/chat/completions", body(33), 400)["error"]["message"]
    assert time.time() - began < 1, time.time() - began


def without():
    with Server(PROGRAM, "--model", MODEL) as s:
        for path, body in bodies(pdf("A tiller steers."), "application/pdf"):
            e = ask(s, path, body, 400)["error"]
            assert "application/pdf" in e["message"], e
            e = ask(s, path, {**body, "evenkeel": {"pdf": "pages"}}, 400)["error"]
            assert "--pdftoppm" in e["message"], e
    for option in ("--pdftotext", "--pdftoppm"):
        with Server(PROGRAM, "--model", MODEL, option, "/nothing/pdf", wait=False) as s:
            status, said = s.stop(0)
            assert status != 0 and f"{option}: /nothing/pdf is no program" in said, (status, said)
            s.process.returncode = 0


def others_are_read_beside_endless_ones(s):
    """Those of one key never have all threads that wait for such programs."""
    head = lambda key: {"content-type": "application/json", "authorization": f"Bearer {key}"}
    asking, (path, body) = [], next(bodies(endless(), "application/pdf"))
    try:
        for _ in range(6):
            asking.append(http.client.HTTPConnection("127.0.0.1", s.port, timeout=60))
            asking[-1].request("POST", path, json.dumps(body), head("endless"))
        time.sleep(1)
        path, body = next(bodies(pdf("A tiller steers."), "application/pdf"))
        began = time.time()
        status, _, r = s.call("POST", path, body, head("other"))
        assert status == 200 and time.time() - began < 8, (status, time.time() - began, r)
    finally:
        for c in asking:
            c.close()


def main():
    counted.run(without)
    if HAS:
        with Server(PROGRAM, "--model", MODEL, "--pdftotext", "--pdftoppm") as s:
            for test in (as_its_text, refused, several_at_once, bounded, as_its_pages, each_by_itself):
                counted.run(test, s)
        with Server(PROGRAM, "--model", MODEL, "--pdftotext", "--api-key", "endless,other") as s:
            counted.run(others_are_read_beside_endless_ones, s)
        with Server(PROGRAM, "--model", MODEL, "--pdftoppm", "--max-images", 4) as s:
            counted.run(few_pages, s)
        with Server(PROGRAM, "--model", MODEL, "--pdftoppm") as s:
            counted.run(pages_refused, s)
    else:
        counted.skipped += 9
        print("skipped: there is no pdftotext, or no pdftoppm")
    return counted.closing()


sys.exit(main())
