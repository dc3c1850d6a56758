#include "engine/request.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "engine/sampler.h"

enum { MOST_STOP_IDS = 4096 };

static ek_err check_tokens(const char *what, const int32_t *token, int n, int vocab_size)
{
    for (int i = 0; i < n; i++)
        if (token[i] < 0 || token[i] >= vocab_size)
            return ek_fail(EK_EINVAL, "%s %d is token %d, the vocabulary has %d", what, i, token[i], vocab_size);
    return EK_OK;
}

ek_err ek_request_check(const ek_request_opts *o, const ek_request_rules *rules)
{
    if (o->n_tokens < 1 || !o->tokens) return ek_fail(EK_EINVAL, "a prompt needs at least one token");
    if (o->max_tokens < 1) return ek_fail(EK_EINVAL, "max_tokens is %d, it must be 1 or more", o->max_tokens);
    if (o->n_tokens >= rules->ctx)
        return ek_fail(EK_ETOOLONG, "%d prompt tokens do not fit: the context is %d, one of them for the reply",
                       o->n_tokens, rules->ctx);
    if (o->n_stop < 0 || o->n_stop > MOST_STOP_IDS)
        return ek_fail(EK_EINVAL, "%d stop ids, at most %d are possible", o->n_stop, MOST_STOP_IDS);
    if (o->prompt_logits_from < 0) return ek_fail(EK_EINVAL, "prompt logits from position %d", o->prompt_logits_from);
    EK_TRY(check_tokens("prompt position", o->tokens, o->n_tokens, rules->vocab_size));
    EK_TRY(check_tokens("stop id", o->stop, o->n_stop, rules->vocab_size));
    return ek_sampling_check(&o->sampling, rules->vocab_size);
}

static void *copy(const void *p, size_t bytes)
{
    void *q = ek_alloc(bytes);
    if (bytes) memcpy(q, p, bytes);
    return q;
}

ek_request *ek_request_new(const ek_request_opts *o, const ek_request_rules *rules)
{
    ek_request *r = ek_alloc(sizeof *r);
    int64_t most = (int64_t)o->n_tokens + o->max_tokens;
    r->state = EK_WAITING;
    r->most_tokens = most < rules->ctx ? (int)most : rules->ctx;
    r->n_prompt = r->n_tokens = o->n_tokens;
    r->tokens = ek_alloc(sizeof *r->tokens * (size_t)r->most_tokens);
    memcpy(r->tokens, o->tokens, sizeof *r->tokens * (size_t)o->n_tokens);
    ek_table_init(&r->table, rules->layout, r->most_tokens);
    r->sampling = o->sampling;
    r->sampling.bias = copy(o->sampling.bias, sizeof *o->sampling.bias * (size_t)o->sampling.n_bias);
    int n_own = o->ignore_eos ? 0 : rules->n_stop;
    r->n_stop = n_own + o->n_stop;
    r->stop = ek_alloc(sizeof *r->stop * (size_t)r->n_stop);
    if (n_own) memcpy(r->stop, rules->stop, sizeof *r->stop * (size_t)n_own);
    if (o->n_stop) memcpy(r->stop + n_own, o->stop, sizeof *r->stop * (size_t)o->n_stop);
    r->sink = o->sink;
    r->arg = o->arg;
    r->user = o->user;
    r->on_prompt_logits = o->on_prompt_logits;
    r->n_told = o->on_prompt_logits && o->prompt_logits_from < o->n_tokens ? o->prompt_logits_from : o->n_tokens;
    return r;
}

void ek_request_free(ek_request *r)
{
    ek_table_fini(&r->table);
    free(r->tokens);
    free((void *)(uintptr_t)r->sampling.bias);
    free(r->stop);
    free(r);
}

bool ek_request_is_stop(const ek_request *r, int32_t token)
{
    for (int i = 0; i < r->n_stop; i++)
        if (r->stop[i] == token) return true;
    return false;
}
