// A conversation as a tree of messages: each knows its parent, so that an edited message or a second answer stands beside the
// first one and nothing is lost. Pure functions over a Map from id to message:
//
//   {id, chat, parent, role, content, created}   role: user, assistant, tool; parent: an id, null at the root
//   user       files: [{name, kind: text | image | audio, type, data}]   data: the text, or base64
//   assistant  reasoning, calls, finish, usage, digest, seed, seconds, stopped
//   tool       call: id of the call, name
//   refused    {status, message} of a message that the server did not take: it is shown and never sent again

export function newId() {
  return [...crypto.getRandomValues(new Uint8Array(8))].map((b) => b.toString(16).padStart(2, '0')).join('');
}

let lastTime = 0; // no two messages of a tab have the same

export function newMessage(chat, parent, role, more = {}) {
  lastTime = Math.max(Date.now(), lastTime + 1);
  return { id: newId(), chat, parent, role, content: '', created: lastTime, ...more };
}

const inOrder = (a, b) => a.created - b.created || (a.id < b.id ? -1 : 1);

export function childrenOf(messages, parent) {
  return [...messages.values()].filter((m) => m.parent === parent).sort(inOrder);
}

// The messages that share m's parent, m among them. Results of one message's calls are not versions of each other.
export function versionsOf(messages, m) {
  return childrenOf(messages, m.parent).filter((v) => (v.role === 'tool') === (m.role === 'tool'));
}

export function pathTo(messages, id) {
  const path = [], seen = new Set();
  for (let m = messages.get(id); m && !seen.has(m.id); m = messages.get(m.parent)) {
    seen.add(m.id);
    path.unshift(m);
  }
  return path;
}

// The end of the newest branch below a message.
export function newestBelow(messages, id) {
  const seen = new Set();
  for (;;) {
    const next = childrenOf(messages, id).at(-1);
    if (!next || seen.has(next.id)) return id;
    seen.add(next.id);
    id = next.id;
  }
}

// Where the next message goes: behind the last one that was not refused.
export function tipOf(messages, leaf) {
  return pathTo(messages, leaf).filter((m) => !m.refused).at(-1)?.id ?? null;
}

function part(file) {
  if (file.kind === 'image') return { type: 'image_url', image_url: { url: `data:${file.type};base64,${file.data}` } };
  if (file.kind === 'audio') return { type: 'input_audio', input_audio: { data: file.data, format: /wav/.test(file.type) ? 'wav' : /mpeg|mp3/.test(file.type) ? 'mp3' : /flac/.test(file.type) ? 'flac' : 'ogg' } };
  if (file.kind === 'pdf') return { type: 'file', file: { filename: file.name, file_data: `data:application/pdf;base64,${file.data}`, pdf: file.pages ? 'pages' : 'text' } };
  const bytes = new TextEncoder().encode(file.data);
  let binary = '';
  for (let i = 0; i < bytes.length; i += 0x8000) binary += String.fromCharCode(...bytes.subarray(i, i + 0x8000));
  return { type: 'file', file: { filename: file.name, file_data: `data:text/plain;base64,${btoa(binary)}` } };
}

// A path as messages of chat completions. The thoughts of a loop of tool calls go along: the template keeps those.
export function toApi(path) {
  return path.filter((m) => !m.refused).map((m) => {
    if (m.role === 'tool') return { role: 'tool', tool_call_id: m.call, content: m.content };
    if (m.role === 'user') return { role: 'user', content: m.files?.length ? [...m.files.map(part), ...(m.content ? [{ type: 'text', text: m.content }] : [])] : m.content };
    const out = { role: 'assistant', content: m.content || (m.calls?.length ? null : '') };
    if (m.calls?.length) {
      out.tool_calls = m.calls;
      if (m.reasoning) out.reasoning_content = m.reasoning;
    }
    return out;
  });
}

// A name for a chat from its first message.
export function titleOf(path) {
  const first = path.find((m) => m.role === 'user');
  const text = (first?.content || first?.files?.[0]?.name || '').replace(/\s+/g, ' ').trim();
  return text.length > 60 ? `${text.slice(0, 59)}…` : text || 'New chat';
}
