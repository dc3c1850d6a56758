"""What goes along with a message: files, settings as chips, sampling fields, a schema."""
import base64, json, struct, zlib

from chats import CATCH, Model, reload, say, start
from chats import give as give_chats
from looks import ANSWERS, IDLE, axe, click, looks, setting
from standin import StandIn

CHIPS = "[...document.querySelectorAll('#chips .label')].map((e) => e.textContent)"
NOTE = "document.getElementById('attach-note').textContent"


def give(b, files, how="change"):
    """Chosen, pasted or dropped files: [(name, type, bytes)]."""
    b.js(f"""(() => {{ const d = new DataTransfer();
      for (const [name, type, data] of {json.dumps([(n, t, base64.b64encode(d).decode()) for n, t, d in files])}) d.items.add(new File([Uint8Array.from(atob(data), (c) => c.charCodeAt(0))], name, {{ type }}));
      if ({json.dumps(how)} === 'change') {{ const i = document.getElementById('files'); i.files = d.files; i.dispatchEvent(new Event('change')); }}
      if ({json.dumps(how)} === 'paste') document.getElementById('text').dispatchEvent(new ClipboardEvent('paste', {{ clipboardData: d, bubbles: true, cancelable: true }}));
      if ({json.dumps(how)} === 'drop') document.getElementById('log').dispatchEvent(new DragEvent('drop', {{ dataTransfer: d, bubbles: true, cancelable: true }})); }})()""")


def texts(check, b, s):
    click(b, "#clear")
    note = "Grüße\nfrom a file"
    give(b, [("note.txt", "text/plain", note.encode())])
    give(b, [("code.py", "", b"print(1)\n")], "drop")
    give(b, [("pasted.md", "text/markdown", b"# x")], "paste")
    b.until(f"{CHIPS}.length === 3", what="three files")
    give(b, [("wide.txt", "text/plain", "Grüße".encode("utf-16"))])
    b.until(f"{CHIPS}.length === 4", what="a text in UTF-16")
    click(b, "#chips .remove")
    b.until(f"{CHIPS}.length === 3")
    check("files are named", b.js(CHIPS) == ["note.txt", "code.py", "pasted.md"], b.js(CHIPS))
    axe(check, b, "attached files")
    click(b, "#chips .remove")
    b.until(f"{CHIPS}.length === 2")
    say(b, "read it")
    parts = s.requests[-1]["messages"][-1]["content"]
    check("files come before the words", [p["type"] for p in parts] == ["file", "file", "text"], parts)
    check("a file's text arrives", base64.b64decode(parts[0]["file"]["file_data"].split(",")[1]).decode() == note and parts[0]["file"]["filename"] == "note.txt", parts)
    check("they are seen in the conversation", "note.txt" in b.js("document.querySelector('.user .files').textContent") and b.js(CHIPS) == [])
    for name, kind, data, why in (("a.bin", "", b"\x00\x01", "not text"), ("b.txt", "text/plain", b"\xff\xfe\x80", "not text"), ("c.pdf", "application/pdf", b"%PDF-1.4", "it is a PDF"), ("paper", "", b"%PDF-1.7 x", "it is a PDF"),
                                  ("big.txt", "", b"x" * (3 << 20), "more than"), ("p.png", "image/png", b"\x89PNG", "takes no pictures"), ("s.wav", "audio/wav", b"RIFF", "takes no sounds")):
        give(b, [(name, kind, data)])
        b.until(f"{NOTE}.includes({json.dumps(why)})", what=f"why {name} is not attached")
        check(f"{name} is refused before it is sent", b.js(CHIPS) == [], b.js(CHIPS))
    check("no button for what the model does not take", b.js("document.getElementById('picture').hidden && document.getElementById('sound').hidden"))


def taking(*kinds):
    """What /v1/models says of a model that takes these."""
    return {"object": "list", "data": [{"id": "pocket", "object": "model", "context_length": 4096, "architecture": {"input_modalities": list(kinds)}}]}


