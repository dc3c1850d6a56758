// The list of chats: search, open, rename, delete, export, import.
import { announce, byId, cut, download, el } from './dom.js';
import { allChats, findText, getChat, messagesOf, put, removeChat } from './store.js';
import { fromJson, fromMarkdown, toJson, toMarkdown } from './transfer.js';

let host = null; // {open(id), fresh(), current(), renamed(chat)}
let asking = null; // the id of the chat that is being renamed or deleted, with its mode

const when = (time) => {
  const d = new Date(time), day = 86400000;
  return Date.now() - time < day ? d.toLocaleTimeString([], { hour: '2-digit', minute: '2-digit' }) : d.toLocaleDateString();
};
const small = (label, click, more = {}) => el('button', { type: 'button', class: 'small', click, ...more }, label);
const fileName = (title) => title.replace(/[^\p{L}\p{N}]+/gu, '-').replace(/^-|-$/g, '').slice(0, 60) || 'chat';

async function save(chat, as) {
  const list = [{ chat, messages: await messagesOf(chat.id) }];
  if (as === 'json') download(`${fileName(chat.title)}.json`, 'application/json', toJson(list));
  else download(`${fileName(chat.title)}.md`, 'text/markdown', toMarkdown(list[0]));
}

function ask(id, mode) {
  asking = id ? { id, mode } : null;
  return refresh(true);
}

function renameForm(chat) {
  const field = el('input', { type: 'text', maxlength: '200', 'aria-label': 'Name of the chat' });
  field.value = chat.title;
  const form = el('form', { class: 'rename' }, field, el('button', { class: 'small' }, 'Rename'), small('Cancel', () => ask(null)));
  form.addEventListener('submit', async (e) => {
    e.preventDefault();
    const stored = (await getChat(chat.id)) ?? chat;
    Object.assign(stored, { title: field.value.trim() || chat.title, named: true });
    await put([stored]);
    host.renamed(stored);
    await ask(null);
    announce('Renamed.');
  });
  form.addEventListener('keydown', (e) => {
    if (e.key !== 'Escape') return;
    e.preventDefault();
    ask(null);
  });
  queueMicrotask(() => field.select());
  return form;
}

function deleteForm(chat) {
  const yes = small('Delete it', async () => {
    await removeChat(chat.id);
    if (host.current() === chat.id) host.fresh();
    await ask(null);
    announce('Deleted.');
    byId('search').focus();
  }, { class: 'small danger' });
  queueMicrotask(() => yes.focus());
  return el('div', { class: 'row', role: 'group', 'aria-label': 'Delete this chat?' }, yes, small('Keep it', () => ask(null)));
}

function acts(chat) {
  if (asking?.id === chat.id) return asking.mode === 'rename' ? renameForm(chat) : deleteForm(chat);
  return el('div', { class: 'acts' }, small('Rename', () => ask(chat.id, 'rename')), small('JSON', () => save(chat, 'json'), { 'aria-label': 'Export as JSON' }),
    small('Markdown', () => save(chat, 'md'), { 'aria-label': 'Export as Markdown' }), small('Delete', () => ask(chat.id, 'delete')));
}

function item(chat, snippet) {
  const open = host.current() === chat.id;
  return el('li', { class: open ? 'open' : null, 'data-id': chat.id },
    el('button', { type: 'button', class: 'entry', 'aria-current': open ? 'true' : null, click: () => host.open(chat.id) },
      el('span', { class: 'title' }, chat.title || 'New chat'), el('span', { class: 'time' }, when(chat.changed)), snippet ? el('span', { class: 'snippet' }, cut(snippet, 120)) : null),
    open ? acts(chat) : null);
}

let turn = 0; // of refreshes: only the newest writes

// The list again; the focus stays where it was. A name that is being typed stays, too, unless `anyway`.
export async function refresh(anyway) {
  const mine = ++turn, wanted = byId('search').value.trim();
  const chats = await allChats(), hits = wanted ? await findText(wanted) : new Map();
  if (mine !== turn) return;
  if (anyway !== true && byId('chats').querySelector('form.rename')) return;
  const shown = wanted ? chats.filter((c) => hits.has(c.id) || c.title.toLowerCase().includes(wanted.toLowerCase())) : chats;
  const focused = byId('chats').contains(document.activeElement) ? document.activeElement : null;
  const id = focused?.closest('li').dataset.id, at = focused ? [...focused.closest('li').querySelectorAll('button')].indexOf(focused) : 0;
  byId('chats').replaceChildren(...shown.map((c) => item(c, hits.get(c.id))));
  if (id) [...byId('chats').children].find((li) => li.dataset.id === id)?.querySelectorAll('button')[at]?.focus();
  if (wanted) byId('history-note').textContent = shown.length ? `${shown.length} of ${chats.length} chats` : 'No chat has that.';
  else byId('history-note').textContent = chats.length ? '' : 'Chats are kept in this browser and listed here.';
  byId('export-all').hidden = !chats.length;
}

async function readFiles(files) {
  const problems = [];
  let read = 0, last = null;
  for (const f of files) {
    try {
      const text = await f.text();
      const list = /^\s*\{/.test(text) ? fromJson(text) : fromMarkdown(text);
      await put(list.map((c) => c.chat), list.flatMap((c) => [...c.messages.values()]));
      read += list.length;
      last = list.at(-1)?.chat.id ?? last;
    } catch (e) {
      problems.push(`${cut(f.name)} is not imported: ${e.message}.`);
    }
  }
  if (last) await host.open(last);
  await refresh();
  byId('history-note').textContent = [read ? `${read} ${read === 1 ? 'chat' : 'chats'} imported.` : '', ...problems].join(' ').trim();
}

// kept: whether the browser keeps chats.
export function openHistory(callbacks, kept) {
  host = callbacks;
  let timer = 0;
  byId('search').addEventListener('input', () => {
    clearTimeout(timer);
    timer = setTimeout(refresh, 120);
  });
  for (const id of ['clear', 'fresh']) byId(id).addEventListener('click', () => host.fresh());
  byId('import').addEventListener('click', () => byId('import-file').click());
  byId('import-file').addEventListener('change', async () => {
    await readFiles([...byId('import-file').files]);
    byId('import-file').value = '';
  });
  byId('export-all').addEventListener('click', async () => {
    const list = await Promise.all((await allChats()).map(async (chat) => ({ chat, messages: await messagesOf(chat.id) })));
    download('evenkeel-chats.json', 'application/json', toJson(list));
  });
  refresh().then(() => { if (!kept) byId('history-note').textContent = 'This browser keeps nothing: chats live until the page is closed.'; });
}
