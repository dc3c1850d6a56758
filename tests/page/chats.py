"""Conversations: kept over a reload, edited, answered again, continued, branched, refused, found, renamed, deleted, exported and
imported. A stand-in answers, so that the requests can be looked at."""
import json, time

from looks import ANSWERS, IDLE, LAST, TEXT, ask, axe, click, looks, setting
from standin import StandIn, last_text

USERS = "[...document.querySelectorAll('.user .text')].map((e) => e.textContent)"
TEXTS = "[...document.querySelectorAll('.answer > .text')].map((e) => e.textContent.trim())"
TITLES = "[...document.querySelectorAll('#chats .title')].map((e) => e.textContent)"


class Model:
    """Answers with a number and what was said; `refuse` in a message is refused, `slow` goes on until it is stopped."""

    def __init__(self):
        self.n, self.down = 0, False

    def __call__(self, request):
        text = last_text(request)
        self.n += 1
        if self.down or "refuse" in text:
            return 400, "prompt is too long: 9009 tokens > 8191 maximum"
        if request.get("continue_final_message"):
            return [{"content": " and more."}]
        if "cut" in text:
            return [{"content": "It begins"}, {"finish": "length"}]
        if "slow" in text:
            return [x for i in range(600) for x in ({"content": f"word{i} "}, 0.05)]
        if "call" in text and request["messages"][-1]["role"] == "user":
            return [{"tool_calls": [{"index": i, "id": f"c{i}", "type": "function", "function": {"name": "look", "arguments": f'{{"at": {i}}}'}} for i in range(2)]}]
        return [{"content": f"Answer {self.n} to **{text}**."}]


def start(b, s):
    b.open(f"http://127.0.0.1:{s.port}/")
    b.until("document.getElementById('g-state').textContent === 'ok'")


def say(b, text, what=""):
    n = b.js(ANSWERS)
    ask(b, text)
    b.until(f"{ANSWERS} > {n} && {IDLE}", what=what or text)


def reload(b):
    b.js("window.old = 1; location.reload()")
    b.until("document.readyState === 'complete' && !window.old && document.getElementById('g-state').textContent === 'ok'")


def said(request):
    return [(m["role"], m["content"]) for m in request["messages"]]


def kept(check, b, s):
    click(b, "#clear")
    say(b, "one")
    say(b, "two")
    first = b.js(TEXTS)
    check("a conversation goes along", [r for r, _ in said(s.requests[-1])] == ["user", "assistant", "user"], said(s.requests[-1]))
    b.js("document.getElementById('text').focus()")
    b.type("half a sentence")
    reload(b)
    b.until(f"{ANSWERS} === 2 && {IDLE}", what="the chat after a reload")
    check("a reload loses nothing", b.js(TEXTS) == first and b.js(USERS) == ["one", "two"], (b.js(TEXTS), first))
    check("what was being written is there", b.js("document.getElementById('text').value") == "half a sentence")
    check("digests and figures are there", b.js(f"{LAST}.querySelector('.digest').textContent") == "0123456789abcdef" and "5 tokens" in b.js(f"{LAST}.querySelector('.figures').textContent"))
    b.until("document.getElementById('context').textContent === '15 of 8,192 tokens'", what="the context that is used")
    b.js("document.getElementById('text').value = ''")


