/* Compares experts: the choice of experts, the jobs of pairs (row, expert), their input rows, their products, and the
 * end of their layer. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash/rng.h"
#include "cuda/model_args.h"
#include "cuda/product/product.h"
#include "gpu/evidence/evidence.h"
#include "gpu/recipe/sections.h"
#include "ops/rows/rows.h"

enum { ROWS = 3, MANY = 320, OUTPUTS = EK_TRIAL_OUTPUTS };

/* --- which ones */

/* Logits with ties, with numbers of every size, and with all probabilities but one denormal. */
static float *outputs_of_router(int n)
{
    float *const x = ek_trial_hard((size_t)(ROWS * n), 20, 3);
    for (int i = 0; i < n; i++) x[i] = (float)(i % 3), x[2 * n + i] = i == n / 2 ? 0.0f : -88.0f - (float)(i * 37 % 15);
    return x;
}

/* model/moe.c */
static void choose(float *route, int n, int top, const float *scale, int32_t *id, float *weight)
{
    float sum = 0;
    ek_softmax(route, route, n);
    ek_top_k(route, n, top, id, weight);
    for (int i = 0; i < top; i++) sum += weight[i];
    for (int i = 0; i < top; i++) weight[i] = weight[i] / sum * scale[id[i]];
    for (int i = 1; i < top; i++)
        for (int j = i; j > 0 && id[j] < id[j - 1]; j--) {
            const int32_t t = id[j];
            const float u = weight[j];
            id[j] = id[j - 1], weight[j] = weight[j - 1];
            id[j - 1] = t, weight[j - 1] = u;
        }
}

static ek_err prove_route(ek_trial *t)
{
    const int n = t->m->config.n_experts, top = t->m->config.top_k_experts;
    float *const route = outputs_of_router(n), *const scale = ek_trial_hard((size_t)n, 21, 1);
    const size_t pairs = (size_t)(ROWS * top), bytes = sizeof(float) * pairs;
    int32_t *const id = ek_alloc(bytes);
    float *const weight = ek_alloc(bytes);
    t->used = 0;
    const ek_cuda_route_args a = {.route = ek_trial_up(t, route, sizeof *route * (size_t)(ROWS * n)),
                                  .expert_scale = ek_trial_up(t, scale, sizeof *scale * (size_t)n),
                                  .expert = ek_trial_up(t, NULL, bytes),
                                  .weight = ek_trial_up(t, NULL, bytes),
                                  .ld = n,
                                  .n_experts = n,
                                  .top_k = top};
    ek_gpu_launch(t->g, "ek_route", (ek_cuda_grid){.x = ROWS, .threads = 256}, &a);
    for (int r = 0; r < ROWS; r++) choose(route + r * n, n, top, scale, id + r * top, weight + r * top);
    ek_err err = ek_trial_bytes(t, "ek_route", a.expert, id, bytes);
    if (!err) err = ek_trial_floats(t, "ek_route", a.weight, weight, pairs);
    free(route), free(scale), free(id), free(weight);
    return err;
}

/* --- their jobs */

/* Pairs of an expert may be in any order: reads each pair's expert and row at its index, and which indices are used. */
static void read_places(int32_t *out, const int32_t *row_pair, const int32_t *pair_row, const ek_cuda_job *job,
                        int n_jobs, int pairs)
{
    for (int i = 0; i < 3 * pairs; i++) out[i] = -1;
    for (int j = 0; j < n_jobs && n_jobs <= pairs; j++)
        for (int p = job[j].first < 0 ? 0 : job[j].first; p < job[j].first + job[j].n && p < pairs; p++)
            out[2 * pairs + p] = job[j].expert;
    for (int i = 0; i < pairs; i++) {
        const int at = row_pair[i];
        if (at < 0 || at >= pairs || out[pairs + at] >= 0) continue;
        out[i] = pair_row[at], out[pairs + at] = out[2 * pairs + at];
    }
}

/* Makes jobs of up to `tile` pairs, in the order of the experts. Returns their number. */
static int make_jobs(ek_cuda_job *job, const int32_t *count, int experts, int tile)
{
    int n = 0;
    for (int e = 0, first = 0; e < experts; first += count[e++])
        for (int i = 0; i < count[e]; i += tile)
            job[n++] = (ek_cuda_job){e, first + i, count[e] - i < tile ? count[e] - i : tile, 0};
    return n;
}

