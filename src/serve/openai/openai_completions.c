/* The dialect of OpenAI's completions: texts are continued as they stand, without the chat template, and the reply is
 * the decoded text without the reply parser. Special tokens that are spelled out in a prompt are those tokens. */
#include "serve/openai/openai_completions.h"

#include "serve/api/openai_reply.h"
#include "text/json/json.h"

/* One choice's part of a reply: {index, text, logprobs, finish_reason}. */
static void put_choice(ek_buf *out, const ek_api_reply *r, int choice, const char *text, size_t n, const char *finish,
                       bool prompt, ek_completion_progress *at)
{
    const ek_openai_completion *o = r->own;
    const ek_buf *echo = &o->echoed[choice / (r->n / r->n_prompts)];
    ek_buf b = {0};
    if (prompt && o->echo) ek_buf_add(&b, ek_buf_text(echo), echo->len);
    ek_buf_add(&b, text, n);
    ek_buf_fmt(out, "{\"index\":%d,\"text\":", choice);
    ek_json_quote(out, ek_buf_text(&b), b.len);
    ek_openai_completion_logprobs(out, r, choice, prompt, at);
    ek_openai_choice_close(out, finish);
    ek_buf_fini(&b);
}

static const char object[] = "text_completion";

static void chunk(ek_buf *out, const ek_api_reply *r, int choice, const char *text, size_t n, const char *finish,
                  bool prompt)
{
    ek_openai_completion *o = r->own;
    ek_openai_chunk_open(out, r, object);
    put_choice(out, r, choice, text, n, finish, prompt, &o->choice[choice]);
    ek_openai_chunk_close(out, r, o->include_usage, finish && r->n_open == 0);
}

static void begin(ek_buf *out, const ek_api_reply *r, int choice)
{
    const ek_openai_completion *o = r->own;
    if (o->echo) chunk(out, r, choice, "", 0, NULL, true);
}

static void event(ek_buf *out, const ek_api_reply *r, int choice, const ek_reply_event *e)
{
    if (e->kind == EK_REPLY_CONTENT && e->n > 0) chunk(out, r, choice, e->text, e->n, NULL, false);
}

static void finish(ek_buf *out, const ek_api_reply *r, int choice)
{
    chunk(out, r, choice, "", 0, ek_openai_finish_reason(r->choices[choice]), false);
}

static void failed(ek_buf *out, const ek_api_reply *r, int choice, const char *text)
{
    const ek_openai_completion *o = r->own;
    ek_openai_chunk_open(out, r, object);
    ek_buf_fmt(out, "{\"index\":%d,\"text\":\"\",\"logprobs\":null", choice);
    ek_openai_choice_close(out, "error");
    ek_openai_chunk_failed(out, o->include_usage, text);
}

static void end(ek_buf *out, const ek_api_reply *r)
{
    const ek_openai_completion *o = r->own;
    if (r->stream) {
        ek_openai_stream_end(out, r, object, o->include_usage);
        return;
    }
    ek_openai_head(out, r, object);
    ek_buf_str(out, ",\"choices\":[");
    for (int i = 0; i < r->n; i++) {
        const ek_buf *text = &r->choices[i]->answer.content;
        ek_completion_progress at = {0};
        if (i > 0) ek_buf_char(out, ',');
        put_choice(out, r, i, ek_buf_text(text), text->len, ek_openai_finish_reason(r->choices[i]), true, &at);
    }
    ek_openai_whole_close(out, r);
}

const ek_dialect ek_dialect_openai_completions = {
    .path = "/v1/completions",
    .id_prefix = "cmpl-",
    .prompt_param = "prompt",
    .parse = ek_openai_completion_parse,
    .prompt = ek_openai_completion_prompts,
    .begin = begin,
    .event = event,
    .finish = finish,
    .end = end,
    .failed = failed,
    .heartbeat = ek_openai_heartbeat,
    .error = ek_openai_error,
};
