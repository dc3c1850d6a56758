/* Towers: attention over tensors against ops/attn/attn_tensors.h, the rows between products against ops/rows/rows.h,
 * both by the scalar kernels. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/tower/tensors.h"
#include "cuda/tower_args.h"
#include "dev.h"
#include "ops/attn/attn_tensors.h"
#include "ops/rows/rows.h"

/* ------------------------------------------------------------------ attention */

typedef struct sight {
    int heads, kv_heads, rows, dim, keys;
    float clip[2];
} sight;

static void attend_cpu(dev *d, const sight *s, const float *q, const float *k, const float *v, float *y)
{
    ek_attn_rows_ops attn;
    ek_convert_ops convert;
    ek_attn_rows_init(&attn, 0);
    ek_convert_init(&convert, 0);
    const ptrdiff_t f = sizeof(float), head = s->dim * f;
    ek_attn_tensors t = {.attn = &attn,
                         .convert = &convert,
                         .entries = 1,
                         .heads = s->heads,
                         .kv_heads = s->kv_heads,
                         .rows = s->rows,
                         .keys = s->keys,
                         .dim = s->dim,
                         .scale = 1};
    t.q = (ek_attn_tensor){(uint8_t *)(uintptr_t)q, EK_F32, 0, head, s->heads * head, f};
    t.y = (ek_attn_tensor){(uint8_t *)y, EK_F32, 0, head, s->heads * head, f};
    t.k.at = (ek_attn_tensor){(uint8_t *)(uintptr_t)k, EK_F32, 0, head, s->kv_heads * head, f};
    t.v.at = (ek_attn_tensor){(uint8_t *)(uintptr_t)v, EK_F32, 0, head, s->kv_heads * head, f};
    const ek_attn_workers workers = ek_attn_workers_of(d->pool);
    void *memory = aligned_alloc(64, (ek_attn_tensors_bytes(&t, workers.n_workers) + 63) / 64 * 64);
    ek_attn_tensors_run(&t, &workers, memory);
    free(memory);
    ek_row_ops rows;
    ek_row_init(&rows, 0);
    rows.clamp(y, y, s->clip[0], s->clip[1], s->rows * s->heads * s->dim);
}

static void attend(dev *d, const sight *s, bool odd)
{
    const size_t width = (size_t)(s->heads * s->dim), kv = (size_t)(s->kv_heads * s->dim);
    const size_t nq = (size_t)s->rows * width, nk = (size_t)s->keys * kv;
    float *q = uniforms(nq, 1, 2), *k = uniforms(nk, 2, 2), *v = uniforms(nk, 3, 1), *want = malloc(nq * sizeof *want);
    for (int i = 0; odd && i < s->dim; i++) { /* scores far apart: weights below 2^-125, sums that underflow */
        k[(size_t)(s->keys / 2) * kv + (size_t)i] = 40 * k[i], q[i] = 40 * q[i];
        v[(size_t)i] *= 0x1p-140f;
    }
    if (odd) v[nk - 1] = NAN, k[nk / 3] = INFINITY, k[nk / 2 + 1] = NAN;
    attend_cpu(d, s, q, k, v, want);
    const ek_cuda_product p = ek_cuda_tensors_plan(s->heads, s->rows, s->keys, s->dim, ek_cuda_chip_of(d->c));
    const CUdeviceptr at[] = {up(d, q, nq * 4), up(d, k, nk * 4), up(d, v, nk * 4), up(d, NULL, nq * 4),
                              up(d, NULL, p.stack)};
    const ek_cuda_tensors_args a = {.q = at[0],
                                    .k = at[1],
                                    .v = at[2],
                                    .o = at[3],
                                    .stack = at[4],
                                    .ldq = (int64_t)width,
                                    .ldk = (int64_t)kv,
                                    .ldv = (int64_t)kv,
                                    .ldo = (int64_t)width,
                                    .heads = s->heads,
                                    .kv_heads = s->kv_heads,
                                    .rows = s->rows,
                                    .keys = s->keys,
                                    .dim = s->dim,
                                    .levels = p.levels,
                                    .clip = {s->clip[0], s->clip[1]}};
    if (p.grid.shared <= ek_cuda_chip_of(d->c)->block_shared) { /* else the CPU encodes */
        ek_cuda_kernel kernel = find(d, p.name, p.grid.shared);
        launch(d, &kernel, p.grid, &a);
        same(d, want, down(d, at[3], nq * 4), nq * 4, odd, "%s, %d heads on %d of %d, %d rows, %d keys", p.name,
             s->heads, s->kv_heads, s->dim, s->rows, s->keys);
    }
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) drop(d, at[i]);
    free(q), free(k), free(v), free(want);
}

