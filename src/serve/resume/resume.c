#include "serve/resume/resume.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash/rng.h"
#include "base/clock.h"
#include "text/json/json.h"

void ek_resume_fini(ek_resume *r)
{
    ek_ids_fini(&r->tokens);
    ek_bounds_fini(&r->bounds);
    *r = (ek_resume){0};
}

/* --- the chain --- */

static uint64_t add(uint64_t h, const void *data, size_t n)
{
    const uint64_t len = n;
    return ek_hash64(ek_hash64(h, &len, sizeof len), data, n);
}

static uint64_t add_text(uint64_t h, const char *s)
{
    return add(h, s, strlen(s));
}

static uint64_t add_sampling(uint64_t h, const ek_sampling *s)
{
    const float f[] = {s->temperature,      s->top_p, s->min_p, s->repetition_penalty, s->presence_penalty,
                       s->frequency_penalty};
    const int32_t top_k = s->top_k;
    h = add(h, f, sizeof f);
    h = add(h, &top_k, sizeof top_k);
    for (int i = 0; i < s->n_bias; i++) {
        h = add(h, &s->bias[i].token, sizeof s->bias[i].token);
        h = add(h, &s->bias[i].bias, sizeof s->bias[i].bias);
    }
    return h;
}

uint64_t ek_resume_begin(const char *path, const char *identity, const ek_turn_prompt *prompt, const ek_turn_opts *o,
                         const char *form)
{
    const int32_t n[] = {o->max_tokens,   o->max_thinking, o->tools_active, o->one_call, o->ignore_eos,   o->plain,
                         o->show_special, o->logprobs,     o->n_top,        o->digest,   prompt->thinking};
    uint64_t h = add_text(add_text(0, path), identity);
    h = add(h, n, sizeof n);
    h = add(h, prompt->ids.data ? prompt->ids.data : &n[0], prompt->ids.len * sizeof *prompt->ids.data);
    for (int i = 0; i < prompt->n_parts; i++)
        h = add(h, prompt->part[i].media->digest, sizeof prompt->part[i].media->digest);
    for (int i = 0; i < o->n_stop; i++) h = add(h, o->stop[i], o->stop_len[i]);
    return add_text(add_sampling(h, &o->sampling), form);
}

uint64_t ek_resume_seed(uint64_t begin, const ek_sampling *s)
{
    const uint64_t seed = s->temperature >= EK_MIN_TEMPERATURE ? s->seed : 0;
    return add(begin, &seed, sizeof seed);
}

ek_turn_resumed ek_resume_turn(ek_resume *r)
{
    return (ek_turn_resumed){.tokens = r->tokens.data,
                             .n = (int)r->tokens.len,
                             .n_cached = r->cached,
                             .n_images_kept = r->cached_media[0],
                             .n_sounds_kept = r->cached_media[1],
                             .digest = r->has_logits ? &r->logits : NULL,
                             .bounds = &r->bounds};
}

uint64_t ek_resume_token(uint64_t chain, int32_t token)
{
    return ek_hash64(chain, &token, sizeof token);
}

/* --- a resumed reply --- */

static ek_err check_chain(ek_resume *r, const ek_sampling *s)
{
    uint64_t h = ek_resume_seed(r->begin, s);
    for (size_t i = 0; i < r->tokens.len; i++) {
        r->before = h;
        h = ek_resume_token(h, r->tokens.data[i]);
    }
    if (h == r->digest) return EK_OK;
    return ek_fail(EK_EINVAL,
                   "evenkeel.resume.digest: %016" PRIx64
                   " belongs to other tokens, another body or another model: this "
                   "body with these %zu tokens has %016" PRIx64,
                   r->digest, r->tokens.len, h);
}

/* Whether token may come next. */
static bool fits(const ek_mask *mask, int32_t token, uint64_t *row)
{
    bool all[2];
    int n = mask->peek(mask->arg, &token, 1, all);
    if (n < 0) n = mask->look(mask->arg, &token, 1, row, all);
    return n == 1;
}

static ek_err follow(ek_bounds *b, const ek_ids *tokens)
{
    enum { OFTEN = 256 };
    ek_mask mask = ek_bounds_mask(b);
    uint64_t *row = ek_alloc(2 * (size_t)ek_mask_words(b->n_vocab) * sizeof *row);
    ek_err err = EK_OK;
    for (size_t i = 0; i < tokens->len && !err; i++) {
        if (i % OFTEN == 0) err = ek_wanted_check();
        if (!err && !fits(&mask, tokens->data[i], row))
            err = ek_fail(EK_EINVAL,
                          "evenkeel.resume.tokens: token %zu, %d, does not fit the form of the reply (schema, tools or "
                          "limit of thoughts)",
                          i, tokens->data[i]);
        if (!err && i + 1 < tokens->len) mask.accept(mask.arg, tokens->data[i]);
    }
    free(row);
    return err;
}

