/* Marks in SPIR-V: of a small module by hand, every operation on floats that has none gets one, in the right place. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "vulkan/spirv.h"

/* Capability, Import, MemoryModel, EntryPoint %4, LocalSize, Decorate %9 NoContraction, TypeVoid %2, TypeFloat %3,
 * Constant %5, FAdd %9, FMul %10, ExtInst Fma %11, ExtInst FAbs %12, IAdd %13. */
#define OP(op, words) (uint32_t)((words) << 16 | (op))
static const uint32_t module[] = {
    0x07230203, 0x00010500, 0,         20,         0,          OP(17, 2), 1,         OP(11, 6), 1, 0x4c534c47,
    0x6474732e, 0x3035342e, 0,         OP(14, 3),  0,          1,         OP(15, 5), 5,         4, 0x6e69616d,
    0,          OP(16, 6),  4,         17,         1,          1,         1,         OP(71, 3), 9, 42,
    OP(19, 2),  2,          OP(22, 3), 3,          32,         OP(43, 4), 3,         5,         0, OP(129, 5),
    3,          9,          5,         5,          OP(133, 5), 3,         10,        5,         5, OP(12, 8),
    3,          11,         1,         50,         5,          5,         5,         OP(12, 6), 3, 12,
    1,          4,          5,         OP(128, 5), 3,          13,        5,         5};
enum { WORDS = sizeof module / sizeof *module };

static size_t find(const uint32_t *w, size_t n, const uint32_t *what, size_t words)
{
    for (size_t at = 5; at < n; at += w[at] >> 16)
        if (words <= n - at && !memcmp(w + at, what, words * sizeof *w)) return at;
    return 0;
}

static void marks(void **state)
{
    (void)state;
    const ek_vulkan_modes modes = {.rte = true, .zeros = true};
    size_t n = 0;
    uint32_t *w = ek_vulkan_strict(module, WORDS, &modes, &n);
    assert_non_null(w);
    assert_int_equal(n, WORDS + 2 * 2 + 2 * 4 + 2 * 3); /* two capabilities, two modes, two marks */
    const uint32_t mul[] = {OP(71, 3), 10, 42}, fma[] = {OP(71, 3), 11, 42}, add[] = {OP(71, 3), 9, 42},
                   abs[] = {OP(71, 3), 12, 42}, rte[] = {OP(16, 4), 4, 4462, 32}, zeros[] = {OP(16, 4), 4, 4461, 32},
                   cap[] = {OP(17, 2), 4467}, type[] = {OP(19, 2), 2}, entry[] = {OP(15, 5), 5, 4};
    const size_t types = find(w, n, type, 2), at = find(w, n, entry, 3);
    assert_true(find(w, n, add, 3) && find(w, n, add, 3) < types);
    assert_true(find(w, n, mul, 3) > at && find(w, n, mul, 3) < types);
    assert_true(find(w, n, fma, 3) > at && find(w, n, fma, 3) < types);
    assert_true(find(w, n, rte, 4) > at && find(w, n, rte, 4) < find(w, n, add, 3));
    assert_true(find(w, n, zeros, 4) > at);
    assert_true(find(w, n, cap, 2) && find(w, n, cap, 2) < at);
    assert_int_equal(find(w, n, abs, 3), 0);
    free(w);
}

static void refuses(void **state)
{
    (void)state;
    const ek_vulkan_modes modes = {0};
    uint32_t bad[WORDS];
    size_t n;
    memcpy(bad, module, sizeof bad), bad[0] = 1;
    assert_null(ek_vulkan_strict(bad, WORDS, &modes, &n));
    memcpy(bad, module, sizeof bad), bad[5] = 1; /* an instruction of no words */
    assert_null(ek_vulkan_strict(bad, WORDS, &modes, &n));
    assert_null(ek_vulkan_strict(module, WORDS - 1, &modes, &n)); /* one that ends behind the module */
    memcpy(bad, module, sizeof bad), bad[3] = 10;                 /* an identifier behind the bound */
    assert_null(ek_vulkan_strict(bad, WORDS, &modes, &n));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(marks), cmocka_unit_test(refuses)};
    return cmocka_run_group_tests_name("strict", tests, NULL, NULL);
}