static void test_attention(dev *d)
{
    static const sight small[] = {
        {3, 3, 70, 64, 300, {-0.3f, 0.25f}},         {2, 1, 65, 72, 513, {-INFINITY, INFINITY}},
        {2, 2, 9, 12, 9, {-INFINITY, INFINITY}},     {4, 2, 33, 16, 257, {-INFINITY, 0.1f}},
        {2, 2, 20, 128, 800, {-INFINITY, INFINITY}}, {1, 1, 5, 7, 40, {-INFINITY, INFINITY}}};
    static const sight large[] = {{12, 12, 2520, 64, 2520, {-1, 1}},
                                  {16, 16, 594, 72, 594, {-INFINITY, INFINITY}},
                                  {2, 2, 300, 72, 10080, {-INFINITY, INFINITY}}};
    for (size_t i = 0; i < sizeof small / sizeof *small; i++) {
        if (d->few && i > 2) break;
        attend(d, &small[i], i % 2);
        if (!d->few) attend(d, &small[i], i % 2 == 0);
    }
    for (size_t i = 0; !d->quick && i < sizeof large / sizeof *large; i++) attend(d, &large[i], false);
}

/* ------------------------------------------------------------------ rows */

enum { PLACES = 9 };
static const float clips[3][2] = {{-0.4f, 0.5f}, {-INFINITY, 0.3f}, {-INFINITY, INFINITY}};

static void test_stage(dev *d, int n, int rows, int n_x)
{
    const size_t all = (size_t)n * (size_t)rows;
    float *h = uniforms(all, 1, 1), *y = uniforms(all, 2, 3), *w = uniforms((size_t)n, 3, 1),
          *w2 = uniforms((size_t)n, 4, 1);
    float *column = uniforms((size_t)(n * PLACES), 5, 1), *line = uniforms((size_t)(n * PLACES), 6, 1);
    float *want_x = malloc(all * 4), *sum = malloc((size_t)n * 4);
    y[n / 2] = NAN;
    ek_row_ops ops;
    ek_row_init(&ops, 0);
    for (int placed = 0; placed < 2; placed++) {
        const CUdeviceptr at[] = {up(d, h, all * 4),
                                  up(d, y, all * 4),
                                  up(d, w, (size_t)n * 4),
                                  up(d, w2, (size_t)n * 4),
                                  up(d, column, (size_t)(n * PLACES) * 4),
                                  up(d, line, (size_t)(n * PLACES) * 4),
                                  up(d, NULL, all * 4),
                                  up(d, NULL, all * 4),
                                  up(d, NULL, all * 4)};
        ek_cuda_tower_stage_args a = {.h = at[0],
                                      .x_norm = at[3],
                                      .x = {at[6], at[7], at[8]},
                                      .ld = n,
                                      .y_clip = {-2, 2},
                                      .limit = INFINITY,
                                      .factor = 1,
                                      .eps = 1e-6f,
                                      .x_eps = 1e-6f,
                                      .n = n,
                                      .n_x = n_x,
                                      .across = PLACES};
        memcpy(a.x_clip, clips, sizeof clips);
        if (placed) a.column = at[4], a.line = at[5];
        else a.y = at[1], a.y_norm = at[2];
        ek_cuda_kernel kernel = find(d, "ek_tower_stage", 0);
        launch(d, &kernel, (ek_cuda_grid){.x = (unsigned)rows, .threads = (unsigned)(n + 255) / 256 * 32}, &a);
        for (int r = 0; r < rows; r++) {
            float *hr = h + (size_t)r * (size_t)n, *yr = y + (size_t)r * (size_t)n;
            if (placed) {
                memcpy(sum, column + (size_t)(r % PLACES) * (size_t)n, (size_t)n * 4);
                ops.add(sum, line + (size_t)(r / PLACES) * (size_t)n, n);
                ops.add(hr, sum, n);
                continue;
            }
            ops.clamp(yr, yr, -2, 2, n);
            ops.rms_norm(yr, yr, w, n, 1e-6f);
            ops.add(hr, yr, n);
        }
        same(d, h, down(d, at[0], all * 4), all * 4, true, "tower's h, %d elements", n);
        for (int j = 0; j < n_x; j++) {
            for (int r = 0; r < rows; r++) {
                float *to = want_x + (size_t)r * (size_t)n;
                ops.rms_norm(to, h + (size_t)r * (size_t)n, w2, n, 1e-6f);
                ops.clamp(to, to, clips[j][0], clips[j][1], n);
            }
            same(d, want_x, down(d, at[6 + j], all * 4), all * 4, true, "tower's input %d, %d elements", j, n);
        }
        for (size_t i = 0; i < sizeof at / sizeof *at; i++) drop(d, at[i]);
    }
    free(h), free(y), free(w), free(w2), free(column), free(line), free(want_x), free(sum);
}

