/* Floats of 4 and 8 bits: the decoders against the formats' text, the encoders against a search for the nearest. */
#include <math.h>
#include <string.h>

#include "check.h"
#include "ops/weights/quantised_type.h"

enum { SAMPLES = 20000 };

/* exp exponent bits with that bias, frac fraction bits, below them; the sign above. */
static double by_the_text(unsigned code, int exp_bits, int frac_bits, int bias)
{
    unsigned frac = code & ((1u << frac_bits) - 1), e = code >> frac_bits & ((1u << exp_bits) - 1);
    double v = e ? ldexp(1 + ldexp(frac, -frac_bits), (int)e - bias) : ldexp(frac, 1 - bias - frac_bits);
    return code >> (exp_bits + frac_bits) & 1 ? -v : v;
}

static void expect(double want, double got, const char *what, unsigned code)
{
    if (want != got || !!signbit(want) != !!signbit(got)) fail_msg("%s of %#x: want %a, got %a", what, code, want, got);
}

static void test_decoders(void **state)
{
    (void)state;
    for (unsigned u = 0; u < 16; u++) expect(by_the_text(u, 2, 1, 1), (double)ek_e2m1_f32(u), "e2m1", u);
    for (unsigned u = 0; u < 256; u++) expect(by_the_text(u, 4, 3, 7), (double)ek_e4m3_f32(u), "e4m3", u);
    for (unsigned u = 0; u < 255; u++) expect(ldexp(1, (int)u - 127), (double)ek_e8m0_f32(u), "e8m0", u);
    assert_true(isinf(ek_e8m0_f32(255)));
}

/* The code among n of this sign that is nearest to x, ties to the even one. */
static unsigned nearest(double x, unsigned n, unsigned sign, float (*decode)(unsigned))
{
    unsigned best = 0;
    for (unsigned u = 1; u < n; u++) {
        double d = fabs(fabs(x) - (double)decode(u)), min = fabs(fabs(x) - (double)decode(best));
        if (d < min || (d == min && u % 2 == 0)) best = u;
    }
    return best | (signbit(x) ? sign : 0);
}

static void expect_code(unsigned want, unsigned got, const char *what, float x)
{
    if (want != got) fail_msg("%s of %a: want %#x, got %#x", what, (double)x, want, got);
}

static void test_encoders(void **state)
{
    (void)state;
    for (int i = 0; i < SAMPLES; i++) {
        float x = check_uniform(1, (uint64_t)i) * 8, y = ldexpf(check_uniform(2, (uint64_t)i), i % 22 - 12);
        expect_code(nearest((double)x, 8, 8, ek_e2m1_f32), ek_f32_e2m1(x), "e2m1", x);
        expect_code(nearest((double)y, 0x7f, 0x80, ek_e4m3_f32), ek_f32_e4m3(y), "e4m3", y);
    }
    for (unsigned u = 0; u < 7; u++) { /* between two numbers: to the even code */
        float x = (ek_e2m1_f32(u) + ek_e2m1_f32(u + 1)) / 2;
        expect_code(u % 2 ? u + 1 : u, ek_f32_e2m1(x), "e2m1", x);
    }
    for (unsigned u = 0; u < 0x7e; u++) {
        float x = (ek_e4m3_f32(u) + ek_e4m3_f32(u + 1)) / 2;
        expect_code(u % 2 ? u + 1 : u, ek_f32_e4m3(x), "e4m3", x);
    }
}

static void test_what_does_not_fit(void **state)
{
    (void)state;
    expect_code(7, ek_f32_e2m1(100), "e2m1", 100);
    expect_code(15, ek_f32_e2m1(-100), "e2m1", -100);
    expect_code(0x7e, ek_f32_e4m3(449), "e4m3", 449);
    expect_code(0xfe, ek_f32_e4m3(-INFINITY), "e4m3", -INFINITY);
    assert_int_equal(ek_f32_e4m3(NAN) & 0x7f, 0x7e);
    expect_code(255, ek_f32_e8m0(INFINITY), "e8m0", INFINITY);
    expect_code(255, ek_f32_e8m0(NAN), "e8m0", NAN);
    expect_code(0, ek_f32_e8m0(0), "e8m0", 0);
}

/* A power of two is itself; the border lies at the square root of two times it. */
static void test_powers(void **state)
{
    (void)state;
    for (unsigned u = 0; u < 254; u++) {
        float x = ek_e8m0_f32(u);
        expect_code(u, ek_f32_e8m0(x), "e8m0", x);
        if (u == 0) continue;
        expect_code(u, ek_f32_e8m0(x * 1.414f), "e8m0", x * 1.414f);
        expect_code(u + 1, ek_f32_e8m0(x * 1.415f), "e8m0", x * 1.415f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_decoders), cmocka_unit_test(test_encoders),
                                       cmocka_unit_test(test_what_does_not_fit), cmocka_unit_test(test_powers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
