/* Quantised products over the grid of MLX's own tests, against float64, with its tolerances.
 * In every case also: rows taken alone, and packed weights, have the same bits. Started with
 * "all" it walks the whole grid; else the cases marked below are thinned. */
/* tier: all */
#include <math.h>

#include "ref.h"

static const int GROUPS[] = {128, 64, 32};
static const ek_quant_mode FP[] = {EK_MXFP4, EK_NVFP4, EK_MXFP8};

static int fp_bits(ek_quant_mode m)
{
    return m == EK_MXFP8 ? 8 : 4;
}

static int fp_group(ek_quant_mode m)
{
    return m == EK_NVFP4 ? 16 : 32;
}

static long n_cases;

/* Every n-th case only, unless all are wanted; n shares no factor with the loops around it. */
static bool thinned(int n)
{
    static long number;
    return !ref_all && number++ % n != 0;
}

static ek_view result(const ek_view *x, const ek_view *w, bool transpose, ek_type t)
{
    ek_view y = {.n_dims = x->n_dims};
    const ek_view *deep = x->n_dims >= w->n_dims ? x : w;
    y.n_dims = deep->n_dims;
    for (int d = 0; d < y.n_dims - 2; d++) {
        int xd = d - (y.n_dims - x->n_dims), wd = d - (y.n_dims - w->n_dims);
        int64_t a = xd >= 0 ? x->dim[xd] : 1, b = wd >= 0 ? w->dim[wd] : 1;
        y.dim[d] = a > b ? a : b;
    }
    y.dim[y.n_dims - 2] = x->dim[x->n_dims - 2];
    y.dim[y.n_dims - 1] = w->dim[w->n_dims - (transpose ? 2 : 1)];
    return ref_like(&y, t);
}

/* w float [.., N, K] or [.., K, N]; tol as |y - want| <= tol + tol |want| where close is set. */
static void check(ek_quant_mode mode, int bits, int group, ek_view x, ek_view w, bool transpose, double tol, bool close)
{
    ek_qview q = ref_quantised(mode, bits, group, &w);
    ek_view values = ref_qvalues(&q), y = result(&x, &w, transpose, x.type);
    MUST(ek_quantized_matmul(y, x, &q, transpose, EK_EXACT));
    double *want = ref_matmul(&x, &values, transpose, &y);
    int m = (int)x.dim[x.n_dims - 2];
    n_cases++;
#define SHAPE                                                                                                      \
    "mode %d, %d bits, group %d, x [%d, %d], w [%d, %d], %s", (int)mode, bits, group, m, (int)x.dim[x.n_dims - 1], \
        (int)w.dim[w.n_dims - 2], (int)w.dim[w.n_dims - 1], transpose ? "T" : "NT"
    ref_close(&y, want, close ? tol : 0, tol, SHAPE);
    for (int r = 0; r < m; r += m < 5 ? 1 : m / 3) { /* rows alone */
        ek_view xr = ek_view_slice(x, -2, r, r + 1), yr = ek_view_slice(y, -2, r, r + 1), alone = ref_like(&yr, y.type);
        MUST(ek_quantized_matmul(alone, xr, &q, transpose, EK_EXACT));
        ref_same(&alone, &yr, SHAPE);
    }
    if (w.n_dims == 2) {
        ek_packed *p;
        ek_view again = ref_like(&y, y.type);
        MUST(ek_pack_quantized(&p, &q, transpose));
        MUST(ek_packed_matmul(again, x, p, EK_EXACT));
        ref_same(&y, &again, SHAPE);
        ek_packed_free(p);
    }
    ref_free_all();
}

static double over_root(int k)
{
    return 1 / sqrt(k);
}

static void test_qmm(void **state) /* whole */
{
    (void)state;
    static const int bits[] = {2, 4, 8}, ms[] = {8, 32, 33, 64}, ns[] = {128, 256}, ks[] = {128, 256};
    for (int g = 0; g < 3; g++)
        for (int b = 0; b < 3; b++)
            for (int m = 0; m < 4; m++)
                for (int n = 0; n < 2; n++)
                    for (int k = 0; k < 2; k++)
                        for (int t = 0; t < 2; t++)
                            for (ek_type type = EK_TYPE_F32; type <= EK_TYPE_F16; type++) {
                                if (type == EK_TYPE_F16 && thinned(5)) continue;
                                double s = over_root(ks[k]);
                                ek_view x = ref_normals(type, 1, s, 2, ms[m], ks[k]);
                                ek_view w = t ? ref_normals(type, 2, s, 2, ns[n], ks[k])
                                              : ref_normals(type, 2, s, 2, ks[k], ns[n]);
                                check(EK_AFFINE, bits[b], GROUPS[g], x, w, t, type == EK_TYPE_F32 ? 1e-3 : 1.5e-3,
                                      false);
                            }
}