/* Of sounds: y counts by a factor, h is held within a limit before norms, one of which may be h's own; y without a
 * norm. */
static void test_stage_of_sounds(dev *d, int n, bool y_norm, bool h_norm)
{
    enum { ROWS = 5 };
    const float limit = 0.75f;
    const size_t all = (size_t)n * ROWS, bytes = all * 4;
    float *h = uniforms(all, 1, 1), *y = uniforms(all, 2, 3), *x = malloc(bytes), *w = uniforms((size_t)n * 3, 3, 1);
    const CUdeviceptr dh = up(d, h, bytes), dy = up(d, y, bytes), dx = up(d, NULL, bytes),
                      dw = up(d, w, (size_t)n * 12);
    const CUdeviceptr second = dw + 4 * (CUdeviceptr)n, third = dw + 8 * (CUdeviceptr)n;
    const ek_cuda_tower_stage_args a = {.h = dh,
                                        .y = dy,
                                        .y_norm = y_norm ? dw : 0,
                                        .h_norm = h_norm ? second : 0,
                                        .x_norm = third,
                                        .x = {dx},
                                        .ld = n,
                                        .y_clip = {0.125f, 2},
                                        .x_clip = {{-0.4f, 0.5f}},
                                        .limit = limit,
                                        .factor = 0.3f,
                                        .eps = 1e-6f,
                                        .x_eps = 1e-3f,
                                        .n = n,
                                        .n_x = 1,
                                        .across = 1};
    ek_cuda_kernel kernel = find(d, "ek_tower_stage", 0);
    launch(d, &kernel, (ek_cuda_grid){.x = ROWS, .threads = (unsigned)(n + 255) / 256 * 32}, &a);
    ek_row_ops ops;
    ek_row_init(&ops, 0);
    for (int r = 0; r < ROWS; r++) {
        float *hr = h + r * n, *yr = y + r * n, *xr = x + r * n;
        ops.clamp(yr, yr, 0.125f, 2, n);
        if (y_norm) ops.rms_norm(yr, yr, w, n, 1e-6f);
        ops.axpy(hr, 0.3f, yr, n);
        if (h_norm) ops.clamp(hr, hr, -limit, limit, n), ops.rms_norm(hr, hr, w + n, n, 1e-6f);
        ops.clamp(xr, hr, -limit, limit, n);
        ops.rms_norm(xr, xr, w + 2 * n, n, 1e-3f);
        ops.clamp(xr, xr, -0.4f, 0.5f, n);
    }
    same(d, h, down(d, dh, bytes), bytes, false, "h of a sound's stage, %d elements", n);
    same(d, x, down(d, dx, bytes), bytes, false, "x of a sound's stage, %d elements", n);
    drop(d, dh), drop(d, dy), drop(d, dx), drop(d, dw);
    free(h), free(y), free(x), free(w);
}

