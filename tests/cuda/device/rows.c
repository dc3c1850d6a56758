/* math and row operators: every kernel against ops/math.c and ops/rows/rows.c. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/model_args.h"
#include "dev.h"
#include "engine/sample/sampler.h"
#include "ops/math.h"
#include "ops/rows/rows.h"
#include "ops/tree.h"
#include "tensor/dtype.h"

void test_math(dev *d)
{
    const uint32_t step = d->quick ? 1000003 : 1021;
    const size_t n = (size_t)(0x100000000ull / step) + 64;
    float *x = malloc(n * 4), *want = malloc(n * 4);
    int32_t *want_n = malloc(n * 4);
    for (size_t i = 0; i < n; i++) x[i] = ek_bits_f32((uint32_t)(i * step));
    for (int i = 0; i < 64; i++) { /* the edges of ranges, and next to them */
        static const float edge[] = {0, 0x1p-126f, 0x1p-149f, 1, 9, 0.625f, 88.72f, -103.97f, 0x1p20f, 0x1p23f};
        uint32_t u = ek_f32_bits(edge[i % 10]) + (uint32_t)(i / 10 - 3);
        x[n - 64 + (size_t)i] = ek_bits_f32(i % 2 ? u : u ^ 0x80000000u);
    }
    CUdeviceptr dx = up(d, x, n * 4), dy = up(d, NULL, n * 4), dn = up(d, NULL, n * 4);
    ek_cuda_kernel k = find(d, "ek_math", 0);
    for (int which = 0; which < 5; which++) {
        ek_cuda_math_args a = {.x = dx, .y = dy, .n_out = dn, .n = (int64_t)n, .which = which};
        launch(d, &k, (ek_cuda_grid){.x = 1024, .threads = 256}, &a);
        for (size_t i = 0; i < n; i++)
            want[i] = which == 0   ? ek_exp_split(x[i], &want_n[i])
                      : which == 1 ? ek_exp(x[i])
                      : which == 2 ? ek_tanh(x[i])
                      : which == 3 ? ek_ln(x[i])
                                   : ek_gelu_tanh(x[i]);
        same(d, want, down(d, dy, n * 4), n * 4, true, "math %d", which);
        if (which == 0) same(d, want_n, down(d, dn, n * 4), n * 4, false, "exponent of the split");
    }
    drop(d, dx), drop(d, dy), drop(d, dn);
    free(x), free(want), free(want_n);
}

enum { ROWS = 3 };

static float row_sum(const float *x, int n)
{
    ek_tree t = {.count = 0};
    for (int b = 0; b < n; b += 256) {
        float lane[16] = {0};
        for (int i = b; i < n && i < b + 256; i++) lane[i % 16] += x[i];
        for (int apart = 8; apart; apart /= 2)
            for (int l = 0; l < apart; l++) lane[l] += lane[l + apart];
        ek_tree_push(&t, lane[0]);
    }
    return ek_tree_sum(&t);
}

static void fill(float *x, size_t n, uint64_t seed)
{
    for (size_t i = 0; i < n; i++) x[i] = uniform(seed, i) * exp2f((float)(int)(uniform(seed + 1, i) * 8));
}

typedef void cpu_fn(const ek_row_ops *ops, float *y, const float *x, const float *w, float a, int n);

static void cpu_norm(const ek_row_ops *o, float *y, const float *x, const float *w, float a, int n)
{
    o->rms_norm(y, x, w, n, a);
}
static void cpu_add(const ek_row_ops *o, float *y, const float *x, const float *w, float a, int n)
{
    (void)w, (void)a;
    o->add(y, x, n);
}
static void cpu_scale(const ek_row_ops *o, float *y, const float *x, const float *w, float a, int n)
{
    (void)w, (void)x;
    o->scale(y, a, n);
}
static void cpu_gelu(const ek_row_ops *o, float *y, const float *x, const float *w, float a, int n)
{
    (void)a;
    o->gelu_mul(y, x, w, n);
}
static void cpu_cap(const ek_row_ops *o, float *y, const float *x, const float *w, float a, int n)
{
    (void)w, (void)x;
    o->soft_cap(y, a, n);
}
static void cpu_axpy(const ek_row_ops *o, float *y, const float *x, const float *w, float a, int n)
{
    (void)w;
    o->axpy(y, a, x, n);
}
static void cpu_add_scale(const ek_row_ops *o, float *y, const float *x, const float *w, float a, int n)
{
    o->add_scale(y, x, w, a, n);
}

