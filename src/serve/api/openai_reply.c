#include "serve/api/openai.h"

#include "text/json/json.h"
#include "text/utf8.h"

void ek_openai_head(ek_buf *out, const ek_api_reply *r, const char *object)
{
    ek_put_string_after(out, "{\"id\":", r->id);
    ek_buf_fmt(out, ",\"object\":\"%s\",\"created\":%lld,\"model\":", object, (long long)r->created);
    ek_put_string(out, r->model);
    ek_put_string_after(out, ",\"system_fingerprint\":", r->fingerprint);
}

/* ,"usage":{…} */
static void put_usage(ek_buf *out, const ek_api_reply *r)
{
    ek_api_usage u = ek_api_usage_of(r);
    ek_buf_fmt(out,
               ",\"usage\":{\"prompt_tokens\":%lld,\"completion_tokens\":%lld,\"total_tokens\":%lld,"
               "\"prompt_tokens_details\":{\"cached_tokens\":%lld",
               (long long)u.prompt, (long long)u.completion, (long long)(u.prompt + u.completion), (long long)u.cached);
    ek_put_media_usage(out, &u);
    ek_buf_fmt(out, "},\"completion_tokens_details\":{\"reasoning_tokens\":%lld}}", (long long)u.reasoning);
}

/* "error":{message, type, param, code} */
static void put_error(ek_buf *out, int status, const char *text, const char *param, const char *code)
{
    const char *type = status == 404   ? "not_found_error"
                       : status == 429 ? "rate_limit_error"
                       : status >= 500 ? "server_error"
                                       : "invalid_request_error";
    ek_put_string_after(out, "\"error\":{\"message\":", text);
    ek_buf_fmt(out, ",\"type\":\"%s\",\"param\":", type);
    ek_put_string(out, param);
    ek_put_string_after(out, ",\"code\":", code);
    ek_buf_char(out, '}');
}

const char *ek_openai_finish_reason(const ek_turn_result *t)
{
    switch (t->end) {
    case EK_END_CALLS: return "tool_calls";
    case EK_END_MAX_TOKENS:
    case EK_END_CONTEXT:
    case EK_END_LOOP: return "length";              /* clients know no other word for a cut reply */
    case EK_END_UNCACHED: return "cache_threshold"; /* vLLM's word */
    default: return "stop";
    }
}

static void put_done(ek_buf *out, const ek_api_reply *r)
{
    ek_event_begin(out, r);
    ek_buf_str(out, "data: [DONE]\n\n");
    ek_event_end(out, r);
}

static void chunk_open(ek_buf *out, const ek_api_reply *r, const ek_openai_stream *s)
{
    ek_event_begin(out, r);
    ek_buf_str(out, "data: ");
    ek_openai_head(out, r, s->object);
    ek_buf_str(out, ",\"choices\":[");
}

static void chunk_close(ek_buf *out, const ek_api_reply *r, bool whole)
{
    ek_event_extend(out, r, whole);
    ek_buf_str(out, "}\n\n");
    ek_event_end(out, r);
}

void ek_openai_choice_open(ek_buf *out, const ek_api_reply *r, const ek_openai_stream *s, int choice)
{
    chunk_open(out, r, s);
    ek_buf_fmt(out, "{\"index\":%d,", choice);
}

void ek_openai_finish(ek_buf *out, const char *finish)
{
    ek_put_string_after(out, ",\"finish_reason\":", finish);
    ek_buf_char(out, '}');
}

void ek_openai_choice_close(ek_buf *out, const ek_api_reply *r, const ek_openai_stream *s, const char *finish)
{
    ek_openai_finish(out, finish);
    ek_buf_str(out, s->include_usage ? "],\"usage\":null" : "]");
    chunk_close(out, r, finish && r->n_open == 0);
}

void ek_openai_progress(ek_buf *out, const ek_api_reply *r, const ek_openai_stream *s, const ek_api_progress *p)
{
    ek_openai_choice_open(out, r, s, 0);
    ek_buf_fmt(out, "%s,\"logprobs\":null", s->nothing);
    ek_openai_finish(out, NULL);
    ek_buf_str(out, s->include_usage ? "],\"usage\":null," : "],");
    ek_put_progress(out, p);
    chunk_close(out, r, false);
}