static void test_tower_heads(dev *d, int heads, int kv, int dim, int rows)
{
    const size_t q_width = (size_t)(heads * dim), k_width = (size_t)(kv * dim), n = (size_t)rows;
    const size_t width = q_width + 2 * k_width;
    float *all = uniforms(n * width, 1, 2);
    float *q_norm = uniforms((size_t)dim, 4, 1), *k_norm = uniforms((size_t)dim, 5, 1);
    float freq[64], *cos = malloc(PLACES * (size_t)dim), *sin = malloc(PLACES * (size_t)dim);
    const int each = dim / 4;
    ek_rope_frequencies(freq, dim / 2, 100, 1, 1);
    for (int i = 0; i < PLACES; i++) ek_rope_row(cos + i * each, sin + i * each, freq, each, i);
    const CUdeviceptr at[] = {up(d, all, n * width * 4), up(d, q_norm, (size_t)dim * 4), up(d, k_norm, (size_t)dim * 4),
                              up(d, cos, PLACES * (size_t)dim), up(d, sin, PLACES * (size_t)dim)};
    ek_cuda_tower_heads_args a = {.q = at[0],
                                  .k = at[0] + q_width * 4,
                                  .v = at[0] + (q_width + k_width) * 4,
                                  .q_norm = at[1],
                                  .k_norm = at[2],
                                  .cos = at[3],
                                  .sin = at[4],
                                  .ld = (int64_t)width,
                                  .eps = 1e-6f,
                                  .heads = heads,
                                  .kv_heads = kv,
                                  .dim = dim,
                                  .across = PLACES};
    memcpy(a.clip, clips, sizeof clips);
    ek_cuda_kernel kernel = find(d, "ek_tower_heads", 0);
    launch(d, &kernel, (ek_cuda_grid){.x = (unsigned)rows, .threads = EK_CUDA_TOWER_HEADS_THREADS}, &a);
    ek_row_ops ops;
    ek_row_init(&ops, 0);
    float *const rows_of[] = {all, all + q_width, all + q_width + k_width};
    for (int which = 0; which < 3; which++)
        for (int r = 0; r < rows; r++)
            for (int h = 0; h < (which ? kv : heads); h++) {
                float *x = rows_of[which] + (size_t)r * width + (size_t)(h * dim);
                const int c = r % PLACES * each, l = r / PLACES * each;
                ops.clamp(x, x, clips[which][0], clips[which][1], dim);
                ops.rms_norm(x, x, which == 0 ? q_norm : which == 1 ? k_norm : NULL, dim, 1e-6f);
                if (which == 2) continue;
                ops.rope(x, cos + c, sin + c, each, each);
                ops.rope(x + dim / 2, cos + l, sin + l, each, each);
            }
    same(d, all, down(d, at[0], n * width * 4), n * width * 4, false, "tower's heads of %d", dim);
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) drop(d, at[i]);
    free(all), free(q_norm), free(k_norm), free(cos), free(sin);
}

static void test_tower_gate(dev *d, int n, int rows, bool sigmoid)
{
    const size_t all = (size_t)n * (size_t)rows;
    float *g = uniforms(all, 1, 3), *u = uniforms(all, 2, 3);
    const CUdeviceptr dg = up(d, g, all * 4), du = up(d, u, all * 4);
    ek_cuda_tower_gate_args a = {.y = dg,
                                 .g = dg,
                                 .u = du,
                                 .ldy = n,
                                 .ld = n,
                                 .g_clip = {-2, 2},
                                 .u_clip = {-1, 2.5f},
                                 .y_clip = {-0.5f, 3},
                                 .n = n,
                                 .sigmoid = sigmoid};
    ek_cuda_kernel kernel = find(d, "ek_tower_gate", 0);
    launch(d, &kernel, (ek_cuda_grid){.x = (unsigned)(n + 1023) / 1024, .y = (unsigned)rows, .threads = 256}, &a);
    ek_row_ops ops;
    ek_row_init(&ops, 0);
    ops.clamp(g, g, -2, 2, (int)all), ops.clamp(u, u, -1, 2.5f, (int)all);
    if (sigmoid) ops.sigmoid_mul(g, u, g, (int)all);
    else ops.gelu_mul(g, g, u, (int)all);
    ops.clamp(g, g, -0.5f, 3, (int)all);
    same(d, g, down(d, dg, all * 4), all * 4, false, "tower's gate of %d", n);
    drop(d, dg), drop(d, du);
    free(g), free(u);
}

