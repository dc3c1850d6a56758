#include "replies/ask.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/encoding.h"

/* --- out --- */

static void put_tokens(ek_buf *out, const int32_t *tokens, int n)
{
    for (int i = 0; i < n; i++) ek_buf_fmt(out, "%s%d", i ? "," : "", tokens[i]);
}

static void put_media(ek_buf *out, const ek_reply_ask *a)
{
    for (int i = 0; i < a->n_parts; i++) {
        const ek_media *m = a->part[i].media;
        ek_buf_fmt(out, "%s[%d,\"%s\",\"", i ? "," : "", a->part[i].first, ek_part_name(m->kind));
        for (size_t k = 0; k < sizeof m->digest; k++) ek_buf_fmt(out, "%02x", m->digest[k]);
        ek_buf_str(out, "\"]");
    }
}

/* Nine digits are enough for every float. -0 has the same effect as 0. */
static void put_float(ek_buf *out, const char *key, float x)
{
    ek_buf_fmt(out, ",\"%s\":", key);
    ek_buf_float(out, x == 0 ? 0 : x);
}

static void put_bias(ek_buf *out, const ek_sampling *s)
{
    ek_logit_bias *list = ek_alloc(((size_t)s->n_bias + 1) * sizeof *list);
    const int n = ek_reply_bias(list, s);
    ek_buf_str(out, ",\"bias\":[");
    for (int i = 0; i < n; i++) {
        ek_buf_fmt(out, "%s[%d,", i ? "," : "", list[i].token);
        if (isinf(list[i].bias)) ek_buf_str(out, "null");
        else ek_buf_float(out, list[i].bias);
        ek_buf_char(out, ']');
    }
    ek_buf_char(out, ']');
    free(list);
}

static void put_options(ek_buf *out, const ek_sampling *s)
{
    const bool draws = s->temperature >= EK_MIN_TEMPERATURE;
    ek_buf_str(out, "\"temperature\":");
    ek_buf_float(out, draws ? s->temperature : 0);
    if (draws) {
        ek_buf_fmt(out, ",\"seed\":\"%" PRIu64 "\",\"top_k\":%d", s->seed, s->top_k);
        put_float(out, "top_p", s->top_p);
        put_float(out, "min_p", s->min_p);
    }
    put_float(out, "repetition_penalty", s->repetition_penalty);
    put_float(out, "presence_penalty", s->presence_penalty);
    put_float(out, "frequency_penalty", s->frequency_penalty);
    put_bias(out, s);
}

static void put_mask(ek_buf *out, const ek_reply_ask *a)
{
    if (!a->masked) {
        ek_buf_str(out, "null");
        return;
    }
    const char *program = a->program ? a->program : "";
    ek_buf_str(out, "{\"program\":");
    ek_json_quote(out, program, strlen(program));
    ek_buf_str(out, ",\"form\":");
    if (a->form) ek_json_quote(out, a->form, strlen(a->form));
    else ek_buf_str(out, "null");
    ek_buf_fmt(out, ",\"max_thinking\":%d,\"thinking\":%s}", a->max_thinking, a->thinking ? "true" : "false");
}

void ek_reply_ask_write(ek_buf *out, const ek_reply_ask *a)
{
    ek_buf_str(out, "{\"prompt\":[");
    put_tokens(out, a->tokens, a->n_tokens);
    ek_buf_str(out, "],\"media\":[");
    put_media(out, a);
    ek_buf_str(out, "],\"options\":{");
    put_options(out, a->sampling);
    ek_buf_str(out, "},\"mask\":");
    put_mask(out, a);
    ek_buf_char(out, '}');
}

/* --- in --- */

ek_err ek_cassette_only(const json_t *v, const char *what, const char *const *names)
{
    const char *key;
    json_t *value;
    if (!json_is_object(v)) return ek_fail(EK_EFORMAT, "%s is no object", what);
    json_object_foreach((json_t *)(uintptr_t)v, key, value)
    {
        const char *const *name = names;
        while (*name && strcmp(*name, key) != 0) name++;
        if (!*name) return ek_fail(EK_EFORMAT, "%s has \"%.40s\", which this version does not know", what, key);
    }
    return EK_OK;
}

static ek_err whole(const json_t *v, const char *name, int64_t min, int64_t max, int64_t *out)
{
    *out = 0;
    if (!json_is_integer(v) || json_integer_value(v) < min || json_integer_value(v) > max)
        return ek_fail(EK_EFORMAT, "%s is no whole number from %lld to %lld", name, (long long)min, (long long)max);
    *out = json_integer_value(v);
    return EK_OK;
}

