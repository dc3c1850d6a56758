/* Widening and narrowing of 16-bit floats, over every code. */
#include "check.h"

#include <math.h>

#include "tensor/dtype.h"

static void f16_round_trip(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        float f = ek_f16_f32((ek_f16)h);
        int exp = (int)(h >> 10 & 31), frac = (int)(h & 1023);
        double want = exp ? ldexp(1024 + frac, exp - 25) : ldexp(frac, -24);
        if (exp == 31) {
            assert_true(frac ? isnan(f) : isinf(f));
            if (frac) continue;
        } else {
            assert_true((double)f == (h & 0x8000 ? -want : want));
        }
        assert_int_equal(!!signbit(f), h >> 15);
        assert_int_equal(ek_f32_f16(f), h);
    }
}

/* Halfway between neighbours goes to the even code, a hair away from it to the nearer one. */
static void f16_rounds_to_nearest_even(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 0x7c00; h++) {
        double low = (double)ek_f16_f32((ek_f16)h);
        double high = h == 0x7bff ? 65536.0 : (double)ek_f16_f32((ek_f16)(h + 1));
        float mid = (float)((low + high) / 2);
        assert_int_equal(ek_f32_f16(mid), h & 1 ? h + 1 : h);
        assert_int_equal(ek_f32_f16(nextafterf(mid, 0)), h);
        assert_int_equal(ek_f32_f16(nextafterf(mid, 1e9f)), h + 1);
    }
    assert_int_equal(ek_f32_f16(INFINITY), 0x7c00);
    assert_int_equal(ek_f32_f16(-1e30f), 0xfc00);
    assert_true(ek_f32_f16(NAN) << 1 > 0xf800);
}

static void bf16_rounds_to_nearest_even(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 0x7f80; h++) {
        uint32_t mid = h << 16 | 0x8000;
        assert_int_equal(ek_f32_bf16(ek_bf16_f32((ek_bf16)h)), h);
        assert_int_equal(ek_f32_bf16(ek_bits_f32(mid)), h & 1 ? h + 1 : h);
        assert_int_equal(ek_f32_bf16(ek_bits_f32(mid - 1)), h);
        assert_int_equal(ek_f32_bf16(ek_bits_f32(mid + 1)), h + 1);
    }
    assert_true(isnan(ek_bf16_f32(ek_f32_bf16(ek_bits_f32(0x7f800001)))));
}

static void names(void **state)
{
    (void)state;
    for (int t = 0; t < EK_DTYPE_COUNT; t++) assert_int_equal(ek_dtype_parse(ek_dtype_name((ek_dtype)t)), t);
    assert_int_equal(ek_dtype_parse("F8_E4M3FNUZ"), -1);
    assert_int_equal(ek_dtype_size(EK_BF16), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(f16_round_trip),
        cmocka_unit_test(f16_rounds_to_nearest_even),
        cmocka_unit_test(bf16_rounds_to_nearest_even),
        cmocka_unit_test(names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