static void test_tower_pool(dev *d, int n, int side, bool standard)
{
    enum { TOKENS = 3, LINES = 2 };
    const int across = TOKENS * side, rows = across * side * LINES, tokens = TOKENS * LINES;
    const float share = 1.0f / (float)(side * side), factor = (float)sqrt((double)n);
    float *h = uniforms((size_t)(n * rows), 1, 1), *b = uniforms((size_t)n, 2, 40000), *s = uniforms((size_t)n, 3, 1);
    float *want = calloc((size_t)(n * tokens), 4);
    ek_row_ops ops;
    ek_row_init(&ops, 0);
    for (int t = 0; t < tokens; t++) {
        float *x = want + t * n;
        for (int i = 0; i < side * side; i++)
            ops.axpy(x, share, h + ((t / TOKENS * side + i / side) * across + t % TOKENS * side + i % side) * n, n);
        ops.scale(x, factor, n);
        for (int i = 0; standard && i < n; i++) x[i] = (x[i] - b[i]) * s[i];
        ops.rms_norm(x, x, NULL, n, 1e-6f);
    }
    const CUdeviceptr at[] = {up(d, h, (size_t)(n * rows) * 4), up(d, b, (size_t)n * 4), up(d, s, (size_t)n * 4),
                              up(d, NULL, (size_t)(n * tokens) * 4)};
    ek_cuda_tower_pool_args a = {.x = at[3],
                                 .h = at[0],
                                 .ldx = n,
                                 .ldh = n,
                                 .share = share,
                                 .factor = factor,
                                 .eps = 1e-6f,
                                 .n = n,
                                 .side = side,
                                 .across = across};
    if (standard) a.bias = at[1], a.scale = at[2];
    ek_cuda_kernel kernel = find(d, "ek_tower_pool", 0);
    launch(d, &kernel, (ek_cuda_grid){.x = (unsigned)tokens, .threads = (unsigned)(n + 255) / 256 * 32}, &a);
    same(d, want, down(d, at[3], (size_t)(n * tokens) * 4), (size_t)(n * tokens) * 4, false, "soft tokens of %d", n);
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) drop(d, at[i]);
    free(h), free(b), free(s), free(want);
}

static void test_patches(dev *d, int side)
{
    enum { ACROSS = 5, DOWN = 3 };
    const int n = 3 * side * side, patches = ACROSS * DOWN;
    uint8_t *rgb = malloc((size_t)(n * patches));
    float value[256], *want = malloc((size_t)(n * patches) * 4);
    for (int i = 0; i < n * patches; i++) rgb[i] = (uint8_t)(i * 37 + i / 256);
    for (int i = 0; i < 256; i++) value[i] = uniform(1, (uint64_t)i);
    for (int p = 0; p < patches; p++)
        for (int i = 0; i < n; i++)
            want[p * n + i] = value[rgb[(p / ACROSS * side + i / (3 * side)) * ACROSS * side * 3 +
                                        p % ACROSS * side * 3 + i % (3 * side)]];
    const CUdeviceptr dr = up(d, rgb, (size_t)(n * patches)), dv = up(d, value, sizeof value),
                      dx = up(d, NULL, (size_t)(n * patches) * 4);
    const ek_cuda_patch_args a = {.x = dx, .rgb = dr, .value = dv, .ldx = n, .side = side, .across = ACROSS};
    ek_cuda_kernel kernel = find(d, "ek_tower_patch", 0);
    launch(d, &kernel, (ek_cuda_grid){.x = (unsigned)(n + 255) / 256, .y = (unsigned)patches, .threads = 256}, &a);
    same(d, want, down(d, dx, (size_t)(n * patches) * 4), (size_t)(n * patches) * 4, false, "patches of %d", side);
    drop(d, dr), drop(d, dv), drop(d, dx);
    free(rgb), free(want);
}

