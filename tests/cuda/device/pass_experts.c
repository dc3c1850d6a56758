/* The kernels of a layer with experts that every device has, one by one: routes and jobs, both ends of the layer, and
 * products of a device that has no CUDA kernels (cuda/product/plain.c). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../../support/device_pack.h"
#include "cuda/model_args.h"
#include "ops/rows/rows.h"
#include "product.h"

enum { ROWS = 13, TOP = 4, PAIRS = ROWS * TOP };

/* The definition of model/moe.c. */
static void choose(float *route, int n, const float *scale, int32_t *id, float *weight)
{
    float sum = 0;
    ek_softmax(route, route, n);
    ek_top_k(route, n, TOP, id, weight);
    for (int i = 0; i < TOP; i++) sum += weight[i];
    for (int i = 0; i < TOP; i++) weight[i] = weight[i] / sum * scale[id[i]];
    for (int i = 1; i < TOP; i++)
        for (int j = i; j > 0 && id[j] < id[j - 1]; j--) {
            const int32_t t = id[j];
            const float u = weight[j];
            id[j] = id[j - 1], weight[j] = weight[j - 1], id[j - 1] = t, weight[j - 1] = u;
        }
}

static void test_route(dev *d, int n)
{
    float *route = uniforms((size_t)ROWS * (size_t)n, 5, 9), *scale = uniforms((size_t)n, 6, 2);
    int32_t id[PAIRS];
    float weight[PAIRS];
    for (int i = 0; i < n; i++) route[i] = (float)(i % 3);                           /* ties */
    for (int i = 0; i < n; i++) route[n + i] = i == n / 2 ? 80.0f : -80.0f;          /* all but one vanish */
    for (int i = 0; i < n; i++) route[2 * n + i] = i % 7 ? -INFINITY : route[2 * n]; /* few are there */
    const size_t bytes = sizeof(float) * (size_t)ROWS * (size_t)n;
    CUdeviceptr dr = up(d, route, bytes), ds = up(d, scale, sizeof(float) * (size_t)n), di = up(d, NULL, sizeof id),
                dw = up(d, NULL, sizeof weight);
    const ek_cuda_route_args a = {
        .route = dr, .expert_scale = ds, .expert = di, .weight = dw, .ld = n, .n_experts = n, .top_k = TOP};
    const ek_cuda_kernel kernel = find(d, "ek_route", 0);
    launch(d, &kernel, (ek_cuda_grid){.x = ROWS, .threads = 256}, &a);
    for (int r = 0; r < ROWS; r++) choose(route + r * n, n, scale, id + r * TOP, weight + r * TOP);
    same(d, id, down(d, di, sizeof id), sizeof id, false, "experts of %d", n);
    same(d, weight, down(d, dw, sizeof weight), sizeof weight, true, "weights of %d experts", n);
    drop(d, dr), drop(d, ds), drop(d, di), drop(d, dw);
    free(route), free(scale);
}

