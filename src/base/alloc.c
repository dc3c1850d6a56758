#define _GNU_SOURCE
#include "base/alloc.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/err.h"
#include "base/reserve.h"

void *ek_alloc(size_t n)
{
    return ek_reserve_calloc(n ? n : 1);
}

void *ek_realloc(void *p, size_t n)
{
    return ek_reserve_realloc(p, n);
}

char *ek_strdup(const char *s)
{
    size_t n = strlen(s) + 1;
    return memcpy(ek_alloc(n), s, n);
}

enum { HUGE_PAGE = 2 << 20 };

static uint8_t *map(size_t n)
{
    void *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

/* n bytes from a multiple of a huge page on. */
static uint8_t *map_aligned(size_t n)
{
    const size_t page = 4096, whole = (n + page - 1) / page * page;
    uint8_t *p = map(whole + HUGE_PAGE);
    if (!p) return map(n);
    const size_t before = -(uintptr_t)p % HUGE_PAGE;
    if (before) munmap(p, before);
    munmap(p + before + whole, HUGE_PAGE - before);
    return p + before;
}

void *ek_alloc_big(size_t n)
{
    void *p = n < HUGE_PAGE ? map(n ? n : 1) : map_aligned(n);
    if (!p) {
        ek_fail(EK_ENOMEM, "the system refused %zu bytes", n);
        return NULL;
    }
    /* Huge pages save most TLB misses of a weight stream; a refusal costs nothing. */
    madvise(p, n, MADV_HUGEPAGE);
    return p;
}

void ek_free_big(void *p, size_t n)
{
    if (p) munmap(p, n ? n : 1);
}