static ek_err prove_group(ek_trial *t)
{
    enum { TILE = 4 };
    const int n = t->m->config.n_experts, top = t->m->config.top_k_experts, pairs = 16 * top;
    const size_t bytes = sizeof(int32_t) * (size_t)pairs, jobs = sizeof(ek_cuda_job) * (size_t)pairs;
    int32_t *const id = ek_alloc(bytes * 3), *const pair_row = id + pairs, *const row_pair = pair_row + pairs,
                   *const count = ek_alloc(sizeof *count * (size_t)n), *const got = ek_alloc(bytes * 6),
                   *const want = got + 3 * pairs;
    ek_cuda_job *const job = ek_alloc(jobs * 2), *const found = job + pairs;
    int32_t n_found = 0;
    for (int i = 0; i < pairs; i++) id[i] = (int32_t)(i % 3 ? ek_mix64((uint64_t)i) % (uint64_t)n : 0), count[id[i]]++;
    t->used = 0;
    const ek_cuda_group_args a = {.expert = ek_trial_up(t, id, bytes),
                                  .pair_row = ek_trial_up(t, NULL, bytes),
                                  .row_pair = ek_trial_up(t, NULL, bytes),
                                  .jobs = ek_trial_up(t, NULL, jobs),
                                  .n_jobs = ek_trial_up(t, NULL, sizeof n_found),
                                  .n_experts = n,
                                  .top_k = top,
                                  .n_pairs = pairs,
                                  .tile = TILE};
    ek_gpu_launch(t->g, "ek_group", (ek_cuda_grid){.x = 1, .threads = 1024}, &a);
    ek_trial_down(t, pair_row, a.pair_row, bytes), ek_trial_down(t, row_pair, a.row_pair, bytes);
    ek_trial_down(t, found, a.jobs, jobs), ek_trial_down(t, &n_found, a.n_jobs, sizeof n_found);
    const int n_jobs = make_jobs(job, count, n, TILE);
    read_places(got, row_pair, pair_row, found, n_found, pairs);
    for (int i = 0; i < pairs; i++) want[i] = i / top;
    for (int e = 0, at = 0; e < n; at += count[e++])
        for (int i = 0; i < count[e]; i++) want[pairs + at + i] = want[2 * pairs + at + i] = e;
    ek_err err = ek_trial_same(t, "ek_group", &n_found, &(int32_t){n_jobs}, sizeof n_found);
    if (!err) err = ek_trial_same(t, "ek_group", found, job, sizeof *job * (size_t)n_jobs);
    if (!err) err = ek_trial_same(t, "ek_group", got, want, 3 * bytes);
    free(id), free(count), free(got), free(job);
    return err;
}

/* Both, of few rows, by one kernel: an expert's pairs in their order. */
static ek_err prove_choose(ek_trial *t)
{
    enum { TILE = 2 };
    const int n = t->m->config.n_experts, top = t->m->config.top_k_experts, pairs = ROWS * top;
    if (!ek_gpu_few_pairs(&t->m->config, ROWS)) return EK_OK;
    float *const route = outputs_of_router(n), *const scale = ek_trial_hard((size_t)n, 21, 1);
    const size_t bytes = sizeof(float) * (size_t)pairs, jobs = sizeof(ek_cuda_job) * (size_t)pairs;
    int32_t *const id = ek_alloc(3 * bytes), *const pair_row = id + pairs, *const row_pair = pair_row + pairs,
                   *const count = ek_alloc(sizeof *count * (size_t)n);
    float *const weight = ek_alloc(bytes);
    ek_cuda_job *const job = ek_alloc(jobs);
    t->used = 0;
    const ek_cuda_choose_args a = {.route = ek_trial_up(t, route, sizeof *route * (size_t)(ROWS * n)),
                                   .expert_scale = ek_trial_up(t, scale, sizeof *scale * (size_t)n),
                                   .weight = ek_trial_up(t, NULL, bytes),
                                   .pair_row = ek_trial_up(t, NULL, bytes),
                                   .row_pair = ek_trial_up(t, NULL, bytes),
                                   .jobs = ek_trial_up(t, NULL, jobs),
                                   .n_jobs = ek_trial_up(t, NULL, sizeof(int32_t)),
                                   .ld = n,
                                   .n_experts = n,
                                   .top_k = top,
                                   .rows = ROWS,
                                   .tile = TILE};
    ek_gpu_launch(t->g, "ek_choose", (ek_cuda_grid){.x = 1, .threads = 256}, &a);
    for (int r = 0; r < ROWS; r++) choose(route + r * n, n, top, scale, id + r * top, weight + r * top);
    for (int i = 0; i < pairs; i++) {
        int at = 0;
        for (int j = 0; j < pairs; j++) at += id[j] < id[i] || (id[j] == id[i] && j < i);
        row_pair[i] = at, pair_row[at] = i / top, count[id[i]]++;
    }
    const int32_t n_jobs = make_jobs(job, count, n, TILE);
    ek_err err = ek_trial_floats(t, "ek_choose", a.weight, weight, (size_t)pairs);
    if (!err) err = ek_trial_bytes(t, "ek_choose", a.pair_row, pair_row, bytes);
    if (!err) err = ek_trial_bytes(t, "ek_choose", a.row_pair, row_pair, bytes);
    if (!err) err = ek_trial_bytes(t, "ek_choose", a.n_jobs, &n_jobs, sizeof n_jobs);
    if (!err) err = ek_trial_bytes(t, "ek_choose", a.jobs, job, sizeof *job * (size_t)n_jobs);
    free(route), free(scale), free(id), free(count), free(weight), free(job);
    return err;
}

