/* A request of tokens. Its functions run on the engine's thread. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "capi/inside.h"
#include "capi/state.h"
#include "chat/turn.h"

typedef struct generate {
    capi_request base;
    evenkeel_request o; /* the arrays belong to the caller and are not read after submit */
    int n_prompt;
    ek_request_id in_engine;
    uint64_t hash;   /* the hash of the rows so far */
    int32_t *tokens; /* with a mask: the n tokens of the reply so far, and room for a draft */
    int n, cap;
} generate;

static void cancel(capi_request *r)
{
    ek_engine_cancel(r->engine->m.engine, ((generate *)(void *)r)->in_engine);
}

/* --- the mask --- */

static void make_room(generate *g, int more)
{
    if (g->n + more <= g->cap) return;
    g->cap = 2 * (g->n + more);
    g->tokens = ek_realloc(g->tokens, (size_t)g->cap * sizeof *g->tokens);
}

static bool has(const uint64_t *row, int32_t token)
{
    return row[token / 64] >> (token % 64) & 1;
}

/* For ek_mask.look. The draft is placed after the reply, so that the caller's function sees one text. */
static int look(void *arg, const int32_t *draft, int n_draft, uint64_t *row, bool *all)
{
    generate *g = arg;
    const int words = ek_mask_words(ek_engine_vocab(g->base.engine->m.engine));
    int i = 0;
    if (n_draft > 0) memcpy(g->tokens + g->n, draft, (size_t)n_draft * sizeof *draft);
    for (;; i++) {
        uint64_t *at = row + (size_t)i * (size_t)words;
        memset(at, 0, (size_t)words * sizeof *at);
        all[i] = !g->o.mask(g->o.mask_arg, g->tokens, g->n + i, at);
        if (i == n_draft || (!all[i] && !has(at, draft[i]))) return i;
    }
}

static void accept(void *arg, int32_t token)
{
    generate *g = arg;
    make_room(g, EK_DRAFT_MAX + 1);
    g->tokens[g->n++] = token;
}

/* --- events --- */

/* A row of the prompt, or of a resumed reply. The last row comes as an event. */
static void on_prompt_logits(void *user, int pos, const float *logits)
{
    generate *g = user;
    const int behind = pos + 1, from = g->o.prompt_logits_from;
    if (behind >= (int)g->o.n_tokens) return;
    if (g->o.digest && behind >= g->n_prompt)
        g->hash = ek_digest_row(g->hash, ek_logits_digest(logits, ek_engine_vocab(g->base.engine->m.engine)));
    if (g->o.logits && from && pos >= (from < 0 ? 0 : from)) g->o.logits(g->o.logits_arg, behind, logits);
}

static evenkeel_finish finish_of(ek_finish f)
{
    switch (f) {
    case EK_FINISH_STOP: return EVENKEEL_STOP;
    case EK_FINISH_CANCELLED: return EVENKEEL_CANCELLED;
    case EK_FINISH_ERROR: return EVENKEEL_ERROR;
    default: return EVENKEEL_LENGTH;
    }
}

static void post_token(generate *g, const ek_event *e)
{
    const ek_tokenizer *t = g->base.engine->m.chat.tokenizer;
    evenkeel_event out = {.kind = EVENKEEL_TOKEN, .token = e->token, .digest = g->o.digest ? e->digest : 0};
    if (g->o.digest) g->hash = ek_digest_row(g->hash, e->digest);
    if (g->o.logits) g->o.logits(g->o.logits_arg, e->n_prompt + e->n_tokens - 1, e->logits);
    if (t && !ek_tokenizer_is_special(t, e->token)) out.text = ek_tokenizer_bytes(t, e->token, &out.n);
    capi_post(&g->base, &out);
}

static void on_event(void *arg, const ek_event *e)
{
    generate *g = arg;
    if (e->token >= 0) post_token(g, e);
    if (e->finish == EK_FINISH_NONE) return;
    const char *text = e->finish == EK_FINISH_ERROR && e->text ? e->text : "";
    evenkeel_event end = capi_error(e->err, text);
    end.finish = finish_of(e->finish);
    if (end.finish != EVENKEEL_ERROR) end.status = EK_DONE;
    end.digest = g->o.digest ? g->hash : 0;
    end.prompt_tokens = e->n_prompt;
    end.cached_tokens = e->n_cached;
    end.tokens = e->n_tokens;
    capi_end(&g->base, &end);
    free(g->tokens);
    free(g);
}

/* --- the request --- */

static ek_sampling sampling_of(const evenkeel_request *o, ek_logit_bias *bias)
{
    ek_sampling s = ek_sampling_greedy();
    s.temperature = o->temperature;
    s.top_k = o->top_k;
    if (o->top_p != 0) s.top_p = o->top_p;
    s.min_p = o->min_p;
    if (o->repetition_penalty != 0) s.repetition_penalty = o->repetition_penalty;
    s.presence_penalty = o->presence_penalty;
    s.frequency_penalty = o->frequency_penalty;
    s.seed = o->seed;
    for (size_t i = 0; i < o->n_bias; i++) bias[i] = (ek_logit_bias){o->bias[i].token, o->bias[i].bias};
    s.bias = bias;
    s.n_bias = (int)o->n_bias;
    return s;
}