static void elementwise(dev *d, const ek_row_ops *ops, int n)
{
    static const struct {
        const char *kernel;
        cpu_fn *cpu;
        float a;
        bool w, reduces;
    } op[] = {{"ek_rms_norm", cpu_norm, 1e-6f, true, true}, {"ek_rms_norm", cpu_norm, 1e-6f, false, true},
              {"ek_add", cpu_add, 0, false, false},         {"ek_scale", cpu_scale, 39.19f, false, false},
              {"ek_gelu_mul", cpu_gelu, 0, true, false},    {"ek_soft_cap", cpu_cap, 30, false, false},
              {"ek_axpy", cpu_axpy, 0.37f, false, false},   {"ek_add_scale", cpu_add_scale, 0.7071f, true, false}};
    const int ld = n + 5;
    const size_t bytes = (size_t)(ROWS * ld) * 4;
    float *x = malloc(bytes), *y = malloc(bytes), *w = malloc(bytes), *want = malloc(bytes);
    fill(x, bytes / 4, 1), fill(y, bytes / 4, 2), fill(w, bytes / 4, 3);
    CUdeviceptr dx = up(d, x, bytes), dw = up(d, w, bytes);
    for (size_t i = 0; i < sizeof op / sizeof *op; i++) {
        CUdeviceptr dy = up(d, y, bytes);
        ek_cuda_kernel k = find(d, op[i].kernel, 0);
        bool shared_w = op[i].reduces;
        ek_cuda_rows_args a = {.y = dy,
                               .x = dx,
                               .w = op[i].w ? dw : 0,
                               .ldy = ld,
                               .ldx = ld,
                               .ldw = shared_w ? 0 : ld,
                               .a = op[i].a,
                               .n = n};
        launch(d, &k,
               op[i].reduces ? (ek_cuda_grid){.x = ROWS, .threads = 256}
                             : (ek_cuda_grid){.x = 2, .y = ROWS, .threads = 256},
               &a);
        memcpy(want, y, bytes);
        for (int r = 0; r < ROWS; r++)
            op[i].cpu(ops, want + r * ld, x + r * ld, op[i].w ? w + (shared_w ? 0 : r * ld) : NULL, op[i].a, n);
        same(d, want, down(d, dy, bytes), bytes, true, "%s %zu n %d", op[i].kernel, i, n);
        drop(d, dy);
    }
    drop(d, dx), drop(d, dw);
    free(x), free(y), free(w), free(want);
}

static void reductions(dev *d, const ek_row_ops *ops, int n)
{
    const size_t bytes = (size_t)(ROWS * n) * 4;
    float *x = malloc(bytes), want_sum[ROWS], want_exp[ROWS];
    int32_t want[ROWS];
    fill(x, bytes / 4, 7);
    for (int i = 0; i < n; i++) x[i] = floorf(x[i] * 0.02f);            /* many ties, and -0 */
    for (int i = 0; i < n; i += 3) x[n + i] = NAN;                      /* never wins */
    for (int i = 0; i < n; i++) x[2 * n + i] = i % 2 ? -INFINITY : NAN; /* nobody wins */
    if (n > 20) x[n + 17] = -0.0f;
    CUdeviceptr dx = up(d, x, bytes), out = up(d, NULL, 64), key = up(d, NULL, 64 * ROWS);
    ek_cuda_reduce_args a = {.out = out, .x = dx, .key = key, .ldx = n, .n = n};
    for (int r = 0; r < ROWS; r++) want[r] = ops->argmax(x + r * n, n);
    for (unsigned blocks = 1; blocks <= 9; blocks += 8) {
        must(ek_cuda_fill(d->c, key, 0, 64 * ROWS));
        ek_cuda_kernel k = find(d, "ek_argmax", 0);
        launch(d, &k, (ek_cuda_grid){.x = blocks, .y = ROWS, .threads = 256}, &a);
        same(d, want, down(d, out, sizeof want), sizeof want, false, "argmax n %d, %u blocks", n, blocks);
    }
    fill(x, bytes / 4, 8);
    must(ek_cuda_upload(d->c, dx, x, bytes));
    a.a = 70;
    for (int r = 0; r < ROWS; r++) want_sum[r] = row_sum(x + r * n, n), want_exp[r] = ops->sum_exp(x + r * n, n, a.a);
    ek_cuda_kernel sum = find(d, "ek_row_sum", 0), es = find(d, "ek_exp_sum", 0);
    launch(d, &sum, (ek_cuda_grid){.x = ROWS, .threads = 256}, &a);
    same(d, want_sum, down(d, out, sizeof want_sum), sizeof want_sum, true, "row sum n %d", n);
    launch(d, &es, (ek_cuda_grid){.x = ROWS, .threads = 256}, &a);
    same(d, want_exp, down(d, out, sizeof want_exp), sizeof want_exp, true, "sum of exp n %d", n);
    drop(d, dx), drop(d, out), drop(d, key);
    free(x);
}

