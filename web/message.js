// What messages look like. The caller's acts: versions(m), choose(id), edit(m, text), again(m), goOn(m), branch(m),
// results(m, texts), retry(m), same(m), around(f).
import { describe } from './attach.js';
import { addPlain, copyButton, cut, el, flags, formatted, LONG } from './dom.js';
import { Rendered } from './markdown.js';
import { preview } from './media.js';

const small = (label, act, more = {}) => el('button', { type: 'button', class: 'small', click: act, ...more }, label);

// "2 of 3" with a step to either side, where a message has versions.
function versions(m, acts) {
  const all = acts.versions(m), at = all.findIndex((v) => v.id === m.id);
  if (all.length < 2) return null;
  const step = (by, label, text) => small(text, () => acts.choose(all[at + by].id), { 'aria-label': label, disabled: !all[at + by] });
  return el('span', { class: 'versions', role: 'group', 'aria-label': 'Versions' }, step(-1, 'Version before', '‹'), el('span', {}, `${at + 1} of ${all.length}`), step(1, 'Next version', '›'));
}

// --- what a person wrote ---

function editForm(m, view, acts) {
  const field = el('textarea', { rows: '3', 'aria-label': 'Your message, to be sent again' });
  field.value = m.content;
  const back = () => { form.replaceWith(view.node); view.node.querySelector('.small')?.focus(); };
  const form = el('form', { class: 'message edit' }, field,
    el('div', { class: 'row' }, el('button', { class: 'main' }, 'Send'), el('button', { type: 'button', class: 'quiet', click: back }, 'Cancel')));
  form.addEventListener('submit', (e) => {
    e.preventDefault();
    if (field.value.trim() || m.files?.length) acts.edit(m, field.value.trim());
  });
  form.addEventListener('keydown', (e) => {
    if (e.key === 'Escape') {
      e.preventDefault();
      back();
    } else if (e.key === 'Enter' && !e.shiftKey && !e.isComposing && e.target === field) {
      e.preventDefault();
      form.requestSubmit();
    }
  });
  view.node.replaceWith(form);
  field.focus();
}

export function userView(m, acts) {
  const view = {};
  const files = m.files?.length ? el('ul', { class: 'files', 'aria-label': 'Attached' }, ...m.files.map((f) => el('li', {}, preview(f, acts.around), el('span', { class: 'name' }, cut(describe(f), 60))))) : null;
  view.node = el('article', { class: 'message user', 'aria-label': 'You' }, el('div', { class: 'bubble' }, files, el('div', { class: 'text', dir: 'auto' }, formatted(m.content))),
    el('div', { class: 'acts' }, versions(m, acts), small('Edit', () => editForm(m, view, acts), { class: 'small edit-it' }), copyButton('Copy', () => m.content), small('Branch', () => acts.branch(m), { title: 'a new chat that begins with all up to here' })));
  return view;
}

// --- tool calls ---

