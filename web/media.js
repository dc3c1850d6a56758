// Attached pictures and sounds as they are seen and heard. A picture is drawn on a canvas from its bytes and a sound plays from
// them: nothing has an address on the network.
import { describe } from './attach.js';
import { cut, el } from './dom.js';

const SIDE = 176;          // pixels of a thumbnail's longer side, twice as many on the canvas
const blobs = new WeakMap(); // what a file's base64 decodes to

function bytesOf(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const binary = atob(text), out = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i++) out[i] = binary.charCodeAt(i);
  return out;
}

// The type comes from a file of chats, too: of a picture or a sound, or none.
function blobOf(file) {
  if (!blobs.has(file)) blobs.set(file, new Blob([bytesOf(file.data)], { type: /^(image|audio)\/[\w.+-]+$/.test(file.type) ? file.type : '' }));
  return blobs.get(file);
}

// A canvas as large as the picture's thumbnail; null for what this browser does not decode.
async function thumbnail(file) {
  const whole = await createImageBitmap(blobOf(file)).catch(() => null);
  if (!whole) return null;
  const scale = Math.min(1, (2 * SIDE) / Math.max(whole.width, whole.height));
  const width = Math.max(1, Math.round(whole.width * scale)), height = Math.max(1, Math.round(whole.height * scale));
  const canvas = el('canvas', { class: 'thumbnail', role: 'img', 'aria-label': `Picture: ${cut(file.name)}`, title: describe(file), width, height });
  const context = canvas.getContext('2d');
  context.imageSmoothingQuality = 'high';
  context.drawImage(whole, 0, 0, width, height);
  whole.close();
  return canvas;
}

// The address of a sound's bytes goes when its player does.
const players = new FinalizationRegistry((url) => URL.revokeObjectURL(url));

function player(file) {
  const audio = el('audio', { controls: true, preload: 'metadata', 'aria-label': `Sound: ${cut(file.name)}` });
  const url = URL.createObjectURL(blobOf(file));
  audio.addEventListener('error', () => audio.remove()); // not decoded here: its name stays
  audio.src = url;
  players.register(audio, url);
  return audio;
}

// What a file looks or sounds like: a box that is filled once its bytes are decoded, null for a text. around(f) runs f, which
// changes the page.
export function preview(file, around = (f) => f()) {
  if (file.kind !== 'image' && file.kind !== 'audio') return null;
  const box = el('span', { class: `preview ${file.kind}` });
  setTimeout(async () => {
    try {
      const shown = file.kind === 'image' ? await thumbnail(file) : player(file);
      if (shown && box.isConnected) around(() => box.append(shown));
    } catch { /* bytes that are no base64: the name stays */ }
  });
  return box;
}
