/* Towers: attention in integers of large pictures against ops/attn/attn.h, by the scalar kernels. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/tower/tensors.h"
#include "cuda/tower_args.h"
#include "dev.h"
#include "ops/attn/attn.h"
#include "ops/rows/rows.h"

typedef struct sight {
    int heads, kv_heads, rows, dim;
    float clip[2];
} sight;

/* Each row sees all. */
static void integers_cpu(dev *d, const sight *s, const float *q, const float *k, const float *v, float *y)
{
    const ek_attn_shape shape = {.kind = EK_FULL,
                                 .k_format = EK_KV_I12,
                                 .v_format = EK_KV_I12,
                                 .n_heads = s->heads,
                                 .n_kv_heads = s->kv_heads,
                                 .head_dim = s->dim};
    const int pages = (s->rows + EK_PAGE_TOKENS - 1) / EK_PAGE_TOKENS, width = s->heads * s->dim,
              kv = s->kv_heads * s->dim;
    const size_t page = ek_kv_block_bytes(EK_KV_I12, EK_KV_I12, s->kv_heads, s->dim);
    int32_t *number = malloc(sizeof *number * (size_t)pages);
    for (int i = 0; i < pages; i++) number[i] = i;
    ek_kv_view view = {.base = aligned_alloc(64, page * (size_t)pages), .stride = page, .page = number};
    ek_attn_row *rows = malloc(sizeof *rows * (size_t)s->rows);
    ek_attn *a;
    must(ek_attn_plan(&a, 0, &shape));
    for (int i = 0; i < s->rows; i++) {
        rows[i] = (ek_attn_row){0, 0, s->rows};
        ek_attn_store(a, &view, i, k + (size_t)i * (size_t)kv, v + (size_t)i * (size_t)kv);
    }
    const size_t bytes = ek_attn_scratch_bytes(a, s->rows, s->rows, ek_pool_threads(d->pool));
    void *scratch = aligned_alloc(64, (bytes + 63) / 64 * 64);
    ek_attn_run(a, d->pool, &view, rows, s->rows, q, width, y, width, scratch);
    ek_attn_free(a);
    free(scratch), free(rows), free(view.base), free(number);
    ek_row_ops ops;
    ek_row_init(&ops, 0);
    ops.clamp(y, y, s->clip[0], s->clip[1], s->rows * width);
}

/* Rows of queries, keys and values at qkv, one behind the other. */
static ek_cuda_tensors_int_args args_of(const sight *s, CUdeviceptr qkv, CUdeviceptr o, CUdeviceptr codes,
                                        CUdeviceptr stack, int levels)
{
    const int q_width = s->heads * s->dim, kv = s->kv_heads * s->dim;
    return (ek_cuda_tensors_int_args){.q = qkv,
                                      .k = qkv + sizeof(float) * (size_t)q_width,
                                      .v = qkv + sizeof(float) * (size_t)(q_width + kv),
                                      .o = o,
                                      .ld = q_width + 2 * kv,
                                      .ldo = q_width,
                                      .codes = codes,
                                      .stack = stack,
                                      .heads = s->heads,
                                      .kv_heads = s->kv_heads,
                                      .rows = s->rows,
                                      .dim = s->dim,
                                      .levels = levels,
                                      .clip = {s->clip[0], s->clip[1]}};
}

