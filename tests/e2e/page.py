#!/usr/bin/env python3
"""The page at / in headless Chromium: page.py PROGRAM MODEL OUT

Sends, streams, stops, shows thinking and a tool card, runs the same-answer panel, at 360 px and wide, light and dark, by
keyboard; measures contrast and overflow. Screenshots stay in OUT. Closes with `N passed, N failed`."""
import http.client, json, os, sys, time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import browser
from counted import check, closing
from client import Server

PROGRAM, MODEL, OUT = sys.argv[1], sys.argv[2], sys.argv[3]
POCKET = "pocket" in MODEL


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
    check("a strict policy", "default-src 'none'" in policy and "script-src 'self'" in policy and "unsafe" not in policy and "frame-ancestors 'none'" in policy, policy)
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
        path = "/" if name == "index.html" else f"/page/{name}"
        status, head, body = fetch(s, path)
        check(f"{path} is web/{name}", status == 200 and body == open(f"web/{name}", "rb").read(), status)


# What a text's colour and the colour behind it give, for every visible text of the page (WCAG 2.2, 1.4.3).
CONTRAST = """(() => {
  const lum = (c) => { const f = c.map((v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4); return 0.2126 * f[0] + 0.7152 * f[1] + 0.0722 * f[2]; };
  const rgb = (s) => s.match(/[\\d.]+/g).map(Number);
  const behind = (e) => { for (; e; e = e.parentElement) { const c = rgb(getComputedStyle(e).backgroundColor); if (c.length < 4 || c[3] > 0) return c.slice(0, 3); } return [255, 255, 255]; };
  const bad = [], walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let n; (n = walk.nextNode());) {
    const e = n.parentElement;
    if (!n.data.trim() || !e.checkVisibility({ visibilityProperty: true }) || e.closest('.hidden, .skip, noscript, :disabled')) continue;
    const a = lum(rgb(getComputedStyle(e).color).slice(0, 3)), b = lum(behind(e)), ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) bad.push(`${ratio.toFixed(2)} ${e.className || e.tagName} ${n.data.trim().slice(0, 30)}`);
  }
  return bad;
})()"""

# Fields and buttons without a name, and targets too small for a finger.
UNNAMED = """[...document.querySelectorAll('input, textarea, button, select, summary')].filter((e) => e.checkVisibility() &&
  !(e.labels?.length || e.textContent.trim() || e.ariaLabel)).map((e) => e.outerHTML)"""
SMALL = """[...document.querySelectorAll('button, input:not([type=checkbox]), textarea')].filter((e) => e.checkVisibility() &&
  e.getBoundingClientRect().height < 44).map((e) => e.outerHTML.slice(0, 80))"""
OVERFLOW = """[...document.querySelectorAll('body *')].filter((e) => e.checkVisibility() && !e.closest('.hidden, .skip, pre, svg, .track') &&
  (e.getBoundingClientRect().right > innerWidth + 0.5 || e.getBoundingClientRect().left < -0.5)).map((e) => e.outerHTML.slice(0, 80))"""


def looks(b, where):
    check(f"{where}: contrast", b.js(CONTRAST) == [], b.js(CONTRAST))
    check(f"{where}: names", b.js(UNNAMED) == [], b.js(UNNAMED))
    check(f"{where}: targets", b.js(SMALL) == [], b.js(SMALL))
    check(f"{where}: nothing wider than the window", b.js("document.documentElement.scrollWidth <= innerWidth") and b.js(OVERFLOW) == [], b.js(OVERFLOW))


def shot(b, name):
    b.screenshot(os.path.join(OUT, name + ".png"))


def ask(b, text):
    b.js("document.getElementById('text').focus()")
    b.type(text)
    b.key("Enter", "\r")


IDLE = "!document.getElementById('send').hidden && !document.querySelector('[aria-busy]')"
ANSWERS = "document.querySelectorAll('.answer').length"
LAST = "[...document.querySelectorAll('.answer')].at(-1)"


def setting(b, id, value):
    b.js(f"""(() => {{ const e = document.getElementById({json.dumps(id)}); e[e.type === 'checkbox' ? 'checked' : 'value'] = {json.dumps(value)};
      e.dispatchEvent(new Event('input', {{ bubbles: true }})); }})()""")


