// The official SDK of Anthropic's API against the server: node anthropic.mjs http://127.0.0.1:PORT
import assert from "node:assert/strict";
import Anthropic from "@anthropic-ai/sdk";
import { base, failure, idle, runAll, test } from "./harness.mjs";

const client = new Anthropic({ baseURL: base, apiKey: "any", maxRetries: 0 });
const WEATHER = {
  name: "get_weather",
  description: "Get the weather for a city",
  input_schema: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
};
const ask = (more = {}) => ({
  model: "pocket",
  max_tokens: 60,
  temperature: 0,
  messages: [{ role: "user", content: "Hello" }],
  ...more,
});
const weather = (more = {}) =>
  ask({ messages: [{ role: "user", content: "What's the weather in Oslo?" }], tools: [WEATHER], max_tokens: 100, ...more });
// Ids belong to a request.
const plain = (message) => message.content.map(({ id, ...rest }) => rest);

test("a message", async () => {
  const m = await client.messages.create(ask({ system: [{ type: "text", text: "Be brief.", cache_control: { type: "ephemeral" } }] }));
  assert.equal(m.type, "message");
  assert.equal(m.role, "assistant");
  assert.equal(m.model, "pocket");
  assert.match(m.id, /^msg_/);
  assert.equal(m.content[0].type, "text");
  assert.ok(m.content[0].text.length > 0);
  assert.ok(["end_turn", "max_tokens"].includes(m.stop_reason));
  assert.ok(m.usage.input_tokens + m.usage.cache_read_input_tokens > 5 && m.usage.output_tokens > 0);
});

test("a thread sends what is new alone", async () => {
  const sent = [];
  const fetch = (url, init) => (sent.push(JSON.parse(init.body)), globalThis.fetch(url, init));
  const threads = new Anthropic({ baseURL: base, apiKey: "any", maxRetries: 0, fetch }).beta.messages;
  const thread = threads.thread({ model: "pocket", max_tokens: 24, temperature: 0, system: "Be brief." });
  for (const content of ["Hello", "And again?"]) assert.ok((await thread.send({ role: "user", content })).content.length > 0);
  assert.deepEqual(sent.map((b) => [b.thread.type, b.messages.length, b.system ?? null]), [["create", 1, "Be brief."], ["continue", 1, null]]);
});

for (const [name, body] of [
  ["text", ask()],
  ["sampled text", ask({ temperature: 1, seed: 5 })],
  ["thinking", ask({ thinking: { type: "enabled", budget_tokens: 1024 } })],
  ["omitted thinking", ask({ thinking: { type: "adaptive", display: "omitted" } })],
  ["a call", weather()],
  ["a call that is cut", weather({ max_tokens: 12 })],
])
  test(`a stream says what the whole message says: ${name}`, async () => {
    const whole = await client.messages.create(body);
    const stream = client.messages.stream(body);
    const types = [];
    stream.on("streamEvent", (e) => types.push(e.type));
    const put = await stream.finalMessage();
    assert.deepEqual(plain(put), plain(whole));
    assert.equal(put.stop_reason, whole.stop_reason);
    assert.equal(put.usage.output_tokens, whole.usage.output_tokens);
    assert.equal(types[0], "message_start");
    assert.equal(types.at(-1), "message_stop");
  });

test("tools both ways", async () => {
  const m = await client.messages.create(weather());
  assert.equal(m.stop_reason, "tool_use");
  const call = m.content.find((b) => b.type === "tool_use");
  assert.match(call.id, /^toolu_[0-9a-f]{24}$/);
  assert.equal(call.name, "get_weather");
  assert.equal(call.input.city, "Oslo");
  const messages = [
    { role: "user", content: "What's the weather in Oslo?" },
    { role: "assistant", content: m.content },
    { role: "user", content: [{ type: "tool_result", tool_use_id: call.id, content: "4 C, rain" }] },
  ];
  const answer = await client.messages.create(weather({ messages }));
  assert.equal(answer.stop_reason, "end_turn");
  assert.ok(answer.content[0].text.length > 0);
});

