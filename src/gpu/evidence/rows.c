/* What lies between products: norms and sums, their quantised rows, gates, the soft cap. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "cuda/model_args.h"
#include "gpu/evidence/evidence.h"
#include "ops/linear/linear.h"
#include "ops/rows/rows.h"

enum { ROWS = 3 };

static float *hard(size_t n, uint64_t seed, int limit)
{
    float *x = ek_alloc(sizeof *x * (n + 64));
    ek_trial_hard(x, n, seed, limit);
    return x;
}

/* Records of rows as C quantises them, against those at q. */
static ek_err compare_records(ek_trial *t, const char *kernel, const ek_cuda_acts *a, const float *x, int64_t ld)
{
    ek_linear_ops ops;
    ek_linear_init(&ops, 0);
    const size_t groups = (size_t)(a->k + a->a_group - 1) / (size_t)a->a_group, codes = groups * (size_t)a->a_group;
    int8_t *const h = ek_alloc(2 * codes + 64), *const l = h + codes;
    ek_act_group *const one = ek_alloc(2 * sizeof *one * groups), *const two = one + groups;
    float *const pairs = ek_alloc(2 * sizeof *pairs * groups);
    ek_err err = EK_OK;
    for (int r = 0; r < ROWS && !err; r++) {
        const CUdeviceptr row = a->q + (CUdeviceptr)(r * a->ldq);
        ops.quantize_row(x + r * ld, a->k, a->a_group, h, l, one, two);
        err = ek_trial_bytes(t, kernel, row, h, (size_t)a->k);
        if (!err) err = ek_trial_bytes(t, kernel, row + (CUdeviceptr)a->low, l, (size_t)a->k);
        for (int limbs = 1; limbs <= 2 && !err; limbs++) {
            const ek_act_group *const from = limbs == 1 ? one : two;
            for (size_t i = 0; i < groups; i++) pairs[2 * i] = from[i].sx, pairs[2 * i + 1] = from[i].sum;
            err = ek_trial_floats(t, kernel, row + (CUdeviceptr)a->groups[limbs - 1], pairs, 2 * groups);
        }
    }
    free(h), free(one), free(pairs);
    return err;
}

static ek_err prove_stage(ek_trial *t, const ek_row_ops *ops, int a_group)
{
    const int n = t->m->config.hidden_size;
    const float eps = t->m->config.rms_norm_eps, scalar = 0.71875f;
    const size_t all = (size_t)(ROWS * n), bytes = sizeof(float) * all, one = sizeof(float) * (size_t)n;
    float *h = hard(all, 1, 3), *y = hard(all, 2, 3), *w = hard((size_t)n, 3, 1), *v = hard((size_t)n, 4, 1),
          *x = ek_alloc(bytes);
    t->used = 0;
    ek_cuda_stage_args a = {.ld = n, .n = n, .eps = eps};
    a.h = ek_trial_up(t, h, bytes), a.y = ek_trial_up(t, y, bytes), a.x = ek_trial_up(t, NULL, bytes);
    a.y_norm = ek_trial_up(t, w, one), a.x_norm = ek_trial_up(t, v, one);
    a.scalar = ek_trial_up(t, &scalar, sizeof scalar);
    if (a_group) {
        const size_t row = ek_cuda_acts_plan(&a.to, n, a_group);
        a.to.q = ek_trial_up(t, NULL, row * ROWS);
    }
    for (int r = 0; r < ROWS; r++) {
        float *hr = h + r * n, *yr = y + r * n;
        ops->rms_norm(yr, yr, w, n, eps);
        ops->add(hr, yr, n);
        ops->scale(hr, scalar, n);
        ops->rms_norm(x + r * n, hr, v, n, eps);
    }
    const unsigned threads = (unsigned)(n + 255) / 256 * 32;
    ek_gpu_launch(t->g, "ek_stage", (ek_cuda_grid){.x = ROWS, .threads = threads}, &a);
    ek_err err = ek_trial_floats(t, "ek_stage", a.h, h, all);
    if (!err) err = ek_trial_floats(t, "ek_stage", a.x, x, all);
    if (!err && a_group) err = compare_records(t, "ek_stage", &a.to, x, n);
    free(h), free(y), free(w), free(v), free(x);
    return err;
}

