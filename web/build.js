// Nodes of lexer.js to elements. Only the elements below exist; every text becomes a text.
import { copyButton, cut, el } from './dom.js';

// Addresses that a link may have; anything else stays text.
function address(href) {
  try {
    const url = new URL(href);
    return ['http:', 'https:', 'mailto:'].includes(url.protocol) && href.length < 4000 ? url.href : null;
  } catch {
    return null;
  }
}

function link(n, kids) {
  const href = address(n.href);
  if (!href) return el('span', {}, ...kids);
  // The address is seen before the click: a text may name another one.
  return el('a', { href, title: cut(href, 300), target: '_blank', rel: 'noopener noreferrer nofollow' }, ...kids);
}

function table(n, state) {
  const cell = (name, more) => (c, i) => el(name, { ...more, class: n.align[i] ? `to-${n.align[i]}` : null, dir: 'auto' }, ...build(c.c, state));
  return el('div', { class: 'table', tabindex: '0', role: 'group', 'aria-label': 'Table' }, el('table', {},
    el('thead', {}, el('tr', {}, ...n.head.map(cell('th', { scope: 'col' })))),
    el('tbody', {}, ...n.rows.map((r) => el('tr', {}, ...r.map(cell('td', {})))))));
}

function code(n) {
  const text = el('code', {});
  text.append(n.text);
  const language = /^[\w+#.-]{1,24}$/.test(n.language) ? n.language : '';
  return el('figure', { class: 'code', 'data-language': language },
    el('figcaption', {}, el('span', {}, language || 'code'), copyButton('Copy', () => text.textContent)),
    el('pre', { tabindex: '0', 'aria-label': language ? `Code, ${language}` : 'Code', role: 'group' }, text));
}

// Levels of headings follow those of the page, without a gap; state.level is that of the one before.
function heading(n, state, kids) {
  state.level = Math.min(n.depth + 1, (state.level ?? 1) + 1, 6);
  return el('p', { class: `h h${n.depth}`, role: 'heading', 'aria-level': state.level, dir: 'auto' }, ...kids);
}

function one(n, state) {
  if (typeof n === 'string') return n;
  if (n.t === 'table') return table(n, state);
  if (n.t === 'pre') return code(n);
  const kids = build(n.c, state);
  switch (n.t) {
    case 'h': return heading(n, state, kids);
    case 'p': return el('p', { dir: 'auto' }, ...kids);
    case 'a': return link(n, kids);
    case 'mark': return el('span', { class: n.of }, ...kids);
    case 'math': return el(n.block ? 'p' : 'span', { class: n.block ? 'math block' : 'math', 'data-source': n.source }, ...kids);
    case 'ol': return el('ol', { start: n.start !== 1 && Number.isSafeInteger(n.start) ? n.start : null, dir: 'auto' }, ...kids);
    case 'ul': return el('ul', { dir: 'auto' }, ...kids);
    case 'li': return el('li', { class: n.task ? 'task' : null }, n.task ? (n.task === 'done' ? '☑ ' : '☐ ') : null, ...kids);
    case 'blockquote': case 'strong': case 'em': case 'del': case 'hr': case 'br': case 'code': case 'span': return el(n.t, {}, ...kids);
    default: return el('span', {}, ...kids);
  }
}

export function build(nodes, state) {
  return nodes.filter((n) => n !== null).map((n) => one(n, state));
}
