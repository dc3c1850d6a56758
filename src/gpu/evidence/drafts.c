/* Compares the end of a drafter's step: the best token by a dense head, or among the tokens of the best centroids. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "cuda/model_args.h"
#include "gpu/evidence/evidence.h"
#include "gpu/recipe/sections.h"
#include "ops/rows/rows.h"

enum { ROWS = 3, DRAFTED = 2, MAX = 4 }; /* drafted: tokens of each row's draft so far; max: its room */

/* Compares ek_draft_next: what it feeds back and keeps of a row's best token. */
static ek_err prove_next(ek_trial *t, ek_cuda_draft_args a, const int32_t want[ROWS])
{
    int32_t draft[ROWS * MAX], n[ROWS];
    static const uint64_t zero[2 * ROWS];
    for (int r = 0; r < ROWS; r++) n[r] = DRAFTED;
    for (int i = 0; i < ROWS * MAX; i++) draft[i] = 100 + i;
    a.id = ek_trial_up(t, NULL, sizeof n), a.n = ek_trial_up(t, n, sizeof n),
    a.draft = ek_trial_up(t, draft, sizeof draft);
    a.rows = ROWS, a.max = MAX;
    ek_gpu_launch(t->g, "ek_draft_next", (ek_cuda_grid){.x = 1, .threads = 1024}, &a);
    for (int r = 0; r < ROWS; r++) draft[r * MAX + DRAFTED] = want[r], n[r] = DRAFTED + 1;
    EK_TRY(ek_trial_bytes(t, "ek_draft_next", a.id, want, sizeof n));
    EK_TRY(ek_trial_bytes(t, "ek_draft_next", a.draft, draft, sizeof draft));
    EK_TRY(ek_trial_bytes(t, "ek_draft_next", a.n, n, sizeof n));
    return ek_trial_bytes(t, "ek_draft_next", a.best, zero, sizeof zero);
}

/* --- a dense head */

/* Rows with NaN and ties for the best, without any candidate, and with numbers of every size. */
static float *logits_of(int n)
{
    float *const x = ek_trial_hard((size_t)(ROWS * n), 31, 4);
    for (int i = 0; i < n; i++) x[i] = i % 700 == 13 ? NAN : (float)(i * 31 % 97), x[n + i] = i % 2 ? -INFINITY : NAN;
    return x;
}

static ek_err prove_argmax(ek_trial *t)
{
    enum { VOCAB = 5000 };
    static const uint64_t zero[2 * ROWS];
    ek_row_ops ops;
    int32_t want[ROWS];
    ek_row_init(&ops, 0);
    float *const x = logits_of(VOCAB);
    for (int r = 0; r < ROWS; r++) want[r] = ops.argmax(x + r * VOCAB, VOCAB);
    t->used = 0;
    const ek_cuda_reduce_args a = {.x = ek_trial_up(t, x, sizeof *x * ROWS * VOCAB),
                                   .out = ek_trial_up(t, NULL, sizeof want),
                                   .key = ek_trial_up(t, zero, sizeof zero),
                                   .ldx = VOCAB,
                                   .n = VOCAB};
    ek_gpu_launch(t->g, "ek_argmax", (ek_cuda_grid){.x = 16, .y = ROWS, .threads = 256}, &a);
    free(x);
    EK_TRY(ek_trial_bytes(t, "ek_argmax", a.out, want, sizeof want));
    return prove_next(t, (ek_cuda_draft_args){.best = a.key, .vocab_size = VOCAB}, want);
}

/* --- ordered embeddings */

static ek_err prove_centroids(ek_trial *t)
{
    const int n = t->m->config.n_centroids, top = t->m->config.top_k_centroids;
    const size_t all = (size_t)(ROWS * n), bytes = sizeof(int32_t) * (size_t)(ROWS * top);
    float *const score = ek_trial_hard(all, 32, 4), *const value = ek_alloc(bytes);
    int32_t *const want = ek_alloc(bytes);
    for (int i = 0; i < n; i++) score[i] = (float)(i % 5), score[n + i] = i % 3 ? 0x1p-140f * (float)(i % 7) : -0.0f;
    t->used = 0;
    const ek_cuda_draft_args a = {.score = ek_trial_up(t, score, sizeof *score * all),
                                  .chosen = ek_trial_up(t, NULL, bytes),
                                  .n_centroids = n,
                                  .top_k = top,
                                  .rows = ROWS};
    for (int r = 0; r < ROWS; r++) ek_top_k(score + r * n, n, top, want + r * top, value);
    ek_gpu_launch(t->g, "ek_draft_centroids", (ek_cuda_grid){.x = ROWS, .threads = 1024}, &a);
    const ek_err err = ek_trial_bytes(t, "ek_draft_centroids", a.chosen, want, bytes);
    free(score), free(value), free(want);
    return err;
}

