/* Form B: every instruction set against the scalar definition, bit for bit, on numbers around every bound of a
 * step; and the step itself where exact arithmetic says what it gives. */
#include <math.h>
#include <string.h>

#include "base/machine/cpu.h"
#include "check.h"
#include "linear_case.h"
#include "ops/bf16_step.h"
#include "ops/convert.h"
#include "ops/linear/linear_b.h"

enum { N = 40, ROWS = EK_LINEAR_B_ROWS + 1, MAX_K = 1152, LDX = EK_LINEAR_B_BYTES * MAX_K + 64, LDS = MAX_K / 32 };

/* The vector sets, and AVX-512 once more with the instruction for it; a machine runs what it has. */
static const struct {
    const char *isa;
    unsigned cpu;
} sets[] = {{"avx2", EK_CPU_AVX2},
            {"avx512", EK_CPU_AVX2 | EK_CPU_AVX512},
            {"avx512 with bf16", EK_CPU_AVX2 | EK_CPU_AVX512 | EK_CPU_BF16}};
enum { N_SETS = sizeof sets / sizeof *sets };

static ek_linear_b_ops ops_of(unsigned cpu)
{
    ek_linear_b_ops ops;
    ek_linear_b_init(&ops, cpu);
    return ops;
}

static float unit(uint64_t seed, uint64_t i) /* [0, 1) */
{
    return 0.5f + 0.5f * check_uniform(seed, i);
}

/* Ordinary numbers of bf16 among zeros, what counts as zero, the smallest number that does not, and what cancels. */
static float odd_bf16(uint64_t seed, uint64_t i)
{
    static const uint16_t odd[] = {0x0000, 0x8000, 0x0001, 0x807f, 0x0080, 0x8080, 0x2000, 0x9f80, 0x3f80, 0xbf80};
    float u = unit(seed, 2 * i);
    if (u < 0.3f) return ek_bf16_f32(odd[(size_t)(u / 0.3f * 10)]);
    return ek_bf16_f32(ek_f32_bf16(ldexpf(4 * check_uniform(seed, 2 * i + 1), u < 0.5f ? -64 : 0)));
}

/* In one row of three all is near the bound of flushing; many lie halfway between two numbers of bf16. */
static void fill_rows(float *x, int k)
{
    for (int i = 0; i < ROWS * k; i++) {
        x[i] = odd_bf16(2, (uint64_t)i) * (i / k % 3 == 1 ? 0x1p-124f : 1);
        if (i % 3 == 0) x[i] *= 1.00390625f;
    }
}

/* Some of the smallest numbers among scales and biases: nothing is flushed outside of the steps. */
static void set_scales(ek_linear *w)
{
    const size_t size = ek_dtype_size(w->scale_dtype);
    for (int p = 0; p < w->n_panels; p++)
        for (int g = 0; g < w->k / w->group; g++) {
            uint8_t *at = w->data + (size_t)p * w->panel_bytes + (size_t)g * ek_linear_group_bytes(w) +
                          ek_linear_code_bytes(w);
            for (int o = 0; o < EK_PANEL; o++) {
                const uint64_t i = (uint64_t)((p * LDS + g) * EK_PANEL + o);
                ek_store_float(at + (size_t)o * size, w->scale_dtype,
                               ldexpf(4 * check_uniform(6, i), i % 5 ? 0 : -120));
                ek_store_float(at + (size_t)(EK_PANEL + o) * size, w->scale_dtype,
                               ldexpf(4 * check_uniform(7, i), i % 7 ? 0 : -140));
            }
        }
}

typedef struct acts {
    ek_acts_b a;
    float sum[ROWS * LDS];
} acts;

static void acts_open(acts *t)
{
    t->a = (ek_acts_b){check_alloc(ROWS * LDX), t->sum, LDX, LDS};
}

static void acts_close(acts *t)
{
    check_free(t->a.x, ROWS * LDX);
}

static void make_rows(acts *t, const ek_linear_b_ops *ops, const float *x, int k, int group)
{
    for (int r = 0; r < ROWS; r++) ops->row(t->a.x + r * LDX, t->sum + r * LDS, x + r * k, k, group);
}