/* Both by one kernel, which has pairs of an expert in their order. */
static void test_choose(dev *d, int n, int rows, int tile)
{
    const int pairs = rows * TOP;
    float *route = uniforms((size_t)(rows * n), 15, 9), *scale = uniforms((size_t)n, 16, 2), weight[PAIRS];
    int32_t id[PAIRS], row_pair[PAIRS], pair_row[PAIRS], n_jobs = 0;
    ek_cuda_job job[PAIRS];
    for (int i = 0; i < n; i++) route[i] = (float)(i % 3);
    if (rows > 1)
        for (int i = 0; i < n; i++) route[n + i] = i % 7 ? -INFINITY : route[n];
    if (rows > 2) route[2 * n + 1] = NAN;
    const size_t bytes = sizeof(int32_t) * (size_t)pairs;
    const ek_cuda_choose_args a = {.route = up(d, route, sizeof *route * (size_t)(rows * n)),
                                   .expert_scale = up(d, scale, sizeof *scale * (size_t)n),
                                   .weight = up(d, NULL, bytes),
                                   .pair_row = up(d, NULL, bytes),
                                   .row_pair = up(d, NULL, bytes),
                                   .jobs = up(d, NULL, sizeof job),
                                   .n_jobs = up(d, NULL, sizeof n_jobs),
                                   .ld = n,
                                   .n_experts = n,
                                   .top_k = TOP,
                                   .rows = rows,
                                   .tile = tile};
    const ek_cuda_kernel kernel = find(d, "ek_choose", 0);
    launch(d, &kernel, (ek_cuda_grid){.x = 1, .threads = 256}, &a);
    for (int r = 0; r < rows; r++) choose(route + r * n, n, scale, id + r * TOP, weight + r * TOP);
    for (int i = 0; i < pairs; i++) {
        int at = 0;
        for (int j = 0; j < pairs; j++) at += id[j] < id[i] || (id[j] == id[i] && j < i);
        row_pair[i] = at, pair_row[at] = i / TOP;
    }
    for (int e = 0, first = 0, count; e < n; e++, first += count) {
        count = 0;
        for (int i = 0; i < pairs; i++) count += id[i] == e;
        for (int i = 0; i < count; i += tile)
            job[n_jobs++] = (ek_cuda_job){e, first + i, count - i < tile ? count - i : tile, 0};
    }
    same(d, weight, down(d, a.weight, bytes), bytes, true, "weights of %d of %d experts", rows, n);
    same(d, pair_row, down(d, a.pair_row, bytes), bytes, false, "rows of pairs, %d of %d experts", rows, n);
    same(d, row_pair, down(d, a.row_pair, bytes), bytes, false, "pairs of rows, %d of %d experts", rows, n);
    same(d, &n_jobs, down(d, a.n_jobs, sizeof n_jobs), sizeof n_jobs, false, "number of jobs, %d of %d", rows, n);
    const size_t all = sizeof *job * (size_t)n_jobs;
    same(d, job, down(d, a.jobs, all), all, false, "jobs of %d, %d of %d experts", tile, rows, n);
    drop(d, a.route), drop(d, a.expert_scale), drop(d, a.weight), drop(d, a.pair_row), drop(d, a.row_pair);
    drop(d, a.jobs), drop(d, a.n_jobs);
    free(route), free(scale);
}

/* Each pair has a place of its own beside the others of its expert, and is in one job. */
static void test_group(dev *d, int n, int tile)
{
    int32_t expert[PAIRS], count[EK_CUDA_MAX_EXPERTS] = {0}, seen[PAIRS] = {0}, right = 1, one = 1;
    for (int i = 0; i < PAIRS; i++) expert[i] = i % 5 ? i * 7 % n : n - 1, count[expert[i]]++;
    CUdeviceptr de = up(d, expert, sizeof expert), dp = up(d, NULL, sizeof expert), dr = up(d, NULL, sizeof expert),
                dj = up(d, NULL, sizeof(ek_cuda_job) * PAIRS), dn = up(d, NULL, 4);
    const ek_cuda_group_args a = {.expert = de,
                                  .pair_row = dp,
                                  .row_pair = dr,
                                  .jobs = dj,
                                  .n_jobs = dn,
                                  .n_experts = n,
                                  .top_k = TOP,
                                  .n_pairs = PAIRS,
                                  .tile = tile};
    const ek_cuda_kernel kernel = find(d, "ek_group", 0);
    launch(d, &kernel, (ek_cuda_grid){.x = 1, .threads = 1024}, &a);
    int32_t *pair_row = down(d, dp, sizeof expert), *row_pair = down(d, dr, sizeof expert), *jobs = down(d, dn, 4);
    const ek_cuda_job *job = down(d, dj, sizeof(ek_cuda_job) * PAIRS);
    int32_t expert_at[PAIRS], want = 0;
    for (int e = 0; e < n; e++) want += (count[e] + tile - 1) / tile;
    for (int i = 0; i < PAIRS; i++) expert_at[i] = -1;
    for (int j = 0; j < *jobs && *jobs == want; j++)
        for (int k = job[j].first; k < job[j].first + job[j].n; k++) {
            right &= k >= 0 && k < PAIRS && job[j].n <= tile;
            if (right) seen[k]++, expert_at[k] = job[j].expert;
        }
    for (int i = 0; i < PAIRS; i++) {
        const int at = row_pair[i];
        right &= seen[i] == 1 && at >= 0 && at < PAIRS && expert_at[at] == expert[i] && pair_row[at] == i / TOP;
    }
    right &= *jobs == want;
    same(d, &one, memcpy(malloc(4), &right, 4), 4, false, "jobs of %d pairs, %d experts, tile %d", PAIRS, n, tile);
    drop(d, de), drop(d, dp), drop(d, dr), drop(d, dj), drop(d, dn);
    free(pair_row), free(row_pair), free(jobs), free((void *)job);
}

