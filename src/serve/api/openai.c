#include "serve/api/openai.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "serve/api/field.h"
#include "text/json/json.h"
#include "text/utf8.h"

enum { MAX_BIAS = 4096 };

static ek_err read_bias(ek_api_request *r, const json_t *body, int n_vocab)
{
    json_t *map = (json_t *)(uintptr_t)ek_field(body, "logit_bias");
    if (!map) return EK_OK;
    if (!json_is_object(map)) return ek_field_wrong(r, "logit_bias", "an object of token ids and numbers is needed");
    if (json_object_size(map) > MAX_BIAS) return ek_field_wrong(r, "logit_bias", "at most 4096 entries");
    r->bias = ek_alloc((json_object_size(map) + 1) * sizeof *r->bias);
    ek_sampling *s = &r->turn.sampling;
    const char *key;
    json_t *value;
    json_object_foreach(map, key, value)
    {
        char *end;
        long id = strtol(key, &end, 10);
        double b = json_is_number(value) ? json_number_value(value) : NAN;
        if (*key < '0' || *key > '9' || *end || id >= n_vocab)
            return ek_field_wrong_text(r, "logit_bias", "no token of this model has the id", key, "");
        if (!(b >= -100 && b <= 100))
            return ek_field_wrong(r, "logit_bias", "each value must be a number from -100 to 100");
        /* -100 is how the API spells "never". */
        r->bias[s->n_bias++] = (ek_logit_bias){(int32_t)id, b <= -100 ? -INFINITY : (float)b};
    }
    s->bias = r->bias;
    return EK_OK;
}

ek_err ek_openai_sampling(ek_api_request *r, const json_t *body, const ek_api_limits *limits)
{
    ek_sampling *s = &r->turn.sampling;
    *s = limits->defaults;
    EK_TRY(ek_field_number(r, body, "temperature", 0, 100, &s->temperature));
    EK_TRY(ek_field_number(r, body, "top_p", 0, 1, &s->top_p));
    EK_TRY(ek_field_number(r, body, "min_p", 0, 1, &s->min_p));
    EK_TRY(ek_field_number(r, body, "presence_penalty", -2, 2, &s->presence_penalty));
    EK_TRY(ek_field_number(r, body, "frequency_penalty", -2, 2, &s->frequency_penalty));
    EK_TRY(ek_field_number(r, body, "repetition_penalty", 1e-3, 1000, &s->repetition_penalty));
    int64_t v;
    bool found;
    EK_TRY(ek_field_int(r, body, "top_k", -1, INT_MAX, &v, &found));
    if (found) s->top_k = v < 0 ? 0 : (int)v;
    EK_TRY(ek_field_int(r, body, "seed", INT64_MIN, INT64_MAX, &v, &r->has_seed));
    if (r->has_seed) s->seed = (uint64_t)v;
    return read_bias(r, body, limits->n_vocab);
}

ek_err ek_openai_counts(ek_api_request *r, const json_t *body)
{
    int64_t v;
    bool found;
    r->turn.max_tokens = INT_MAX;
    EK_TRY(ek_field_int(r, body, "max_tokens", -1, INT64_MAX, &v, &found));
    if (found && v >= 0 && v < INT_MAX) r->turn.max_tokens = (int)v;
    EK_TRY(ek_field_int(r, body, "max_completion_tokens", -1, INT64_MAX, &v, &found)); /* wins over max_tokens */
    if (found) r->turn.max_tokens = v >= 0 && v < INT_MAX ? (int)v : INT_MAX;
    r->n = 1;
    EK_TRY(ek_field_int(r, body, "n", 1, EK_OPENAI_CHOICES_MAX, &v, &found));
    if (found) r->n = (int)v;
    return EK_OK;
}

static ek_err add_stop(ek_api_request *r, const json_t *v, const char *key)
{
    ek_turn_opts *t = &r->turn;
    if (!ek_json_is_text(v)) return ek_field_wrong(r, key, "a text or a list of texts is needed");
    size_t n = json_string_length(v);
    if (n == 0) return EK_OK;
    if (t->n_stop == EK_STOP_MAX) return ek_field_wrong(r, key, "at most 64 stop strings");
    if (n > EK_STOP_BYTES) return ek_field_wrong(r, key, "each may have at most 4096 bytes");
    char *copy = r->stop[t->n_stop] = ek_alloc(n + 1);
    memcpy(copy, json_string_value(v), n);
    t->stop[t->n_stop] = copy;
    t->stop_len[t->n_stop++] = n;
    return EK_OK;
}

