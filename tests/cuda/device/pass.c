/* The kernels of a forward pass between its products, against ops/rows/rows.h and ops/linear/linear.h. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../support/device_pack.h"
#include "cuda/model_args.h"
#include "cuda/rows/launch.h"
#include "ops/linear/linear_layout.h"
#include "ops/rows/rows.h"
#include "product.h"

/* Rows that rounding, flushing and quantising treat differently: ordinary, zeros of both signs, denormal, huge, tiny
 * beside large, ties of rounding, infinity and NaN. */
static float *hard_rows(int rows, int n, uint64_t seed)
{
    float *x = malloc(sizeof *x * (size_t)rows * (size_t)n);
    for (int r = 0; r < rows; r++)
        for (int i = 0; i < n; i++) {
            const float u = uniform(seed + (uint64_t)r, (uint64_t)i);
            float *const at = &x[r * n + i];
            *at = u;
            if (r % 8 == 1) *at = i % 2 ? 0.0f : -0.0f;
            if (r % 8 == 2) *at = u * 0x1p-130f;
            if (r % 8 == 3) *at = u * 1e18f;
            if (r % 8 == 4) *at = i % 64 ? u * 0x1p-60f : 100 * u;
            if (r % 8 == 5) *at = (float)(int)(u * 127) + 0.5f;
            if (r % 8 == 6) *at = 12 * u;
            if (r % 8 == 7 && i % 200 == 33) *at = i % 400 == 33 ? NAN : -INFINITY;
        }
    return x;
}

enum { ROWS = 9 };

typedef struct records {
    ek_cuda_acts acts;
    CUdeviceptr mem;
} records;

static records take_records(dev *d, int k, int a_group)
{
    records r = {0};
    const size_t row = ek_cuda_acts_plan(&r.acts, k, a_group);
    r.acts.q = r.mem = up(d, NULL, row * ROWS);
    return r;
}

/* Records of the rows of x. */
static void check_records(dev *d, records *r, const float *x, const char *name)
{
    ek_linear_ops ops;
    ek_acts want;
    ek_linear_init(&ops, 0);
    void *mem = aligned_alloc(64, ek_acts_bytes(ROWS, r->acts.k));
    ek_acts_bind(&want, mem, x, r->acts.k, ROWS, r->acts.k);
    ek_acts_quantize_as(&ops, d->pool, &want, (ek_act_form){2, r->acts.a_group});
    compare_rows(d, &want, &r->acts, ROWS, name);
    drop(d, r->mem);
    free(mem);
}

/* Which parts of ek_stage: of y, of scalar, of x_norm, of a factor, of x. */
static void test_stage(dev *d, int n, int a_group, unsigned parts)
{
    ek_row_ops ops;
    ek_row_init(&ops, 0);
    const size_t bytes = sizeof(float) * (size_t)n * ROWS;
    float *h = hard_rows(ROWS, n, 1), *y = hard_rows(ROWS, n, 50), *w = uniforms((size_t)n * 2, 3, 1.5f);
    const float scalar = 0.8125f, factor = 0.0255155f;
    float *x = malloc(bytes);
    CUdeviceptr dh = up(d, h, bytes), dy = up(d, y, bytes), dw = up(d, w, sizeof(float) * (size_t)n * 2),
                ds = up(d, &scalar, 4), dx = up(d, NULL, bytes);
    records to = take_records(d, n, a_group);
    const ek_cuda_stage_args a = {.h = dh,
                                  .y = parts & 1 ? dy : 0,
                                  .y_norm = dw,
                                  .scalar = parts & 2 ? ds : 0,
                                  .x_norm = parts & 4 ? dw + sizeof(float) * (size_t)n : 0,
                                  .has_factor = parts & 8 ? 1 : 0,
                                  .x = parts & 16 ? dx : 0,
                                  .to = to.acts,
                                  .ld = n,
                                  .eps = 1e-6f,
                                  .factor = factor,
                                  .n = n};
    ek_cuda_kernel kernel = find(d, ek_cuda_stage_name(n, ek_cuda_chip_of(d->c)), 0);
    launch(d, &kernel, (ek_cuda_grid){.x = ROWS, .threads = (unsigned)(n + 255) / 256 * 32}, &a);
    for (int r = 0; r < ROWS; r++) {
        float *at = h + r * n, *out = x + r * n;
        if (parts & 1) ops.rms_norm(y + r * n, y + r * n, w, n, 1e-6f), ops.add(at, y + r * n, n);
        if (parts & 2) ops.scale(at, scalar, n);
        memcpy(out, at, sizeof(float) * (size_t)n);
        if (parts & 4) ops.rms_norm(out, at, w + n, n, 1e-6f);
        if (parts & 4 && parts & 8) ops.scale(out, factor, n);
    }
    char name[60];
    snprintf(name, sizeof name, "stage of %d, parts %u", n, parts);
    same(d, h, down(d, dh, bytes), bytes, true, "%s: h", name);
    if (parts & 16) same(d, x, down(d, dx, bytes), bytes, true, "%s: x", name);
    check_records(d, &to, x, name);
    drop(d, dh), drop(d, dy), drop(d, dw), drop(d, ds), drop(d, dx);
    free(h), free(y), free(w), free(x);
}

