/* The two forms of attention and the cut of its tree into branches. */
#include <math.h>

#include "attend.h"
#include "base/cpu.h"
#include "lib/lib.h"

/* Sinks are the first leaf of a tree that is cut into branches, whatever the number of threads. */
static void test_sinks_and_threads(void **state)
{
    (void)state;
    static const float sinks[8] = {0.5f, -3, 2, 0, 1, 9, -20, 0.25f};
    EACH_FORM(t)
    for (int ql = 1; ql <= 3; ql += 2)
        for (int kl = 255; kl <= 4200; kl = kl * 3 / 2 + 7) {
            attend_scene s = attend_f32(t, 1, 8, 1, ql, kl, 64);
            ek_view again = ref_like(&s.y, EK_TYPE_F32);
            for (int with = 0; with < 4; with++) {
                const int64_t start = -kl / 3;
                ek_sdpa_options o = {
                    .causal = true, .sinks = with & 1 ? sinks : NULL, .key_start = with & 2 ? &start : NULL};
                MUST(ek_set_threads(1));
                MUST(attend_run(s.y, s.q, s.k, s.v, &o));
                for (int threads = 2; threads <= 7; threads++) {
                    MUST(ek_set_threads(threads));
                    MUST(attend_run(again, s.q, s.k, s.v, &o));
                    ref_same(&s.y, &again, "%d keys, %d threads, sinks and first position %d", kl, threads, with);
                }
            }
            ref_free_all();
        }
    MUST(ek_set_threads(0));
}

/* A pool of one thread. It takes the tasks from one on in turn and then the others, or all backwards. */
static void run_from(void *context, ek_pool_task *task, void *arg, int n)
{
    const int first = *(const int *)context;
    for (int i = 0; i < n; i++) task(arg, first < 0 ? n - 1 - i : (first + i) % n);
}

/* Which blocks follow each other on one worker, so where its branches begin and end, is for the tree no matter. */
static void test_orders(void **state)
{
    (void)state;
    static const float sinks[8] = {0.5f, -3, 2, 0, 1, 9, -20, 0.25f};
    EACH_FORM(t)
    for (int kl = 700; kl <= 9000; kl = kl * 2 + 91)
        for (int with = 0; with < 3; with++) {
            attend_scene s = attend_f32(t, 1, with == 1 ? 8 : 4, 1, with == 2 ? 5 : 1, kl, with == 1 ? 256 : 40);
            ek_view again = ref_like(&s.y, EK_TYPE_F32);
            ek_sdpa_options o = {.causal = true, .sinks = with == 2 ? sinks : NULL, .window = with == 1 ? kl - 100 : 0};
            MUST(ek_set_threads(1));
            MUST(attend_run(s.y, s.q, s.k, s.v, &o));
            for (int first = -1; first <= 6; first++)
                for (int threads = 2; threads <= 11; threads += 3) {
                    MUST(ek_set_pool(&(ek_pool_hook){&first, threads, run_from}));
                    MUST(attend_run(again, s.q, s.k, s.v, &o));
                    MUST(ek_set_pool(NULL));
                    ref_same(&s.y, &again, "%d keys for %d threads, tasks from %d on, scene %d", kl, threads, first,
                             with);
                }
            ref_free_all();
        }
    MUST(ek_set_threads(0));
}

/* bf16 tensors: EK_EXACT computes what the same numbers in f32 give; EK_BFLOAT16 something near it. */
static void test_bf16_products(void **state)
{
    (void)state;
    attend_scene s = attend_f32(EK_TYPE_BF16, 1, 4, 2, 5, 600, 96);
    ek_view q = ref_like(&s.q, EK_TYPE_F32), k = ref_like(&s.k, EK_TYPE_F32), v = ref_like(&s.v, EK_TYPE_F32),
            wide = ref_like(&s.y, EK_TYPE_F32);
    MUST(ek_copy(q, s.q));
    MUST(ek_copy(k, s.k));
    MUST(ek_copy(v, s.v));
    MUST(ek_sdpa(wide, q, k, v, NULL));
    MUST(ek_sdpa(s.y, s.q, s.k, s.v, NULL));
    ref_same(&wide, &s.y, "bf16, exact");
    MUST(ek_sdpa(s.y, s.q, s.k, s.v, &(ek_sdpa_options){.precision = EK_BFLOAT16}));
    int64_t n = ref_count(&wide), differ = 0;
    double *want = ref_take(sizeof *want * (size_t)n);
    for (int64_t i = 0; i < n; i++) want[i] = ref_get(&wide, i), differ += want[i] != ref_get(&s.y, i);
    ref_near(&s.y, want, 5e-4, "EK_BFLOAT16");
    assert_true(differ > n / 2); /* the two forms are two */
    ref_free_all();
}

/* Numbers that count as zeros in a product count as zeros in a whole attention, by every kernel. */
static void test_small_numbers(void **state)
{
    (void)state;
    attend_scene s = attend_f32(ATTEND_PAIRS, 1, 4, 2, 3, 500, 80);
    unsigned cpu = lib_cpu();
    for (int64_t i = 0, n = ref_count(&s.v); i < n; i++) {
        ref_set(&s.v, i, ldexp(ref_get(&s.v, i), -(int)(i % 140)));
        ref_set(&s.k, i, ldexp(ref_get(&s.k, i), -(int)(i % 135)));
    }
    ek_view again = ref_like(&s.y, EK_TYPE_F32);
    MUST(attend_run(s.y, s.q, s.k, s.v, NULL));
    static const unsigned masks[] = {0, EK_CPU_AVX2, EK_CPU_AVX2 | EK_CPU_AVX512,
                                     EK_CPU_AVX2 | EK_CPU_AVX512 | EK_CPU_BF16};
    for (int c = 0; c < 4; c++) {
        if ((cpu & masks[c]) != masks[c]) continue;
        lib_force_cpu(masks[c]);
        MUST(attend_run(again, s.q, s.k, s.v, NULL));
        lib_force_cpu(cpu);
        ref_same(&s.y, &again, "small numbers, cpu %u", masks[c]);
    }
    ref_free_all();
}

int main(int argc, char **argv)
{
    ref_main(argc, argv);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_sinks_and_threads), cmocka_unit_test(test_orders),
                                       cmocka_unit_test(test_bf16_products), cmocka_unit_test(test_small_numbers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
