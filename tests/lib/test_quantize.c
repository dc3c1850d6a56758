/* Quantising, its inverse, and the limits of the rule. */
/* tier: all */
#include <math.h>

#include "ref.h"

static const int GROUPS[] = {32, 64, 128}, BITS[] = {2, 3, 4, 5, 6, 8};

static double scale_of(const ek_qview *q, int64_t i, int64_t cols)
{
    return ref_get(&q->scales, i / cols * (cols / q->group) + i % cols / q->group);
}

static void test_affine(void **state)
{
    (void)state;
    for (int g = 0; g < 3; g++)
        for (int b = 0; b < 6; b++)
            for (ek_type t = EK_TYPE_F32; t <= EK_TYPE_BF16; t++) {
                ek_view w = ref_normals(t, 0, 1, 2, 128, 512), y = ref_like(&w, EK_TYPE_F32);
                ek_qview q = ref_quantised(EK_AFFINE, BITS[b], GROUPS[g], &w);
                MUST(ek_dequantize(y, &q));
                for (int64_t i = 0; i < 128 * 512; i++) {
                    double step = fabs(scale_of(&q, i, 512)) + 1e-6, exact = ref_qvalue(&q, i);
                    /* a scale of 8 or 11 bits moves the far end by up to its own error times the code */
                    double more = t == EK_TYPE_F32 ? 0 : ldexp(step, t == EK_TYPE_BF16 ? -8 : -11) * 255;
                    if (!(fabs(ref_get(&w, i) - ref_get(&y, i)) <= step + more))
                        fail_msg("bits %d group %d: %g became %g, a step is %g", BITS[b], GROUPS[g], ref_get(&w, i),
                                 ref_get(&y, i), step);
                    assert_true(ref_get(&y, i) == (double)(float)exact);
                }
                ref_free_all();
            }
}

static void test_affine_zeros(void **state)
{
    (void)state;
    for (int g = 0; g < 3; g++)
        for (int b = 0; b < 6; b++) {
            ek_view w = ref_new(EK_TYPE_F32, 2, 256, 512), y = ref_uniforms(EK_TYPE_F32, 1, 1, 2, 2, 256, 512);
            ek_qview q = ref_quantised(EK_AFFINE, BITS[b], GROUPS[g], &w);
            MUST(ek_dequantize(y, &q));
            for (int64_t i = 0; i < 256 * 512; i++) assert_true(ref_get(&y, i) == 0);
            ref_free_all();
        }
}

/* The rule of docs/ops/quantize.md in other words, float by float. */
static void by_rule(const float *w, int n, int bits, int *code, float *scale, float *bias)
{
    float top = (float)((1 << bits) - 1), lo = w[0], hi = w[0];
    for (int i = 1; i < n; i++) lo = fminf(lo, w[i]), hi = fmaxf(hi, w[i]);
    bool low = fabsf(lo) > fabsf(hi);
    float s = fmaxf((hi - lo) / top, 1e-7f), edge = low ? lo : hi, b = 0;
    s = low ? s : -s;
    float q0 = nearbyintf(edge / s);
    if (q0 != 0) s = edge / q0, b = edge;
    for (int i = 0; i < n; i++) code[i] = (int)fminf(fmaxf(nearbyintf((w[i] - b) / s), 0), top);
    *scale = s, *bias = b;
}

static int code_at(const ek_qview *q, int i)
{
    unsigned c = 0;
    for (int b = 0; b < q->bits; b++)
        c |= (((const uint32_t *)q->codes.data)[(i * q->bits + b) / 32] >> (i * q->bits + b) % 32 & 1) << b;
    return (int)c;
}