static void test_gates(dev *d, int n, int a_group)
{
    ek_row_ops ops;
    ek_row_init(&ops, 0);
    const size_t bytes = sizeof(float) * (size_t)n * ROWS;
    float *g = hard_rows(ROWS, n, 7), *u = hard_rows(ROWS, n, 90);
    CUdeviceptr dg = up(d, g, bytes), du = up(d, u, bytes), dy = up(d, NULL, bytes);
    records to = take_records(d, n, a_group ? a_group : 64);
    const ek_cuda_gate_args a = {
        .g = dg, .u = du, .y = dy, .ldg = n, .ldu = n, .ldy = n, .to = a_group ? to.acts : (ek_cuda_acts){0}, .n = n};
    ek_cuda_kernel kernel = find(d, "ek_gate", 0);
    const int by = 8 * (a_group ? a_group : 64);
    launch(d, &kernel, (ek_cuda_grid){.x = (unsigned)((n + by - 1) / by), .y = ROWS, .threads = 256}, &a);
    for (int r = 0; r < ROWS; r++) ops.gelu_mul(g + r * n, g + r * n, u + r * n, n);
    same(d, g, down(d, dy, bytes), bytes, true, "gate of %d in groups of %d", n, a_group);
    if (a_group) check_records(d, &to, g, "gate");
    else drop(d, to.mem);
    drop(d, dg), drop(d, du), drop(d, dy);
    free(g), free(u);
}

static void test_queries(dev *d, int dim, double partial)
{
    enum { HEADS = 3 };
    ek_row_ops ops;
    ek_row_init(&ops, 0);
    float frequency[256], *w = uniforms((size_t)dim, 4, 1.5f), *q = hard_rows(ROWS, HEADS * dim, 30);
    const int rotated = ek_rope_frequencies(frequency, dim, 10000, partial, 1);
    const size_t bytes = sizeof(float) * (size_t)(ROWS * HEADS * dim), table = sizeof(float) * (size_t)(ROWS * rotated);
    float *cs = malloc(table), *sn = malloc(table);
    for (int r = 0; r < ROWS; r++) ek_rope_row(cs + r * rotated, sn + r * rotated, frequency, rotated, r * 7919);
    CUdeviceptr dq = up(d, q, bytes), dw = up(d, w, sizeof(float) * (size_t)dim), dc = up(d, cs, table),
                ds = up(d, sn, table);
    const ek_cuda_heads_args a = {
        .q = dq,
        .ldq = HEADS * dim,
        .head = {.norm = dw, .cos = dc, .sin = ds, .ld_table = rotated, .eps = 1e-6f, .rotated = rotated},
        .head_dim = dim};
    ek_cuda_kernel kernel = find(d, "ek_heads", 0);
    launch(d, &kernel, (ek_cuda_grid){.x = HEADS, .y = ROWS, .threads = 128}, &a);
    for (int i = 0; i < ROWS * HEADS; i++) {
        const int r = i / HEADS;
        ops.rms_norm(q + i * dim, q + i * dim, w, dim, 1e-6f);
        ops.rope(q + i * dim, cs + r * rotated, sn + r * rotated, dim / 2, rotated);
    }
    same(d, q, down(d, dq, bytes), bytes, true, "queries of %d, %d pairs rotated", dim, rotated);
    drop(d, dq), drop(d, dw), drop(d, dc), drop(d, ds);
    free(w), free(q), free(cs), free(sn);
}

