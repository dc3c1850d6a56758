// Formulas as MathML: what Temml writes for them, as nodes (in the worker) and as elements (in the page). Only the
// elements, attributes and styles below exist; anything else of them is left out.
const ELEMENTS = new Set(('math mrow mi mn mo ms mtext mspace mfrac msqrt mroot msub msup msubsup munder mover munderover mtable mtr mtd mpadded '
  + 'mphantom mstyle mmultiscripts mprescripts none menclose').split(' '));
const ATTRIBUTES = new Set(('display displaystyle scriptlevel mathvariant stretchy symmetric fence separator largeop movablelimits lspace rspace minsize '
  + 'maxsize linethickness width height depth voffset columnalign rowspan columnspan accent accentunder notation form').split(' '));
const STYLES = new Set(['padding', 'padding-left', 'padding-right', 'color', 'border', 'width', 'math-depth']);
const VALUE = /^[\w #.%+-]{1,40}$/;
const MAX_NODES = 6000, MAX_DEPTH = 60;

const escaped = { '&amp;': '&', '&lt;': '<', '&gt;': '>', '&quot;': '"', '&#39;': "'", '&#x27;': "'" };
const plain = (s) => s.replace(/&(?:amp|lt|gt|quot|#39|#x27);/g, (e) => escaped[e]);

function attributes(text) {
  const out = { a: [], s: [] };
  for (const [, name, value] of text.matchAll(/ ([a-z-]+)="([^"]*)"/g)) {
    if (ATTRIBUTES.has(name) && VALUE.test(value)) out.a.push([name, value]);
    if (name === 'class') out.a.push(['class', value.split(' ').filter((c) => /^(tml-|math|upstrike|downstrike)[\w-]*$/.test(c)).join(' ')]);
    if (name === 'style') out.s = value.split(';').map((s) => s.split(':').map((v) => v.trim())).filter(([k, v]) => STYLES.has(k) && VALUE.test(v ?? ''));
  }
  return out;
}

// Markup of MathML to nodes {t, a: attributes, s: styles, c: children}; throws at anything that is none.
export function nodesOf(markup) {
  const root = { c: [] }, open = [root], next = /<([a-z]+)((?: [a-zA-Z-]+="[^"<>]*")*)>|<\/[a-z]+>|[^<]+/y;
  for (let n = 0, m; next.lastIndex < markup.length;) {
    if (!(m = next.exec(markup)) || ++n > MAX_NODES) throw new Error('not MathML');
    if (m[1]) {
      const made = { t: m[1], ...attributes(m[2]), c: [] };
      if (!ELEMENTS.has(m[1])) throw new Error(`the element ${m[1]}`);
      open.at(-1).c.push(made);
      open.push(made);
    } else if (m[0][0] === '<') open.pop();
    else open.at(-1).c.push(plain(m[0]));
    if (!open.length || open.length > MAX_DEPTH) throw new Error('not MathML');
  }
  if (root.c.length !== 1 || root.c[0].t !== 'math') throw new Error('not MathML');
  return root.c[0];
}

// Nodes to elements.
export function elementOf(n) {
  if (typeof n === 'string') return document.createTextNode(n);
  const e = document.createElementNS('http://www.w3.org/1998/Math/MathML', n.t);
  for (const [name, value] of n.a) if (value) e.setAttribute(name, value);
  for (const [name, value] of n.s) e.style.setProperty(name, value);
  e.append(...n.c.map(elementOf));
  return e;
}
