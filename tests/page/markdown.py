"""Markdown as the page shows it: what becomes of it, whole and streamed, in any pieces."""
import json, random

from chats import start
from looks import ANSWERS, IDLE, LAST, ask, click
from standin import StandIn

# What a text becomes: (text, HTML without the attributes that carry no meaning here).
ROWS = [
    ("# A\n\n## B\n\n#### C", '<p class="h h1" role="heading" aria-level="2">A</p><p class="h h2" role="heading" aria-level="3">B</p><p class="h h4" role="heading" aria-level="4">C</p>'),
    ("a *b* **c** ~~d~~ `e*f*`", "<p>a <em>b</em> <strong>c</strong> <del>d</del> <code>e*f*</code></p>"),
    ("one\ntwo<br>three", "<p>one<br>two<br>three</p>"),
    ("- a\n- b\n  1. c\n\n3. d", '<ul><li><span>a</span></li><li><span>b</span><ol><li><span>c</span></li></ol></li></ul><ol start="3"><li><span>d</span></li></ol>'),
    ("- [ ] a\n- [x] b", '<ul><li class="task">☐ <span>a</span></li><li class="task">☑ <span>b</span></li></ul>'),
    ("> a\n> b\n\n---\n\nc", "<blockquote><p>a<br>b</p></blockquote><hr><p>c</p>"),
    ("a &amp; b < c > d &lt;b&gt; \\* \"e\" 'f'", "<p>a &amp; b &lt; c &gt; d &lt;b&gt; * \"e\" 'f'</p>"),
    ("`a &amp; <b>` <i>c</i>", "<p><code>a &amp;amp; &lt;b&gt;</code> &lt;i&gt;c&lt;/i&gt;</p>"),
    ("$a_1 * b_2 * c$ and \\(x_1 \\* y_2\\)", '<p><span class="math">$a_1 * b_2 * c$</span> and <span class="math">\\(x_1 \\* y_2\\)</span></p>'),
    ("it costs $5 and $10, or $5-$10 *more*", "<p>it costs $5 and $10, or $5-$10 <em>more</em></p>"),
    ("$$\na_1\n= b_1\n$$\n\n\\[\nx\n\\]", '<p class="math block">a_1\n= b_1</p><p class="math block">x</p>'),
    ("[a](https://b.c/?d=e&f=g \"t\")", '<p><a href="https://b.c/?d=e&amp;f=g" title="https://b.c/?d=e&amp;f=g" target="_blank" rel="noopener noreferrer nofollow">a</a></p>'),
    ("[a](mailto:b@c.d) [e](/x) [f](#g)", '<p><a href="mailto:b@c.d" title="mailto:b@c.d" target="_blank" rel="noopener noreferrer nofollow">a</a> <span>e</span> <span>f</span></p>'),
    ("```\n\tx\n  \ty\tz\n```", '<figure class="code" data-language=""><figcaption><span>code</span><button type="button" class="small">Copy</button></figcaption><pre tabindex="0" aria-label="Code" role="group"><code>\tx\n  \ty\tz</code></pre></figure>'),
    ("a\r\nb\r\n\r\nc", "<p>a<br>b</p><p>c</p>"),
    ("<script>a</script>\n\nb", "<p>&lt;script&gt;a&lt;/script&gt;</p><p>b</p>"),
]
STREAMED = """First *paragraph* with a [link](https://example.org/a_b).

# Heading

- item one
- item two

  more of two

| a | b |
|---|--:|
| 1 | **2** |

```python
def f(x):
    # a note

    return '<b>' + str(x)
```

$$
x_1 + y_1
$$

```make
all:
\tcc -o $@ $<

\t\tx\ty
```

-\tone

\t```
\tcode in it
\t```

\tafter it
-\ttwo
\n\tindented\n\na paragraph
    with an indented line
[def]: https://example.org/

Last line, and \\(z_2\\).
"""
# Shows a text in pieces with the page's own code; gives its HTML, without what is the same everywhere.
SHOW = """(async (pieces) => {
  const { Rendered } = await import('/page/markdown.js');
  const box = document.createElement('div'), view = new Rendered(box);
  document.body.append(box);
  let text = '';
  for (const p of pieces) { view.set(text += p); await new Promise((good) => setTimeout(good, 4)); }
  await view.set(text, true);
  for (let i = 0; i < 200 && [...box.querySelectorAll('figure[data-language=python], figure[data-language=make]')].some((f) => !f.querySelector('.hljs-keyword, .hljs-section')); i++) await new Promise((good) => setTimeout(good, 20));
  for (let i = 0; i < 100 && window.formulas && box.querySelector('.math[data-source]'); i++) await new Promise((good) => setTimeout(good, 20));
  box.remove();
  return box.innerHTML.replace(/ dir="auto"| data-source="[^"]*"/g, '');
})"""


