#include "serve/journal/journal.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "text/json/json.h"

/* --- write --- */

static void add_text(ek_buf *out, const char *key, const char *value)
{
    ek_buf_fmt(out, ",\"%s\":", key);
    ek_json_quote(out, value, strlen(value));
}

static void add_ids(ek_buf *out, const char *key, const ek_ids *ids)
{
    ek_buf_fmt(out, ",\"%s\":[", key);
    for (size_t i = 0; i < ids->len; i++) ek_buf_fmt(out, "%s%d", i ? "," : "", ids->data[i]);
    ek_buf_char(out, ']');
}

/* Nine digits preserve every float. The seed is text, because JSON readers keep 53 bits. */
static void add_sampling(ek_buf *out, const ek_record *r)
{
    const ek_sampling *s = &r->sampling;
    ek_buf_fmt(out,
               ",\"temperature\":%.9g,\"top_k\":%d,\"top_p\":%.9g,\"min_p\":%.9g,\"repetition_penalty\":%.9g,"
               "\"presence_penalty\":%.9g,\"frequency_penalty\":%.9g,\"seed\":\"%llu\",\"ignore_eos\":%s,\"bias\":[",
               (double)s->temperature, s->top_k, (double)s->top_p, (double)s->min_p, (double)s->repetition_penalty,
               (double)s->presence_penalty, (double)s->frequency_penalty, (unsigned long long)s->seed,
               r->ignore_eos ? "true" : "false");
    for (int i = 0; i < s->n_bias; i++) {
        ek_buf_fmt(out, "%s[%d,", i ? "," : "", s->bias[i].token);
        if (isinf(s->bias[i].bias)) ek_buf_str(out, "null]"); /* masked */
        else ek_buf_fmt(out, "%.9g]", (double)s->bias[i].bias);
    }
    ek_buf_char(out, ']');
}

void ek_journal_line_write(ek_buf *out, const ek_journal_line *l)
{
    const ek_record *r = &l->record;
    if (l->lost > 0) {
        ek_buf_fmt(out, "{\"lost\":%lld}\n", (long long)l->lost);
        return;
    }
    ek_buf_fmt(out, "{\"time\":%.3f", l->time);
    add_text(out, "id", l->id);
    if (l->trace) add_text(out, "trace", l->trace);
    add_text(out, "api", l->api);
    add_text(out, "model", l->model);
    add_text(out, "numerics", l->numerics);
    ek_buf_fmt(out, ",\"choice\":%d,\"n_prompt\":%d,\"n_cached\":%d,\"prompt_hash\":\"%016llx\"", l->choice,
               r->n_prompt, l->n_cached, (unsigned long long)r->prompt_hash);
    if (r->n_parts > 0) ek_buf_fmt(out, ",\"media\":%d", r->n_parts);
    add_sampling(out, r);
    if (r->forced) ek_buf_str(out, ",\"forced\":true");
    if (r->has_bounds)
        ek_buf_fmt(out, ",\"thinking\":%s,\"max_thinking\":%d", r->thinking ? "true" : "false", r->max_thinking);
    if (r->same_form) ek_buf_str(out, ",\"form_of\":0");
    else if (r->form) ek_buf_fmt(out, ",\"form\":%s", r->form);
    ek_buf_fmt(out, ",\"n_tokens\":%d", l->n_tokens);
    if (r->n_stored > 0) ek_buf_fmt(out, ",\"stored\":%d", r->n_stored);
    add_text(out, "finish", l->finish);
    ek_buf_fmt(out, ",\"digest\":\"%016llx\",\"digest_version\":%d", (unsigned long long)l->digest, l->digest_version);
    if (r->mode == EK_RECORD_TOKENS) {
        add_ids(out, "prompt", &r->prompt);
        add_ids(out, "reply", &r->reply);
    }
    ek_buf_str(out, "}\n");
}

/* --- read --- */

static ek_err wrong(const char *key, const char *need)
{
    return ek_fail(EK_EINVAL, "%s: %s is needed", key, need);
}

static ek_err get_text(const char **out, const json_t *o, const char *key)
{
    size_t n;
    const char *s = ek_json_get_text(o, key, &n);
    if (!s || strlen(s) != n) return wrong(key, "a text");
    *out = ek_strdup(s);
    return EK_OK;
}

