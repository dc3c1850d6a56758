/* The kernels of towers of sounds, and of pictures without a tower: windows, norms, convolutions along time against
 * ops/rows/rows.h, attention against ops/attn/attn_near.h, all by the scalar kernels. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/tower_args.h"
#include "dev.h"
#include "ops/attn/attn_near.h"
#include "ops/rows/rows.h"

static void test_near(dev *d, int heads, int dim, int span, int rows, bool odd)
{
    enum { Q, K, V };
    static const float clip[3][2] = {{-0.9f, 0.8f}, {-0.7f, INFINITY}, {-0.5f, 0.6f}}, out[2] = {-0.3f, 0.25f};
    const int width = heads * dim, ld = 3 * width;
    const size_t n = (size_t)rows * (size_t)width;
    float *qkv = uniforms(3 * n, 1, 1), *rel = uniforms((size_t)(span * width), 2, 1),
          *scale = uniforms((size_t)width, 3, 1);
    float *want = malloc(n * 4), *part[3];
    if (odd) qkv[(size_t)(rows / 2) * (size_t)ld + (size_t)width] = NAN;
    const CUdeviceptr at = up(d, qkv, 3 * n * 4), dr = up(d, rel, (size_t)(span * width) * 4),
                      ds = up(d, scale, (size_t)width * 4), dout = up(d, NULL, n * 4);
    ek_cuda_near_args a = {.o = dout,
                           .q = at,
                           .k = at + 4 * (CUdeviceptr)width,
                           .v = at + 8 * (CUdeviceptr)width,
                           .rel = dr,
                           .q_scale = ds,
                           .ldo = width,
                           .ld = ld,
                           .o_clip = {out[0], out[1]},
                           .k_scale = 1.75f,
                           .cap = 5,
                           .heads = heads,
                           .dim = dim,
                           .span = span,
                           .rows = rows};
    memcpy(a.q_clip, clip[Q], 8), memcpy(a.k_clip, clip[K], 8), memcpy(a.v_clip, clip[V], 8);
    ek_cuda_kernel kernel = find(d, "ek_attn_near", EK_CUDA_NEAR_SHARED(span));
    launch(d, &kernel,
           (ek_cuda_grid){.x = (unsigned)((rows + EK_CUDA_NEAR_QUERIES - 1) / EK_CUDA_NEAR_QUERIES),
                          .y = (unsigned)heads,
                          .threads = EK_CUDA_NEAR_QUERIES * 16,
                          .shared = EK_CUDA_NEAR_SHARED(span)},
           &a);
    ek_row_ops ops;
    ek_row_init(&ops, 0);
    for (int i = 0; i < 3; i++) part[i] = malloc(n * 4);
    for (int r = 0; r < rows; r++)
        for (int i = 0; i < 3; i++) {
            float *to = part[i] + r * width;
            ops.clamp(to, qkv + r * ld + i * width, clip[i][0], clip[i][1], width);
            if (i == Q) ops.mul(to, scale, width);
            if (i == K) ops.scale(to, 1.75f, width);
        }
    const ek_near near = {heads, dim, span, 5, rel};
    for (int r = 0; r < rows; r++)
        ek_near_choose(0)(&near, want + r * width, part[Q] + r * width, part[K], part[V], width, r);
    ops.clamp(want, want, out[0], out[1], (int)n);
    same(d, want, down(d, dout, n * 4), n * 4, odd, "near attention, %d heads of %d, %d keys, %d rows", heads, dim,
         span, rows);
    drop(d, at), drop(d, dr), drop(d, ds), drop(d, dout);
    free(qkv), free(rel), free(scale), free(want), free(part[0]), free(part[1]), free(part[2]);
}

static void test_windows(dev *d, int rows, int cols, int channels)
{
    const int out_rows = (rows + 1) / 2, each = 9 * channels, per_row = cols / 2 * each;
    float *x = uniforms((size_t)(rows * cols * channels), 1, 1), *want = calloc((size_t)(out_rows * per_row), 4);
    for (int t = 0; t < out_rows; t++)
        for (int at = 0; at < per_row; at++) {
            const int r = 2 * t + at % each / channels / 3 - 1, c = 2 * (at / each) + at % each / channels % 3 - 1;
            if (r >= 0 && r < rows && c >= 0 && c < cols)
                want[t * per_row + at] = x[(r * cols + c) * channels + at % channels];
        }
    const size_t bytes = (size_t)(out_rows * per_row) * 4;
    const CUdeviceptr dx = up(d, x, (size_t)(rows * cols * channels) * 4), dy = up(d, NULL, bytes);
    const ek_cuda_tower_windows_args a = {.y = dy, .x = dx, .rows = rows, .cols = cols, .channels = channels};
    ek_cuda_kernel kernel = find(d, "ek_tower_windows", 0);
    launch(d, &kernel, (ek_cuda_grid){.x = (unsigned)(per_row + 1023) / 1024, .y = (unsigned)out_rows, .threads = 256},
           &a);
    same(d, want, down(d, dy, bytes), bytes, false, "windows of %d x %d x %d", rows, cols, channels);
    drop(d, dx), drop(d, dy);
    free(x), free(want);
}

/* what: bits; a row of everything that there is to be asked for */
enum { BIAS = 1, ONE = 2, PLACE = 4, TWO = 8, RMS = 16, NO_SHIFT = 32 };

