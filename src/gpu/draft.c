/* Drafts by a drafter model on the device (model/drafter.h). Its layers read the target's pages, and its first state is
 * the target's last hidden state. Each token is written to where the next step reads it. All steps of a draft are
 * queued at once. */
#include "gpu/gpu.h"

#include <stdio.h>
#include <string.h>

#include "gpu/recipe/sections.h"
#include "gpu/step/step.h"

/* --- the rows */

static ek_err check(const ek_gpu_run *x, const ek_draft *draft, int n)
{
    if (n > x->z.max_requests)
        return ek_fail(EK_EINVAL, "drafts for %d requests, there is memory for %d", n, x->z.max_requests);
    for (int i = 0; i < n; i++) {
        const int fed = draft[i].n_tokens - 1;
        if (fed < 1 || fed > x->z.max_ctx)
            return ek_fail(EK_EINVAL, "a draft behind %d tokens, the context is %d", fed, x->z.max_ctx);
        if (draft[i].seq->first[EK_SLIDING] * EK_PAGE_TOKENS >= fed)
            return ek_fail(EK_EINVAL, "a draft behind %d tokens, none of which is held in sliding layers", fed);
        EK_ASSERT(draft[i].max <= EK_DRAFT_MAX);
    }
    return EK_OK;
}

/* model/drafter.c says which positions a row sees, and why. */
static ek_row row_of(const ek_gpu_run *x, const ek_draft *d, int seq)
{
    const int n = d->n_tokens - 1, window = x->g->target->m->config.sliding_window;
    const int held = d->seq->first[EK_SLIDING] * EK_PAGE_TOKENS, lo = n > window ? n - window : 0;
    ek_row row = {
        .token = d->tokens[n], .pos = x->g->position == EK_ROPE_N ? n : n - 1, .seq = seq, .wants_logits = true};
    row.visible[EK_FULL] = (ek_range){0, n};
    row.visible[EK_SLIDING] = (ek_range){lo > held ? lo : held, n};
    return row;
}

static ek_err lists(ek_gpu_run *x, const ek_draft *draft, int n)
{
    void *from = NULL, *n_token = NULL;
    x->block.used = 0;
    for (int i = 0; i < n; i++) {
        x->lists.rows[i] = row_of(x, &draft[i], i);
        x->lists.seqs[i] = *draft[i].seq;
    }
    /* first in the block, so that a graph of n rows always finds them at the same offsets */
    EK_TRY(ek_gpu_block_take(&x->block, sizeof(int32_t) * (size_t)n, &from, &x->now.from));
    EK_TRY(ek_gpu_block_take(&x->block, sizeof(int32_t) * (size_t)n, &n_token, &x->now.n_token));
    for (int i = 0; i < n; i++) ((int32_t *)from)[i] = draft[i].logits;
    memset(n_token, 0, sizeof(int32_t) * (size_t)n);
    return ek_gpu_lists(x, &(ek_step){.row = x->lists.rows, .n_rows = n, .seq = x->lists.seqs, .n_seqs = n});
}

/* --- a step of the drafter */

/* Feeds each row its token and its state. The next token is appended to the draft, and the next state is written to
 * where it is read. */
static ek_err queue_token(ek_gpu_run *const *x, int n)
{
    EK_ASSERT(n == 1);
    ek_gpu_draft_token(x[0]);
    return x[0]->g->err;
}

static ek_err queue(ek_gpu_run *x, const ek_draft *draft, int n, int steps)
{
    EK_TRY(lists(x, draft, n));
    EK_TRY(ek_cuda_upload(x->g->c, x->block.device, x->block.host, x->block.used));
    EK_TRY(ek_gpu_put_turns(x));
    EK_TRY(ek_cuda_fill(x->g->c, x->buf.best, 0, (size_t)x->z.max_rows * 2 * sizeof(uint64_t)));
    ek_gpu_draft_first(x);
    EK_TRY(x->g->err);
    for (int i = 0; i < steps; i++) EK_TRY(ek_gpu_replay(&x, 1, queue_token, EK_GPU_ALL));
    return ek_cuda_download(x->g->c, x->flights.result, x->buf.token, sizeof(int32_t) * (size_t)n * EK_DRAFT_MAX);
}

/* All rows make as many steps as the longest draft; a row's own bits do not depend on that. */
ek_err ek_gpu_draft(void *run, ek_draft *draft, int n)
{
    const ek_gpu_run *t = run;
    ek_gpu_run *x = t->drafter;
    int steps = 0;
    for (int i = 0; i < n; i++) draft[i].n = 0;
    if (t->pending) return ek_fail(t->pending, "%s", t->pending_text); /* the next step ends with this error */
    EK_TRY(ek_cuda_enter(x->g->c));
    EK_TRY(check(x, draft, n));
    for (int i = 0; i < n; i++) steps = draft[i].max > steps ? draft[i].max : steps;
    x->g->err = EK_OK;
    ek_err err = queue(x, draft, n, steps);
    if (err) {
        char text[512];
        snprintf(text, sizeof text, "%s", ek_err_text());
        ek_cuda_sync(x->g->c); /* nothing queued may still read the block */
        return ek_fail(err, "%s", text);
    }
    EK_TRY(ek_cuda_sync(x->g->c));
    for (int i = 0; i < n; i++) {
        memcpy(draft[i].token, x->flights.result + (size_t)i * EK_DRAFT_MAX, sizeof(int32_t) * (size_t)draft[i].max);
        draft[i].n = draft[i].max;
    }
    return EK_OK;
}