def stopped(check, b, s):
    click(b, "#clear")
    ask(b, "slow")
    b.until(f"{TEXT}.length > 100", what="a slow answer")
    time.sleep(1.2)
    reload(b)
    b.until(f"{ANSWERS} === 1 && {IDLE}")
    text = b.js(TEXT)
    check("a reload in the middle keeps what came", text.startswith("word0 word1 ") and "stopped" in b.js(f"{LAST}.querySelector('.figures').textContent"), text[:200])
    click(b, ".answer .small", "Continue")
    b.until(f"{TEXT}.trim().endsWith('and more.') && {IDLE}", what="the continued answer")
    r = s.requests[-1]
    check("it is continued as it stands", r["continue_final_message"] is True and r["add_generation_prompt"] is False and r["messages"][-1]["role"] == "assistant" and b.js(TEXT).startswith(text.strip()), r)
    click(b, "#clear")
    ask(b, "slow")
    b.until(f"{TEXT}.length > 30")
    b.key("Escape")
    b.until(IDLE, what="the end after Esc")
    check("Esc stops", "stopped" in b.js(f"{LAST}.querySelector('.figures').textContent"))
    say(b, "one more")
    check("what was stopped is part of the conversation", said(s.requests[-1])[1][1].startswith("word0"), said(s.requests[-1]))
    click(b, "#clear")
    say(b, "cut")
    check("a cut answer can go on", b.js(f"[...{LAST}.querySelectorAll('.small')].some((e) => e.textContent === 'Continue')"))


def versions(check, b, s):
    click(b, "#clear")
    say(b, "first")
    say(b, "second")
    old = b.js(TEXTS)
    b.js("[...document.querySelectorAll('.user')][1].querySelector('.small').click()")
    check("a message is edited in its place", b.js("document.activeElement.value") == "second")
    b.js("document.activeElement.value = 'third'")
    b.key("Enter", "\r")
    b.until(f"{TEXT}.includes('third') && {IDLE}", what="the answer to the edited message")
    check("it takes the place of the old one", [t for r, t in said(s.requests[-1]) if r == "user"] == ["first", "third"], said(s.requests[-1]))
    check("versions are counted", b.js("[...document.querySelectorAll('.user .versions span')].map((e) => e.textContent)") == ["2 of 2"])
    click(b, ".user .versions button", "‹")
    b.until(f"{TEXT}.includes('second')")
    check("the first version is there with its answer", b.js(TEXTS) == old, (b.js(TEXTS), old))
    before = len(s.requests)
    click(b, ".answer .small", "Regenerate")
    b.until(f"document.querySelector('.answer .versions')?.textContent.includes('2 of 2') && {IDLE}", what="another answer")
    check("another answer to the same", len(s.requests) == before + 1 and said(s.requests[-1])[-1] == ("user", "second"), said(s.requests[-1]))
    check("it is another one", b.js(TEXTS)[0] == old[0] and b.js(TEXTS)[1] != old[1], b.js(TEXTS))
    count = b.js("document.querySelectorAll('#chats li').length")
    b.js("[...document.querySelectorAll('.answer')][0].querySelectorAll('.small').forEach((e) => e.textContent === 'Branch' && e.click())")
    b.until(f"document.querySelectorAll('#chats li').length === {count + 1} && {ANSWERS} === 1", what="a branch")
    say(b, "elsewhere")
    check("a branch begins with what was before", [t for r, t in said(s.requests[-1]) if r == "user"] == ["first", "elsewhere"], said(s.requests[-1]))
    b.js("[...document.querySelectorAll('#chats .entry')].find((e) => e.textContent.startsWith('first') && !e.textContent.includes('branch')).click()")
    b.until(f"{USERS}[1] === 'second' && {IDLE}", what="the chat that was branched")
    reload(b)
    b.until(f"{ANSWERS} === 2 && {IDLE}")
    check("versions survive a reload", "2 of 2" in b.js("document.querySelector('.answer .versions').textContent"))


