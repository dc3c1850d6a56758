// Pictures through the AI SDK's providers, to a model with eyes: node ai_sdk_pictures.mjs http://127.0.0.1:PORT
import assert from "node:assert/strict";
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText } from "ai";
import { base, runAll, test } from "../clients/harness.mjs";

globalThis.AI_SDK_LOG_WARNINGS = false;
const at = { baseURL: `${base}/v1`, apiKey: "none" };
const models = {
  responses: createOpenAI(at)("gemma"),
  chat: createOpenAI(at).chat("gemma"),
  compatible: createOpenAICompatible({ name: "evenkeel", ...at })("gemma"),
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

await runAll();