static ek_cuda_acts take_records(dev *d, int k, int a_group)
{
    ek_cuda_acts a = {0};
    const size_t row = ek_cuda_acts_plan(&a, k, a_group);
    a.q = up(d, NULL, row * ROWS);
    return a;
}

static void check_records(dev *d, const ek_cuda_acts *a, const float *x, const char *name)
{
    ek_linear_ops ops;
    ek_acts want;
    ek_linear_init(&ops, 0);
    void *mem = aligned_alloc(64, ek_acts_bytes(ROWS, a->k));
    ek_acts_bind(&want, mem, x, a->k, ROWS, a->k);
    ek_acts_quantize_as(&ops, d->pool, &want, (ek_act_form){2, a->a_group});
    compare_rows(d, &want, a, ROWS, name);
    drop(d, a->q);
    free(mem);
}

static void test_ends(dev *d, int n)
{
    const size_t all = (size_t)ROWS * (size_t)n, bytes = sizeof(float) * all;
    enum { NORMS = 5 };
    float *h = uniforms(all, 1, 3), *y = uniforms(all, 2, 2), *w = uniforms((size_t)n * NORMS, 3, 1.5f);
    float *out = uniforms((size_t)PAIRS * (size_t)n, 4, 0x1p-60f), *x = malloc(bytes), *sum = malloc(bytes);
    float weight[PAIRS], scalar = 0.875f;
    int32_t row_pair[PAIRS];
    for (int i = 0; i < PAIRS; i++) row_pair[i] = i * 5 % PAIRS, weight[i] = 0x1p-70f * (float)(1 + i % 9);
    for (int i = 0; i < n; i++) h[i] = y[n + i] = 0; /* rows of zeros */
    CUdeviceptr dh = up(d, h, bytes), dy = up(d, y, bytes), dw = up(d, w, sizeof(float) * (size_t)n * NORMS),
                dr = up(d, NULL, bytes), dout = up(d, out, sizeof(float) * (size_t)PAIRS * (size_t)n),
                dp = up(d, row_pair, sizeof row_pair), dweight = up(d, weight, sizeof weight), ds = up(d, &scalar, 4),
                between = up(d, NULL, bytes), dx = up(d, NULL, bytes);
    const size_t step = sizeof(float) * (size_t)n;
    const int group[] = {64, 32, 16};
    ek_cuda_inputs_args a = {.h = dh,
                             .h_out = between,
                             .y = dy,
                             .y_norm = dw,
                             .norm = {dw + step, dw + 2 * step, dw + 3 * step},
                             .router = dr,
                             .ld = n,
                             .eps = 1e-6f,
                             .factor = 0.0188f,
                             .n = n};
    for (int i = 0; i < 3; i++) a.to[i] = take_records(d, n, group[i]);
    ek_cuda_kernel kernel = find(d, "ek_experts_inputs_any", 0);
    launch(d, &kernel, (ek_cuda_grid){.x = 3, .y = ROWS, .threads = (unsigned)(n + 255) / 256 * 32}, &a);
    ek_row_ops ops;
    ek_row_init(&ops, 0);
    for (int r = 0; r < ROWS; r++) ops.rms_norm(y + r * n, y + r * n, w, n, a.eps), ops.add(h + r * n, y + r * n, n);
    same(d, h, down(d, between, bytes), bytes, true, "h between, %d", n);
    for (int i = 0; i < 3; i++) {
        for (int r = 0; r < ROWS; r++) {
            ops.rms_norm(x + r * n, h + r * n, w + (i + 1) * n, n, a.eps);
            if (i == 1) ops.scale(x + r * n, a.factor, n);
        }
        if (i == 1) same(d, x, down(d, dr, bytes), bytes, true, "rows of the router, %d", n);
        check_records(d, &a.to[i], x, "inputs of experts");
    }
    const ek_cuda_acts to = take_records(d, n, 64);
    must(ek_cuda_upload(d->c, dy, h, bytes));
    const ek_cuda_stage_args b = {.h = dh,
                                  .h_from = between,
                                  .y = dy,
                                  .y_norm = dw,
                                  .pair_out = dout,
                                  .row_pair = dp,
                                  .weight = dweight,
                                  .norm_1 = dw + step,
                                  .norm_2 = dw + 2 * step,
                                  .scalar = ds,
                                  .x_norm = dw + 4 * step,
                                  .x = dx,
                                  .to = to,
                                  .ld = n,
                                  .eps = 1e-6f,
                                  .n = n,
                                  .top_k = TOP};
    kernel = find(d, "ek_experts_end", 0);
    launch(d, &kernel, (ek_cuda_grid){.x = ROWS, .threads = (unsigned)(n + 255) / 256 * 32}, &b);
    memcpy(y, h, bytes);
    for (int r = 0; r < ROWS; r++) {
        float *at = sum + r * n, *dense = y + r * n, *rest = h + r * n;
        for (int i = 0; i < n; i++) at[i] = 0;
        for (int k = 0; k < TOP; k++) ops.axpy(at, weight[r * TOP + k], out + row_pair[r * TOP + k] * n, n);
        ops.rms_norm(dense, dense, w + n, n, b.eps), ops.rms_norm(at, at, w + 2 * n, n, b.eps);
        ops.add(dense, at, n);
        ops.rms_norm(dense, dense, w, n, b.eps), ops.add(rest, dense, n);
        ops.scale(rest, scalar, n);
        ops.rms_norm(x + r * n, rest, w + 4 * n, n, b.eps);
    }
    same(d, h, down(d, dh, bytes), bytes, true, "h behind experts, %d", n);
    same(d, x, down(d, dx, bytes), bytes, true, "x behind experts, %d", n);
    check_records(d, &to, x, "rows behind experts");
    drop(d, dh), drop(d, dy), drop(d, dw), drop(d, dr), drop(d, dout), drop(d, dp), drop(d, dweight), drop(d, ds),
        drop(d, between), drop(d, dx);
    free(h), free(y), free(w), free(out), free(x), free(sum);
}

