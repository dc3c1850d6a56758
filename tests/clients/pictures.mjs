// Pictures through the official SDKs, to a model with eyes: the same pixels are the same prompt in every API.
import assert from "node:assert/strict";
import zlib from "node:zlib";

import Anthropic from "@anthropic-ai/sdk";
import { Ollama } from "ollama";
import OpenAI from "openai";

import { base, failure, runAll, test } from "./harness.mjs";

const openai = new OpenAI({ baseURL: `${base}/v1`, apiKey: "none", maxRetries: 0 });
const anthropic = new Anthropic({ baseURL: base, apiKey: "none", maxRetries: 0 });
const ollama = new Ollama({ host: base });

function chunk(kind, data) {
  const head = Buffer.alloc(8), body = Buffer.concat([Buffer.from(kind), data]), tail = Buffer.alloc(4);
  head.writeUInt32BE(data.length);
  body.copy(head, 4, 0, 4);
  tail.writeUInt32BE(zlib.crc32 ? zlib.crc32(body) : crc32(body));
  return Buffer.concat([head, data, tail]);
}

function crc32(bytes) {
  let c = ~0;
  for (const b of bytes) {
    c ^= b;
    for (let k = 0; k < 8; k++) c = c & 1 ? (c >>> 1) ^ 0xedb88320 : c >>> 1;
  }
  return ~c >>> 0;
}

function png(width, height, seed) {
  const rows = Buffer.alloc(height * (1 + 3 * width)), head = Buffer.alloc(13);
  for (let y = 0; y < height; y++) for (let x = 0; x < 3 * width; x++) rows[y * (1 + 3 * width) + 1 + x] = x * seed + 5 * y;
  head.writeUInt32BE(width, 0);
  head.writeUInt32BE(height, 4);
  head.set([8, 2, 0, 0, 0], 8);
  return Buffer.concat([Buffer.from("\x89PNG\r\n\x1a\n", "latin1"), chunk("IHDR", head), chunk("IDAT", zlib.deflateSync(rows)), chunk("IEND", Buffer.alloc(0))]);
}

const PICTURE = png(64, 48, 3).toString("base64"), OTHER = png(64, 48, 4).toString("base64"); // 266 tokens each
const url = (data) => `data:image/png;base64,${data}`;
const ours = { evenkeel: { digest: true }, temperature: 0 };

const chat = (data, more = {}) =>
  openai.chat.completions.create({
    model: "m", max_completion_tokens: 6, ...ours, ...more,
    messages: [{ role: "user", content: [{ type: "image_url", image_url: { url: url(data), ...more.image } }, { type: "text", text: "What is it?" }] }],
  });

test("chat completions see a picture", async () => {
  const one = await chat(PICTURE), other = await chat(OTHER);
  assert.equal(one.usage.prompt_tokens_details.image_tokens, 266);
  assert.notEqual(one.evenkeel.digest, other.evenkeel.digest);
  const low = await chat(PICTURE, { image: { detail: "low" } });
  assert.equal(low.usage.prompt_tokens, one.usage.prompt_tokens - 266 + 63);
});

test("usage says what was encoded", async () => {
  const fresh = png(64, 48, 11).toString("base64"), words = (w) => ({ messages: [{ role: "user", content: [{ type: "text", text: w }, { type: "image_url", image_url: { url: url(fresh) } }] }] });
  const first = await chat(fresh, words("one"));
  assert.equal(first.usage.prompt_tokens_details.cached_image_tokens, 0);
  let usage;
  for await (const c of await chat(fresh, { ...words("another"), stream: true, stream_options: { include_usage: true } })) usage = c.usage ?? usage;
  assert.equal(usage.prompt_tokens_details.image_tokens, 266);
  assert.equal(usage.prompt_tokens_details.cached_image_tokens, 266);
  const r = await openai.responses.create({ model: "m", max_output_tokens: 2, input: [{ role: "user", content: [{ type: "input_text", text: "a third" }, { type: "input_image", detail: "auto", image_url: url(fresh) }] }] });
  assert.equal(r.usage.input_tokens_details.cached_image_tokens, 266);
  const m = await anthropic.messages.create({ model: "m", max_tokens: 2, messages: [{ role: "user", content: [{ type: "text", text: "a fourth" }, { type: "image", source: { type: "base64", media_type: "image/png", data: fresh } }] }] });
  assert.equal(m.usage.cached_image_tokens, 266);
});

test("a stream says the same", async () => {
  const one = await chat(PICTURE);
  let text = "";
  for await (const c of await chat(PICTURE, { stream: true })) text += c.choices[0]?.delta?.content ?? "";
  assert.equal(text, one.choices[0].message.content);
});

