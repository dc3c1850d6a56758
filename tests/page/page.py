#!/usr/bin/env python3
"""The page at / in headless Chromium: page.py PROGRAM MODEL OUT

Sends, streams, stops, shows thinking and a tool card, runs the same-answer panel, at 360 px and wide, light and dark, by
keyboard; measures contrast and overflow. Screenshots stay in OUT. Closes with `N passed, N failed`."""
import json, os, sys, time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "e2e")]
import below, browser, chats, files, hostile, markdown
from client import Server
from looks import ANSWERS, IDLE, LAST, TEXT, Count, ask, axe, click, setting
from looks import looks as looks_of

PROGRAM, MODEL, OUT = sys.argv[1], sys.argv[2], sys.argv[3]
POCKET = "pocket" in MODEL
check = Count()


def looks(b, where):
    looks_of(check, b, where)
    axe(check, b, where)


def fetch(s, path, method="GET", **headers):
    c = s.open()
    c.request(method, path, headers={k.replace("_", "-"): v for k, v in headers.items()})
    r = c.getresponse()
    body = r.read()
    c.close()
    return r.status, {k.lower(): v for k, v in r.getheaders()}, body


def delivery(s):
    status, head, body = fetch(s, "/")
    policy = head.get("content-security-policy", "")
    check("the page", status == 200 and head["content-type"].startswith("text/html") and b"<!doctype html>" in body, head)
    check("a strict policy", "default-src 'none'" in policy and "script-src 'self'" in policy and "unsafe" not in policy and "frame-ancestors 'none'" in policy
          and "require-trusted-types-for 'script'" in policy and not any(w in policy for w in ("http:", "https:", "data:", "*")) and [p for p in policy.split("; ") if "blob:" in p] == ["media-src blob:"], policy)
    check("no guessing of types", head.get("x-content-type-options") == "nosniff", head)
    check("nothing inline", b"style=" not in body and b"onclick" not in body and b"<style" not in body and b"<script>" not in body)
    status, again, body = fetch(s, "/", if_none_match=head["etag"])
    check("304 for what the client has", status == 304 and not body and again["etag"] == head["etag"], (status, again))
    check("the file for another tag", fetch(s, "/", if_none_match='"0"')[0] == 200)
    status, _, body = fetch(s, "/", "HEAD")
    check("HEAD", status == 200 and not body, status)
    status, head, _ = fetch(s, "/page/main.js", "POST")
    check("405", status == 405 and "GET" in head.get("allow", ""), (status, head))
    check("only its files", fetch(s, "/page/../Makefile")[0] == 404 and fetch(s, "/page/none.js")[0] == 404)
    for name in sorted(os.listdir("web")):
        path = {"index.html": "/", "openapi.json": "/openapi.json"}.get(name, f"/page/{name}")
        status, head, body = fetch(s, path)
        check(f"{path} is web/{name}", status == 200 and body == open(f"web/{name}", "rb").read(), status)


def shot(b, name):
    b.screenshot(os.path.join(OUT, name + ".png"))


def chat(b):
    looks(b, "empty")
    shot(b, "empty")
    check("the field has the focus", b.js("document.activeElement.id") == "text", b.js("document.activeElement.outerHTML"))
    b.until("document.getElementById('g-state').textContent === 'ok'", what="the server's state")
    b.until(f"document.getElementById('model').textContent === {json.dumps(os.path.basename(MODEL.rstrip('/')))}", what="the model's name")
    setting(b, "max_tokens", 60)
    setting(b, "temperature", 0)
    ask(b, "What can you do?")
    b.until(ANSWERS, what="an answer")
    b.until(IDLE, what="its end")
    check("an answer with a digest", len(b.js(TEXT)) > 0 and len(b.js(f"{LAST}.querySelector('.digest').textContent")) == 16, b.js(f"{LAST}.outerHTML"))
    check("the answer is announced", len(b.js("document.getElementById('announce').textContent")) > 0)
    figures = b.js(f"{LAST}.querySelector('.figures').textContent")
    check("figures", all(w in figures for w in ("tokens", "per second", "prompt of", "context")), figures)
    check("the focus is back", b.js("document.activeElement.id") == "text")