static ek_err get_int(int *out, const json_t *o, const char *key)
{
    const json_t *v = ek_json_get(o, key);
    if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) > INT_MAX)
        return wrong(key, "a whole number");
    *out = (int)json_integer_value(v);
    return EK_OK;
}

static ek_err get_float(float *out, const json_t *o, const char *key)
{
    const json_t *v = ek_json_get(o, key);
    float x = (float)json_number_value(v);
    if (!json_is_number(v) || !isfinite(x)) return wrong(key, "a number");
    *out = x;
    return EK_OK;
}

/* Reads a text that is one whole number and nothing else. */
static ek_err get_u64(uint64_t *out, const json_t *o, const char *key, int base)
{
    size_t n;
    const char *s = ek_json_get_text(o, key, &n);
    char *end;
    if (!s || n == 0 || strspn(s, base == 16 ? "0123456789abcdef" : "0123456789") != n || (base == 16 && n != 16))
        return wrong(key, base == 16 ? "a text of 16 hex digits" : "a text of digits");
    errno = 0;
    *out = strtoull(s, &end, base);
    return errno ? wrong(key, "a 64-bit number") : EK_OK;
}

static ek_err get_bool(bool *out, const json_t *o, const char *key)
{
    const json_t *v = ek_json_get(o, key);
    if (v && !json_is_boolean(v)) return wrong(key, "true or false");
    *out = json_is_true(v);
    return EK_OK;
}

static ek_err get_ids(ek_ids *out, const json_t *list, const char *key, int n)
{
    if (!json_is_array(list) || json_array_size(list) != (size_t)n)
        return ek_fail(EK_EINVAL, "%s: a list of %d tokens is needed", key, n);
    for (int i = 0; i < n; i++) {
        const json_t *v = json_array_get(list, (size_t)i);
        if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) > INT32_MAX)
            return wrong(key, "a list of token ids");
        ek_ids_add(out, (int32_t)json_integer_value(v));
    }
    return EK_OK;
}

static ek_err get_bias(ek_sampling *s, const json_t *o)
{
    const json_t *list = ek_json_get(o, "bias");
    if (!json_is_array(list) || json_array_size(list) > INT_MAX / 16) return wrong("bias", "a list");
    size_t n = json_array_size(list);
    ek_logit_bias *bias = ek_alloc((n + 1) * sizeof *bias);
    s->bias = bias;
    for (size_t i = 0; i < n; i++) {
        const json_t *pair = json_array_get(list, i), *token = json_array_get(pair, 0), *v = json_array_get(pair, 1);
        float x = (float)json_number_value(v);
        if (json_array_size(pair) != 2 || !json_is_integer(token) || json_integer_value(token) < 0 ||
            json_integer_value(token) > INT32_MAX || !(json_is_null(v) || (json_is_number(v) && isfinite(x))))
            return wrong("bias", "a list of [token, number or null]");
        bias[s->n_bias++] = (ek_logit_bias){(int32_t)json_integer_value(token), json_is_null(v) ? -INFINITY : x};
    }
    return EK_OK;
}

/* Reads max_thinking and the form, which is kept as compact text. Without max_thinking there are no bounds. */
static ek_err get_bounds(ek_record *r, const json_t *o)
{
    const json_t *form = ek_json_get(o, "form");
    EK_TRY(get_bool(&r->forced, o, "forced"));
    EK_TRY(get_bool(&r->thinking, o, "thinking"));
    r->has_bounds = r->forced && ek_json_get(o, "max_thinking");
    if (!r->has_bounds) return EK_OK;
    EK_TRY(get_int(&r->max_thinking, o, "max_thinking"));
    if (form && !json_is_object(form)) return wrong("form", "an object");
    const json_t *of = ek_json_get(o, "form_of");
    if (of && (form || !json_is_integer(of) || json_integer_value(of) != 0))
        return wrong("form_of", "0, and no form beside it,");
    r->same_form = of != NULL;
    ek_buf text = {0};
    if (form) ek_json_write(&text, form);
    if (form) r->form = ek_strdup(ek_buf_text(&text));
    ek_buf_fini(&text);
    return EK_OK;
}