static ek_err check(const generate *g, const ek_engine *e)
{
    const evenkeel_request *o = &g->o;
    const size_t ctx = (size_t)ek_engine_ctx(e), vocab = (size_t)ek_engine_vocab(e);
    if (!o->tokens || o->n_tokens == 0) return ek_fail(EK_EINVAL, "tokens: a prompt has 1 token at least");
    if (o->n_tokens >= ctx)
        return ek_fail(EK_ETOOLONG, "tokens: %zu, the context has room for %zu and a reply", o->n_tokens, ctx - 1);
    if (o->max_tokens < 0) return ek_fail(EK_EINVAL, "max_tokens is %d, it must be 0 or more", o->max_tokens);
    if (o->n_replied < 0 || (size_t)o->n_replied >= o->n_tokens)
        return ek_fail(EK_EINVAL, "n_replied is %d of %zu tokens; the prompt is 1 of them at least", o->n_replied,
                       o->n_tokens);
    if ((o->n_bias > 0 && !o->bias) || (o->n_stop > 0 && !o->stop))
        return ek_fail(EK_EINVAL, "%s is NULL, its count is not 0", o->n_bias > 0 && !o->bias ? "bias" : "stop");
    if (o->n_bias > vocab || o->n_stop > vocab)
        return ek_fail(EK_EINVAL, "%zu biases and %zu stop ids, the model has %zu tokens", o->n_bias, o->n_stop, vocab);
    return EK_OK;
}

/* The first requested row of the prompt. */
static int rows_from(const generate *g)
{
    const evenkeel_request *o = &g->o;
    int from = (int)o->n_tokens;
    if (o->digest && o->n_replied > 0) from = g->n_prompt - 1;
    const int wanted = o->prompt_logits_from < 0 ? 0 : o->prompt_logits_from;
    return o->logits && o->prompt_logits_from && wanted < from ? wanted : from;
}

static ek_err submit(generate *g, const ek_part *part, int n_parts)
{
    ek_engine *e = g->base.engine->m.engine;
    const evenkeel_request *o = &g->o;
    g->n_prompt = (int)o->n_tokens - o->n_replied;
    make_room(g, o->n_replied + EK_DRAFT_MAX + 1);
    g->n = o->n_replied;
    if (g->n > 0) memcpy(g->tokens, o->tokens + g->n_prompt, (size_t)g->n * sizeof *g->tokens);
    ek_logit_bias *bias = ek_alloc((o->n_bias + 1) * sizeof *bias);
    const ek_mask mask = {.arg = g, .look = look, .accept = accept};
    const int from = rows_from(g);
    const ek_request_opts r = {.tokens = o->tokens,
                               .n_tokens = (int)o->n_tokens,
                               .part = part,
                               .n_parts = n_parts,
                               .max_tokens = o->max_tokens ? o->max_tokens : ek_engine_ctx(e),
                               .n_replied = o->n_replied,
                               .sampling = sampling_of(o, bias),
                               .mask = o->mask ? &mask : NULL,
                               .ignore_eos = o->ignore_eos,
                               .stop = o->stop,
                               .n_stop = (int)o->n_stop,
                               .sink = on_event,
                               .arg = g,
                               .prompt_logits_from = from,
                               .on_prompt_logits = from < (int)o->n_tokens ? on_prompt_logits : NULL,
                               .user = g,
                               .reply_logits = o->logits != NULL,
                               .reply_digest = o->digest,
                               .client = o->client,
                               .cache_salt = o->cache_salt};
    evenkeel *engine = g->base.engine;
    pthread_mutex_lock(&engine->lock); /* a cancelling thread reads in_engine under this lock */
    const ek_err err = ek_engine_submit(e, &r, &g->in_engine);
    pthread_mutex_unlock(&engine->lock); /* g may no longer exist */
    free(bias);
    return err;
}

/* The program's own commands have checked their options, so only the engine checks. */
static ek_err take(evenkeel_queue *queue, const evenkeel_request *request, bool checked, const ek_part *part,
                   int n_parts, evenkeel_id *id)
{
    generate *g = ek_alloc(sizeof *g);
    ek_err err = capi_check_process(queue->engine);
    if (!err) err = capi_take_struct(&g->o, sizeof g->o, request, request ? request->size : 0, "evenkeel_request");
    if (!err && !checked) err = check(g, queue->engine->m.engine);
    g->base = (capi_request){.engine = queue->engine, .queue = queue, .user = g->o.user, .cancel = cancel};
    if (!err) {
        capi_begin(&g->base);
        if (id) *id = g->base.id;
        ek_log_sink *before = ek_log_here(queue->engine->log);
        err = submit(g, part, n_parts);
        ek_log_here(before);
        if (err) capi_take_back(&g->base);
    }
    if (!err) return EK_OK; /* g may no longer exist */
    free(g->tokens);
    free(g);
    return err;
}

ek_err capi_generate(evenkeel_queue *queue, const evenkeel_request *request, const ek_part *part, int n_parts,
                     evenkeel_id *id)
{
    return take(queue, request, true, part, n_parts, id);
}

ek_status evenkeel_generate(evenkeel_queue *queue, const evenkeel_request *request, evenkeel_id *id)
{
    return capi_status(take(queue, request, false, NULL, 0, id));
}

void evenkeel_cancel(evenkeel *engine, evenkeel_id id)
{
    if (capi_check_process(engine)) return;
    pthread_mutex_lock(&engine->lock);
    for (capi_request *r = engine->requests; r; r = r->next)
        if (r->id == id) r->cancel(r);
    pthread_mutex_unlock(&engine->lock);
}
