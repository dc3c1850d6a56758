/* Conversions of rows: every value of the 16-bit formats, every length around the vectors', any address. */
#include <math.h>
#include <string.h>

#include "base/machine/cpu.h"
#include "check.h"
#include "ops/convert.h"

enum { ALL = 1 << 16, MAX = 70 };
static const ek_dtype types[] = {EK_F32, EK_F16, EK_BF16};
enum { N_TYPES = sizeof types / sizeof *types };

static ek_convert_ops ops_of(unsigned cpu)
{
    ek_convert_ops ops;
    ek_convert_init(&ops, cpu);
    return ops;
}

static void test_every_16_bit_value(void **state)
{
    (void)state;
    static uint16_t half[ALL];
    static float got[ALL];
    for (int i = 0; i < ALL; i++) half[i] = (uint16_t)i;
    CHECK_ISAS(isa, cpu)
    for (int t = 1; t < N_TYPES; t++) {
        ops_of(cpu).widen(got, half, types[t], ALL);
        for (int i = 0; i < ALL; i++) {
            float want = ek_load_float(&half[i], types[t]);
            if (isnan(want) && isnan(got[i])) continue; /* which NaN is not defined */
            check_bits("widen", isa, &want, &got[i], 1, "%s %04x", ek_dtype_name(types[t]), i);
        }
    }
}

/* Numbers of all sizes, with ties, overflow and underflow of F16 among them. */
static void fill(float *x, int n, uint64_t seed)
{
    static const float odd[] = {0.0f,  -0.0f,  65504.0f,        65519.0f,   65520.0f,  1e9f,      0x1p-24f,  0x1p-25f,
                                1e-7f, 1e-40f, (float)INFINITY, 0x1.008p0f, 0x1.01p0f, 0x1.03p0f, 0x1.002p0f};
    check_fill_wide(x, (size_t)n, seed);
    for (int i = 0; i < n; i += 3) x[i] = odd[(seed + (uint64_t)i) % (sizeof odd / sizeof *odd)];
}

static void test_lengths(void **state)
{
    (void)state;
    float x[MAX], wide[MAX], back[MAX];
    uint8_t want[4 * MAX + 1], got[4 * MAX + 1];
    const ek_convert_ops plain = ops_of(0);
    CHECK_ISAS(isa, cpu)
    {
        const ek_convert_ops ops = ops_of(cpu);
        for (int t = 0; t < N_TYPES; t++)
            for (int n = 0; n < MAX; n++) {
                fill(x, MAX, (uint64_t)n);
                memset(want, 0xa5, sizeof want), memset(got, 0xa5, sizeof got);
                plain.narrow(want + 1, types[t], x, n);
                ops.narrow(got + 1, types[t], x, n);
                check_bytes("narrow", isa, want, got, sizeof got, "%d elements of %s", n, ek_dtype_name(types[t]));
                memset(wide, 0, sizeof wide), memset(back, 0, sizeof back);
                plain.widen(wide, want + 1, types[t], n);
                ops.widen(back, want + 1, types[t], n);
                check_bits("widen", isa, wide, back, MAX, "%d elements of %s", n, ek_dtype_name(types[t]));
            }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_16_bit_value), cmocka_unit_test(test_lengths)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
