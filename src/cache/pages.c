#include "cache/pages.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/file.h"

struct pool {
    size_t page_bytes, stride, bytes;
    uint8_t *memory;
    ek_page *page;
    ek_page *unused; /* last in, first out: the page released last is the one still in cache */
    int n, n_unused;
};

struct ek_pages {
    struct pool pool[EK_KIND_COUNT];
    bool poison;
};

static size_t stride(size_t page_bytes)
{
    return (page_bytes + 63) / 64 * 64;
}

size_t ek_pages_bytes(const ek_kv_layout *layout, const int n[EK_KIND_COUNT])
{
    size_t bytes = 0;
    for (int k = 0; k < EK_KIND_COUNT; k++) bytes += stride(layout->page_bytes[k]) * (size_t)n[k];
    return bytes;
}

static ek_err pool_open(struct pool *p, ek_layer_kind kind, size_t page_bytes, int n)
{
    if (page_bytes == 0 || n == 0) return EK_OK;
    p->page_bytes = page_bytes;
    p->stride = stride(page_bytes);
    p->bytes = p->stride * (size_t)n;
    p->memory = ek_alloc_big(p->bytes);
    if (!p->memory) return ek_fail_in(EK_ENOMEM, "%d pages of %zu bytes for keys and values", n, page_bytes);
    p->page = ek_alloc(sizeof *p->page * (size_t)n);
    p->n = p->n_unused = n;
    for (int i = n - 1; i >= 0; i--) { /* so that page 0 is handed out first */
        p->page[i] = (ek_page){.data = p->memory + p->stride * (size_t)i, .kind = kind, .next = p->unused};
        p->unused = &p->page[i];
    }
    return EK_OK;
}

ek_err ek_pages_open(ek_pages **out, const ek_kv_layout *layout, const int n[EK_KIND_COUNT])
{
    for (int k = 0; k < EK_KIND_COUNT; k++)
        if (n[k] < 0) return ek_fail(EK_EINVAL, "%d pages asked for", n[k]);
    double have = ek_memory_available(), need = 0;
    for (int k = 0; k < EK_KIND_COUNT; k++) need += (double)stride(layout->page_bytes[k]) * n[k];
    if (have > 0 && need > have)
        return ek_fail(EK_ENOMEM, "keys and values need %.0f MiB, %.0f MiB of memory are available", need / 1048576,
                       have / 1048576);
    ek_pages *p = ek_alloc(sizeof *p);
    for (int k = 0; k < EK_KIND_COUNT; k++) {
        ek_err err = pool_open(&p->pool[k], (ek_layer_kind)k, layout->page_bytes[k], n[k]);
        if (err == EK_OK) continue;
        ek_pages_close(p);
        return err;
    }
    *out = p;
    return EK_OK;
}

void ek_pages_close(ek_pages *p)
{
    if (!p) return;
    for (int k = 0; k < EK_KIND_COUNT; k++) {
        EK_ASSERT(p->pool[k].n_unused == p->pool[k].n);
        ek_free_big(p->pool[k].memory, p->pool[k].bytes);
        free(p->pool[k].page);
    }
    free(p);
}

static void poison(const ek_pages *p, ek_page *page)
{
    /* all bits set: NaN as f32, f16 and bf16 */
    if (p->poison) memset(page->data, 0xff, p->pool[page->kind].page_bytes);
}

ek_err ek_pages_acquire(ek_pages *p, ek_layer_kind kind, int n, ek_page **out)
{
    struct pool *pool = &p->pool[kind];
    if (n > pool->n_unused)
        return ek_fail(EK_EBUSY, "%d pages wanted, %d of %d are unused", n, pool->n_unused, pool->n);
    for (int i = 0; i < n; i++) {
        ek_page *page = pool->unused;
        EK_ASSERT(page && page->refs == 0);
        pool->unused = page->next;
        page->next = NULL;
        page->refs = 1;
        poison(p, page);
        out[i] = page;
    }
    pool->n_unused -= n;
    return EK_OK;
}

void ek_page_retain(ek_page *page)
{
    EK_ASSERT(page->refs > 0);
    page->refs++;
}

void ek_pages_release(ek_pages *p, ek_page *const *pages, int n)
{
    for (int i = 0; i < n; i++) {
        ek_page *page = pages[i];
        struct pool *pool = &p->pool[page->kind];
        EK_ASSERT(page->refs > 0);
        if (--page->refs > 0) continue;
        poison(p, page);
        page->next = pool->unused;
        pool->unused = page;
        pool->n_unused++;
    }
}

int ek_pages_unused(const ek_pages *p, ek_layer_kind kind)
{
    return p->pool[kind].n_unused;
}

int ek_pages_total(const ek_pages *p, ek_layer_kind kind)
{
    return p->pool[kind].n;
}

void ek_pages_poison(ek_pages *p, bool on)
{
    p->poison = on;
    for (int k = 0; k < EK_KIND_COUNT; k++)
        for (ek_page *page = p->pool[k].unused; page; page = page->next) poison(p, page);
}
