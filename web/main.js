// Starts the page: views, settings, the conversation, history, the panel, the gauges.
import { current, editLast, newChat, openChat, openConversation, renamed, send, setContext } from './chat.js';
import { focusField, setModel } from './composer.js';
import { byId } from './dom.js';
import { openExamples } from './examples.js';
import { openHistory, refresh } from './history.js';
import { openKeys } from './keys.js';
import { again, openSame } from './same.js';
import { openSettings } from './settings.js';
import { noteSpeed, openStatus } from './status.js';
import { onForeignChange, openStore } from './store.js';

const views = [...document.querySelectorAll('.views button')];

function view(name) {
  document.body.dataset.view = name;
  for (const b of views) {
    if (b.dataset.view === name) b.setAttribute('aria-current', 'page');
    else b.removeAttribute('aria-current');
  }
}

// Where the list takes the place of the chat, choosing a chat shows it.
function toChat() {
  if (!byId('chat').checkVisibility()) view('chat');
}

// Where Settings stand beside the chat, their button closes them, too.
for (const b of views) b.addEventListener('click', () => view(b.dataset.view === 'settings' && document.body.dataset.view === 'settings' ? 'chat' : b.dataset.view));
byId('gauges').addEventListener('click', () => byId('gauges').setAttribute('aria-expanded', String(document.body.classList.toggle('with-gauges'))));
const fresh = () => { toChat(); newChat(); };
openSettings();
openSame();
openKeys({
  fresh, editLast,
  field: () => { toChat(); focusField(); },
  search: () => { if (!byId('history').checkVisibility()) view('history'); byId('search').focus(); },
});
const kept = await openStore();
openHistory({
  open: async (id) => { toChat(); await openChat(id); },
  fresh,
  current, renamed,
}, kept);
await openConversation({ changed: refresh, speed: noteSpeed, same: (what) => { view('same'); again(what); } });
openExamples(send);
onForeignChange(refresh);
openStatus((model) => { setModel(model); setContext(model.context); });
focusField();
