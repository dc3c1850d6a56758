"""What every view of the page is measured by: contrast, names, sizes, overflow, and axe-core where it is there."""
import json, os

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

# Fields and buttons without a name.
UNNAMED = """[...document.querySelectorAll('input, textarea, button, select, summary')].filter((e) => e.checkVisibility() &&
  !(e.labels?.length || e.textContent.trim() || e.ariaLabel)).map((e) => e.outerHTML)"""
# Targets too small for a finger; what stands below a message in small print may be as small as WCAG 2.2, 2.5.8 allows.
SMALL = """[...document.querySelectorAll('button, input:not([type=checkbox]), textarea')].filter((e) => e.checkVisibility() &&
  e.getBoundingClientRect().height < (e.matches('.small, .chips button') ? 24 : 44)).map((e) => e.outerHTML.slice(0, 80))"""
OVERFLOW = """[...document.querySelectorAll('body *')].filter((e) => e.checkVisibility() && !e.closest('.hidden, .skip, pre, svg, .track') &&
  !e.parentElement.closest('.table') && (e.getBoundingClientRect().right > innerWidth + 0.5 || e.getBoundingClientRect().left < -0.5)).map((e) => e.outerHTML.slice(0, 80))"""
AXE = """axe.run(document, {resultTypes: ['violations']}).then((r) => r.violations.map((v) => `${v.id}: ${v.help}: ${v.nodes.slice(0, 3).map((n) => n.html.slice(0, 160)).join(' ; ')}`))"""


class Count:
    """Checks, counted; what failed is printed as it happens."""

    def __init__(self):
        self.passed = self.failed = self.skipped = 0

    def __call__(self, name, good, detail=""):
        self.passed, self.failed = self.passed + bool(good), self.failed + (not good)
        if not good:
            print(f"FAIL {name}: {str(detail)[:2000]}", flush=True)

    def close(self):
        print(f"{self.passed} passed, {self.failed} failed" + (f", {self.skipped} skipped" if self.skipped else ""))
        return 1 if self.failed else 0


def looks(check, b, where):
    contrast, unnamed, small, wide = b.js(CONTRAST), b.js(UNNAMED), b.js(SMALL), b.js(OVERFLOW)
    check(f"{where}: contrast", contrast == [], contrast)
    check(f"{where}: names", unnamed == [], unnamed)
    check(f"{where}: targets", small == [], small)
    check(f"{where}: nothing wider than the window", b.js("document.documentElement.scrollWidth <= innerWidth") and wide == [], wide)


def axe(check, b, where):
    """axe-core's own list; a row is skipped where npm did not bring it."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "node_modules", "axe-core", "axe.min.js")
    if not os.path.exists(path):
        if not check.skipped:
            print("skipped axe-core's rows: npm did not bring it")
        check.skipped += 1
        return
    if not b.js("typeof window.axe === 'object'"):
        b.js(open(path, encoding="utf-8").read() + "\n;1")
    found = b.js(AXE)
    check(f"{where}: axe-core finds nothing", found == [], json.dumps(found, indent=1))


IDLE = "!document.getElementById('send').hidden && !document.querySelector('[aria-busy]')"
ANSWERS = "document.querySelectorAll('.answer').length"
LAST = "[...document.querySelectorAll('.answer')].at(-1)"
TEXT = f"({LAST}?.querySelector(':scope > .text').textContent ?? '')"


def ask(b, text):
    b.js("document.getElementById('text').focus()")
    b.type(text)
    b.key("Enter", "\r")


def click(b, selector, text=None):
    """Clicks the last element of a selector, or the last one with a text."""
    b.js(f"""(() => {{ const all = [...document.querySelectorAll({json.dumps(selector)})].filter((e) => {json.dumps(text)} === null || e.textContent.trim() === {json.dumps(text)});
      if (!all.length) throw new Error('nothing to click'); all.at(-1).click(); }})()""")


def setting(b, id, value):
    b.js(f"""(() => {{ const e = document.getElementById({json.dumps(id)}); e[e.type === 'checkbox' ? 'checked' : 'value'] = {json.dumps(value)};
      e.dispatchEvent(new Event('input', {{ bubbles: true }})); }})()""")
