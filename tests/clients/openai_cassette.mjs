// A suite of tests over the official SDK, recorded once and run again without the model (docs/CASSETTE.md):
// node openai_cassette.mjs http://127.0.0.1:PORT [replay]. All but the last line is the same both times.
import assert from "node:assert/strict";
import OpenAI from "openai";
import { base, failure, runAll, test } from "./harness.mjs";

// OPENAI_BASE_URL and OPENAI_API_KEY would do as well. Retries are the SDK's own: a 424 is not asked again.
const client = new OpenAI({ baseURL: `${base}/v1`, apiKey: "none" });
const replays = process.argv[3] === "replay";
const ask = (content, more = {}) => ({ model: "pocket", temperature: 0, max_tokens: 30, messages: [{ role: "user", content }], ...more });
const show = (name, value) => console.log(`ok ${name} ${JSON.stringify(value)}`);

test("a chat", async () => {
  const r = await client.chat.completions.create(ask("What is a keel?"));
  show("a chat", [r.choices, r.usage.completion_tokens]);
});
test("a stream", async () => {
  const deltas = [];
  for await (const c of await client.chat.completions.create(ask("What is a mast?", { stream: true }))) deltas.push(c.choices);
  assert.ok(deltas.length > 3);
  show("a stream", deltas);
});
test("a seed and log-probabilities", async () => {
  const r = await client.chat.completions.create(ask("Tell me more.", { temperature: 1, seed: 5, n: 2, logprobs: true, top_logprobs: 3 }));
  show("a seed", r.choices);
});
test("a form", async () => {
  const schema = { type: "object", properties: { name: { type: "string" } }, required: ["name"], additionalProperties: false };
  const r = await client.chat.completions.create(ask("A name.", { response_format: { type: "json_schema", json_schema: { name: "n", schema, strict: true } } }));
  show("a form", r.choices);
});
test("responses", async () => {
  const r = await client.responses.create({ model: "pocket", input: "What is a sail?", temperature: 0, max_output_tokens: 20 });
  show("responses", r.output_text);
});
test("what was not recorded", async () => {
  if (!replays) return;
  let asked = 0;
  const counting = new OpenAI({ baseURL: `${base}/v1`, apiKey: "none", fetch: (...a) => (asked++, fetch(...a)) });
  const e = await failure(counting.chat.completions.create(ask("Nobody asked this.")));
  assert.equal(e.status, 424);
  assert.match(e.message, /key is [0-9a-f]{64}/);
  assert.equal(e.code, "reply_not_stored");
  assert.equal(asked, 1);
});

await runAll();
