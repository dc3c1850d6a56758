// The line of gauges: from /metrics where the server has it, else from /health.
import { get, model } from './api.js';
import { byId } from './dom.js';
import { settings } from './settings.js';

const EVERY = 2000; // ms, while the page is visible
let last = null; // {time, tokens} of the reading before

// Sums of all samples per name, from Prometheus text.
export function parseMetrics(text) {
  const out = new Map();
  for (const line of text.split('\n')) {
    const m = /^([a-zA-Z_:][\w:]*)(?:\{.*\})? ([^ ]+)/.exec(line);
    if (m && Number.isFinite(Number(m[2]))) out.set(m[1], (out.get(m[1]) ?? 0) + Number(m[2]));
  }
  return out;
}

const pick = (m, ...names) => names.map((n) => m.get(n)).find((v) => v !== undefined);
const set = (id, v) => { byId(id).textContent = v ?? '–'; };
const short = (n) => (n === undefined ? undefined : n < 10000 ? String(Math.round(n)) : `${(n / 1000).toFixed(n < 100000 ? 1 : 0)}k`);

function fromMetrics(text) {
  const m = parseMetrics(text), time = performance.now();
  set('g-running', short(pick(m, 'evenkeel_requests_running', 'vllm:num_requests_running')));
  set('g-waiting', short(pick(m, 'evenkeel_requests_waiting', 'vllm:num_requests_waiting')));
  set('g-requests', short(pick(m, 'evenkeel_requests_total')));
  const tokens = pick(m, 'evenkeel_reply_tokens_total', 'evenkeel_generation_tokens_total');
  if (tokens !== undefined && last) set('g-speed', ((1000 * (tokens - last.tokens)) / (time - last.time)).toFixed(1));
  if (tokens !== undefined) last = { time, tokens };
  const prompt = pick(m, 'evenkeel_prompt_tokens_total'), cached = pick(m, 'evenkeel_cached_tokens_total');
  set('g-cache', prompt > 0 && cached !== undefined ? `${Math.round((100 * cached) / prompt)} %` : undefined);
}

// Without /metrics the speed is that of the last answer here.
export function noteSpeed(reply, seconds) {
  if (last || !reply.usage || !(seconds > 0.05)) return;
  set('g-speed', ((reply.usage.completion_tokens - 1) / seconds).toFixed(1));
  const u = reply.usage;
  set('g-cache', u.prompt_tokens ? `${Math.round((100 * (u.prompt_tokens_details?.cached_tokens ?? 0)) / u.prompt_tokens)} %` : undefined);
}

let metrics = true, tried = null;

// Whether the key is another than that of the last try: a refused one is not sent again and again.
function keyIsNew() {
  const { key } = settings(), fresh = key !== tried;
  tried = key;
  return fresh;
}

async function read() {
  try {
    const health = JSON.parse(await get('health'));
    set('g-state', health.status);
    set('gauges', health.status);
    byId('g-state').className = health.status === 'ok' ? 'good' : 'bad';
    byId('gauges').classList.toggle('bad', health.status !== 'ok');
    if (health.running !== undefined) {
      set('g-running', health.running);
      set('g-waiting', health.waiting);
    }
  } catch {
    set('g-state', 'no answer');
    set('gauges', 'no answer');
    byId('gauges').classList.add('bad');
    byId('g-state').className = 'bad';
    return;
  }
  if (!metrics) return;
  try {
    fromMetrics(await get('metrics'));
  } catch (e) {
    if (e.status === 404) metrics = false;
  }
}

let named = false; // the model's name is known

let onModel = () => {};

async function readModel() {
  try {
    const m = await model();
    byId('model').textContent = m.id;
    document.title = `${m.id} · evenkeel`;
    named = true;
    onModel(m);
  } catch (e) {
    byId('model').textContent = e.status === 401 ? 'an API key is needed: see Settings' : 'unknown model';
  }
}

// said(model) once the server has named it (api.js, model).
export function openStatus(said) {
  onModel = said;
  const tick = async () => {
    if (!document.hidden) await read();
    if (!document.hidden && !named && keyIsNew()) await readModel();
    setTimeout(tick, EVERY);
  };
  tick();
}
