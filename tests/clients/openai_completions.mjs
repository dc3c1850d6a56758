// The official SDK of OpenAI's API against completions, and tokenize: node openai_completions.mjs http://127.0.0.1:PORT
import assert from "node:assert/strict";
import OpenAI from "openai";
import { base, failure, runAll, test } from "./harness.mjs";

const client = new OpenAI({ baseURL: `${base}/v1`, apiKey: "any", maxRetries: 0 });
const TURN = "<|turn>user\nHello<turn|>\n<|turn>model\n";
const ask = (more = {}) => ({ model: "pocket", prompt: TURN, max_tokens: 20, temperature: 0, ...more });

async function collect(body) {
  const choices = [];
  for await (const chunk of await client.completions.create({ ...body, stream: true }))
    for (const { index, text, finish_reason, logprobs } of chunk.choices) {
      const c = (choices[index] ??= { text: "", tokens: [], token_logprobs: [], top_logprobs: [], text_offset: [], finish_reason: null });
      c.text += text;
      for (const key in logprobs ?? {}) c[key].push(...logprobs[key]);
      c.finish_reason = finish_reason;
    }
  return choices;
}

for (const [name, body] of [
  ["text", ask()],
  ["echo", ask({ echo: true })],
  ["two prompts, two choices each", ask({ prompt: [TURN, "The"], n: 2, temperature: 1, seed: 3, echo: true })],
  ["log-probabilities", ask({ logprobs: 2, echo: true })],
  ["special tokens", ask({ skip_special_tokens: false, echo: true, logprobs: 0 })],
  ["a stop text", ask({ stop: ["help", "small"], logprobs: 1 })],
])
  test(`a stream says what the whole reply says: ${name}`, async () => {
    const whole = await client.completions.create(body);
    const choices = await collect(body);
    assert.equal(whole.object, "text_completion");
    assert.match(whole.id, /^cmpl-/);
    assert.equal(choices.length, whole.choices.length);
    whole.choices.forEach((c, i) => {
      assert.equal(c.index, i);
      assert.equal(choices[i].text, c.text);
      assert.equal(choices[i].finish_reason, c.finish_reason);
      for (const key in c.logprobs ?? {}) assert.deepEqual(choices[i][key], c.logprobs[key], key);
    });
  });

test("a template that is written out gives the chat's answer", async () => {
  const plain = await client.completions.create(ask({ max_tokens: 60 }));
  const chat = await client.chat.completions.create({ model: "m", temperature: 0, max_tokens: 60, messages: [{ role: "user", content: "Hello" }] });
  assert.equal(plain.choices[0].text, chat.choices[0].message.content);
  assert.equal(plain.usage.prompt_tokens, chat.usage.prompt_tokens);
});

test("tokens as a prompt, echo alone, and what stands in a prompt has log-probabilities", async () => {
  const { tokens } = await client.post("/tokenize", { body: { prompt: TURN } });
  const said = await client.completions.create(ask({ logprobs: 1 }));
  const { logprobs } = said.choices[0];
  const reply = (await client.post("/tokenize", { body: { content: said.choices[0].text } })).tokens;
  const scored = await client.completions.create(ask({ prompt: [...tokens, ...reply], echo: true, max_tokens: 0, logprobs: 1 }));
  const lp = scored.choices[0].logprobs;
  assert.equal(scored.usage.completion_tokens, 0);
  assert.equal(lp.tokens.length, tokens.length + reply.length);
  assert.equal(lp.token_logprobs[0], null);
  assert.equal(lp.tokens[0], "<bos>");
  assert.equal(scored.choices[0].text, "user\nHello\nmodel\n" + said.choices[0].text);
  // The same text cut into the same tokens: the same bits, sampled or read.
  const n = Math.min(reply.length, logprobs.tokens.length);
  assert.deepEqual(lp.tokens.slice(tokens.length, tokens.length + n), logprobs.tokens.slice(0, n));
  assert.deepEqual(lp.token_logprobs.slice(tokens.length, tokens.length + n), logprobs.token_logprobs.slice(0, n));
  lp.tokens.forEach((t, i) => {
    if (!t.startsWith("<")) assert.ok(scored.choices[0].text.slice(lp.text_offset[i]).startsWith(t), `${i} ${t}`);
  });
});

test("several prompts are as one by one", async () => {
  const prompts = [TURN, "One two three", "x"];
  const both = await client.completions.create(ask({ prompt: prompts, n: 2, seed: 9, temperature: 1 }));
  for (let i = 0; i < prompts.length; i++) {
    const one = await client.completions.create(ask({ prompt: prompts[i], n: 2, seed: 9, temperature: 1 }));
    assert.deepEqual([both.choices[2 * i].text, both.choices[2 * i + 1].text], one.choices.map((c) => c.text));
  }
});

test("tokenize and detokenize", async () => {
  const r = await client.post("/tokenize", { body: { prompt: "Hello <|turn>", return_token_strs: true } });
  assert.equal(r.count, r.tokens.length);
  assert.equal(r.token_strs[0], "<bos>");
  assert.equal(r.token_strs.at(-1), "<|turn>");
  assert.ok(r.max_model_len > 0);
  const back = await client.post("/detokenize", { body: { tokens: r.tokens } });
  assert.equal(back.prompt, "<bos>Hello <|turn>");
  assert.equal(back.content, back.prompt);
  const pieces = await client.post("/tokenize", { body: { content: "Hello", with_pieces: true } });
  assert.equal(pieces.tokens.map((t) => t.piece).join(""), "Hello");
  const messages = [{ role: "user", content: "Hello" }];
  const chat = await client.post("/tokenize", { body: { messages } });
  const said = await client.chat.completions.create({ model: "m", messages, max_tokens: 1 });
  assert.equal(chat.count, said.usage.prompt_tokens);
});

test("refusals", async () => {
  for (const [more, param] of [
    [{ suffix: "end" }, "suffix"],
    [{ best_of: 3 }, "best_of"],
    [{ prompt: [[1, -5]] }, "prompt"],
    [{ prompt: [] }, "prompt"],
    [{ prompt: undefined }, "prompt"],
    [{ logprobs: 21 }, "logprobs"],
    [{ prompt: "word ".repeat(40000) }, "prompt"],
  ]) {
    const e = await failure(client.completions.create(ask(more)));
    assert.equal(e.status, 400);
    assert.equal(e.param, param);
  }
  assert.equal((await failure(client.post("/detokenize", { body: { tokens: [1e9] } }))).status, 400);
  assert.equal((await failure(client.post("/tokenize", { body: {} }))).param, "prompt");
});

await runAll();
