/* What every kernel test shares: seeded inputs and a comparison of bits that, when it fails,
 * says which op, which ISA, which shape, both values in %a and how to run it again. */
#ifndef EK_TESTS_OPS_CHECK_H
#define EK_TESTS_OPS_CHECK_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* A test program that can repeat one failure:
 *     static const struct CMUnitTest tests[] = {CHECK_TEST(affine), CHECK_TEST(floats)};
 *     return CHECK_RUN(argc, argv, tests);
 * Without arguments all tests run. PROGRAM TEST [ISA] runs the one, on the scalar definition and
 * that instruction set alone: the command that a failing check prints. */
#define CHECK_TEST(test)                               \
    {                                                  \
#test, test, check_starts, NULL, (void *)#test \
    }
#define CHECK_RUN(argc, argv, tests) check_run(argc, argv, tests, sizeof(tests) / sizeof *(tests))
int check_starts(void **state);
int check_run(int argc, char **argv, const struct CMUnitTest *tests, size_t n);

/* Values are a pure function of (seed, index). */
float check_uniform(uint64_t seed, uint64_t i);                  /* in [-1, 1), full 24-bit fraction */
void check_fill(float *x, size_t n, uint64_t seed, float scale); /* scale * uniform */
/* Magnitudes spread over 2^-8 .. 2^8: a changed order of additions shows in almost every sum. */
void check_fill_wide(float *x, size_t n, uint64_t seed);
void check_fill_bytes(void *p, size_t n, uint64_t seed);

/* Runs body once for every instruction set of this machine, scalar first:
 *     CHECK_ISAS(isa, cpu) { … isa is "avx2", cpu the mask … } */
#define CHECK_ISAS(isa, cpu)                                                             \
    for (const char *const *isa##_ = check_isas(), *isa = *isa##_; isa; isa = *++isa##_) \
        for (unsigned cpu = check_cpu(isa), isa##_once = 1; isa##_once; isa##_once = 0)
const char *const *check_isas(void); /* ends with NULL */
unsigned check_cpu(const char *isa);

/* Fails the running test unless the n floats have the same bits. The format is the shape. */
__attribute__((format(printf, 6, 7))) void check_bits(const char *op, const char *isa, const float *want,
                                                      const float *got, size_t n, const char *shape, ...);
/* The same for other memory: bytes are compared and printed in hexadecimal. */
__attribute__((format(printf, 6, 7))) void check_bytes(const char *op, const char *isa, const void *want,
                                                       const void *got, size_t n, const char *shape, ...);
/* |got - want| <= tol, against an independent float64 reference. */
__attribute__((format(printf, 7, 8))) void check_near(const char *op, const char *isa, const double *want,
                                                      const float *got, size_t n, const double *tol, const char *shape,
                                                      ...);

/* 64-byte aligned test memory with a guard page right behind its last byte, so that reading or
 * writing past the end faults; n is rounded up to 64. check_free takes the same n. */
void *check_alloc(size_t n);
void check_free(void *p, size_t n);

#endif