static void test_large_dims(void **state) /* thinned: the two largest by rows of w */
{
    (void)state;
    static const int cases[][2] = {{16, 32840}, {32, 32840}, {33, 32840}, {33000, 64}};
    for (int i = 0; i < 4; i++) {
        if (!ref_all && (i == 0 || i == 1)) continue;
        ek_view x = ref_normals(EK_TYPE_F32, 1, over_root(128), 2, cases[i][0], 128);
        check(EK_AFFINE, 4, 64, x, ref_normals(EK_TYPE_F32, 2, over_root(128), 2, cases[i][1], 128), true, 1e-3, false);
    }
}

static void test_small_m_block(void **state)
{
    (void)state;
    double s = over_root(1024);
    check(EK_AFFINE, 4, 64, ref_normals(EK_TYPE_F16, 1, s, 3, 2, 14, 1024),
          ref_normals(EK_TYPE_F16, 2, s, 3, 2, 8256, 1024), true, 1e-3, false);
    check(EK_MXFP4, 4, 32, ref_normals(EK_TYPE_BF16, 1, s, 2, 14, 1024), ref_normals(EK_TYPE_BF16, 2, s, 2, 8256, 1024),
          true, 1e-3, false);
}

static void test_shapes(void **state)
{
    (void)state;
    for (int t = 0; t < 2; t++) {
        int rows = t ? 32 : 256;
        check(EK_AFFINE, 4, 64, ref_normals(EK_TYPE_F32, 1, 1, 2, 3, 256), ref_normals(EK_TYPE_F32, 2, 1, 2, rows, 256),
              t, 1e-3, false);
        check(EK_AFFINE, 4, 64, ref_normals(EK_TYPE_F32, 1, 1, 4, 2, 1, 7, 256),
              ref_normals(EK_TYPE_F32, 2, 1, 2, rows, 256), t, 1e-3, false);
    }
}

static void test_qmv(void **state) /* thinned to a fifth */
{
    (void)state;
    static const int bits[] = {2, 3, 4, 5, 6, 8}, ms[] = {256, 512, 67}, ns[] = {64, 256}, bs[] = {0, 1, 3, 8};
    for (int g = 0; g < 3; g++)
        for (int b = 0; b < 6; b++)
            for (int m = 0; m < 3; m++)
                for (int n = 0; n < 2; n++)
                    for (int c = 0; c < 4; c++) {
                        int N = ns[n], M = ms[m], B = bs[c];
                        if (GROUPS[g] > N || thinned(5)) continue;
                        ek_view x = ref_normals(EK_TYPE_F32, 1, over_root(N), 3, B ? B : 3, 1, N);
                        ek_view w = B ? ref_normals(EK_TYPE_F32, 2, over_root(N), 3, B, M, N)
                                      : ref_normals(EK_TYPE_F32, 2, over_root(N), 2, M, N);
                        check(EK_AFFINE, bits[b], GROUPS[g], x, w, true, 1e-3, false);
                    }
}

static void test_fp_qmv(void **state)
{
    (void)state;
    static const int ms[] = {256, 512, 67, 5, 7}, ns[] = {64, 256}, bs[] = {0, 1, 3, 8};
    for (int f = 0; f < 3; f++)
        for (int m = 0; m < 5; m++)
            for (int n = 0; n < 2; n++)
                for (int c = 0; c < 4; c++) {
                    int N = ns[n], M = ms[m], B = bs[c];
                    if (B == 8 && thinned(3)) continue; /* thinned */
                    ek_view x = ref_normals(EK_TYPE_F32, 1, 1, 3, B ? B : 3, 1, N);
                    ek_view w = B ? ref_normals(EK_TYPE_F32, 2, 1, 3, B, M, N)
                                  : ref_normals(EK_TYPE_F32, 2, 1, 2, M, N);
                    check(FP[f], fp_bits(FP[f]), fp_group(FP[f]), x, w, true, 1e-3, false);
                }
    check(EK_NVFP4, 4, 16, ref_normals(EK_TYPE_F32, 1, 1, 2, 1, 48), ref_normals(EK_TYPE_F32, 2, 1, 2, 128, 48), true,
          1e-3, false);
    for (int B = 1; B <= 2; B++)
        for (ek_type t = EK_TYPE_F32; t <= EK_TYPE_BF16; t++)
            check(EK_NVFP4, 4, 16, ref_normals(t, 1, over_root(512), 3, B, 1, 512),
                  ref_normals(t, 2, 1, 3, B, 4096, 512), true, t == EK_TYPE_BF16 ? 1e-2 : 1e-3, true);
}