enum { CENTROIDS = 8, TOP = 3, PER = EK_TRIAL_OUTPUTS / CENTROIDS, TOKENS = TOP * PER };

/* Scores of the tokens of chosen centroids, and the best of each row, the lowest among equal ones. */
static void expect(float score[ROWS * TOKENS], int32_t best[ROWS], const ek_linear *w, const int32_t *ordering,
                   const int32_t *chosen, const float *y)
{
    float *const embedding = ek_alloc(sizeof(float) * (size_t)(w->k + 64));
    for (int r = 0; r < ROWS; r++) {
        float max = -INFINITY;
        best[r] = EK_TRIAL_OUTPUTS;
        for (int i = 0; i < TOKENS; i++) {
            const int32_t token = ordering[chosen[r * TOP + i / PER] * PER + i % PER];
            ek_linear_row(w, token, embedding);
            const float z = ek_drafter_score(y + r * w->k, embedding, w->k);
            score[r * TOKENS + i] = z;
            if (z > max || (z == max && token < best[r])) best[r] = token, max = z;
        }
    }
    free(embedding);
}

static ek_err run_ordered(ek_trial *t, const ek_linear *w, const float *y)
{
    static const int32_t chosen[ROWS * TOP] = {5, 0, 7, 1, 2, 3, 6, 4, 0};
    static const uint64_t zero[2 * ROWS];
    int32_t ordering[EK_TRIAL_OUTPUTS], best[ROWS];
    float score[ROWS * TOKENS];
    ek_gpu_matrix head = {0};
    for (int i = 0; i < EK_TRIAL_OUTPUTS; i++) ordering[i] = (i * 7 + 3) % EK_TRIAL_OUTPUTS;
    EK_TRY(ek_cuda_linear_plan(&head.l, w));
    t->used = 0;
    head.at = ek_trial_up(t, NULL, head.l.bytes);
    EK_TRY(ek_trial_put_matrix(t, &head.l, w, head.at));
    const ek_cuda_draft_args a = {.score = ek_trial_up(t, NULL, sizeof score),
                                  .chosen = ek_trial_up(t, chosen, sizeof chosen),
                                  .ordering = ek_trial_up(t, ordering, sizeof ordering),
                                  .y = ek_trial_up(t, y, sizeof *y * (size_t)(ROWS * w->k)),
                                  .best = ek_trial_up(t, zero, sizeof zero),
                                  .head = ek_gpu_rows_of(&head),
                                  .n_centroids = CENTROIDS,
                                  .top_k = TOP,
                                  .vocab_size = EK_TRIAL_OUTPUTS,
                                  .rows = ROWS};
    ek_gpu_launch(t->g, "ek_draft_ordered", (ek_cuda_grid){.x = 32, .y = ROWS, .threads = 256}, &a);
    expect(score, best, w, ordering, chosen, y);
    EK_TRY(ek_trial_floats(t, "ek_draft_ordered", a.score, score, ROWS * TOKENS));
    return prove_next(t, a, best);
}

static ek_err prove_ordered(ek_trial *t)
{
    ek_linear w;
    EK_TRY(ek_trial_matrix(&w, ek_weights_head(&t->m->w), 0));
    float *const y = ek_trial_hard((size_t)(ROWS * w.k), 33, 2);
    const ek_err err = run_ordered(t, &w, y);
    ek_trial_drop(&w);
    free(y);
    return err;
}

ek_err ek_trial_drafts(ek_trial *t)
{
    const ek_config *const c = &t->m->config;
    if (!c->backbone_hidden_size) return EK_OK;
    if (!c->n_centroids) return prove_argmax(t);
    EK_TRY(prove_centroids(t));
    return prove_ordered(t);
}