/* --- the input rows of the experts and of the dense MLP, and the use of their outputs */

/* Writes one row for one reader at a time, or for all three in turn, as for a prompt: of so many rows that a card is
 * full. A missing barrier in a shader showed only then. */
static ek_err prove_inputs(ek_trial *t, const ek_row_ops *ops, bool many)
{
    static const char *const kernel[2] = {"ek_experts_inputs_any", "ek_experts_inputs_any_rows"};
    const ek_layer_weights *const l = &t->m->w.layer[0];
    const ek_linear *const reader[3] = {&l->gate, &l->router, l->expert_gate};
    const int n = t->m->config.hidden_size, rows = many ? MANY : ROWS;
    const size_t all = (size_t)(rows * n), bytes = sizeof(float) * all, one = sizeof(float) * (size_t)n;
    float *const h = ek_trial_hard(all, 22, 3), *const y = ek_trial_hard(all, 23, 3),
                 *const w = ek_trial_hard((size_t)(4 * n), 24, 1), *const x = ek_alloc(bytes);
    t->used = 0;
    ek_cuda_inputs_args a = {.ld = n, .n = n, .eps = t->m->config.rms_norm_eps};
    a.factor = (float)(1 / sqrt((double)n));
    a.h = ek_trial_up(t, h, bytes), a.y = ek_trial_up(t, y, bytes), a.h_out = ek_trial_up(t, NULL, bytes);
    a.y_norm = ek_trial_up(t, w, 4 * one), a.router = ek_trial_up(t, NULL, bytes);
    for (int i = 0; i < 3; i++)
        a.norm[i] = a.y_norm + (CUdeviceptr)(i + 1) * one, a.to[i] = ek_trial_acts(t, n, reader[i]->a_group, rows);
    const ek_cuda_grid grid = {.x = many ? 1 : 3, .y = (unsigned)rows, .threads = (unsigned)(n + 255) / 256 * 32};
    ek_gpu_launch(t->g, kernel[many], grid, &a);
    for (int r = 0; r < rows; r++) ops->rms_norm(y + r * n, y + r * n, w, n, a.eps), ops->add(h + r * n, y + r * n, n);
    ek_err err = ek_trial_floats(t, kernel[many], a.h_out, h, all);
    for (int i = 0; i < 3 && !err; i++) {
        for (int r = 0; r < rows; r++) {
            ops->rms_norm(x + r * n, h + r * n, w + (i + 1) * n, n, a.eps);
            if (i == 1) ops->scale(x + r * n, a.factor, n);
        }
        if (i == 1) err = ek_trial_floats(t, kernel[many], a.router, x, all);
        if (!err && a.to[i].q) err = ek_trial_records(t, kernel[many], &a.to[i], x, n, rows);
    }
    free(h), free(y), free(w), free(x);
    return err;
}

typedef struct end {
    float *h, *from, *y, *out, *norm, *weight, *x; /* norm: of y, the dense MLP, the experts, and the next layer */
    int32_t *row_pair;
} end;

/* The definition: h becomes the layer's output, x the next layer's input. */
static void end_rows(const end *e, const ek_row_ops *ops, int n, int top, float scalar, float eps)
{
    float *const sum = ek_alloc(sizeof *sum * (size_t)n);
    for (int r = 0; r < ROWS; r++) {
        float *const y = e->y + r * n, *const h = e->h + r * n;
        memset(sum, 0, sizeof *sum * (size_t)n);
        for (int k = r * top; k < (r + 1) * top; k++) ops->axpy(sum, e->weight[k], e->out + e->row_pair[k] * n, n);
        ops->rms_norm(y, y, e->norm + n, n, eps), ops->rms_norm(sum, sum, e->norm + 2 * n, n, eps);
        ops->add(y, sum, n);
        ops->rms_norm(y, y, e->norm, n, eps);
        memcpy(h, e->from + r * n, sizeof *h * (size_t)n);
        ops->add(h, y, n);
        ops->scale(h, scalar, n);
        ops->rms_norm(e->x + r * n, h, e->norm + 3 * n, n, eps);
    }
    free(sum);
}

