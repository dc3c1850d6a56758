/* Fields of Ollama's API besides the prompt: sampling options, and the time to keep a model. */
#include <limits.h>
#include <math.h>
#include <string.h>

#include "serve/api/field.h"
#include "serve/ollama/ollama.h"
#include "serve/api/openai.h"
#include "text/json/json.h"

/* A count of tokens; below 0 there is no limit. */
static ek_err read_num_predict(ek_api_request *r, const json_t *options)
{
    int64_t v;
    bool found;
    r->turn.max_tokens = INT_MAX;
    EK_TRY(ek_field_int(r, options, "num_predict", INT64_MIN, INT64_MAX, &v, &found));
    if (found && v >= 0 && v < INT_MAX) r->turn.max_tokens = (int)v;
    return EK_OK;
}

/* Penalties count everything before a token; a window is not supported. */
static ek_err read_penalties(ek_api_request *r, const json_t *options)
{
    ek_sampling *s = &r->turn.sampling;
    int64_t window;
    bool found;
    EK_TRY(ek_field_number(r, options, "repeat_penalty", 1e-3, 1000, &s->repetition_penalty));
    EK_TRY(ek_field_int(r, options, "repeat_last_n", -1, INT_MAX, &window, &found));
    if (!found || window < 0) return EK_OK;
    bool any = s->repetition_penalty != 1 || s->presence_penalty != 0 || s->frequency_penalty != 0;
    if (window == 0) {
        s->repetition_penalty = 1;
        s->presence_penalty = s->frequency_penalty = 0;
    } else if (any)
        return ek_field_wrong(
            r, "repeat_last_n",
            "not supported with a penalty: it is of all tokens before; -1 says so, 0 switches it off");
    return EK_OK;
}

/* Refuses samplers that are not supported, except for the values that switch them off. */
static ek_err refuse_samplers(ek_api_request *r, const json_t *options)
{
    static const struct {
        const char *key;
        float off;
    } samplers[] = {{"typical_p", 1}, {"tfs_z", 1}, {"mirostat", 0}};
    for (size_t i = 0; i < sizeof samplers / sizeof *samplers; i++) {
        float v = samplers[i].off;
        EK_TRY(ek_field_number(r, options, samplers[i].key, 0, 1000, &v));
        if (v != samplers[i].off)
            return ek_field_wrong(r, samplers[i].key,
                                  samplers[i].off > 0 ? "not supported: only 1, which is off"
                                                      : "not supported: only 0, which is off");
    }
    return EK_OK;
}

/* Checks options of loading and running, which have no effect: the server's own options decide, and no answer depends
 * on them. */
static ek_err check_runner(ek_api_request *r, const json_t *options)
{
    static const char *const numbers[] = {"num_ctx",  "num_keep",   "num_batch", "num_gpu",
                                          "main_gpu", "num_thread", "num_gqa",   "draft_num_predict"},
                             *const flags[] = {"use_mmap",   "use_mlock",      "numa",
                                               "low_vram",   "f16_kv",         "logits_all",
                                               "vocab_only", "embedding_only", "penalize_newline"};
    int64_t number;
    bool flag;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        EK_TRY(ek_field_int(r, options, numbers[i], INT64_MIN, INT64_MAX, &number, &flag));
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) EK_TRY(ek_field_bool(r, options, flags[i], &flag));
    return EK_OK;
}

static ek_err read_options(ek_api_request *r, const json_t *options, const ek_api_limits *limits)
{
    EK_TRY(ek_openai_sampling(r, options, limits));
    if (r->has_seed && r->turn.sampling.seed == UINT64_MAX) r->has_seed = false; /* -1: any */
    EK_TRY(read_num_predict(r, options));
    EK_TRY(ek_openai_stop(r, options, "stop"));
    EK_TRY(read_penalties(r, options));
    EK_TRY(refuse_samplers(r, options));
    return check_runner(r, options);
}

ek_err ek_ollama_options(ek_api_request *r, const json_t *body, const ek_api_limits *limits)
{
    const json_t *options = ek_field(body, "options");
    ek_err err = options && !json_is_object(options) ? ek_field_kind(r, "options", "an object is needed", options)
                                                     : read_options(r, options, limits);
    if (!err || !json_is_object(options)) return err;
    r->param = "options";
    return ek_fail_in(err, "options");
}

/* Whether s is a duration in Go's form: a sign, then numbers with units, "1h30m"; a number alone counts seconds. */
static bool is_duration(const char *s, size_t n, bool *zero)
{
    size_t at = n > 0 && (*s == '-' || *s == '+');
    *zero = true;
    if (at == n) return false;
    while (at < n) {
        size_t from = at, points = 0;
        for (; at < n && ((s[at] >= '0' && s[at] <= '9') || s[at] == '.'); at++) {
            points += s[at] == '.';
            if (s[at] > '0') *zero = false;
        }
        if (at - from <= points || points > 1) return false;
        size_t unit = at;
        while (at < n && strchr("nsumh\xc2\xb5\xce\xbc", s[at]) && s[at]) at++;
        if (unit == at && at < n) return false;
        static const char *const units[] = {"", "ns", "us", "\xc2\xb5s", "\xce\xbcs", "ms", "s", "m", "h"};
        bool known = false;
        for (size_t i = 0; i < sizeof units / sizeof *units; i++)
            known |= strlen(units[i]) == at - unit && !memcmp(units[i], s + unit, at - unit);
        if (!known) return false;
    }
    return true;
}

ek_err ek_ollama_keep_alive(ek_api_request *r, const json_t *body, bool *zero)
{
    const json_t *v = ek_field(body, "keep_alive");
    *zero = v && json_is_number(v) && json_number_value(v) == 0;
    if (!v || json_is_number(v)) return EK_OK;
    if (ek_json_is_text(v) && is_duration(json_string_value(v), json_string_length(v), zero)) return EK_OK;
    return ek_field_kind(r, "keep_alive", "a number of seconds or a text such as \"5m\" is needed", v);
}
