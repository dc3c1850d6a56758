#include "cache/page_table.h"

#include <stdlib.h>

#include "base/alloc.h"

struct pool {
    int *refs;
    int32_t *unused; /* a stack: the page released last is the likeliest to be in the processor's caches */
    bool *cached;    /* whether the index is one of the holders */
    int n, n_unused; /* n_unused: on the stack */
    int n_idle;      /* cached pages with one holder */
};

struct ek_pages {
    struct pool pool[EK_PAGE_KINDS];
    ek_page_memory memory;
    void (*reclaim)(void *arg, ek_layer_kind kind, int n);
    void *reclaim_arg;
};

ek_err ek_pages_open(ek_pages **out, const int n[EK_PAGE_KINDS], const ek_page_memory *memory)
{
    for (int k = 0; k < EK_PAGE_KINDS; k++)
        if (n[k] < 0) return ek_fail(EK_EINVAL, "%d pages asked for", n[k]);
    ek_pages *p = ek_alloc(sizeof *p);
    if (memory) p->memory = *memory;
    for (int k = 0; k < EK_PAGE_KINDS; k++) {
        struct pool *pool = &p->pool[k];
        pool->refs = ek_alloc(sizeof *pool->refs * (size_t)n[k]);
        pool->unused = ek_alloc(sizeof *pool->unused * (size_t)n[k]);
        pool->cached = ek_alloc(sizeof *pool->cached * (size_t)n[k]);
        pool->n = pool->n_unused = n[k];
        for (int i = 0; i < n[k]; i++) pool->unused[i] = n[k] - 1 - i; /* page 0 is handed out first */
    }
    *out = p;
    return EK_OK;
}

void ek_pages_close(ek_pages *p)
{
    if (!p) return;
    for (int k = 0; k < EK_PAGE_KINDS; k++) {
        EK_ASSERT(p->pool[k].n_unused == p->pool[k].n);
        free(p->pool[k].refs);
        free(p->pool[k].unused);
        free(p->pool[k].cached);
    }
    free(p);
}

static void report(const ek_pages *p, ek_layer_kind kind, int32_t page)
{
    if (p->memory.changed_hands) p->memory.changed_hands(p->memory.arg, kind, page);
}

ek_err ek_pages_acquire(ek_pages *p, ek_layer_kind kind, int n, int32_t *out)
{
    struct pool *pool = &p->pool[kind];
    if (n > pool->n_unused + pool->n_idle)
        return ek_fail(EK_EBUSY, "%d pages wanted, %d of %d are unused", n, pool->n_unused + pool->n_idle, pool->n);
    if (n > pool->n_unused) {
        p->reclaim(p->reclaim_arg, kind, n - pool->n_unused);
        EK_ASSERT(n <= pool->n_unused);
    }
    for (int i = 0; i < n; i++) {
        int32_t page = pool->unused[--pool->n_unused];
        EK_ASSERT(pool->refs[page] == 0);
        pool->refs[page] = 1;
        report(p, kind, page);
        out[i] = page;
    }
    return EK_OK;
}

static int *refs_of(ek_pages *p, ek_layer_kind kind, int32_t page)
{
    EK_ASSERT(page >= 0 && page < p->pool[kind].n);
    int *refs = &p->pool[kind].refs[page];
    EK_ASSERT(*refs > 0);
    return refs;
}

void ek_pages_retain(ek_pages *p, ek_layer_kind kind, int32_t page)
{
    int *refs = refs_of(p, kind, page);
    if (*refs == 1 && p->pool[kind].cached[page]) p->pool[kind].n_idle--;
    ++*refs;
}

void ek_pages_release(ek_pages *p, ek_layer_kind kind, int32_t page)
{
    struct pool *pool = &p->pool[kind];
    int left = --*refs_of(p, kind, page);
    if (left == 1 && pool->cached[page]) pool->n_idle++;
    if (left > 0) return;
    EK_ASSERT(!pool->cached[page]);
    report(p, kind, page);
    pool->unused[pool->n_unused++] = page;
}

void ek_pages_cache(ek_pages *p, ek_layer_kind kind, int32_t page)
{
    ek_pages_retain(p, kind, page);
    EK_ASSERT(!p->pool[kind].cached[page]);
    p->pool[kind].cached[page] = true;
}

void ek_pages_uncache(ek_pages *p, ek_layer_kind kind, int32_t page)
{
    struct pool *pool = &p->pool[kind];
    EK_ASSERT(*refs_of(p, kind, page) >= 1 && pool->cached[page]);
    if (pool->refs[page] == 1) pool->n_idle--;
    pool->cached[page] = false;
    ek_pages_release(p, kind, page);
}

void ek_pages_set_reclaim(ek_pages *p, void (*reclaim)(void *arg, ek_layer_kind kind, int n), void *arg)
{
    p->reclaim = reclaim;
    p->reclaim_arg = arg;
}

void ek_pages_copy(ek_pages *p, ek_layer_kind kind, int32_t from, int32_t to)
{
    EK_ASSERT(*refs_of(p, kind, from) >= 1 && *refs_of(p, kind, to) == 1);
    if (p->memory.copy) p->memory.copy(p->memory.arg, kind, from, to);
}

int ek_pages_refs(const ek_pages *p, ek_layer_kind kind, int32_t page)
{
    EK_ASSERT(page >= 0 && page < p->pool[kind].n);
    return p->pool[kind].refs[page];
}

int ek_pages_unused(const ek_pages *p, ek_layer_kind kind)
{
    return p->pool[kind].n_unused + p->pool[kind].n_idle;
}

int ek_pages_idle(const ek_pages *p, ek_layer_kind kind)
{
    return p->pool[kind].n_idle;
}
