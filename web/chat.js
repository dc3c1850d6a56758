// The conversation on the screen: a path through its tree of messages, and the answer in progress.
import { ApiError, stream } from './api.js';
import { busy, focusField, openComposer } from './composer.js';
import { announce, byId, el } from './dom.js';
import { answerView, refusedView, userView } from './message.js';
import { giveBack } from './settings.js';
import { getChat, messagesOf, put } from './store.js';
import { newId, newMessage, newestBelow, pathTo, tipOf, titleOf, toApi, versionsOf } from './tree.js';

const TAB = 'evenkeel.chat'; // the chat of this tab, which a reload shows again
const SAVE_EVERY = 1000;     // ms between savings of an answer in progress, which leaving the page saves, too
let chat = null;             // {id, title, named, created, changed, leaf}; null: a new one, not stored yet
let messages = new Map();
let running = null;          // the AbortController of the answer in progress
let context = null;          // tokens the model can read
let tell = { changed() {}, speed() {}, same() {} };

const scroll = byId('scroll');
const nearEnd = () => scroll.scrollHeight - scroll.scrollTop - scroll.clientHeight < 80;
const toEnd = () => { scroll.scrollTop = scroll.scrollHeight; };
function around(f) {
  const stick = nearEnd();
  f();
  if (stick) toEnd();
}

export const current = () => chat?.id ?? null;

export function setContext(tokens) {
  context = tokens;
  showContext();
}

function showContext() {
  const u = chat && pathTo(messages, chat.leaf).findLast((m) => m.usage)?.usage;
  const used = u ? u.prompt_tokens + u.completion_tokens : 0;
  byId('context').replaceChildren(...(u ? [el('span', {}, `${used.toLocaleString('en')}${context ? ` of ${context.toLocaleString('en')}` : ''} tokens`)] : []));
  byId('context').dataset.short = !u ? '' : context ? `${Math.ceil((100 * used) / context)} %` : String(used); // where there is no room
}

// Writing may fail (a full disk): the conversation goes on and says so.
async function save(chats, list = []) {
  try {
    await put(chats, list);
    tell.changed();
  } catch (e) {
    announce(`The browser does not keep this chat: ${e.message}`);
  }
}

function touch(leaf) {
  Object.assign(chat, { leaf, changed: Date.now() });
  if (!chat.named) chat.title = titleOf(pathTo(messages, leaf));
}

// --- showing ---

const acts = {
  around,
  versions: (m) => versionsOf(messages, m),
  choose(id) {
    if (running) return;
    touch(newestBelow(messages, id));
    save([chat]);
    show();
  },
  edit(m, text) {
    if (running) return;
    say(newMessage(chat.id, m.parent, 'user', { content: text, files: m.files ?? [] }));
  },
  again(m) {
    if (!running) answer(m.parent);
  },
  goOn(m) {
    if (!running) answer(m.id, m);
  },
  retry(m) {
    if (running) return;
    const group = pathTo(messages, chat.leaf).filter((p) => p.refused && (p.id === m.id || p.role === 'tool'));
    for (const p of group) delete p.refused;
    save([chat], group);
    show();
    answer(chat.leaf);
  },
  results(m, texts) {
    if (running) return;
    let parent = m.id;
    const list = m.calls.map((c, i) => {
      const r = newMessage(chat.id, parent, 'tool', { content: texts[i], call: c.id, name: c.function.name });
      parent = r.id;
      messages.set(r.id, r);
      return r;
    });
    touch(parent);
    save([chat], list);
    show();
    answer(parent);
  },
  same(m) {
    tell.same({ messages: request(m.parent), digest: m.digest, seed: m.seed, continued: Boolean(m.continued) });
  },
  async branch(m) {
    if (running) return;
    const path = pathTo(messages, m.id).filter((p) => !p.refused), id = newId(), now = Date.now(), list = [];
    let parent = null;
    for (const p of path) {
      list.push({ ...structuredClone(p), id: newId(), chat: id, parent });
      parent = list.at(-1).id;
    }
    await save([{ id, title: `${chat.title} (branch)`, named: true, created: now, changed: now, leaf: parent }], list);
    await openChat(id);
    announce('A new chat that begins with this one.');
  },
};

