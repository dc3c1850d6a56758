#include "engine/witness.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/buf.h"
#include "base/rng.h"

static void note(ek_witness *w, int pos, const float *logits)
{
    uint64_t hash = ek_hash64((uint64_t)pos, logits, w->row_bytes) | 1;
    if (w->row[pos] && w->row[pos] != hash) w->twice = true;
    w->row[pos] = hash;
}

static void on_prompt_logits(void *user, int pos, const float *logits)
{
    note(user, pos, logits);
}

static void on_event(void *arg, const ek_event *event)
{
    ek_witness *w = arg;
    if (event->token >= 0) {
        note(w, w->n_prompt + w->n_reply - 1, event->logits);
        w->reply[w->n_reply++] = event->token;
    }
    if (event->text) snprintf(w->text, sizeof w->text, "%s", event->text);
    w->finish = event->finish;
}

static ek_err submit(ek_engine *e, const ek_ask *a, ek_witness *w)
{
    ek_request_opts o = {.tokens = a->tokens,
                         .n_tokens = a->n_tokens,
                         .max_tokens = a->max_tokens,
                         .sampling = a->sampling,
                         .ignore_eos = a->ignore_eos,
                         .sink = on_event,
                         .arg = w,
                         .user = w,
                         .prompt_logits_from = a->told_from,
                         .on_prompt_logits = on_prompt_logits};
    return ek_engine_submit(e, &o, &w->id);
}

static void init(ek_witness *w, const ek_engine *e, const ek_ask *a)
{
    *w = (ek_witness){.n_prompt = a->n_tokens, .most = a->max_tokens};
    w->row_bytes = sizeof(float) * (size_t)ek_engine_vocab(e);
    w->reply = ek_alloc(sizeof *w->reply * (size_t)a->max_tokens);
    w->row = ek_alloc(sizeof *w->row * (size_t)(a->n_tokens + a->max_tokens));
}

void ek_witness_fini(ek_witness *w)
{
    free(w->reply);
    free(w->row);
    *w = (ek_witness){0};
}

ek_err ek_witness_run(ek_engine *e, const ek_ask *ask, int n, ek_witness *out)
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
        EK_TRY(ek_engine_step(e, &worked));
    }
    return EK_OK;
}

bool ek_witness_same(const ek_witness *want, const ek_witness *got, char *where, size_t room)
{
    bool cut = got->finish == EK_FINISH_CANCELLED;
    if (got->twice) {
        snprintf(where, room, "a position was computed twice, with different logits");
        return false;
    }
    for (int pos = 0; pos < want->n_prompt + want->n_reply; pos++)
        if (want->row[pos] != got->row[pos] && !(cut && !got->row[pos])) {
            snprintf(where, room,
                     got->row[pos] ? "the logits at position %d differ (prompt %d)"
                                   : "the logits at position %d are missing (prompt %d)",
                     pos, want->n_prompt);
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