# Formulas: what is in the MathML of each, and what stays as it was written.
FORMULAS = [
    ("$x^2$", ['<span class="math set" title="x^2"><math><msup><mi>x</mi><mn class="tml-sml-pad">2</mn></msup></math></span>']),
    ("$$\\int_0^1 x\\,dx = \\frac12$$", ['<p class="math block set"', "<mfrac><mn>1</mn><mn>2</mn></mfrac>", "∫"]),
    ("\\[\\begin{aligned} a &= b \\\\ c &= d \\end{aligned}\\]", ["<mtable", 'class="tml-right"', "padding-left: 0em"]),
    ("\\(\\mathbb{R} \\alpha \\le \\sqrt{2}\\)", ["ℝ", "α", "≤", "<msqrt>"]),
    ("$\\color{red}{x} \\cancel{y}$", ['style="color: rgb(255, 0, 0);"', "<menclose"]),
    ("$a<b \\& \\text{\"q\"}$", ["&lt;", "&amp;"]),
    ("a $\\frac{$ b", ["$\\frac{$", 'class="math"']),
    ("$\\href{javascript:alert(1)}{x}$", ["\\href", 'class="math"']),
    ("$\\includegraphics{http://192.0.2.1/x}$ $\\class{x}{y}$ $\\style{color:red}{y}$ $\\url{http://192.0.2.1/}$", ["\\includegraphics", "\\class", "\\style", "\\url"]),
    ("$\\def\\x{\\x\\x}\\x$", ["\\def"]),
    ("$" + "{" * 200 + "}" * 200 + "$", ["{{{"]),
]


def formulas(check, b):
    for text, wants in FORMULAS:
        got = b.js(f"{SHOW}({json.dumps([text])})")
        for want in wants:
            check(f"formula {text[:40]!r}", want in got, f"{got}\n  without\n{want}")
        check(f"formula {text[:40]!r}: nothing else", not any(w in got for w in ("href", "src=", "<a", "url(")) or "$" in text and "class=\"math\"" in got, got)
    b.js("document.querySelectorAll('body > .markdown').forEach((e) => e.remove())")


def run(check, b, real):
    with StandIn(real.port, lambda r: [], without=("/page/temml.js",)) as s:
        start(b, s)
        for text, want in ROWS:
            got = b.js(f"{SHOW}({json.dumps([text])})")
            check(f"Markdown {text[:30]!r}", got == want, f"{got}\n  instead of\n{want}")
    start(b, real)
    if b.js("fetch('/page/temml.js').then((r) => r.text()).then((t) => window.formulas = t.length > 0)"):
        formulas(check, b)
    else:
        print("skipped formulas: npm did not bring Temml")
        check.skipped += 1
    for language, code, word in (("haskell", "module A where", "module"), ("dockerfile", "FROM a", "FROM"), ("rust", "fn a() {}", "fn"), ("latex", "\\section{a}", "\\section")):
        b.js(f"window.box = document.body.appendChild(document.createElement('div')); import('/page/markdown.js').then(({{ Rendered }}) => new Rendered(window.box).set({json.dumps(f'```{language}' + chr(10) + code + chr(10) + '```')}, true))")
        b.until("!!window.box.querySelector('[class^=hljs-]')", what=f"coloured {language}")
        check(f"{language} is coloured", b.js("window.box.querySelector('[class^=hljs-]').textContent") == word, b.js("window.box.innerHTML"))
        b.js("window.box.remove()")
    whole = b.js(f"{SHOW}({json.dumps([STREAMED])})")
    check("code is coloured", '<span class="hljs-keyword">def</span>' in whole and '<span class="hljs-comment"># a note</span>' in whole, whole)
    check("a table", '<th scope="col">a</th><th scope="col" class="to-right">b</th>' in whole and '<td class="to-right"><strong>2</strong></td>' in whole, whole)
    r = random.Random(41)
    for i in range(12):
        cuts = sorted(r.sample(range(1, len(STREAMED)), (3, 30, 120, len(STREAMED) - 1)[i % 4]))
        pieces = [STREAMED[i:j] for i, j in zip([0, *cuts], [*cuts, len(STREAMED)])]
        got = b.js(f"{SHOW}({json.dumps(pieces)})")
        check(f"streamed in {len(pieces)} pieces it is the same", got == whole, f"{got}\n  instead of\n{whole}")
    steady(check, b, real)


def steady(check, b, real):
    """What is complete is not made again: its elements, and so a selection in them, stay. And code is copied as it is."""
    code = "x = '<b>'\n\ty\n"
    deltas = [x for w in (STREAMED + f"\n```js\n{code}```\n").split("e") for x in ({"content": w + "e"}, 0.01)]
    with StandIn(real.port, lambda r: deltas) as s:
        start(b, s)
        click(b, "#clear")
        ask(b, "stream")
        b.until("document.querySelectorAll('.answer .markdown > *').length > 2", what="three blocks")
        b.js("window.first = document.querySelector('.answer .markdown > *')")
        b.until(f"{ANSWERS} === 1 && {IDLE}")
        check("the first block is the same element", b.js(f"window.first === {LAST}.querySelector('.markdown > *')"))
        b.js("Object.defineProperty(navigator, 'clipboard', { value: { writeText: async (t) => { window.copied = t; } }, configurable: true })")
        click(b, "figure.code button", "Copy")
        b.until("window.copied !== undefined")
        check("code is copied as it is", b.js("window.copied") == code.strip("\n"), b.js("window.copied"))
        b.until("[...document.querySelectorAll('figure.code button')].at(-1).textContent === 'Copied'")
        b.js("window.copied = undefined")
        click(b, ".answer .acts .small", "Copy")
        b.until("window.copied !== undefined")
        check("an answer is copied as it was written", b.js("window.copied").startswith("First *paragraph*"), b.js("window.copied"))