enum { EXPERTS = 3, JOBS = 5 };

/* Jobs of whole and part tiles, gathered by an index, of two matrices. */
static void test_products(dev *d, shape s, int tile)
{
    ek_linear w[2][EXPERTS];
    ek_cuda_linear l;
    ek_linear_ops ops;
    ek_linear_init(&ops, 0);
    uint8_t *packed[2] = {NULL, NULL};
    for (int m = 0; m < 2; m++)
        for (int e = 0; e < EXPERTS; e++) {
            open_weights(&w[m][e], &s, (uint64_t)(m * EXPERTS + e));
            must(ek_cuda_linear_plan(&l, &w[m][e]));
            if (!packed[m]) packed[m] = calloc(EXPERTS, l.bytes);
            device_pack_for(ek_cuda_chip_of(d->c), &l, &w[m][e], packed[m] + (size_t)e * l.bytes);
        }
    const int n[JOBS] = {tile, 1, (tile + 1) / 2, tile, tile > 1 ? tile - 1 : 1};
    ek_cuda_job job[JOBS];
    int32_t index[JOBS * 64], pairs = 0;
    for (int j = 0; j < JOBS; j++) {
        job[j] = (ek_cuda_job){.expert = j * 2 % EXPERTS, .first = pairs, .n = n[j]};
        for (int i = 0; i < n[j]; i++, pairs++) index[pairs] = pairs * 7 % ROWS;
    }
    float *x = make_rows(ROWS, s.k, false);
    const size_t bytes = sizeof(float) * (size_t)pairs * (size_t)s.n, x_bytes = sizeof(float) * ROWS * (size_t)s.k;
    void *mem = aligned_alloc(64, ek_acts_bytes(ROWS, s.k));
    ek_acts acts;
    ek_acts_bind(&acts, mem, x, s.k, ROWS, s.k);
    if (s.bits) quantize_both(d, &acts, &w[0][0]);
    CUdeviceptr dx = up(d, x, x_bytes), at[2], y[2], dj = up(d, job, sizeof job), di = up(d, index, sizeof index),
                dn = up(d, &(int32_t){JOBS}, 4);
    for (int m = 0; m < 2; m++) at[m] = up(d, packed[m], EXPERTS * l.bytes), y[m] = up(d, NULL, bytes);
    const ek_cuda_product p = ek_cuda_plain_plan_jobs(&l, tile, JOBS + 2, 2);
    ek_cuda_products_args a = {.a = {.f = dx, .ldf = s.k, .y = y[0], .ldy = s.n, .rows = tile},
                               .codes2 = at[1],
                               .scales2 = at[1] + l.code_bytes,
                               .y2 = y[1],
                               .jobs = dj,
                               .n_jobs = dn,
                               .index = di,
                               .expert_bytes = (int64_t)l.bytes};
    if (s.bits) {
        a.a.x = take_records(d, s.k, s.a_group);
        device_quantize(d, &a.a.x, dx, ROWS);
    }
    ek_cuda_linear_args_of(&a.a, &l, at[0]);
    const ek_cuda_kernel kernel = find(d, p.name, 0);
    launch(d, &kernel, p.grid, &a);
    for (int m = 0; m < 2; m++) {
        float *want = malloc(bytes);
        for (int j = 0; j < JOBS; j++) {
            ek_acts some = ek_acts_pick(&acts, index + job[j].first, job[j].n);
            ek_linear_forward(&ops, d->pool, &w[m][job[j].expert], &some, want + job[j].first * s.n, s.n);
        }
        same(d, want, down(d, y[m], bytes), bytes, false, "%s, tile %d, matrix %d", p.name, tile, m);
        free(want), free(packed[m]);
        for (int e = 0; e < EXPERTS; e++) free(w[m][e].data);
        drop(d, at[m]), drop(d, y[m]);
    }
    drop(d, dx), drop(d, dj), drop(d, di), drop(d, dn), drop(d, a.a.x.q);
    free(x), free(mem);
}

