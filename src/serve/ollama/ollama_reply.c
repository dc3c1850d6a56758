/* Writes replies of Ollama's API. A stream has a line of JSON per event and a last line with done, the reason and the
 * counts; a reply in one piece is that last line with all content. Each call has a line of its own, with its arguments
 * as an object. */
#include <string.h>
#include <time.h>

#include "serve/ollama/ollama.h"
#include "serve/api/openai.h"
#include "text/json/json.h"

/* --- pieces --- */

void ek_ollama_time(ek_buf *out, int64_t seconds)
{
    char text[40];
    struct tm t;
    time_t at = (time_t)seconds;
    gmtime_r(&at, &t);
    strftime(text, sizeof text, "\"%Y-%m-%dT%H:%M:%SZ\"", &t);
    ek_buf_str(out, text);
}

static void put_head(ek_buf *out, const char *model, int64_t created)
{
    ek_put_string_after(out, "{\"model\":", model);
    ek_buf_str(out, ",\"created_at\":");
    ek_ollama_time(out, created);
}

/* The content of a line: texts (NULL and 0: none) and calls as JSON (NULL: none). */
typedef struct said {
    const char *content, *thinking;
    size_t n_content, n_thinking;
    const ek_buf *calls;
} said;

static void put_said(ek_buf *out, bool generate, const said *s)
{
    ek_put_text_after(out, generate ? ",\"response\":" : ",\"message\":{\"role\":\"assistant\",\"content\":",
                      s->content ? s->content : "", s->n_content);
    if (s->n_thinking > 0) {
        ek_put_text_after(out, ",\"thinking\":", s->thinking, s->n_thinking);
    }
    if (s->calls && s->calls->len > 0) ek_buf_fmt(out, ",\"tool_calls\":[%s]", ek_buf_text(s->calls));
    if (!generate) ek_buf_char(out, '}');
}

static void put_call(ek_buf *out, const ek_api_reply *r, const ek_answer_call *c)
{
    char id[32];
    ek_call_id(id, "call_", r->id, c->index);
    if (out->len > 0) ek_buf_char(out, ',');
    ek_buf_fmt(out, "{\"id\":\"%s\",\"function\":{\"index\":%d,\"name\":", id, c->index);
    ek_json_quote(out, c->name, strlen(c->name));
    ek_buf_str(out, ",\"arguments\":");
    ek_buf_add(out, ek_buf_text(&c->args), c->args.len);
    ek_buf_add(out, ek_buf_text(&c->closing), c->closing.len); /* a cut call is completed to an object */
    ek_buf_str(out, "}}");
}

/* Writes the log-probabilities of visible tokens from index first on; returns the next index. */
static int put_logprobs(ek_buf *out, const ek_api_reply *r, int first)
{
    if (!r->turn->logprobs) return 0;
    int next = ek_openai_visible(r->choices[0], first);
    if (next == first) return next;
    ek_buf_str(out, ",\"logprobs\":");
    ek_openai_logprobs(out, r, 0, first, next);
    return next;
}

static long long nanoseconds(double seconds)
{
    return seconds > 0 ? (long long)(seconds * 1e9) : 0;
}

/* Durations of things that happened are never 0, because clients divide by them. */
static void put_end(ek_buf *out, const ek_api_reply *r)
{
    const ek_turn_result *t = r->choices[0];
    const ek_api_times *s = &r->times;
    const ek_api_usage u = ek_api_usage_of(r);
    const bool cut = t->end == EK_END_MAX_TOKENS || t->end == EK_END_CONTEXT || t->end == EK_END_LOOP;
    const char *reason = cut ? "length" : t->end == EK_END_UNCACHED ? "cache_threshold" : "stop";
    long long load = nanoseconds(s->prepare) + 1, prompt = nanoseconds(s->prompt) + 1,
              tokens = nanoseconds(s->tokens) + 1;
    ek_buf_fmt(out,
               ",\"done\":true,\"done_reason\":\"%s\",\"total_duration\":%lld,\"load_duration\":%lld,"
               "\"prompt_eval_count\":%d,\"prompt_eval_duration\":%lld,\"eval_count\":%d,\"eval_duration\":%lld",
               reason, load + prompt + tokens, load, t->n_prompt, prompt, t->n_tokens, tokens);
    ek_put_media_usage(out, &u);
    ek_put_string_after(out, ",\"id\":", r->id);
}

/* --- a stream --- */

/* A blank before the next line, where JSON allows it, because parsers of lines fail at an empty line. */
static void heartbeat(ek_buf *out)
{
    ek_buf_char(out, ' ');
}

static void line_close(ek_buf *out, const ek_api_reply *r, bool whole)
{
    ek_event_extend(out, r, whole);
    ek_buf_str(out, "}\n");
    ek_event_end(out, r);
}

static void put_line(ek_buf *out, const ek_api_reply *r, const said *s)
{
    ek_ollama *own = r->own;
    ek_event_begin(out, r);
    put_head(out, r->model, r->created);
    put_said(out, own->generate, s);
    if (s->n_content > 0) own->n_logprobs = put_logprobs(out, r, own->n_logprobs);
    ek_buf_str(out, ",\"done\":false");
    line_close(out, r, false);
}

static void call_line(ek_buf *out, const ek_api_reply *r, int index)
{
    const ek_answer *a = &r->choices[0]->answer;
    ek_buf call = {0};
    for (int i = a->n_calls - 1; i >= 0 && call.len == 0; i--) /* of the finished calls the last one */
        if (a->calls[i].index == index) put_call(&call, r, &a->calls[i]);
    if (call.len > 0) put_line(out, r, &(said){.calls = &call});
    ek_buf_fini(&call);
}