def refused(check, b, s, model):
    click(b, "#clear")
    say(b, "good")
    ask(b, "refuse this")
    b.until("!!document.querySelector('.error')", what="a refusal")
    check("a refusal is told", "prompt is too long" in b.js("document.querySelector('.error').textContent"))
    reload(b)
    b.until("!!document.querySelector('.error')", what="the refusal after a reload")
    say(b, "next")
    check("what was refused is not sent again", [t for r, t in said(s.requests[-1])  if r == "user"] == ["good", "next"], said(s.requests[-1]))
    check("it is not lost either", b.js("document.querySelectorAll('.user .versions').length") == 1)
    model.down = True
    click(b, ".answer .small", "Regenerate")
    b.until("!!document.querySelector('.error')")
    b.until(IDLE)
    check("a refused second answer leaves the first", b.js(ANSWERS) == 2 and b.js("!document.querySelector('.error button')"), b.js("document.getElementById('log').innerText"))
    model.down = False
    say(b, "still good")
    check("and the conversation goes on", [t for r, t in said(s.requests[-1]) if r == "user"] == ["good", "next", "still good"], said(s.requests[-1]))
    say(b, "call")
    model.down = True
    b.js("document.querySelectorAll('.call textarea').forEach((e, i) => { e.value = `{\"found\": ${i}}`; })")
    click(b, ".call form button")
    b.until("!!document.querySelector('.error')", what="refused results")
    model.down = False
    click(b, ".error button")
    b.until(f"!document.querySelector('.error') && {IDLE}", what="results that are sent again")
    check("results are sent again, in order", said(s.requests[-1])[-2:] == [("tool", '{"found": 0}'), ("tool", '{"found": 1}')], said(s.requests[-1]))
    check("results stay in their cards", b.js("[...document.querySelectorAll('.call textarea')].map((e) => [e.value, e.readOnly])") == [['{"found": 0}', True], ['{"found": 1}', True]])


def history(check, b, s):
    click(b, "#clear")
    say(b, "where is the lighthouse")
    b.until(f"{TITLES}[0] === 'where is the lighthouse'", what="its title in the list")
    click(b, "#chats .open .small", "Rename")
    b.until("document.activeElement.closest('form.rename')")
    b.js("document.activeElement.value = 'A light'")
    b.key("Enter", "\r")
    b.until(f"{TITLES}[0] === 'A light'", what="the new name")
    say(b, "another word")
    check("a name that was given stays", b.js(TITLES)[0] == "A light", b.js(TITLES))
    b.js("document.getElementById('search').focus()")
    b.type("LIGHTHOUSE")
    b.until("document.querySelectorAll('#chats li').length === 1", what="what was searched")
    check("search finds texts", b.js(TITLES) == ["A light"] and "lighthouse" in b.js("document.querySelector('#chats .snippet').textContent"))
    b.js("document.getElementById('search').value = 'no such thing at all'; document.getElementById('search').dispatchEvent(new Event('input'))")
    b.until("document.getElementById('history-note').textContent === 'No chat has that.'")
    b.js("document.getElementById('search').value = ''; document.getElementById('search').dispatchEvent(new Event('input'))")
    b.until("document.querySelectorAll('#chats li').length > 1")
    n = b.js("document.querySelectorAll('#chats li').length")
    click(b, "#chats .open .small", "Delete")
    b.until("document.activeElement.textContent === 'Delete it'")
    axe(check, b, "history")
    click(b, "#chats .small", "Keep it")
    b.until("!document.querySelector('#chats .danger')")
    check("nothing is deleted without a word", b.js("document.querySelectorAll('#chats li').length") == n)
    click(b, "#chats .open .small", "Delete")
    b.until("!!document.querySelector('#chats .danger')")
    click(b, "#chats .danger")
    b.until(f"document.querySelectorAll('#chats li').length === {n - 1}", what="a deleted chat")
    check("a deleted chat is gone", "A light" not in b.js(TITLES) and b.js(ANSWERS) == 0)


CATCH = "(() => { window.blobs = []; const make = URL.createObjectURL; URL.createObjectURL = (x) => { window.blobs.push(x); return make.call(URL, x); }; HTMLAnchorElement.prototype.click = () => {}; })()"


def give(b, name, text):
    b.js(f"""(() => {{ const d = new DataTransfer(), i = document.getElementById('import-file'); d.items.add(new File([{json.dumps(text)}], {json.dumps(name)}));
      i.files = d.files; i.dispatchEvent(new Event('change')); }})()""")


