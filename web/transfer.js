// Chats as files: JSON with everything, every version of every message; Markdown with the branch that is shown, to be read and
// to be read back. Pure functions over {chat, messages}; tree.js says what a message has.
import { newId, newMessage, pathTo, titleOf } from './tree.js';

const FORMAT = 'evenkeel.chats';

// --- JSON ---

export function toJson(list) {
  return JSON.stringify({ format: FORMAT, version: 1, chats: list.map(({ chat, messages }) => ({ ...chat, messages: [...messages.values()] })) }, null, 1);
}

const text = (v) => (typeof v === 'string' ? v : '');
const whole = (v) => (Number.isSafeInteger(v) ? v : 0);

function file(f) {
  const kind = ['image', 'audio', 'pdf'].includes(f?.kind) ? f.kind : 'text';
  return { name: text(f?.name) || 'file', kind, type: text(f?.type) || 'text/plain', size: whole(f?.size), data: text(f?.data), ...(kind === 'pdf' ? { pages: f.pages === true } : {}) };
}

function call(c) {
  return { id: text(c?.id), type: 'function', function: { name: text(c?.function?.name), arguments: text(c?.function?.arguments) } };
}

// What a message of a file may bring along: known members of known types.
function checked(m) {
  const out = { role: m.role, content: text(m.content), created: whole(m.created) };
  if (m.role === 'user' && Array.isArray(m.files)) out.files = m.files.map(file);
  if (m.role === 'tool') Object.assign(out, { call: text(m.call), name: text(m.name) });
  if (m.role === 'assistant') {
    Object.assign(out, { reasoning: text(m.reasoning), calls: Array.isArray(m.calls) ? m.calls.map(call) : [], finish: text(m.finish) || null, stopped: m.stopped === true, seconds: Number(m.seconds) || 0 });
    if (m.continued === true) out.continued = true;
    if (/^[0-9a-f]{16}$/.test(m.digest)) out.digest = m.digest;
    if (Number.isSafeInteger(m.seed)) out.seed = m.seed;
    if (Number.isSafeInteger(m.usage?.prompt_tokens) && Number.isSafeInteger(m.usage?.completion_tokens))
      out.usage = { prompt_tokens: m.usage.prompt_tokens, completion_tokens: m.usage.completion_tokens, prompt_tokens_details: { cached_tokens: whole(m.usage.prompt_tokens_details?.cached_tokens) } };
  }
  if (m.refused) out.refused = { status: whole(m.refused.status), message: text(m.refused.message) };
  return out;
}

// New ids throughout: a file may be read twice, and beside the chat it came from.
function readChat(c) {
  if (!Array.isArray(c?.messages)) throw new Error('a chat has no list of messages');
  const id = newId(), ids = new Map(c.messages.map((m) => [m?.id, newId()]));
  const messages = new Map();
  for (const m of c.messages) {
    if (!['user', 'assistant', 'tool'].includes(m?.role)) throw new Error(`a message has the role ${JSON.stringify(m?.role)?.slice(0, 80)}`);
    const made = { ...checked(m), id: ids.get(m.id), chat: id, parent: ids.get(m.parent) ?? null };
    messages.set(made.id, made);
  }
  const leaf = ids.get(c.leaf) ?? [...messages.keys()].at(-1) ?? null;
  return { chat: { id, title: text(c.title).slice(0, 200) || titleOf(pathTo(messages, leaf)), named: c.named === true, created: whole(c.created), changed: whole(c.changed) || Date.now(), leaf }, messages };
}

export function fromJson(source) {
  const j = JSON.parse(source);
  if (j?.format !== FORMAT || j.version !== 1 || !Array.isArray(j.chats)) throw new Error('this is no export of this page');
  return j.chats.map(readChat);
}

// --- Markdown ---

const HEADS = { user: '## You', assistant: '## Answer', thought: '## Thought', call: '## Call of ', tool: '## Result', file: '## File ' };
const isHead = /^\\*## (?:You|Answer|Thought|Result|Call of .*|File .*)$/;