static void attend(dev *d, const sight *s, bool odd)
{
    const size_t q_width = (size_t)(s->heads * s->dim), kv = (size_t)(s->kv_heads * s->dim), width = q_width + 2 * kv;
    const size_t n = (size_t)s->rows, nq = n * q_width;
    float *q = uniforms(nq, 1, 0.5f), *k = uniforms(n * kv, 2, 2), *v = uniforms(n * kv, 3, 1);
    float *all = malloc(n * width * 4), *want = malloc(nq * 4);
    for (int i = 0; odd && i < s->dim; i++) { /* scores far apart, values that vanish, what is no number */
        k[(size_t)(s->rows / 2) * kv + (size_t)i] = 40 * k[i], q[i] = 40 * q[i];
        v[(size_t)i] *= 0x1p-130f;
    }
    if (odd) v[n * kv - 1] = NAN, k[n * kv / 3] = INFINITY, q[n * q_width / 2 + 1] = -INFINITY;
    for (size_t r = 0; r < n; r++) {
        memcpy(all + r * width, q + r * q_width, q_width * 4);
        memcpy(all + r * width + q_width, k + r * kv, kv * 4);
        memcpy(all + r * width + q_width + kv, v + r * kv, kv * 4);
    }
    integers_cpu(d, s, q, k, v, want);
    const ek_cuda_product p = ek_cuda_tensors_int_plan(s->heads, s->rows, s->dim, ek_cuda_chip_of(d->c));
    const CUdeviceptr at[] = {up(d, all, n * width * 4), up(d, NULL, nq * 4), up(d, NULL, p.stack),
                              up(d, NULL, ek_cuda_tensors_codes_bytes(s->heads, s->kv_heads, s->rows, s->dim))};
    const ek_cuda_tensors_int_args a = args_of(s, at[0], at[1], at[3], at[2], p.levels);
    if (p.grid.shared <= ek_cuda_chip_of(d->c)->block_shared) { /* else the CPU encodes */
        ek_cuda_kernel codes = find(d, "ek_tensors_codes", 0), kernel = find(d, p.name, p.grid.shared);
        launch(d, &codes, ek_cuda_tensors_codes_grid(s->heads, s->kv_heads, s->rows), &a);
        launch(d, &kernel, p.grid, &a);
        same(d, want, down(d, at[1], nq * 4), nq * 4, odd, "%s, %d heads on %d of %d, %d rows", p.name, s->heads,
             s->kv_heads, s->dim, s->rows);
    }
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) drop(d, at[i]);
    free(q), free(k), free(v), free(all), free(want);
}

void test_tensors_int(dev *d)
{
    static const sight small[] = {{2, 2, 300, 64, {-0.3f, 0.25f}},        {2, 1, 70, 72, {-INFINITY, INFINITY}},
                                  {3, 3, 9, 12, {-INFINITY, INFINITY}},   {1, 1, 1100, 4, {-INFINITY, 0.1f}},
                                  {2, 2, 256, 96, {-INFINITY, INFINITY}}, {1, 1, 130, 128, {-INFINITY, INFINITY}}};
    static const sight large[] = {{2, 2, 4097, 64, {-1, 1}}, {16, 16, 600, 72, {-INFINITY, INFINITY}}};
    for (size_t i = 0; i < sizeof small / sizeof *small; i++) {
        if (d->few && i > 2) break;
        attend(d, &small[i], i % 2);
        if (!d->few) attend(d, &small[i], i % 2 == 0);
    }
    for (size_t i = 0; !d->quick && i < sizeof large / sizeof *large; i++) attend(d, &large[i], false);
}

typedef struct timed {
    dev *d;
    ek_cuda_kernel codes, kernel;
    ek_cuda_grid codes_grid, grid;
    ek_cuda_tensors_int_args in;
} timed;

static void queue(void *arg, int i)
{
    timed *t = arg;
    (void)i;
    launch(t->d, &t->codes, t->codes_grid, &t->in);
    launch(t->d, &t->kernel, t->grid, &t->in);
}

void speed_tensors_int(dev *d, int heads, int rows, int dim)
{
    const sight one = {heads, heads, rows, dim, {-INFINITY, INFINITY}}, *const s = &one;
    const size_t width = (size_t)((s->heads + 2 * s->kv_heads) * s->dim), n = (size_t)s->rows;
    const ek_cuda_product p = ek_cuda_tensors_int_plan(s->heads, s->rows, s->dim, ek_cuda_chip_of(d->c));
    float *x = uniforms(n * width, 1, 1);
    const CUdeviceptr at = up(d, x, n * width * 4), o = up(d, NULL, n * width * 4), stack = up(d, NULL, p.stack),
                      codes = up(d, NULL, ek_cuda_tensors_codes_bytes(s->heads, s->kv_heads, s->rows, s->dim));
    timed t = {.d = d,
               .kernel = find(d, p.name, p.grid.shared),
               .grid = p.grid,
               .codes = find(d, "ek_tensors_codes", 0),
               .codes_grid = ek_cuda_tensors_codes_grid(s->heads, s->kv_heads, s->rows)};
    t.in = args_of(s, at, o, codes, stack, p.levels);
    const double us = time_us(d, queue, &t, 2);
    printf("%s with codes: %d heads, %d rows: %.0f us, %.1f T multiply-adds/s\n", p.name, s->heads, s->rows, us,
           2.0 * s->heads * s->rows * s->rows * s->dim / us * 1e-6);
    drop(d, at), drop(d, o), drop(d, stack), drop(d, codes);
    free(x);
}