function showAnswer(m, path, i) {
  const results = [];
  for (let k = i + 1; path[k]?.role === 'tool'; k++) results.push(path[k]);
  const view = answerView(acts);
  byId('log').append(view.node);
  const shown = view.update({ content: m.content, reasoning: m.reasoning ?? '', calls: m.calls ?? [] }, true);
  view.end(m, { given: results.length ? new Map(results.map((r) => [r.call, r.content])) : null, last: i + results.length === path.length - 1, context });
  return shown;
}

// The whole path, from the tree.
async function show() {
  const path = chat ? pathTo(messages, chat.leaf) : [], shown = [];
  byId('log').replaceChildren();
  byId('empty').hidden = path.length > 0;
  path.forEach((m, i) => {
    if (m.role === 'user') byId('log').append(userView(m, acts).node);
    else if (m.role === 'assistant') shown.push(showAnswer(m, path, i));
    if (m.refused && !path[i + 1]?.refused) byId('log').append(refusedView(m, acts));
  });
  showContext();
  toEnd();
  await Promise.all(shown);
}

// --- an answer ---

const isEmpty = (m) => !m.content && !m.reasoning && !m.calls?.length;

// Seconds per token times tokens: from the first token on, unless all came at once.
function duration(reply, asked, first) {
  const now = performance.now(), n = reply.usage?.completion_tokens ?? 0, since = now - first;
  return (first && since > 50 && n > 1 ? (since * n) / (n - 1) : now - asked) / 1000;
}

// What the server did not take is marked, with results of tools as a group; a message that has an answer already stays.
function refuse(parent, e) {
  const group = [];
  for (let m = messages.get(parent); m && (m.role === 'tool' || (m.role === 'user' && !group.length)); m = messages.get(m.parent)) group.push(m);
  if (!group.length || [...messages.values()].some((m) => m.parent === group[0].id)) return false;
  for (const m of group) m.refused = { status: e.status, message: e.message };
  save([chat], group);
  return true;
}

function problem(e) {
  byId('log').append(el('div', { class: 'message error', role: 'alert' }, el('p', {}, e.message)));
  toEnd();
}

// What is sent for the answer to a message.
const request = (parent) => toApi(pathTo(messages, parent)).filter((m) => m.role !== 'assistant' || m.content || m.tool_calls);

// Asks for the answer to a message, or for more of the answer `more`.
async function answer(parent, more = null) {
  const home = chat, abort = (running = new AbortController()), before = chat.leaf, base = more?.content ?? '';
  const asks = request(parent);
  const m = more ?? newMessage(chat.id, parent, 'assistant', { reasoning: '' });
  const here = () => running === abort;
  if (!more && chat.leaf !== parent) { // another answer: what followed the first one goes from the screen
    touch(parent);
    show();
  }
  const view = answerView(acts);
  if (more) byId('log').lastElementChild.replaceWith(view.node);
  else byId('log').append(view.node);
  toEnd();
  busy(true);
  announce('The model is answering.');
  const asked = performance.now();
  let reply = { content: '', reasoning: '', calls: [] }, first = 0, frame = 0, saved = asked;
  const kept = more?.reasoning ?? '';
  const texts = () => ({ content: base + reply.content, reasoning: kept + reply.reasoning });
  const keepPart = () => { // a reload in the middle keeps what came
    saved = performance.now();
    if (first) save([{ ...home, leaf: m.id }], [{ ...m, ...texts(), stopped: true }]);
  };
  addEventListener('pagehide', keepPart);
  try {
    reply = await stream(asks, { signal: abort.signal, more: more ? { continue_final_message: true, add_generation_prompt: false } : {}, onChange(r) {
      reply = r;
      if (!first && (r.content || r.reasoning || r.calls.length)) first = performance.now();
      if (here()) frame ||= requestAnimationFrame(() => { frame = 0; view.update({ ...texts(), calls: r.calls }); });
      if (first && performance.now() - saved > SAVE_EVERY) keepPart();
    } });
    const { finish, usage, digest, seed } = reply;
    Object.assign(m, { ...texts(), calls: reply.calls.filter(Boolean), finish, usage, digest, seed, continued: Boolean(more), stopped: false, seconds: duration(reply, asked, first) });
    keep(home, m, here());
    if (!here()) return;
    view.update({ ...m }, true);
    view.end(m, { given: null, last: true, context });
    tell.speed(reply, m.seconds);
    announce(m.content || (m.calls.length ? `The model calls ${m.calls.map((c) => c.function.name).join(', ')}.` : 'The answer is empty.'));
  } catch (e) {
    const error = e instanceof ApiError ? e : new ApiError(0, `The server cannot be reached (${e.message}).`);
    reply.calls = []; // unfinished: their arguments may be cut
    Object.assign(m, { ...texts(), calls: [], stopped: true, finish: null, usage: more?.usage ?? null, digest: null, seconds: 0 });
    if (!isEmpty(m)) keep(home, m, here());
    if (!here()) return;
    cancelAnimationFrame(frame);
    view.dropCalls();
    if (abort.signal.aborted || !isEmpty(m)) {
      view.update(m, true);
      view.end(m, { given: null, last: true, context });
      if (abort.signal.aborted) announce('Stopped.');
      else problem(error);
    } else if (refuse(parent, error)) {
      show();
    } else {
      touch(before);
      save([chat]);
      show();
      problem(error);
    }
  } finally {
    removeEventListener('pagehide', keepPart);
    cancelAnimationFrame(frame);
    if (here()) {
      running = null;
      busy(false);
      showContext();
      focusField();
    }
  }
}