ek_err ek_cassette_int(const json_t *v, const char *key, int64_t min, int64_t max, int64_t *out)
{
    return whole(ek_json_get(v, key), key, min, max, out);
}

static ek_err read_float(const json_t *v, const char *name, float *out)
{
    const double x = json_is_number(v) ? json_number_value(v) : NAN;
    if (!isfinite((float)x)) return ek_fail(EK_EFORMAT, "%s is no number", name);
    *out = (float)x;
    return EK_OK;
}

static ek_err read_tokens(ek_reply_asked *a, const json_t *v)
{
    const size_t n = json_array_size(v);
    if (!json_is_array(v) || n < 1 || n > EK_MAX_CONTEXT) return ek_fail(EK_EFORMAT, "prompt is no list of tokens");
    a->tokens = ek_alloc(n * sizeof *a->tokens);
    for (size_t i = 0; i < n; i++) {
        int64_t token;
        EK_TRY(whole(json_array_get(v, i), "a token of the prompt", 0, EK_MAX_VOCAB, &token));
        a->tokens[i] = (int32_t)token;
    }
    a->ask.tokens = a->tokens;
    a->ask.n_tokens = (int)n;
    return EK_OK;
}

static ek_err read_kind(const char *name, ek_part_kind *out)
{
    for (int k = 0; k < EK_PART_KINDS; k++) {
        *out = (ek_part_kind)k;
        if (name && !strcmp(name, ek_part_name(*out))) return EK_OK;
    }
    return ek_fail(EK_EFORMAT, "media: neither an image, a video frame nor a sound");
}

static ek_err read_part(ek_media *m, int *first, const json_t *v, int n_tokens)
{
    int64_t at;
    size_t n;
    const json_t *digest = json_array_get(v, 2);
    if (json_array_size(v) != 3 || !ek_json_is_text(digest))
        return ek_fail(EK_EFORMAT, "media: no position, kind, sum");
    EK_TRY(whole(json_array_get(v, 0), "media: a position", 0, n_tokens - 1, &at));
    EK_TRY(read_kind(json_string_value(json_array_get(v, 1)), &m->kind));
    const char *hex = json_string_value(digest);
    n = json_string_length(digest);
    for (size_t i = 0; i < sizeof m->digest; i++) {
        const int byte = n == 2 * sizeof m->digest ? ek_hex_byte(hex + 2 * i, 2) : -1;
        if (byte < 0) return ek_fail(EK_EFORMAT, "media: a sum that is no SHA-256");
        m->digest[i] = (uint8_t)byte;
    }
    *first = (int)at;
    return EK_OK;
}

static ek_err read_media(ek_reply_asked *a, const json_t *v)
{
    const size_t n = json_array_size(v);
    if (!json_is_array(v) || n > (size_t)a->ask.n_tokens) return ek_fail(EK_EFORMAT, "media is no list");
    a->media = ek_alloc((n + 1) * sizeof *a->media);
    a->part = ek_alloc((n + 1) * sizeof *a->part);
    for (size_t i = 0; i < n; i++) {
        a->part[i].media = &a->media[i];
        EK_TRY(read_part(&a->media[i], &a->part[i].first, json_array_get(v, i), a->ask.n_tokens));
    }
    a->ask.part = a->part;
    a->ask.n_parts = (int)n;
    return EK_OK;
}

static ek_err read_bias(ek_reply_asked *a, const json_t *v)
{
    const size_t n = json_array_size(v);
    if (!json_is_array(v) || n > EK_MAX_VOCAB) return ek_fail(EK_EFORMAT, "bias is no list");
    a->bias = ek_alloc((n + 1) * sizeof *a->bias);
    for (size_t i = 0; i < n; i++) {
        const json_t *pair = json_array_get(v, i), *bias = json_array_get(pair, 1);
        int64_t token;
        if (json_array_size(pair) != 2) return ek_fail(EK_EFORMAT, "bias: no token and number");
        EK_TRY(whole(json_array_get(pair, 0), "bias: a token", 0, EK_MAX_VOCAB, &token));
        a->bias[i] = (ek_logit_bias){(int32_t)token, -INFINITY};
        if (!json_is_null(bias)) EK_TRY(read_float(bias, "bias", &a->bias[i].bias));
    }
    a->sampling.bias = a->bias;
    a->sampling.n_bias = (int)n;
    return EK_OK;
}

