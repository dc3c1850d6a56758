// What a new chat offers to begin with: things that the bundled model does well, too.
import { change, EXAMPLE_TOOLS, tool } from './settings.js';
import { byId, el } from './dom.js';

const string = { type: 'string' };
const EXAMPLES = [
  { text: 'What can you do?' },
  { text: 'What is the weather in Paris and in Oslo?', with: 'a tool, called twice', tools: EXAMPLE_TOOLS },
  { text: 'Put milk, eggs and bread on my shopping list', with: 'a tool', tools: [tool('add_to_list', 'Put items on a list', { items: { type: 'array', items: string } })] },
  { text: 'Meet Maria in Oslo on 2026-03-14. Give the date and the city as JSON.', with: 'a schema',
    schema: { type: 'object', properties: { date: string, city: string }, required: ['date', 'city'], additionalProperties: false } },
  { text: 'What is 365 - 48?', with: 'thinking', thinking: true },
];

const asField = (v) => (v ? JSON.stringify(v, null, 2) : '');
const ours = new Set(EXAMPLES.flatMap((e) => [asField(e.tools), asField(e.schema)]));

// Turns on what an example needs and off what another one turned on. What a person wrote into the fields stays.
function prepare(example) {
  const values = { thinking: Boolean(example.thinking) };
  for (const id of ['tools', 'schema']) if (ours.has(byId(id).value.trim())) values[id] = example[id] ?? null;
  change(values);
}

export function openExamples(send) {
  byId('examples').replaceChildren(...EXAMPLES.map((e) => el('li', {}, el('button', { type: 'button', click: () => { prepare(e); send(e.text); } },
    e.text, e.with ? el('span', {}, ` with ${e.with}`) : null))));
}