def chat(b):
    looks(b, "empty")
    shot(b, "empty")
    check("the field has the focus", b.js("document.activeElement.id") == "text", b.js("document.activeElement.outerHTML"))
    check("images are off", b.js("document.getElementById('image').disabled"))
    b.until("document.getElementById('g-state').textContent === 'ok'", what="the server's state")
    b.until(f"document.getElementById('model').textContent === {json.dumps(os.path.basename(MODEL.rstrip('/')))}", what="the model's name")
    setting(b, "max_tokens", 60)
    setting(b, "temperature", 0)
    ask(b, "What is a keel?")
    b.until(ANSWERS, what="an answer")
    b.until(IDLE, what="its end")
    check("an answer with a digest", b.js(f"{LAST}.querySelector(':scope > .text').textContent.length") > 0 and len(b.js(f"{LAST}.querySelector('.digest').textContent")) == 16, b.js(f"{LAST}.outerHTML"))
    check("the answer is announced", b.js("document.getElementById('announce').textContent") == b.js(f"{LAST}.querySelector(':scope > .text').textContent"), b.js("document.getElementById('announce').textContent"))
    check("figures", "tokens" in b.js(f"{LAST}.querySelector('.figures').textContent"), b.js(f"{LAST}.outerHTML"))
    check("the focus is back", b.js("document.activeElement.id") == "text")


def stop(b, s):
    """Grows while it streams; Stop keeps what came."""
    b.js("document.getElementById('clear').click()")
    setting(b, "tools", "")
    setting(b, "max_tokens", 100000)
    b.js("""(() => { const f = window.fetch; window.fetch = (u, o) => { if (o?.body) o.body = o.body.replace('{', '{"ignore_eos":true,'); return f(u, o); }; })()""")
    ask(b, "Tell me a very long story.")
    size = f"({LAST}?.querySelector(':scope > .text').textContent.length ?? 0)"
    b.until(f"document.querySelectorAll('.answer').length === 1 && {size} > 20", what="a stream")
    first = b.js(size)
    b.until(f"{size} > {first + 20}", what="growth of the stream")
    check("a button to stop", b.js("!document.getElementById('stop').hidden && document.getElementById('send').hidden"))
    b.js("document.getElementById('stop').click()")
    b.until(IDLE, what="the end after Stop")
    check("stopped", "stopped" in b.js(f"{LAST}.querySelector('.figures').textContent") and b.js(size) > first, b.js(f"{LAST}.outerHTML")[-300:])
    s.wait_idle()
    check("a link in the text is text", b.js("document.querySelectorAll('.log a, .log script, .log img').length") == 0)
    b.js("location.reload()")
    time.sleep(0.2)
    b.until("document.readyState === 'complete' && document.getElementById('g-state').textContent === 'ok'")
    check("settings stay in the tab", b.js("document.getElementById('max_tokens').value") == "100000")
    setting(b, "max_tokens", 80)


def thinking(b):
    setting(b, "thinking", True)
    ask(b, "Is 17 a prime?")
    b.until(ANSWERS)
    b.until(IDLE)
    if POCKET:
        state = b.js(f"(() => {{ const d = {LAST}.querySelector('.thinking'); return [d.hidden, d.open, d.textContent.length]; }})()")
        check("thinking is folded away", state[0] is False and state[1] is False and state[2] > 10, (state, b.js(f"{LAST}.innerText")))
    setting(b, "thinking", False)
    b.js("document.getElementById('clear').click()")
    check("a new chat is empty", b.js(ANSWERS) == 0 and b.js("!document.getElementById('empty').hidden"))


def tools(b):
    b.js("document.querySelector('[data-tools]').click()")
    b.until(IDLE + " && " + ANSWERS)
    check("the tools are set", "get_weather" in b.js("document.getElementById('tools-note').textContent"))
    if not POCKET:
        return
    card = b.js("document.querySelector('.call')?.innerText ?? ''")
    check("a tool card", "get_weather" in card and "Paris" in card, card or b.js("document.getElementById('log').innerText"))
    looks(b, "tool card")
    shot(b, "tool")
    b.js("document.querySelector('.call textarea').focus()")
    b.type('{"temperature": 21, "sky": "clear"}')
    b.js("document.querySelector('.call form button').click()")
    b.until(ANSWERS + " === 2")
    b.until(IDLE)
    check("an answer from the result", len(b.js(f"{LAST}.querySelector(':scope > .text').textContent")) > 0, b.js(f"{LAST}.outerHTML"))
    shot(b, "result")


