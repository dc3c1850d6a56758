// A worker: Markdown to a small tree, code to coloured pieces. It runs beside the page, which ends it when a text takes it
// too long (some make any Markdown parser slow), so that no text can stop the page.
//
// A node is a text or {t, c: children, …}; t is one of the names that build.js knows.
import './marked.js';
import { nodesOf } from './mathml.js';

const { marked } = globalThis;
const MAX_DEPTH = 24, MAX_NODES = 6000, MAX_COLUMNS = 100;

const unescaped = { '&amp;': '&', '&lt;': '<', '&gt;': '>', '&quot;': '"', '&#39;': "'", '&nbsp;': ' ' };
const TAB = '\ufdd0'; // stands for a tab in code: marked makes spaces of those that begin a line
const asWritten = (s) => s.replaceAll(TAB, '\t');
const plain = (s) => asWritten(s).replace(/&(?:amp|lt|gt|quot|#39|nbsp);/g, (e) => unescaped[e]);

// Formulas stay as they were written: their underscores, stars and backslashes are not Markdown's.
const INLINE_MATH = /^(?:\$\$(?!\$)[^$]{1,4000}\$\$|\$(?![\s$\d])[^$\n]{0,500}?[^\s$\\]\$(?![\d\w])|\$\d[^$\n]{0,500}?[\\^_=+][^$\n]{0,500}?[^\s$\\]\$(?![\d\w])|\\\([^\n]{1,2000}?\\\)|\\\[[^]{1,4000}?\\\])/;
const BLOCK_MATH = /^ {0,3}(?:\$\$(?!\$)[^$]{1,8000}\$\$|\\\[[^]{1,8000}?\\\])[ \t]*(?:\n+|$)/;
const math = [
  { name: 'math', level: 'inline',
    start: (s) => { const i = s.search(/\$|\\[([]/); return i < 0 ? undefined : i; },
    tokenizer: (s) => { const m = INLINE_MATH.exec(s); return m ? { type: 'math', raw: m[0] } : undefined; } },
  { name: 'mathBlock', level: 'block',
    start: (s) => { const i = s.search(/^ {0,3}(?:\$\$|\\\[)/m); return i < 0 ? undefined : i; },
    tokenizer: (s) => { const m = BLOCK_MATH.exec(s); return m ? { type: 'mathBlock', raw: m[0] } : undefined; } },
];
// Definitions of links would leave the text without a token, and a block may be read apart from them: they stay text.
marked?.use({ extensions: math, gfm: true, breaks: true, tokenizer: { def: () => undefined } });

let nodes = 0; // of the text at hand

const all = (tokens, depth) => (tokens ?? []).map((t) => convert(t, depth)).filter((n) => n !== null && n !== '');

function list(t, depth) {
  return { t: t.ordered ? 'ol' : 'ul', start: t.ordered && t.start !== '' ? Number(t.start) : 1,
           c: t.items.map((i) => ({ t: 'li', task: i.task ? (i.checked ? 'done' : 'open') : '', c: all(i.tokens, depth + 1) })) };
}

function table(t, depth) {
  const row = (cells) => cells.map((c) => ({ c: all(c.tokens, depth + 1) }));
  nodes += t.rows.length * t.header.length;
  if (t.header.length > MAX_COLUMNS) throw new Error('too many columns');
  return { t: 'table', align: t.align, head: row(t.header), rows: t.rows.map(row) };
}

// Marked's token to a node. HTML is text here, but for a line break.
function convert(t, depth) {
  if (++nodes > MAX_NODES) throw new Error('too many parts');
  if (depth > MAX_DEPTH) return asWritten(t.raw);
  const c = () => all(t.tokens, depth + 1);
  switch (t.type) {
    case 'space': return null;
    case 'heading': return { t: 'h', depth: t.depth, c: c() };
    case 'paragraph': return { t: 'p', c: c() };
    case 'blockquote': case 'strong': case 'em': case 'del': return { t: t.type, c: c() };
    case 'hr': case 'br': return { t: t.type, c: [] };
    case 'list': return list(t, depth);
    case 'table': return table(t, depth);
    case 'code': return { t: 'pre', language: (t.lang ?? '').trim().split(/\s/)[0], text: asWritten(t.text) };
    case 'codespan': return { t: 'code', c: [plain(t.text)] };
    case 'link': return { t: 'a', href: plain(t.href ?? ''), c: c() };
    case 'image': return { t: 'a', href: plain(t.href ?? ''), c: [plain(t.text) || 'picture'] };
    case 'math': return { t: 'math', c: [t.raw], source: t.raw.replace(/^(?:\$\$?|\\[([])([^]*?)(?:\$\$?|\\[)\]])$/, '$1') };
    case 'mathBlock': {
      const source = t.raw.trim().slice(2, -2).trim();
      return { t: 'math', block: true, c: [source], source };
    }
    case 'escape': return t.raw.slice(1);
    case 'html': return /^<br\s*\/?>$/i.test(t.raw) ? { t: 'br', c: [] } : asWritten(t.raw).replace(/\n+$/, '');
    case 'text': return t.tokens ? { t: 'span', c: c() } : plain(t.raw);
    default: return asWritten(t.raw);
  }
}

// --- tabs, and where a block ends in the text ---

const FENCE = /^([ \t>]*(?:(?:[-*+]|\d{1,9}[.)])[ \t]+)*)(`{3,}|~{3,})/;

// The text as marked is to read it, and lines: [place in it, place in the text] of each. Tabs of code are kept; others that
// begin a line become spaces, as marked would make them, but with the places known.
function prepare(text) {
  if (!text.includes('\t')) return { ready: text, lines: [[0, 0]] };
  const lines = [];
  let ready = '', from = 0, fence = '', keep = false;
  for (const line of text.split(/(?<=\n)/)) {
    const [, before = '', mark = ''] = FENCE.exec(line) ?? [], closes = fence && mark[0] === fence[0] && mark.length >= fence.length;
    lines.push([ready.length, from]);
    ready += fence && keep && !closes ? line.replaceAll('\t', TAB) : line.replace(/^( *)(\t+)/, (_, spaces, tabs) => spaces + '    '.repeat(tabs.length));
    if (fence) fence = closes ? '' : fence;
    else if (mark) [fence, keep] = [mark, !before.includes('\t')];
    from += line.length;
  }
  return { ready, lines };
}

// Behind what a token was made of. Where marked joins two of them it writes an empty line that is not there.
function behind(ready, at, raw) {
  if (ready.startsWith(raw, at)) return at + raw.length;
  for (const c of raw) {
    if (ready.startsWith(c, at)) at += c.length;
    else if (c !== '\n') throw new Error('a token that is not from the text');
  }
  return at;
}

// Blocks with the length of what each was made of; together they are the text. The last line counts as a whole one: only so
// does marked see a fence that is still open.
function lex(text) {
  nodes = 0;
  const { ready, lines } = prepare(text.endsWith('\n') ? text : `${text}\n`);
  let at = 0, from = 0, line = 0;
  return marked.lexer(ready).map((t) => {
    const begin = from;
    at = behind(ready, at, t.raw);
    while (line + 1 < lines.length && lines[line + 1][0] <= at) line++;
    const [there, here] = lines[line], longer = line + 1 < lines.length ? lines[line + 1][0] - there - (lines[line + 1][1] - here) : 0;
    from = Math.min(text.length, here + Math.max(0, at - there - (at > there ? longer : 0)));
    return { length: from - begin, node: convert(t, 0) };
  });
}

let highlighter; // a promise of it, once a block of code was there

async function highlight(text, language) {
  nodes = 0;
  const { log } = console;
  if (!highlighter) console.log = () => {}; // version 9 tells every reader that it is old
  highlighter ??= import('./highlight.js').then((m) => m.default ?? globalThis.hljs).finally(() => { console.log = log; });
  const hljs = await highlighter;
  if (!hljs?.getLanguage(language)) return null;
  // Version 10 turned the arguments round and gave itself a number.
  return pieces((hljs.versionString ? hljs.highlight(text, { language, ignoreIllegals: true }) : hljs.highlight(language, text, true)).value);
}

const escaped = { '&amp;': '&', '&lt;': '<', '&gt;': '>', '&quot;': '"', '&#39;': "'", '&#x27;': "'" };

// highlight.js writes HTML of spans with classes and escaped texts: exactly that is taken, as nodes. The page never makes
// HTML of a text.
function pieces(html) {
  const root = { c: [] }, open = [root], next = /<span class="([\w -]+)">|(<\/span>)|([^<]+)/y;
  for (let m; next.lastIndex < html.length;) {
    if (!(m = next.exec(html)) || ++nodes > MAX_NODES) throw new Error('not what highlight.js writes');
    if (m[3]) open.at(-1).c.push(m[3].replace(/&(?:amp|lt|gt|quot|#39|#x27);/g, (e) => escaped[e]));
    else if (m[2]) open.pop();
    else {
      const n = { t: 'mark', of: m[1], c: [] };
      open.at(-1).c.push(n);
      open.push(n);
    }
    if (!open.length || open.length > 50) throw new Error('not what highlight.js writes');
  }
  return root.c;
}

let setter; // a promise of Temml, once there was a formula

// Formulas, each with B (a block) or I (in a line) before it, to nodes of MathML; null for what is none.
async function formulas(list) {
  setter ??= import('./temml.js').then((m) => m.default);
  const temml = await setter;
  if (!temml) return null;
  return list.map((key) => {
    try {
      return nodesOf(temml.renderToString(key.slice(1), { displayMode: key[0] === 'B', throwOnError: true, trust: false, maxExpand: 200, maxSize: [20, 100] }));
    } catch {
      return null;
    }
  });
}

onmessage = async ({ data }) => {
  let result = null;
  try {
    if (data.kind === 'lex') result = lex(data.text);
    else if (data.kind === 'math') result = await formulas(data.text);
    else result = await highlight(data.text, data.language);
  } catch { /* a text that cannot be read is shown as it is */ }
  postMessage({ id: data.id, result });
};
postMessage({ ready: Boolean(marked) });
