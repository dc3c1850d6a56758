#define _GNU_SOURCE
#include "base/alloc.h"

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

void *ek_alloc_big(size_t n)
{
    void *p = mmap(NULL, n ? n : 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) {
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