ek_err ek_openai_stop(ek_api_request *r, const json_t *body, const char *key)
{
    const json_t *v = ek_field(body, key);
    if (!v) return EK_OK;
    if (!json_is_array(v)) return add_stop(r, v, key);
    for (size_t i = 0; i < json_array_size(v); i++) EK_TRY(add_stop(r, json_array_get(v, i), key));
    return EK_OK;
}

ek_err ek_openai_include_usage(ek_api_request *r, const json_t *body, bool *out)
{
    const json_t *options = ek_field(body, "stream_options");
    if (options && !json_is_object(options)) return ek_field_wrong(r, "stream_options", "an object is needed");
    return ek_field_bool(r, options, "include_usage", out);
}

ek_err ek_openai_encode(ek_ids *out, const ek_chat_model *m, const char *text, size_t n, bool bos, size_t max)
{
    static const char mark[] = "<bos>";
    const size_t len = sizeof mark - 1;
    bool there = n >= len && !memcmp(text, mark, len);
    if (bos && !there) ek_ids_add(out, ek_tokenizer_id(m->tokenizer, mark));
    return ek_encode_max(m->tokenizer, text, n, NULL, EK_CONTROL_ALL, max, out);
}

/* --- replies --- */

void ek_openai_head(ek_buf *out, const ek_api_reply *r, const char *object)
{
    ek_buf_str(out, "{\"id\":");
    ek_put_string(out, r->id);
    ek_buf_fmt(out, ",\"object\":\"%s\",\"created\":%lld,\"model\":", object, (long long)r->created);
    ek_put_string(out, r->model);
    ek_buf_str(out, ",\"system_fingerprint\":");
    ek_put_string(out, r->fingerprint);
}

const char *ek_openai_finish_reason(const ek_turn_result *t)
{
    switch (t->end) {
    case EK_END_CALLS: return "tool_calls";
    case EK_END_MAX_TOKENS:
    case EK_END_CONTEXT: return "length";
    default: return "stop";
    }
}

static void put_done(ek_buf *out)
{
    ek_buf_str(out, "data: [DONE]\n\n");
}

void ek_openai_stream_failed(ek_buf *out, const char *text)
{
    ek_buf_str(out, "data: ");
    ek_openai_error(out, 500, text, NULL, NULL);
    ek_buf_str(out, "\n\n");
    put_done(out);
}

void ek_openai_stream_end(ek_buf *out, const ek_api_reply *r, const char *object, bool include_usage)
{
    if (include_usage) {
        ek_buf_str(out, "data: ");
        ek_openai_head(out, r, object);
        ek_buf_str(out, ",\"choices\":[]");
        ek_openai_usage(out, r);
        ek_buf_str(out, "}\n\n");
    }
    put_done(out);
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

/* {token, logprob, bytes without its brace. */
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

void ek_openai_usage(ek_buf *out, const ek_api_reply *r)
{
    ek_api_usage u = ek_api_usage_of(r);
    ek_buf_fmt(
        out,
        ",\"usage\":{\"prompt_tokens\":%lld,\"completion_tokens\":%lld,\"total_tokens\":%lld,"
        "\"prompt_tokens_details\":{\"cached_tokens\":%lld},\"completion_tokens_details\":{\"reasoning_tokens\":%lld}}",
        (long long)u.prompt, (long long)u.completion, (long long)(u.prompt + u.completion), (long long)u.cached,
        (long long)u.reasoning);
}

void ek_openai_error_object(ek_buf *out, int status, const char *text, const char *param, const char *code)
{
    const char *type = status == 404   ? "not_found_error"
                       : status == 429 ? "rate_limit_error"
                       : status >= 500 ? "server_error"
                                       : "invalid_request_error";
    ek_buf_str(out, "\"error\":{\"message\":");
    ek_put_string(out, text);
    ek_buf_fmt(out, ",\"type\":\"%s\",\"param\":", type);
    ek_put_string(out, param);
    ek_buf_str(out, ",\"code\":");
    ek_put_string(out, code);
    ek_buf_char(out, '}');
}

void ek_openai_error(ek_buf *out, int status, const char *text, const char *param, const char *code)
{
    ek_buf_char(out, '{');
    ek_openai_error_object(out, status, text, param, code);
    ek_buf_char(out, '}');
}
