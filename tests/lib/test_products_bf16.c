/* EK_BFLOAT16 in products: near the exact product of the rounded activations, and the same bits in
 * any company, packed, not packed and by index. */
/* tier: all */
#include <math.h>

#include "ref.h"

static const int BITS[] = {2, 3, 4, 5, 6, 8}, GROUPS[] = {32, 64, 128};

static long n_cases;

static bool thinned(int n)
{
    static long number;
    return !ref_all && number++ % n != 0;
}

/* Every element's |.| */
static ek_view sizes(const ek_view *v)
{
    ek_view a = ref_like(v, EK_TYPE_F32);
    for (int64_t i = 0, n = ref_count(v); i < n; i++) ref_set(&a, i, fabs(ref_get(v, i)));
    return a;
}

/* x [M, K] in f32 or bf16, w [N, K]: y against float64 of x. Rounding x to bf16, where it does, moves an
 * element by 2^-9 of it at most. */
static void check(int bits, int group, ek_view x, ek_view w, double tol)
{
    int m = (int)x.dim[0], n = (int)w.dim[0];
    ek_qview q = ref_quantised(EK_AFFINE, bits, group, &w);
    ek_view values = ref_qvalues(&q), y = ref_new(EK_TYPE_F32, 2, m, n), again = ref_new(EK_TYPE_F32, 2, m, n);
    ek_view near = ref_new(EK_TYPE_BF16, 2, m, (int)x.dim[1]), xa = sizes(&x), wa = sizes(&values);
    ek_packed *p;
    n_cases++;
    MUST(ek_quantized_matmul(y, x, &q, true, EK_BFLOAT16));
    MUST(ek_copy(near, x));
    ref_near(&y, ref_matmul(&near, &values, true, &y), tol, "rounded x, %d bits, group %d, [%d, %d, %d]", bits, group,
             m, n, (int)x.dim[1]);
    double *want = ref_matmul(&x, &values, true, &y), *max = ref_matmul(&xa, &wa, true, &y);
    for (int64_t i = 0; i < m * n; i++)
        if (fabs(ref_get(&y, i) - want[i]) > (x.type == EK_TYPE_BF16 ? 0 : 0x1p-9 * max[i]) + tol)
            fail_msg("%d bits, group %d: %g, not %g", bits, group, ref_get(&y, i), want[i]);

    MUST(ek_quantized_matmul(again, near, &q, true, EK_BFLOAT16));
    ref_same(&y, &again, "x in bf16, %d bits, group %d", bits, group);
    MUST(ek_pack_quantized(&p, &q, true));
    MUST(ek_packed_matmul(again, x, p, EK_BFLOAT16));
    ref_same(&y, &again, "packed, %d bits, group %d", bits, group);
    for (int r = 0; r < m; r += m < 5 ? 1 : m / 3) {
        ek_view row = ek_view_slice(y, 0, r, r + 1), alone = ref_new(EK_TYPE_F32, 2, 1, n);
        MUST(ek_packed_matmul(alone, ek_view_slice(x, 0, r, r + 1), p, EK_BFLOAT16));
        ref_same(&row, &alone, "row %d of %d alone, %d bits, group %d", r, m, bits, group);
    }
    ek_packed_free(p);
    ref_free_all();
}

/* The grids of test_products.c with transposed weights. */
static void test_near(void **state) /* thinned to a fifth */
{
    (void)state;
    static const int ms[] = {1, 2, 5, 8, 9, 33}, ns[] = {128, 67}, ks[] = {128, 256, 512, 640};
    for (int b = 0; b < 6; b++)
        for (int g = 0; g < 3; g++)
            for (int m = 0; m < 6; m++)
                for (int n = 0; n < 2; n++)
                    for (int k = 0; k < 4; k++)
                        for (ek_type t = EK_TYPE_F32; t <= EK_TYPE_BF16; t += 2) {
                            if (thinned(5)) continue;
                            double s = 1 / sqrt(ks[k]);
                            check(BITS[b], GROUPS[g], ref_normals(t, 1, s, 2, ms[m], ks[k]),
                                  ref_normals(EK_TYPE_F32, 2, s, 2, ns[n], ks[k]), 1e-3);
                        }
    static const int tiny[][3] = {{2, 32, 10}, {4, 32, 7}, {3, 64, 5}, {5, 64, 3}, {1, 32, 3}, {1, 96, 16}};
    for (int i = 0; i < 6; i++)
        check(i % 2 ? 8 : 4, 32, ref_normals(EK_TYPE_BF16, 1, 1, 2, tiny[i][0], tiny[i][1]),
              ref_normals(EK_TYPE_F32, 2, 1, 2, tiny[i][2], tiny[i][1]), 1e-3);
    check(4, 64, ref_normals(EK_TYPE_BF16, 1, 1 / sqrt(128), 2, 33, 128),
          ref_normals(EK_TYPE_F32, 2, 1 / sqrt(128), 2, 8256, 128), 1e-3);
    check(4, 64, ref_normals(EK_TYPE_BF16, 1, 0.1, 2, 3, 16384), ref_normals(EK_TYPE_F32, 2, 0.1, 2, 64, 16384), 2e-3);
}