static void test_inputs_of_layers(dev *d, int size, int layers)
{
    ek_row_ops ops;
    ek_row_init(&ops, 0);
    const int n = size * layers;
    const size_t bytes = sizeof(float) * (size_t)n * ROWS;
    float *ctx = hard_rows(ROWS, n, 11), *temp = hard_rows(ROWS, n, 12), *w = uniforms((size_t)size, 5, 1.5f);
    CUdeviceptr dc = up(d, ctx, bytes), dt = up(d, temp, bytes), dw = up(d, w, sizeof(float) * (size_t)size);
    const ek_cuda_per_layer_args a = {.ctx = dc,
                                      .temp = dt,
                                      .w = dw,
                                      .ld_ctx = n,
                                      .ld_temp = n,
                                      .eps = 1e-6f,
                                      .ctx_scale = 0.0255155f,
                                      .temp_scale = 16,
                                      .sum_scale = 0.70710677f,
                                      .size = size};
    ek_cuda_kernel kernel = find(d, "ek_per_layer", sizeof(float) * (size_t)size);
    launch(d, &kernel,
           (ek_cuda_grid){
               .x = (unsigned)layers, .y = ROWS, .threads = 128, .shared = (unsigned)(sizeof(float) * (size_t)size)},
           &a);
    for (int r = 0; r < ROWS; r++) {
        ops.scale(ctx + r * n, a.ctx_scale, n), ops.scale(temp + r * n, a.temp_scale, n);
        for (int i = 0; i < layers; i++) {
            float *at = ctx + r * n + i * size;
            ops.rms_norm(at, at, w, size, a.eps);
        }
        ops.add_scale(ctx + r * n, ctx + r * n, temp + r * n, a.sum_scale, n);
    }
    same(d, ctx, down(d, dc, bytes), bytes, true, "inputs of %d layers of %d", layers, size);
    drop(d, dc), drop(d, dt), drop(d, dw);
    free(ctx), free(temp), free(w);
}

/* ek_pack_q, of forms whose panels are not planes: every byte against device_pack. */
static void check_packing(dev *d, const ek_linear *w, const ek_cuda_linear *l, const uint8_t *packed)
{
    CUdeviceptr from = up(d, w->data, w->bytes), to = up(d, packed, l->bytes);
    must(ek_cuda_fill(d->c, to, 0xff, l->code_bytes));
    const ek_cuda_pack_args a = {.from = from,
                                 .codes = to,
                                 .scales = to + l->code_bytes,
                                 .panel_bytes = (int64_t)w->panel_bytes,
                                 .group_bytes = (int64_t)ek_linear_group_bytes(w),
                                 .k = l->k,
                                 .units = l->units,
                                 .group = l->group,
                                 .a_group = l->a_group,
                                 .bits = l->bits,
                                 .scale_bytes = l->f32_scales ? 4 : 2,
                                 .biased = l->biased};
    ek_cuda_kernel kernel = find(d, "ek_pack_q", 0);
    launch(d, &kernel, (ek_cuda_grid){.x = (unsigned)l->units, .y = (unsigned)l->n_panels, .threads = 32}, &a);
    same(d, packed, down(d, to, l->bytes), l->bytes, false, "panels of %d bits in groups of %d", l->bits, l->group);
    drop(d, from), drop(d, to);
}

static void test_embedding(dev *d, shape s)
{
    ek_linear w;
    ek_cuda_linear l;
    open_weights(&w, &s, 9);
    must(ek_cuda_linear_plan(&l, &w));
    uint8_t *packed = calloc(1, l.bytes);
    device_pack_for(ek_cuda_chip_of(d->c), &l, &w, packed);
    if (s.bits) check_packing(d, &w, &l, packed);
    const int32_t id[ROWS] = {0, s.n - 1, 17, -1, EK_CUDA_DRAWN - 1, 16, 15, 33, EK_CUDA_DRAWN}, token[2] = {-1, 5};
    const size_t bytes = sizeof(float) * (size_t)s.k * ROWS;
    float *want = malloc(bytes);
    memset(want, 0xff, bytes); /* as up leaves it */
    CUdeviceptr dw = up(d, packed, l.bytes), di = up(d, id, sizeof id), dt = up(d, token, sizeof token),
                dh = up(d, NULL, bytes);
    ek_cuda_linear_args of = {0};
    ek_cuda_linear_args_of(&of, &l, dw);
    const ek_cuda_embed_args a = {.h = dh,
                                  .id = di,
                                  .token = dt,
                                  .codes = of.codes,
                                  .scales = of.scales,
                                  .ldh = s.k,
                                  .factor = 39.25f,
                                  .n = s.k,
                                  .rows = l.n,
                                  .k = l.k,
                                  .form = l.form == EK_W_F32    ? 0
                                          : l.form == EK_W_F16  ? 1
                                          : l.form == EK_W_BF16 ? 2
                                                                : 3,
                                  .bits = l.bits,
                                  .a_group = l.a_group,
                                  .group_shift = of.group_shift,
                                  .zero = l.zero,
                                  .biased = l.biased,
                                  .f32_scales = l.f32_scales,
                                  .f16_scales = l.f16_scales};
    ek_cuda_kernel kernel = find(d, "ek_embed", 0);
    launch(d, &kernel, (ek_cuda_grid){.x = (unsigned)(s.k + 255) / 256, .y = ROWS, .threads = 256}, &a);
    for (int r = 0; r < ROWS; r++) {
        if (id[r] == -1) continue;
        const int drawn = id[r] <= EK_CUDA_DRAWN ? token[EK_CUDA_DRAWN - id[r]] : id[r];
        ek_linear_row(&w, drawn < 0 ? 0 : drawn, want + r * s.k);
        for (int i = 0; i < s.k; i++) want[r * s.k + i] *= a.factor;
    }
    same(d, want, down(d, dh, bytes), bytes, true, "embedding of %d bits, groups of %d", s.bits, s.group);
    drop(d, dw), drop(d, di), drop(d, dt), drop(d, dh);
    free(packed), free(want), free(w.data);
}

