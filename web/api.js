// Requests to the server this page came from.
import { settings } from './settings.js';

// The folder of the page, which a proxy may have put below a path of its own.
const root = new URL('..', import.meta.url);
const address = (path) => new URL(path, root);

export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

function headers() {
  const key = settings().key;
  return { 'content-type': 'application/json', ...(key ? { authorization: `Bearer ${key}` } : {}) };
}

export async function get(path) {
  const r = await fetch(address(path), { headers: headers(), cache: 'no-store' });
  if (!r.ok && r.status !== 503) throw new ApiError(r.status, `status ${r.status}`);
  return r.text();
}

async function failure(r) {
  let text = `The server answered with status ${r.status}.`;
  try {
    text = (await r.json()).error.message || text;
  } catch { /* not JSON: the status has to do */ }
  return new ApiError(r.status, text);
}

// The body of a request from messages and settings; more overrides.
export function body(messages, more = {}) {
  const s = settings();
  const b = { messages: s.system ? [{ role: 'system', content: s.system }, ...messages] : messages,
              evenkeel: { digest: true } };
  for (const name of ['max_tokens', 'temperature', 'top_p', 'top_k', 'min_p']) if (s[name] !== null) b[name] = s[name];
  if (s.tools) b.tools = s.tools;
  if (s.schema) b.response_format = { type: 'json_schema', json_schema: { name: 'answer', strict: true, schema: s.schema } };
  b.chat_template_kwargs = { enable_thinking: s.thinking };
  const out = JSON.stringify({ ...b, ...more });
  // A seed may have more digits than JavaScript's numbers: it goes into the text as it was typed.
  return s.seed === null || 'seed' in more ? out : `${out.slice(0, -1)},"seed":${s.seed}}`;
}

// The data of each event of a stream, until [DONE].
async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const { done, value } = await reader.read();
    if (done) throw new ApiError(0, 'The stream ended before the answer did.');
    rest += value;
    const frames = rest.split('\n\n');
    rest = frames.pop();
    for (const frame of frames) {
      if (!frame.startsWith('data: ')) continue; // a comment that keeps the connection
      if (frame === 'data: [DONE]') return;
      yield JSON.parse(frame.slice(6));
    }
  }
}

// The model: {id, context, image, audio, pdf}; context: tokens it can read, null where the server does not say; pdf: what becomes
// of PDFs, "text" and "pages".
export async function model() {
  const m = JSON.parse(await get('v1/models')).data[0];
  const said = [m.architecture?.input_modalities, m.input_modalities, m.modalities?.input, m.modalities].find(Array.isArray) ?? [];
  const takes = (name) => said.includes(name) || m.modalities?.[name === 'image' ? 'vision' : name] === true;
  return { id: m.id, context: m.context_length ?? m.max_model_len ?? null, image: takes('image'), audio: takes('audio'), pdf: Array.isArray(m.evenkeel?.pdf) ? m.evenkeel.pdf : [] };
}

const post = (text, signal) => fetch(address('v1/chat/completions'), { method: 'POST', headers: headers(), body: text, signal });

function addCalls(reply, deltas) {
  for (const d of deltas) {
    const call = (reply.calls[d.index] ??= { id: '', type: 'function', function: { name: '', arguments: '' } });
    if (d.id) call.id = d.id;
    if (d.function?.name) call.function.name = d.function.name;
    call.function.arguments += d.function?.arguments ?? '';
  }
}

// What the server says of an answer beyond the API; a digest is 16 hex digits.
function note(reply, said) {
  if (/^[0-9a-f]{16}$/.test(said?.digest ?? '')) reply.digest = said.digest;
  if (Number.isSafeInteger(said?.seed)) reply.seed = said.seed;
}

function addChunk(reply, chunk) {
  if (chunk.error) throw new ApiError(500, chunk.error.message);
  if (chunk.usage) reply.usage = chunk.usage;
  note(reply, chunk.evenkeel);
  const choice = chunk.choices?.[0];
  if (!choice) return;
  reply.content += choice.delta.content ?? '';
  reply.reasoning += choice.delta.reasoning_content ?? '';
  addCalls(reply, choice.delta.tool_calls ?? []);
  if (choice.finish_reason) reply.finish = choice.finish_reason;
}

const emptyReply = () => ({ content: '', reasoning: '', calls: [], finish: null, usage: null, digest: null, seed: null });

// Streams a chat completion into a reply; onChange(reply) after every chunk.
export async function stream(messages, { signal, more = {}, onChange = () => {} }) {
  const r = await post(body(messages, { ...more, stream: true, stream_options: { include_usage: true } }), signal);
  if (!r.ok) throw await failure(r);
  const reply = emptyReply();
  for await (const chunk of events(r)) {
    addChunk(reply, chunk);
    onChange(reply);
  }
  return reply;
}

// The same in one piece.
export async function whole(messages, { signal, more = {} }) {
  const r = await post(body(messages, more), signal);
  if (!r.ok) throw await failure(r);
  const j = await r.json(), m = j.choices[0].message;
  const reply = { ...emptyReply(), content: m.content ?? '', reasoning: m.reasoning_content ?? '', calls: m.tool_calls ?? [],
                  finish: j.choices[0].finish_reason, usage: j.usage };
  note(reply, j.evenkeel);
  return reply;
}
