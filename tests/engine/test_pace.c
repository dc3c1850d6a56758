/* A slice of an encoding takes no longer than a step of a prompt, on processors on which floats are slower than codes
 * by any factor, and uses the time it has. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/hash/rng.h"
#include "engine/media/encoder.h"

enum { ROWS = 512, SLICES = 60 };
static const double row_macs = 7e8, row_seconds = 1.4e-3;

/* Slices of work whose multiply-adds take `slower` times as long as those of steps, now and then up to `uneven` times
 * as long as that. Returns the longest, and the last one, in steps. */
static double run(double slower, double uneven, double *last)
{
    ek_pace p = {0};
    const double step = ROWS * row_seconds;
    double longest = 0;
    for (int i = 0; i < SLICES; i++) {
        const double slow = i / 4 % 2 ? uneven : 1, macs = ek_pace_slice(&p, ROWS, row_macs);
        const double seconds = macs / row_macs * row_seconds * slower * slow;
        assert_true(macs > 0 && macs <= ROWS * row_macs);
        if (seconds / step > longest) longest = seconds / step;
        *last = seconds / step;
        ek_pace_note(&p, ROWS, seconds);
        if (i == 2) ek_pace_step(&p, ROWS, step);               /* the first steps of a prompt come later */
        if (i % 7 == 3) ek_pace_step(&p, 1, step / 10);         /* one of replies alone tells nothing */
        if (i % 7 == 5) ek_pace_step(&p, ROWS / 2, 1.2 * step); /* one that was held up */
        if (i % 7 > 2) ek_pace_step(&p, ROWS + i, step / ROWS * (ROWS + i));
    }
    return longest;
}

static void no_slice_is_longer_than_a_step(void **state)
{
    (void)state;
    static const double slower[] = {0.5, 1, 2, 4, 8, 16, 30};
    for (size_t i = 0; i < sizeof slower / sizeof *slower; i++) {
        double last;
        const double longest = run(slower[i], 1, &last), uneven = run(slower[i], 1.7, &last);
        print_message("floats %g times as slow: the longest slice is %.2f steps, of uneven work %.2f\n", slower[i],
                      longest, uneven);
        assert_true(longest <= 1.25);
        assert_true(uneven <= 1.25 * 1.7);
        (void)run(slower[i], 1, &last);
        assert_true(last > 0.8 || slower[i] < 1); /* with floats as fast a slice has the step's multiply-adds */
    }
}

/* Before anything was measured, on a processor with matrix units. */
static void the_first_slice_is_short(void **state)
{
    (void)state;
    const ek_pace p = {0};
    assert_true(ek_pace_slice(&p, ROWS, row_macs) * 30 <= ROWS * row_macs);
}

/* Clocks that stand still or jump change the length of slices, and nothing else. */
static void odd_clocks(void **state)
{
    (void)state;
    ek_pace p = {0};
    for (uint64_t i = 0; i < 2000; i++) {
        static const double times[] = {0, -1, 1e-12, 1e9, 0.01, 1};
        ek_pace_step(&p, (int)(ek_mix64(i) % 600), times[ek_mix64(i + 7) % 6]);
        ek_pace_note(&p, ROWS, times[ek_mix64(i + 9) % 6]);
        const double macs = ek_pace_slice(&p, ROWS, row_macs);
        assert_true(macs >= ROWS * row_macs / 2000 && macs <= ROWS * row_macs);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(no_slice_is_longer_than_a_step),
                                       cmocka_unit_test(the_first_slice_is_short), cmocka_unit_test(odd_clocks)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