void test_pass_experts(dev *d)
{
    test_route(d, 8), test_route(d, 128);
    if (!d->quick) test_route(d, 600);
    for (int tile = 1; tile <= 64; tile *= 4) test_group(d, 128, tile), test_group(d, 5, tile);
    test_ends(d, 256), test_ends(d, 2816);
    if (!ek_cuda_chip_of(d->c)->plain) return; /* others' products: jobs.c, experts.c */
    for (int rows = 1; rows <= EK_CUDA_CHOOSE_ROWS; rows++)
        test_choose(d, 128, rows, rows % 3 ? 1 : 4), test_choose(d, 9, rows, 1 + rows % 4);
    for (int limbs = 1; limbs <= 2; limbs++)
        for (int tile = 1; tile <= 64; tile *= 4) {
            test_products(d, (shape){70, 704, 4, 64, 64, limbs, EK_BF16, true}, tile);
            test_products(d, (shape){40, 1408, 8, 32, 32, limbs, EK_F32, false}, tile);
        }
    for (int tile = 1; tile <= 4; tile *= 4) test_products(d, (shape){70, 704, 4, 32, 32, 1, EK_F16, false}, tile);
    test_products(d, (shape){70, 300, 0, 0, 0, 0, EK_F32, false}, 8);
    test_products(d, (shape){70, 300, 0, 0, 0, 0, EK_F16, false}, 8);
    test_products(d, (shape){70, 300, 0, 0, 0, 0, EK_BF16, false}, 8);
}