static void test_affine_edges(void **state)
{
    (void)state;
    enum { N = 32 };
    for (int kind = 0; kind < 9; kind++)
        for (int b = 0; b < 6; b++)
            for (ek_type t = EK_TYPE_F32; t <= EK_TYPE_BF16; t++) {
                ek_view w = ref_new(t, 2, 1, N);
                for (int i = 0; i < N; i++) {
                    double u = ref_uniform((uint64_t)kind, (uint64_t)i), x = 0;
                    switch (kind) {
                    case 0: x = -1 - u; break; /* all negative */
                    case 1: x = 1 + u; break;  /* all positive */
                    case 2: x = 0.75; break;   /* constant */
                    case 3: x = -0.75; break;
                    case 4: x = i % 4 * 0.5; break;                      /* one-sided */
                    case 5: x = (i % ((1 << BITS[b]) * 2)) * 0.5; break; /* ties: x.5 steps */
                    case 6: x = u * 5e-8; break;                         /* a range below the least step */
                    case 7: x = i % 2 ? 1 : -1; break; /* equal magnitudes: the upper end is the edge */
                    default: x = i == 0 ? -((1 << BITS[b]) - 0.5) : i % 3; /* the edge at half a step */
                    }
                    ref_set(&w, i, x);
                }
                ek_qview q = ref_quantised(EK_AFFINE, BITS[b], N, &w);
                float in[N], s, bias;
                int code[N];
                for (int i = 0; i < N; i++) in[i] = (float)ref_get(&w, i);
                by_rule(in, N, BITS[b], code, &s, &bias);
                ek_view one = ref_new(t, 1, 1);
                ref_set(&one, 0, s);
                assert_true(ref_get(&one, 0) == ref_get(&q.scales, 0));
                ref_set(&one, 0, bias);
                assert_true(ref_get(&one, 0) == ref_get(&q.biases, 0));
                for (int i = 0; i < N; i++)
                    if (code[i] != code_at(&q, i))
                        fail_msg("kind %d bits %d: element %d is %d, want %d", kind, BITS[b], i, code_at(&q, i),
                                 code[i]);
                ref_free_all();
            }
}

/* ------------------------------------------------------------------ fp modes */

static const double E2M1[16] = {0, .5, 1, 1.5, 2, 3, 4, 6, -0.0, -.5, -1, -1.5, -2, -3, -4, -6};

static void check_grid(ek_quant_mode mode, int bits, int group, const ek_view *w, float global, double rtol,
                       double atol)
{
    ek_qview q = ref_qnew(mode, bits, group, EK_TYPE_F32, w);
    q.global_scale = global;
    MUST(ek_quantize(&q, *w));
    ek_view y = ref_like(w, EK_TYPE_BF16), y32 = ref_like(w, EK_TYPE_F32);
    MUST(ek_dequantize(y, &q));
    MUST(ek_dequantize(y32, &q));
    double *want = ref_take(sizeof *want * (size_t)ref_count(w));
    for (int64_t i = 0; i < ref_count(w); i++) {
        want[i] = ref_get(w, i);
        double exact = ref_qvalue(&q, i);
        if (fabs(ref_get(&y32, i) - exact) > fabs(exact) * 0x1p-22)
            fail_msg("mode %d: decodes %g as %g", mode, exact, ref_get(&y32, i));
    }
    ref_close(&y, want, rtol, atol, "mode %d", mode);
}

static ek_view on_grid(int rows, int cols, int shrink_even)
{
    ek_view w = ref_new(EK_TYPE_BF16, 2, rows, cols);
    for (int64_t i = 0; i < (int64_t)rows * cols; i++) {
        double x = i % cols == 0 ? 6 : E2M1[(int)(16 * ref_uniform(7, (uint64_t)i))] + 3e-6;
        ref_set(&w, i, shrink_even && i / cols % 2 == 0 ? 6 * 0x1p-9 : shrink_even ? 6.0 : x);
    }
    return w;
}

static void test_fp(void **state)
{
    (void)state;
    ek_view w = on_grid(128 * 512 / 32, 32, 0);
    check_grid(EK_MXFP4, 4, 32, &w, 0, 1e-5, 1e-5);
    w = ref_uniforms(EK_TYPE_BF16, 3, -1, 1, 2, 512, 32);
    check_grid(EK_MXFP8, 8, 32, &w, 0, 1e-1, 1e-1);
    w = on_grid(128 * 512 / 16, 16, 0);
    check_grid(EK_NVFP4, 4, 16, &w, 0, 1e-5, 1e-5);
    check_grid(EK_NVFP4, 4, 16, &w, 6.0f, 1e-5, 1e-5);
    w = on_grid(64, 16, 1);
    check_grid(EK_NVFP4, 4, 16, &w, 0, 1e-5, 1e-6);
    ref_free_all();
    static const ek_quant_mode modes[] = {EK_MXFP4, EK_MXFP8, EK_NVFP4};
    static const int bits[] = {4, 8, 4}, groups[] = {32, 32, 16};
    for (int m = 0; m < 3; m++) {
        w = ref_new(EK_TYPE_F32, 2, 256, 512);
        ek_view y = ref_uniforms(EK_TYPE_F32, 1, 1, 2, 2, 256, 512);
        ek_qview q = ref_quantised(modes[m], bits[m], groups[m], &w);
        MUST(ek_dequantize(y, &q));
        for (int64_t i = 0; i < 256 * 512; i++) assert_true(ref_get(&y, i) == 0);
        ref_free_all();
    }
}

