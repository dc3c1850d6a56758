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

export function announce(text) {
  byId('announce').textContent = text;
}

// Fenced blocks and `code` become elements; the rest stays as written.
export function formatted(text) {
  const out = document.createDocumentFragment();
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

// A digest as 16 squares, one per digit: equal digests are seen to be equal.
export function flags(digest) {
  return el('span', { class: 'flags', 'aria-hidden': 'true' }, ...[...digest].map((d) => el('i', { class: `f${d}` })));
}
