// The AI SDK as a client, through its four providers: node ai_sdk.mjs http://127.0.0.1:PORT
import assert from "node:assert/strict";
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, Output, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";
import { base, runAll, test } from "../clients/harness.mjs";

globalThis.AI_SDK_LOG_WARNINGS = false;
const at = { baseURL: `${base}/v1`, apiKey: "none" };
const models = {
  responses: createOpenAI(at)("gemma"),
  chat: createOpenAI(at).chat("gemma"),
  compatible: createOpenAICompatible({ name: "evenkeel", ...at, supportsStructuredOutputs: true, includeUsage: true })("gemma"),
  anthropic: createAnthropic(at)("gemma"),
};
const weather = tool({
  description: "Gets the weather of a city.",
  inputSchema: z.object({ city: z.string(), labels: z.record(z.string(), z.string()).optional() }),
  execute: async ({ city }) => ({ city, temperature: 21, condition: "sunny" }),
});
const person = z.object({ name: z.string(), age: z.number().int(), tags: z.record(z.string(), z.string()).optional() });
// The SDK adds a part of its own, "custom", to streams of Messages.
const kinds = (steps) => steps.map((s) => s.content.map((part) => part.type).filter((type) => type !== "custom"));
// Thinking, as each provider asks for it.
const thinking = {
  responses: { providerOptions: { openai: { reasoningEffort: "high", reasoningSummary: "auto", forceReasoning: true } } },
  compatible: { providerOptions: { evenkeel: { reasoningEffort: "high" } } },
  anthropic: { providerOptions: { anthropic: { thinking: { type: "enabled", budgetTokens: 1024 } } } },
};

for (const [name, model] of Object.entries(models)) {
  const ask = { model, temperature: 0, maxOutputTokens: 200, maxRetries: 0, tools: { get_weather: weather }, stopWhen: stepCountIs(4) };
  test(`${name}: a run of two turns to its end`, async () => {
    const messages = [{ role: "user", content: "What is the weather in Paris?" }];
    const r = await generateText({ ...ask, messages });
    assert.deepEqual(kinds(r.steps), [["tool-call", "tool-result"], ["text"]]);
    assert.match(r.text, /21/);
    const next = await generateText({ ...ask, messages: [...messages, ...r.response.messages, { role: "user", content: "What is the weather in Oslo?" }] });
    assert.match(next.text, /21/);
    assert.ok(next.totalUsage.inputTokens > 100);
  });
  test(`${name}: a stream has the parts of the whole, none of them empty`, async () => {
    const failures = [];
    const r = streamText({ ...ask, prompt: "What is the weather in Paris?", onError: ({ error }) => failures.push(error) });
    assert.deepEqual(kinds(await r.steps), [["tool-call", "tool-result"], ["text"]]);
    assert.match(await r.text, /21/);
    assert.deepEqual(failures, []);
  });
  test(`${name}: structured output with a record`, async () => {
    const r = await generateText({ model, temperature: 0, maxOutputTokens: 300, maxRetries: 0, prompt: "Anna is 31 years old.", output: Output.object({ schema: person }) });
    assert.ok(Number.isInteger(r.output.age), JSON.stringify(r.output));
  });
  if (thinking[name])
    test(`${name}: thoughts, whole and streamed`, async () => {
      const think = { model, maxOutputTokens: 1600, maxRetries: 0, prompt: "A train covers 120 km in 2 hours. What is its speed?", ...thinking[name] };
      const r = await generateText(think);
      assert.ok(r.reasoningText?.length > 10, JSON.stringify(r.content));
      assert.ok((await streamText(think).reasoningText)?.length > 10);
    });
}
await runAll();