def stop(b, s):
    """Grows while it streams; Stop keeps what came."""
    click(b, "#clear")
    setting(b, "tools", "")
    setting(b, "max_tokens", 100000)
    b.js("""(() => { const f = window.fetch; window.fetch = (u, o) => { if (o?.body) o.body = o.body.replace('{', '{"ignore_eos":true,'); return f(u, o); }; })()""")
    ask(b, "Tell me a very long story.")
    size = f"{TEXT}.length"
    b.until(f"{ANSWERS} === 1 && {size} > 20", what="a stream")
    first = b.js(size)
    b.until(f"{size} > {first + 20}", what="growth of the stream")
    check("a button to stop", b.js("!document.getElementById('stop').hidden && document.getElementById('send').hidden"))
    b.js("document.getElementById('stop').click()")
    b.until(IDLE, what="the end after Stop")
    check("stopped", "stopped" in b.js(f"{LAST}.querySelector('.figures').textContent") and b.js(size) > first, b.js(f"{LAST}.outerHTML")[-300:])
    s.wait_idle()
    b.js("window.old = 1; location.reload()")
    b.until("document.readyState === 'complete' && !window.old && document.getElementById('g-state').textContent === 'ok'")
    check("settings stay", b.js("document.getElementById('max_tokens').value") == "100000")
    setting(b, "max_tokens", 80)
    click(b, "#clear")


def thinking(b):
    setting(b, "thinking", True)
    ask(b, "What is 365 - 48?")
    b.until(f"document.querySelectorAll('.thinking:not([hidden])').length && {IDLE}" if POCKET else f"{ANSWERS} > 1 && {IDLE}", what="a thought")
    if POCKET:
        state = b.js(f"(() => {{ const d = {LAST}.querySelector('.thinking'); return [d.hidden, d.open, d.textContent.length]; }})()")
        check("thinking is folded away", state[0] is False and state[1] is False and state[2] > 10, (state, b.js(f"{LAST}.innerText")))
    setting(b, "thinking", False)
    click(b, "#clear")
    check("a new chat is empty", b.js(ANSWERS) == 0 and b.js("!document.getElementById('empty').hidden"))


SET = "['tools', 'schema', 'thinking'].map((id) => document.getElementById(id).type === 'checkbox' ? document.getElementById(id).checked : document.getElementById(id).value)"


def examples(b):
    """Each example is answered as it promises, by the bundled model too."""
    names = b.js("[...document.querySelectorAll('#examples button')].map((e) => e.textContent)")
    check("examples", len(names) >= 4, names)
    if not POCKET:
        return
    for i, name in enumerate(names):
        click(b, "#clear")
        b.js(f"document.querySelectorAll('#examples button')[{i}].click()")
        b.until(f"{ANSWERS} === 1 && {IDLE}", what=name)
        seen = b.js(f"{LAST}.innerText")
        check(f"{name}: is answered", "don't know" not in seen and "no tool" not in seen, seen)
        chips = b.js("document.getElementById('chips').textContent")
        check(f"{name}: what it turned on is seen", all((word in chips) == (f"with {word}" in name or f"with a {word}" in name) for word in ("tool", "schema", "thinking")), chips)
        if "twice" in name:
            check("both calls", b.js("[...document.querySelectorAll('.call code')].map((e) => JSON.parse(e.textContent).city)") == ["Paris", "Oslo"], seen)
        if "schema" in name:
            check("JSON of the schema", json.loads(b.js(TEXT)) == {"date": "2026-03-14", "city": "Oslo"}, seen)
        if "365" in name:
            check("the right difference", "317" in seen, seen)
    click(b, "#clear")
    setting(b, "tools", "[]")
    b.js("document.querySelectorAll('#examples button')[1].click()")
    b.until(f"{ANSWERS} === 1 && {IDLE}")
    check("tools of one's own stay", b.js("document.getElementById('tools').value") == "[]")
    setting(b, "tools", "")
    click(b, "#clear")
    setting(b, "thinking", True)
    before = b.js(SET)
    for i in range(len(names)):
        b.js(f"document.querySelectorAll('#examples button')[{i}].click()")
        b.until(f"{ANSWERS} === 1")
        if i == 1:
            b.until(IDLE)
            b.js("window.old = 1; location.reload()")
            b.until(f"document.readyState === 'complete' && !window.old && {ANSWERS} === 1")
            check("what an example set lasts as long as its chat", "get_weather" in b.js("document.getElementById('tools').value"))
        click(b, "#clear")
        b.until(f"{ANSWERS} === 0")
        check(f"example {i}: its settings end with its chat", b.js(SET) == before, b.js(SET))
    b.js("document.querySelectorAll('#examples button')[1].click()")
    setting(b, "tools", "[]")
    click(b, "#clear")
    check("what was changed since stays", b.js("document.getElementById('tools').value") == "[]")
    setting(b, "tools", "")
    setting(b, "thinking", False)