void test_tower(dev *d)
{
    test_attention(d);
    test_tensors_int(d);
    test_stage(d, 768, 20, 3), test_stage(d, 36, 10, 1);
    if (!d->few) test_stage(d, 1152, 12, 2), test_stage(d, 5376, 3, 0), test_stage(d, 32, 7, 2);
    test_tower_heads(d, 12, 12, 64, 20), test_tower_heads(d, 3, 1, 12, 11);
    if (!d->few) test_tower_heads(d, 16, 16, 72, 10), test_tower_heads(d, 2, 2, 128, 3);
    test_tower_gate(d, 37, 3, false), test_tower_gate(d, 3072, 2, true);
    if (!d->few) test_tower_gate(d, 3072, 2, false), test_tower_gate(d, 1025, 2, true);
    test_stage_of_sounds(d, 1024, true, true), test_stage_of_sounds(d, 32, false, false);
    if (!d->few) test_stage_of_sounds(d, 300, true, false), test_stage_of_sounds(d, 1024, false, true);
    test_sounds(d);
    test_tower_pool(d, 36, 3, true), test_tower_pool(d, 768, 3, false);
    if (!d->few) test_tower_pool(d, 1152, 3, true), test_tower_pool(d, 36, 2, true);
    test_patches(d, 16);
    if (!d->few) test_patches(d, 48);
}

/* ------------------------------------------------------------------ speed */

typedef struct timed {
    dev *d;
    ek_cuda_kernel kernel;
    ek_cuda_grid grid;
    ek_cuda_tensors_args a;
} timed;

static void queue(void *arg, int i)
{
    timed *t = arg;
    (void)i;
    launch(t->d, &t->kernel, t->grid, &t->a);
}

void speed_tower(dev *d)
{
    static const sight of[] = {{12, 12, 2520, 64, 2520, {-INFINITY, INFINITY}},
                               {16, 16, 2520, 72, 2520, {-INFINITY, INFINITY}},
                               {12, 12, 10080, 64, 10080, {-INFINITY, INFINITY}},
                               {16, 16, 10080, 72, 10080, {-INFINITY, INFINITY}},
                               {16, 16, 2520, 128, 2520, {-INFINITY, INFINITY}}};
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        const sight *s = &of[i];
        const size_t n = (size_t)s->rows * (size_t)(s->heads * s->dim);
        const ek_cuda_product p = ek_cuda_tensors_plan(s->heads, s->rows, s->keys, s->dim, ek_cuda_chip_of(d->c));
        float *x = uniforms(n, 1, 1);
        const CUdeviceptr at = up(d, x, n * 4), o = up(d, NULL, n * 4), stack = up(d, NULL, p.stack);
        const int64_t ld = s->heads * s->dim;
        timed t = {.d = d, .kernel = find(d, p.name, p.grid.shared), .grid = p.grid};
        t.a = (ek_cuda_tensors_args){.q = at,
                                     .k = at,
                                     .v = at,
                                     .o = o,
                                     .ldq = ld,
                                     .ldk = ld,
                                     .ldv = ld,
                                     .ldo = ld,
                                     .stack = stack,
                                     .heads = s->heads,
                                     .kv_heads = s->kv_heads,
                                     .rows = s->rows,
                                     .keys = s->keys,
                                     .dim = s->dim,
                                     .levels = p.levels,
                                     .clip = {s->clip[0], s->clip[1]}};
        const double us = time_us(d, queue, &t, 2);
        printf("%s: %d heads, %d rows: %.0f us, %.1f T multiply-adds/s\n", p.name, s->heads, s->rows, us,
               2.0 * s->heads * s->rows * s->keys * s->dim / us * 1e-6);
        drop(d, at), drop(d, o), drop(d, stack);
        free(x);
        speed_tensors_int(d, s->heads, s->rows, s->dim);
    }
}