static void test_wide(void **state) /* thinned to a seventh */
{
    (void)state;
    static const int gs[] = {32, 64, 128}, bits[] = {2, 3, 4, 5, 6, 8}, ks[] = {128, 512}, ms[] = {2, 3, 4, 5, 6, 7, 9},
                     ns[] = {256, 67};
    for (int mode = 0; mode < 6; mode++) /* 0..2: groups of the affine mode; 3..5: fp modes */
        for (int b = 0; b < (mode < 3 ? 6 : 1); b++)
            for (int k = 0; k < 2; k++)
                for (int m = 0; m < 7; m++)
                    for (int n = 0; n < 2; n++)
                        for (int B = 1; B <= 3; B += 2) {
                            if (thinned(7)) continue;
                            ek_quant_mode f = mode < 3 ? EK_AFFINE : FP[mode - 3];
                            ek_view x = ref_normals(EK_TYPE_F32, 1, 1, 3, B, ms[m], ks[k]);
                            ek_view w = B == 1 ? ref_normals(EK_TYPE_F32, 2, 1, 2, ns[n], ks[k])
                                               : ref_normals(EK_TYPE_F32, 2, 1, 3, B, ns[n], ks[k]);
                            check(f, mode < 3 ? bits[b] : fp_bits(f), mode < 3 ? gs[mode] : fp_group(f), x, w, true,
                                  1e-3, false);
                        }
}

static void test_small(void **state)
{
    (void)state;
    static const int tiny[][3] = {{2, 32, 10}, {4, 32, 7}, {3, 64, 5}, {5, 64, 3}, {1, 32, 3}, {1, 32, 5}};
    for (int i = 0; i < 6; i++)
        for (int b = 0; b < 3; b++) {
            int M = tiny[i][0], K = tiny[i][1], N = tiny[i][2];
            check(b == 2 ? EK_NVFP4 : EK_AFFINE, b == 1 ? 6 : 4, b == 2 ? 16 : 32,
                  ref_normals(EK_TYPE_F32, 1, 1, 2, M, K), ref_normals(EK_TYPE_F32, 2, 1, 2, N, K), true, 1e-3, false);
        }
    for (int shape = 0; shape < 3; shape++) { /* w [8, 256], [1, 8, 256], [3, 8, 256] */
        int ms[] = {1, 4, 10};
        for (int m = 0; m < 3; m++)
            for (int t = 0; t < 2; t++) {
                if (!t && ms[m] == 4) continue;
                ek_view x = ref_normals(EK_TYPE_F32, 1, 1, 3, 3, ms[m], t ? 256 : 8);
                ek_view w = shape == 0 ? ref_normals(EK_TYPE_F32, 2, 1, 2, 8, 256)
                                       : ref_normals(EK_TYPE_F32, 2, 1, 3, shape == 1 ? 1 : 3, 8, 256);
                check(EK_AFFINE, 4, 64, x, w, t, 1e-3, false);
            }
    }
    for (int rows = 3; rows <= 33; rows += 30)
        for (int m = 1; m <= 10; m += 9)
            for (int t = 0; t < 2; t++)
                check(EK_AFFINE, 4, 64, ref_normals(EK_TYPE_F32, 1, 1, 2, m, t ? 256 : rows),
                      ref_normals(EK_TYPE_F32, 2, 1, 2, rows, 256), t, 1e-3, false);
    check(EK_AFFINE, 4, 64, ref_normals(EK_TYPE_F32, 1, 1, 2, 129, 256), ref_normals(EK_TYPE_F32, 2, 1, 2, 99, 256),
          true, 1e-3, false);
}

/* ------------------------------------------------------------------ groups along the outputs */

