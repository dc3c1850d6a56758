/* Quantisers: what their bytes decode to, by the weight types' own definitions. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/hash/rng.h"
#include "convert/target.h"

enum { N = 512, ROWS = 40 };

/* error: measured root mean square of the error on normal values, relative to theirs, with a search and without, plus
 * two percent. */
static const struct {
    const char *name;
    double error, plain;
} format[] = {
    {"q4_0", 0.0821, 0.0870},  {"q4_1", 0.0709, 0.0798},  {"q5_0", 0.0404, 0.0431},   {"q5_1", 0.0345, 0.0383},
    {"q8_0", 0.0054, 0.0054},  {"q2_k", 0.2640, 0.3329},  {"q3_k", 0.1457, 0.1569},   {"q4_k", 0.0714, 0.0801},
    {"q5_k", 0.0353, 0.0389},  {"q6_k", 0.0174, 0.0191},  {"iq4_nl", 0.0746, 0.0813}, {"iq4_xs", 0.0752, 0.0816},
    {"mxfp4", 0.1132, 0.1153}, {"q4.64", 0.0926, 0.0926}, {"q8.64", 0.0081, 0.0081},  {"q6.32", 0.0204, 0.0204},
    {"q3.64", 0.1920, 0.1920}, {"q2.64", 0.3995, 0.3995}, {"q5.64", 0.0452, 0.0452},
};
enum { FORMATS = sizeof format / sizeof *format };

/* Quantises a row of N values and decodes it. */
static void round_trip(const ek_target *t, const float *x, float *out, bool search)
{
    static uint8_t bytes[EK_TARGET_PLANES][4 * N];
    uint8_t *const plane[EK_TARGET_PLANES] = {bytes[0], bytes[1], bytes[2]};
    const ek_weight_type *type = NULL, *all;
    int n;
    memset(bytes, 0xa5, sizeof bytes);
    t->put(x, N, plane, search);
    if (t->bits) assert_int_equal(ek_weight_type_affine(&type, t->bits, t->group, EK_BF16, true), EK_OK);
    all = ek_weight_types(&n);
    for (int i = 0; i < n && !type; i++)
        if (strcmp(all[i].name, t->name) == 0) type = &all[i];
    if (!type) fail_msg("no weight type is called %s", t->name);
    assert_int_equal(type->block_bytes[0], t->bytes[0] * type->block / t->block);
    ek_weight_data w = {.type = type, .n = 1, .k = N, .plane = {bytes[0], bytes[1], bytes[2]}};
    ek_weight_row(&w, 0, 0, N, out);
}

/* About normal: a sum of twelve uniform numbers. */
static void fill(float *x, int row, float scale)
{
    for (int i = 0; i < N; i++) {
        double sum = -6;
        for (int j = 0; j < 12; j++) sum += (double)(ek_mix64((uint64_t)((row * N + i) * 12 + j)) >> 11) * 0x1p-53;
        x[i] = (float)sum * scale;
    }
}

static double relative_error(const ek_target *t, float scale, bool search)
{
    double error = 0, all = 0;
    float x[N], y[N];
    for (int r = 0; r < ROWS; r++) {
        fill(x, r, scale);
        round_trip(t, x, y, search);
        for (int i = 0; i < N; i++) {
            error += ((double)x[i] - (double)y[i]) * ((double)x[i] - (double)y[i]);
            all += (double)x[i] * (double)x[i];
        }
    }
    return sqrt(error / all);
}

static void errors_stay_below_what_was_measured(void **state)
{
    (void)state;
    bool good = true;
    for (int f = 0; f < FORMATS; f++) {
        const ek_target *t = ek_target_find(format[f].name);
        assert_non_null(t);
        double searched = relative_error(t, 0.02f, true), plain = relative_error(t, 0.02f, false);
        if (searched > format[f].error || plain > format[f].plain || searched > plain) {
            good = false;
            print_error("{\"%s\", %.4f, %.4f},\n", t->name, searched * 1.02, plain * 1.02);
        }
    }
    assert_true(good);
}

