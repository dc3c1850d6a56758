// The same request many times, at random moments, and whether all digests agree.
import { stream, whole } from './api.js';
import { byId, el, flags } from './dom.js';
import { Rendered } from './markdown.js';
import { settings } from './settings.js';

let running = null; // AbortController
let given = null;   // {messages, digest, seed, continued}: the request of an answer in the chat, in place of a prompt

const value = (id) => Number(byId(id).value);
const wait = (ms, signal) => new Promise((done, fail) => {
  const timer = setTimeout(done, ms);
  signal.addEventListener('abort', () => { clearTimeout(timer); fail(new Error('stopped')); });
});

function lane(number, streamed) {
  const waitBar = el('i', { class: 'wait' }), runBar = el('i', { class: 'run' });
  const digest = el('span', { class: 'digest' }), state = el('span', { class: 'state' }, 'waits');
  const node = el('li', {}, el('span', { class: 'number' }, String(number)),
    el('span', { class: 'track', 'aria-hidden': 'true', title: streamed ? 'streamed' : 'in one piece' }, waitBar, runBar), digest, state);
  return { node, digest, state, waitBar, runBar, start: 0, first: 0, end: 0 };
}

// Bars on a common scale: from the start of the run to now.
function draw(lanes, now) {
  const share = (t) => `${Math.min(100, (100 * t) / now).toFixed(2)}%`;
  for (const l of lanes) {
    const end = l.end || now, first = l.first || end;
    if (!l.start) continue;
    Object.assign(l.waitBar.style, { left: share(l.start), width: share(first - l.start) });
    Object.assign(l.runBar.style, { left: share(first), width: share(end - first) });
  }
}

async function one(l, i, begin, messages, more, signal) {
  const now = () => performance.now() - begin;
  await wait(Math.random() * value('same-delay'), signal);
  l.start = now();
  l.state.textContent = 'runs';
  const ask = i % 2 ? whole : stream;
  const reply = await ask(messages, { signal, more, onChange: (r) => { if (r.content || r.reasoning) l.first ||= now(); } });
  l.end = now();
  if (reply.digest) l.digest.append(flags(reply.digest), reply.digest);
  return reply;
}

// Whether the answer in the chat had that digest. It is another request if settings changed since, or its rest was asked for.
function besideTheChat(digest) {
  if (!given?.digest) return '';
  if (given.digest === digest) return ' So is the answer in the chat.';
  return given.continued ? ' The answer in the chat was continued: its digest is of the last part.' : ' The answer in the chat differs: its settings or its seed were others.';
}

function judge(lanes, replies) {
  const digests = new Map();
  for (const r of replies) if (r) digests.set(r.digest, (digests.get(r.digest) ?? 0) + 1);
  const most = [...digests].sort((a, b) => b[1] - a[1])[0]?.[0];
  lanes.forEach((l, i) => {
    const r = replies[i];
    l.state.textContent = !r ? 'failed' : r.digest === most ? 'same' : 'differs';
    l.node.className = !r ? 'failed' : r.digest === most ? 'same' : 'differs';
  });
  const done = replies.filter(Boolean).length, n = replies.length;
  const verdict = byId('same-verdict');
  const good = digests.size === 1 && done === n;
  verdict.className = `verdict ${good ? 'good' : 'bad'}`;
  if (good) verdict.replaceChildren(`All ${n} answers are the same, to the last bit of every logit.${besideTheChat(most)}`);
  else if (digests.size > 1) verdict.replaceChildren(`${digests.size} different digests among ${done} answers.`);
  else verdict.replaceChildren(`${n - done} of ${n} requests failed${done ? '; the others are the same.' : '.'}`);
}

function showAnswer(reply) {
  const box = byId('same-answer');
  box.hidden = !reply;
  if (!reply) return;
  const text = el('div', { class: 'text' });
  box.querySelector('.text').replaceWith(text);
  new Rendered(text).set(reply.content || reply.calls.map((c) => `${c.function.name}(${c.function.arguments})`).join('\n'), true);
}

function busy(on) {
  byId('same-run').hidden = on;
  byId('same-stop').hidden = !on;
}

async function run() {
  const abort = (running = new AbortController()), n = value('same-count'), begin = performance.now();
  const more = given ? {} : { max_tokens: value('same-tokens') };
  // One seed for all, drawn here if the settings have none.
  if (settings().seed === null) more.seed = given?.seed ?? Math.floor(Math.random() * 2 ** 31);
  const messages = given?.messages ?? [{ role: 'user', content: byId('same-text').value.trim() || 'Hello' }];
  const lanes = Array.from({ length: n }, (_, i) => lane(i + 1, i % 2 === 0));
  byId('same-lanes').replaceChildren(...lanes.map((l) => l.node));
  byId('same-verdict').className = 'verdict';
  byId('same-verdict').textContent = `${n} requests are on their way.`;
  showAnswer(null);
  byId('same-verdict').scrollIntoView({ block: 'nearest' });
  busy(true);
  const timer = setInterval(() => draw(lanes, performance.now() - begin), 60);
  let problem = null;
  const replies = await Promise.all(lanes.map((l, i) => one(l, i, begin, messages, more, abort.signal).catch((e) => {
    problem ??= abort.signal.aborted ? null : e.message;
    l.end = l.start ? performance.now() - begin : 0;
    return null;
  })));
  clearInterval(timer);
  draw(lanes, performance.now() - begin);
  judge(lanes, replies);
  if (problem) byId('same-verdict').append(` ${problem}`);
  showAnswer(replies.find(Boolean));
  byId('same-verdict').scrollIntoView({ block: 'nearest' });
  running = null;
  busy(false);
}

// What is asked: the request of an answer, or a prompt.
function show(what) {
  given = what;
  byId('same-given').hidden = !given;
  byId('same-prompt').hidden = byId('same-limit').hidden = Boolean(given);
  byId('same-tokens').disabled = Boolean(given);
  if (given) byId('same-of').textContent = given.messages.length > 1 ? `The conversation of ${given.messages.length} messages is asked again, with the settings of now.` : 'The message of the chat is asked again, with the settings of now.';
}

// Asks for an answer of the chat again, 8 times.
export async function again(what) {
  running?.abort();
  while (running) await new Promise((good) => { setTimeout(good, 20); });
  show(what);
  byId('same-count').value = 8;
  run();
}

export function openSame() {
  byId('same-own').addEventListener('click', () => {
    show(null);
    byId('same-text').focus();
  });
  byId('same-form').addEventListener('submit', (e) => {
    e.preventDefault();
    if (!running) run();
  });
  byId('same-stop').addEventListener('click', () => running?.abort());
}
