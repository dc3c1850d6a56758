// OpenAI Agents as a client, over Chat Completions and Responses: node openai_agents.mjs http://127.0.0.1:PORT
import assert from "node:assert/strict";
import { Agent, OpenAIChatCompletionsModel, OpenAIResponsesModel, Runner, setTracingDisabled, tool } from "@openai/agents";
import OpenAI from "openai";
import { z } from "zod";
import { base, runAll, test } from "../clients/harness.mjs";

setTracingDisabled(true);
const client = new OpenAI({ baseURL: `${base}/v1`, apiKey: "none", maxRetries: 0 });
const weather = tool({
  name: "get_weather",
  description: "Gets the weather of a city.",
  parameters: z.object({ city: z.string() }),
  execute: async ({ city }) => JSON.stringify({ city, temperature: 21, condition: "sunny" }),
});
for (const [name, model] of [["chat", new OpenAIChatCompletionsModel(client, "gemma")], ["responses", new OpenAIResponsesModel(client, "gemma")]]) {
  const agent = (settings = {}) => new Agent({ name: "Helper", model, tools: [weather], modelSettings: { temperature: 0, maxTokens: 300, ...settings } });
  const runner = new Runner({ tracingDisabled: true });
  test(`${name}: a run to its end`, async () => {
    const r = await runner.run(agent(), "What is the weather in Paris?", { maxTurns: 4 });
    assert.match(r.finalOutput, /21/);
    const next = await runner.run(agent(), [...r.history, { role: "user", content: "What is the weather in Oslo?" }], { maxTurns: 4 });
    assert.match(next.finalOutput, /21/);
  });
  test(`${name}: a streamed run`, async () => {
    const r = await runner.run(agent(), "What is the weather in Paris?", { maxTurns: 4, stream: true });
    const kinds = [];
    for await (const e of r) kinds.push(e.type === "raw_model_stream_event" ? e.data.type : e.name ?? e.type);
    await r.completed;
    assert.match(r.finalOutput, /21/);
    assert.ok(kinds.includes("tool_called") && kinds.includes("tool_output") && kinds.filter((k) => k === "output_text_delta").length > 2, kinds);
  });
  test(`${name}: thoughts are read`, async () => {
    const thinking = name === "chat" ? { providerData: { reasoning_effort: "high" } } : { reasoning: { effort: "high", summary: "auto" } };
    const r = await runner.run(agent({ ...thinking, maxTokens: 600 }), "A train covers 120 km in 2 hours. What is its speed?", { maxTurns: 2 });
    const thought = r.newItems.filter((i) => i.type === "reasoning_item").map((i) => i.rawItem);
    const text = thought.flatMap((t) => [...(t.content ?? []), ...(t.rawContent ?? [])]).map((c) => c.text).join("");
    assert.ok(text.length > 10, JSON.stringify(r.newItems.map((i) => i.rawItem)));
  });
}
await runAll();
