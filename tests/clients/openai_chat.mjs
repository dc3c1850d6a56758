// The official SDK of OpenAI's API against chat completions: node openai_chat.mjs http://127.0.0.1:PORT
import assert from "node:assert/strict";
import OpenAI from "openai";
import { base, failure, idle, runAll, test } from "./harness.mjs";

const client = new OpenAI({ baseURL: `${base}/v1`, apiKey: "any", maxRetries: 0 });
const WEATHER = {
  type: "function",
  function: {
    name: "get_weather",
    description: "Get the weather for a city",
    parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
  },
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
const plain = ({ tool_calls, ...rest }) => ({ ...rest, calls: tool_calls?.map((c) => c.function) ?? [] });

// A stream put together by hand, strictly: each call's first delta has id, type and name, the others none.
async function collect(body) {
  const stream = await client.chat.completions.create({ ...body, stream: true, stream_options: { include_usage: true } });
  const choices = [];
  let usage;
  for await (const chunk of stream) {
    if (chunk.usage) usage = chunk.usage;
    for (const { index, delta, finish_reason, logprobs } of chunk.choices) {
      const c = (choices[index] ??= { content: "", reasoning: "", calls: [], logprobs: [], finish_reason: null });
      assert.equal(c.finish_reason, null, "a delta behind the finish");
      c.content += delta.content ?? "";
      c.reasoning += delta.reasoning_content ?? "";
      c.logprobs.push(...(logprobs?.content ?? []));
      c.finish_reason = finish_reason;
      for (const call of delta.tool_calls ?? []) {
        if (c.calls.length === call.index) {
          assert.match(call.id, /^call_[0-9a-f]{24}$/);
          assert.equal(call.type, "function");
          c.calls.push({ name: call.function.name, arguments: "" });
        } else {
          assert.equal(call.id, undefined);
          assert.equal(call.function.name, undefined);
        }
        c.calls[call.index].arguments += call.function.arguments;
      }
    }
  }
  return { choices, usage };
}

for (const [name, body] of [
  ["text", ask()],
  ["sampled text", ask({ temperature: 1, seed: 5 })],
  ["two choices", ask({ n: 2, temperature: 1, seed: 5 })],
  ["thinking", ask({ reasoning_effort: "high" })],
  ["a call", weather()],
  ["a call that is cut", weather({ max_tokens: 12 })],
  ["log-probabilities", ask({ logprobs: true, top_logprobs: 3 })],
  ["log-probabilities and a stop text", ask({ logprobs: true, top_logprobs: 0, stop: ["help", "small"] })],
])
  test(`a stream says what the whole reply says: ${name}`, async () => {
    const whole = await client.chat.completions.create(body);
    const { choices, usage } = await collect(body);
    assert.equal(choices.length, whole.choices.length);
    whole.choices.forEach(({ message, finish_reason, logprobs }, i) => {
      assert.equal(choices[i].content, message.content ?? "");
      assert.equal(choices[i].reasoning, message.reasoning_content ?? "");
      assert.deepEqual(choices[i].calls, plain(message).calls);
      assert.equal(choices[i].finish_reason, finish_reason);
      assert.deepEqual(choices[i].logprobs, logprobs?.content ?? []);
    });
    // Cached tokens are those of the moment.
    assert.equal(usage.completion_tokens, whole.usage.completion_tokens);
    assert.equal(usage.prompt_tokens, whole.usage.prompt_tokens);
  });

test("the SDK's own accumulator", async () => {
  const stream = client.chat.completions.stream(weather());
  const whole = await client.chat.completions.create(weather());
  const { parsed, ...message } = (await stream.finalChatCompletion()).choices[0].message;
  const calls = message.tool_calls.map(({ function: { name, arguments: args } }) => ({ name, arguments: args }));
  assert.deepEqual(calls, plain(whole.choices[0].message).calls);
});

test("tools both ways", async () => {
  const r = await client.chat.completions.create(weather());
  assert.equal(r.choices[0].finish_reason, "tool_calls");
  const call = r.choices[0].message.tool_calls[0];
  assert.equal(call.function.name, "get_weather");
  assert.equal(JSON.parse(call.function.arguments).city, "Oslo");
  const messages = [
    { role: "user", content: "What's the weather in Oslo?" },
    r.choices[0].message,
    { role: "tool", tool_call_id: call.id, content: "4 C, rain" },
  ];
  const answer = await client.chat.completions.create(weather({ messages }));
  assert.equal(answer.choices[0].finish_reason, "stop");
  assert.ok(answer.choices[0].message.content.length > 0);
});

test("forced calls and structured output", async () => {
  for (const tool_choice of ["required", { type: "function", function: { name: "get_weather" } }]) {
    const r = await client.chat.completions.create(ask({ tools: [WEATHER], tool_choice, max_tokens: 100 }));
    assert.equal(typeof JSON.parse(r.choices[0].message.tool_calls[0].function.arguments).city, "string");
    assert.equal(r.choices[0].finish_reason, "tool_calls");
  }
  const schema = { type: "object", properties: { name: { enum: ["Ada", "Bob"] } }, required: ["name"], additionalProperties: false };
  const parsed = await client.chat.completions.parse(
    ask({ response_format: { type: "json_schema", json_schema: { name: "who", schema, strict: true } } }));
  assert.ok(["Ada", "Bob"].includes(JSON.parse(parsed.choices[0].message.content).name));
});

test("a call that is cut: what was written, marked by the finish reason", async () => {
  const full = (await client.chat.completions.create(weather())).choices[0].message.tool_calls[0].function.arguments;
  const { message, finish_reason } = (await client.chat.completions.create(weather({ max_tokens: 12 }))).choices[0];
  assert.equal(finish_reason, "length");
  const cut = message.tool_calls[0].function;
  assert.equal(cut.name, "get_weather");
  assert.ok(full.startsWith(cut.arguments) && cut.arguments.length < full.length, cut.arguments);
});

test("log-probabilities", async () => {
  const { message, logprobs } = (await client.chat.completions.create(ask({ logprobs: true, top_logprobs: 4 }))).choices[0];
  const bytes = logprobs.content.flatMap((t) => t.bytes);
  assert.equal(Buffer.from(bytes).toString(), message.content);
  for (const t of logprobs.content) {
    assert.equal(t.top_logprobs.length, 4);
    assert.ok(t.logprob <= 0);
    assert.deepEqual(t.top_logprobs[0].bytes, t.bytes); // greedy
    for (let i = 1; i < 4; i++) assert.ok(t.top_logprobs[i].logprob <= t.top_logprobs[i - 1].logprob);
  }
});

test("a drawn seed repeats the reply", async () => {
  const first = await client.chat.completions.create(ask({ temperature: 1 }));
  assert.ok(Number.isSafeInteger(first.evenkeel.seed));
  const again = await client.chat.completions.create(ask({ temperature: 1, seed: first.evenkeel.seed }));
  assert.equal(again.choices[0].message.content, first.choices[0].message.content);
  assert.equal(again.evenkeel, undefined);
});

test("limits of no and of no limit", async () => {
  const none = await client.chat.completions.create(ask({ max_tokens: 0 }));
  assert.equal(none.choices[0].message.content, "");
  assert.equal(none.choices[0].finish_reason, "length");
  assert.equal(none.usage.completion_tokens, 0);
  const open = await client.chat.completions.create(ask({ max_tokens: -1, stop: "" }));
  assert.equal(open.choices[0].finish_reason, "stop");
});

test("errors", async () => {
  const long = await failure(client.chat.completions.create(ask({ messages: [{ role: "user", content: "word ".repeat(60000) }] })));
  assert.equal(long.status, 400);
  assert.equal(long.code, "context_length_exceeded");
  const wrong = await failure(client.chat.completions.create(ask({ temperature: -1 })));
  assert.equal(wrong.status, 400);
  assert.equal(wrong.param, "temperature");
  assert.equal(wrong.type, "invalid_request_error");
});

test("an aborted stream ends its request", async () => {
  const stream = await client.chat.completions.create(ask({ max_tokens: 4000, temperature: 1, stream: true }));
  for await (const chunk of stream) if (chunk.choices[0].delta.content) stream.controller.abort();
  await idle();
});

test("models", async () => {
  const list = await client.models.list();
  assert.equal(list.data.length, 1);
  assert.equal((await client.models.retrieve(list.data[0].id)).id, list.data[0].id);
});

await runAll();
