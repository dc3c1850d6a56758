#include <string.h>

#include "serve/resume/resume.h"
#include "text/json/json.h"

/* A whole number of the member; absent is 0. */
static ek_err read_int(const json_t *o, const char *key, int64_t max, int64_t *out, bool *found)
{
    const json_t *v = ek_json_get(o, key);
    *found = v && !json_is_null(v);
    *out = 0;
    if (!*found) return EK_OK;
    *out = json_is_integer(v) ? json_integer_value(v) : -1;
    if (*out >= 0 && *out <= max) return EK_OK;
    return ek_fail(EK_EINVAL, "evenkeel.resume.%s: a whole number from 0 to %lld is needed", key, (long long)max);
}

/* 16 hex digits, as streams spell them. */
static ek_err read_digest(const json_t *o, const char *key, uint64_t *out, bool *found)
{
    const json_t *v = ek_json_get(o, key);
    size_t n = 0;
    const char *s = ek_json_get_text(o, key, &n);
    *found = v && !json_is_null(v);
    if (!*found) return EK_OK;
    bool ok = s && n == 16;
    uint64_t h = 0;
    for (size_t i = 0; ok && i < n; i++) {
        const char *digits = "0123456789abcdef", *at = s[i] ? strchr(digits, s[i]) : NULL;
        ok = at != NULL;
        if (ok) h = h << 4 | (uint64_t)(at - digits);
    }
    *out = h;
    return ok ? EK_OK : ek_fail(EK_EINVAL, "evenkeel.resume.%s: 16 hex digits are needed, as in the stream", key);
}

static ek_err read_tokens(ek_resume *r, const json_t *o, int n_vocab, int ctx_tokens)
{
    const json_t *list = ek_json_get(o, "tokens");
    const size_t n = json_array_size(list);
    if (!json_is_array(list) || n == 0)
        return ek_fail(EK_EINVAL, "evenkeel.resume.tokens: a list of the tokens so far is needed, at least one");
    if (n >= (size_t)ctx_tokens)
        return ek_fail(EK_EINVAL, "evenkeel.resume.tokens: there are %zu, the context has %d", n, ctx_tokens);
    for (size_t i = 0; i < n; i++) {
        const json_t *v = json_array_get(list, i);
        const json_int_t id = json_is_integer(v) ? json_integer_value(v) : -1;
        if (id < 0 || id >= n_vocab)
            return ek_fail(EK_EINVAL,
                           "evenkeel.resume.tokens: item %zu is no token: a whole number from 0 to %d is needed", i,
                           n_vocab - 1);
        ek_ids_add(&r->tokens, (int32_t)id);
    }
    return EK_OK;
}

/* As it was given out: "chatcmpl-" and hex digits; the dialect checks the beginning. */
static ek_err read_id(ek_resume *r, const json_t *o)
{
    size_t n = 0;
    const char *s = ek_json_get_text(o, "id", &n);
    bool ok = s && n > 0 && n < sizeof r->id;
    for (size_t i = 0; ok && i < n; i++)
        ok = (s[i] >= 'a' && s[i] <= 'z') || (s[i] >= '0' && s[i] <= '9') || s[i] == '-' || s[i] == '_';
    if (!ok) return ek_fail(EK_EINVAL, "evenkeel.resume.id: the id of the stream is needed, from its first event");
    memcpy(r->id, s, n);
    return EK_OK;
}

static ek_err read_media(ek_resume *r, const json_t *o, int ctx_tokens)
{
    const json_t *list = ek_json_get(o, "cached_media");
    if (json_is_null(list)) list = NULL;
    bool ok = !list || json_array_size(list) == 2;
    for (size_t i = 0; i < 2 && list && ok; i++) {
        const json_t *v = json_array_get(list, i);
        const json_int_t n = json_is_integer(v) ? json_integer_value(v) : -1;
        ok = n >= 0 && n <= ctx_tokens;
        if (ok) r->cached_media[i] = (int)n;
    }
    return ok ? EK_OK : ek_fail(EK_EINVAL, "evenkeel.resume.cached_media: two counts are needed, as in the stream");
}

ek_err ek_resume_read(ek_resume *r, const json_t *v, int n_vocab, int ctx_tokens)
{
    enum { MAX_EVENTS = 1 << 20 };
    static const int64_t max_created = (int64_t)1 << 40, max_seed = (int64_t)1 << 53;
    int64_t n;
    bool found;
    if (!v || json_is_null(v)) return EK_OK;
    r->on = json_is_true(v) || json_is_object(v);
    if (json_is_boolean(v)) return EK_OK;
    if (!json_is_object(v))
        return ek_fail(EK_EINVAL, "evenkeel.resume: true, or what the events of a stream said, an object, is needed");
    EK_TRY(read_tokens(r, v, n_vocab, ctx_tokens));
    EK_TRY(read_id(r, v));
    EK_TRY(read_int(v, "created", max_created, &r->created, &found));
    if (!found) return ek_fail(EK_EINVAL, "evenkeel.resume.created: it is needed, from the stream's first event");
    EK_TRY(read_int(v, "cached", ctx_tokens, &n, &found));
    r->cached = (int)n;
    EK_TRY(read_media(r, v, ctx_tokens));
    EK_TRY(read_int(v, "events", MAX_EVENTS, &n, &found));
    r->events = (int)n;
    EK_TRY(read_int(v, "seed", max_seed, &n, &r->has_seed));
    r->seed = (uint64_t)n;
    EK_TRY(read_int(v, "at", ctx_tokens, &n, &found));
    if (found && (size_t)n != r->tokens.len)
        return ek_fail(EK_EINVAL, "evenkeel.resume.at: the stream had %lld tokens, %zu are sent", (long long)n,
                       r->tokens.len);
    EK_TRY(read_digest(v, "logits", &r->logits, &r->has_logits));
    EK_TRY(read_digest(v, "digest", &r->digest, &found));
    return found ? EK_OK : ek_fail(EK_EINVAL, "evenkeel.resume.digest: it is needed, from the stream's last event");
}
