/* exp, tanh, ln, gelu, cos, sin, pow and the sampler's noise against libm in float64 or wider: the figures claimed in
 * ops/math.h and docs/numerics/rows.md, and what happens at the ends of the range. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/hash/rng.h"
#include "check.h"
#include "ops/math.h"
#include "ops/rows/rows.h"
#include "tensor/dtype.h"

/* |got - want| in units in the last place of want as a float32, denormals included. */
static double ulps(float got, double want)
{
    int e;
    frexp(want, &e);
    if (e < -125) e = -125;
    return fabs((double)got - want) / ldexp(1.0, e - 24);
}

/* Every step-th float32 of [from, to], both of one sign. */
static double worst(float (*f)(float), double (*reference)(double), float from, float to, unsigned step, float *at)
{
    double max = 0;
    for (uint32_t u = ek_f32_bits(from); u <= ek_f32_bits(to); u += step) {
        float x = ek_bits_f32(u);
        double err = ulps(f(x), reference((double)x));
        if (err > max) max = err, *at = x;
    }
    return max;
}

static double gelu(double x)
{
    return 0.5 * x * (1.0 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
}

static void test_accuracy(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        float (*f)(float);
        double (*reference)(double);
        float from, to;
        unsigned step;
        double claimed;
    } c[] = {
        {"exp above 0", ek_exp, exp, 1e-8f, 88.722f, 997, 1.0},
        {"exp below 0", ek_exp, exp, -1e-8f, -103.9f, 997, 1.0},
        {"tanh above 0", ek_tanh, tanh, 1e-30f, 12.0f, 1499, 1.5},
        {"tanh below 0", ek_tanh, tanh, -1e-30f, -12.0f, 1499, 1.5},
        {"ln below 1", ek_ln, log, 1e-45f, 0.99999994f, 1499, 1.0},
        {"ln above 1", ek_ln, log, 1.0000001f, 3.4e38f, 1499, 1.0},
        {"ln about 1", ek_ln, log, 0.7f, 1.5f, 23, 1.0},
    };
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        float at = 0;
        double max = worst(c[i].f, c[i].reference, c[i].from, c[i].to, c[i].step, &at);
        print_message("%s: %.3f ulp at %a\n", c[i].name, max, (double)at);
        if (!(max <= c[i].claimed)) fail_msg("%s: claimed %g ulp", c[i].name, c[i].claimed);
    }
}

/* gelu of a large negative number is x times what rounding leaves of 1 + tanh: the error is
 * bounded in units of x, as for any implementation in these steps. */
static void test_gelu(void **state)
{
    (void)state;
    for (double x = -12; x < 12; x += 0.0007) {
        float xf = (float)x;
        double err = fabs((double)ek_gelu_tanh(xf) - gelu((double)xf));
        if (err > 2.5e-7 * fabs((double)xf)) fail_msg("gelu(%a): error %g", (double)xf, err);
    }
    assert_true(ek_gelu_tanh(0.0f) == 0.0f && signbit(ek_gelu_tanh(-0.0f)));
    assert_true(ek_gelu_tanh(1e20f) == 1e20f && ek_gelu_tanh(-1e20f) == 0.0f);
}

static void test_ends(void **state)
{
    (void)state;
    assert_true(ek_exp(0.0f) == 1.0f && ek_exp(-0.0f) == 1.0f);
    assert_true(ek_exp(-104.0f) == 0.0f && ek_exp(-INFINITY) == 0.0f && ek_exp(-3e38f) == 0.0f);
    assert_true(ek_exp(88.73f) == INFINITY && ek_exp(INFINITY) == INFINITY && isfinite(ek_exp(88.72f)));
    assert_true(ek_exp(-103.2f) == 0x1p-149f);
    assert_true(isnan(ek_exp(NAN)) && isnan(ek_tanh(NAN)) && isnan(ek_ln(NAN)) && isnan(ek_gelu_tanh(NAN)));
    assert_true(ek_tanh(INFINITY) == 1.0f && ek_tanh(-9.5f) == -1.0f);
    assert_true(ek_tanh(0.0f) == 0.0f && ek_tanh(-0.0f) == 0.0f);
    assert_true(ek_ln(1.0f) == 0.0f && !signbit(ek_ln(1.0f)));
    assert_true(ek_ln(0.0f) == -INFINITY && ek_ln(-0.0f) == -INFINITY && isnan(ek_ln(-1e-45f)));
    assert_true(ek_ln(INFINITY) == INFINITY && isfinite(ek_ln(0x1.fffffep127f)));
    int n;
    ek_exp_split(NAN, &n);
    assert_in_range(-n, 1512000, 1513000);
    ek_exp_split(INFINITY, &n);
    assert_in_range(n, 1512000, 1513000);
}

