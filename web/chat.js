// The chat: messages as the API has them, and what they look like.
import { ApiError, stream } from './api.js';
import { announce, byId, el, flags, formatted } from './dom.js';
import { EXAMPLE_TOOLS, setTools } from './settings.js';

let messages = [];
let running = null; // the AbortController of the answer in progress
let noteSpeed = () => {};

const nearEnd = () => byId('scroll').scrollHeight - byId('scroll').scrollTop - byId('scroll').clientHeight < 80;
const toEnd = () => { byId('scroll').scrollTop = byId('scroll').scrollHeight; };

function busy(on) {
  byId('send').hidden = on;
  byId('stop').hidden = !on;
}

function show(node) {
  byId('empty').hidden = true;
  byId('log').append(node);
  toEnd();
}

function userMessage(text) {
  show(el('article', { class: 'message user', 'aria-label': 'You' }, el('div', { class: 'text' }, formatted(text))));
}

// --- tool calls ---

function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

function callCard(call) {
  const args = el('code');
  return { args, node: el('section', { class: 'call', 'aria-label': `Call of ${call.function.name}` },
    el('h3', {}, el('span', {}, 'calls '), el('b', {}, call.function.name)), el('pre', { tabindex: '0' }, args)) };
}

// Once all results are there, they are sent in the order of the calls.
function askForResults(card, calls) {
  const fields = calls.map((c, i) => {
    const id = `result-${messages.length}-${i}`;
    const field = el('textarea', { id, rows: '2', class: 'code', placeholder: '{"ok": true}', spellcheck: 'false' });
    card[i].node.append(el('label', { for: id }, `Result of ${c.function.name}`), field);
    return field;
  });
  const form = el('form', { class: 'row' }, el('button', { class: 'main' }, calls.length > 1 ? 'Send results' : 'Send result'));
  form.addEventListener('submit', (e) => {
    e.preventDefault();
    if (running) return;
    calls.forEach((c, i) => messages.push({ role: 'tool', tool_call_id: c.id, content: fields[i].value.trim() || '{}' }));
    for (const f of fields) f.readOnly = true;
    form.remove();
    answer();
  });
  card.at(-1).node.append(form);
}

// --- an answer ---

function figures(reply, seconds, stopped) {
  const u = reply.usage, parts = [];
  if (stopped) parts.push('stopped');
  else if (reply.finish === 'length') parts.push('cut at the token limit');
  if (u) {
    parts.push(`${u.completion_tokens} tokens`);
    if (seconds > 0.05 && u.completion_tokens > 1) parts.push(`${((u.completion_tokens - 1) / seconds).toFixed(1)} per second`);
    const cached = u.prompt_tokens_details?.cached_tokens ?? 0;
    parts.push(`prompt of ${u.prompt_tokens}${cached ? `, ${cached} from the cache` : ''}`);
  }
  const line = el('p', { class: 'figures' }, parts.join(' · '));
  if (reply.digest) line.append(parts.length ? ' · ' : '', el('span', { class: 'digest', title: 'digest of all logits of this answer' }, flags(reply.digest), reply.digest));
  return line;
}

function answerView() {
  const thought = el('div', { class: 'text' }), summary = el('summary', {}, 'Thinking…');
  const thinking = el('details', { class: 'thinking', hidden: true }, summary, thought);
  const text = el('div', { class: 'text' });
  const node = el('article', { class: 'message answer', 'aria-label': 'Answer', 'aria-busy': 'true' }, thinking, text);
  const cards = [];
  return {
    node, cards,
    update(reply) {
      const stick = nearEnd();
      thinking.hidden = !reply.reasoning;
      thought.textContent = reply.reasoning;
      if (reply.content || reply.calls.length) summary.textContent = 'Thought';
      text.replaceChildren(formatted(reply.content));
      reply.calls.forEach((c, i) => {
        if (!cards[i]) node.append((cards[i] = callCard(c)).node);
        cards[i].args.textContent = pretty(c.function.arguments);
      });
      if (stick) toEnd();
    },
    end(reply, seconds, stopped) {
      if (reply.reasoning) summary.textContent = 'Thought';
      node.removeAttribute('aria-busy');
      node.append(figures(reply, seconds, stopped));
      toEnd();
    },
  };
}

