// The official SDK of OpenAI's API against responses: node openai_responses.mjs http://127.0.0.1:PORT
import assert from "node:assert/strict";
import OpenAI from "openai";
import { base, failure, idle, runAll, test } from "./harness.mjs";

const client = new OpenAI({ baseURL: `${base}/v1`, apiKey: "any", maxRetries: 0 });
const WEATHER = {
  type: "function",
  name: "get_weather",
  description: "Get the weather for a city",
  parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
  strict: false,
};
const ask = (more = {}) => ({ model: "pocket", input: "Hello", temperature: 0, max_output_tokens: 60, ...more });
const weather = (more = {}) => ask({ input: "What's the weather in Oslo?", tools: [WEATHER], max_output_tokens: 100, ...more });
// Ids belong to a response.
const plain = (output) =>
  output.map(({ id, call_id, parsed_arguments, ...rest }) =>
    rest.content ? { ...rest, content: rest.content.map(({ parsed, ...part }) => part) } : rest);

for (const [name, body] of [
  ["text", ask()],
  ["sampled text", ask({ temperature: 1, seed: 5 })],
  ["thinking", ask({ reasoning: { effort: "high" }, include: ["reasoning.encrypted_content"] })],
  ["a call", weather()],
  ["a call that is cut", weather({ max_output_tokens: 12 })],
  ["text that is cut", ask({ max_output_tokens: 3 })],
  ["log-probabilities", ask({ include: ["message.output_text.logprobs"], top_logprobs: 2 })],
])
  test(`a stream says what the whole response says: ${name}`, async () => {
    const whole = await client.responses.create(body);
    const stream = client.responses.stream(body);
    const events = [];
    stream.on("event", (e) => events.push(e));
    const put = await stream.finalResponse();
    assert.deepEqual(plain(put.output), plain(whole.output));
    assert.equal(put.status, whole.status);
    assert.deepEqual(put.incomplete_details, whole.incomplete_details);
    assert.equal(put.usage.output_tokens, whole.usage.output_tokens);
    assert.deepEqual(events.map((e) => e.sequence_number), events.map((_, i) => i));
    assert.deepEqual(events.slice(0, 2).map((e) => e.type), ["response.created", "response.in_progress"]);
    assert.equal(events.at(-1).type, `response.${whole.status}`);
    // Every delta adds up to its item.
    for (const done of events.filter((e) => e.type === "response.output_text.done")) {
      const deltas = events.filter((e) => e.type === "response.output_text.delta" && e.item_id === done.item_id);
      assert.equal(deltas.map((e) => e.delta).join(""), done.text);
      assert.deepEqual(deltas.flatMap((e) => e.logprobs), done.logprobs);
    }
    for (const done of events.filter((e) => e.type === "response.function_call_arguments.done")) {
      const deltas = events.filter((e) => e.type === "response.function_call_arguments.delta" && e.item_id === done.item_id);
      assert.equal(deltas.map((e) => e.delta).join(""), done.arguments);
    }
    const added = events.filter((e) => e.type === "response.output_item.added").map((e) => e.item.id);
    const closed = events.filter((e) => e.type === "response.output_item.done").map((e) => e.item);
    assert.deepEqual(closed.map((i) => i.id), added);
    assert.deepEqual(plain(closed), plain(whole.output));
  });

test("a response", async () => {
  const r = await client.responses.create(ask({ instructions: "Be brief.", metadata: { a: "b" } }));
  assert.equal(r.object, "response");
  assert.match(r.id, /^resp_/);
  assert.ok(r.output_text.length > 0);
  assert.equal(r.instructions, "Be brief.");
  assert.deepEqual(r.metadata, { a: "b" });
  assert.equal(r.error, null);
  assert.ok(r.usage.input_tokens > 5 && r.usage.total_tokens === r.usage.input_tokens + r.usage.output_tokens);
  const chat = await client.chat.completions.create({
    model: "m", temperature: 0, max_tokens: 60,
    messages: [{ role: "system", content: "Be brief." }, { role: "user", content: "Hello" }],
  });
  assert.equal(r.output_text, chat.choices[0].message.content);
});

