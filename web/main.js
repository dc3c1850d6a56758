// Starts the page: views, settings, chat, the panel, the gauges.
import { openChat } from './chat.js';
import { byId } from './dom.js';
import { openSame } from './same.js';
import { openSettings } from './settings.js';
import { noteSpeed, openStatus } from './status.js';

function openViews() {
  const buttons = [...document.querySelectorAll('.views button')];
  for (const b of buttons)
    b.addEventListener('click', () => {
      document.body.dataset.view = b.dataset.view;
      for (const other of buttons) other.toggleAttribute('aria-current', false);
      b.setAttribute('aria-current', 'page');
    });
}

openSettings();
openViews();
openChat(noteSpeed);
openSame();
openStatus();
byId('text').focus({ preventScroll: true });