function errorCard(e) {
  const again = el('button', { type: 'button', class: 'quiet' }, 'Try again');
  const node = el('article', { class: 'message error', role: 'alert' }, el('p', {}, e.message),
    e.status === 401 || e.status === 403 ? el('p', {}, 'The server wants an API key: see Settings.') : null, again);
  again.addEventListener('click', () => {
    node.remove();
    if (!running) answer();
  });
  show(node);
}

function keep(reply) {
  const m = { role: 'assistant', content: reply.content || null };
  if (reply.calls.length) m.tool_calls = reply.calls;
  else m.content ??= '';
  messages.push(m);
}

// A new chat during an answer ends it: what still arrives belongs to no conversation.
async function answer() {
  const abort = (running = new AbortController()), view = answerView();
  let reply = { content: '', reasoning: '', calls: [], usage: null, digest: null }, first = 0;
  busy(true);
  show(view.node);
  announce('The model is answering.');
  const finish = (stopped) => view.end(reply, first ? (performance.now() - first) / 1000 : 0, stopped);
  let frame = 0;
  try {
    reply = await stream(messages, { signal: abort.signal, onChange(r) {
      reply = r;
      if (!first && (r.content || r.reasoning || r.calls.length)) first = performance.now();
      frame ||= requestAnimationFrame(() => { frame = 0; view.update(r); });
    } });
    cancelAnimationFrame(frame);
    view.update(reply);
    finish(false);
    if (running === abort) {
      keep(reply);
      if (reply.finish === 'tool_calls') askForResults(view.cards, reply.calls);
    }
    noteSpeed(reply, (performance.now() - first) / 1000);
    announce(reply.content || (reply.calls.length ? `The model calls ${reply.calls.map((c) => c.function.name).join(', ')}.` : 'The answer is empty.'));
  } catch (e) {
    cancelAnimationFrame(frame);
    reply.calls = []; // unfinished: their arguments may be cut
    view.update(reply);
    for (const c of view.cards) c.node.remove();
    if (running !== abort) return;
    if (reply.content || abort.signal.aborted) finish(true);
    else view.node.remove();
    if (reply.content) keep(reply);
    if (abort.signal.aborted) announce('Stopped.');
    else errorCard(e instanceof ApiError ? e : new ApiError(0, `The server cannot be reached (${e.message}).`));
  } finally {
    if (running === abort) {
      running = null;
      busy(false);
      byId('text').focus({ preventScroll: true });
    }
  }
}

// --- the form ---

function send(text) {
  if (!text || running) return;
  messages.push({ role: 'user', content: text });
  userMessage(text);
  byId('text').value = '';
  fit();
  answer();
}

function clear() {
  const old = running;
  running = null;
  old?.abort();
  busy(false);
  messages = [];
  byId('log').replaceChildren();
  byId('empty').hidden = false;
  byId('text').focus();
  announce('New chat.');
}

// The field grows with its text.
function fit() {
  const t = byId('text');
  t.style.height = 'auto';
  t.style.height = `${Math.min(t.scrollHeight + 2, 220)}px`;
}

export function openChat(onSpeed) {
  noteSpeed = onSpeed;
  byId('ask').addEventListener('submit', (e) => {
    e.preventDefault();
    send(byId('text').value.trim());
  });
  byId('text').addEventListener('keydown', (e) => {
    if (e.key !== 'Enter' || e.shiftKey || e.isComposing) return;
    e.preventDefault();
    send(byId('text').value.trim());
  });
  byId('text').addEventListener('input', fit);
  byId('stop').addEventListener('click', () => running?.abort());
  byId('clear').addEventListener('click', clear);
  for (const b of document.querySelectorAll('[data-example]'))
    b.addEventListener('click', () => {
      if (b.dataset.tools && !byId('tools').value.trim()) setTools(EXAMPLE_TOOLS);
      send(b.dataset.example);
    });
}
