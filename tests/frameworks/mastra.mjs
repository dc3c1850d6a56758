// Mastra as a client: node mastra.mjs http://127.0.0.1:PORT
import assert from "node:assert/strict";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { Agent } from "@mastra/core/agent";
import { createTool } from "@mastra/core/tools";
import { z } from "zod";
import { base, runAll, test } from "../clients/harness.mjs";

const weather = createTool({
  id: "get_weather",
  description: "Gets the weather of a city.",
  inputSchema: z.object({ city: z.string() }),
  execute: async () => ({ temperature: 21, condition: "sunny" }),
});
const provider = createOpenAICompatible({ name: "evenkeel", baseURL: `${base}/v1`, apiKey: "none", supportsStructuredOutputs: true, includeUsage: true });
const agent = new Agent({ id: "helper", name: "helper", instructions: "You help.", model: provider("gemma"), tools: { get_weather: weather } });
const settings = { modelSettings: { temperature: 0, maxOutputTokens: 200 }, maxSteps: 4 };

test("a run to its end", async () => {
  const r = await agent.generate("What is the weather in Paris?", settings);
  assert.match(r.text, /21/);
});
test("a streamed run", async () => {
  const r = await agent.stream("What is the weather in Paris?", settings);
  let text = "";
  for await (const piece of r.textStream) text += piece;
  assert.match(text, /21/);
});
test("structured output", async () => {
  const r = await agent.generate("Anna is 31 years old.", { ...settings, maxSteps: 1, toolChoice: "none", structuredOutput: { schema: z.object({ name: z.string(), age: z.number().int() }) } });
  assert.ok(Number.isInteger(r.object.age), JSON.stringify(r.object));
});
await runAll();
