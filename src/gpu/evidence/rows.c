/* Compares the kernels between products: norms and sums, quantised rows, gates, the soft cap. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "cuda/model_args.h"
#include "cuda/rows/launch.h"
#include "engine/sample/sampler.h"
#include "gpu/evidence/evidence.h"
#include "ops/linear/linear.h"
#include "ops/rows/rows.h"

enum { ROWS = 3 };

/* factor 0: none. */
static ek_err prove_stage(ek_trial *t, const ek_row_ops *ops, int a_group, float factor)
{
    const int n = t->m->config.hidden_size;
    const float eps = t->m->config.rms_norm_eps, scalar = 0.71875f;
    const size_t all = (size_t)(ROWS * n), bytes = sizeof(float) * all, one = sizeof(float) * (size_t)n;
    float *h = ek_trial_hard(all, 1, 3), *y = ek_trial_hard(all, 2, 3), *w = ek_trial_hard((size_t)n, 3, 1),
          *v = ek_trial_hard((size_t)n, 4, 1), *x = ek_alloc(bytes);
    t->used = 0;
    ek_cuda_stage_args a = {.ld = n, .n = n, .eps = eps, .factor = factor, .has_factor = factor != 0};
    a.h = ek_trial_up(t, h, bytes), a.y = ek_trial_up(t, y, bytes), a.x = ek_trial_up(t, NULL, bytes);
    a.y_norm = ek_trial_up(t, w, one), a.x_norm = ek_trial_up(t, v, one);
    a.scalar = ek_trial_up(t, &scalar, sizeof scalar);
    a.to = ek_trial_acts(t, n, a_group, ROWS);
    for (int r = 0; r < ROWS; r++) {
        float *hr = h + r * n, *yr = y + r * n;
        ops->rms_norm(yr, yr, w, n, eps);
        ops->add(hr, yr, n);
        ops->scale(hr, scalar, n);
        ops->rms_norm(x + r * n, hr, v, n, eps);
        if (factor != 0) ops->scale(x + r * n, factor, n);
    }
    const unsigned threads = (unsigned)(n + 255) / 256 * 32;
    const char *const name = ek_cuda_stage_name(n, ek_cuda_chip_of(t->g->c));
    ek_gpu_launch(t->g, name, (ek_cuda_grid){.x = ROWS, .threads = threads}, &a);
    ek_err err = ek_trial_floats(t, name, a.h, h, all);
    if (!err) err = ek_trial_floats(t, name, a.x, x, all);
    if (!err && a_group) err = ek_trial_records(t, name, &a.to, x, n, ROWS);
    free(h), free(y), free(w), free(v), free(x);
    return err;
}

/* Compares gates of n elements for a matrix that reads them in groups of a_group; 0: as floats. */
static ek_err prove_gate(ek_trial *t, const ek_row_ops *ops, int n, int a_group)
{
    const size_t all = (size_t)(ROWS * n), bytes = sizeof(float) * all;
    float *g = ek_trial_hard(all, 5, 4), *u = ek_trial_hard(all, 6, 4);
    t->used = 0;
    ek_cuda_gate_args a = {.ldg = n, .ldu = n, .ldy = n, .n = n};
    a.g = ek_trial_up(t, g, bytes), a.u = ek_trial_up(t, u, bytes), a.y = ek_trial_up(t, NULL, bytes);
    const int group = a_group ? a_group : 64;
    a.to = ek_trial_acts(t, n, a_group, ROWS);
    for (int r = 0; r < ROWS; r++) ops->gelu_mul(g + r * n, g + r * n, u + r * n, n);
    const unsigned blocks = (unsigned)(n + group * 8 - 1) / (unsigned)(group * 8);
    ek_gpu_launch(t->g, "ek_gate", (ek_cuda_grid){.x = blocks, .y = ROWS, .threads = 256}, &a);
    ek_err err = ek_trial_floats(t, "ek_gate", a.y, g, all);
    if (!err && a_group) err = ek_trial_records(t, "ek_gate", &a.to, g, n, ROWS);
    free(g), free(u);
    return err;
}

/* Also compares the flag of rows that are not finite, as the last one is, and the digests of the others. */
static ek_err prove_cap(ek_trial *t, const ek_row_ops *ops)
{
    enum { N = 4096 };
    const float cap = t->m->config.final_logit_softcapping;
    static const int32_t zero[ROWS], bad[ROWS] = {[ROWS - 1] = 1};
    static const uint64_t empty[ROWS];
    uint64_t digest[ROWS - 1];
    float *x = ek_trial_hard(ROWS * N, 7, 8);
    x[ROWS * N - 5] = NAN;
    t->used = 0;
    ek_cuda_cap_args a = {.ld = N, .cap = cap, .n = N};
    a.x = ek_trial_up(t, x, sizeof *x * ROWS * N), a.bad = ek_trial_up(t, zero, sizeof zero);
    a.digest = ek_trial_up(t, empty, sizeof empty);
    if (cap != 0)
        for (int r = 0; r < ROWS; r++) ops->soft_cap(x + r * N, cap, N);
    for (int r = 0; r < ROWS - 1; r++) digest[r] = ek_logits_digest(x + r * N, N);
    ek_gpu_launch(t->g, "ek_soft_cap_check", (ek_cuda_grid){.x = 4, .y = ROWS, .threads = 256}, &a);
    ek_err err = ek_trial_floats(t, "ek_soft_cap_check", a.x, x, ROWS * N);
    if (!err) err = ek_trial_bytes(t, "ek_soft_cap_check", a.bad, bad, sizeof bad);
    if (!err) err = ek_trial_bytes(t, "ek_soft_cap_check", a.digest, digest, sizeof digest);
    free(x);
    return err;
}