static void test_qvm(void **state) /* thinned to a fifth */
{
    (void)state;
    static const int bits[] = {2, 3, 4, 5, 6, 8}, ms[] = {32, 128, 256}, ns[] = {128, 256, 67}, bs[] = {0, 1, 3, 8};
    for (int g = 0; g < 3; g++)
        for (int b = 0; b < 6; b++)
            for (int m = 0; m < 3; m++)
                for (int n = 0; n < 3; n++)
                    for (int c = 0; c < 4; c++) {
                        int N = ns[n], M = ms[m], B = bs[c];
                        if (M < GROUPS[g] || thinned(5)) continue;
                        ek_view x = B ? ref_normals(EK_TYPE_F32, 1, 1, 3, B, 1, N)
                                      : ref_normals(EK_TYPE_F32, 1, 1, 2, 1, N);
                        ek_view w = B ? ref_normals(EK_TYPE_F32, 2, 1, 3, B, N, M)
                                      : ref_normals(EK_TYPE_F32, 2, 1, 2, N, M);
                        check(EK_AFFINE, bits[b], GROUPS[g], x, w, false, 1e-3, false);
                    }
    for (int f = 0; f < 3; f++)
        for (int m = 0; m < 3; m++)
            for (int n = 0; n < 3; n++)
                for (int c = 0; c < 4; c++) {
                    int N = ns[n], M = ms[m], B = bs[c];
                    if (thinned(3)) continue;
                    ek_view x = B ? ref_normals(EK_TYPE_F32, 1, 1, 3, B, 1, N)
                                  : ref_normals(EK_TYPE_F32, 1, 1, 2, 1, N);
                    ek_view w = B ? ref_normals(EK_TYPE_F32, 2, 1, 3, B, N, M)
                                  : ref_normals(EK_TYPE_F32, 2, 1, 2, N, M);
                    check(FP[f], fp_bits(FP[f]), fp_group(FP[f]), x, w, false, 2e-3, false);
                }
}

static void test_splitk(void **state)
{
    (void)state;
    static const int bits[] = {2, 4, 8};
    for (int g = 0; g < 3; g++)
        for (int b = 0; b < 3; b++)
            for (int B = 1; B <= 3; B += 2) {
                if (B == 3 && thinned(4)) continue; /* thinned */
                ek_view x = B == 1 ? ref_normals(EK_TYPE_F32, 1, 0.1, 2, 1, 16384)
                                   : ref_normals(EK_TYPE_F32, 1, 0.1, 3, B, 1, 16384);
                ek_view w = B == 1 ? ref_normals(EK_TYPE_F32, 2, 0.1, 2, 16384, 128)
                                   : ref_normals(EK_TYPE_F32, 2, 0.1, 3, B, 16384, 128);
                check(EK_AFFINE, bits[b], GROUPS[g], x, w, false, 2e-3, false);
            }
    for (int g = 32; g <= 64; g += 32)
        for (int b = 4; b <= 8; b += 4)
            for (int in = 2048; in <= 4096; in += 2048)
                for (int m = 2; m <= 3; m++)
                    check(EK_AFFINE, b, g, ref_normals(EK_TYPE_F32, 1, 0.1, 2, m, in),
                          ref_normals(EK_TYPE_F32, 2, 0.1, 2, in, 128), false, 2e-3, false);
    for (int f = 0; f < 3; f++)
        check(FP[f], fp_bits(FP[f]), fp_group(FP[f]), ref_normals(EK_TYPE_F32, 1, 0.1, 2, 1, 16384),
              ref_normals(EK_TYPE_F32, 2, 0.1, 2, 16384, 128), false, 2e-3, false);
    /* one dim: x [2048] times w [2048, 2048] */
    ek_view w = ref_normals(EK_TYPE_F32, 2, 0.1, 2, 2048, 2048), x = ref_normals(EK_TYPE_F32, 1, 0.1, 1, 2048),
            y = ref_new(EK_TYPE_F32, 1, 2048);
    ek_qview q = ref_quantised(EK_AFFINE, 8, 32, &w);
    ek_view values = ref_qvalues(&q), x2 = ek_view_insert(x, 0), y2 = ek_view_insert(y, 0);
    MUST(ek_quantized_matmul(y, x, &q, false, EK_EXACT));
    ref_near(&y2, ref_matmul(&x2, &values, false, &y2), 2e-3, "x of one dim");
    ref_free_all();
}

