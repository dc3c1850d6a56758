// The official SDK of OpenAI's API and structured output: node openai_structured.mjs http://127.0.0.1:PORT
import assert from "node:assert/strict";
import OpenAI from "openai";
import { base, failure, runAll, test } from "./harness.mjs";

const client = new OpenAI({ baseURL: `${base}/v1`, apiKey: "any", maxRetries: 0 });
const CITY = {
  type: "object",
  properties: {
    city: { type: "string", maxLength: 12 },
    people: { type: "integer", minimum: 1000, maximum: 40000000 },
    kind: { enum: ["capital", "town"] },
  },
  required: ["city", "people", "kind"],
  additionalProperties: false,
};
const tool = (name, parameters) => ({ type: "function", function: { name, strict: true, parameters } });
const ask = (more = {}) => ({
  model: "pocket",
  max_tokens: 120,
  temperature: 0,
  messages: [{ role: "user", content: "Tell me about Oslo." }],
  ...more,
});
const by = (schema) => ({ response_format: { type: "json_schema", json_schema: { name: "city", schema, strict: true } } });

function checkCity(v) {
  assert.deepEqual(Object.keys(v), ["city", "people", "kind"]);
  assert.ok(typeof v.city === "string" && [...v.city].length <= 12, v.city);
  assert.ok(Number.isInteger(v.people) && v.people >= 1000 && v.people <= 40000000, v.people);
  assert.ok(CITY.properties.kind.enum.includes(v.kind), v.kind);
}

for (const temperature of [0, 1, 1.8])
  test(`JSON by a schema, at temperature ${temperature}`, async () => {
    const r = await client.chat.completions.create(ask({ ...by(CITY), temperature, seed: 3 }));
    assert.equal(r.choices[0].finish_reason, "stop");
    checkCity(JSON.parse(r.choices[0].message.content));
  });

test("a stream by a schema says what the whole says", async () => {
  const whole = await client.chat.completions.create(ask(by(CITY)));
  const stream = client.chat.completions.stream(ask(by(CITY)));
  const final = await stream.finalChatCompletion();
  assert.equal(final.choices[0].message.content, whole.choices[0].message.content);
  checkCity(JSON.parse(final.choices[0].message.content));
});

test("a strict tool that must be called, parsed by the SDK", async () => {
  const r = await client.chat.completions.parse(
    ask({ tools: [tool("save", CITY)], tool_choice: { type: "function", function: { name: "save" } }, temperature: 1, seed: 4 }),
  );
  assert.equal(r.choices[0].finish_reason, "tool_calls");
  assert.equal(r.choices[0].message.tool_calls.length, 1);
  checkCity({ city: null, people: null, kind: null, ...r.choices[0].message.tool_calls[0].function.parsed_arguments });
});

test("a required call of one of two tools", async () => {
  const tools = [tool("save", CITY), tool("drop", { type: "object", properties: {}, additionalProperties: false })];
  const r = await client.chat.completions.parse(ask({ tools, tool_choice: "required", parallel_tool_calls: false }));
  assert.ok(["save", "drop"].includes(r.choices[0].message.tool_calls[0].function.name));
});

test("a JSON object", async () => {
  const r = await client.chat.completions.create(ask({ response_format: { type: "json_object" }, max_tokens: 400 }));
  if (r.choices[0].finish_reason === "stop") assert.equal(typeof JSON.parse(r.choices[0].message.content), "object");
  else assert.ok(r.choices[0].message.content.startsWith("{"));
});

test("patterns and formats, as JavaScript reads them", async () => {
  const patterns = { id: "^[A-F]{2}-\\d{3}$", word: "[^\\s\\d]{4}|é$", free: "^.\\S*$" };
  const properties = { day: { type: "string", format: "date" } };
  for (const [name, pattern] of Object.entries(patterns)) properties[name] = { type: "string", pattern, maxLength: 9 };
  const schema = { type: "object", properties, required: Object.keys(properties), additionalProperties: false };
  const check = (v) => {
    for (const [name, pattern] of Object.entries(patterns)) assert.match(v[name], new RegExp(pattern, "u"));
    assert.equal(new Date(v.day).toISOString().slice(0, 10), v.day);
  };
  for (let seed = 0; seed < 4; seed++) {
    const r = await client.chat.completions.create(ask({ ...by(schema), temperature: 2, seed, max_tokens: 300 }));
    check(JSON.parse(r.choices[0].message.content));
    const c = await client.chat.completions.create(ask({ tools: [tool("save", schema)], tool_choice: "required", parallel_tool_calls: false, temperature: 2, seed, max_tokens: 300 }));
    check(JSON.parse(c.choices[0].message.tool_calls[0].function.arguments));
  }
});

test("a keyword that is not supported is named", async () => {
  const e = await failure(client.chat.completions.create(ask(by({ type: "object", properties: { zip: { type: "string", pattern: "^(?=x)" } } }))));
  assert.equal(e.status, 400);
  assert.equal(e.param, "response_format");
  assert.match(e.message, /#\/properties\/zip: "pattern": at character 3: the lookahead \(\?= is not supported/);
});

await runAll();
