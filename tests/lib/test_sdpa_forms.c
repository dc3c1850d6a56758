/* The two forms of attention over bf16: what each computes, by every kernel. */
/* tier: all */
#include <math.h>

#include "attend.h"
#include "base/machine/cpu.h"
#include "lib/lib.h"

/* EK_EXACT over bf16 computes what the same numbers in f32 give. */
static void test_exact_is_f32(void **state)
{
    (void)state;
    const attend_scene s = attend_f32(EK_TYPE_BF16, (attend_sizes){1, 4, 2, 5, 600, 96});
    attend_scene wide = attend_f32(EK_TYPE_F32, (attend_sizes){1, 4, 2, 5, 600, 96});
    MUST(ek_copy(wide.q, s.q));
    MUST(ek_copy(wide.k, s.k));
    MUST(ek_copy(wide.v, s.v));
    attend_run(&wide, NULL);
    attend_same(&wide.y, &s, NULL, "bf16 against the same numbers in f32");
    ref_free_all();
}

/* EK_BFLOAT16 is near EK_EXACT, and something else: more than half of the bits differ. */
static void test_pairs_are_near(void **state)
{
    (void)state;
    attend_scene exact = attend_f32(EK_TYPE_BF16, (attend_sizes){1, 4, 2, 5, 600, 96});
    attend_run(&exact, NULL);
    attend_scene pairs = exact;
    pairs.form = ATTEND_PAIRS;
    const ek_view y = attend_fresh(&pairs, NULL);
    const int64_t n = ref_count(&y);
    int64_t differ = 0;
    double *want = ref_take(sizeof *want * (size_t)n);
    for (int64_t i = 0; i < n; i++) want[i] = ref_get(&exact.y, i), differ += want[i] != ref_get(&y, i);
    ref_near(&y, want, 5e-4, "EK_BFLOAT16 against EK_EXACT");
    assert_true(differ > n / 2);
    ref_free_all();
}

/* Numbers that count as zeros in a product count as zeros in a whole attention, by every kernel. */
static void test_small_numbers(void **state)
{
    (void)state;
    attend_scene s = attend_f32(ATTEND_PAIRS, (attend_sizes){1, 4, 2, 3, 500, 80});
    const unsigned cpu = lib_cpu();
    for (int64_t i = 0, n = ref_count(&s.v); i < n; i++) {
        ref_set(&s.v, i, ldexp(ref_get(&s.v, i), -(int)(i % 140)));
        ref_set(&s.k, i, ldexp(ref_get(&s.k, i), -(int)(i % 135)));
    }
    attend_run(&s, NULL);
    static const unsigned sets[] = {0, EK_CPU_AVX2, EK_CPU_AVX2 | EK_CPU_AVX512,
                                    EK_CPU_AVX2 | EK_CPU_AVX512 | EK_CPU_BF16};
    for (int c = 0; c < 4; c++) {
        if ((cpu & sets[c]) != sets[c]) continue;
        lib_force_cpu(sets[c]);
        attend_same(&s.y, &s, NULL, "small numbers, CPU flags %u", sets[c]);
        lib_force_cpu(cpu);
    }
    ref_free_all();
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {REF_TEST(test_exact_is_f32), REF_TEST(test_pairs_are_near),
                                              REF_TEST(test_small_numbers)};
    return REF_RUN(argc, argv, tests);
}
