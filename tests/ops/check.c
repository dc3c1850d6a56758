#define _GNU_SOURCE
#include "check.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/machine/cpu.h"
#include "base/hash/rng.h"
#include "tensor/dtype.h"

float check_uniform(uint64_t seed, uint64_t i)
{
    uint64_t h = ek_mix64(ek_mix64(seed) + i * 0x9e3779b97f4a7c15u);
    return (float)((int32_t)(h >> 39) - (1 << 24)) * 0x1p-24f;
}

void check_fill(float *x, size_t n, uint64_t seed, float scale)
{
    for (size_t i = 0; i < n; i++) x[i] = scale * check_uniform(seed, i);
}

void check_fill_wide(float *x, size_t n, uint64_t seed)
{
    for (size_t i = 0; i < n; i++) x[i] = ldexpf(check_uniform(seed, i), (int)(ek_mix64(seed ^ (i << 20)) % 17) - 8);
}

void check_fill_bytes(void *p, size_t n, uint64_t seed)
{
    for (size_t i = 0; i < n; i++) ((uint8_t *)p)[i] = (uint8_t)ek_mix64(ek_mix64(seed) + i);
}

static const char *running; /* the test, if it said so */
static const char *only[3]; /* scalar and the instruction set asked for */

int check_starts(void **state)
{
    running = *state;
    return 0;
}

int check_run(int argc, char **argv, const struct CMUnitTest *tests, size_t n)
{
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    if (argc > 2) {
        const char *const *all = ek_cpu_isas();
        while (*all && strcmp(*all, argv[2]) != 0) all++;
        if (!*all) {
            fprintf(stderr, "%s: this machine has no instruction set %s\n", argv[0], argv[2]);
            return 2;
        }
        only[0] = ek_cpu_isas()[0];
        if (*all != only[0]) only[1] = *all;
    }
    return _cmocka_run_group_tests(argv[0], tests, n, NULL, NULL);
}

const char *const *check_isas(void)
{
    return only[0] ? only : ek_cpu_isas();
}

unsigned check_cpu(const char *isa)
{
    unsigned cpu = 0;
    if (ek_cpu_mask(isa, &cpu) != EK_OK) fail_msg("%s", ek_err_text());
    return cpu;
}

static void where(const char *op, const char *isa, const char *shape, va_list ap)
{
    char text[256];
    vsnprintf(text, sizeof text, shape, ap);
    print_error("%s, %s, %s\n", op, isa, text);
}

static void again(const char *isa)
{
    print_error("again: %s%s%s%s%s\n", program_invocation_name, running ? " " : "", running ? running : "",
                running ? " " : "", running ? isa : "");
    fail();
}

void check_bits(const char *op, const char *isa, const float *want, const float *got, size_t n, const char *shape, ...)
{
    if (memcmp(want, got, n * sizeof *want) == 0) return;
    size_t first = n, differ = 0;
    for (size_t i = n; i-- > 0;)
        if (ek_f32_bits(want[i]) != ek_f32_bits(got[i])) first = i, differ++;
    va_list ap;
    va_start(ap, shape);
    where(op, isa, shape, ap);
    va_end(ap);
    print_error("%zu of %zu differ, first [%zu]: want %a (%08x), got %a (%08x)\n", differ, n, first, want[first],
                ek_f32_bits(want[first]), got[first], ek_f32_bits(got[first]));
    again(isa);
}

void check_bytes(const char *op, const char *isa, const void *want, const void *got, size_t n, const char *shape, ...)
{
    if (memcmp(want, got, n) == 0) return;
    const uint8_t *w = want, *g = got;
    size_t i = 0;
    while (w[i] == g[i]) i++;
    va_list ap;
    va_start(ap, shape);
    where(op, isa, shape, ap);
    va_end(ap);
    print_error("first difference at byte %zu of %zu: want %02x, got %02x\n", i, n, w[i], g[i]);
    again(isa);
}

void check_near(const char *op, const char *isa, const double *want, const float *got, size_t n, const double *tol,
                const char *shape, ...)
{
    for (size_t i = 0; i < n; i++) {
        if (fabs((double)got[i] - want[i]) <= tol[i]) continue;
        va_list ap;
        va_start(ap, shape);
        where(op, isa, shape, ap);
        va_end(ap);
        print_error("[%zu] of %zu: want %a within %g, got %a, off by %g\n", i, n, want[i], tol[i], (double)got[i],
                    (double)got[i] - want[i]);
        again(isa);
    }
}

static size_t pages(size_t n, size_t page)
{
    return (n + page - 1) / page * page;
}

void *check_alloc(size_t n)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    n = (n + 63) / 64 * 64;
    size_t room = pages(n, page);
    uint8_t *p = mmap(NULL, room + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED || mprotect(p + room, page, PROT_NONE) != 0) fail_msg("no memory for a test");
    return p + room - n;
}

void check_free(void *p, size_t n)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    n = (n + 63) / 64 * 64;
    size_t room = pages(n, page);
    munmap((uint8_t *)p + n - room, room + page);
}