def png(width, height, rgb):
    """A picture of one colour."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)) + chunk(b"IDAT", zlib.compress((b"\0" + bytes(rgb) * width) * height)) + chunk(b"IEND", b"")


def wav(seconds):
    n = int(8000 * seconds) * 2
    return b"RIFF" + struct.pack("<I", 36 + n) + b"WAVEfmt " + struct.pack("<IHHIIHH", 16, 1, 1, 8000, 16000, 2, 16) + b"data" + struct.pack("<I", n) + bytes(n)


PICTURE, SOUND = png(400, 200, (200, 30, 30)), wav(1)
# The shown thumbnails under a selector: [width, height, the colour of the middle].
SEEN = "[...document.querySelectorAll('%s canvas')].map((c) => [c.width, c.height, ...c.getContext('2d').getImageData(c.width / 2, c.height / 2, 1, 1).data])"
HEARD = "[...document.querySelectorAll('%s audio')].map((a) => a.duration)"


def seen(check, b, where, selector):
    b.until(f"{HEARD % selector}[0] > 0 && {SEEN % selector}.length === 1", what=f"a picture and a sound {where}")
    check(f"the picture is seen {where}", b.js(SEEN % selector) == [[352, 176, 200, 30, 30, 255]], b.js(SEEN % selector))
    check(f"the sound can be played {where}", b.js(HEARD % selector) == [1], b.js(HEARD % selector))


def media(check, b, real, shot):
    """A model with eyes and ears, as /v1/models tells it."""
    with StandIn(real.port, Model(), taking("text", "image", "audio")) as s:
        start(b, s)
        b.until("!document.getElementById('picture').hidden && !document.getElementById('sound').hidden", what="buttons for pictures and sounds")
        give(b, [("p.png", "image/png", PICTURE)], "paste")
        give(b, [("s.wav", "audio/wav", SOUND)], "drop")
        give(b, [("x.heic", "image/heic", b"no picture")], "drop")
        b.until(f"{CHIPS}.length === 3")
        seen(check, b, "in the composer", "#chips")
        check("the name of a picture that the browser does not know", b.js(CHIPS)[2] == "x.heic", b.js(CHIPS))
        looks(check, b, "attached pictures")
        shot(b, "attached")
        click(b, "#chips .remove")
        b.until(f"{CHIPS}.length === 2")
        say(b, "what is it")
        parts = s.requests[-1]["messages"][-1]["content"]
        check("pictures are sent", parts[0] == {"type": "image_url", "image_url": {"url": "data:image/png;base64," + base64.b64encode(PICTURE).decode()}}, parts[0])
        check("sounds are sent", parts[1] == {"type": "input_audio", "input_audio": {"data": base64.b64encode(SOUND).decode(), "format": "wav"}}, parts[1])
        seen(check, b, "in the conversation", ".user .files")
        shot(b, "sent")
        reload(b)
        seen(check, b, "after a reload", ".user .files")
        b.js(CATCH)
        for kind, name in (("JSON", "a.json"), ("Markdown", "a.md")):
            b.js("window.blobs = []")
            n = b.js("document.querySelectorAll('#chats li').length")
            click(b, "#chats .open .small", kind)
            text = b.until("window.blobs[0]?.text()", what=f"an export as {kind}")
            check(f"{kind} has the picture", base64.b64encode(PICTURE).decode() in text, text[:300])
            give_chats(b, name, text)
            b.until(f"document.querySelectorAll('#chats li').length === {n + 1} && {IDLE} && {ANSWERS} === 1", what=f"an import of {kind}")
            seen(check, b, f"after an import of {kind}", ".user .files")
            click(b, ".answer .small", "Regenerate")
            b.until(f"document.querySelector('.answer .versions') && {IDLE}")
            check(f"{kind}: the same files are sent again", s.requests[-1]["messages"][0]["content"] == parts, s.requests[-1]["messages"][0]["content"][:2])
        give_chats(b, "odd.json", json.dumps({"format": "evenkeel.chats", "version": 1, "chats": [{"title": "odd", "messages": [{"id": 1, "role": "user", "content": "odd", "files": [
            {"name": "a", "kind": "image", "type": "text/html", "data": "<b>"}, {"name": "b", "kind": "audio", "type": "audio/wav", "data": "AAAA"}, {"name": "c", "kind": "image", "type": "image/png"}]}]}]}))
        b.until("document.querySelectorAll('.user .files li').length === 3 && document.querySelectorAll('.user .files :is(canvas, audio)').length === 0", what="names in place of files that are none")
        axe(check, b, "a model with eyes and ears")


def pdfs(check, b, real):
    """A PDF as its text or as its pages: what the server can do, and by the chip where it can do both."""
    data = b"%PDF-1.4\nwhatever"
    url = "data:application/pdf;base64," + base64.b64encode(data).decode()
    part = lambda how: {"type": "file", "file": {"filename": "a.pdf", "file_data": url, "pdf": how}}
    for can, first in ((["text"], "text"), (["pages"], "pages"), (["text", "pages"], "text")):
        said = taking("text", "image")
        said["data"][0]["evenkeel"] = {"pdf": can}
        with StandIn(real.port, Model(), said) as s:
            start(b, s)
            b.until("!document.getElementById('picture').hidden", what="the model")
            give(b, [("a.pdf", "application/pdf", data)], "drop")
            b.until(f"{CHIPS}.length === 1", what="the chip of a PDF")
            check(f"{can}: the chip says what becomes of it", b.js(CHIPS) == [f"a.pdf: {first}"], b.js(CHIPS))
            button = b.js("document.querySelector('#chips .label').tagName === 'BUTTON'")
            check(f"{can}: it can be changed where there is a choice", button == (len(can) == 2), button)
            if len(can) < 2:
                say(b, "what is it")
                check(f"{can}: sent as such", s.requests[-1]["messages"][-1]["content"][0] == part(first), s.requests[-1]["messages"][-1]["content"])
                continue
            click(b, "#chips .label")
            check("the choice is seen, and stays in focus", b.js(CHIPS) == ["a.pdf: pages"] and b.js("document.activeElement.textContent") == "a.pdf: pages", b.js(CHIPS))
            axe(check, b, "a PDF with a choice")
            say(b, "what is it")
            check("its pages are asked for", s.requests[-1]["messages"][-1]["content"][0] == part("pages"), s.requests[-1]["messages"][-1]["content"])
            check("the conversation says it", "a.pdf, pages" in b.js("document.querySelector('.user .files').textContent"))
            reload(b)
            b.js(CATCH)
            for kind, name in (("JSON", "a.json"), ("Markdown", "a.md")):
                b.js("window.blobs = []")
                n = b.js("document.querySelectorAll('#chats li').length")
                click(b, "#chats .open .small", kind)
                text = b.until("window.blobs[0]?.text()", what=f"an export as {kind}")
                give_chats(b, name, text)
                b.until(f"document.querySelectorAll('#chats li').length === {n + 1} && {IDLE} && {ANSWERS} === 1", what=f"an import of {kind}")
                click(b, ".answer .small", "Regenerate")
                b.until(f"document.querySelector('.answer .versions') && {IDLE}")
                check(f"{kind}: the PDF and its choice are sent again", s.requests[-1]["messages"][0]["content"][0] == part("pages"), s.requests[-1]["messages"][0]["content"])


def drops(check, b, real):
    """What is dropped anywhere is attached, and the browser opens nothing."""
    with StandIn(real.port, Model(), taking("text")) as s:
        start(b, s)
        for i, where in enumerate(("document.body", "document.querySelector('.bar')", "document.getElementById('gauge')", "document.getElementById('history')")):
            took = b.js(f"""(() => {{ const d = new DataTransfer(); d.items.add(new File(['x'], 'f{i}.txt', {{ type: 'text/plain' }}));
              const over = new DragEvent('dragover', {{ dataTransfer: d, bubbles: true, cancelable: true }}), drop = new DragEvent('drop', {{ dataTransfer: d, bubbles: true, cancelable: true }});
              {where}.dispatchEvent(over); {where}.dispatchEvent(drop); return [over.defaultPrevented, drop.defaultPrevented]; }})()""")
            check(f"a file dropped on {where} is taken", took == [True, True], took)
            b.until(f"{CHIPS}.length === {i + 1}", what="its chip")
        for where, ours in (("document.body", True), ("document.getElementById('text')", False)):
            got = b.js(f"""(() => {{ const d = new DataTransfer(); d.setData('text/uri-list', 'http://192.0.2.1/'); const drop = new DragEvent('drop', {{ dataTransfer: d, bubbles: true, cancelable: true }});
              {where}.dispatchEvent(drop); return drop.defaultPrevented; }})()""")
            check(f"a link dropped on {where} opens nothing", got == ours, got)
        click(b, ".views [data-view=same]")
        give(b, [("late.txt", "text/plain", b"x")], "drop")
        b.until(f"{CHIPS}.length === 5 && document.getElementById('chat').checkVisibility()", what="the chat with the file")
        for _ in range(5):
            click(b, "#chips .remove")


def limits(check, b, s):
    """No limit but the context, unless there is one in the settings; the one of before is forgotten."""
    click(b, "#clear")
    setting(b, "max_tokens", "")
    say(b, "endless")
    check("no limit is sent", "max_tokens" not in s.requests[-1] and "max_completion_tokens" not in s.requests[-1], s.requests[-1])
    for stored, want in (({"max_tokens": "1024"}, ""), ({"max_tokens": "1024", "version": 2}, "1024"), ({"max_tokens": "77"}, "77")):
        b.js(f"localStorage.setItem('evenkeel.settings', {json.dumps(json.dumps(stored))})")
        reload(b)
        check(f"the limit after {stored}", b.js("document.getElementById('max_tokens').value") == want, b.js("document.getElementById('max_tokens').value"))
    say(b, "short")
    check("a limit that was asked for is sent", s.requests[-1].get("max_tokens") == 77, s.requests[-1])
    setting(b, "max_tokens", "")


def fields(check, b, s):
    click(b, "#clear")
    for id, v in (("temperature", 0.5), ("top_p", 0.9), ("top_k", 40), ("min_p", 0.05), ("seed", "900719925474099312"), ("system", "Be brief."), ("thinking", True),
                  ("schema", '{"type": "object"}'), ("tools", '[{"type":"function","function":{"name":"look"}}]')):
        setting(b, id, v)
    check("settings are seen beside the field", b.js(CHIPS) == ["tool: look", "answer by schema", "thinking", "system prompt"], b.js(CHIPS))
    say(b, "hello")
    r = s.requests[-1]
    want = {"temperature": 0.5, "top_p": 0.9, "top_k": 40, "min_p": 0.05, "seed": 900719925474099312}
    check("sampling is sent", {k: r.get(k) for k in want} == want, r)
    check("the schema is sent", r["response_format"]["json_schema"]["schema"] == {"type": "object"} and r["chat_template_kwargs"]["enable_thinking"] is True, r)
    check("the system prompt comes first", r["messages"][0] == {"role": "system", "content": "Be brief."} and r["tools"][0]["function"]["name"] == "look", r)
    setting(b, "schema", "[1")
    check("a wrong schema is told", "No schema is sent" in b.js("document.getElementById('schema-note').textContent"))
    check("and not sent", "answer by schema" not in b.js(CHIPS))
    setting(b, "schema", '{"type": "object"}')
    for _ in range(4):
        click(b, "#chips .remove")
    check("each can be turned off where it is seen", b.js(CHIPS) == [], b.js(CHIPS))
    for id in ("temperature", "top_p", "top_k", "min_p", "seed"):
        setting(b, id, "")
    say(b, "again")
    r = s.requests[-1]
    check("what is off is not sent", not {"tools", "response_format", "temperature", "top_p", "top_k", "min_p", "seed"} & set(r) and r["messages"][0]["role"] == "user", r)


def run(check, b, real, shot):
    with StandIn(real.port, Model(), taking("text")) as s:
        start(b, s)
        texts(check, b, s)
        fields(check, b, s)
        limits(check, b, s)
    media(check, b, real, shot)
    pdfs(check, b, real)
    drops(check, b, real)