/* Every element lands on a nearest value of its grid, ties on the even code. */
static void test_fp_nearest(void **state)
{
    (void)state;
    for (int mode = EK_MXFP4; mode <= EK_NVFP4; mode++) {
        int bits = mode == EK_MXFP8 ? 8 : 4, group = mode == EK_NVFP4 ? 16 : 32;
        ek_view w = ref_normals(EK_TYPE_F32, 11, 1, 2, 200, group);
        for (int r = 0; r < 200; r++)
            for (int i = 0; i < group; i++)
                ref_set(&w, r * group + i,
                        r < 20 ? (i - 8) * 0.25 : ref_get(&w, r * group + i) * ldexp(1, r % 41 - 20));
        ek_qview q = ref_quantised((ek_quant_mode)mode, bits, group, &w);
        for (int64_t i = 0; i < ref_count(&w); i++) {
            double s = mode == EK_NVFP4 ? ref_get(&q.scales, i / group)
                                        : ldexp(1, (int)ref_get(&q.scales, i / group) - 127);
            if (mode == EK_NVFP4) {
                int c = (int)s, e = c >> 3 & 15;
                s = e ? ldexp(8 + (c & 7), e - 10) : ldexp(c & 7, -9);
            }
            if (s == 0) continue;
            double x = ref_get(&w, i) / s, got = ref_qvalue(&q, i) / s, best = INFINITY;
            for (int c = 0; c < (1 << bits); c++) {
                if (mode == EK_MXFP8 && (c & 127) == 127) continue; /* read as 480, never written */
                int e = c >> 3 & 15;
                double v = bits == 4 ? E2M1[c]
                                     : (e ? ldexp(8 + (c & 7), e - 10) : ldexp(c & 7, -9)) * (c & 128 ? -1 : 1);
                best = fmin(best, fabs(v - x));
            }
            if (fabs(got - x) > best * (1 + 1e-6) + 1e-7) fail_msg("mode %d: %g became %g", mode, x, got);
        }
        ref_free_all();
    }
}

static void test_strided_scales(void **state)
{
    (void)state;
    ek_view w = ref_normals(EK_TYPE_F32, 5, 1, 2, 64, 64), y = ref_like(&w, EK_TYPE_F32),
            y2 = ref_like(&w, EK_TYPE_F32);
    ek_qview q = ref_quantised(EK_NVFP4, 4, 16, &w), dense = q;
    uint8_t *byte = ref_take(1);
    *byte = 56;
    q.scales = ek_view_expand(ek_view_expand(ek_view_2d(byte, EK_TYPE_U8, 1, 1), 0, 64), 1, 4);
    dense.scales = ref_dense(&q.scales);
    MUST(ek_dequantize(y, &q));
    MUST(ek_dequantize(y2, &dense));
    ref_same(&y2, &y, "scales of stride 0");
    ref_free_all();
}

/* Quantising through strange views gives the same codes. */
static void test_views(void **state)
{
    (void)state;
    ek_view w = ref_normals(EK_TYPE_F32, 9, 1, 3, 4, 6, 128);
    ek_view turned = ek_view_swap(ek_view_reverse(w, 2), 0, 1), even = ref_dense(&turned);
    ek_qview a = ref_qnew(EK_AFFINE, 3, 64, EK_TYPE_BF16, &turned),
             b = ref_qnew(EK_AFFINE, 3, 64, EK_TYPE_BF16, &turned);
    ek_view wide = ref_new(EK_TYPE_U32, 3, 12, 6, 4); /* codes [6, 4, 12] written through a turned view */
    b.codes = ek_view_swap(wide, 0, 1);               /* [6, 12, 4] */
    b.codes = ek_view_swap(b.codes, 1, 2);            /* [6, 4, 12], last stride 24 */
    MUST(ek_quantize(&a, even));
    MUST(ek_quantize(&b, turned));
    ref_same(&a.codes, &b.codes, "codes");
    ref_same(&a.scales, &b.scales, "scales");
    ref_same(&a.biases, &b.biases, "biases");
    ek_view y = ref_like(&turned, EK_TYPE_F16), y2 = ref_like(&turned, EK_TYPE_F16);
    MUST(ek_dequantize(y, &a));
    MUST(ek_dequantize(ek_view_reverse(y2, 2), &b));
    ek_view back = ek_view_reverse(y2, 2);
    ref_same(&y, &back, "values");
    ref_free_all();
}

int main(int argc, char **argv)
{
    ref_main(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_affine), cmocka_unit_test(test_affine_zeros), cmocka_unit_test(test_affine_edges),
        cmocka_unit_test(test_fp),     cmocka_unit_test(test_fp_nearest),   cmocka_unit_test(test_strided_scales),
        cmocka_unit_test(test_views),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
