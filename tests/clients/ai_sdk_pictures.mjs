// Pictures and sounds through the AI SDK's providers, to a model with eyes and ears: node ai_sdk_pictures.mjs http://127.0.0.1:PORT
import assert from "node:assert/strict";
import { File } from "node:buffer";

import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { experimental_transcribe as transcribe, generateText, streamText } from "ai";
import { base, runAll, test } from "./harness.mjs";

globalThis.File ??= File; // the SDK asks for Node.js 22; this is all that 18 lacks here
globalThis.AI_SDK_LOG_WARNINGS = false;
const at = { baseURL: `${base}/v1`, apiKey: "none" };
const models = {
  responses: createOpenAI(at)("gemma"),
  chat: createOpenAI(at).chat("gemma"),
  compatible: createOpenAICompatible({ name: "evenkeel", includeUsage: true, ...at })("gemma"),
  anthropic: createAnthropic(at)("gemma"),
};
// 2 x 1 pixels, which become 23 x 11 tokens.
const PICTURE = Buffer.from("iVBORw0KGgoAAAANSUhEUgAAAAIAAAABCAIAAAB7QOjdAAAADUlEQVR42mP4z8AARAAI/gH/GcBr5wAAAABJRU5ErkJggg==", "base64");
const ask = (model, ...before) =>
  generateText({ model, temperature: 0, maxOutputTokens: 6, maxRetries: 0, messages: [{ role: "user", content: [...before, { type: "text", text: "What is it?" }] }] });

for (const [name, model] of Object.entries(models)) {
  test(`${name}: a picture is in the prompt`, async () => {
    const seen = await ask(model, { type: "file", data: PICTURE, mediaType: "image/png" });
    const blind = await ask(model);
    assert.equal(seen.totalUsage.inputTokens - blind.totalUsage.inputTokens, 255);
  });
}

for (const [name, model] of Object.entries(models)) {
  test(`${name}: a stream with a picture says what the whole does`, async () => {
    const messages = [{ role: "user", content: [{ type: "file", data: PICTURE, mediaType: "image/png" }, { type: "text", text: "What is it?" }] }];
    const how = { model, temperature: 0, maxOutputTokens: 6, maxRetries: 0, messages };
    const whole = await generateText(how), stream = streamText(how);
    let text = "";
    for await (const piece of stream.textStream) text += piece;
    assert.equal(text, whole.text);
    assert.equal((await stream.totalUsage).inputTokens, whole.totalUsage.inputTokens);
  });
}

function wav(seconds) {
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
  for (let i = 0; i < n; i++) b.writeInt16LE((((i * 37) % 601) - 300) * 60, 44 + 2 * i);
  return b;
}

test("chat: a sound is in the prompt", async () => {
  const heard = await ask(models.chat, { type: "file", data: wav(1), mediaType: "audio/wav" }), deaf = await ask(models.chat);
  assert.equal(heard.totalUsage.inputTokens - deaf.totalUsage.inputTokens, 27);
});

// What it asks for by the model's name: whisper-1 is asked for verbose_json with segments.
for (const name of ["gemma", "whisper-1", "gpt-4o-transcribe"]) {
  test(`a transcription, of ${name}`, async () => {
    const model = createOpenAI(at).transcription(name);
    const one = await transcribe({ model, audio: wav(1), maxRetries: 0 });
    assert.ok(one.text.length > 0);
    if (name === "whisper-1") assert.equal(one.durationInSeconds, 1);
    const guided = await transcribe({ model, audio: wav(1), maxRetries: 0, providerOptions: { openai: { language: "de", prompt: "Zoe" } } });
    assert.ok(guided.text.length > 0);
  });
}

await runAll();
