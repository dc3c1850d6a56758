// Small helpers. Text reaches the page as text only: nothing here or elsewhere parses HTML.
export const byId = (id) => document.getElementById(id);

// el('p', {class: 'note'}, 'text', child, …); values that are functions are listeners.
export function el(name, attributes = {}, ...children) {
  const e = document.createElement(name);
  for (const [k, v] of Object.entries(attributes)) {
    if (typeof v === 'function') e.addEventListener(k, v);
    else if (v === true) e.setAttribute(k, '');
    else if (v !== false && v !== null && v !== undefined) e.setAttribute(k, v);
  }
  e.append(...children.filter((c) => c !== null && c !== undefined));
  return e;
}

// Screen readers are told the beginning of a long text: the rest is in the page.
export function announce(text) {
  byId('announce').textContent = text.length > 1500 ? `${text.slice(0, 1500)} …` : text;
}

export const cut = (text, n = 80) => (text.length > n ? `${text.slice(0, n - 1)}…` : text);

// --- long texts ---

const PIECE = 4000;         // characters that are laid out together
export const LONG = 20000;  // characters from which on a text is shown in pieces, as it was written

// Adds text to a box in pieces of their own layout: a line of a megabyte must not stop the page.
export function addPlain(box, text) {
  let at = 0;
  const last = box.lastElementChild, node = last?.firstChild;
  if (node && node.length < PIECE && !node.data.endsWith('\n')) {
    at = Math.min(text.length, PIECE - node.length);
    node.appendData(text.slice(0, at));
  }
  while (at < text.length) {
    let end = Math.min(text.length, at + PIECE);
    if (end < text.length) end = text.lastIndexOf('\n', end - 1) >= at ? text.lastIndexOf('\n', end - 1) + 1 : end;
    if (end < text.length && /[\ud800-\udbff]/.test(text[end - 1])) end--;
    box.append(el('span', { class: 'piece' }, text.slice(at, end)));
    at = end;
  }
}

// What people wrote: fenced blocks and `code` become elements; the rest stays as written.
export function formatted(text) {
  const out = document.createDocumentFragment();
  if (text.length >= LONG) {
    const box = el('div', { class: 'plain' });
    addPlain(box, text);
    out.append(box);
    return out;
  }
  text.split(/^```[^\n]*\n?/m).forEach((part, i) => {
    if (i % 2) {
      out.append(el('pre', { tabindex: '0' }, el('code', {}, part.replace(/\n$/, ''))));
      return;
    }
    part.split(/`([^`\n]+)`/).forEach((piece, j) => {
      if (piece) out.append(j % 2 ? el('code', {}, piece) : piece);
    });
  });
  return out;
}

// --- the clipboard and files ---

// Pages that came over plain HTTP from another machine have no navigator.clipboard.
export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const field = el('textarea', { class: 'hidden', readonly: true, 'aria-hidden': 'true', tabindex: '-1' });
    const back = document.activeElement;
    field.value = text;
    document.body.append(field);
    field.select();
    const good = document.execCommand('copy');
    field.remove();
    back?.focus?.();
    return good;
  }
}

// A button that copies what text() gives, and says so.
export function copyButton(label, text) {
  const b = el('button', { type: 'button', class: 'small' }, label);
  b.addEventListener('click', async () => {
    const good = await copyText(text());
    b.textContent = good ? 'Copied' : 'Not copied';
    announce(good ? 'Copied.' : 'The browser did not allow copying.');
    setTimeout(() => { b.textContent = label; }, 1500);
  });
  return b;
}

export function download(name, type, text) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  el('a', { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

// --- digests ---

// A digest as 16 squares, one per digit: equal digests are seen to be equal.
export function flags(digest) {
  return el('span', { class: 'flags', 'aria-hidden': 'true' }, ...[...digest].map((d) => el('i', { class: `f${d}` })));
}