static void test_norms(dev *d, int n, int rows, unsigned what)
{
    enum { ACROSS = 3 };
    const size_t all = (size_t)n * (size_t)rows, bytes = all * 4;
    const CUdeviceptr step = 4 * (CUdeviceptr)n;
    float *x = uniforms(all, 1, 3), *v = uniforms((size_t)n * 5, 2, 1), *place = uniforms((size_t)n * ACROSS * 4, 3, 1);
    float *sum = malloc((size_t)n * 4);
    const CUdeviceptr dx = up(d, x, bytes), dv = up(d, v, (size_t)n * 20), dp = up(d, place, (size_t)n * ACROSS * 16);
    ek_cuda_tower_norms_args a = {.y = dx,
                                  .x = dx,
                                  .bias = what & BIAS ? dv : 0,
                                  .w = {dv + step, dv + 3 * step},
                                  .b = {what & NO_SHIFT ? 0 : dv + 2 * step, dv + 4 * step},
                                  .ldy = n,
                                  .ldx = n,
                                  .clip = {0, 2},
                                  .ln_eps = 1e-5f,
                                  .eps = 1e-6f,
                                  .n = n,
                                  .across = ACROSS,
                                  .layer_norms = what & TWO   ? 2
                                                 : what & ONE ? 1
                                                              : 0,
                                  .rms = (what & RMS) != 0};
    if (what & PLACE) a.column = dp, a.line = dp + ACROSS * step;
    ek_cuda_kernel kernel = find(d, "ek_tower_norms", 0);
    launch(d, &kernel, (ek_cuda_grid){.x = (unsigned)rows, .threads = (unsigned)(n + 255) / 256 * 32}, &a);
    ek_row_ops ops;
    ek_row_init(&ops, 0);
    for (int r = 0; r < rows; r++) {
        float *to = x + (size_t)r * (size_t)n;
        if (what & BIAS) ops.add(to, v, n);
        if (what & (ONE | TWO)) ops.layer_norm(to, to, v + n, what & NO_SHIFT ? NULL : v + 2 * n, n, 1e-5f);
        if (what & PLACE) {
            memcpy(sum, place + (size_t)(r % ACROSS) * (size_t)n, (size_t)n * 4);
            ops.add(sum, place + (size_t)(ACROSS + r / ACROSS) * (size_t)n, n);
            ops.add(to, sum, n);
        }
        if (what & TWO) ops.layer_norm(to, to, v + 3 * n, v + 4 * n, n, 1e-5f);
        if (what & RMS) ops.rms_norm(to, to, NULL, n, 1e-6f);
        ops.clamp(to, to, 0, 2, n);
    }
    same(d, x, down(d, dx, bytes), bytes, false, "norms 0x%x of %d elements", what, n);
    drop(d, dx), drop(d, dv), drop(d, dp);
    free(x), free(v), free(place), free(sum);
}

static void test_taps(dev *d, int n, int taps, int rows)
{
    const size_t bytes = (size_t)n * (size_t)rows * 4;
    const float limit = 0.5f;
    float *x = uniforms((size_t)(n * rows), 1, 1), *w = uniforms((size_t)(n * (taps + 1)), 2, 1),
          *want = calloc(bytes, 1);
    const CUdeviceptr dx = up(d, x, bytes), dy = up(d, NULL, bytes), dw = up(d, w, (size_t)(n * (taps + 1)) * 4);
    const ek_cuda_tower_taps_args a = {.y = dy,
                                       .x = dx,
                                       .tap = dw + 4 * (CUdeviceptr)n,
                                       .norm = dw,
                                       .ld = n,
                                       .clip = {-0.2f, 0.9f},
                                       .limit = limit,
                                       .eps = 1e-6f,
                                       .n = n,
                                       .taps = taps};
    ek_cuda_kernel kernel = find(d, "ek_tower_taps", 0);
    launch(d, &kernel, (ek_cuda_grid){.x = (unsigned)rows, .threads = (unsigned)(n + 255) / 256 * 32}, &a);
    ek_row_ops ops;
    ek_row_init(&ops, 0);
    for (int r = 0; r < rows; r++) {
        float *y = want + r * n;
        for (int j = 0; j < taps; j++)
            if (r - taps + 1 + j >= 0) ops.mul_add(y, w + (j + 1) * n, x + (r - taps + 1 + j) * n, n);
        ops.clamp(y, y, -limit, limit, n);
        ops.rms_norm(y, y, w, n, 1e-6f);
        ops.sigmoid_mul(y, y, y, n);
        ops.clamp(y, y, -0.2f, 0.9f, n);
    }
    same(d, want, down(d, dy, bytes), bytes, false, "%d taps of %d channels, %d rows", taps, n, rows);
    drop(d, dx), drop(d, dy), drop(d, dw);
    free(x), free(w), free(want);
}

void test_sounds(dev *d)
{
    test_near(d, 8, 128, 12, 29, false), test_near(d, 3, 20, 5, 33, true);
    if (!d->few) test_near(d, 1, 256, 256, 40, false), test_near(d, 2, 7, 1, 3, false), test_near(d, 4, 8, 12, 1, true);
    test_windows(d, 9, 128, 1), test_windows(d, 5, 8, 37);
    if (!d->few) test_windows(d, 7, 64, 128), test_windows(d, 1, 2, 1);
    test_norms(d, 3840, 7, BIAS | TWO | PLACE | RMS), test_norms(d, 128, 9, ONE | NO_SHIFT);
    if (!d->few) test_norms(d, 6912, 4, ONE), test_norms(d, 37, 5, BIAS | RMS), test_norms(d, 32, 5, ONE | NO_SHIFT);
    test_taps(d, 1024, 5, 9), test_taps(d, 40, 3, 2);
    if (!d->few) test_taps(d, 300, 64, 70), test_taps(d, 32, 1, 3);
}
