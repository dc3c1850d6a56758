/* The two forms of attention and the cut of its tree into branches. */
#include <stdio.h>

#include "attend.h"

/* Sinks are the first leaf of a tree that is cut into branches, whatever the number of threads. */
static void test_sinks_and_threads(void **state)
{
    (void)state;
    static const float sinks[8] = {0.5f, -3, 2, 0, 1, 9, -20, 0.25f};
    for (ek_type t = EK_TYPE_F32; t <= EK_TYPE_BF16; t++)
        for (int ql = 1; ql <= 3; ql += 2)
            for (int kl = 255; kl <= 4200; kl = kl * 3 / 2 + 7) {
                attend_scene s = attend_f32(t, 1, 8, 1, ql, kl, 64);
                ek_view again = ref_like(&s.y, EK_TYPE_F32);
                for (int with = 0; with < 2; with++) {
                    ek_sdpa_options o = {.causal = true, .sinks = with ? sinks : NULL};
                    MUST(ek_set_threads(1));
                    MUST(ek_sdpa(s.y, s.q, s.k, s.v, &o));
                    for (int threads = 2; threads <= 7; threads++) {
                        MUST(ek_set_threads(threads));
                        MUST(ek_sdpa(again, s.q, s.k, s.v, &o));
                        ref_same(&s.y, &again, "%d keys, %d threads, sinks %d", kl, threads, with);
                    }
                }
                ref_free_all();
            }
    MUST(ek_set_threads(0));
}

/* Products in f32 on request: what the same numbers in f32 give. In bf16 without the request: near it. */
static void test_f32_products(void **state)
{
    (void)state;
    attend_scene s = attend_f32(EK_TYPE_BF16, 1, 4, 2, 5, 600, 96);
    ek_view q = ref_like(&s.q, EK_TYPE_F32), k = ref_like(&s.k, EK_TYPE_F32), v = ref_like(&s.v, EK_TYPE_F32), wide = ref_like(&s.y, EK_TYPE_F32);
    MUST(ek_copy(q, s.q));
    MUST(ek_copy(k, s.k));
    MUST(ek_copy(v, s.v));
    MUST(ek_sdpa(wide, q, k, v, NULL));
    ek_sdpa_options o = {.f32_products = true};
    MUST(ek_sdpa(s.y, s.q, s.k, s.v, &o));
    ref_same(&wide, &s.y, "products in f32");
    MUST(ek_sdpa(s.y, q, s.k, s.v, NULL));
    ref_same(&wide, &s.y, "q in f32");
    MUST(ek_sdpa(s.y, s.q, s.k, s.v, NULL));
    int64_t n = ref_count(&wide), differ = 0;
    double *want = ref_take(sizeof *want * (size_t)n);
    for (int64_t i = 0; i < n; i++) want[i] = ref_get(&wide, i), differ += want[i] != ref_get(&s.y, i);
    ref_near(&s.y, want, 5e-4, "products in bf16");
    assert_true(differ > n / 2); /* the two forms are two */
    ref_free_all();
}

int main(int argc, char **argv)
{
    ref_main(argc, argv);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_sinks_and_threads), cmocka_unit_test(test_f32_products)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
