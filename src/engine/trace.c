#include "engine/trace.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/hash/rng.h"
#include "engine/sample/sampler.h"

static void note(ek_trace *t, int pos, const float *logits)
{
    uint64_t hash = ek_hash64((uint64_t)pos, logits, t->row_bytes) | 1;
    if (t->row[pos] && t->row[pos] != hash) t->twice = true;
    t->row[pos] = hash;
}

static void on_prompt_logits(void *user, int pos, const float *logits)
{
    ek_trace *t = user;
    note(t, pos, logits);
    if (pos + 1 >= t->n_prompt && pos + 1 < t->n_given)
        t->digest[pos + 1 - t->n_prompt] = ek_logits_digest(logits, (int)(t->row_bytes / sizeof(float)));
}

static void on_event(void *arg, const ek_event *event)
{
    ek_trace *t = arg;
    if (event->token >= 0) {
        if (event->logits) {
            note(t, t->n_prompt + t->n_reply - 1, event->logits);
            t->wrong_digest |= event->digest != ek_logits_digest(event->logits, (int)(t->row_bytes / sizeof(float)));
        }
        t->digest[t->n_reply] = event->digest;
        t->reply[t->n_reply++] = event->token;
    }
    t->n_cached = event->n_cached;
    t->n_features = event->n_features;
    if (event->text) snprintf(t->text, sizeof t->text, "%s", event->text);
    t->finish = event->finish;
}

static ek_err submit(ek_engine *e, const ek_ask *a, ek_trace *t)
{
    ek_request_opts o = {.tokens = a->tokens,
                         .n_tokens = a->n_tokens,
                         .max_tokens = a->max_tokens,
                         .n_replied = a->n_replied,
                         .sampling = a->sampling,
                         .ignore_eos = a->ignore_eos,
                         .sink = on_event,
                         .arg = t,
                         .user = t,
                         .prompt_logits_from = a->prompt_logits_from,
                         .on_prompt_logits = on_prompt_logits,
                         .span = a->span,
                         .n_spans = a->n_spans,
                         .part = a->part,
                         .n_parts = a->n_parts,
                         .reply_logits = !a->digests,
                         .reply_digest = true,
                         .cache_salt = a->cache_salt,
                         .client = a->client,
                         .mask = a->mask};
    return ek_engine_submit(e, &o, &t->id);
}

static void init(ek_trace *t, const ek_engine *e, const ek_ask *a)
{
    *t = (ek_trace){.n_prompt = a->n_tokens - a->n_replied,
                    .n_given = a->n_tokens,
                    .max_tokens = a->max_tokens,
                    .prompt_logits_from = a->prompt_logits_from};
    t->row_bytes = sizeof(float) * (size_t)ek_engine_vocab(e);
    t->digests = a->digests;
    t->reply = ek_alloc(sizeof *t->reply * (size_t)a->max_tokens);
    t->digest = ek_alloc(sizeof *t->digest * (size_t)a->max_tokens);
    t->row = ek_alloc(sizeof *t->row * (size_t)(a->n_tokens + a->max_tokens));
    for (int i = t->n_prompt; i < t->n_given && t->n_reply < a->max_tokens; i++) t->reply[t->n_reply++] = a->tokens[i];
}

void ek_trace_fini(ek_trace *t)
{
    free(t->reply), free(t->digest);
    free(t->row);
    *t = (ek_trace){0};
}

ek_err ek_trace_run(ek_engine *e, const ek_ask *ask, int n, ek_trace *out)
{
    int arrived = 0;
    for (int i = 0; i < n; i++) init(&out[i], e, &ask[i]);
    bool worked = true;
    for (int step = 0; arrived < n || worked; step++) {
        for (int i = 0; i < n; i++) {
            if (ask[i].arrive == step) {
                EK_TRY(submit(e, &ask[i], &out[i]));
                arrived++;
            }
            if (ask[i].cancel > 0 && ask[i].cancel == step) ek_engine_cancel(e, out[i].id);
        }
        worked = ek_engine_step(e);
    }
    return EK_OK;
}

bool ek_trace_same(const ek_trace *want, const ek_trace *got, char *where, size_t room)
{
    bool cut = got->finish == EK_FINISH_CANCELLED;
    if (got->twice) {
        snprintf(where, room, "a position was computed twice, with different logits");
        return false;
    }
    if (got->wrong_digest) {
        snprintf(where, room, "the digest of a row is not that of its logits");
        return false;
    }
    int first = got->prompt_logits_from < got->n_given ? got->prompt_logits_from : got->n_given - 1;
    for (int pos = first; pos < want->n_prompt + want->n_reply; pos++)
        if (want->row[pos] != got->row[pos] && !((cut || got->digests) && !got->row[pos])) {
            snprintf(where, room,
                     got->row[pos] ? "the logits at position %d differ (prompt %d)"
                                   : "the logits at position %d are missing (prompt %d)",
                     pos, want->n_prompt);
            return false;
        }
    int unknown = first < got->n_prompt ? 0 : first + 1 - got->n_prompt; /* rows that were not computed */
    for (int i = unknown; i < want->n_reply && i < got->n_reply; i++)
        if (want->digest[i] != got->digest[i]) {
            snprintf(where, room, "the logits before reply token %d differ in their digest (prompt %d)", i,
                     want->n_prompt);
            return false;
        }
    for (int i = 0; i < want->n_reply && i < got->n_reply; i++)
        if (want->reply[i] != got->reply[i]) {
            snprintf(where, room, "reply token %d is %d, alone it is %d", i, got->reply[i], want->reply[i]);
            return false;
        }
    if (!cut && (got->n_reply != want->n_reply || got->finish != want->finish)) {
        snprintf(where, room, "ended after %d tokens (finish %d), alone after %d (finish %d) %.60s", got->n_reply,
                 got->finish, want->n_reply, want->finish, got->text);
        return false;
    }
    return true;
}
