// Sounds through OpenAI's SDK, to a model with ears: in messages, and as transcriptions.
import assert from "node:assert/strict";

import OpenAI, { toFile } from "openai";

import { base, failure, runAll, test } from "./harness.mjs";

const openai = new OpenAI({ baseURL: `${base}/v1`, apiKey: "none", maxRetries: 0 });

function wav(seconds, seed = 0) {
  const n = seconds * 16000, b = Buffer.alloc(44 + 2 * n);
  b.write("RIFF", 0, "latin1");
  b.writeUInt32LE(36 + 2 * n, 4);
  b.write("WAVEfmt ", 8, "latin1");
  b.set([16, 0, 0, 0, 1, 0, 1, 0], 16);
  b.writeUInt32LE(16000, 24);
  b.writeUInt32LE(32000, 28);
  b.set([2, 0, 16, 0], 32);
  b.write("data", 36, "latin1");
  b.writeUInt32LE(2 * n, 40);
  for (let i = 0; i < n; i++) b.writeInt16LE((((i * (37 + seed)) % 601) - 300) * 60, 44 + 2 * i);
  return b;
}

const SOUND = wav(1); // 25 tokens
const hear = async (more = {}, sound = SOUND) => openai.audio.transcriptions.create({ model: "m", file: await toFile(sound, "speech.wav"), ...more });

test("a message has a sound", async () => {
  const content = [{ type: "input_audio", input_audio: { data: SOUND.toString("base64"), format: "wav" } }, { type: "text", text: "What is it?" }];
  const ask = { model: "m", max_completion_tokens: 4, temperature: 0, messages: [{ role: "user", content }] };
  const one = await openai.chat.completions.create(ask);
  assert.equal(one.usage.prompt_tokens_details.audio_tokens, 25);
  let text = "", usage;
  for await (const c of await openai.chat.completions.create({ ...ask, stream: true, stream_options: { include_usage: true } })) {
    text += c.choices[0]?.delta?.content ?? "";
    usage = c.usage ?? usage;
  }
  assert.equal(text, one.choices[0].message.content);
  assert.equal(usage.prompt_tokens_details.audio_tokens, 25);
  assert.equal(usage.prompt_tokens_details.cached_audio_tokens, 25);
});

test("a transcription, in every form that it has", async () => {
  const json = await hear();
  assert.equal(typeof json.text, "string");
  assert.ok(json.text.length > 0);
  assert.equal(json.usage.type, "tokens");
  assert.equal(json.usage.input_token_details.audio_tokens, 25);
  assert.equal(json.usage.input_tokens, 25 + json.usage.input_token_details.text_tokens);
  assert.equal(json.usage.total_tokens, json.usage.input_tokens + json.usage.output_tokens);
  assert.equal((await hear({ response_format: "json" })).text, json.text);
  assert.equal(await hear({ response_format: "text" }), json.text + "\n");
  const verbose = await hear({ response_format: "verbose_json", temperature: 0 });
  assert.equal(verbose.text, json.text);
  assert.equal(verbose.duration, 1);
  assert.equal(verbose.language, "unknown");
  assert.deepEqual(verbose.usage, { type: "duration", seconds: 1 });
  assert.equal((await hear({ response_format: "verbose_json", language: "de", timestamp_granularities: ["segment"] })).language, "de");
});

test("a stream of it says the same", async () => {
  const events = [];
  for await (const e of await hear({ stream: true })) events.push(e);
  const whole = await hear(), done = events.pop();
  assert.equal(done.type, "transcript.text.done");
  assert.equal(done.text, whole.text);
  assert.equal(done.usage.input_token_details.audio_tokens, 25);
  assert.ok(events.length > 0);
  assert.ok(events.every((e) => e.type === "transcript.text.delta"));
  assert.equal(events.map((e) => e.delta).join(""), whole.text);
});

test("what guides it is in the prompt", async () => {
  const tokens = async (more) => (await hear(more)).usage.input_tokens, plain = await tokens({});
  for (const more of [{ prompt: "Names: Zoe" }, { language: "en" }, { languages: ["en", "de"] }, { keywords: ["keel", "hull"] }]) assert.ok((await tokens(more)) > plain, JSON.stringify(more));
  assert.equal(await tokens({ chunking_strategy: "auto" }), plain);
});

test("a long one is heard in pieces", async () => {
  const one = await hear({}, wav(31));
  assert.equal(one.usage.input_token_details.audio_tokens, 775);
});

test("what needs times, voices or probabilities is refused by its name", async () => {
  const rows = [
    [{ response_format: "srt" }, "response_format"],
    [{ response_format: "vtt" }, "response_format"],
    [{ response_format: "diarized_json" }, "response_format"],
    [{ response_format: "verbose_json", timestamp_granularities: ["word"] }, "timestamp_granularities"],
    [{ include: ["logprobs"] }, "include"],
    [{ known_speaker_names: ["Ann"] }, "known_speaker_names"],
    [{ chunking_strategy: { type: "server_vad" } }, "chunking_strategy"],
    [{ temperature: 9 }, "temperature"],
  ];
  for (const [more, name] of rows) {
    const e = await failure(hear(more));
    assert.equal(e.status, 400, name);
    assert.equal(e.param, name);
    assert.match(e.message, new RegExp(name));
  }
  const e = await failure(hear({}, Buffer.from("no sound")));
  assert.equal(e.param, "file");
});

test("translations are not there", async () => {
  const e = await failure(openai.audio.translations.create({ model: "m", file: await toFile(SOUND, "a.wav") }));
  assert.equal(e.status, 404);
});

await runAll();