/* Compares per-layer inputs as in E2B and E4B, of two layers. */
static ek_err prove_per_layer(ek_trial *t, const ek_row_ops *ops)
{
    enum { LAYERS = 2 };
    const ek_config *c = &t->m->config;
    const int n = c->per_layer_size;
    if (!n) return EK_OK;
    const size_t all = (size_t)(ROWS * LAYERS * n), bytes = sizeof(float) * all;
    float *x = ek_trial_hard(all, 8, 4), *temp = ek_trial_hard(all, 9, 3), *w = ek_trial_hard((size_t)n, 10, 1);
    t->used = 0;
    ek_cuda_per_layer_args a = {.ld_ctx = LAYERS * n,
                                .ld_temp = LAYERS * n,
                                .eps = c->rms_norm_eps,
                                .ctx_scale = (float)(1 / sqrt((double)c->hidden_size)),
                                .temp_scale = ek_config_embed_scale(c, n),
                                .sum_scale = (float)(1 / sqrt(2.0)),
                                .size = n};
    a.ctx = ek_trial_up(t, x, bytes), a.temp = ek_trial_up(t, temp, bytes);
    a.w = ek_trial_up(t, w, sizeof(float) * (size_t)n);
    for (int i = 0; i < ROWS * LAYERS; i++) {
        float *own = x + i * n, *other = temp + i * n;
        ops->scale(own, a.ctx_scale, n);
        ops->rms_norm(own, own, w, n, a.eps);
        ops->scale(other, a.temp_scale, n);
        ops->add(own, other, n);
        ops->scale(own, a.sum_scale, n);
    }
    const ek_cuda_grid grid = {.x = LAYERS, .y = ROWS, .threads = 128, .shared = sizeof(float) * (size_t)n};
    ek_gpu_launch(t->g, "ek_per_layer", grid, &a);
    const ek_err err = ek_trial_floats(t, "ek_per_layer", a.ctx, x, all);
    free(x), free(temp), free(w);
    return err;
}

/* Compares gathering some rows, by an index and in order. */
static ek_err prove_gather(ek_trial *t)
{
    static const int32_t index[ROWS] = {4, 0, 3};
    const int n = t->m->config.hidden_size, there = 5;
    const size_t one = sizeof(float) * (size_t)n;
    float *const x = ek_trial_hard((size_t)(there * n), 16, 4), *const want = ek_alloc(ROWS * one);
    ek_err err = EK_OK;
    for (int by_index = 0; by_index < 2 && !err; by_index++) {
        t->used = 0;
        ek_cuda_gather_args a = {.ldy = n, .ldx = n, .n = n};
        a.x = ek_trial_up(t, x, one * (size_t)there), a.y = ek_trial_up(t, NULL, ROWS * one);
        if (by_index) a.index = ek_trial_up(t, index, sizeof index);
        for (int r = 0; r < ROWS; r++) memcpy(want + r * n, x + (by_index ? index[r] : r) * n, one);
        const ek_cuda_grid grid = {.x = (unsigned)(n + 1023) / 1024, .y = ROWS, .threads = 256};
        ek_gpu_launch(t->g, "ek_gather", grid, &a);
        err = ek_trial_bytes(t, "ek_gather", a.y, want, ROWS * one);
    }
    free(x), free(want);
    return err;
}

static int group_of(const ek_linear *w)
{
    return w->a_group > 16 ? w->a_group : 0; /* only ek_quantize quantises rows in groups of 16 */
}

ek_err ek_trial_rows(ek_trial *t)
{
    const ek_config *const c = &t->m->config;
    const ek_layer_weights *const l = &t->m->w.layer[0];
    ek_row_ops ops;
    ek_row_init(&ops, 0);
    EK_TRY(prove_stage(t, &ops, group_of(&l->q), 0));
    EK_TRY(prove_gate(t, &ops, c->layer[0].intermediate_size, group_of(&l->down)));
    if (c->n_experts) {
        EK_TRY(prove_stage(t, &ops, group_of(&l->router), 0x1.31p-6f));
        EK_TRY(prove_gate(t, &ops, c->moe_intermediate_size, group_of(l->expert_down)));
    }
    EK_TRY(prove_cap(t, &ops));
    EK_TRY(prove_gather(t));
    return prove_per_layer(t, &ops);
}