static ek_err get_sampling(ek_record *r, const json_t *o)
{
    ek_sampling *s = &r->sampling;
    EK_TRY(get_float(&s->temperature, o, "temperature"));
    EK_TRY(get_int(&s->top_k, o, "top_k"));
    EK_TRY(get_float(&s->top_p, o, "top_p"));
    EK_TRY(get_float(&s->min_p, o, "min_p"));
    EK_TRY(get_float(&s->repetition_penalty, o, "repetition_penalty"));
    EK_TRY(get_float(&s->presence_penalty, o, "presence_penalty"));
    EK_TRY(get_float(&s->frequency_penalty, o, "frequency_penalty"));
    EK_TRY(get_u64(&s->seed, o, "seed", 10));
    EK_TRY(get_bool(&r->ignore_eos, o, "ignore_eos"));
    EK_TRY(get_bounds(r, o));
    return get_bias(s, o);
}

/* Reads both lists of tokens, or none; the prompt must have the stored hash. */
static ek_err get_tokens(ek_journal_line *l, const json_t *o)
{
    ek_record *r = &l->record;
    const json_t *prompt = ek_json_get(o, "prompt"), *reply = ek_json_get(o, "reply");
    r->mode = EK_RECORD_FACTS;
    if (!prompt && !reply) return EK_OK;
    EK_TRY(get_ids(&r->prompt, prompt, "prompt", r->n_prompt));
    EK_TRY(get_ids(&r->reply, reply, "reply", l->n_tokens));
    if (ek_prompt_hash(r->prompt.data, r->n_prompt) != r->prompt_hash)
        return ek_fail(EK_EINVAL, "prompt: its hash is not prompt_hash");
    r->mode = EK_RECORD_TOKENS;
    return EK_OK;
}

static ek_err get_all(ek_journal_line *l, const json_t *o)
{
    const json_t *time = ek_json_get(o, "time"), *lost = ek_json_get(o, "lost");
    if (!json_is_object(o)) return ek_fail(EK_EINVAL, "a JSON object is needed");
    if (lost) {
        l->lost = json_integer_value(lost);
        return l->lost > 0 ? EK_OK : wrong("lost", "a whole number from 1");
    }
    if (!json_is_number(time)) return wrong("time", "a number");
    l->time = json_number_value(time);
    EK_TRY(get_text(&l->id, o, "id"));
    if (json_object_get(o, "trace")) EK_TRY(get_text(&l->trace, o, "trace"));
    EK_TRY(get_text(&l->api, o, "api"));
    EK_TRY(get_text(&l->model, o, "model"));
    EK_TRY(get_text(&l->numerics, o, "numerics"));
    EK_TRY(get_text(&l->finish, o, "finish"));
    EK_TRY(get_int(&l->choice, o, "choice"));
    EK_TRY(get_int(&l->n_cached, o, "n_cached"));
    EK_TRY(get_int(&l->n_tokens, o, "n_tokens"));
    EK_TRY(get_int(&l->record.n_prompt, o, "n_prompt"));
    EK_TRY(get_u64(&l->record.prompt_hash, o, "prompt_hash", 16));
    EK_TRY(get_u64(&l->digest, o, "digest", 16));
    if (json_object_get(o, "media")) EK_TRY(get_int(&l->record.n_parts, o, "media"));
    if (json_object_get(o, "stored")) EK_TRY(get_int(&l->record.n_stored, o, "stored"));
    l->digest_version = 1;
    if (json_object_get(o, "digest_version")) EK_TRY(get_int(&l->digest_version, o, "digest_version"));
    EK_TRY(get_sampling(&l->record, o));
    return get_tokens(l, o);
}

ek_err ek_journal_line_read(ek_journal_line *l, const char *text, size_t n)
{
    json_t *o;
    *l = (ek_journal_line){0};
    if (n > EK_JOURNAL_LINE_MAX)
        return ek_fail(EK_ETOOLARGE, "a line of %zu bytes, at most %d are read", n, EK_JOURNAL_LINE_MAX);
    EK_TRY(ek_json_read(&o, text, n, EK_JOURNAL_LINE_MAX));
    ek_err err = get_all(l, o);
    json_decref(o);
    return err;
}

void ek_journal_line_fini(ek_journal_line *l)
{
    const char *const texts[] = {l->id, l->trace, l->api, l->model, l->numerics, l->finish};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) free((void *)(uintptr_t)texts[i]);
    ek_record_fini(&l->record);
    *l = (ek_journal_line){0};
}
