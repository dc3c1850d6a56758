// Files to send: texts go into the prompt; pictures and sounds only where the model takes them, and what it does not take is
// refused here, before anything is sent.
const MAX_TEXT = 2 << 20, MAX_MEDIA = 20 << 20; // bytes

export const takes = { image: false, audio: false, pdf: [] }; // of the model, once the server has said

const sizeOf = (n) => (n < 1000 ? `${n} bytes` : n < 1e6 ? `${(n / 1000).toFixed(n < 10000 ? 1 : 0)} kB` : `${(n / 1e6).toFixed(1)} MB`);
export const describe = (f) => `${f.name}, ${f.kind === 'pdf' ? `${f.pages ? 'pages' : 'text'}, ` : ''}${sizeOf(f.size)}`;

function kindOf(file) {
  const kind = file.type.split('/')[0];
  return kind === 'image' && file.type !== 'image/svg+xml' ? 'image' : kind === 'audio' || kind === 'video' ? kind : 'text';
}

function base64(bytes) {
  let binary = '';
  for (let i = 0; i < bytes.length; i += 0x8000) binary += String.fromCharCode(...bytes.subarray(i, i + 0x8000));
  return btoa(binary);
}

// UTF-8, or UTF-16 with the mark that Windows puts before it.
function asText(bytes) {
  const mark = bytes.length % 2 ? 0 : (bytes[0] << 8) | bytes[1];
  try {
    const text = new TextDecoder(mark === 0xfffe ? 'utf-16le' : mark === 0xfeff ? 'utf-16be' : 'utf-8', { fatal: true }).decode(bytes);
    return text.includes('\0') ? null : text;
  } catch {
    return null;
  }
}

const head = async (file) => new TextDecoder('latin1').decode(await file.slice(0, 5).arrayBuffer().catch(() => new ArrayBuffer(0)));

// {name, kind, type, size, data}, of a PDF also pages: whether they are sent as pictures, else its text; throws why a file cannot
// be sent.
export async function read(file) {
  let kind = kindOf(file);
  const name = file.name || (kind === 'image' ? 'picture' : 'file');
  if (kind !== 'text' && !takes[kind]) {
    const what = { image: 'pictures', audio: 'sounds', video: 'videos' }[kind];
    throw new Error(`${name} is not attached: this model takes no ${what}.`);
  }
  const pdf = kind === 'text' && (await head(file)) === '%PDF-';
  if (pdf && !takes.pdf.length) throw new Error(`${name} is not attached: it is a PDF, and this server reads none (serve --pdftotext, --pdftoppm). Attach its text, or pictures of its pages.`);
  if (pdf) kind = 'pdf';
  if (file.size > (kind === 'text' ? MAX_TEXT : MAX_MEDIA)) throw new Error(`${name} is not attached: ${sizeOf(file.size)} are more than ${sizeOf(kind === 'text' ? MAX_TEXT : MAX_MEDIA)}.`);
  const buffer = await file.arrayBuffer().catch(() => null);
  if (!buffer) throw new Error(`${name} is not attached: it cannot be read. Is it a folder?`);
  const bytes = new Uint8Array(buffer);
  if (pdf) return { name, kind, type: 'application/pdf', size: file.size, data: base64(bytes), pages: !takes.pdf.includes('text') };
  const data = kind === 'text' ? asText(bytes) : base64(bytes);
  if (data === null) throw new Error(`${name} is not attached: it is not text in UTF-8 or UTF-16.`);
  return { name, kind, type: kind === 'text' ? 'text/plain' : file.type, size: file.size, data };
}

// What the file chooser offers for each button.
export const ACCEPT = { attach: '', picture: 'image/*', sound: 'audio/*' };