static void test_not_transposed(void **state) /* thinned: a fifth; without the largest matrix */
{
    (void)state;
    static const int ms[] = {1, 2, 31, 32, 33, 63, 64, 65, 96, 97, 100, 127, 128, 129};
    static const int forms[][3] = {{EK_AFFINE, 4, 64}, {EK_AFFINE, 4, 128}, {EK_AFFINE, 8, 64},
                                   {EK_MXFP4, 4, 32},  {EK_NVFP4, 4, 16},   {EK_MXFP8, 8, 32}};
    for (int f = 0; f < 6; f++)
        for (int m = 0; m < 14; m++) {
            if (thinned(5)) continue;
            check((ek_quant_mode)forms[f][0], forms[f][1], forms[f][2],
                  ref_normals(EK_TYPE_F32, 1, over_root(512), 2, ms[m], 512),
                  ref_normals(EK_TYPE_F32, 2, over_root(512), 2, 512, 1024), false, 1e-3, false);
        }
    static const int big[][2] = {{2048, 2048}, {512, 2048}, {2048, 512}, {11008, 2048}};
    for (int i = 0; i < 4; i++)
        for (int m = 100; m <= 256; m += 156) {
            if (!ref_all && (m == 256 || i == 3 || i == 0)) continue;
            double s = over_root(big[i][0]);
            check(EK_AFFINE, 4, 64, ref_normals(EK_TYPE_F32, 1, s, 2, m, big[i][0]),
                  ref_normals(EK_TYPE_F32, 2, s, 2, big[i][0], big[i][1]), false, 1e-3, false);
        }
    for (int f = 0; f < 6; f++)
        for (int m = 33; m <= 250; m += 217) {
            if ((f == 1 || f == 2) || (!ref_all && m == 250 && f)) continue;
            double s = over_root(512);
            check((ek_quant_mode)forms[f][0], forms[f][1], forms[f][2], ref_normals(EK_TYPE_F32, 1, s, 3, 2, m, 512),
                  ref_normals(EK_TYPE_F32, 2, s, 3, 2, 512, 1024), false, 1e-3, false);
            if (ref_all)
                check((ek_quant_mode)forms[f][0], forms[f][1], forms[f][2],
                      ref_normals(EK_TYPE_F32, 1, s, 4, 2, 3, m, 512),
                      ref_normals(EK_TYPE_F32, 2, s, 4, 2, 3, 512, 1024), false, 1e-3, false);
        }
    for (int i = 0; i < 2; i++)
        if (ref_all || i == 0)
            check(i ? EK_MXFP8 : EK_AFFINE, i ? 8 : 4, i ? 32 : 64,
                  ref_normals(EK_TYPE_F32, 1, over_root(128), 2, 33000, 128),
                  ref_normals(EK_TYPE_F32, 2, over_root(128), 2, 128, 64), false, 1e-3, false);
    static const int more[][3] = {{EK_AFFINE, 2, 32}, {EK_AFFINE, 4, 32}, {EK_AFFINE, 8, 32},
                                  {EK_MXFP4, 4, 32},  {EK_NVFP4, 4, 16},  {EK_MXFP8, 8, 32}};
    for (int f = 0; f < 6; f++)
        for (int m = 0; m < 3; m++)
            for (int k = 64; k <= 256; k *= 2)
                check((ek_quant_mode)more[f][0], more[f][1], more[f][2],
                      ref_normals(EK_TYPE_F32, 1, over_root(k), 2, (int[]){8, 33, 65}[m], k),
                      ref_normals(EK_TYPE_F32, 2, over_root(k), 2, k, 128), false, 1e-3, false);
}

/* Activations quantised and read back as the other operand is. */
static void test_both_quantised(void **state)
{
    (void)state;
    static const int ms[] = {256, 512, 67}, ns[] = {64, 256, 512};
    for (int f = 1; f < 3; f++)
        for (int m = 0; m < 3; m++)
            for (int n = 0; n < 3; n++) {
                ek_view x = ref_normals(EK_TYPE_F32, 1, over_root(ns[n]), 2, 1 + 7 * m, ns[n]),
                        read = ref_like(&x, EK_TYPE_F32);
                ek_qview qx = ref_quantised(FP[f], fp_bits(FP[f]), fp_group(FP[f]), &x);
                MUST(ek_dequantize(read, &qx));
                check(FP[f], fp_bits(FP[f]), fp_group(FP[f]), read,
                      ref_normals(EK_TYPE_F32, 2, over_root(ns[n]), 2, ms[m], ns[n]), true, 1e-3, false);
            }
}

