/* Products with a gate, whose results are quantised: of every kind that a model's layers have. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "cuda/model_args.h"
#include "cuda/product/product.h"
#include "gpu/evidence/evidence.h"
#include "ops/rows/rows.h"

enum { OUTPUTS = EK_TRIAL_OUTPUTS, JOBS = 2, SIDES = 2, MAX_SEEN = 32 };

/* upper NULL: the gate is times given rows; experts: two jobs of one row. */
typedef struct gated {
    const ek_linear *gate, *upper, *next;
    bool experts;
} gated;

typedef struct scene {
    ek_linear w[SIDES][JOBS];
    ek_cuda_linear l, next;
    ek_cuda_product p;
    int rows; /* row i is of expert rows - 1 - i */
    float *x, *u, y[SIDES][JOBS * OUTPUTS];
} scene;

static bool choose(ek_cuda_product *p, const ek_cuda_linear *l, const ek_cuda_linear *next, const gated *g,
                   const ek_cuda_chip *chip)
{
    const ek_cuda_gate gate = g->upper ? EK_CUDA_GATE_MATRIX : EK_CUDA_GATE_ROW;
    return ek_cuda_gated_plan(p, l, 1, g->experts ? JOBS : 0, gate, next, chip);
}

static void expect(scene *s, const gated *g)
{
    ek_row_ops ops;
    ek_row_init(&ops, 0);
    for (int i = 0; i < s->rows; i++) {
        const int e = s->rows - 1 - i;
        float *const out = s->y[0] + i * OUTPUTS, *const other = s->y[1] + i * OUTPUTS;
        ek_trial_expect(out, &s->w[0][e], s->x + e * s->l.k, 1);
        if (g->upper) ek_trial_expect(other, &s->w[1][e], s->x + e * s->l.k, 1);
        else memcpy(other, s->u + i * OUTPUTS, sizeof(float) * OUTPUTS);
        ops.gelu_mul(out, out, other, OUTPUTS);
    }
}

static ek_err run(ek_trial *t, const scene *s, const gated *g)
{
    const int32_t index[JOBS] = {1, 0}, n_jobs = JOBS;
    const ek_cuda_job job[JOBS] = {{1, 0, 1, 0}, {0, 1, 1, 0}};
    t->used = 0;
    const CUdeviceptr all = ek_trial_up(t, NULL, s->l.bytes * SIDES * JOBS);
    for (int i = 0; i < SIDES * s->rows; i++)
        EK_TRY(ek_trial_put_matrix(t, &s->l, &s->w[i / s->rows][i % s->rows], all + s->l.bytes * (size_t)i));
    ek_cuda_warp_args a = {.a = ek_trial_inputs(t, &s->l, s->x, s->rows), .ldu = OUTPUTS};
    ek_cuda_linear_args_of(&a.a, &s->l, all);
    a.a.rows = 1, a.expert_bytes = (int64_t)s->l.bytes;
    if (g->upper) a.codes2 = all + (size_t)s->rows * s->l.bytes, a.scales2 = a.codes2 + s->l.code_bytes;
    else a.u = ek_trial_up(t, s->u, sizeof(float) * JOBS * OUTPUTS);
    if (g->experts) {
        a.jobs = ek_trial_up(t, job, sizeof job), a.n_jobs = ek_trial_up(t, &n_jobs, sizeof n_jobs);
        a.index = ek_trial_up(t, index, sizeof index);
    }
    a.to = ek_trial_acts(t, OUTPUTS, s->next.a_group, JOBS);
    ek_gpu_launch(t->g, s->p.name, s->p.grid, &a);
    EK_TRY(t->g->err);
    return ek_trial_records(t, s->p.name, &a.to, s->y[0], OUTPUTS, s->rows);
}

static ek_err prove(ek_trial *t, const gated *g)
{
    scene *const s = ek_alloc(sizeof *s);
    s->rows = g->experts ? JOBS : 1;
    ek_err err = EK_OK;
    for (int i = 0; i < SIDES * s->rows && !err; i++)
        err = ek_trial_matrix(&s->w[i / s->rows][i % s->rows], g->gate, (uint64_t)i);
    s->x = ek_trial_hard((size_t)(JOBS * g->gate->k), 31, 6), s->u = ek_trial_hard(JOBS * OUTPUTS, 32, 4);
    if (!err) err = ek_cuda_linear_plan(&s->l, &s->w[0][0]);
    if (!err) err = ek_cuda_linear_plan(&s->next, g->next);
    if (!err && choose(&s->p, &s->l, &s->next, g, ek_cuda_chip_of(t->g->c))) {
        expect(s, g);
        err = run(t, s, g);
    }
    for (int i = 0; i < SIDES * s->rows; i++)
        if (s->w[i / s->rows][i % s->rows].data) ek_trial_drop(&s->w[i / s->rows][i % s->rows]);
    free(s->x), free(s->u), free(s);
    return err;
}

/* Adds the name and the inputs of the kernel, if a kernel does it and they are new. */
static bool is_new(char seen[MAX_SEEN][EK_CUDA_NAME + 16], int *n, const gated *g, const ek_cuda_chip *chip)
{
    ek_cuda_linear l, next;
    ek_cuda_product p;
    char own[EK_CUDA_NAME + 16];
    if (!g->gate || !g->gate->n || !g->next || !g->next->n || ek_cuda_linear_plan(&l, g->gate) ||
        ek_cuda_linear_plan(&next, g->next) || !choose(&p, &l, &next, g, chip))
        return false;
    snprintf(own, sizeof own, "%s %d %d", p.name, l.k, g->experts);
    for (int i = 0; i < *n; i++)
        if (!strcmp(seen[i], own)) return false;
    if (*n == MAX_SEEN) return false;
    memcpy(seen[(*n)++], own, sizeof own);
    return true;
}

ek_err ek_trial_gated(ek_trial *t)
{
    static char seen[MAX_SEEN][EK_CUDA_NAME + 16];
    int n = 0;
    for (int i = 0; i < t->m->config.n_layers; i++) {
        const ek_layer_weights *const l = &t->m->w.layer[i];
        const gated all[] = {{&l->gate, &l->up, &l->down, false},
                             {&l->per_layer_gate, NULL, &l->per_layer_proj, false},
                             {l->expert_gate, l->expert_up, l->expert_down, true}};
        for (size_t k = 0; k < sizeof all / sizeof *all; k++)
            if (is_new(seen, &n, &all[k], ek_cuda_chip_of(t->g->c))) EK_TRY(prove(t, &all[k]));
    }
    return EK_OK;
}