test("responses see it, and keep it for the next turn", async () => {
  const input = [{ role: "user", content: [{ type: "input_image", detail: "auto", image_url: url(PICTURE) }, { type: "input_text", text: "What is it?" }] }];
  const r = await openai.responses.create({ model: "m", max_output_tokens: 6, input, ...ours });
  assert.equal(r.evenkeel.digest, (await chat(PICTURE)).evenkeel.digest);
  const then = await openai.responses.create({ model: "m", max_output_tokens: 6, input: "And?", previous_response_id: r.id, ...ours });
  assert.ok(then.usage.input_tokens > 266, JSON.stringify(then.usage));
});

test("messages see it, in a result of a tool too", async () => {
  const image = (data) => ({ type: "image", source: { type: "base64", media_type: "image/png", data } });
  const ask = (messages) => ({ model: "m", max_tokens: 6, messages, ...ours });
  const m = await anthropic.messages.create(ask([{ role: "user", content: [image(PICTURE), { type: "text", text: "What is it?" }] }]));
  assert.equal(m.evenkeel.digest, (await chat(PICTURE)).evenkeel.digest);
  const shot = (data) => ask([
    { role: "user", content: "Look." },
    { role: "assistant", content: [{ type: "tool_use", id: "toolu_1", name: "shot", input: {} }] },
    { role: "user", content: [{ type: "tool_result", tool_use_id: "toolu_1", content: [image(data)] }] },
  ]);
  const one = await anthropic.messages.create(shot(PICTURE)), other = await anthropic.messages.create(shot(OTHER));
  assert.notEqual(one.evenkeel.digest, other.evenkeel.digest);
  const { input_tokens } = await anthropic.messages.countTokens({ model: "m", messages: shot(PICTURE).messages });
  assert.equal(input_tokens, one.usage.input_tokens + one.usage.cache_read_input_tokens);
});

test("pictures in results of tools: among texts, several, streamed, and what is refused", async () => {
  const image = (source) => ({ type: "image", source });
  const base64 = (data) => image({ type: "base64", media_type: "image/png", data });
  const ask = (content) => ({
    model: "m", max_tokens: 6, ...ours,
    messages: [
      { role: "user", content: "Look." },
      { role: "assistant", content: [{ type: "tool_use", id: "toolu_1", name: "shot", input: {} }] },
      { role: "user", content: [{ type: "tool_result", tool_use_id: "toolu_1", content }] },
    ],
  });
  const texts = [{ type: "text", text: "before" }, { type: "text", text: "behind" }];
  const plain = await anthropic.messages.create(ask(texts));
  const mixed = ask([texts[0], base64(PICTURE), base64(OTHER), texts[1]]);
  const whole = await anthropic.messages.create(mixed);
  const size = (u) => u.input_tokens + u.cache_read_input_tokens;
  assert.equal(size(whole.usage), size(plain.usage) + 2 * (266 + 2));
  assert.equal(whole.usage.image_tokens, 2 * 266);
  const streamed = await anthropic.messages.stream(mixed).finalMessage();
  assert.deepEqual(streamed.content, whole.content);
  assert.equal(size(streamed.usage), size(whole.usage));
  const swapped = await anthropic.messages.create(ask([texts[0], base64(OTHER), base64(PICTURE), texts[1]]));
  assert.notEqual(swapped.evenkeel.digest, whole.evenkeel.digest);
  for (const [source, says] of [
    [{ type: "base64", media_type: "image/png", data: Buffer.from("hello").toString("base64") }, /not a picture/],
    [{ type: "url", url: "https://example.org/a.png" }, /--media-urls/],
    [{ type: "file", file_id: "file_1" }, /file/],
  ]) {
    const e = await failure(anthropic.messages.create(ask([image(source)])));
    assert.equal(e.status, 400);
    assert.match(e.message, says);
  }
});

test("Ollama's client sends it", async () => {
  const want = await chat(PICTURE);
  const r = await ollama.chat({ model: "m", stream: false, options: { num_predict: 6, temperature: 0 }, messages: [{ role: "user", content: "What is it?", images: [PICTURE] }] });
  assert.equal(r.prompt_eval_count, want.usage.prompt_tokens);
  assert.equal(r.message.content, want.choices[0].message.content);
});

test("what is no picture is an error of the request", async () => {
  const e = await failure(chat(Buffer.from("hello").toString("base64")));
  assert.equal(e.status, 400);
  assert.match(e.message, /not a picture/);
  const far = await failure(openai.chat.completions.create({ model: "m", messages: [{ role: "user", content: [{ type: "image_url", image_url: { url: "https://example.org/a.png" } }] }] }));
  assert.match(far.message, /--media-urls/);
});

await runAll();
