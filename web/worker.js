// The page's side of lexer.js: jobs one after the other, each with a time limit.
const LIMIT = 500; // ms a job may take; then its text is shown as it is

// The only script address that the page makes; the content policy asks for a policy by name.
const script = new URL('lexer.js', import.meta.url).href;
const policy = globalThis.trustedTypes?.createPolicy('evenkeel', { createScriptURL: () => script });

let worker = null, off = false, timer = 0, number = 0;
const jobs = []; // {id, message, good}; the first is at work once the worker is ready
let ready = false;

function end(result) {
  clearTimeout(timer);
  jobs.shift()?.good(result);
  next();
}

function giveUp() {
  off = true;
  worker?.terminate();
  worker = null;
  while (jobs.length) jobs.shift().good(null);
}

function start() {
  ready = false;
  try {
    worker = new Worker(policy ? policy.createScriptURL('') : script, { type: 'module' });
  } catch {
    giveUp();
    return;
  }
  worker.onerror = giveUp; // a browser without module workers
  worker.onmessage = ({ data }) => {
    if ('ready' in data) {
      ready = true;
      if (data.ready) next();
      else giveUp(); // a program that was built without marked
    } else if (data.id === jobs[0]?.id) end(data.result);
  };
}

function next() {
  if (!jobs.length || off) return;
  if (!worker) start();
  if (!ready || off) return;
  const { message } = jobs[0];
  worker.postMessage(message);
  timer = setTimeout(() => {
    worker.terminate();
    worker = null;
    end(null);
  }, message.kind === 'lex' ? LIMIT : 10 * LIMIT); // the first job of a kind loads its library
}

// What lexer.js makes of a text; null where it could not, or took too long.
export function ask(kind, text, language = '') {
  if (off) return Promise.resolve(null);
  return new Promise((good) => {
    const id = ++number;
    jobs.push({ id, message: { id, kind, text, language }, good });
    if (jobs.length === 1) next();
  });
}

export const withMarkdown = () => !off;