/* The head's end: soft cap, rows that are not finite, digests, with any number of blocks. */
static void logits(dev *d, const ek_row_ops *ops, int n, float cap)
{
    const size_t bytes = (size_t)(ROWS * n) * 4;
    float *x = malloc(bytes), *want = malloc(bytes);
    uint64_t digest[ROWS] = {0}, zero[ROWS] = {0};
    int32_t bad[ROWS] = {0};
    fill(x, bytes / 4, 9);
    x[n - 1] = cap ? NAN : INFINITY;
    memcpy(want, x, bytes);
    for (int r = 0; r < ROWS; r++) {
        if (cap) ops->soft_cap(want + r * n, cap, n);
        bad[r] = r == 0;
        digest[r] = ek_logits_digest(want + r * n, n);
    }
    for (unsigned blocks = 1; blocks <= 32; blocks *= 4) {
        CUdeviceptr dx = up(d, x, bytes), db = up(d, zero, sizeof bad), dd = up(d, zero, sizeof zero);
        ek_cuda_kernel k = find(d, "ek_soft_cap_check", 0);
        ek_cuda_cap_args a = {.x = dx, .bad = db, .digest = dd, .ld = n, .cap = cap, .n = n};
        launch(d, &k, (ek_cuda_grid){.x = blocks, .y = ROWS, .threads = 256}, &a);
        same(d, want, down(d, dx, bytes), bytes, true, "logits n %d cap %g", n, (double)cap);
        same(d, bad, down(d, db, sizeof bad), sizeof bad, false, "rows not finite n %d cap %g", n, (double)cap);
        uint64_t *got = down(d, dd, sizeof zero);
        got[0] = digest[0]; /* of a NaN, whose payload is the machine's */
        same(d, digest, got, sizeof digest, false, "digests n %d cap %g, %u blocks", n, (double)cap, blocks);
        drop(d, dx), drop(d, db), drop(d, dd);
    }
    free(x), free(want);
}

static void rope(dev *d, const ek_row_ops *ops, int heads, int dim, double partial)
{
    float f[256], cs[ROWS * 256], sn[ROWS * 256];
    int rotated = ek_rope_frequencies(f, dim, 10000, partial, 1), ld = heads * dim + 3;
    size_t bytes = (size_t)(ROWS * ld) * 4, table = (size_t)(ROWS * rotated) * 4;
    float *x = malloc(bytes);
    fill(x, bytes / 4, 9);
    for (int r = 0; r < ROWS; r++) ek_rope_row(cs + r * rotated, sn + r * rotated, f, rotated, 1000 * r + 77);
    CUdeviceptr dx = up(d, x, bytes), dc = up(d, cs, table), ds = up(d, sn, table);
    ek_cuda_rope_args a = {.x = dx,
                           .cos = dc,
                           .sin = ds,
                           .ldx = ld,
                           .ld_table = rotated,
                           .n_heads = heads,
                           .head_dim = dim,
                           .half = dim / 2,
                           .rotated = rotated};
    ek_cuda_kernel k = find(d, "ek_rope", 0);
    launch(d, &k, (ek_cuda_grid){.x = 2, .y = ROWS, .threads = 256}, &a);
    for (int r = 0; r < ROWS; r++)
        for (int h = 0; h < heads; h++)
            ops->rope(x + r * ld + h * dim, cs + r * rotated, sn + r * rotated, dim / 2, rotated);
    same(d, x, down(d, dx, bytes), bytes, true, "rope %d heads of %d, %d pairs", heads, dim, rotated);
    drop(d, dx), drop(d, dc), drop(d, ds);
    free(x);
}

void test_rows(dev *d)
{
    static const int lengths[] = {1, 15, 16, 17, 255, 256, 257, 300, 512, 1000, 1536, 2816, 5376, 21504, 262144};
    ek_row_ops ops;
    ek_row_init(&ops, 0);
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        if (d->quick && lengths[i] > 1536) break;
        elementwise(d, &ops, lengths[i]);
        reductions(d, &ops, lengths[i]);
        logits(d, &ops, lengths[i], i % 2 ? 30 : 0);
    }
    rope(d, &ops, 8, 256, 1);
    rope(d, &ops, 2, 512, 0.25);
    rope(d, &ops, 3, 64, 1);
}