static void check_case(const linear_case *c)
{
    static float x[ROWS * MAX_K];
    float want[EK_LINEAR_B_ROWS * EK_PANEL], got[EK_LINEAR_B_ROWS * EK_PANEL];
    acts plain, other;
    const ek_linear *w = &c->w;
    const ek_linear_b_ops definition = ops_of(0);
    fill_rows(x, w->k);
    acts_open(&plain), acts_open(&other);
    make_rows(&plain, &definition, x, w->k, w->group);
    for (int s = 0; s < N_SETS; s++) {
        if (sets[s].cpu & ~ek_cpu_detect()) continue;
        const ek_linear_b_ops ops = ops_of(sets[s].cpu);
        make_rows(&other, &ops, x, w->k, w->group);
        for (int r = 0; r < ROWS; r++)
            check_bits("sums of a row's groups", sets[s].isa, plain.sum + r * LDS, other.sum + r * LDS,
                       (size_t)(w->k / w->group), "%s, row %d", c->name, r);
        for (int p = 0; p < w->n_panels; p++)
            for (int n = 1; n <= EK_LINEAR_B_ROWS; n++)
                for (int r0 = 0; r0 < 2; r0++) {
                    definition.panel(want, EK_PANEL, &plain.a, r0, n, w, p, false);
                    ops.panel(got, EK_PANEL, &other.a, r0, n, w, p, (r0 + n) % 2);
                    check_bits("panel", sets[s].isa, want, got, (size_t)(n * EK_PANEL), "%s, panel %d, rows %d to %d",
                               c->name, p, r0, r0 + n - 1);
                }
    }
    acts_close(&plain), acts_close(&other);
}

static void test_kernels(void **state)
{
    (void)state;
    static const int widths[] = {2, 3, 4, 5, 6, 8}, groups[] = {32, 64, 128}, depths[] = {128, 640, MAX_K};
    for (int b = 0; b < 6; b++)
        for (int g = 0; g < 3; g++)
            for (int d = 0; d < 3; d++)
                for (int f32 = 0; f32 < 2; f32++) {
                    linear_case c;
                    linear_case_open(&c,
                                     &(linear_shape){.form = widths[b] <= 4 ? EK_W_Q4 : EK_W_Q8,
                                                     .n = N,
                                                     .k = depths[d],
                                                     .bits = widths[b],
                                                     .group = groups[g],
                                                     .scale_dtype = f32 ? EK_F32 : EK_BF16,
                                                     .biased = true},
                                     5);
                    set_scales(&c.w);
                    check_case(&c);
                    linear_case_close(&c);
                }
}

static void expect_step(float want, float got, const char *what)
{
    if (memcmp(&want, &got, sizeof want)) fail_msg("%s: want %a, got %a", what, (double)want, (double)got);
}

/* The bounds of a step, one by one. */
static void test_step(void **state)
{
    (void)state;
    const float min = 0x1p-126f;
    expect_step(min, ek_bf16_step(0, 0x1p-63f, 0x1p-63f), "the least number that is not flushed");
    expect_step(0, ek_bf16_step(0, 0x1p-64f, 0x1p-63f), "a product below it");
    expect_step(-0.0f, ek_bf16_step(0, -0x1p-64f, 0x1p-63f), "a negative product below it");
    expect_step(1, ek_bf16_step(1, 0x1p-130f, 0x1p127f), "a factor that counts as zero");
    expect_step(0, ek_bf16_step(min, 0x1p-63f, -0x1p-73f), "2^-126 - 2^-136");
    expect_step(0, ek_bf16_step(min, 0x1p-75f, -0x1p-75f), "2^-126 - 2^-150, which 24 bits hold");
    expect_step(min, ek_bf16_step(min, 0x1p-76f, -0x1p-76f), "2^-126 - 2^-152, which rounds up again");
    expect_step(-min, ek_bf16_step(-min, 0x1p-76f, 0x1p-76f), "the same below zero");
    expect_step(0x1p24f, ek_bf16_step(0x1p24f, 1, 1), "a tie to the even number");
    expect_step(0x1p24f + 4, ek_bf16_step(0x1p24f, 1, 3), "a tie to the even number above");
    expect_step(0, ek_bf16_pair(0x1p24f, -0x1p24f, 1, 1, 1), "the second of a pair first: the 1 is lost");
    assert_true(isnan(ek_bf16_step(0, INFINITY, 0)) && isinf(ek_bf16_step(0, 0x1p127f, 2)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_kernels), cmocka_unit_test(test_step)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