/* Sums in f32, not coarser: as near to the exact product as a chain of fma is, within a few times. */
static void test_like_f32(void **state)
{
    (void)state;
    for (int b = 0; b < 6; b++) {
        ek_view x = ref_normals(EK_TYPE_BF16, 1, 1, 2, 16, 2048), w = ref_normals(EK_TYPE_F32, 2, 1, 2, 128, 2048);
        ek_qview q = ref_quantised(EK_AFFINE, BITS[b], 64, &w);
        ek_view values = ref_qvalues(&q), y = ref_new(EK_TYPE_F32, 2, 16, 128),
                exact = ref_new(EK_TYPE_F32, 2, 16, 128), two = ref_new(EK_TYPE_F32, 2, 16, 128);
        double *want = ref_matmul(&x, &values, true, &y);
        MUST(ek_quantized_matmul(y, x, &q, true, EK_BFLOAT16));
        MUST(ek_quantized_matmul(exact, x, &q, true, EK_EXACT));
        MUST(ek_quantized_matmul(two, x, &q, true, EK_INT16));
        double off = ref_max_off(&y, want), off_exact = ref_max_off(&exact, want), off_two = ref_max_off(&two, want);
        print_message("%d bits: EK_BFLOAT16 is off by %.2g, EK_EXACT by %.2g, EK_INT16 by %.2g at most\n", BITS[b], off,
                      off_exact, off_two);
        assert_true(off < 8 * off_exact && off < off_two);
        ref_free_all();
    }
}

/* Rows that choose their matrix, by views with strides, in any type of y. */
static void test_gathered(void **state)
{
    (void)state;
    enum { E = 3, B = 7, M = 3, N = 50, K = 192 };
    for (int b = 0; b < 6; b++)
        for (int g = 0; g < 2; g++) {
            ek_view x = ref_normals(EK_TYPE_F16, 1, 1, 3, M, B, K), w = ref_normals(EK_TYPE_F32, 2, 1, 3, E, N, K);
            ek_qview q = ref_quantised(EK_AFFINE, BITS[b], GROUPS[g], &w);
            ek_view rhs = ref_new(EK_TYPE_U32, 1, B), y = ref_new(EK_TYPE_BF16, 3, B, M, N);
            for (int i = 0; i < B; i++) ((uint32_t *)rhs.data)[i] = (uint32_t)(i * 5 % E);
            x = ek_view_reverse(ek_view_swap(x, 0, 1), 2); /* [B, M, K], backwards */
            MUST(ek_gather_qmm(y, x, &q, NULL, &rhs, true, EK_BFLOAT16));
            for (int i = 0; i < B; i++) {
                int e = i * 5 % E;
                ek_qview one = q;
                one.codes = ek_view_slice(q.codes, 0, e, e + 1), one.scales = ek_view_slice(q.scales, 0, e, e + 1),
                one.biases = ek_view_slice(q.biases, 0, e, e + 1);
                ek_view want = ref_new(EK_TYPE_F32, 3, 1, M, N), half = ref_new(EK_TYPE_BF16, 3, 1, M, N),
                        row = ek_view_slice(y, 0, i, i + 1);
                MUST(ek_quantized_matmul(want, ek_view_slice(x, 0, i, i + 1), &one, true, EK_BFLOAT16));
                MUST(ek_copy(half, want));
                ref_same(&half, &row, "%d bits, group %d, matrix %d", BITS[b], GROUPS[g], e);
            }
            ref_free_all();
        }
}

/* What is not a number stays in its row. */
static void test_not_finite(void **state)
{
    (void)state;
    enum { M = 8, N = 32, K = 256 };
    ek_view x = ref_normals(EK_TYPE_F32, 1, 1, 2, M, K), w = ref_normals(EK_TYPE_F32, 2, 1, 2, N, K),
            clean = ref_new(EK_TYPE_F32, 2, M, N), y = ref_new(EK_TYPE_F32, 2, M, N);
    ek_qview q = ref_quantised(EK_AFFINE, 4, 64, &w);
    MUST(ek_quantized_matmul(clean, x, &q, true, EK_BFLOAT16));
    ref_set(&x, 3 * K + 70, NAN), ref_set(&x, 5 * K + 9, INFINITY);
    MUST(ek_quantized_matmul(y, x, &q, true, EK_BFLOAT16));
    for (int r = 0; r < M; r++) {
        ek_view want = ek_view_slice(clean, 0, r, r + 1), got = ek_view_slice(y, 0, r, r + 1);
        if (r != 3 && r != 5) ref_same(&want, &got, "row %d beside others that are not finite", r);
        for (int n = 0; n < N && r == 3; n++) assert_true(isnan(ref_get(&got, n)));
        for (int n = 0; n < N && r == 5; n++) assert_false(fabs(ref_get(&got, n)) < HUGE_VAL);
    }
    ref_free_all();
}

int main(int argc, char **argv)
{
    ref_main(argc, argv);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_near), cmocka_unit_test(test_like_f32),
                                       cmocka_unit_test(test_gathered), cmocka_unit_test(test_not_finite)};
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    print_message("%ld cases of products in bf16\n", n_cases);
    return failed;
}