// Stores a message of a chat, which may have left the screen.
function keep(home, m, here) {
  if (here) {
    messages.set(m.id, m);
    touch(m.id);
  } else Object.assign(home, { leaf: m.id, changed: Date.now() });
  save([home], [m]);
}

// --- sending, new chats, stored ones ---

function say(m) {
  const jumps = chat.leaf !== m.parent;
  messages.set(m.id, m);
  touch(m.id);
  save([chat], [m]);
  if (jumps) show();
  else {
    byId('empty').hidden = true;
    byId('log').append(userView(m, acts).node);
    toEnd();
  }
  answer(m.id);
}

// Whether it was taken.
export function send(text, files = []) {
  if (running) return false;
  const now = Date.now();
  if (!chat) setChat({ id: newId(), title: '', named: false, created: now, changed: now, leaf: null }, new Map());
  say(newMessage(chat.id, tipOf(messages, chat.leaf), 'user', { content: text, files: files.map(({ name, kind, type, size, data, pages }) => ({ name, kind, type, size, data, ...(kind === 'pdf' ? { pages } : {}) })) }));
  return true;
}

function setChat(record, list) {
  chat = record;
  messages = list;
  try {
    sessionStorage.setItem(TAB, record?.id ?? '');
  } catch { /* the next reload shows a new chat */ }
}

// An answer in progress ends where another chat is shown: what came of it is kept in its own chat.
function leave() {
  const old = running;
  running = null;
  old?.abort();
  busy(false);
}

export function newChat() {
  leave();
  giveBack();
  setChat(null, new Map());
  show();
  tell.changed();
  focusField();
  announce('New chat.');
}

export async function openChat(id) {
  const record = await getChat(id), list = record && await messagesOf(id);
  if (!record) return false;
  leave();
  if (chat && chat.id !== id) giveBack();
  setChat(record, list);
  const last = list.get(record.leaf);
  if (last && last.role !== 'assistant' && !last.refused) refuse(last.id, { status: 0, message: 'This message has no answer yet.' });
  tell.changed();
  await show();
  toEnd();
  return true;
}

// Begins to edit the last message of a person that is shown; whether there is one.
export function editLast() {
  const edit = running ? null : [...byId('log').querySelectorAll('.edit-it')].at(-1);
  edit?.click();
  return Boolean(edit);
}

// A chat that was renamed or removed elsewhere on the page.
export function renamed(record) {
  if (chat?.id === record.id) Object.assign(chat, { title: record.title, named: true });
}

export async function openConversation(told) {
  tell = told;
  openComposer(send, () => running?.abort());
  let id = '';
  try {
    id = sessionStorage.getItem(TAB) ?? '';
  } catch { /* a new chat */ }
  if (id && (await openChat(id))) return;
  giveBack();
  show();
}