// A line of a message that looks like a head gets a backslash, and loses one when it is read.
const shield = (s) => s.split('\n').map((l) => (isHead.test(l) ? `\\${l}` : l)).join('\n');
const unshield = (s) => s.split('\n').map((l) => (l.startsWith('\\') && isHead.test(l) ? l.slice(1) : l)).join('\n');
const line = (s) => s.replace(/\s+/g, ' ').trim();

export function toMarkdown({ chat, messages }) {
  const out = [`# ${line(chat.title) || 'Chat'}`];
  const add = (head, body) => out.push(head, shield(body));
  for (const m of pathTo(messages, chat.leaf)) {
    if (m.refused) continue;
    if (m.role === 'tool') add(HEADS.tool, m.content);
    if (m.role === 'user') {
      for (const f of m.files ?? []) add(HEADS.file + line(f.name), f.kind === 'text' ? f.data : linkTo(f));
      add(HEADS.user, m.content);
    }
    if (m.role === 'assistant') {
      if (m.reasoning) add(HEADS.thought, m.reasoning);
      if (m.content || !m.calls?.length) add(HEADS.assistant, m.content);
      for (const c of m.calls ?? []) add(HEADS.call + line(c.function.name), c.function.arguments);
    }
  }
  return `${out.join('\n\n')}\n`;
}

// A picture or a sound as Markdown that other programs show, too: its bytes are in the link.
const linkTo = (f) => `${f.kind === 'image' ? '!' : ''}[${line(f.name).replace(/[[\]\\]/g, '')}](data:${f.type}${f.pages ? ';pages' : ''};base64,${f.data})`;
const LINK = /^!?\[[^\]\n]*\]\(data:((image|audio)\/[\w.+-]+|application\/pdf)(;pages)?;base64,([A-Za-z0-9+/]+={0,2})\)$/;

function fromLink(name, body) {
  const m = LINK.exec(body);
  if (!m) return { name, kind: 'text', type: 'text/plain', size: body.length, data: body };
  const [, type, kind, pages, data] = m;
  return { name, kind: kind ?? 'pdf', type, size: Math.floor((data.length * 3) / 4) - data.match(/=*$/)[0].length, data, ...(kind ? {} : { pages: Boolean(pages) }) };
}

// Sections of the text: [head, body].
function sections(source) {
  const out = [];
  for (const l of source.split('\n')) {
    if (isHead.test(l) && !l.startsWith('\\')) out.push([l, []]);
    else out.at(-1)?.[1].push(l);
  }
  return out.map(([head, body]) => [head, unshield(body.join('\n').replace(/^\n/, '').replace(/\n+$/, ''))]);
}

export function fromMarkdown(source) {
  const src = source.replace(/\r\n?/g, '\n'), id = newId(), now = Date.now(), messages = new Map();
  let tip = null, files = [], open = []; // open: calls that wait for their results
  const add = (role, more) => {
    const m = newMessage(id, tip?.id ?? null, role, more);
    messages.set(m.id, m);
    return (tip = m);
  };
  const answer = () => (tip?.role === 'assistant' ? tip : add('assistant', { reasoning: '', calls: [] }));
  for (const [head, body] of sections(src)) {
    if (head.startsWith(HEADS.file)) files.push(fromLink(head.slice(HEADS.file.length), body));
    else if (head === HEADS.user) {
      add('user', { content: body, files });
      files = [];
    } else if (head === HEADS.thought) add('assistant', { reasoning: body, calls: [] });
    else if (head === HEADS.assistant) {
      const m = tip?.role === 'assistant' && !tip.content && !tip.calls.length ? tip : add('assistant', { reasoning: '', calls: [] });
      m.content = body;
    } else if (head.startsWith(HEADS.call)) {
      const c = { id: `call_${newId()}`, type: 'function', function: { name: head.slice(HEADS.call.length), arguments: body } };
      answer().calls.push(c);
      open.push(c);
    } else {
      const c = open.shift();
      if (!c) throw new Error('a result stands without a call');
      add('tool', { content: body, call: c.id, name: c.function.name });
    }
  }
  if (!tip) throw new Error('no heading “## You” or “## Answer” is in it');
  const title = /^# (.+)/.exec(src)?.[1].trim().slice(0, 200);
  return [{ chat: { id, title: title || titleOf(pathTo(messages, tip.id)), named: Boolean(title), created: now, changed: now, leaf: tip.id }, messages }];
}