static void test_dense(void **state)
{
    (void)state;
    for (ek_type t = EK_TYPE_F32; t <= EK_TYPE_BF16; t++)
        for (int tr = 0; tr < 2; tr++)
            for (int m = 1; m <= 67; m += 33)
                for (int k = 1; k <= 700; k += 233) {
                    ek_view x = ref_normals(EK_TYPE_F32, 1, 1, 2, m, k),
                            w = tr ? ref_normals(t, 2, 1, 2, 77, k) : ref_normals(t, 2, 1, 2, k, 77);
                    ek_view y = ref_new(EK_TYPE_F32, 2, m, 77), again = ref_new(EK_TYPE_F32, 2, m, 77);
                    ek_packed *p;
                    MUST(ek_matmul(y, x, w, tr));
                    ref_near(&y, ref_matmul(&x, &w, tr, &y), 2e-4, "dense, type %d, %d x %d", (int)t, m, k);
                    MUST(ek_pack(&p, w, tr));
                    MUST(ek_packed_matmul(again, x, p, EK_EXACT));
                    ref_same(&y, &again, "packed dense, type %d, %d x %d", (int)t, m, k);
                    ek_packed_free(p);
                    ref_free_all();
                }
}

/* The forms of the engine: within their noise of the exact product. */
static void test_integer_forms(void **state)
{
    (void)state;
    static const int bits[] = {2, 3, 4, 5, 6, 8};
    for (int b = 0; b < 6; b++)
        for (int g = 0; g < 3; g++)
            for (int m = 1; m <= 9; m += 4) {
                enum { N = 200, K = 640 };
                ek_view x = ref_normals(EK_TYPE_F32, 1, 1, 2, m, K), w = ref_normals(EK_TYPE_F32, 2, 1, 2, N, K);
                ek_view y[3];
                ek_qview q = ref_quantised(EK_AFFINE, bits[b], GROUPS[g], &w);
                ek_view values = ref_qvalues(&q);
                ek_packed *p;
                MUST(ek_pack_quantized(&p, &q, true));
                for (ek_precision e = EK_EXACT; e <= EK_INT8; e++) {
                    y[e] = ref_new(EK_TYPE_F32, 2, m, N);
                    ek_view again = ref_new(EK_TYPE_F32, 2, m, N);
                    MUST(ek_quantized_matmul(y[e], x, &q, true, e));
                    MUST(ek_packed_matmul(again, x, p, e));
                    ref_same(&y[e], &again, "precision %d, packed, %d bits, group %d", (int)e, bits[b], GROUPS[g]);
                    for (int r = 0; r < m; r++) {
                        ek_view alone = ref_new(EK_TYPE_F32, 2, 1, N), row = ek_view_slice(y[e], 0, r, r + 1);
                        MUST(ek_packed_matmul(alone, ek_view_slice(x, 0, r, r + 1), p, e));
                        ref_same(&alone, &row, "precision %d, row %d alone", (int)e, r);
                    }
                }
                double *want = ref_matmul(&x, &values, true, &y[0]);
                /* noise of one activation: a quarter of a step, about amax / 440 or / 112600; |w| about 1 */
                ref_near(&y[EK_INT16], want, 8 * sqrt(K) * 3.2 / 112600, "two limbs, %d bits", bits[b]);
                ref_near(&y[EK_INT8], want, 8 * sqrt(K) * 3.2 / 440, "one limb, %d bits", bits[b]);
                assert_true(ref_max_off(&y[EK_INT8], want) > ref_max_off(&y[EK_INT16], want));
                ek_packed_free(p);
                ref_free_all();
            }
}

int main(int argc, char **argv)
{
    ref_main(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_qmm),
        cmocka_unit_test(test_large_dims),
        cmocka_unit_test(test_small_m_block),
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_qmv),
        cmocka_unit_test(test_fp_qmv),
        cmocka_unit_test(test_wide),
        cmocka_unit_test(test_small),
        cmocka_unit_test(test_qvm),
        cmocka_unit_test(test_splitk),
        cmocka_unit_test(test_not_transposed),
        cmocka_unit_test(test_both_quantised),
        cmocka_unit_test(test_dense),
        cmocka_unit_test(test_integer_forms),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    print_message("%ld cases of quantised products\n", n_cases);
    return failed;
}
