// The message field with what goes along: attached files, and chips for settings that change the request.
import { ACCEPT, describe, read, takes } from './attach.js';
import { announce, byId, cut, el } from './dom.js';
import { preview } from './media.js';
import { change, onSettings, settings } from './settings.js';

const DRAFT = 'evenkeel.draft';
let files = [];

// The field grows with its text.
function fit() {
  const t = byId('text');
  t.style.height = 'auto';
  t.style.height = `${Math.min(t.scrollHeight + 2, 220)}px`;
}

function keepDraft() {
  try {
    sessionStorage.setItem(DRAFT, byId('text').value);
  } catch { /* too long, or forbidden */ }
}

export function setText(text) {
  byId('text').value = text;
  keepDraft();
  fit();
}

// --- chips ---

function chip(label, title, open, remove, before = null) {
  return el('li', { class: before ? 'seen' : null }, before, open ? el('button', { type: 'button', class: 'label', title, click: open }, label) : el('span', { class: 'label', title }, label),
    el('button', { type: 'button', class: 'remove', 'aria-label': `Remove: ${label}`, click: remove }, '×'));
}

// A file's thumbnail or player, made once: chips are shown again at every change.
const previews = new WeakMap();
function seen(file) {
  if (!previews.has(file)) previews.set(file, preview(file));
  return previews.get(file);
}

// A PDF goes along as its text or as pictures of its pages: where the server can do both, its chip says which, and changes it.
const label = (f) => (f.kind === 'pdf' ? `${cut(f.name, 24)}: ${f.pages ? 'pages' : 'text'}` : cut(f.name, 30));
function choice(f) {
  if (f.kind !== 'pdf' || takes.pdf.length < 2) return null;
  return () => {
    const at = files.indexOf(f);
    f.pages = !f.pages;
    showChips();
    byId('chips').querySelectorAll('li')[at]?.querySelector('button').focus();
    announce(`${cut(f.name)}: ${f.pages ? 'pictures of its pages' : 'its text'}.`);
  };
}

function showChips() {
  const s = settings(), toSettings = () => byId('settings').checkVisibility() || document.querySelector('.views [data-view=settings]').click(), out = [];
  files.forEach((f, i) => out.push(chip(label(f), describe(f), choice(f), () => { files.splice(i, 1); showChips(); byId('text').focus(); }, seen(f))));
  const off = (values, what) => () => { change(values); announce(`${what} removed.`); byId('text').focus(); };
  if (s.tools) {
    const names = s.tools.map((t) => t.function.name).join(', ');
    out.push(chip(cut(s.tools.length === 1 ? `tool: ${names}` : `${s.tools.length} tools: ${names}`, 50), `tools that the model may call: ${cut(names, 300)}`, toSettings, off({ tools: null }, 'Tools')));
  }
  if (s.schema) out.push(chip('answer by schema', 'the answer is JSON of a schema', toSettings, off({ schema: null }, 'Schema')));
  if (s.thinking) out.push(chip('thinking', 'the model thinks before it answers', toSettings, off({ thinking: false }, 'Thinking')));
  if (s.system) out.push(chip('system prompt', cut(s.system, 300), toSettings, off({ system: '' }, 'System prompt')));
  byId('chips').replaceChildren(...out);
  byId('chips').hidden = !out.length;
}

// --- files ---

async function add(list) {
  const problems = [];
  for (const f of list) {
    try {
      files.push(await read(f));
    } catch (e) {
      problems.push(e.message);
    }
  }
  byId('attach-note').textContent = problems.join(' ');
  showChips();
}

function openFiles() {
  for (const [id, accept] of Object.entries(ACCEPT))
    byId(id).addEventListener('click', () => {
      byId('files').accept = accept;
      byId('files').click();
    });
  byId('files').addEventListener('change', async () => {
    await add([...byId('files').files]);
    byId('files').value = '';
    byId('text').focus();
  });
  byId('text').addEventListener('paste', (e) => {
    if (!e.clipboardData?.files.length) return;
    e.preventDefault();
    add([...e.clipboardData.files]);
  });
  openDrops();
}

// Files may be dropped anywhere on the page: the browser would open them in its place, as it does links and pictures. Only
// fields take dropped texts.
function openDrops() {
  const over = (on) => byId('chat').classList.toggle('over', on);
  const ours = (e) => e.dataTransfer?.types.includes('Files') || !e.target.closest?.('textarea, input');
  document.addEventListener('dragover', (e) => {
    if (!ours(e)) return;
    e.preventDefault();
    const files = e.dataTransfer?.types.includes('Files') ?? false;
    if (e.dataTransfer) e.dataTransfer.dropEffect = files ? 'copy' : 'none';
    over(files);
  });
  document.addEventListener('dragleave', (e) => { if (!e.relatedTarget) over(false); });
  document.addEventListener('drop', (e) => {
    over(false);
    if (!ours(e)) return;
    e.preventDefault();
    if (!e.dataTransfer?.files.length) return;
    if (!byId('chat').checkVisibility()) document.querySelector('.views [data-view=chat]').click();
    add([...e.dataTransfer.files]);
  });
}

// --- the form ---

export function busy(on) {
  byId('send').hidden = on;
  byId('stop').hidden = !on;
}

// What the model takes besides text: its buttons are there only then.
export function setModel(model) {
  Object.assign(takes, { image: model.image, audio: model.audio, pdf: model.pdf });
  byId('picture').hidden = !model.image;
  byId('sound').hidden = !model.audio;
}

export const focusField = () => byId('text').focus({ preventScroll: true });

// send(text, files) → whether it was taken; stop() ends an answer.
export function openComposer(send, stop) {
  const submit = () => {
    const text = byId('text').value.trim();
    if ((!text && !files.length) || !send(text, files)) return;
    files = [];
    byId('attach-note').textContent = '';
    setText('');
    showChips();
  };
  byId('ask').addEventListener('submit', (e) => {
    e.preventDefault();
    submit();
  });
  byId('text').addEventListener('keydown', (e) => {
    if (e.key !== 'Enter' || e.shiftKey || e.isComposing) return;
    e.preventDefault();
    submit();
  });
  byId('text').addEventListener('input', () => {
    fit();
    keepDraft();
  });
  byId('stop').addEventListener('click', stop);
  document.addEventListener('keydown', (e) => { if (e.key === 'Escape' && !e.defaultPrevented && !e.isComposing && !document.querySelector('dialog[open]')) stop(); });
  openFiles();
  onSettings(showChips);
  showChips();
  try {
    setText(sessionStorage.getItem(DRAFT) ?? '');
  } catch { /* nothing is kept */ }
}
