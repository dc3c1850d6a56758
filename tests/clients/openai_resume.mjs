// examples/resume.mjs over the official SDKs: streams whose connection is cut again and again, by a proxy that lets a few
// bytes more pass each time, are those that were not cut. Usage: node openai_resume.mjs http://127.0.0.1:PORT
import assert from "node:assert/strict";
import http from "node:http";
import OpenAI from "openai";
import Anthropic from "@anthropic-ai/sdk";
import { resuming, chatEnded, messageEnded, responseEnded } from "../../examples/resume.mjs";
import { base, runAll, test } from "./harness.mjs";

let room = 0, cuts = 0; // bytes that the next reply may have

const proxy = http.createServer((request, reply) => {
  const to = http.request(base + request.url, { method: request.method, headers: request.headers }, from => {
    let left = room;
    room += 150;
    reply.writeHead(from.statusCode, from.headers);
    from.on("data", bytes => {
      if (bytes.length <= left) {
        left -= bytes.length;
        reply.write(bytes);
      } else if (left >= 0) {
        reply.write(bytes.subarray(0, left), () => reply.destroy());
        left = -1;
        cuts++;
        to.destroy();
      }
    });
    from.on("end", () => left >= 0 && reply.end());
    from.on("error", () => {});
  });
  to.on("error", () => reply.destroy());
  request.pipe(to);
});
await new Promise(done => proxy.listen(0, "127.0.0.1", done));
const cut = `http://127.0.0.1:${proxy.address().port}`;

// Without what says how it goes on, and ids.
const bare = event => JSON.parse(JSON.stringify(event, (key, value) => ["evenkeel", "id", "item_id", "call_id", "created", "created_at"].includes(key) ||
  key.endsWith("_tokens_details") || key.endsWith("_input_tokens") || key === "input_tokens" ? undefined : value));

async function all(stream) {
  const events = [];
  for await (const event of stream) events.push(event);
  return events;
}

async function compare(whole, ask, ended) {
  const want = await all(await whole());
  room = 700, cuts = 0;
  const got = await all(resuming(ask, ended, { pause: 1, tries: 60 }));
  assert.ok(cuts >= 2, `it was cut ${cuts} times`);
  assert.deepEqual(got.map(bare), want.map(bare));
}

const tools = [{ type: "function", function: { name: "get_weather", description: "Gets the current weather in a city.",
  parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] } } }];
const messages = [{ role: "user", content: "What's the weather in Oslo?" }];
const options = { apiKey: "none", maxRetries: 0 };
const openai = new OpenAI({ ...options, baseURL: base + "/v1" }), cutOpenai = new OpenAI({ ...options, baseURL: cut + "/v1" });

test("a chat that calls a tool", () => {
  const body = { model: "m", messages, tools, tool_choice: "required", temperature: 0, max_tokens: 60, stream: true };
  return compare(() => openai.chat.completions.create(body), (i, resume) => cutOpenai.chat.completions.create({ ...body, evenkeel: { resume } }), chatEnded);
});

test("a response", () => {
  const body = { model: "m", input: "What is a keel?", temperature: 0, max_output_tokens: 40, store: false, stream: true };
  return compare(() => openai.responses.create(body), (i, resume) => cutOpenai.responses.create({ ...body, evenkeel: { resume } }), responseEnded);
});

test("a message of Anthropic's API", () => {
  const body = { model: "m", messages, temperature: 0, max_tokens: 40, stream: true };
  const whole = new Anthropic({ ...options, baseURL: base }), broken = new Anthropic({ ...options, baseURL: cut });
  return compare(() => whole.messages.create(body), (i, resume) => broken.messages.create({ ...body, evenkeel: { resume } }), messageEnded);
});

test("what is wrong with the request is not tried again", async () => {
  let asked = 0;
  const ask = () => (asked++, openai.chat.completions.create({ model: "m", messages, stream: true, evenkeel: { resume: 7 } }));
  await assert.rejects(all(resuming(ask, chatEnded)), /evenkeel.resume/);
  assert.equal(asked, 1);
});

await runAll();
proxy.close();
proxy.closeAllConnections();