def tools(b):
    click(b, "#clear")
    b.js("document.querySelectorAll('#examples button')[1].click()")
    b.until(f"{ANSWERS} && {IDLE}")
    check("the tools are set", "get_weather" in b.js("document.getElementById('tools-note').textContent"))
    if not POCKET:
        return
    looks(b, "tool card")
    shot(b, "tool")
    b.js("document.querySelectorAll('.call textarea').forEach((e) => { e.value = '{\"temperature\": 21, \"sky\": \"clear\"}'; })")
    click(b, ".call form button")
    b.until(f"{ANSWERS} === 2 && {IDLE}", what="an answer from the results")
    check("an answer from the results", "21" in b.js(TEXT), b.js(f"{LAST}.outerHTML"))
    shot(b, "result")


def wrong(b):
    setting(b, "tools", '[{"name": ')
    check("wrong tools are told", "No tools are sent" in b.js("document.getElementById('tools-note').textContent"))
    click(b, "#clear")
    setting(b, "tools", "")
    b.js("""(() => { const f = window.fetch; window.fetch = (u, o) => { if (o?.body) { o.body = '{"messages":7}'; window.fetch = f; } return f(u, o); }; })()""")
    ask(b, "<b>bold</b> & `code`")
    b.until("!!document.querySelector('.error')")
    check("an error is told", "messages" in b.js("document.querySelector('.error').textContent"), b.js("document.querySelector('.error').outerHTML"))
    check("text is text", b.js("document.querySelector('.user .text').textContent") == "<b>bold</b> & code", b.js("document.querySelector('.user').innerHTML"))
    looks(b, "an error")
    click(b, ".error button")
    b.until(f"{ANSWERS} && {IDLE}")
    check("it goes on", b.js(f"{LAST}.querySelector('.digest').textContent.length") == 16)
    click(b, "#clear")


def again(b):
    """The button beside a digest: the page of its own, the same request, and the chat is there as it was."""
    setting(b, "temperature", 1)
    setting(b, "max_tokens", 24)
    click(b, "#clear")
    ask(b, "Tell me of the sea")
    b.until(f"{ANSWERS} === 1 && {IDLE}")
    digest = b.js(f"{LAST}.querySelector('.digest').textContent")
    click(b, ".figures .small", "Ask this again 8 times")
    b.js("document.getElementById('same-delay').value = 300")
    b.until("document.querySelectorAll('.lanes li.same').length === 8", 40, "8 answers")
    check("the digest of the chat comes again", set(b.js("[...document.querySelectorAll('.lanes .digest')].map((e) => e.textContent)")) == {digest}, digest)
    check("and it says so", b.js("document.getElementById('same-verdict').textContent").endswith("So is the answer in the chat."), b.js("document.getElementById('same-verdict').textContent"))
    check("a page of its own", b.js("!document.getElementById('chat').checkVisibility() && !document.getElementById('same-text').checkVisibility()"))
    shot(b, "again")
    looks(b, "ask again")
    click(b, "#same-own")
    check("back to a prompt", b.js("document.getElementById('same-text').checkVisibility() && document.getElementById('same-given').hidden"))
    click(b, ".views [data-view=chat]")
    check("it is closed", b.js("!document.getElementById('same').checkVisibility() && document.getElementById('chat').checkVisibility()"))
    setting(b, "max_tokens", 80)
    setting(b, "temperature", 0)


def shortcuts(b):
    click(b, "#clear")
    ask(b, "first")
    b.until(f"{ANSWERS} === 1 && {IDLE}")
    b.key("ArrowUp")
    check("Up edits the last message", b.js("document.activeElement.closest('form.edit') && document.activeElement.value") == "first", b.js("document.activeElement.outerHTML"))
    b.key("Escape")
    check("Esc leaves the edit", b.js("!document.querySelector('form.edit')"))
    b.key("Escape", modifiers=8)
    check("Shift+Esc goes to the field", b.js("document.activeElement.id") == "text")
    b.type("a draft")
    b.key("ArrowUp")
    check("Up in a text stays in it", b.js("document.activeElement.id === 'text' && !document.querySelector('form.edit')"))
    b.js("document.getElementById('text').value = ''")
    b.key("/", modifiers=2)
    check("Ctrl+/ lists the keys", b.js("document.getElementById('keys-list').open"))
    looks(b, "keys")
    shot(b, "keys")
    b.key("Escape")
    check("Esc closes the list", b.js("!document.getElementById('keys-list').open"))
    b.key("k", modifiers=2)
    check("Ctrl+K searches", b.js("document.activeElement.id") == "search")
    b.key("o", modifiers=10)
    b.until(f"{ANSWERS} === 0 && document.activeElement.id === 'text'", what="a new chat")
    click(b, ".views [data-view=settings]")
    check("Settings open", b.js("document.getElementById('settings').checkVisibility()"))
    click(b, ".views [data-view=settings]")
    check("Settings close", b.js("!document.getElementById('settings').checkVisibility() && document.getElementById('chat').checkVisibility()"))


