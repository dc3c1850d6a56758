// LlamaIndex as a client: node llamaindex.mjs http://127.0.0.1:PORT
import assert from "node:assert/strict";
import { openai } from "@llamaindex/openai";
import { tool } from "llamaindex";
import { z } from "zod";
import { base, runAll, test } from "../clients/harness.mjs";

const llm = openai({ model: "gemma", temperature: 0, maxTokens: 200, apiKey: "none", baseURL: `${base}/v1`, supportToolCall: true });
const weather = tool({
  name: "get_weather",
  description: "Gets the weather of a city.",
  parameters: z.object({ city: z.string() }),
  execute: ({ city }) => JSON.stringify({ city, temperature: 21, condition: "sunny" }),
});
const ask = [{ role: "user", content: "What is the weather in Paris?" }];

test("a call, its result, an answer", async () => {
  const r = await llm.chat({ messages: ask, tools: [weather] });
  const [call] = r.message.options.toolCall;
  assert.equal(call.name, "get_weather");
  const input = typeof call.input === "string" ? JSON.parse(call.input) : call.input;
  assert.equal(input.city, "Paris");
  const result = { role: "user", content: await weather.call(input), options: { toolResult: { id: call.id, result: JSON.stringify({ temperature: 21 }), isError: false } } };
  const next = await llm.chat({ messages: [...ask, r.message, result], tools: [weather] });
  assert.match(String(next.message.content), /21/);
});
test("a stream says what the whole says", async () => {
  const whole = await llm.chat({ messages: [{ role: "user", content: "Hello" }] });
  let text = "";
  for await (const chunk of await llm.chat({ messages: [{ role: "user", content: "Hello" }], stream: true })) text += chunk.delta;
  assert.equal(text, whole.message.content);
});
await runAll();
