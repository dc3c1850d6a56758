#include "serve/resume/resume.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash/rng.h"
#include "base/wanted.h"

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

uint64_t ek_resume_token(uint64_t chain, int32_t token)
{
    return ek_hash64(chain, &token, sizeof token);
}

/* --- a reply that goes on --- */

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
