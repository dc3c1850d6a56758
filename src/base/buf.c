#define _GNU_SOURCE
#include "base/buf.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/err.h"

static void reserve(ek_buf *b, size_t more)
{
    if (b->len + more + 1 <= b->cap) return;
    size_t cap = b->cap ? b->cap : 64;
    while (cap < b->len + more + 1) cap *= 2;
    b->data = ek_realloc(b->data, cap);
    b->cap = cap;
}

void ek_buf_add(ek_buf *b, const void *bytes, size_t n)
{
    reserve(b, n);
    if (n) memcpy(b->data + b->len, bytes, n);
    b->len += n;
    b->data[b->len] = '\0';
}

void ek_buf_str(ek_buf *b, const char *s)
{
    ek_buf_add(b, s, strlen(s));
}

void ek_buf_char(ek_buf *b, char c)
{
    ek_buf_add(b, &c, 1);
}

void ek_buf_fmt(ek_buf *b, const char *fmt, ...)
{
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    EK_ASSERT(n >= 0);
    reserve(b, (size_t)n);
    vsnprintf(b->data + b->len, (size_t)n + 1, fmt, again);
    va_end(again);
    b->len += (size_t)n;
}

void ek_buf_clear(ek_buf *b)
{
    b->len = 0;
    if (b->data) b->data[0] = '\0';
}

void ek_buf_fini(ek_buf *b)
{
    free(b->data);
    *b = (ek_buf){0};
}

const char *ek_buf_text(const ek_buf *b)
{
    return b->data ? b->data : "";
}

static void *must(void *p, size_t n)
{
    if (p || n == 0) return p;
    fprintf(stderr, "evenkeel: no memory for %zu bytes\n", n);
    abort();
}

void *ek_alloc(size_t n)
{
    return must(calloc(1, n ? n : 1), n);
}

void *ek_realloc(void *p, size_t n)
{
    return must(realloc(p, n), n);
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
