// The official package of Ollama's API: node ollama.mjs http://127.0.0.1:PORT
import assert from "node:assert/strict";
import { Ollama } from "ollama";
import { base, failure, idle, runAll, test } from "./harness.mjs";

const client = new Ollama({ host: base });
const WEATHER = {
  type: "function",
  function: {
    name: "get_weather",
    description: "Weather of a city.",
    parameters: { type: "object", required: ["city"], properties: { city: { type: "string", description: "Its name", maxLength: 12 } } },
  },
};
const PERSON = { type: "object", properties: { name: { type: "string", maxLength: 8 }, age: { type: "integer", minimum: 1, maximum: 9 } }, required: ["name", "age"] };
const ask = (text, more = {}) => ({ model: "gemma4:latest", messages: [{ role: "user", content: text }], options: { temperature: 0, num_predict: 60 }, ...more });

// What the parts of a stream say, and the last of them.
async function collect(stream) {
  const all = { content: "", thinking: "", calls: [] };
  for await (const part of stream) {
    const m = part.message ?? { content: part.response, thinking: part.thinking };
    all.content += m.content;
    all.thinking += m.thinking ?? "";
    all.calls.push(...(m.tool_calls ?? []).map((c) => c.function));
    all.last = part;
  }
  return all;
}

function bare(reply) {
  const { model, created_at, id, total_duration, load_duration, prompt_eval_duration, eval_duration, ...rest } = reply;
  return rest;
}

for (const [name, body] of [
  ["text", ask("Hello")],
  ["thinking", ask("How many legs have two cats?", { think: true })],
  ["a level of thinking", ask("Hello", { think: "low" })],
  ["tools", ask("What is the weather in Paris?", { tools: [WEATHER] })],
  ["a schema", ask("A person, please.", { format: PERSON })],
  ["json", ask("JSON, please.", { format: "json", options: { temperature: 0, num_predict: 20 } })],
  ["a stop text", ask("Hello", { options: { temperature: 0, stop: ["help", "you"] } })],
  ["a seed", ask("Tell me something.", { options: { temperature: 1, seed: 11, num_predict: 30, top_k: 20, top_p: 0.9, repeat_penalty: 1.1 } })],
])
  test(`a stream says what the whole reply says: ${name}`, async () => {
    const whole = await client.chat(body);
    const said = await collect(await client.chat({ ...body, stream: true }));
    assert.equal(whole.done, true);
    assert.equal(said.content, whole.message.content);
    assert.equal(said.thinking, whole.message.thinking ?? "");
    assert.deepEqual(said.calls, (whole.message.tool_calls ?? []).map((c) => c.function));
    assert.deepEqual(bare({ ...said.last, message: whole.message }), bare(whole));
    for (const key of ["total_duration", "load_duration", "prompt_eval_duration", "eval_duration"]) assert.ok(whole[key] > 0 && said.last[key] > 0, key);
    if (body.format === PERSON) assert.deepEqual(Object.keys(JSON.parse(whole.message.content)), ["name", "age"]);
  });

test("a tool's result is taken, and the conversation goes on", async () => {
  const first = await client.chat(ask("What is the weather in Paris?", { tools: [WEATHER] }));
  assert.equal(first.message.role, "assistant");
  const calls = first.message.tool_calls ?? [];
  for (const c of calls) assert.equal(typeof c.function.arguments.city, "string");
  const results = calls.map((c) => ({ role: "tool", tool_name: c.function.name, content: "sunny, 20 degrees" }));
  const messages = [{ role: "user", content: "What is the weather in Paris?" }, first.message, ...results, ...(calls.length ? [] : [{ role: "user", content: "Go on." }])];
  const second = await client.chat(ask("", { messages, tools: [WEATHER] }));
  assert.ok(second.prompt_eval_count > first.prompt_eval_count);
});

test("generate", async () => {
  const body = { model: "m", prompt: "Hello", system: "Be brief.", options: { temperature: 0, num_predict: 20 } };
  const whole = await client.generate(body);
  assert.equal((await collect(await client.generate({ ...body, stream: true }))).content, whole.response);
  const chat = await client.chat({ ...ask(""), messages: [{ role: "system", content: "Be brief." }, { role: "user", content: "Hello" }], options: body.options });
  assert.equal(chat.message.content, whole.response);
  const raw = await client.generate({ model: "m", prompt: "<|turn>user\nHello<turn|>\n<|turn>model\n", raw: true, options: body.options });
  assert.equal(raw.response, (await client.chat(ask("Hello", { options: body.options }))).message.content);
  for (const keep_alive of [0, "5m"]) assert.equal((await client.generate({ model: "m", prompt: "", keep_alive })).done_reason, keep_alive ? "load" : "unload");
});

test("log-probabilities", async () => {
  const { logprobs, message } = await client.chat(ask("Hello", { logprobs: true, top_logprobs: 2 }));
  assert.equal(logprobs.map((p) => p.token).join(""), message.content);
  assert.ok(logprobs.every((p) => p.logprob <= 0 && p.top_logprobs.length === 2));
});

test("models", async () => {
  const { models } = await client.list();
  assert.equal(models.length, 1);
  const [{ name, size, details }] = models;
  assert.match(name, /:latest$/);
  assert.ok(size > 0 && details.family === "gemma4");
  assert.equal((await client.ps()).models[0].name, name);
  const show = await client.show({ model: name });
  assert.ok(show.capabilities.includes("tools") && show.model_info["general.architecture"] === "gemma4");
  assert.match((await client.version()).version, /^\d+\.\d+\.\d+$/);
  assert.equal((await client.pull({ model: name })).status, "success");
  const parts = [];
  for await (const part of await client.pull({ model: name, stream: true })) parts.push(part.status);
  assert.deepEqual(parts, ["success"]);
});

test("refusals are errors with the server's sentence", async () => {
  const cases = [
    [() => client.chat(ask("x", { options: { temperature: "hot" } })), 400, /temperature/],
    [() => client.chat({ ...ask("x"), messages: [{ role: "user", content: "x", images: ["aGVsbG8="] }] }), 400, /images/],
    [() => client.chat(ask("word ".repeat(40000), { stream: true })), 400, /prompt is too long/],
    [() => client.generate({ model: "m", prompt: "a", suffix: "b" }), 400, /suffix/],
    [() => client.embed({ model: "m", input: "a" }), 404, /embeddings/],
    [() => client.embeddings({ model: "m", prompt: "a" }), 404, /embeddings/],
    [() => client.pull({ model: "another" }), 400, /another/],
    [() => client.delete({ model: "m" }), 404, /not supported/],
    [() => client.copy({ source: "a", destination: "b" }), 404, /not supported/],
    [() => client.push({ model: "a" }), 404, /not supported/],
    [() => client.create({ model: "a", from: "b" }), 404, /not supported/],
  ];
  for (const [call, status, says] of cases) {
    const e = await failure(call());
    assert.equal(e.status_code, status, e.message);
    assert.match(e.message, says);
  }
});

test("an abort ends the request", async () => {
  const numbers = { type: "array", items: { type: "integer" }, minItems: 1500, maxItems: 1500 };
  const stream = await client.chat(ask("Numbers.", { format: numbers, options: { temperature: 1, seed: 1 }, stream: true }));
  const e = await failure(
    (async () => {
      for await (const _ of stream) stream.abort();
    })(),
  );
  assert.equal(e.name, "AbortError");
  await idle();
});

await runAll();
