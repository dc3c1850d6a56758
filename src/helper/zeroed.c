/* Zeroes all memory that a decoder allocates. A damaged file may leave bytes unwritten. They have to be the same in
 * every process, and never an address or a part of other data. This file overrides the C library's allocator for all
 * libraries of the process; on macOS an environment variable of the helper does this. */
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__GLIBC__) && !defined(EK_SANITIZED) && !defined(__SANITIZE_ADDRESS__)
#include <malloc.h>

void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);
void *__libc_memalign(size_t align, size_t n);

#define PUBLIC __attribute__((visibility("default")))

PUBLIC void *malloc(size_t n)
{
    return __libc_calloc(1, n);
}

PUBLIC void *realloc(void *p, size_t n)
{
    const size_t had = p ? malloc_usable_size(p) : 0;
    uint8_t *q = __libc_realloc(p, n);
    if (!q || n == 0) return q;
    const size_t has = malloc_usable_size(q);
    if (has > had) memset(q + had, 0, has - had);
    return q;
}

PUBLIC void *memalign(size_t align, size_t n)
{
    void *p = __libc_memalign(align, n);
    return p ? memset(p, 0, n) : NULL;
}

PUBLIC void *aligned_alloc(size_t align, size_t n)
{
    return memalign(align, n);
}

PUBLIC int posix_memalign(void **out, size_t align, size_t n)
{
    if (align < sizeof(void *) || (align & (align - 1))) return EINVAL;
    void *p = memalign(align, n);
    if (!p) return ENOMEM;
    *out = p;
    return 0;
}
#endif
