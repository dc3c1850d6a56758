"""What goes along with a message: files, settings as chips, sampling fields, a schema."""
import base64, json

from chats import Model, say, start
from looks import ANSWERS, IDLE, axe, click, setting
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
    check("files are named", b.js(CHIPS) == ["note.txt", "code.py", "pasted.md"], b.js(CHIPS))
    axe(check, b, "attached files")
    click(b, "#chips .remove")
    b.until(f"{CHIPS}.length === 2")
    say(b, "read it")
    parts = s.requests[-1]["messages"][-1]["content"]
    check("files come before the words", [p["type"] for p in parts] == ["file", "file", "text"], parts)
    check("a file's text arrives", base64.b64decode(parts[0]["file"]["file_data"].split(",")[1]).decode() == note and parts[0]["file"]["filename"] == "note.txt", parts)
    check("they are seen in the conversation", "note.txt" in b.js("document.querySelector('.user .files').textContent") and b.js(CHIPS) == [])
    for name, kind, data, why in (("a.bin", "", b"\x00\x01", "not text"), ("b.txt", "text/plain", b"\xff\xfe\x80", "not text"), ("c.pdf", "application/pdf", b"%PDF-1.4", "not text"),
                                  ("big.txt", "", b"x" * (3 << 20), "more than"), ("p.png", "image/png", b"\x89PNG", "takes no pictures"), ("s.wav", "audio/wav", b"RIFF", "takes no sounds")):
        give(b, [(name, kind, data)])
        b.until(f"{NOTE}.includes({json.dumps(why)})", what=f"why {name} is not attached")
        check(f"{name} is refused before it is sent", b.js(CHIPS) == [], b.js(CHIPS))
    check("no button for what the model does not take", b.js("document.getElementById('picture').hidden && document.getElementById('sound').hidden"))


def taking(*kinds):
    """What /v1/models says of a model that takes these."""
    return {"object": "list", "data": [{"id": "pocket", "object": "model", "context_length": 4096, "architecture": {"input_modalities": list(kinds)}}]}


def media(check, b, real):
    """A model with eyes and ears, as /v1/models tells it."""
    with StandIn(real.port, Model(), taking("text", "image", "audio")) as s:
        start(b, s)
        b.until("!document.getElementById('picture').hidden && !document.getElementById('sound').hidden", what="buttons for pictures and sounds")
        give(b, [("p.png", "image/png", b"\x89PNG")], "paste")
        give(b, [("s.wav", "audio/wav", b"RIFF")], "drop")
        b.until(f"{CHIPS}.length === 2")
        say(b, "what is it")
        parts = s.requests[-1]["messages"][-1]["content"]
        check("pictures are sent", parts[0] == {"type": "image_url", "image_url": {"url": "data:image/png;base64," + base64.b64encode(b"\x89PNG").decode()}}, parts)
        check("sounds are sent", parts[1] == {"type": "input_audio", "input_audio": {"data": base64.b64encode(b"RIFF").decode(), "format": "wav"}}, parts)
        axe(check, b, "a model with eyes and ears")


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


def run(check, b, real):
    with StandIn(real.port, Model(), taking("text")) as s:
        start(b, s)
        texts(check, b, s)
        fields(check, b, s)
    media(check, b, real)
