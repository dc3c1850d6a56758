// An answer as it grows: blocks that are complete stay as they are, the last one is made again. Hostile and endless texts are
// shown as they were written.
import { build } from './build.js';
import { addPlain, el, formatted, LONG } from './dom.js';
import { setFormulas } from './formulas.js';
import { ask, withMarkdown } from './worker.js';

const WINDOW = 40000;     // characters that are read as Markdown at once: a longer block is plain text
const SMALLEST = 2000;    // no less at once, where a text is slow to read
const HIGHLIGHT = 50000;  // characters of code that are coloured

const frame = () => new Promise((good) => { // a hidden page has no frames
  const timer = setTimeout(good, 100);
  requestAnimationFrame(() => { clearTimeout(timer); good(); });
});
const pause = (ms) => new Promise((good) => { setTimeout(good, ms); });

async function highlight(figure) {
  const { language } = figure.dataset, code = figure.querySelector('code'), text = code.textContent;
  if (!language || text.length > HIGHLIGHT) return;
  const nodes = await ask('highlight', text, language);
  if (!nodes || code.textContent !== text) return;
  const made = el('code', {}, ...build(nodes, {}));
  if (made.textContent === text) code.replaceChildren(...made.childNodes);
}

function highlightAll(nodes) {
  for (const n of nodes)
    if (n.nodeType === Node.ELEMENT_NODE)
      for (const f of n.matches('figure.code') ? [n] : n.querySelectorAll('figure.code')) highlight(f);
}

// Where the block that begins at `from` ends: behind its closing fence, or behind an empty line; -1 if it goes on.
function blockEnd(text, from, scanned) {
  const fence = /^ {0,3}(`{3,}|~{3,})/.exec(text.slice(from, from + 100))?.[1];
  const wanted = fence ? new RegExp(`\\n {0,3}${fence[0]}{${Math.min(fence.length, 90)},}[ \\t]*(?:\\n|$)`, 'g') : /\n[ \t]*\n/g;
  wanted.lastIndex = Math.max(from, scanned - 100);
  const m = wanted.exec(text);
  return m ? m.index + m[0].length : -1;
}

function lastBlock(blocks, at) {
  while (at > 0 && blocks[at].node === null) at--;
  return at;
}

export class Rendered {
  // around(f) runs f, which changes the page (the caller keeps its scrolling).
  constructor(box, around = (f) => f()) {
    Object.assign(this, { box, around, text: '', final: false, at: 0, open: [], code: null, plain: null, level: 1, work: null, window: WINDOW, whole: null });
    box.classList.add('markdown');
  }

  // Shows a text that is longer than, or the same as, the one before. Resolves once all of it is shown.
  set(text, final = false) {
    this.text = text.includes('\r') ? text.replace(/\r\n?/g, '\n') : text;
    this.final ||= final;
    this.work ??= this.#run().finally(() => { this.work = null; });
    return this.work;
  }

  async #run() {
    for (;;) {
      const { text, final } = this, began = performance.now();
      const whole = await this.#step(text, final);
      if (whole && text === this.text && final === this.final) return;
      // A block that takes long to make is made less often: three quarters of the time are the reader's.
      await frame();
      if (!final) await pause(Math.min(2000, 3 * (performance.now() - began - 20)));
    }
  }

  // One look at the text; whether all of it is shown.
  async #step(text, final) {
    if (!withMarkdown()) return this.#showFormatted(text);
    if (this.plain) return this.#growPlain(text, final);
    const part = text.slice(this.at, this.at + this.window), more = this.at + part.length < text.length;
    const blocks = part.trim() ? await ask('lex', part) : [];
    if (!withMarkdown()) return this.#showFormatted(text);
    if (!blocks && part.length > SMALLEST) { // somewhere in it: less at once finds out where
      this.window = Math.max(SMALLEST, part.length >> 2);
      return false;
    }
    this.window = Math.min(WINDOW, 2 * this.window);
    if (!blocks) return this.#startPlain(text, final);
    let last = lastBlock(blocks, blocks.length - 1); // the block that may go on
    // A line that is not whole yet may turn out to belong to the block before it.
    const line = part.lastIndexOf('\n') + 1, begin = blocks.slice(0, Math.max(last, 0)).reduce((sum, b) => sum + b.length, 0);
    if ((more || !final) && begin >= line) last = lastBlock(blocks, last - 1);
    if (more && last <= 0) return this.#startPlain(text, final);
    this.around(() => this.#show(blocks, final && !more ? blocks.length : Math.max(last, 0)));
    return !more;
  }

  // Blocks before `fixed` will not change; those from it on are made again with the next look.
  #show(blocks, fixed) {
    if (this.#growCode(blocks, fixed)) return;
    for (const n of this.open) n.remove();
    this.open = [];
    this.code = null;
    const state = { level: this.level };
    blocks.forEach((b, i) => {
      const made = build([b.node], state).map((n) => (typeof n === 'string' ? el('p', { dir: 'auto' }, n) : n));
      this.box.append(...made);
      setFormulas(made, this.around);
      if (i < fixed) {
        this.at += b.length;
        this.level = state.level;
        highlightAll(made);
      } else {
        this.open.push(...made);
        if (b.node?.t === 'pre' && i === blocks.length - 1) this.code = { text: b.node.text, language: b.node.language };
      }
    });
  }

  // Code that grows is appended to, so that a selection in it stays.
  #growCode(blocks, fixed) {
    const node = blocks[0]?.node;
    if (!this.code || fixed || blocks.length !== 1 || this.open.length !== 1 || node?.t !== 'pre') return false;
    if (node.language !== this.code.language || !node.text.startsWith(this.code.text)) return false;
    const shown = this.open[0].querySelector('code');
    if (shown.childNodes.length > 1) return false;
    shown.append(node.text.slice(this.code.text.length));
    shown.normalize();
    this.code.text = node.text;
    return true;
  }

  #startPlain(text, final) {
    for (const n of this.open) n.remove();
    this.open = [];
    this.code = null;
    this.plain = { box: el('div', { class: 'plain', dir: 'auto' }), shown: this.at, scanned: this.at };
    this.box.append(this.plain.box);
    return this.#growPlain(text, final);
  }

  #growPlain(text, final) {
    const p = this.plain, end = blockEnd(text, this.at, p.scanned), upto = end < 0 ? text.length : end;
    p.scanned = text.length;
    // A large step at once would take long to lay out.
    const now = Math.min(upto, p.shown + 400000);
    this.around(() => addPlain(p.box, text.slice(p.shown, now)));
    p.shown = now;
    if (now < upto) return false;
    if (end < 0 && !final) return true;
    this.at = upto;
    this.plain = null;
    return upto === text.length;
  }

  #showFormatted(text) {
    this.box.classList.remove('markdown');
    this.around(() => {
      if (text.length < LONG) return this.box.replaceChildren(formatted(text));
      if (!this.whole) this.box.replaceChildren(this.whole = el('div', { class: 'plain' }));
      addPlain(this.whole, text.slice(this.whole.textContent.length));
    });
    return true;
  }
}