void ek_openai_stream_failed(ek_buf *out, const ek_api_reply *r, const ek_openai_stream *s, int choice,
                             const char *text)
{
    if (s) {
        ek_openai_choice_open(out, r, s, choice);
        ek_buf_fmt(out, "%s,\"logprobs\":null", s->nothing);
        ek_openai_finish(out, "error");
        ek_buf_str(out, s->include_usage ? "],\"usage\":null," : "],");
        put_error(out, 500, text, NULL, NULL);
        chunk_close(out, r, false);
    }
    ek_buf_str(out, "data: ");
    ek_openai_error(out, 500, text, NULL, NULL);
    ek_buf_str(out, "\n\n");
    put_done(out, r);
}

void ek_openai_stream_end(ek_buf *out, const ek_api_reply *r, const ek_openai_stream *s)
{
    if (s && s->include_usage) {
        chunk_open(out, r, s);
        ek_buf_char(out, ']');
        put_usage(out, r);
        chunk_close(out, r, false);
    }
    put_done(out, r);
}

void ek_openai_heartbeat(ek_buf *out)
{
    ek_buf_str(out, ": waiting\n\n");
}

void ek_openai_logprob(ek_buf *out, float x)
{
    ek_buf_fmt(out, "%.9g", x > -9999 ? (double)x : -9999.0);
}

void ek_openai_token_bytes(ek_buf *out, const ek_api_reply *r, int32_t token, const char *prefix)
{
    size_t n;
    const char *s = ek_tokenizer_bytes(r->tokenizer, token, &n);
    ek_buf_fmt(out, "\"%s", prefix);
    for (size_t i = 0; i < n; i++) ek_buf_fmt(out, "\\\\x%02x", (uint8_t)s[i]);
    ek_buf_char(out, '"');
}

void ek_openai_token(ek_buf *out, const ek_api_reply *r, int32_t token, const char *prefix)
{
    size_t n;
    const char *s = ek_tokenizer_bytes(r->tokenizer, token, &n);
    if (ek_utf8_valid(s, n)) ek_json_quote(out, s, n);
    else ek_openai_token_bytes(out, r, token, prefix);
}

/* Writes {token, logprob, bytes, without the closing brace. */
static void put_logprob(ek_buf *out, const ek_api_reply *r, const ek_logprob *p)
{
    size_t n;
    const char *s = ek_tokenizer_bytes(r->tokenizer, p->token, &n);
    ek_buf_str(out, "{\"token\":");
    ek_openai_token(out, r, p->token, "");
    ek_buf_str(out, ",\"logprob\":");
    ek_openai_logprob(out, p->logprob);
    ek_buf_str(out, ",\"bytes\":[");
    for (size_t i = 0; i < n; i++) ek_buf_fmt(out, "%s%d", i ? "," : "", (uint8_t)s[i]);
    ek_buf_char(out, ']');
}

int ek_openai_visible(const ek_turn_result *t, int first)
{
    while (first < t->n_logprobs && t->logprobs[first].from < t->answer.content.len) first++;
    return first;
}

void ek_openai_logprobs(ek_buf *out, const ek_api_reply *r, int choice, int first, int end)
{
    const ek_turn_result *t = r->choices[choice];
    ek_buf_char(out, '[');
    for (int i = first; i < end; i++) {
        const ek_logprobs *p = &t->logprobs[i].at;
        if (i > first) ek_buf_char(out, ',');
        put_logprob(out, r, &p->self);
        ek_buf_str(out, ",\"top_logprobs\":[");
        for (int k = 0; k < p->n_top; k++) {
            if (k > 0) ek_buf_char(out, ',');
            put_logprob(out, r, &p->top[k]);
            ek_buf_char(out, '}');
        }
        ek_buf_str(out, "]}");
    }
    ek_buf_char(out, ']');
}

void ek_openai_whole_close(ek_buf *out, const ek_api_reply *r)
{
    ek_buf_char(out, ']');
    put_usage(out, r);
    ek_put_extension(out, r);
    ek_buf_char(out, '}');
}

void ek_openai_error(ek_buf *out, int status, const char *text, const char *param, const char *code)
{
    ek_buf_char(out, '{');
    put_error(out, status, text, param, code);
    ek_buf_char(out, '}');
}