/* Scales in half precision lose bits when they are subnormal there, and range above; BF16 and E8M0 do not. */
static void the_error_does_not_depend_on_the_scale(void **state)
{
    (void)state;
    for (int f = 0; f < FORMATS; f++) {
        const ek_target *t = ek_target_find(format[f].name);
        double at_one = relative_error(t, 1, true);
        for (float scale = 0x1p-6f; scale <= 0x1p6f; scale *= 8)
            if (fabs(relative_error(t, scale, true) - at_one) > 0.02 * at_one + 1e-4)
                fail_msg("%s: error %g at scale %g, %g at 1", t->name, relative_error(t, scale, true), (double)scale,
                         at_one);
    }
}

static bool near(float a, float b, float largest, const ek_target *t)
{
    return fabsf(a - b) <= largest * (strstr(t->name, "2") == t->name + 1 ? 0.5f : 0.2f);
}

/* Values that leave no choice, or nearly none. */
static void odd_rows_survive(void **state)
{
    (void)state;
    float x[N], y[N];
    for (int f = 0; f < FORMATS; f++) {
        const ek_target *t = ek_target_find(format[f].name);
        for (int kind = 0; kind < 7; kind++)
            for (int search = 0; search < 2; search++) {
                float largest = 0;
                for (int i = 0; i < N; i++) {
                    float v = (float)(ek_mix64((uint64_t)i) >> 40) * 0x1p-24f;
                    x[i] = kind == 0   ? 0
                           : kind == 1 ? 0.75f
                           : kind == 2 ? -0.75f
                           : kind == 3 ? i == 77 ? -3.0f : 0
                           : kind == 4 ? 1e-30f * v
                           : kind == 5 ? 0.5f + v
                                       : -0.5f - v;
                    largest = fabsf(x[i]) > largest ? fabsf(x[i]) : largest;
                }
                round_trip(t, x, y, search);
                for (int i = 0; i < N; i++)
                    if (!near(x[i], y[i], kind == 4 ? 1e-6f : largest, t))
                        fail_msg("%s kind %d search %d: value %d is %g, decodes to %g", t->name, kind, search, i,
                                 (double)x[i], (double)y[i]);
            }
    }
}

/* A block depends on its own values only: a row's bytes are those of its halves. */
static void blocks_are_independent(void **state)
{
    (void)state;
    float x[N];
    uint8_t whole[4 * N], halves[4 * N], rest[2][N];
    for (int f = 0; f < FORMATS; f++) {
        const ek_target *t = ek_target_find(format[f].name);
        size_t half = ek_target_row_bytes(t, 0, N / 2);
        fill(x, 3, 0.1f);
        t->put(x, N, (uint8_t *[]){whole, rest[0], rest[1]}, true);
        t->put(x, N / 2, (uint8_t *[]){halves, rest[0], rest[1]}, true);
        t->put(x + N / 2, N / 2, (uint8_t *[]){halves + half, rest[0], rest[1]}, true);
        assert_memory_equal(whole, halves, 2 * half);
    }
}

/* Values that lie on a format's grid stay on it, nearly all: a second pass adds less than a fifth of the first's
 * error. */
static void a_second_pass_changes_little(void **state)
{
    static const char *const stable[] = {"q4_0", "q5_0", "q8_0", "q4_1", "q5_1", "iq4_nl", "mxfp4", "q6_k"};
    (void)state;
    float x[N], y[N], z[N];
    for (size_t f = 0; f < sizeof stable / sizeof *stable; f++) {
        const ek_target *t = ek_target_find(stable[f]);
        double moved = 0, all = 0, first = relative_error(t, 0.02f, true);
        for (int r = 0; r < ROWS; r++) {
            fill(x, r, 0.02f);
            round_trip(t, x, y, true);
            round_trip(t, y, z, true);
            for (int i = 0; i < N; i++) {
                moved += ((double)y[i] - (double)z[i]) * ((double)y[i] - (double)z[i]);
                all += (double)y[i] * (double)y[i];
            }
        }
        double error = sqrt(moved / all);
        if (error > 0.2 * first)
            fail_msg("%s: the second pass moved values by %g, the first by %g", t->name, error, first);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(errors_stay_below_what_was_measured),
        cmocka_unit_test(the_error_does_not_depend_on_the_scale),
        cmocka_unit_test(odd_rows_survive),
        cmocka_unit_test(blocks_are_independent),
        cmocka_unit_test(a_second_pass_changes_little),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
