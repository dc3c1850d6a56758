// Settings: fields of a form, kept in this browser (the key: in this tab), read as values.
import { byId } from './dom.js';

const FIELDS = ['temperature', 'top_p', 'top_k', 'min_p', 'max_tokens', 'seed', 'thinking', 'system', 'tools', 'schema'];
const STORE = 'evenkeel.settings';
const VERSION = 2;         // of what is stored; 1 had a limit of 1,024 tokens that nobody had asked for
let lent = {};             // fields that an example has set: {id: {was, now}}
const listeners = [];

const string = { type: 'string' };
export function tool(name, description, properties) {
  return { type: 'function', function: { name, description, parameters: { type: 'object', properties, required: Object.keys(properties) } } };
}
export const EXAMPLE_TOOLS = [tool('get_weather', 'The weather in a city now', { city: string })];

// The tools as a list, null without; throws what is wrong with the text.
export function parseTools(text) {
  if (!text.trim()) return null;
  const list = JSON.parse(text);
  if (!Array.isArray(list)) throw new Error('a list in brackets is needed');
  for (const t of list) if (typeof t?.function?.name !== 'string') throw new Error('each tool needs function.name');
  return list.length ? list : null;
}

// The schema as an object, null without.
export function parseSchema(text) {
  if (!text.trim()) return null;
  const schema = JSON.parse(text);
  if (typeof schema !== 'object' || schema === null || Array.isArray(schema)) throw new Error('an object in braces is needed');
  return schema;
}

const number = (id) => (byId(id).value === '' || !byId(id).validity.valid ? null : Number(byId(id).value));
const orNull = (parse, id) => {
  try {
    return parse(byId(id).value);
  } catch {
    return null; // the note beside the field says so
  }
};

export function settings() {
  const seed = byId('seed');
  return {
    temperature: number('temperature'),
    top_p: number('top_p'),
    top_k: number('top_k'),
    min_p: number('min_p'),
    max_tokens: number('max_tokens'),
    seed: seed.value && seed.validity.valid ? seed.value.replace(/^(-?)0+(?=\d)/, '$1') : null,
    thinking: byId('thinking').checked,
    system: byId('system').value.trim(),
    tools: orNull(parseTools, 'tools'),
    schema: orNull(parseSchema, 'schema'),
    key: byId('key').value.trim(),
  };
}

function note(id, parse, say, none) {
  const field = byId(id);
  let text = '';
  try {
    const value = parse(field.value);
    text = value ? say(value) : '';
    field.removeAttribute('aria-invalid');
  } catch (e) {
    text = `${none}: ${e.message}`;
    field.setAttribute('aria-invalid', 'true');
  }
  byId(`${id}-note`).textContent = text;
}

function tell() {
  note('tools', parseTools, (list) => `${list.length} ${list.length === 1 ? 'tool' : 'tools'}: ${list.map((t) => t.function.name).join(', ')}`, 'No tools are sent');
  note('schema', parseSchema, () => 'Every answer is JSON of this schema.', 'No schema is sent');
  for (const f of listeners) f();
}

const valueOf = (id) => (byId(id).type === 'checkbox' ? byId(id).checked : byId(id).value);
const give = (id, v) => { byId(id)[byId(id).type === 'checkbox' ? 'checked' : 'value'] = v; };

function save() {
  try {
    localStorage.setItem(STORE, JSON.stringify({ ...Object.fromEntries(FIELDS.map((id) => [id, valueOf(id)])), lent, version: VERSION }));
    sessionStorage.setItem(`${STORE}.key`, byId('key').value);
  } catch { /* storage may be forbidden; the fields keep their values */ }
  tell();
}

// Sets fields: texts, true or false, and JSON for tools and schema (null empties them).
export function change(values) {
  for (const [id, v] of Object.entries(values)) give(id, v === null ? '' : typeof v === 'object' ? JSON.stringify(v, null, 2) : v);
  save();
}

// Sets fields for as long as this chat is shown: giveBack() undoes what was not changed since.
export function lend(values) {
  const before = Object.fromEntries(Object.keys(values).map((id) => [id, valueOf(id)]));
  change(values);
  for (const id of Object.keys(values)) lent[id] = { was: before[id], now: valueOf(id) };
  save();
}

export function giveBack() {
  const back = Object.entries(lent).filter(([id, l]) => FIELDS.includes(id) && valueOf(id) === l.now).map(([id, l]) => [id, l.was]);
  if (!Object.keys(lent).length) return;
  lent = {};
  change(Object.fromEntries(back));
}

// f() after every change.
export function onSettings(f) {
  listeners.push(f);
}

export function openSettings() {
  try {
    const stored = JSON.parse(localStorage.getItem(STORE) ?? '{}');
    if (stored.version !== VERSION && stored.max_tokens === '1024') delete stored.max_tokens;
    for (const id of FIELDS) if (id in stored) give(id, stored[id]);
    if (typeof stored.lent === 'object' && stored.lent !== null) ({ lent } = stored);
    give('key', sessionStorage.getItem(`${STORE}.key`) ?? '');
  } catch { /* nothing usable is stored */ }
  byId('settings-form').addEventListener('input', save);
  byId('settings-form').addEventListener('submit', (e) => e.preventDefault());
  byId('tools-example').addEventListener('click', () => change({ tools: EXAMPLE_TOOLS }));
  tell();
}
