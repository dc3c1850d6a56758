/* Cooperative matrices in SPIR-V: of a small module by hand, NV's instructions become KHR's, with the constants that
 * those need. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "vulkan/spirv.h"

#define OP(op, words) (uint32_t)((words) << 16 | (op))
/* Capability, Extension, TypeInt %1 8 signed, %2 32 signed, %3 32 unsigned, TypeBool %4, ConstantTrue %5, False %6,
 * Constants %7 16, %8 32, %9 scope; matrices %10 16 x 32 of bytes, %11 32 x 16, %12 16 x 16 of sums; Load %13 row-major
 * with stride %7, Load %14 column-major, MulAdd %15, Store, Length %16 of constants. */
static const uint32_t module[] = {
    0x07230203, 0x00010500, 0,           20,         0,          OP(17, 2),   5357,      OP(10, 8), 0x5f565053,
    0x635f564e, 0x65706f6f, 0x69746172,  0x6d5f6576, 0x69727461, 0x00000078,  OP(21, 4), 1,         8,
    1,          OP(21, 4),  2,           32,         1,          OP(21, 4),   3,         32,        0,
    OP(20, 2),  4,          OP(41, 3),   4,          5,          OP(42, 3),   4,         6,         OP(43, 4),
    3,          7,          16,          OP(43, 4),  3,          8,           32,        OP(43, 4), 3,
    9,          3,          OP(5358, 6), 10,         1,          9,           7,         8,         OP(5358, 6),
    11,         1,          9,           8,          7,          OP(5358, 6), 12,        2,         9,
    7,          7,          OP(5359, 6), 10,         13,         17,          7,         6,         OP(5359, 6),
    11,         14,         18,          7,          5,          OP(5361, 6), 12,        15,        13,
    14,         19,         OP(5360, 5), 17,         15,         7,           5,         OP(52, 5), 3,
    16,         5362,       12};
enum { WORDS = sizeof module / sizeof *module };

static bool has(const uint32_t *w, size_t n, const uint32_t *what)
{
    const size_t words = what[0] >> 16;
    for (size_t at = 5; at < n; at += w[at] >> 16)
        if (words <= n - at && !memcmp(w + at, what, words * sizeof *w)) return true;
    return false;
}

static void instructions(void **state)
{
    (void)state;
    size_t n = 0;
    uint32_t *w = ek_vulkan_matrices(module, WORDS, &n);
    assert_non_null(w);
    assert_int_equal(n, WORDS + 12 + 4);
    assert_int_equal(w[3], 23); /* %20, %21, %22 are 0, 1, 2 */
    static const uint32_t want[][8] = {{OP(17, 2), 6022},
                                       {OP(43, 4), 3, 20, 0},
                                       {OP(43, 4), 3, 21, 1},
                                       {OP(43, 4), 3, 22, 2},
                                       {OP(4456, 7), 10, 1, 9, 7, 8, 20},
                                       {OP(4456, 7), 11, 1, 9, 8, 7, 21},
                                       {OP(4456, 7), 12, 2, 9, 7, 7, 22},
                                       {OP(4457, 6), 10, 13, 17, 20, 7},
                                       {OP(4457, 6), 11, 14, 18, 21, 7},
                                       {OP(4459, 7), 12, 15, 13, 14, 19, 15},
                                       {OP(4458, 5), 17, 15, 21, 7},
                                       {OP(52, 5), 3, 16, 4460, 12}};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) assert_true(has(w, n, want[i]));
    for (size_t at = 5; at < n; at += w[at] >> 16) {
        assert_false((w[at] & 0xffff) >= 5358 && (w[at] & 0xffff) <= 5362);
        if ((w[at] & 0xffff) == 10) assert_string_equal((const char *)(w + at + 1), "SPV_KHR_cooperative_matrix");
    }
    free(w);
}

static void others(void **state)
{
    (void)state;
    uint32_t bad[WORDS];
    size_t n = 0;
    memcpy(bad, module, sizeof bad), bad[6] = 1; /* without the capability it stays as it is */
    uint32_t *w = ek_vulkan_matrices(bad, WORDS, &n);
    assert_int_equal(n, WORDS);
    assert_memory_equal(w, bad, sizeof bad);
    free(w);
    memcpy(bad, module, sizeof bad), bad[0] = 1;
    assert_null(ek_vulkan_matrices(bad, WORDS, &n));
    assert_null(ek_vulkan_matrices(module, WORDS - 1, &n)); /* an instruction that ends behind the module */
    memcpy(bad, module, sizeof bad), bad[3] = 6;            /* an identifier behind the bound */
    assert_null(ek_vulkan_matrices(bad, WORDS, &n));
    memcpy(bad, module, sizeof bad), bad[26] = 1; /* no type for the constants */
    assert_null(ek_vulkan_matrices(bad, WORDS, &n));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(instructions), cmocka_unit_test(others)};
    return cmocka_run_group_tests_name("matrices", tests, NULL, NULL);
}
