#define _GNU_SOURCE
#include "check.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/cpu.h"
#include "base/rng.h"
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

static void again(void)
{
    print_error("again: %s\n", program_invocation_name);
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
    again();
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
    again();
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
        print_error("[%zu] of %zu: want %a within %g, got %a\n", i, n, want[i], tol[i], (double)got[i]);
        again();
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
