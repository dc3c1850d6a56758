/* RMS norm and rotation against float64, and that views, other rows and addresses change no bit. */
/* tier: all */
#include <math.h>

#include "ref.h"

static void test_rms_norm(void **state)
{
    (void)state;
    static const int sizes[] = {1, 7, 64, 255, 256, 257, 1536, 5376};
    for (ek_type t = EK_TYPE_F32; t <= EK_TYPE_BF16; t++)
        for (int s = 0; s < 8; s++)
            for (int weighted = 0; weighted < 2; weighted++) {
                int n = sizes[s];
                ek_view x = ref_normals(t, 1, 3, 3, 2, 5, n), w = ref_normals(t, 2, 1, 1, n),
                        y = ref_like(&x, EK_TYPE_F32);
                MUST(ek_rms_norm(y, x, weighted ? &w : NULL, 1e-6f));
                double *want = ref_take(sizeof *want * (size_t)ref_count(&x));
                for (int64_t r = 0; r < 10; r++) {
                    double ss = 0;
                    for (int i = 0; i < n; i++) ss += ref_get(&x, r * n + i) * ref_get(&x, r * n + i);
                    for (int i = 0; i < n; i++)
                        want[r * n + i] = ref_get(&x, r * n + i) / sqrt(ss / n + 1e-6) *
                                          (weighted ? ref_get(&w, i) : 1);
                }
                ref_close(&y, want, 1e-6, 1e-7, "rms norm of %d, type %d", n, (int)t);
                ek_view turned = ek_view_swap(ref_new(t, 3, n, 5, 2), 0, 2),
                        out = ek_view_reverse(ref_like(&x, EK_TYPE_F32), 1), alone = ref_new(EK_TYPE_F32, 1, n);
                MUST(ek_copy(turned, x));
                MUST(ek_rms_norm(out, turned, weighted ? &w : NULL, 1e-6f));
                ref_same(&y, &out, "views, %d", n);
                ek_view row = ek_view_1d((char *)x.data + 7 * n * (t == EK_TYPE_F32 ? 4 : 2), t, n),
                        got = ek_view_1d((float *)y.data + 7 * n, EK_TYPE_F32, n);
                MUST(ek_rms_norm(alone, row, weighted ? &w : NULL, 1e-6f));
                ref_same(&alone, &got, "a row alone, %d", n);
                if (t == EK_TYPE_F32) {
                    MUST(ek_rms_norm(x, x, weighted ? &w : NULL, 1e-6f));
                    ref_same(&y, &x, "in place, %d", n);
                }
                ref_free_all();
            }
}

static void test_rope(void **state)
{
    (void)state;
    static const int dims[] = {64, 256, 512};
    for (int d = 0; d < 3; d++)
        for (int kind = 0; kind < 6; kind++) {
            enum { B = 2, H = 3, L = 7 };
            int n = dims[d], turned = kind == 1 ? n / 2 : n;
            int64_t positions[B] = {5, 30000};
            ek_rope_options o = {.theta = kind == 2 ? 1e6 : 0,
                                 .dims = kind == 1 ? turned : 0,
                                 .pairs = kind == 3 ? n / 8 : 0,
                                 .interleaved = kind == 4,
                                 .position = 1234,
                                 .positions = kind == 5 ? positions : NULL,
                                 .factor = kind == 2 ? 8 : 0};
            ek_view x = ref_normals(EK_TYPE_F32, 1, 1, 4, B, H, L, n), y = ref_like(&x, EK_TYPE_F32);
            MUST(ek_rope(y, x, &o));
            double *want = ref_take(sizeof *want * (size_t)ref_count(&x));
            for (int64_t r = 0; r < B * H * L; r++) {
                for (int i = 0; i < n; i++) want[r * n + i] = ref_get(&x, r * n + i);
                for (int j = 0; j < (o.pairs ? o.pairs : turned / 2); j++) {
                    /* the angle in float32, as transformers has it */
                    float f = 1.0f / (float)pow(o.theta ? o.theta : 10000, (double)((float)(2 * j) / (float)turned)) /
                              (o.factor ? (float)o.factor : 1);
                    double a = (double)((float)((kind == 5 ? positions[r / (H * L)] : 1234) + r % L) * f);
                    int i0 = o.interleaved ? 2 * j : j, i1 = o.interleaved ? 2 * j + 1 : j + turned / 2;
                    double x0 = ref_get(&x, r * n + i0), x1 = ref_get(&x, r * n + i1);
                    want[r * n + i0] = x0 * cos(a) - x1 * sin(a), want[r * n + i1] = x0 * sin(a) + x1 * cos(a);
                }
            }
            /* an ulp of a frequency moves the angle by position * 6e-8 */
            ref_near(&y, want, kind == 5 ? 8e-3 : 4e-4, "rope of %d, kind %d", n, kind);
            for (int l = 0; l < L && kind != 5; l += 3) { /* a row alone, at its position */
                ek_view row = ek_view_slice(x, 2, l, l + 1), got = ek_view_slice(y, 2, l, l + 1),
                        alone = ref_like(&row, EK_TYPE_F32);
                ek_rope_options at = o;
                at.position += l;
                MUST(ek_rope(alone, row, &at));
                ref_same(&got, &alone, "rope, row %d", l);
            }
            ek_view half = ref_like(&x, EK_TYPE_BF16), rounded = ref_like(&x, EK_TYPE_BF16);
            MUST(ek_rope(half, x, &o));
            MUST(ek_copy(rounded, y));
            ref_same(&rounded, &half, "rope rounded");
            MUST(ek_rope(x, x, &o));
            ref_same(&y, &x, "rope in place");
            ref_free_all();
        }
}

int main(int argc, char **argv)
{
    ref_main(argc, argv);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rms_norm), cmocka_unit_test(test_rope)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
