/* Float weights that become 8-bit codes while they are packed: the rule of ops/weights/quantised_type.h against one
 * written in float64, and products of the packed matrix on every instruction set. */
#include "check.h"

#include <math.h>
#include <stdlib.h>

#include "ops/weights/quantised_type.h"

enum { K = 192 };

static ek_weight_data of_floats(const ek_weight_type **type, const float *w, int n, int k)
{
    *type = ek_weight_type_quantised(ek_weight_type_float(EK_F32), k);
    return (ek_weight_data){.type = *type, .n = n, .k = k, .plane = {(const uint8_t *)w}};
}

static void test_rule(void **state)
{
    (void)state;
    static float w[3 * K];
    const ek_weight_type *t;
    ek_weight_data data = of_floats(&t, w, 3, K);
    assert_int_equal(t->group, 64);
    assert_string_equal(t->name, "f32@q8.64");
    for (int scale = -90; scale <= 90; scale += 15) {
        check_fill(w, 3 * K, (uint64_t)(scale + 500), 1);
        for (int i = 0; i < 3 * K; i++) w[i] = ldexpf(w[i], scale);
        for (int i = 64; i < 128; i++) w[i] = 0; /* a group of nothing */
        w[K] = 0x1p-101f;
        for (int i = 1; i < 64; i++) w[K + i] = 0; /* and of next to nothing */
        for (int row = 0; row < 3; row++) {
            uint8_t u[K + 8];
            float s[K / 64], b[K / 64];
            t->unpack(&data, row, 0, K, u, s, b);
            for (int i = 0; i < K; i++) {
                double a = 0, x = w[row * K + i];
                for (int j = i / 64 * 64; j < i / 64 * 64 + 64; j++) a = fmax(a, fabs((double)w[row * K + j]));
                if (a < 0x1p-100) {
                    assert_true(s[i / 64] == 0 && u[i] == 128);
                    continue;
                }
                assert_true(s[i / 64] == (float)(a / 127));
                assert_true(u[i] >= 1); /* never -128 */
                double code = x / a * 127, error = fabs((double)u[i] - 128 - code);
                assert_true(error <= 0.5 + 2e-5);
                assert_true(fabs(x) < a || abs(u[i] - 128) == 127);
            }
        }
    }
}

/* A weight alone decides its group's values: its place in the row, and other rows, do not. */
static void test_pieces(void **state)
{
    (void)state;
    static float w[4 * K];
    const ek_weight_type *t;
    check_fill(w, 4 * K, 7, 1);
    ek_weight_data data = of_floats(&t, w, 4, K), tail = ek_weight_rows(&data, 2, 2);
    float whole[K], part[K];
    ek_weight_row(&data, 3, 0, K, whole);
    ek_weight_row(&tail, 1, 70, 50, part);
    check_bits("quantised", "scalar", whole + 70, part, 50, "a range of a row");
}

static void test_not_finite(void **state)
{
    (void)state;
    static const float bad[] = {NAN, -NAN, INFINITY, -INFINITY};
    for (int i = 0; i < 4; i++)
        for (int at = 0; at < 64; at += 21) {
            float w[64] = {0.5f, -1.0f, 2.0f}, s[1], b[1];
            uint8_t u[64 + 8];
            const ek_weight_type *t;
            ek_weight_data data = of_floats(&t, w, 1, 64);
            w[at] = bad[i];
            t->unpack(&data, 0, 0, 64, u, s, b);
            assert_true(isinf(s[0]));
        }
}

static void test_types(void **state)
{
    (void)state;
    const ek_weight_type *bf16 = ek_weight_type_float(EK_BF16), *affine;
    assert_string_equal(ek_weight_type_quantised(bf16, 96)->name, "bf16@q8.32");
    assert_string_equal(ek_weight_type_quantised(ek_weight_type_float(EK_F16), 5376)->name, "f16@q8.64");
    assert_null(ek_weight_type_quantised(bf16, 40));
    assert_int_equal(ek_weight_type_affine(&affine, 8, 64, EK_BF16, true), EK_OK);
    assert_null(ek_weight_type_quantised(affine, 64));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rule),
        cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_not_finite),
        cmocka_unit_test(test_types),
    };
    return CHECK_RUN(argc, argv, tests);
}
