/* Drafts by a drafter model on the device (model/drafter.h): its layers read the target's pages, its first state is the
 * target's last hidden state, and each token is fed to the next step where it was found. All of a draft is queued at
 * once. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "gpu/run.h"

static unsigned up(int n, int by)
{
    return (unsigned)((n + by - 1) / by);
}

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

/* Which positions a row sees, and why: model/drafter.c. */
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
        x->rows[i] = row_of(x, &draft[i], i);
        x->seqs[i] = *draft[i].seq;
    }
    /* first, so that a graph of n rows finds them where they were */
    EK_TRY(ek_gpu_block_take(&x->block, sizeof(int32_t) * (size_t)n, &from, &x->from));
    EK_TRY(ek_gpu_block_take(&x->block, sizeof(int32_t) * (size_t)n, &n_token, &x->n_token));
    for (int i = 0; i < n; i++) ((int32_t *)from)[i] = draft[i].logits;
    memset(n_token, 0, sizeof(int32_t) * (size_t)n);
    return ek_gpu_lists(x, &(ek_step){.row = x->rows, .n_rows = n, .seq = x->seqs, .n_seqs = n});
}

/* --- a step of the drafter */

static ek_cuda_draft_args args_of(const ek_gpu_run *x, CUdeviceptr y)
{
    const ek_config *c = &x->g->m->config;
    return (ek_cuda_draft_args){.score = x->logits,
                                .chosen = x->chosen,
                                .ordering = x->g->w.ordering,
                                .y = y,
                                .best = x->best,
                                .id = x->id,
                                .draft = x->token,
                                .n = x->n_token,
                                .head = ek_gpu_rows_of(&x->g->w.embed),
                                .n_centroids = c->n_centroids,
                                .top_k = c->top_k_centroids,
                                .vocab_size = c->vocab_size,
                                .rows = x->all.n,
                                .max = EK_DRAFT_MAX};
}

/* The best token's key of each row, to x->best. */
static void run_head(ek_gpu_run *x, ek_gpu_input *in)
{
    const ek_config *c = &x->g->m->config;
    const unsigned rows = (unsigned)in->n, wide = in->n > 8 ? 16 : 64;
    if (c->n_centroids) {
        const ek_cuda_draft_args a = args_of(x, in->f);
        ek_gpu_project(x, &x->g->w.centroids, in, x->logits, c->n_centroids);
        ek_gpu_launch(x->g, "ek_draft_centroids", (ek_cuda_grid){.x = rows, .threads = 1024, .overlap = true}, &a);
        ek_gpu_launch(x->g, "ek_draft_ordered",
                      (ek_cuda_grid){.x = 2 * wide, .y = rows, .threads = 256, .overlap = true}, &a);
        return;
    }
    ek_gpu_project(x, &x->g->w.embed, in, x->logits, c->vocab_size);
    ek_cuda_reduce_args a = {.out = x->id, .x = x->logits, .key = x->best, .ldx = c->vocab_size, .n = c->vocab_size};
    ek_gpu_launch(x->g, "ek_argmax", (ek_cuda_grid){.x = wide, .y = rows, .threads = 256}, &a);
}

/* Feeds each row its token and its state: the next token joins the draft, and the next state lies where it is fed. */
static ek_err queue_token(ek_gpu_run *x)
{
    const ek_gpu *t = x->g->target;
    const ek_gpu_weights *w = &x->g->w;
    const int n = x->all.n, wide = x->g->m->config.backbone_hidden_size, hidden = x->g->m->config.hidden_size;
    ek_gpu_embed(x, &t->w.embed, x->id, x->fed, 2 * wide, 0, wide, sqrtf((float)wide), n);
    ek_gpu_input in = ek_gpu_rows(x->fed, 2 * wide, n, 2 * wide);
    ek_gpu_project(x, &w->pre_projection, &in, x->h, hidden);
    in = ek_gpu_layers(x);
    ek_gpu_project(x, &w->post_projection, &in, x->fed + sizeof(float) * (size_t)wide, 2 * wide);
    run_head(x, &in);
    const ek_cuda_draft_args a = args_of(x, in.f);
    ek_gpu_launch(x->g, "ek_draft_next", (ek_cuda_grid){.x = 1, .threads = 1024, .overlap = true}, &a);
    return x->g->err;
}

static ek_err queue(ek_gpu_run *x, const ek_draft *draft, int n, int steps)
{
    const int wide = x->g->m->config.backbone_hidden_size;
    EK_TRY(lists(x, draft, n));
    EK_TRY(ek_cuda_upload(x->g->c, x->block.device, x->block.host, x->block.used));
    EK_TRY(ek_cuda_fill(x->g->c, x->best, 0, (size_t)x->z.max_rows * 2 * sizeof(uint64_t)));
    ek_gpu_rope_tables(x, &x->all); /* queries stay where they are for the whole draft */
    ek_cuda_gather_args first = {.y = x->fed + sizeof(float) * (size_t)wide,
                                 .x = x->target->hidden,
                                 .index = x->from,
                                 .ldy = 2 * wide,
                                 .ldx = wide,
                                 .n = wide};
    ek_gpu_launch(x->g, "ek_gather",
                  (ek_cuda_grid){.x = up(wide, 1024), .y = (unsigned)n, .threads = 256, .overlap = true}, &first);
    EK_TRY(x->g->err);
    for (int i = 0; i < steps; i++) EK_TRY(ek_gpu_replay(x, queue_token, EK_GPU_ALL));
    return ek_cuda_download(x->g->c, x->result, x->token, sizeof(int32_t) * (size_t)n * EK_DRAFT_MAX);
}

/* All rows take as many steps as the longest draft; a row's own bits do not depend on it. */
ek_err ek_gpu_draft(void *run, ek_draft *draft, int n)
{
    const ek_gpu_run *t = run;
    ek_gpu_run *x = t->drafter;
    int steps = 0;
    for (int i = 0; i < n; i++) draft[i].n = 0;
    if (t->pending) return ek_fail(t->pending, "%s", t->pending_text); /* the next step ends with it */
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
        memcpy(draft[i].token, x->result + (size_t)i * EK_DRAFT_MAX, sizeof(int32_t) * (size_t)draft[i].max);
        draft[i].n = draft[i].max;
    }
    return EK_OK;
}