static void step(ek_buf *out, const ek_api_reply *r)
{
    ek_ollama *own = r->own;
    const ek_buf *b = &own->held;
    if (b->len == 0) return;
    put_line(out, r,
             own->thoughts ? &(said){.thinking = b->data, .n_thinking = b->len}
                           : &(said){.content = b->data, .n_content = b->len});
    ek_buf_clear(&own->held);
}

/* Text is held back until the step has ended or another event comes. */
static void event(ek_buf *out, const ek_api_reply *r, int choice, const ek_reply_event *e)
{
    ek_ollama *own = r->own;
    const bool thoughts = e->kind == EK_REPLY_REASONING, text = thoughts || e->kind == EK_REPLY_CONTENT;
    (void)choice;
    if (!text || thoughts != own->thoughts) step(out, r);
    if (e->kind == EK_REPLY_CALL_END || e->kind == EK_REPLY_CALL_CUT) call_line(out, r, e->call);
    if (!text) return;
    own->thoughts = thoughts;
    ek_buf_add(&own->held, e->text, e->n);
}

static void finish(ek_buf *out, const ek_api_reply *r, int choice)
{
    ek_ollama *own = r->own;
    (void)choice;
    step(out, r);
    ek_event_begin(out, r);
    put_head(out, r->model, r->created);
    put_said(out, own->generate, &(said){0});
    own->n_logprobs = put_logprobs(out, r, own->n_logprobs);
    put_end(out, r);
    line_close(out, r, true);
}

void ek_ollama_error(ek_buf *out, int status, const char *text, const char *param, const char *code)
{
    (void)status, (void)param, (void)code;
    ek_put_string_after(out, "{\"error\":", text);
    ek_buf_char(out, '}');
}

static void failed(ek_buf *out, const ek_api_reply *r, int choice, const char *text)
{
    (void)choice;
    step(out, r);
    ek_ollama_error(out, 500, text, NULL, NULL);
    ek_buf_char(out, '\n');
}

/* --- in one piece --- */

static void end(ek_buf *out, const ek_api_reply *r)
{
    const ek_ollama *own = r->own;
    const ek_answer *a = &r->choices[0]->answer;
    ek_buf calls = {0};
    if (r->stream) return;
    for (int i = 0; i < a->n_calls; i++) put_call(&calls, r, &a->calls[i]);
    put_head(out, r->model, r->created);
    put_said(out, own->generate,
             &(said){ek_buf_text(&a->content), ek_buf_text(&a->reasoning), a->content.len, a->reasoning.len, &calls});
    put_logprobs(out, r, 0);
    put_end(out, r);
    ek_put_extension(out, r);
    ek_buf_char(out, '}');
    ek_buf_fini(&calls);
}

/* --- replies without generation --- */

enum { ESCAPED = 6, COPIED = 2 }; /* maximum bytes that one byte of text becomes; the text itself while it grows */

static size_t answer_bytes(const ek_chat_model *m, const ek_api_request *r, const ek_turn_prompt *prompt)
{
    size_t text = 0, n;
    for (size_t i = 0; i < prompt->ids.len; i++, text += n) ek_tokenizer_bytes(m->tokenizer, prompt->ids.data[i], &n);
    return 1024 + ESCAPED * strlen(r->model) + (ESCAPED + COPIED) * text;
}

static ek_err answer(ek_buf *out, const ek_chat_model *m, const ek_api_request *r, const ek_turn_prompt *prompt)
{
    const ek_ollama *own = r->own;
    put_head(out, r->model, own->now);
    put_said(out, own->generate, &(said){0});
    if (own->loaded) {
        ek_buf_fmt(out, ",\"done\":true,\"done_reason\":\"%s\"}", own->loaded);
        return EK_OK;
    }
    ek_buf text = {0};
    ek_decode(m->tokenizer, prompt->ids.data, prompt->ids.len, false, &text);
    ek_put_text_after(out, ",\"done\":false,\"_debug_info\":{\"rendered_template\":", ek_buf_text(&text), text.len);
    ek_buf_str(out, "}}");
    ek_buf_fini(&text);
    return EK_OK;
}

/* --- the two paths --- */

static ek_err make_prompt(ek_turn_prompt *out, const ek_chat_model *m, ek_api_request *r)
{
    const ek_ollama *own = r->own;
    if (own->loaded) return EK_OK;
    if (!own->raw) return ek_turn_prompt_make(out, m, &r->conversation, r->tools, &r->prompt);
    return ek_openai_text_prompt(out, m, ek_buf_text(&own->text), own->text.len, true, &r->prompt);
}

/* Members that both paths share. */
#define REPLIES                                                                                                 \
    .id_prefix = "ollama-", .stream_type = "application/x-ndjson", .prompt = make_prompt, .answer = answer,     \
    .answer_bytes = answer_bytes, .event = event, .step = step, .finish = finish, .end = end, .failed = failed, \
    .heartbeat = heartbeat, .vendor = EK_API_OLLAMA, .error = ek_ollama_error

const ek_dialect ek_dialect_ollama_chat = {
    .path = "/api/chat", .prompt_param = "messages", .read = ek_ollama_read_chat, REPLIES};

const ek_dialect ek_dialect_ollama_generate = {
    .path = "/api/generate", .prompt_param = "prompt", .read = ek_ollama_read_generate, REPLIES};