static ek_err prove_end(ek_trial *t, const ek_row_ops *ops)
{
    const ek_config *const c = &t->m->config;
    const int n = c->hidden_size, top = c->top_k_experts, pairs = ROWS * top;
    const char *const kernel = n <= EK_CUDA_EXPERTS_WIDTH ? "ek_experts_end" : "ek_experts_end_wide";
    const size_t all = (size_t)(ROWS * n), bytes = sizeof(float) * all, one = sizeof(float) * (size_t)n,
                 of_pairs = sizeof(float) * (size_t)pairs;
    const float scalar = 0.71875f;
    const end e = {.h = ek_alloc(bytes),
                   .from = ek_trial_hard(all, 25, 3),
                   .y = ek_trial_hard(all, 26, 3),
                   .out = ek_trial_hard((size_t)(pairs * n), 27, 3),
                   .norm = ek_trial_hard((size_t)(4 * n), 28, 1),
                   .weight = ek_trial_hard((size_t)pairs, 29, 0),
                   .x = ek_alloc(bytes),
                   .row_pair = ek_alloc(of_pairs)};
    for (int i = 0; i < pairs; i++) e.row_pair[i] = pairs - 1 - i;
    t->used = 0;
    ek_cuda_stage_args a = {.ld = n, .n = n, .top_k = top, .eps = c->rms_norm_eps};
    a.h = ek_trial_up(t, NULL, bytes), a.h_from = ek_trial_up(t, e.from, bytes), a.y = ek_trial_up(t, e.y, bytes);
    a.pair_out = ek_trial_up(t, e.out, one * (size_t)pairs), a.x = ek_trial_up(t, NULL, bytes);
    a.row_pair = ek_trial_up(t, e.row_pair, of_pairs), a.weight = ek_trial_up(t, e.weight, of_pairs);
    a.y_norm = ek_trial_up(t, e.norm, 4 * one), a.scalar = ek_trial_up(t, &scalar, sizeof scalar);
    a.norm_1 = a.y_norm + one, a.norm_2 = a.norm_1 + one, a.x_norm = a.norm_2 + one;
    if (t->m->w.layer[0].q.a_group > 16) a.to = ek_trial_acts(t, n, t->m->w.layer[0].q.a_group, ROWS);
    ek_gpu_launch(t->g, kernel, (ek_cuda_grid){.x = ROWS, .threads = (unsigned)(n + 255) / 256 * 32}, &a);
    end_rows(&e, ops, n, top, scalar, a.eps);
    ek_err err = ek_trial_floats(t, kernel, a.h, e.h, all);
    if (!err) err = ek_trial_floats(t, kernel, a.x, e.x, all);
    if (!err && a.to.q) err = ek_trial_records(t, kernel, &a.to, e.x, n, ROWS);
    free(e.h), free(e.from), free(e.y), free(e.out), free(e.norm), free(e.weight), free(e.x), free(e.row_pair);
    return err;
}

/* --- their products */

enum { EXPERTS = 3, SIDES = 2, PAIRS = 11 };
static const int32_t count_of[EXPERTS] = {1, 4, 6}; /* number of pairs of each expert */

typedef struct products {
    ek_linear w[SIDES][EXPERTS];
    ek_cuda_linear l;
    float *x; /* a row for each pair */
    int32_t row[PAIRS];
    float want[SIDES][PAIRS * OUTPUTS]; /* outputs of pairs whose input is row `row` */
    float plain[PAIRS * OUTPUTS];       /* outputs of the first matrices for one input row per pair */
} products;

static void expect(products *p)
{
    float *const all = ek_alloc(sizeof *all * PAIRS * OUTPUTS);
    for (int side = 0; side < SIDES; side++)
        for (int e = 0, at = 0; e < EXPERTS; at += count_of[e++]) {
            ek_trial_expect(all, &p->w[side][e], p->x, PAIRS);
            for (int i = at; i < at + count_of[e]; i++) {
                const size_t bytes = sizeof *all * OUTPUTS;
                memcpy(p->want[side] + i * OUTPUTS, all + p->row[i] * OUTPUTS, bytes);
                if (!side) memcpy(p->plain + i * OUTPUTS, all + i * OUTPUTS, bytes);
            }
        }
    free(all);
}