test("tools both ways, without and with the server's memory", async () => {
  const r = await client.responses.create(weather());
  const call = r.output.find((i) => i.type === "function_call");
  assert.equal(call.name, "get_weather");
  assert.equal(JSON.parse(call.arguments).city, "Oslo");
  const result = { type: "function_call_output", call_id: call.call_id, output: "4 C, rain" };
  const input = [{ role: "user", content: "What's the weather in Oslo?" }, ...r.output, result];
  const stateless = await client.responses.create(weather({ input, store: false }));
  const stateful = await client.responses.create(weather({ input: [result], previous_response_id: r.id }));
  assert.ok(stateless.output_text.length > 0);
  assert.equal(stateful.output_text, stateless.output_text);
  assert.equal(stateful.usage.input_tokens, stateless.usage.input_tokens);
  const after = await client.responses.create(weather({ input: "Thanks", previous_response_id: stateful.id }));
  assert.ok(after.usage.input_tokens > stateful.usage.input_tokens);
});

test("forced calls and structured output", async () => {
  for (const tool_choice of ["required", { type: "function", name: "get_weather" }]) {
    const r = await client.responses.create(weather({ tool_choice, input: "Hello" }));
    const call = r.output.find((i) => i.type === "function_call");
    assert.equal(typeof JSON.parse(call.arguments).city, "string");
  }
  const schema = { type: "object", properties: { name: { enum: ["Ada", "Bob"] } }, required: ["name"], additionalProperties: false };
  const r = await client.responses.create(ask({ text: { format: { type: "json_schema", name: "who", schema, strict: true } } }));
  assert.ok(["Ada", "Bob"].includes(JSON.parse(r.output_text).name));
});

test("responses are stored, read and deleted", async () => {
  const r = await client.responses.create(ask());
  const read = await client.responses.retrieve(r.id);
  assert.deepEqual(read.output, r.output);
  const items = await client.responses.inputItems.list(r.id);
  assert.equal(items.data[0].content, "Hello");
  await client.responses.delete(r.id);
  assert.equal((await failure(client.responses.retrieve(r.id))).status, 404);
  const gone = await failure(client.responses.create(ask({ previous_response_id: r.id })));
  assert.equal(gone.status, 404);
  assert.equal(gone.param, "previous_response_id");
  const unstored = await client.responses.create(ask({ store: false }));
  assert.equal((await failure(client.responses.retrieve(unstored.id))).status, 404);
  assert.equal((await failure(client.responses.delete("resp_none"))).status, 404);
});

test("responses in the background", async () => {
  let r = await client.responses.create(ask({ background: true }));
  assert.ok(["queued", "in_progress"].includes(r.status));
  while (["queued", "in_progress"].includes(r.status)) r = await client.responses.retrieve(r.id);
  assert.equal(r.output_text, (await client.responses.create(ask())).output_text);
  assert.equal((await client.responses.cancel(r.id)).status, r.status);
  const events = [];
  for await (const e of await client.responses.create(ask({ background: true, stream: true }))) events.push(e);
  assert.equal(events[1].type, "response.queued");
  const again = [];
  const id = events[0].response.id;
  for await (const e of await client.responses.retrieve(id, { stream: true, starting_after: 2 })) again.push(e);
  assert.deepEqual(again, events.slice(3));
});

test("errors", async () => {
  for (const [more, param] of [
    [{ input: undefined }, "input"],
    [{ input: [{ role: "user", content: [{ type: "input_image", image_url: "x" }] }] }, "input"],
    [{ tools: [{ type: "web_search" }] }, "tools"],
    [{ background: true, store: false }, "background"],
    [{ temperature: -1 }, "temperature"],
  ]) {
    const e = await failure(client.responses.create(ask(more)));
    assert.equal(e.status, 400);
    assert.equal(e.param, param);
  }
  const long = await failure(client.responses.create(ask({ input: "word ".repeat(60000) })));
  assert.equal(long.code, "context_length_exceeded");
});

test("an aborted stream ends its request", async () => {
  const stream = await client.responses.create(ask({ max_output_tokens: 4000, temperature: 1, stream: true }));
  for await (const e of stream) if (e.type === "response.output_text.delta") stream.controller.abort();
  await idle();
});

await runAll();