ek_err ek_resume_check(ek_resume *r, const ek_chat_model *m, const ek_turn_prompt *prompt, const ek_turn_opts *o,
                       int n_vocab, int ctx_tokens)
{
    const size_t n = r->tokens.len;
    if (n > (size_t)o->max_tokens)
        return ek_fail(EK_EINVAL, "evenkeel.resume.tokens: there are %zu, the reply may have %d", n, o->max_tokens);
    if (prompt->ids.len + n > (size_t)ctx_tokens)
        return ek_fail(EK_ETOOLONG, "evenkeel.resume.tokens: %zu behind %zu of the prompt, the context has %d", n,
                       prompt->ids.len, ctx_tokens);
    EK_TRY(check_chain(r, &o->sampling));
    ek_bounds_init(&r->bounds, m, o->grammar, o->plain ? 0 : o->max_thinking, prompt->ids.data, prompt->ids.len,
                   prompt->thinking);
    r->bounds.n_vocab = n_vocab;
    return ek_bounds_any(&r->bounds) ? follow(&r->bounds, &r->tokens) : EK_OK;
}

/* --- the state in a body --- */

/* Reads a whole number; absent: 0. */
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

/* Reads 16 hex digits. */
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

/* Reads an id of this server: a prefix, which the dialect checks, and hex digits. */
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

/* --- the marks of a stream --- */

void ek_resume_marks_init(ek_resume_marks *m, const ek_resume *r, const ek_sampling *s)
{
    const size_t n = r->tokens.len;
    m->chain = n > 0 ? r->before : ek_resume_seed(r->begin, s);
    m->at = n > 0 ? (int)n - 1 : 0;
    m->skip = n > 0 ? r->events : 0;
    m->begun = m->has = n > 0;
}

void ek_resume_marks_fini(ek_resume_marks *m)
{
    ek_ids_fini(&m->fresh);
}

void ek_resume_marks_token(ek_resume_marks *m, int32_t token)
{
    if (!m->has) m->skip = 0;
    if (!m->has) ek_ids_add(&m->fresh, token);
    m->has = false;
    m->at++;
    m->events = 0;
    m->chain = ek_resume_token(m->chain, token);
}

void ek_resume_event_begin(ek_resume_marks *m, const ek_buf *out)
{
    m->from = out->len;
    m->events++;
}

void ek_resume_event_end(ek_resume_marks *m, ek_buf *out)
{
    if (m->events > m->skip || out->len == m->from) return;
    out->len = m->from;
    out->data[out->len] = '\0';
}

void ek_resume_event_put(ek_resume_marks *m, ek_buf *out, const ek_turn_result *r, const uint64_t *logits)
{
    ek_buf_str(out, "\"resume\":");
    if (m->events > m->skip) ek_resume_put(m, out, r, logits);
    else ek_buf_str(out, "{}"); /* it will be removed, because its state is for the first event that the client lacks */
}

void ek_resume_put(ek_resume_marks *m, ek_buf *out, const ek_turn_result *r, const uint64_t *logits)
{
    ek_buf_char(out, '{');
    if (!m->begun) {
        ek_buf_str(out, "\"id\":");
        ek_json_quote(out, m->id, strlen(m->id));
        ek_buf_fmt(out, ",\"created\":%lld,\"cached\":%d,", (long long)m->created, r->n_cached);
        if (r->n_images + r->n_sounds > 0)
            ek_buf_fmt(out, "\"cached_media\":[%d,%d],", r->n_images_kept, r->n_sounds_kept);
        if (m->seed) ek_buf_fmt(out, "\"seed\":%llu,", (unsigned long long)*m->seed);
    }
    m->begun = true;
    ek_buf_fmt(out, "\"at\":%d,", m->at);
    for (size_t i = 0; i < m->fresh.len; i++) ek_buf_fmt(out, "%s%d", i ? "," : "\"tokens\":[", m->fresh.data[i]);
    if (m->fresh.len > 0) ek_buf_str(out, "],");
    m->fresh.len = 0;
    ek_buf_fmt(out, "\"events\":%d,\"digest\":\"%016" PRIx64 "\"", m->events, m->chain);
    if (logits) ek_buf_fmt(out, ",\"logits\":\"%016" PRIx64 "\"", *logits);
    ek_buf_char(out, '}');
}
