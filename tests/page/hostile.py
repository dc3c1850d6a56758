"""Hostile answers: markup that wants to run, and texts that want to stop the page. Nothing runs, nothing freezes."""
import time

from looks import ANSWERS, IDLE, LAST, TEXT, ask, axe, click
from standin import StandIn, last_text

RUN = "window.pwned=1;fetch('http://192.0.2.1/x')"
MARKUP = {
    "script": f"<script>{RUN}</script>\n\nand `<script>{RUN}</script>` in a line <script>{RUN}</script>",
    "frame": f"<iframe src=\"javascript:{RUN}\"></iframe>\n<iframe srcdoc=\"<script>parent.{RUN}</script>\"></iframe><object data=\"data:text/html,x\"></object><embed src=\"/page/icon.svg\">",
    "handlers": f"<img src=x onerror=\"{RUN}\">\n\n<body onload=\"{RUN}\"><details open ontoggle=\"{RUN}\"><video><source onerror=\"{RUN}\"></video><b onmouseover=\"{RUN}\">x</b>",
    "svg": f"<svg onload=\"{RUN}\"><script>{RUN}</script><a xlink:href=\"javascript:{RUN}\"><text>x</text></a></svg>\n<math><mtext><table><mglyph><style><img src=x onerror=\"{RUN}\">",
    "links": f"[a](javascript:{RUN}) [b](JaVaScRiPt:{RUN}) [c](&#106;avascript:{RUN}) [d](java\tscript:{RUN}) [e](data:text/html,<script>{RUN}</script>) [f](vbscript:x) "
             f"[g](\x01javascript:{RUN}) [h](file:///etc/passwd) [i](//192.0.2.1/x) [j](blob:null/x) <javascript:{RUN}> [k][k] [l](https://example.org/\"onclick=\"{RUN}) [m](https://example.org/good)\n\n[k]: javascript:{RUN}",
    "pictures": "![a](http://192.0.2.1/x.png) ![b](/page/icon.svg) ![c](data:image/svg+xml,<svg/>)\n\n![d](x \"onerror=alert(1)\")",
    "page": "<meta http-equiv=refresh content=\"0;url=http://192.0.2.1/\"><base href=http://192.0.2.1/><style>*{display:none}</style><link rel=stylesheet href=http://192.0.2.1/x.css><form action=http://192.0.2.1/><input name=x><button>go</button></form>",
    "code": f"```\"><script>{RUN}</script>\nx\n```\n\n```html\n<script>{RUN}</script><img src=x onerror=\"{RUN}\">\n```\n\n```__proto__\nx\n```\n\n```constructor\ny\n```",
    "table": f"| <script>{RUN}</script> | [x](javascript:{RUN}) |\n|---|---|\n| <img src=x onerror={RUN}> | `<b>` |",
    "formulas": f"$\\href{{javascript:{RUN}}}{{x}}$ $\\color{{url(http://192.0.2.1/)}}{{x}}$ $\\text{{<img src=x onerror={RUN}>}}$ $\\rule{{9999em}}{{9999em}}$ $\\def\\x{{\\x\\x}}\\x$",
    "math": f"$$<img src=x onerror=\"{RUN}\">$$ and $<script>{RUN}</script>$ and \\(<svg onload=\"{RUN}\">\\)",
    "ids": "# scroll\n\n## text\n\n<a id=text name=ask>x</a> <form id=ask><input id=send></form> <div class=\"hidden\" role=alert id=announce>y</div>",
    "marks": "\u202egnihtemos\u202c \u2066x \u0000 \ufeff \ud83d\ude00 " + "a\u0300" * 300,
}
# What may be in an answer; anything else was made from its text.
ALLOWED = "a, article, aside, b, blockquote, br, button, code, del, details, div, em, figcaption, figure, hr, i, li, ol, p, pre, section, span, strong, summary, table, tbody, td, th, thead, tr, ul, textarea, label, form"
HARMS = f"""(() => {{ const all = [...document.querySelectorAll('.log *')], bad = [];
  for (const e of all) {{
    if (e.namespaceURI.endsWith('MathML')) {{ if (!e.closest('.math.set')) bad.push('MathML'); if (/url/.test(e.getAttribute('style'))) bad.push('style'); }}
    else if (!e.matches({ALLOWED!r})) bad.push('element ' + e.outerHTML.slice(0, 100));
    for (const a of e.attributes) if (/^on|src|action|href$/i.test(a.name) && !e.matches('a') || (a.name === 'style' && !e.closest('math'))) bad.push('attribute ' + a.name);
    if (e.matches('a') && !/^(https?|mailto):/.test(e.href)) bad.push('link ' + e.href);
    if (e.matches('.text *') && e.id) bad.push('id ' + e.id);
  }}
  return bad; }})()"""

