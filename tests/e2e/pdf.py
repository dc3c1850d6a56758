"""PDFs in requests, read by pdftotext: pdf.py PROGRAM MODEL. Where it is not installed only refusals are tried.

A PDF is read as the file of its text is: both replies have the same digest, which covers the bits of every logit."""
import base64, os, subprocess, sys, tempfile, time

import counted
from client import Server

PROGRAM, MODEL = sys.argv[1:3]
HAS = any(os.path.exists(p) for p in ("/usr/bin/pdftotext", "/usr/local/bin/pdftotext"))
OURS = {"temperature": 0, "evenkeel": {"digest": True}}


def pdf(*lines):
    out = "%PDF-1.1\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj\n2 0 obj<</Type/Pages/Count " + str(len(lines)) + "/Kids[" + " ".join(
        f"{3 + 2 * i} 0 R" for i in range(len(lines))) + "]>>endobj\n"
    for i, line in enumerate(lines):
        text = f"BT /F 9 Tf 9 9 Td ({line}) Tj ET\n"
        out += (f"{3 + 2 * i} 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 400 99]/Contents {4 + 2 * i} 0 R/Resources<</Font<</F<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>"
                f">>>>>>endobj\n{4 + 2 * i} 0 obj<</Length {len(text)}>>stream\n{text}endstream endobj\n")
    return (out + f"trailer<</Root 1 0 R/Size {3 + 2 * len(lines)}>>\n%%EOF\n").encode()


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
    with Server(PROGRAM, "--model", MODEL, "--pdftotext", "/nothing/pdftotext", wait=False) as s:
        status, said = s.stop(0)
        assert status != 0 and "--pdftotext: /nothing/pdftotext is no program" in said, (status, said)
        s.process.returncode = 0


def main():
    counted.run(without)
    if HAS:
        with Server(PROGRAM, "--model", MODEL, "--pdftotext") as s:
            for test in (as_its_text, refused, several_at_once, bounded):
                counted.run(test, s)
    else:
        counted.skipped += 4
        print("skipped: there is no pdftotext")
    return counted.closing()


sys.exit(main())