static ek_err prove_gate(ek_trial *t, const ek_row_ops *ops, int a_group)
{
    const int n = t->m->config.layer[0].intermediate_size;
    const size_t all = (size_t)(ROWS * n), bytes = sizeof(float) * all;
    float *g = hard(all, 5, 4), *u = hard(all, 6, 4);
    t->used = 0;
    ek_cuda_gate_args a = {.ldg = n, .ldu = n, .ldy = n, .n = n};
    a.g = ek_trial_up(t, g, bytes), a.u = ek_trial_up(t, u, bytes), a.y = ek_trial_up(t, NULL, bytes);
    const int group = a_group ? a_group : 64;
    if (a_group) {
        const size_t row = ek_cuda_acts_plan(&a.to, n, a_group);
        a.to.q = ek_trial_up(t, NULL, row * ROWS);
    }
    for (int r = 0; r < ROWS; r++) ops->gelu_mul(g + r * n, g + r * n, u + r * n, n);
    const unsigned blocks = (unsigned)(n + group * 8 - 1) / (unsigned)(group * 8);
    ek_gpu_launch(t->g, "ek_gate", (ek_cuda_grid){.x = blocks, .y = ROWS, .threads = 256}, &a);
    ek_err err = ek_trial_floats(t, "ek_gate", a.y, g, all);
    if (!err && a_group) err = compare_records(t, "ek_gate", &a.to, g, n);
    free(g), free(u);
    return err;
}

static ek_err prove_cap(ek_trial *t, const ek_row_ops *ops)
{
    enum { N = 4096 };
    const float cap = t->m->config.final_logit_softcapping;
    const int32_t zero[ROWS] = {0};
    float *x = hard(ROWS * N, 7, 8);
    t->used = 0;
    ek_cuda_cap_args a = {.ld = N, .cap = cap, .n = N};
    a.x = ek_trial_up(t, x, sizeof *x * ROWS * N), a.bad = ek_trial_up(t, zero, sizeof zero);
    if (cap != 0)
        for (int r = 0; r < ROWS; r++) ops->soft_cap(x + r * N, cap, N);
    ek_gpu_launch(t->g, "ek_soft_cap_check", (ek_cuda_grid){.x = 4, .y = ROWS, .threads = 256}, &a);
    ek_err err = ek_trial_floats(t, "ek_soft_cap_check", a.x, x, ROWS * N);
    if (!err) err = ek_trial_bytes(t, "ek_soft_cap_check", a.bad, zero, sizeof zero);
    free(x);
    return err;
}

/* A layer's inputs of E2B and E4B, of two layers. */
static ek_err prove_per_layer(ek_trial *t, const ek_row_ops *ops)
{
    enum { LAYERS = 2 };
    const ek_config *c = &t->m->config;
    const int n = c->per_layer_size;
    if (!n) return EK_OK;
    const size_t all = (size_t)(ROWS * LAYERS * n), bytes = sizeof(float) * all;
    float *x = hard(all, 8, 4), *temp = hard(all, 9, 3), *w = hard((size_t)n, 10, 1);
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

ek_err ek_trial_rows(ek_trial *t)
{
    const int a_group = t->m->w.layer[0].q.a_group, of_down = t->m->w.layer[0].down.a_group;
    ek_row_ops ops;
    ek_row_init(&ops, 0);
    EK_TRY(prove_stage(t, &ops, a_group > 16 ? a_group : 0));
    EK_TRY(prove_gate(t, &ops, of_down > 16 ? of_down : 0));
    EK_TRY(prove_cap(t, &ops));
    return prove_per_layer(t, &ops);
}