/* 2^n p is exp(s), p stays near [0.707, 1.415) and n is an integer that exact scaling may use. */
static void test_split(void **state)
{
    (void)state;
    for (int i = 0; i < 200000; i++) {
        float s = 700.0f * check_uniform(3, (uint64_t)i);
        int n;
        float p = ek_exp_split(s, &n);
        assert_true(p > 0.7070f && p < 1.4150f);
        double want = exp((double)s);
        assert_true(fabs(ldexp(p, n) - want) <= 1.2e-7 * want);
    }
    for (int i = 0; i < 100000; i++) {
        float s = 0x1p21f * check_uniform(4, (uint64_t)i);
        int n;
        float p = ek_exp_split(s, &n);
        assert_true(p > 0.5f && p < 2.0f);
    }
}

static void test_ldexp(void **state)
{
    (void)state;
    for (int n = -252; n <= 252; n++)
        for (int i = 0; i < 50; i++) {
            float x = 1.25f + 0.75f * check_uniform(5, (uint64_t)i);
            assert_int_equal(ek_f32_bits(ek_ldexp(x, n)), ek_f32_bits(ldexpf(x, n)));
        }
}

static void test_cos_sin(void **state)
{
    (void)state;
    double max = 0;
    for (int i = 0; i < 300000; i++) {
        double a = (double)check_uniform(6, (uint64_t)i) * ldexp(1.0, i % 40 - 8), c, s;
        ek_cos_sin(a, &c, &s);
        double err = fmax(fabs(c - cos(a)), fabs(s - sin(a)));
        if (err > max) max = err;
    }
    print_message("cos, sin: %.2g\n", max);
    assert_true(max < 1e-12);
}

static void test_pow(void **state)
{
    (void)state;
    static const double base[] = {10000.0, 1000000.0, 2.0, 500000.0, 1e7, 0.5, 1.0, 3.14159};
    double max = 0;
    for (int b = 0; b < 8; b++)
        for (int i = 0; i <= 1024; i++) {
            double e = (double)i / 1024, want = pow(base[b], e);
            max = fmax(max, fabs(ek_pow(base[b], e) - want) / want);
            max = fmax(max, fabs(ek_pow(base[b], -e) * want - 1));
        }
    print_message("pow: %.2g\n", max);
    assert_true(max < 1e-14);
}

/* In units of the exact value's last place, over 4 million arguments: all binades, the neighbours of 1, sums of 1 to
 * 2^18 exponentials as logprobs have them; and two results to the bit, which no other machine may give otherwise. */
static void test_log(void **state)
{
    (void)state;
    double max = 0;
    for (uint64_t i = 0; i < 4 << 20; i++) {
        uint64_t u = ek_mix64(i);
        double x;
        if (i % 4 == 0) u &= 0x7fefffffffffffffu;
        else if (i % 4 == 1) u = 0x3ff0000000000000u + (u % (1u << 20)) - (1u << 19);
        else if (i % 4 == 2) u = 0x3ff0000000000000u + u % ((uint64_t)18 << 52);
        else u = 0x3fe0000000000000u + u % ((uint64_t)2 << 52);
        memcpy(&x, &u, sizeof x);
        const long double want = logl((long double)x);
        const double got = ek_ln64(x);
        if (want == 0 || x == 0) {
            assert_true(got == (double)want);
            continue;
        }
        int e;
        frexpl(want, &e);
        max = fmax(max, (double)fabsl(((long double)got - want) / ldexpl(1, e - 53)));
    }
    print_message("log: %.3f ulp\n", max);
    assert_true(max < 2);
    assert_true(ek_ln64(0) == -INFINITY && ek_ln64(INFINITY) == INFINITY && ek_ln64(-1) != ek_ln64(-1));
    assert_true(ek_ln64(NAN) != ek_ln64(NAN) && ek_ln64(1) == 0);
    assert_true(ek_ln64(10) == 0x1.26bb1bbb55516p+1 && ek_ln64(0x1p-1074) == -0x1.74385446d71c3p+9);
}