def wrong(b):
    setting(b, "tools", '[{"name": ')
    check("wrong tools are told", "No tools are sent" in b.js("document.getElementById('tools-note').textContent"))
    b.js("document.getElementById('clear').click()")
    setting(b, "tools", "")
    b.js("""(() => { const f = window.fetch; window.fetch = (u, o) => { if (o?.body) { o.body = '{"messages":7}'; window.fetch = f; } return f(u, o); }; })()""")
    ask(b, "<b>bold</b> & `code`")
    b.until("!!document.querySelector('.error')")
    check("an error is told", "messages" in b.js("document.querySelector('.error').textContent"), b.js("document.querySelector('.error').outerHTML"))
    check("text is text", b.js("document.querySelector('.user').textContent") == "<b>bold</b> & code", b.js("document.querySelector('.user').innerHTML"))
    b.js("document.querySelector('.error button').click()")
    b.until(IDLE + " && " + ANSWERS)
    check("it goes on", b.js(f"{LAST}.querySelector('.digest').textContent.length") == 16)
    b.js("document.getElementById('clear').click()")


def same(b, wide):
    if not wide:
        b.js("document.querySelector('.views [data-view=same]').click()")
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
    b.until("Number(document.getElementById('g-requests').textContent) >= 20", 10, "the number of requests")
    b.until("/^[0-9.]+$/.test(document.getElementById('g-speed').textContent)", 10, "the speed")
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
        b.js("document.querySelector('.error button').click()")
        b.until(IDLE + " && " + ANSWERS + " === 1")
        check("an answer with the key", b.js(f"{LAST}.querySelector('.digest').textContent.length") == 16)
        b.until(f"document.getElementById('model').textContent === {json.dumps(os.path.basename(MODEL.rstrip('/')))}", what="the model's name")
        check("the key is not in the page's address", "secret" not in b.js("location.href"))


def keyboard(b):
    """Tab reaches everything, in order, and the focus can be seen."""
    seen = []
    b.js("document.querySelector('.skip').focus()")
    for i in range(8):
        if i:
            b.key("Tab")
        seen.append(b.js("(() => { const e = document.activeElement, s = getComputedStyle(e); return [e.id || e.textContent.trim().slice(0, 20), s.outlineStyle !== 'none' && parseFloat(s.outlineWidth) >= 2]; })()"))
    names = [n for n, _ in seen]
    check("Tab goes through the page", names == ["Skip to the message ", "Chat", "Same answer", "Settings", "scroll", "text", "clear", "send"], names)
    check("the focus can be seen", all(visible for _, visible in seen), seen)


def main():
    os.makedirs(OUT, exist_ok=True)
    with Server(PROGRAM, "--model", MODEL) as s, browser.Browser() as b:
        delivery(s)
        b.size(1280, 800)
        b.open(f"http://127.0.0.1:{s.port}/")
        chat(b)
        thinking(b)
        tools(b)
        stop(b, s)
        wrong(b)
        same(b, True)
        shot(b, "same")
        b.size(1280, 800, dark=True, calm=True)
        looks(b, "dark")
        shot(b, "dark")
        b.size(360, 740)
        same(b, False)
        shot(b, "narrow-same")
        b.js("document.querySelector('.views [data-view=settings]').click()")
        looks(b, "narrow settings")
        shot(b, "narrow-settings")
        b.js("document.querySelector('.views [data-view=chat]').click()")
        ask(b, "What is the capital of France? averyveryverylongwordwithoutanyplacetobreakitatallanywhereinit")
        b.until(ANSWERS)
        b.until(IDLE)
        looks(b, "narrow chat")
        shot(b, "narrow-chat")
        keyboard(b)
        b.size(1280, 800)
        gauges(b)
        liar(b)
        key(b)
        check("no exceptions, no refusals, no requests elsewhere", b.problems == [], b.problems)
    return closing()


if __name__ == "__main__":
    sys.exit(main())
