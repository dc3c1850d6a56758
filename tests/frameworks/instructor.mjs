// Instructor as a client, in its modes: node instructor.mjs http://127.0.0.1:PORT
import assert from "node:assert/strict";
import Instructor from "@instructor-ai/instructor";
import OpenAI from "openai";
import { z } from "zod/v3";
import { base, runAll, test } from "../clients/harness.mjs";

const client = new OpenAI({ baseURL: `${base}/v1`, apiKey: "none", maxRetries: 0 });
const schema = z.object({ name: z.string(), age: z.number().int() });
for (const mode of ["TOOLS", "JSON_SCHEMA"])
  test(`${mode}: an object`, async () => {
    const r = await Instructor({ client, mode }).chat.completions.create({
      model: "gemma", temperature: 0, max_tokens: 300, messages: [{ role: "user", content: "Anna is 31 years old." }],
      response_model: { schema, name: "person" }, max_retries: 0,
    });
    assert.ok(Number.isInteger(r.age), JSON.stringify(r));
  });
await runAll();
