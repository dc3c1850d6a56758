// LangChain as a client, over Chat Completions, Responses and Messages: node langchain.mjs http://127.0.0.1:PORT
import assert from "node:assert/strict";
import { ChatAnthropic } from "@langchain/anthropic";
import { HumanMessage, ToolMessage } from "@langchain/core/messages";
import { tool } from "@langchain/core/tools";
import { ChatOpenAI } from "@langchain/openai";
import { z } from "zod";
import { base, runAll, test } from "../clients/harness.mjs";

const openai = { model: "gemma", temperature: 0, maxTokens: 200, apiKey: "none", maxRetries: 0, configuration: { baseURL: `${base}/v1` } };
const models = {
  chat: new ChatOpenAI(openai),
  responses: new ChatOpenAI({ ...openai, useResponsesApi: true }),
  anthropic: new ChatAnthropic({ model: "gemma", temperature: 0, maxTokens: 200, apiKey: "none", anthropicApiUrl: base, maxRetries: 0 }),
};
const weather = tool(({ city }) => JSON.stringify({ city, temperature: 21, condition: "sunny" }), {
  name: "get_weather",
  description: "Gets the weather of a city.",
  schema: z.object({ city: z.string(), labels: z.record(z.string(), z.string()).optional() }),
});

for (const [name, model] of Object.entries(models)) {
  const bound = model.bindTools([weather]);
  test(`${name}: a call, its result, an answer`, async () => {
    const messages = [new HumanMessage("What is the weather in Paris?")];
    const call = await bound.invoke(messages);
    assert.deepEqual(call.tool_calls.map((c) => [c.name, c.args.city]), [["get_weather", "Paris"]]);
    messages.push(call, new ToolMessage({ tool_call_id: call.tool_calls[0].id, content: await weather.invoke(call.tool_calls[0].args) }));
    const answer = await bound.invoke(messages);
    assert.match(answer.text, /21/);
    assert.ok(answer.usage_metadata.input_tokens > 50);
  });
  test(`${name}: a stream says what the whole says`, async () => {
    let whole = null;
    for await (const chunk of await bound.stream("What is the weather in Paris?")) whole = whole ? whole.concat(chunk) : chunk;
    assert.deepEqual(whole.tool_calls.map((c) => [c.name, c.args.city]), [["get_weather", "Paris"]]);
  });
  test(`${name}: structured output`, async () => {
    const schema = z.object({ name: z.string(), age: z.number().int(), tags: z.record(z.string(), z.string()).optional() });
    const r = await model.withStructuredOutput(schema).invoke("Anna is 31 years old.");
    assert.ok(Number.isInteger(r.age) && typeof r.name === "string", JSON.stringify(r));
  });
}
await runAll();
