/* The kernels of AVX-VNNI against the scalar definition, bit for bit, on any machine with AVX-512: the same source in
 * that encoding. Where AVX-VNNI itself is present, the other tests compare the shipped functions too. */
#include "check.h"

#include <stdlib.h>
#include <string.h>

#include "base/cpu.h"
#include "linear_case.h"

ek_linear_fn check_linear_q4_vnni, check_linear_q8_vnni;

static ek_linear_fn *kernel(ek_wform form)
{
#ifdef __x86_64__
    if (ek_cpu_detect() & EK_CPU_AVX512) return form == EK_W_Q4 ? check_linear_q4_vnni : check_linear_q8_vnni;
#endif
    (void)form;
    return NULL;
}

enum { N = 39, ROWS = 101 }; /* two panels and a short one; more rows than share decoded codes */

static const linear_shape formats[] = {
    {.form = EK_W_Q4, .bits = 4, .group = 64, .scale_dtype = EK_BF16, .biased = true},
    {.form = EK_W_Q4, .bits = 3, .group = 32, .scale_dtype = EK_F32, .biased = false},
    {.form = EK_W_Q4, .bits = 2, .group = 128, .scale_dtype = EK_BF16, .biased = true},
    {.form = EK_W_Q8, .bits = 8, .group = 64, .scale_dtype = EK_BF16, .biased = true},
    {.form = EK_W_Q8, .bits = 6, .group = 32, .scale_dtype = EK_F32, .biased = false},
    {.form = EK_W_Q8, .bits = 5, .group = 128, .scale_dtype = EK_F16, .biased = true},
};
enum { FORMATS = sizeof formats / sizeof *formats };

static void compare(linear_shape shape, int k, int limbs, int rows, uint64_t seed)
{
    linear_case c;
    linear_input in;
    shape.n = N, shape.k = k, shape.limbs = limbs;
    linear_case_open(&c, &shape, seed);
    linear_input_open(&in, &c, 0, rows, seed + 1);
    ek_linear_fn *run = kernel(shape.form);
    const size_t bytes = sizeof(float) * (size_t)(rows * N);
    float *want = malloc(bytes), *got = malloc(bytes);
    c.w.run(&c.w, &in.a, 0, rows, want, N, 0, c.w.n_panels);
    for (int n = 1; n <= rows; n += n < 14 ? 1 : 29)
        for (int r0 = 0; r0 + n <= rows; r0 += r0 == 0 ? 1 : rows - n > r0 ? rows - n - r0 : 1) {
            memset(got, 0xff, bytes);
            run(&c.w, &in.a, r0, r0 + n, got, N, 0, c.w.n_panels);
            check_bits("linear", "avxvnni", want + r0 * N, got + r0 * N, (size_t)(n * N), "%s, rows %d..%d", c.name, r0,
                       r0 + n);
        }
    free(want), free(got);
    linear_input_close(&in);
    linear_case_close(&c);
}

static void many_rows(void **state)
{
    (void)state;
    if (!kernel(EK_W_Q4)) skip();
    for (int f = 0; f < FORMATS; f++)
        for (int limbs = 1; limbs <= 2; limbs++) compare(formats[f], 384, limbs, ROWS, 10 * (uint64_t)f);
}

static void long_rows(void **state)
{
    (void)state;
    if (!kernel(EK_W_Q4)) skip();
    for (int f = 0; f < FORMATS; f++)
        for (int limbs = 1; limbs <= 2; limbs++) compare(formats[f], 2816 + 128 * f, limbs, 14, 10 * (uint64_t)f);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {CHECK_TEST(many_rows), CHECK_TEST(long_rows)};
    return CHECK_RUN(argc, argv, tests);
}