def phone(b):
    """390 x 844: one row below the field, gauges behind a touch, the conversation has the room."""
    b.size(390, 844)
    row = b.js("[...document.querySelectorAll('#ask > .row > *')].filter((e) => e.checkVisibility()).map((e) => Math.round(e.getBoundingClientRect().top + e.getBoundingClientRect().height / 2))")
    check("one row", max(row) - min(row) <= 2, row)
    check("the share of the context is seen", "%" in b.js("getComputedStyle(document.getElementById('context'), '::after').content"))
    room = b.js("document.getElementById('scroll').clientHeight")
    check("the conversation has most of the height", room > 0.7 * 844, room)
    check("no gauges", b.js("!document.getElementById('gauge').checkVisibility()"))
    shot(b, "390")
    click(b, "#gauges")
    check("gauges after a touch", b.js("document.getElementById('gauge').checkVisibility() && document.getElementById('gauges').ariaExpanded === 'true'"))
    looks(b, "gauges")
    click(b, "#gauges")


def same(b, wide):
    click(b, ".views [data-view=same]")
    for id, v in (("same-count", 8), ("same-delay", 600), ("same-tokens", 24)):
        b.js(f"document.getElementById('{id}').value = {v}")
    setting(b, "temperature", 1)
    b.js("document.getElementById('same-run').click()")
    b.until("document.querySelectorAll('.lanes li').length === 8")
    b.until("!document.getElementById('same-run').hidden", 40, "the end of all requests")
    digests = b.js("[...document.querySelectorAll('.lanes .digest')].map((e) => e.textContent)")
    check("all digests agree", len(digests) == 8 and len(set(digests)) == 1 and len(digests[0]) == 16, digests)
    check("it says so", b.js("document.getElementById('same-verdict').textContent").startswith("All 8 answers"), b.js("document.getElementById('same-verdict').textContent"))
    looks(b, "same answer")


def liar(b):
    """One digest that differs must be told: the panel's own fault test."""
    b.js("""(() => { const f = window.fetch; let n = 0; window.fetch = async (u, o) => { const r = await f(u, o);
      if (!String(u).includes('completions') || ++n !== 2) return r;
      return new Response((await r.text()).replace(/"digest":"[0-9a-f]{4}/, '"digest":"0000'), { status: 200 }); }; })()""")
    b.js("document.getElementById('same-run').click()")
    b.until("!document.getElementById('same-run').hidden", 40)
    check("a digest that differs is told", b.js("document.getElementById('same-verdict').textContent").startswith("2 different digests") and b.js("document.querySelectorAll('.lanes .differs').length") == 1,
          b.js("document.getElementById('same-verdict').textContent"))
    shot(b, "differs")


def gauges(b):
    """The server's own figures: after all that was asked, none is missing."""
    b.until("Number(document.getElementById('g-requests').textContent) >= 20", 60, "the number of requests")
    b.until("/^[0-9.]+$/.test(document.getElementById('g-speed').textContent)", 60, "the speed")
    check("cache hits", b.js("/^[0-9]+ %$/.test(document.getElementById('g-cache').textContent)"), b.js("document.querySelector('.gauge').innerText"))


def key(b):
    """A server that wants a key: the page comes without, says so, and works with it."""
    with Server(PROGRAM, "--model", MODEL, "--api-key", "secret") as s:
        b.open(f"http://127.0.0.1:{s.port}/")
        b.until("document.getElementById('model').textContent.includes('API key')", what="word of the missing key")
        ask(b, "Hello")
        b.until("!!document.querySelector('.error')")
        check("the card points at the settings", "Settings" in b.js("document.querySelector('.error').textContent"))
        setting(b, "key", "secret")
        setting(b, "max_tokens", 8)
        click(b, ".error button")
        b.until(f"{IDLE} && {ANSWERS} === 1")
        check("an answer with the key", b.js(f"{LAST}.querySelector('.digest').textContent.length") == 16)
        b.until(f"document.getElementById('model').textContent === {json.dumps(os.path.basename(MODEL.rstrip('/')))}", what="the model's name")
        check("the key is not in the page's address", "secret" not in b.js("location.href"))
        check("the key is not kept beyond the tab", b.js("!JSON.stringify(localStorage).includes('secret')"))