M = 1 << 20
LONG = {
    "a line of 1 MB": "x" * M,
    "words of 1 MB": "word " * (M // 5),
    "a fence of 1 MB": "```python\n" + "def f(): return 1\n" * (M // 18) + "```\n\nbehind it",
    "a fenced line of 1 MB": "```js\n" + "x=" * (M // 2) + "\n```\n\nbehind it",
    "10,000 nested quotes": ">" * 10000 + " deep\n\nbehind it",
    "10,000 nested quotes with spaces": "> " * 10000 + " deep\n\nbehind it",
    "10,000 nested lists": "- " * 10000 + "deep\n\nbehind it",
    "a stair of lists": "".join(" " * i + "- a\n" for i in range(400)),
    "30,000 stars": "*a " * 10000 + "\n\nbehind it",
    "30,000 emphases": "**a *b " * 4300,
    "100,000 brackets": "[" * 100000 + "\n\nbehind it",
    "100,000 ticks": "`" * 100000,
    "100,000 bars": "|" * 100000,
    "a wide table": "|a" * 5000 + "\n" + "|-" * 5000 + "\n" + "|b" * 5000,
    "5,000 paragraphs": "a *b* `c`\n\n" * 5000,
    "20,000 items": "- item\n" * 20000,
    "20,000 dollars": "$x = 1 " * 20000,
    "5,000 formulas": "".join(f"$x_{{{i}}}$ " for i in range(5000)),
    "a formula of 8 kB": "$$" + "\\frac{1}{2}+" * 600 + "x$$",
}


def markup(check, b, real):
    with StandIn(real.port, lambda r: [{"content": c} for c in pieces(MARKUP[last_text(r)], 7)]) as s:
        b.open(f"http://127.0.0.1:{s.port}/")
        b.until("document.getElementById('g-state').textContent === 'ok'")
        for name in MARKUP:
            click(b, "#clear")
            ask(b, name)
            b.until(ANSWERS + " && " + IDLE, what=name)
            harms = b.js(HARMS)
            check(f"{name}: does nothing", harms == [] and b.js("window.pwned === undefined"), harms or b.js(f"{LAST}.outerHTML"))
            if name == "script":
                check("script: is seen as text", b.js(TEXT).count("<script>") == 3, b.js(TEXT))
            if name == "links":
                check("links: one is good", b.js(f"[...{LAST}.querySelectorAll('a')].filter((a) => a.href === 'https://example.org/good' && a.rel.includes('noopener')).length") == 1, b.js(f"{LAST}.innerHTML"))
        axe(check, b, "hostile markup")
        b.js("location.reload()")
        time.sleep(0.3)
        b.until("document.readyState === 'complete' && " + ANSWERS + " && " + IDLE)
        check("stored markup does nothing either", b.js(HARMS) == [] and b.js("window.pwned === undefined"), b.js(HARMS))


def calls(check, b, real):
    """Names, arguments, thoughts and errors are the model's words, too."""
    name, arguments = f"<img src=x onerror={RUN}>" * 50, '{"a": "' + "<script>" * 50000 + '"}'

    def answer(r):
        if last_text(r) == "refuse":
            return 400, f"<img src=x onerror={RUN}>" + "no " * 100000
        return [{"reasoning_content": f"<script>{RUN}</script>" * 20000},
                {"tool_calls": [{"index": 0, "id": "<b>", "type": "function", "function": {"name": name, "arguments": ""}}]}, *(
                {"tool_calls": [{"index": 0, "function": {"arguments": a}}]} for a in pieces(arguments, 20000))]
    with StandIn(real.port, answer) as s:
        b.open(f"http://127.0.0.1:{s.port}/")
        b.until("document.getElementById('g-state').textContent === 'ok'")
        click(b, "#clear")
        ask(b, "call")
        b.until(ANSWERS + " && " + IDLE, what="a hostile call")
        check("a hostile call does nothing", b.js(HARMS) == [] and b.js("window.pwned === undefined"), b.js(HARMS))
        check("its arguments are there", b.js("document.querySelector('.call code').textContent.length") == len(arguments))
        ask(b, "refuse")
        b.until("!!document.querySelector('.error')", what="a refusal")
        check("a hostile refusal does nothing", b.js(HARMS) == [] and b.js("document.querySelector('.error').textContent.length") < 3000, b.js(HARMS))


def pieces(text, n):
    return [text[i:i + n] for i in range(0, len(text), n)]


# The longest time between two turns of the page's own clock.
WATCH = "(() => { let last = performance.now(); window.longest = 0; clearInterval(window.watch); window.watch = setInterval(() => { const now = performance.now(); window.longest = Math.max(window.longest, now - last); last = now; }, 10); })()"
PATIENCE = 4000  # ms; what is seen on two cores that others use is below 500


def long(check, b, real):
    with StandIn(real.port, lambda r: [x for p in pieces(LONG[last_text(r)], 30000) for x in ({"content": p}, 0.01)]) as s:
        b.open(f"http://127.0.0.1:{s.port}/")
        b.until("document.getElementById('g-state').textContent === 'ok'")
        for name, text in LONG.items():
            click(b, "#clear")
            b.js(WATCH)
            ask(b, name)
            began = time.time()
            b.until(ANSWERS + " && " + IDLE, 60, name)
            want = len("".join(text.split()).replace("`", "")) // 3
            b.until(f"{TEXT}.length >= {min(want, 20000)}", 60, f"{name}: the text")
            if text.endswith("behind it"):
                b.until(f"{TEXT}.trimEnd().endsWith('behind it')", 60, f"{name}: what stands behind")
            longest = b.js("window.longest")
            check(f"{name}: no freeze", longest < PATIENCE, f"{longest:.0f} ms")
            print(f"measured: {name}: {time.time() - began:.1f} s, the page stood still for at most {longest:.0f} ms", flush=True)
        click(b, "#clear")


def without(check, b, real):
    """A program that was built where the libraries are not: plain texts, as safe and as long."""
    texts = {**MARKUP, "a line of 1 MB": LONG["a line of 1 MB"]}
    with StandIn(real.port, lambda r: [{"content": c} for c in pieces(texts[last_text(r)], 30000)], without=("/page/marked.js", "/page/highlight.js", "/page/temml.js")) as s:
        b.open(f"http://127.0.0.1:{s.port}/")
        b.until("document.getElementById('g-state').textContent === 'ok'")
        for name in ("script", "code", "a line of 1 MB"):
            click(b, "#clear")
            b.js(WATCH)
            ask(b, name)
            b.until(f"{ANSWERS} && {IDLE} && {TEXT}.length > {len(texts[name]) // 2}", what=f"{name} without libraries")
            check(f"{name} without libraries: does nothing", b.js(HARMS) == [] and b.js("window.pwned === undefined"), b.js(HARMS))
            check(f"{name} without libraries: no freeze", b.js("window.longest") < PATIENCE, b.js("window.longest"))
        click(b, "#clear")


def run(check, b, real):
    markup(check, b, real)
    calls(check, b, real)
    long(check, b, real)
    without(check, b, real)
