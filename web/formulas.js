// Formulas of an answer, set once the worker has made MathML of them; until then, and where it cannot, they are as written.
import { elementOf } from './mathml.js';
import { ask } from './worker.js';

const MAX_KEPT = 2000, MAX_LENGTH = 8000;
const kept = new Map(); // what became of a formula, so that a block that is made again shows it at once

function put(box, node) {
  const as = box.dataset.source;
  if (!node || as === undefined) return;
  box.replaceChildren(elementOf(node));
  box.classList.add('set');
  box.title = as.slice(0, 300);
  delete box.dataset.source;
  if (box.classList.contains('block') && box.scrollWidth > box.clientWidth) box.tabIndex = 0; // it scrolls
}

const keyOf = (box) => (box.classList.contains('block') ? 'B' : 'I') + box.dataset.source;

// Sets the formulas in elements that are in the page. around(f) runs f, which changes the page.
export async function setFormulas(nodes, around) {
  const boxes = nodes.flatMap((n) => (n.nodeType !== Node.ELEMENT_NODE ? [] : n.matches('.math') ? [n] : [...n.querySelectorAll('.math')]));
  const open = new Map();
  for (const box of boxes) {
    const key = keyOf(box);
    if (kept.has(key)) put(box, kept.get(key));
    else if (box.dataset.source.length <= MAX_LENGTH) open.set(key, [...(open.get(key) ?? []), box]);
  }
  if (!open.size) return;
  const keys = [...open.keys()], made = await ask('math', keys);
  if (!made) return;
  if (kept.size > MAX_KEPT) kept.clear();
  keys.forEach((key, i) => kept.set(key, made[i]));
  around(() => keys.forEach((key, i) => open.get(key).forEach((box) => put(box, made[i]))));
}
