// What a new chat offers to begin with: things that the bundled model does well, too.
import { EXAMPLE_TOOLS, giveBack, lend, tool } from './settings.js';
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

// Turns on what an example needs until another chat is shown. What a person wrote into the fields stays.
function prepare(example) {
  giveBack();
  const values = {};
  if (example.thinking) values.thinking = true;
  for (const id of ['tools', 'schema']) if (example[id] && !byId(id).value.trim()) values[id] = example[id];
  lend(values);
}

export function openExamples(send) {
  byId('examples').replaceChildren(...EXAMPLES.map((e) => el('li', {}, el('button', { type: 'button', click: () => { prepare(e); send(e.text); } },
    e.text, e.with ? el('span', {}, ` with ${e.with}`) : null))));
}
