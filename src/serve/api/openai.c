#include "serve/api/openai.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "serve/api/field.h"
#include "text/json/json.h"

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
        /* the API spells "never" as -100 */
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

ek_err ek_openai_text_prompt(ek_turn_prompt *out, const ek_chat_model *m, const char *text, size_t n, bool bos,
                             const ek_prompt_opts *opts)
{
    size_t ctx = (size_t)opts->ctx_tokens;
    bool added = bos && strncmp(text, "<bos>", 5) != 0, fits = n <= ek_prompt_max_text(m, opts);
    if (fits) EK_TRY(ek_openai_encode(&out->ids, m, text, n, bos, 2 * ctx));
    if (fits && out->ids.len < ctx) return EK_OK;
    return ek_prompt_too_long(m, text, n, NULL, EK_CONTROL_ALL, added, opts);
}
