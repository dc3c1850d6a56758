// Conversations in this browser's IndexedDB: a store of chats {id, title, named, created, changed, leaf} and one of messages,
// which are written one by one, so that two tabs with the same chat lose nothing of each other. Where the browser keeps
// nothing (some private windows), they live in memory until the page is closed.
const NAME = 'evenkeel', VERSION = 1;
let db = null; // null: memory
const memory = { chats: new Map(), messages: new Map() };
const channel = typeof BroadcastChannel === 'function' ? new BroadcastChannel(NAME) : null;

const done = (request) => new Promise((good, bad) => {
  request.onsuccess = () => good(request.result);
  request.onerror = () => bad(request.error);
});
const ended = (transaction) => new Promise((good, bad) => {
  transaction.oncomplete = () => good();
  transaction.onabort = transaction.onerror = () => bad(transaction.error ?? new Error('the browser stopped writing'));
});

// Whether chats are kept.
export async function openStore() {
  try {
    const request = indexedDB.open(NAME, VERSION);
    request.onupgradeneeded = () => {
      request.result.createObjectStore('chats', { keyPath: 'id' });
      request.result.createObjectStore('messages', { keyPath: 'id' }).createIndex('chat', 'chat');
    };
    db = await done(request);
    db.onversionchange = () => db.close();
    return true;
  } catch {
    db = null;
    return false;
  }
}

// f() after another tab changed something.
export function onForeignChange(f) {
  channel?.addEventListener('message', f);
}

export async function allChats() {
  const list = db ? await done(db.transaction('chats').objectStore('chats').getAll()) : [...memory.chats.values()];
  return list.sort((a, b) => b.changed - a.changed);
}

export async function messagesOf(chat) {
  const list = db ? await done(db.transaction('messages').objectStore('messages').index('chat').getAll(chat))
    : [...memory.messages.values()].filter((m) => m.chat === chat);
  return new Map(list.map((m) => [m.id, m]));
}

export async function getChat(id) {
  return (db ? await done(db.transaction('chats').objectStore('chats').get(id)) : memory.chats.get(id)) ?? null;
}

// All at once or nothing.
export async function put(chats, messages = []) {
  if (db) {
    const t = db.transaction(['chats', 'messages'], 'readwrite');
    for (const c of chats) t.objectStore('chats').put(c);
    for (const m of messages) t.objectStore('messages').put(m);
    await ended(t);
  } else {
    for (const c of chats) memory.chats.set(c.id, structuredClone(c));
    for (const m of messages) memory.messages.set(m.id, structuredClone(m));
  }
  channel?.postMessage('changed');
}

export async function removeChat(id) {
  const ids = [...(await messagesOf(id)).keys()];
  if (db) {
    const t = db.transaction(['chats', 'messages'], 'readwrite');
    t.objectStore('chats').delete(id);
    for (const m of ids) t.objectStore('messages').delete(m);
    await ended(t);
  } else {
    memory.chats.delete(id);
    for (const m of ids) memory.messages.delete(m);
  }
  channel?.postMessage('changed');
}

// The ids of chats whose messages hold a text, with what stands around it.
export async function findText(text) {
  const wanted = text.toLowerCase(), hits = new Map();
  const look = (m) => {
    const at = hits.has(m.chat) ? -1 : m.content.toLowerCase().indexOf(wanted);
    if (at >= 0) hits.set(m.chat, m.content.slice(Math.max(0, at - 20), at + wanted.length + 40).replace(/\s+/g, ' '));
  };
  if (!db) {
    memory.messages.forEach(look);
    return hits;
  }
  const request = db.transaction('messages').objectStore('messages').openCursor();
  await new Promise((good, bad) => {
    request.onerror = () => bad(request.error);
    request.onsuccess = () => {
      const cursor = request.result;
      if (!cursor) return good();
      look(cursor.value);
      cursor.continue();
    };
  });
  return hits;
}
