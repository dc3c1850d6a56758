// Keyboard shortcuts: those that other chats have, each with Ctrl or Shift, so that no letter alone does anything.
import { byId } from './dom.js';

// act: {fresh(), search(), field(), editLast() → whether there was a message}
export function openKeys(act) {
  const list = byId('keys-list'), command = (e) => (e.ctrlKey || e.metaKey) && !e.altKey;
  const show = () => { if (!list.open) list.showModal(); };
  const keys = [
    [(e) => command(e) && e.shiftKey && e.code === 'KeyO', act.fresh],
    [(e) => command(e) && !e.shiftKey && e.code === 'KeyK', act.search],
    [(e) => command(e) && (e.key === '/' || e.code === 'Slash'), show],
    [(e) => e.shiftKey && !command(e) && e.key === 'Escape', act.field],
  ];
  document.addEventListener('keydown', (e) => {
    if (e.isComposing || e.defaultPrevented || list.open) return;
    const row = keys.find(([fits]) => fits(e));
    if (!row) return;
    e.preventDefault();
    row[1]();
  }, { capture: true });
  byId('keys-show').addEventListener('click', show);
  byId('text').addEventListener('keydown', (e) => {
    if (e.key !== 'ArrowUp' || e.shiftKey || e.ctrlKey || e.altKey || e.metaKey || e.isComposing || byId('text').value) return;
    if (act.editLast()) e.preventDefault();
  });
}