def keyboard(b):
    """Tab reaches everything, in order, and the focus can be seen."""
    seen = []
    b.js("document.querySelector('.skip').focus()")
    for i in range(10):
        if i:
            b.key("Tab")
        seen.append(b.js("(() => { const e = document.activeElement, s = getComputedStyle(e); return [e.id || e.textContent.trim().slice(0, 20), s.outlineStyle !== 'none' && parseFloat(s.outlineWidth) >= 2]; })()"))
    names = [n for n, _ in seen]
    check("Tab goes through the page", names == ["Skip to the message ", "gauges", "Chat", "History", "Same answer", "Settings", "scroll", "Edit", "Copy", "Branch"], names)
    check("the focus can be seen", all(visible for _, visible in seen), seen)


SHOWN = ["chat", "history", "same", "settings"]
RICH = """# A voyage

Some *words*, `code`, **weight**, a [link](https://example.org/), and a formula $E = mc^2$.

| port | days |
|:-----|-----:|
| Oslo | 3 |
| Paris | 12 |

1. First
2. Second
   - inside
- [x] done

> A quotation.

```python
def keel(x):  # a note
    return "even" + str(x * 2)
```

$$
\\int_0^1 x^2 dx = \\frac{1}{3}
$$"""


def pictures(b):
    """Every view at three widths in both themes: measured, and kept to be looked at."""
    from standin import StandIn
    with Server(PROGRAM, "--model", MODEL) as real, StandIn(real.port, lambda r: [{"reasoning_content": "Ports first."}, {"content": RICH.replace("\\\\", "\\")}]) as s:
        b.open(f"http://127.0.0.1:{s.port}/")
        b.until("document.getElementById('g-state').textContent === 'ok'")
        for text in ("Tell me of a voyage, with a table, code and a formula", "averyveryverylongwordwithoutanyplacetobreakitatallanywhereinitatall and more"):
            n = b.js(ANSWERS)
            ask(b, text)
            b.until(f"{ANSWERS} > {n} && {IDLE}")
        b.until("!!document.querySelector('.hljs-keyword')", what="coloured code")
        setting(b, "system", "Be brief.")
        b.js("document.querySelector('.user').scrollIntoView()")
        for width, height in ((360, 740), (390, 844), (820, 1100), (1440, 900)):
            for dark in (False, True):
                b.size(width, height, dark=dark, calm=dark)
                for view in SHOWN if width < 1360 else [v for v in SHOWN if v != "history"]:
                    b.js(f"document.querySelector('.views [data-view={view}]').click()")
                    b.js("document.querySelector('.user').scrollIntoView()")
                    where = f"{width}-{'dark' if dark else 'light'}-{view}"
                    looks(b, where)
                    shot(b, where)
                b.js("document.querySelector('.views [data-view=chat]').click()")
                b.js("document.getElementById('scroll').scrollTop = 1e6")
                shot(b, f"{width}-{'dark' if dark else 'light'}-end")
        setting(b, "system", "")


def main():
    os.makedirs(OUT, exist_ok=True)
    with Server(PROGRAM, "--model", MODEL) as s, browser.Browser() as b:
        delivery(s)
        b.size(1440, 900)
        b.open(f"http://127.0.0.1:{s.port}/")
        chat(b)
        thinking(b)
        examples(b)
        tools(b)
        stop(b, s)
        wrong(b)
        same(b, True)
        click(b, ".views [data-view=chat]")
        again(b)
        shortcuts(b)
        b.size(360, 740)
        same(b, False)
        click(b, ".views [data-view=chat]")
        ask(b, "What is the capital of France?")
        b.until(f"{ANSWERS} && {IDLE}")
        keyboard(b)
        phone(b)
        b.size(1440, 900)
        gauges(b)
        click(b, ".views [data-view=same]")
        liar(b)
        click(b, ".views [data-view=chat]")
        key(b)
        pictures(b)
        b.size(1440, 900)
        markdown.run(check, b, s)
        chats.run(check, b, s)
        files.run(check, b, s, shot)
        hostile.run(check, b, s)
        below.run(check, b, PROGRAM, MODEL)
        check("no exceptions, no refusals, no requests elsewhere", b.problems == [], b.problems)
    return check.close()


if __name__ == "__main__":
    sys.exit(main())
