// A stream that outlives its server, over OpenAI's SDK (npm install openai): node resume.mjs URL... [QUESTION]
//
// Asks the first of several replicas of evenkeel and prints the answer as it comes. When a replica is lost in the middle,
// the next one goes on behind the last token that came: nothing is repeated, nothing is lost. `resuming` is the part to
// copy; it works over any function that opens a stream, also of @anthropic-ai/sdk:
//   (i, resume) => anthropic[i % n].messages.create({ ...body, stream: true, evenkeel: { resume } })

// The events of a stream, each once. ask(i, resume): opens it at replica i (modulo their number), with
// evenkeel: { resume } in the body. ended(event): is it the last one that matters?
export async function* resuming(ask, ended, { tries = 40, pause = 250 } = {}) {
  let state = true, failed = 0;
  for (let i = 0; failed < tries; i++) {
    try {
      for await (const event of await ask(i, state)) {
        const more = event.evenkeel?.resume;
        if (more) { // one object over the other, but tokens are appended
          const tokens = state.tokens ?? [];
          tokens.push(...(more.tokens ?? []));
          state = { ...(state === true ? {} : state), ...more, tokens };
          failed = 0;
        }
        yield event;
        if (ended(event)) return;
      }
    } catch (e) { // 4xx: the request itself is wrong, no replica will take it
      if (e.status >= 400 && e.status < 500 && e.status !== 429) throw e;
    }
    failed++;
    await new Promise(done => setTimeout(done, pause));
  }
  throw new Error("no replica goes on with the stream");
}

export const chatEnded = chunk => chunk.choices.some(c => c.finish_reason);
export const messageEnded = event => event.type === "message_stop";
export const responseEnded = event => ["response.completed", "response.incomplete"].includes(event.type);

async function main(args) {
  const { default: OpenAI } = await import("openai");
  const urls = args.filter(a => a.startsWith("http"));
  const question = args.filter(a => !a.startsWith("http")).join(" ") || "What is a keel?";
  const clients = (urls.length ? urls : ["http://127.0.0.1:8080"]).map(
    url => new OpenAI({ baseURL: url + "/v1", apiKey: "none", maxRetries: 0 }));
  const body = { model: "m", messages: [{ role: "user", content: question }] };
  const ask = (i, resume) => clients[i % clients.length].chat.completions.create({ ...body, stream: true, evenkeel: { resume } });
  for await (const chunk of resuming(ask, chatEnded))
    for (const choice of chunk.choices) process.stdout.write(choice.delta.content ?? "");
  console.log();
}

if (import.meta.url === `file://${process.argv[1]}`) await main(process.argv.slice(2));
