/* Functions in place of the C library's, for all libraries of the helper's processes. On macOS a program cannot
 * override those of its libraries; an environment variable of the helper zeroes memory there. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define PUBLIC __attribute__((visibility("default")))

/* Decoders see only one processor. With more threads, the result of a damaged file would depend on the threads' order,
 * and each thread would take uncounted memory. */
#ifdef __linux__
#include <pthread.h>
#include <sched.h>

PUBLIC int sched_getaffinity(pid_t pid, size_t n, cpu_set_t *out)
{
    (void)pid;
    memset(out, 0, n);
    CPU_SET_S(0, n, out);
    return 0;
}

PUBLIC int pthread_getaffinity_np(pthread_t thread, size_t n, cpu_set_t *out)
{
    (void)thread;
    return sched_getaffinity(0, n, out);
}
#endif

/* All memory that a decoder allocates is zeroed. A damaged file may leave bytes unwritten. They have to be the same in
 * every process, and never an address or a part of other data. */
#if defined(__GLIBC__) && !defined(EK_SANITIZED) && !defined(__SANITIZE_ADDRESS__)
#include <malloc.h>

void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);
void *__libc_memalign(size_t align, size_t n);

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