/* Runs jobs of up to `tile` pairs: both matrices with rows by index, then one matrix with rows in order. */
static ek_err run_jobs(ek_trial *t, const products *p, ek_cuda_products_args a, int tile)
{
    ek_cuda_job job[PAIRS];
    const ek_cuda_chip *const chip = ek_cuda_chip_of(t->g->c);
    const int32_t n = make_jobs(job, count_of, EXPERTS, tile);
    const size_t bytes = sizeof(float) * PAIRS * OUTPUTS;
    const CUdeviceptr index = a.index;
    a.jobs = ek_trial_up(t, job, sizeof *job * (size_t)n), a.n_jobs = ek_trial_up(t, &n, sizeof n);
    a.a.rows = tile;
    for (int sides = SIDES; sides > 0; sides--) {
        const ek_cuda_product by = ek_cuda_products_plan(&p->l, tile, n + 1, sides, chip);
        a.a.y = ek_trial_up(t, NULL, bytes), a.y2 = ek_trial_up(t, NULL, bytes), a.index = sides == 2 ? index : 0;
        ek_gpu_launch(t->g, by.name, by.grid, &a);
        EK_TRY(t->g->err);
        EK_TRY(ek_trial_floats(t, by.name, a.a.y, sides == 2 ? p->want[0] : p->plain, PAIRS * OUTPUTS));
        if (sides == 2) EK_TRY(ek_trial_floats(t, by.name, a.y2, p->want[1], PAIRS * OUTPUTS));
    }
    return EK_OK;
}

static ek_err run_products(ek_trial *t, const products *p)
{
    static const int tiles[] = {4, 1}; /* tiles of other sizes have the same kernels */
    t->used = 0;
    const CUdeviceptr all = ek_trial_up(t, NULL, p->l.bytes * SIDES * EXPERTS);
    for (int i = 0; i < SIDES * EXPERTS; i++)
        EK_TRY(ek_trial_put_matrix(t, &p->l, &p->w[i / EXPERTS][i % EXPERTS], all + p->l.bytes * (size_t)i));
    ek_cuda_products_args a = {.a = ek_trial_inputs(t, &p->l, p->x, PAIRS), .expert_bytes = (int64_t)p->l.bytes};
    a.index = ek_trial_up(t, p->row, sizeof p->row);
    ek_cuda_linear_args_of(&a.a, &p->l, all);
    a.codes2 = all + EXPERTS * p->l.bytes, a.scales2 = a.codes2 + p->l.code_bytes;
    for (int i = 0; i < 2; i++) EK_TRY(run_jobs(t, p, a, tiles[i]));
    return EK_OK;
}

static ek_err prove_products(ek_trial *t, const ek_linear *of)
{
    products *const p = ek_alloc(sizeof *p);
    ek_err err = EK_OK;
    for (int i = 0; i < SIDES * EXPERTS && !err; i++)
        err = ek_trial_matrix(&p->w[i / EXPERTS][i % EXPERTS], of, (uint64_t)i);
    for (int i = 0; i < PAIRS; i++) p->row[i] = i * 5 % PAIRS;
    p->x = ek_trial_hard((size_t)(PAIRS * of->k), 30, 6);
    if (!err) err = ek_cuda_linear_plan(&p->l, &p->w[0][0]);
    p->l.bytes = (p->l.bytes + 255) / 256 * 256; /* also for floats (gpu/weights/upload.c) */
    if (!err) expect(p);
    if (!err) err = run_products(t, p);
    for (int i = 0; i < SIDES * EXPERTS; i++)
        if (p->w[i / EXPERTS][i % EXPERTS].data) ek_trial_drop(&p->w[i / EXPERTS][i % EXPERTS]);
    free(p->x), free(p);
    return err;
}

ek_err ek_trial_experts(ek_trial *t)
{
    const ek_linear *all[EK_TRIAL_MATRICES];
    ek_row_ops ops;
    int n;
    if (!t->m->config.n_experts) return EK_OK;
    ek_row_init(&ops, 0);
    EK_TRY(prove_route(t));
    EK_TRY(prove_group(t));
    EK_TRY(prove_choose(t));
    for (int many = 0; many < 2; many++) EK_TRY(prove_inputs(t, &ops, many));
    EK_TRY(prove_end(t, &ops));
    ek_trial_matrices(all, &n, t->m, true);
    for (int i = 0; i < n; i++) EK_TRY(prove_products(t, all[i]));
    return EK_OK;
}
