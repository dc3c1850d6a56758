// The AI SDK's providers against the server: node ai_sdk_replies.mjs http://127.0.0.1:PORT. Its parsers are strict: a reply that
// has a member of another type than they know is refused as a whole.
import assert from "node:assert/strict";
import { generateText, jsonSchema, streamText, tool } from "ai";
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { base, runAll, test } from "../clients/harness.mjs";

globalThis.AI_SDK_LOG_WARNINGS = false;
// The providers leave the temperature out for models that think.
const greedy = (url, { body, ...rest }) => fetch(url, { ...rest, body: JSON.stringify({ ...JSON.parse(body), temperature: 0 }) });
const at = { baseURL: `${base}/v1`, apiKey: "any", fetch: greedy };
const openai = createOpenAI(at), anthropic = createAnthropic(at);
const compatible = createOpenAICompatible({ name: "evenkeel", includeUsage: true, ...at });
const tools = {
  get_weather: tool({
    description: "Get the weather for a city",
    inputSchema: jsonSchema({ type: "object", properties: { city: { type: "string" } }, required: ["city"] }),
  }),
};
// Options that make a provider think, and ask for log-probabilities; whether it knows thoughts and tools.
const providers = {
  responses: { model: openai.responses("pocket"), tools, thinks: true,
               think: { openai: { reasoningEffort: "medium", reasoningSummary: "auto", forceReasoning: true } },
               more: { openai: { logprobs: 3 } } },
  chat: { model: openai.chat("pocket"), tools, think: { openai: { reasoningEffort: "medium", forceReasoning: true } },
          more: { openai: { logprobs: 3 } } },
  compatible: { model: compatible.chatModel("pocket"), tools, thinks: true, think: { evenkeel: { reasoningEffort: "medium" } } },
  anthropic: { model: anthropic("pocket"), tools, thinks: true,
               think: { anthropic: { thinking: { type: "enabled", budgetTokens: 1024 } } } },
  completion: { model: openai.completion("pocket"), more: { openai: { logprobs: 3 } } },
};
const WEATHER = "What's the weather in Oslo?";

// What a stream's parts say, put together; the kinds of its parts in order.
async function streamed(ask) {
  const parts = [], said = { text: "", reasoning: "", calls: [] };
  for await (const p of streamText({ ...ask, onError() {} }).fullStream) {
    if (p.type === "error") throw p.error;
    if (p.type === "text-delta") said.text += p.text;
    if (p.type === "reasoning-delta") said.reasoning += p.text;
    if (p.type === "tool-call") said.calls.push([p.toolName, p.input]);
    if (p.type === "finish") said.finish = p.finishReason;
    parts.push(p.type);
  }
  return { parts, said };
}

for (const [name, p] of Object.entries(providers)) {
  const asks = { text: { prompt: "Hello" }, "a text that is cut": { prompt: "Hello", maxOutputTokens: 3 } };
  if (p.tools) asks["a call"] = { prompt: WEATHER, tools };
  if (p.think) asks["a thought"] = { prompt: "Hello", providerOptions: p.think };
  if (p.think) asks["a thought and a call"] = { prompt: WEATHER, tools, providerOptions: p.think };
  if (p.more) asks["log-probabilities"] = { prompt: "Hello", providerOptions: p.more };
  for (const [what, more] of Object.entries(asks))
    test(`${name}: ${what}, whole and as a stream`, async () => {
      const ask = { model: p.model, maxRetries: 0, maxOutputTokens: 200, ...more };
      const whole = await generateText(ask);
      const { parts, said } = await streamed(ask);
      const text = whole.content.filter((c) => c.type === "text"), thoughts = whole.content.filter((c) => c.type === "reasoning");
      assert.equal(said.finish, whole.finishReason);
      assert.equal(said.finish, more.tools ? "tool-calls" : more.maxOutputTokens ? "length" : said.finish);
      assert.deepEqual(said.calls, whole.toolCalls.map((c) => [c.toolName, c.input]));
      assert.deepEqual(said.calls, more.tools ? [["get_weather", { city: "Oslo" }]] : []);
      assert.equal(said.text, text.map((c) => c.text).join(""));
      assert.equal(said.reasoning, thoughts.map((c) => c.text).join(""));
      if (more.tools) assert.ok(!parts.includes("text-start") && text.length === 0, "no empty text before a call");
      if (more.providerOptions === p.think && p.thinks) {
        assert.ok(said.reasoning.length > 0, "the thought is shown");
        assert.ok(thoughts.length === 1 && thoughts[0].text.length > 0, "once");
      }
    });
}

await runAll();