function pretty(text) {
  if (text.length >= LONG) return text;
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

function callCard(call) {
  const args = el('code'), name = cut(call.function.name, 200);
  return { args, name, shown: null, node: el('div', { class: 'call', role: 'group', 'aria-label': `Call of ${name}` },
    el('p', { class: 'name' }, el('span', {}, 'calls '), el('b', {}, name)), el('pre', { tabindex: '0', role: 'group', 'aria-label': `Arguments of ${name}` }, args)) };
}

function showArguments(card, text) {
  if (text === card.shown) return;
  card.shown = text;
  const nice = pretty(text);
  if (nice.length < LONG) card.args.replaceChildren(nice);
  else {
    card.args.replaceChildren();
    addPlain(card.args, nice);
  }
}

// Fields for the results; what is there already is shown and stays. All are sent in the order of the calls.
function resultFields(m, cards, given, acts) {
  const fields = m.calls.map((c, i) => {
    const id = `result-${m.id}-${i}`;
    const field = el('textarea', { id, rows: '2', class: 'code', placeholder: '{"ok": true}', spellcheck: 'false', readonly: Boolean(given) });
    field.value = given?.get(c.id) ?? '';
    cards[i].node.append(el('label', { for: id }, `Result of ${cards[i].name}`), field);
    return field;
  });
  if (given) return;
  const form = el('form', { class: 'row' }, el('button', { class: 'main' }, m.calls.length > 1 ? 'Send results' : 'Send result'));
  form.addEventListener('submit', (e) => {
    e.preventDefault();
    acts.results(m, fields.map((f) => f.value.trim() || '{}'));
  });
  cards.at(-1).node.append(form);
}

// --- an answer ---

function figures(m, context, acts) {
  const u = m.usage, parts = [];
  if (m.stopped) parts.push('stopped');
  else if (m.finish === 'length') parts.push('cut at the token limit');
  if (u) {
    parts.push(`${u.completion_tokens} tokens`);
    if (m.seconds > 0) parts.push(`${(u.completion_tokens / m.seconds).toFixed(1)} per second`);
    const cached = u.prompt_tokens_details?.cached_tokens ?? 0;
    parts.push(`prompt of ${u.prompt_tokens}${cached ? `, ${cached} from the cache` : ''}`);
    if (context) parts.push(`context ${Math.ceil((100 * (u.prompt_tokens + u.completion_tokens)) / context)} % used`);
  }
  const line = el('p', { class: 'figures' }, parts.join(' · '));
  if (m.digest) line.append(parts.length ? ' · ' : '', el('span', { class: 'digest', title: 'digest of all logits of this answer' }, flags(m.digest), m.digest),
    small('Ask this again 8 times', () => acts.same(m), { title: 'the same request at random moments: do all digests agree?' }));
  return line;
}

// A view that grows with update(reply) and ends with end(m, …); a stored answer is both at once.
export function answerView(acts) {
  const thought = el('div', { class: 'text', dir: 'auto' }), summary = el('summary', {}, 'Thinking…');
  const thinking = el('details', { class: 'thinking', hidden: true }, summary, thought);
  const text = el('div', { class: 'text' });
  const node = el('article', { class: 'message answer', 'aria-label': 'Answer', 'aria-busy': 'true' }, thinking, text);
  const cards = [], rendered = new Rendered(text, acts.around);
  let thoughtShown = 0, shown = Promise.resolve();
  return {
    node,
    update(reply, final = false) {
      acts.around(() => {
        thinking.hidden = !reply.reasoning;
        if (reply.reasoning.length > thoughtShown) addPlain(thought, reply.reasoning.slice(thoughtShown));
        thoughtShown = reply.reasoning.length;
        if (final || reply.content || reply.calls.length) summary.textContent = 'Thought';
        reply.calls.forEach((c, i) => {
          if (!c) return;
          if (!cards[i]) node.append((cards[i] = callCard(c)).node);
          showArguments(cards[i], c.function.arguments);
        });
      });
      return (shown = rendered.set(reply.content, final));
    },
    dropCalls() {
      for (const c of cards.splice(0)) c.node.remove();
    },
    // given: results by the id of their call, null where they are still to come; last: nothing follows.
    end(m, { given, last, context }) {
      shown.then(() => node.removeAttribute('aria-busy'));
      acts.around(() => this.close(m, given, last, context));
    },
    close(m, given, last, context) {
      if (m.calls?.length && (given || last)) resultFields(m, cards, given, acts);
      node.append(figures(m, context, acts), el('div', { class: 'acts' }, versions(m, acts), copyButton('Copy', () => m.content || (m.calls ?? []).map((c) => `${c.function.name}(${c.function.arguments})`).join('\n')),
        small('Regenerate', () => acts.again(m), { title: 'another answer beside this one' }),
        last && m.content && (m.stopped || m.finish === 'length') ? small('Continue', () => acts.goOn(m)) : null,
        small('Branch', () => acts.branch(m), { title: 'a new chat that begins with all up to here' })));
    },
  };
}

// --- what was refused ---

export function refusedView(m, acts) {
  const { status, message } = m.refused;
  return el('div', { class: 'message error', role: 'alert' }, el('p', {}, cut(message, 2000)),
    status === 401 || status === 403 ? el('p', {}, 'The server wants an API key: see Settings.') : null,
    el('p', { class: 'note' }, 'This message is not part of the conversation: edit it, try again, or write another one.'),
    el('button', { type: 'button', class: 'quiet', click: () => acts.retry(m) }, 'Try again'));
}