test("parallel calls and their results", async () => {
  const use = (id, city) => ({ type: "tool_use", id, name: "get_weather", input: { city } });
  const result = (id, content) => ({ type: "tool_result", tool_use_id: id, content });
  const m = await client.messages.create(
    weather({
      messages: [
        { role: "user", content: "What's the weather in Oslo and Rome?" },
        { role: "assistant", content: [use("toolu_1", "Oslo"), use("toolu_2", "Rome")] },
        { role: "user", content: [result("toolu_1", "4 C, rain"), result("toolu_2", [{ type: "text", text: "21 C" }])] },
      ],
    }),
  );
  assert.ok(m.content.length > 0);
});

test("tool_choice none makes no call", async () => {
  const m = await client.messages.create(weather({ tool_choice: { type: "none" } }));
  assert.ok(m.content.every((b) => b.type !== "tool_use"));
});

test("forced calls and structured output", async () => {
  for (const tool_choice of [{ type: "any" }, { type: "tool", name: "get_weather" }]) {
    const m = await client.messages.create(weather({ tool_choice, messages: [{ role: "user", content: "Hello" }] }));
    const call = m.content.find((b) => b.type === "tool_use");
    assert.equal(call.name, "get_weather");
    assert.equal(typeof call.input.city, "string");
  }
  const schema = { type: "object", properties: { name: { enum: ["Ada", "Bob"] } }, required: ["name"], additionalProperties: false };
  const m = await client.messages.create(ask({ output_config: { format: { type: "json_schema", schema } } }));
  assert.ok(["Ada", "Bob"].includes(JSON.parse(m.content[0].text).name));
});

test("thinking comes back", async () => {
  const m = await client.messages.create(ask({ thinking: { type: "enabled", budget_tokens: 1024 }, max_tokens: 200 }));
  const messages = [{ role: "user", content: "Hello" }, { role: "assistant", content: m.content }, { role: "user", content: "And?" }];
  await client.messages.create(ask({ messages, thinking: { type: "enabled", budget_tokens: 1024 } }));
});

test("stop sequences", async () => {
  const all = (await client.messages.create(ask())).content[0].text;
  const stop = all.slice(3, 5);
  const m = await client.messages.create(ask({ stop_sequences: ["never said", stop] }));
  assert.equal(m.stop_reason, "stop_sequence");
  assert.equal(m.stop_sequence, stop);
  assert.equal(m.content[0].text, all.slice(0, all.indexOf(stop)));
});

test("count_tokens counts what a message has", async () => {
  const { model, messages, tools } = weather();
  const { input_tokens } = await client.messages.countTokens({ model, messages, tools });
  const m = await client.messages.create(weather());
  assert.equal(input_tokens, m.usage.input_tokens + m.usage.cache_read_input_tokens + m.usage.cache_creation_input_tokens);
  const billed = await client.messages.countTokens({
    model, messages, tools,
    system: [{ type: "text", text: "x-anthropic-billing-header: cc_version=2.1.29.abc; cch=12345;" }],
  });
  assert.equal(billed.input_tokens, input_tokens);
});

test("errors", async () => {
  const long = await failure(client.messages.create(ask({ messages: [{ role: "user", content: "word ".repeat(60000) }] })));
  assert.equal(long.status, 400);
  assert.match(long.message, /prompt is too long: \d+ tokens > \d+ maximum/);
  assert.equal(long.error.error.type, "invalid_request_error");
  const image = { type: "image", source: { type: "base64", media_type: "image/png", data: "AAAA" } };
  const refused = await failure(client.messages.create(ask({ messages: [{ role: "user", content: [image] }] })));
  assert.equal(refused.status, 400);
  assert.match(refused.message, /image/);
});

test("an aborted stream ends its request", async () => {
  const stream = client.messages.stream(ask({ max_tokens: 4000, temperature: 1 }));
  stream.on("text", () => stream.abort());
  const e = await failure(stream.finalMessage());
  assert.ok(e instanceof Anthropic.APIUserAbortError, String(e));
  await idle();
});

await runAll();