def transfer(check, b, s):
    click(b, "#clear")
    say(b, "## You\n\\## Answer\nx\n\n```\n## You\n```")
    say(b, "call")
    b.js("document.querySelectorAll('.call textarea').forEach((e) => { e.value = '{\"a\": 1}'; })")
    click(b, ".call form button")
    b.until(f"{ANSWERS} === 3 && {IDLE}")
    click(b, ".answer .small", "Regenerate")
    b.until(f"document.querySelector('.answer .versions') && {IDLE}", what="a second version")
    b.js(CATCH)
    before = s.requests[-1]["messages"]
    for kind in ("JSON", "Markdown"):
        b.js("window.blobs = []")
        click(b, "#chats .open .small", kind)
        text = b.until("window.blobs[0]?.text()", what=f"an export as {kind}")
        if kind == "JSON":
            check("JSON says what it is", json.loads(text)["format"] == "evenkeel.chats" and len(json.loads(text)["chats"][0]["messages"]) == 8, text[:300])
        else:
            check("Markdown can be read", text.startswith("# ") and "\n## Call of look\n" in text and "\n## Result\n" in text, text)
        n = b.js("document.querySelectorAll('#chats li').length")
        give(b, "a.json" if kind == "JSON" else "a.md", text)
        b.until(f"document.querySelectorAll('#chats li').length === {n + 1} && {IDLE} && {ANSWERS} === 3", what=f"an import of {kind}")
        check(f"{kind}: versions come along", b.js("document.querySelectorAll('.answer .versions').length") == (kind == "JSON"))
        click(b, ".answer .small", "Regenerate")
        b.until(f"document.querySelector('.answer .versions') && {IDLE}")
        again = s.requests[-1]["messages"]
        plain = [[(m["role"], m["content"], [c["function"] for c in m.get("tool_calls") or []]) for m in r] for r in (before, again)]
        check(f"{kind}: what is imported is what was exported", plain[0] == plain[1], plain)
    for name, text, why in (("a.json", '{"format": "x"}', "no export"), ("b.json", "{", "b.json is not imported"), ("c.md", "hello", "no heading"),
                            ("d.json", '{"format":"evenkeel.chats","version":1,"chats":[{"messages":[{"role":"<img>"}]}]}', "role")):
        give(b, name, text)
        b.until(f"document.getElementById('history-note').textContent.includes({json.dumps(why)})", what=f"why {name} is not imported")
    check("a wrong file changes nothing", b.js(ANSWERS) == 3)
    b.js("window.blobs = []")
    click(b, "#export-all")
    text = b.until("window.blobs[0]?.text()")
    check("all are exported", len(json.loads(text)["chats"]) == b.js("document.querySelectorAll('#chats li').length"))


def nothing_kept(check, b, s):
    """A browser that stores nothing."""
    id = b.send("Page.addScriptToEvaluateOnNewDocument", source="Object.defineProperty(window, 'indexedDB', { get() { throw new Error('no'); } });"
                "for (const n of ['localStorage', 'sessionStorage']) Object.defineProperty(window, n, { get() { throw new Error('no'); } });")["identifier"]
    start(b, s)
    b.until("document.getElementById('history-note').textContent.includes('keeps nothing')", what="word that nothing is kept")
    say(b, "one")
    say(b, "two")
    check("it works without storage", b.js(USERS) == ["one", "two"] and b.js("document.querySelectorAll('#chats li').length") == 1)
    b.send("Page.removeScriptToEvaluateOnNewDocument", identifier=id)


def run(check, b, real):
    model = Model()
    with StandIn(real.port, model) as s:
        b.size(1440, 900)
        start(b, s)
        kept(check, b, s)
        stopped(check, b, s)
        versions(check, b, s)
        refused(check, b, s, model)
        history(check, b, s)
        transfer(check, b, s)
        looks(check, b, "a long history")
        nothing_kept(check, b, s)