static void test_gathered(dev *d, int n)
{
    const size_t bytes = sizeof(float) * (size_t)n * ROWS;
    float *x = hard_rows(ROWS, n, 60), *want = malloc(bytes);
    int32_t index[ROWS];
    for (int r = 0; r < ROWS; r++)
        index[r] = (r * 5 + 3) % ROWS, memcpy(want + r * n, x + index[r] * n, sizeof(float) * (size_t)n);
    CUdeviceptr dx = up(d, x, bytes), di = up(d, index, sizeof index), dy = up(d, NULL, bytes);
    const ek_cuda_gather_args a = {.y = dy, .x = dx, .index = di, .ldy = n, .ldx = n, .n = n};
    ek_cuda_kernel kernel = find(d, "ek_gather", 0);
    launch(d, &kernel, (ek_cuda_grid){.x = (unsigned)(n + 1023) / 1024, .y = ROWS, .threads = 256}, &a);
    same(d, want, down(d, dy, bytes), bytes, false, "gathered rows of %d", n);
    drop(d, dx), drop(d, di), drop(d, dy);
    free(x), free(want);
}

/* Logits with a cap: their bits, and which rows hold what is no number. */
static void test_capped(dev *d, int n, float cap)
{
    ek_row_ops ops;
    ek_row_init(&ops, 0);
    const size_t bytes = sizeof(float) * (size_t)n * ROWS;
    float *x = hard_rows(ROWS, n, 80);
    int32_t bad[ROWS] = {0};
    CUdeviceptr dx = up(d, x, bytes), db = up(d, bad, sizeof bad);
    const ek_cuda_cap_args a = {.x = dx, .bad = db, .ld = n, .cap = cap, .n = n};
    ek_cuda_kernel kernel = find(d, "ek_soft_cap_check", 0);
    launch(d, &kernel, (ek_cuda_grid){.x = 3, .y = ROWS, .threads = 256}, &a);
    for (int r = 0; r < ROWS; r++) {
        if (cap != 0) ops.soft_cap(x + r * n, cap, n);
        for (int i = 0; i < n; i++) bad[r] |= !isfinite(x[r * n + i]);
    }
    same(d, x, down(d, dx, bytes), bytes, true, "%d logits with cap %g", n, (double)cap);
    same(d, bad, down(d, db, sizeof bad), sizeof bad, false, "%d logits: rows that are none", n);
    drop(d, dx), drop(d, db);
    free(x);
}

void test_pass(dev *d)
{
    /* first a width of each kernel that a Vulkan device has */
    static const int hidden[] = {256, 5376, 2560, 1536, 2816, 3840}, dims[] = {64, 128, 256, 512, 36};
    for (size_t i = 0; i < (size_t)cases(d, 2, 3, 6); i++)
        for (unsigned parts = 0; parts < 32; parts += (unsigned)cases(d, 11, 5, 1))
            test_stage(d, hidden[i], parts % 3 ? 64 : 32, parts);
    for (size_t i = 0; i < (size_t)cases(d, 2, 3, 6); i++)
        for (int group = 0; group <= 64; group += 32) test_gates(d, hidden[i], group);
    for (size_t i = 0; i < (size_t)cases(d, 3, 5, 5); i++) test_queries(d, dims[i], 1), test_queries(d, dims[i], 0.25);
    test_inputs_of_layers(d, 256, 5), test_inputs_of_layers(d, 64, 3);
    const shape tables[] = {{70, 256, 4, 64, 64, 1, EK_BF16, true}, {70, 256, 8, 32, 32, 2, EK_F32, false},
                            {70, 256, 8, 64, 64, 2, EK_BF16, true}, {70, 300, 0, 0, 0, 0, EK_BF16, false},
                            {70, 300, 0, 0, 0, 0, EK_F32, false},   {70, 300, 0, 0, 0, 0, EK_F16, false}};
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) test_embedding(d, tables[i]);
    test_gathered(d, 1536), test_gathered(d, 100);
    test_capped(d, 1000, 30), test_capped(d, 333, 0);
}
