// Settings: fields of a form, kept in this tab (sessionStorage), read as values.
import { byId } from './dom.js';

const FIELDS = ['temperature', 'max_tokens', 'seed', 'thinking', 'system', 'tools', 'key'];
const STORE = 'evenkeel.settings';

export const EXAMPLE_TOOLS = [{
  type: 'function',
  function: {
    name: 'get_weather',
    description: 'The weather in a city now',
    parameters: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
  },
}];

// The tools as a list, null without; throws what is wrong with the text.
export function parseTools(text) {
  if (!text.trim()) return null;
  const list = JSON.parse(text);
  if (!Array.isArray(list)) throw new Error('a list in brackets is needed');
  for (const t of list) if (!t?.function?.name) throw new Error('each tool needs function.name');
  return list.length ? list : null;
}

const number = (id) => (byId(id).value === '' || !byId(id).validity.valid ? null : Number(byId(id).value));

export function settings() {
  let tools = null;
  try {
    tools = parseTools(byId('tools').value);
  } catch { /* the note beside the field says so */ }
  const seed = byId('seed');
  return {
    temperature: number('temperature'),
    max_tokens: number('max_tokens') ?? 1024,
    seed: seed.value && seed.validity.valid ? seed.value.replace(/^(-?)0+(?=\d)/, '$1') : null,
    thinking: byId('thinking').checked,
    system: byId('system').value.trim(),
    tools,
    key: byId('key').value.trim(),
  };
}

function noteTools() {
  const note = byId('tools-note'), field = byId('tools');
  let text = '';
  try {
    const list = parseTools(field.value);
    text = list ? `${list.length} ${list.length === 1 ? 'tool' : 'tools'}: ${list.map((t) => t.function.name).join(', ')}` : '';
    field.removeAttribute('aria-invalid');
  } catch (e) {
    text = `No tools are sent: ${e.message}`;
    field.setAttribute('aria-invalid', 'true');
  }
  note.textContent = text;
}

function save() {
  const out = {};
  for (const id of FIELDS) out[id] = byId(id).type === 'checkbox' ? byId(id).checked : byId(id).value;
  try {
    sessionStorage.setItem(STORE, JSON.stringify(out));
  } catch { /* storage may be forbidden; the fields keep their values */ }
  noteTools();
}

export function setTools(list) {
  byId('tools').value = JSON.stringify(list, null, 2);
  save();
}

export function openSettings() {
  try {
    const stored = JSON.parse(sessionStorage.getItem(STORE) ?? '{}');
    for (const id of FIELDS)
      if (id in stored) byId(id)[byId(id).type === 'checkbox' ? 'checked' : 'value'] = stored[id];
  } catch { /* nothing usable is stored */ }
  byId('settings-form').addEventListener('input', save);
  byId('settings-form').addEventListener('submit', (e) => e.preventDefault());
  byId('tools-example').addEventListener('click', () => setTools(EXAMPLE_TOOLS));
  noteTools();
}
