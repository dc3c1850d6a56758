/* Two backends as one: a disk of this process, and a store that processes share. */
#include <stdlib.h>

#include "base/alloc.h"
#include "cache/store.h"

typedef struct both {
    ek_store_backend upper, lower;
} both;

static void write_pages(void *arg, ek_store_page *const *page, int n)
{
    both *b = arg;
    b->upper.write(b->upper.arg, page, n);
    b->lower.write(b->lower.arg, page, n);
}

/* The wanted kinds that are missing; false if there are none. */
static bool rest_of(const ek_store_page *p, const bool want[EK_KIND_COUNT], bool rest[EK_KIND_COUNT])
{
    bool any = false;
    for (int k = 0; k < EK_KIND_COUNT; k++) {
        rest[k] = want[k] && !p->has[k];
        any = any || rest[k];
    }
    return any;
}

static void read_page(void *arg, ek_store_page *p, const bool want[EK_KIND_COUNT])
{
    both *b = arg;
    bool rest[EK_KIND_COUNT];
    b->upper.read(b->upper.arg, p, want);
    if (rest_of(p, want, rest)) b->lower.read(b->lower.arg, p, rest);
}

static void read_ahead(void *arg, const ek_store_page *p, const bool want[EK_KIND_COUNT])
{
    both *b = arg;
    bool rest[EK_KIND_COUNT];
    if (!b->lower.ahead) return;
    for (int k = 0; p && k < EK_KIND_COUNT; k++)
        rest[k] = want[k] && !(b->upper.holds && b->upper.holds(b->upper.arg, p, k));
    b->lower.ahead(b->lower.arg, p, p ? rest : NULL);
}

static uint64_t queued(void *arg)
{
    both *b = arg;
    return b->lower.queued ? b->lower.queued(b->lower.arg) : 0;
}

static bool is_written(void *arg, uint64_t n)
{
    both *b = arg;
    return !b->lower.is_written || b->lower.is_written(b->lower.arg, n);
}

static void close_both(void *arg)
{
    both *b = arg;
    b->upper.close(b->upper.arg);
    b->lower.close(b->lower.arg);
    free(b);
}

void ek_store_both(ek_store_backend *out, const ek_store_backend *upper, const ek_store_backend *lower)
{
    both *b = ek_alloc(sizeof *b);
    *b = (both){.upper = *upper, .lower = *lower};
    *out = (ek_store_backend){.arg = b,
                              .write = write_pages,
                              .read = read_page,
                              .ahead = read_ahead,
                              .queued = queued,
                              .is_written = is_written,
                              .close = close_both,
                              .counts = upper->counts,
                              .host = upper->host,
                              .shared = lower->shared};
}