/* What has been seen of E and g in ascending n. */
typedef struct noise_range {
    double worst_e, worst_g; /* relative, absolute */
    float last_e, last_g;
} noise_range;

static void check_noise(noise_range *r, uint32_t n)
{
    float e = ek_standard_exponential(n), g = ek_standard_gumbel(n);
    long double v = ((long double)n + 0.5L) * 0x1p-32L, exact = -log1pl(-v);
    r->worst_e = fmax(r->worst_e, fabs((double)((e - exact) / exact)));
    r->worst_g = fmax(r->worst_g, fabs((double)(g + logl(exact))));
    if (!(e >= 0x1p-33f && e < 22.8739f && g >= -3.13f && g < EK_MAX_GUMBEL)) fail_msg("%u: E %a, g %a", n, e, g);
    if (e < r->last_e || g > r->last_g) fail_msg("%u: E %a after %a, g %a after %a", n, e, r->last_e, g, r->last_g);
    r->last_e = e, r->last_g = g;
}

/* Both ends, the surroundings of every power of two (2^30 is where the forms meet) and a stride
 * through all of the 32 bits. */
static void test_noise(void **state)
{
    (void)state;
    double worst_e = 0, worst_g = 0;
    for (int part = 0; part <= 33; part++) {
        uint64_t about = part == 33 ? 0 : (uint64_t)1 << part, reach = part == 33 ? 0xffffffffu : 1 << 14;
        uint64_t first = about > reach ? about - reach : 0, step = part == 33 ? 11003 : 1;
        noise_range r = {.last_g = INFINITY};
        for (uint64_t n = first; n <= about + reach && n <= UINT32_MAX; n += step) check_noise(&r, (uint32_t)n);
        worst_e = fmax(worst_e, r.worst_e), worst_g = fmax(worst_g, r.worst_g);
    }
    print_message("E: %.3g relative, g: %.3g\n", worst_e, worst_g);
    assert_true(worst_e <= 2.5e-7 && worst_g <= 1.1e-6);
    assert_true(ek_standard_exponential(0) == 0x1p-33f);
    assert_true(fabsf(ek_standard_gumbel(0) - 22.8738571f) < 2e-6f);
    assert_true(fabsf(ek_standard_gumbel(UINT32_MAX) + 3.1299946f) < 1e-6f);
}

/* Frequencies and rows of RoPE against float64, given the float32 angle. */
static void test_rope_tables(void **state)
{
    (void)state;
    static const struct {
        int dim, rotated;
        double theta, partial, factor;
    } c[] = {{256, 128, 1e4, 1, 1}, {512, 64, 1e6, 0.25, 1}, {12, 6, 1e4, 1, 1},
             {20, 2, 1e6, 0.25, 1}, {36, 4, 1e6, 0.25, 8},   {48, 6, 1e6, 0.25, 1}};
    static const int pos[] = {0, 1, 2, 63, 64, 1000, 4095, 8191, 131072, 262143};
    float f[256], cs[256], sn[256];
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        assert_int_equal(ek_rope_frequencies(f, c[i].dim, c[i].theta, c[i].partial, c[i].factor), c[i].rotated);
        for (int j = 0; j < c[i].rotated; j++) {
            double want = pow(c[i].theta, -2.0 * j / c[i].dim) / c[i].factor;
            assert_true(fabs((double)f[j] - want) <= 5e-7 * want);
        }
        for (size_t p = 0; p < sizeof pos / sizeof *pos; p++) {
            ek_rope_row(cs, sn, f, c[i].rotated, pos[p]);
            for (int j = 0; j < c[i].rotated; j++) {
                float angle = (float)pos[p] * f[j];
                assert_true(fabs((double)cs[j] - cos((double)angle)) <= 0x1p-24);
                assert_true(fabs((double)sn[j] - sin((double)angle)) <= 0x1p-24);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_accuracy),    cmocka_unit_test(test_gelu),  cmocka_unit_test(test_ends),
        cmocka_unit_test(test_split),       cmocka_unit_test(test_ldexp), cmocka_unit_test(test_cos_sin),
        cmocka_unit_test(test_log),         cmocka_unit_test(test_pow),   cmocka_unit_test(test_noise),
        cmocka_unit_test(test_rope_tables),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
