/* Kernels of instruction sets that most machines lack, against the scalar definition, bit for bit, on any machine with
 * AVX-512: the same sources, AVX-VNNI in the encoding of AVX-512VL, AMX with tiles in memory. Where the instruction
 * sets are present, the other tests compare the shipped functions too. Also both ways of AVX-512, of which a processor
 * takes one (EK_CPU_ZEN4). */
#include "check.h"

#include <stdlib.h>
#include <string.h>

#include "base/machine/cpu.h"
#include "linear_case.h"
#include "ops/linear/linear.h"

ek_linear_fn check_linear_q4_vnni, check_linear_q8_vnni, check_linear_q4_amx, check_linear_q8_amx;

static ek_linear_fn *kernel(ek_wform form, const char *isa)
{
#ifdef __x86_64__
    if (!(ek_cpu_detect() & EK_CPU_AVX512)) return NULL;
    if (strcmp(isa, "amx") == 0) return form == EK_W_Q4 ? check_linear_q4_amx : check_linear_q8_amx;
    if (strcmp(isa, "avx512") == 0) return form == EK_W_Q4 ? ek_linear_q4_avx512 : ek_linear_q8_avx512;
    if (strcmp(isa, "zen4") == 0) return form == EK_W_Q4 ? ek_linear_q4_avx512_zen4 : ek_linear_q8_avx512_zen4;
    return form == EK_W_Q4 ? check_linear_q4_vnni : check_linear_q8_vnni;
#else
    (void)form, (void)isa;
    return NULL;
#endif
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

static void compare(const char *isa, linear_shape shape, int k, int limbs, int rows, uint64_t seed)
{
    linear_case c;
    linear_input in;
    shape.n = N, shape.k = k, shape.limbs = limbs;
    linear_case_open(&c, &shape, seed);
    linear_input_open(&in, &c, 0, rows, seed + 1);
    ek_linear_fn *run = kernel(shape.form, isa);
    const size_t bytes = sizeof(float) * (size_t)(rows * N);
    float *want = malloc(bytes), *got = malloc(bytes);
    c.w.run(&c.w, &in.a, 0, rows, want, N, 0, c.w.n_panels);
    for (int n = 1; n <= rows; n += n < 14 ? 1 : 29)
        for (int r0 = 0; r0 + n <= rows; r0 += r0 == 0 ? 1 : rows - n > r0 ? rows - n - r0 : 1) {
            memset(got, 0xff, bytes);
            run(&c.w, &in.a, r0, r0 + n, got, N, 0, c.w.n_panels);
            check_bits("linear", isa, want + r0 * N, got + r0 * N, (size_t)(n * N), "%s, rows %d..%d", c.name, r0,
                       r0 + n);
        }
    free(want), free(got);
    linear_input_close(&in);
    linear_case_close(&c);
}

/* Rows of a view, in any order, are the rows that they name. */
static void compare_view(const char *isa, linear_shape shape, int limbs)
{
    static const int32_t index[] = {7, 2, 2, 30, 0, 19, 11, 4, 32, 31, 5, 6, 1, 9, 14, 23, 8, 3, 27};
    enum { VIEW = sizeof index / sizeof *index, OF = 33 };
    linear_case c;
    linear_input in;
    float want[OF * N], got[VIEW * N];
    shape.n = N, shape.k = 640, shape.limbs = limbs;
    linear_case_open(&c, &shape, 60);
    linear_input_open(&in, &c, 0, OF, 61);
    c.w.run(&c.w, &in.a, 0, OF, want, N, 0, c.w.n_panels);
    ek_acts view = ek_acts_pick(&in.a, index, VIEW);
    kernel(shape.form, isa)(&c.w, &view, 0, VIEW, got, N, 0, c.w.n_panels);
    for (int r = 0; r < VIEW; r++)
        check_bits("linear", isa, want + index[r] * N, got + r * N, N, "%s, row %d of a view", c.name, r);
    linear_input_close(&in);
    linear_case_close(&c);
}

static void compare_all(const char *isa)
{
    if (!kernel(EK_W_Q4, isa)) skip();
    for (int f = 0; f < FORMATS; f++)
        for (int limbs = 1; limbs <= 2; limbs++) {
            compare(isa, formats[f], 384, limbs, ROWS, 10 * (uint64_t)f);
            compare(isa, formats[f], 2816 + 128 * f, limbs, 17, 10 * (uint64_t)f);
            compare_view(isa, formats[f], limbs);
        }
}

static void avxvnni(void **state)
{
    (void)state;
    compare_all("avxvnni");
}

/* More tiles and panels than one pass takes, and a tree of several levels. */
static void compare_many(const char *isa)
{
    linear_case c;
    linear_input in;
    enum { MANY = 16 * 13 + 5, OF = 131 };
    const linear_shape shape = {
        .form = EK_W_Q4, .n = MANY, .k = 4096 + 704, .bits = 4, .group = 64, .scale_dtype = EK_BF16, .biased = true};
    linear_case_open(&c, &shape, 70);
    linear_input_open(&in, &c, 0, OF, 71);
    float *want = malloc(sizeof(float) * OF * MANY), *got = malloc(sizeof(float) * OF * MANY);
    ek_linear_ops ops;
    ek_linear_init(&ops, ek_cpu_detect() & EK_CPU_AVX2);
    ops.run[EK_W_Q4](&c.w, &in.a, 0, OF, want, MANY, 0, c.w.n_panels);
    kernel(EK_W_Q4, isa)(&c.w, &in.a, 0, OF, got, MANY, 0, c.w.n_panels);
    check_bits("linear", isa, want, got, OF * MANY, "%s, %d rows", c.name, OF);
    free(want), free(got);
    linear_input_close(&in);
    linear_case_close(&c);
}

static void amx(void **state)
{
    (void)state;
    compare_all("amx");
    compare_many("amx");
}

static void avx512(void **state)
{
    (void)state;
    compare_all("avx512");
    compare_many("avx512");
}

static void zen4(void **state)
{
    (void)state;
    compare_all("zen4");
    compare_many("zen4");
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {CHECK_TEST(avxvnni), CHECK_TEST(amx), CHECK_TEST(avx512),
                                              CHECK_TEST(zen4)};
    return CHECK_RUN(argc, argv, tests);
}