static ek_err read_seed(ek_sampling *s, const json_t *v)
{
    size_t n = 0;
    const char *text = ek_json_get_text(v, "seed", &n);
    uint64_t x = 0;
    for (size_t i = 0; text && i < n; i++) {
        const uint64_t digit = (uint64_t)(text[i] - '0');
        if (text[i] < '0' || text[i] > '9' || x > (UINT64_MAX - digit) / 10) n = 0;
        else x = 10 * x + digit;
    }
    if (!text || n == 0) return ek_fail(EK_EFORMAT, "seed is no whole number from 0 to 2^64 - 1, as text");
    s->seed = x;
    return EK_OK;
}

static ek_err read_options(ek_reply_asked *a, const json_t *v)
{
    static const char *const greedy[] = {
        "temperature", "repetition_penalty", "presence_penalty", "frequency_penalty", "bias", NULL};
    static const char *const drawn[] = {
        "temperature",       "seed", "top_k", "top_p", "min_p", "repetition_penalty", "presence_penalty",
        "frequency_penalty", "bias", NULL};
    ek_sampling *s = &a->sampling;
    int64_t top_k;
    *s = ek_sampling_greedy();
    EK_TRY(read_float(ek_json_get(v, "temperature"), "temperature", &s->temperature));
    const bool draws = s->temperature >= EK_MIN_TEMPERATURE;
    EK_TRY(ek_cassette_only(v, "options", draws ? drawn : greedy));
    if (draws) {
        EK_TRY(read_seed(s, v));
        EK_TRY(ek_cassette_int(v, "top_k", 0, INT32_MAX, &top_k));
        s->top_k = (int)top_k;
        EK_TRY(read_float(ek_json_get(v, "top_p"), "top_p", &s->top_p));
        EK_TRY(read_float(ek_json_get(v, "min_p"), "min_p", &s->min_p));
    }
    EK_TRY(read_float(ek_json_get(v, "repetition_penalty"), "repetition_penalty", &s->repetition_penalty));
    EK_TRY(read_float(ek_json_get(v, "presence_penalty"), "presence_penalty", &s->presence_penalty));
    EK_TRY(read_float(ek_json_get(v, "frequency_penalty"), "frequency_penalty", &s->frequency_penalty));
    return read_bias(a, ek_json_get(v, "bias"));
}

static ek_err read_text(ek_buf *out, const json_t *v, const char *key)
{
    size_t n = 0;
    const char *text = ek_json_get_text(v, key, &n);
    if (!text || memchr(text, 0, n)) return ek_fail(EK_EFORMAT, "%s is no text", key);
    ek_buf_add(out, text, n);
    return EK_OK;
}

static ek_err read_mask(ek_reply_asked *a, const json_t *v)
{
    static const char *const names[] = {"program", "form", "max_thinking", "thinking", NULL};
    int64_t max;
    if (json_is_null(v)) return EK_OK;
    EK_TRY(ek_cassette_only(v, "mask", names));
    EK_TRY(read_text(&a->program, v, "program"));
    const bool has_form = !json_is_null(ek_json_get(v, "form"));
    if (has_form) EK_TRY(read_text(&a->form, v, "form"));
    EK_TRY(ek_cassette_int(v, "max_thinking", 0, INT32_MAX, &max));
    if (!json_is_boolean(ek_json_get(v, "thinking"))) return ek_fail(EK_EFORMAT, "thinking is neither true nor false");
    a->ask.masked = true;
    a->ask.program = ek_buf_text(&a->program);
    a->ask.form = has_form ? ek_buf_text(&a->form) : NULL;
    a->ask.max_thinking = (int)max;
    a->ask.thinking = json_is_true(ek_json_get(v, "thinking"));
    return EK_OK;
}

ek_err ek_reply_ask_read(ek_reply_asked *out, const json_t *v, const char *identity)
{
    static const char *const names[] = {"prompt", "media", "options", "mask", NULL};
    *out = (ek_reply_asked){.ask.identity = identity};
    out->ask.sampling = &out->sampling;
    EK_TRY(ek_cassette_only(v, "ask", names));
    EK_TRY(read_tokens(out, ek_json_get(v, "prompt")));
    EK_TRY(read_media(out, ek_json_get(v, "media")));
    EK_TRY(read_options(out, ek_json_get(v, "options")));
    return read_mask(out, ek_json_get(v, "mask"));
}

void ek_reply_asked_fini(ek_reply_asked *a)
{
    free(a->tokens);
    free(a->part);
    free(a->media);
    free(a->bias);
    ek_buf_fini(&a->program);
    ek_buf_fini(&a->form);
    *a = (ek_reply_asked){0};
}
