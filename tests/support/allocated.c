#include "allocated.h"

#include <stdatomic.h>
#include <stdlib.h>

#ifdef EK_SANITIZED
int allocated(void)
{
    return -1;
}
#else
static atomic_int taken;

int allocated(void)
{
    return taken;
}

void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);
void *__libc_memalign(size_t align, size_t n);

__attribute__((visibility("default"))) void *malloc(size_t n)
{
    atomic_fetch_add(&taken, 1);
    return __libc_malloc(n);
}
__attribute__((visibility("default"))) void *calloc(size_t n, size_t size)
{
    atomic_fetch_add(&taken, 1);
    return __libc_calloc(n, size);
}
__attribute__((visibility("default"))) void *realloc(void *p, size_t n)
{
    atomic_fetch_add(&taken, 1);
    return __libc_realloc(p, n);
}
__attribute__((visibility("default"))) void *aligned_alloc(size_t align, size_t n)
{
    atomic_fetch_add(&taken, 1);
    return __libc_memalign(align, n);
}
#endif
