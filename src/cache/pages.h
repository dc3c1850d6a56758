/* Page numbers for keys and values: a pool per kind of page (ek_layer_kind), two of which may be empty.
 *
 * A page holds 64 consecutive positions of every owning layer of its kind (ops/kv/kv.h). Here it is a
 * number; the memory behind it belongs to the executor, which may be a device. A page is counted: each
 * page table that reads it holds one reference. Only a page's single holder writes it, at or behind the
 * holder's end (page_table.h). A page with several holders is never written; this makes sharing safe.
 *
 * The prefix index (prefix.h) is a holder too, of pages that it marks as cached. A cached page without another
 * holder is idle. Idle pages count as available, because acquire makes the index release them first.
 *
 * acquire and release allocate nothing. An acquired page still has its last holder's contents; no result may
 * depend on them. Engine thread only. */
#ifndef EK_CACHE_PAGES_H
#define EK_CACHE_PAGES_H

#include <stdbool.h>

#include "ops/kv/kv.h"

typedef struct ek_pages ek_pages;

/* Callbacks into the owner of the memory; a NULL function is not called. */
typedef struct ek_page_memory {
    void *arg;
    /* to = from, all 64 positions; both are pages of this kind, held by the caller's table */
    void (*copy)(void *arg, ek_layer_kind kind, int32_t from, int32_t to);
    /* For tests, which fill pages with NaN: a page was acquired, or its last holder released it. */
    void (*changed_hands)(void *arg, ek_layer_kind kind, int32_t page);
} ek_page_memory;

/* Pages [0, n) of each kind, all unused; kinds are EK_PAGE_KINDS here. memory is copied; NULL: nothing is called. */
ek_err ek_pages_open(ek_pages **out, const int n[EK_PAGE_KINDS], const ek_page_memory *memory);
void ek_pages_close(ek_pages *p); /* every page must have been released */

/* Puts n pages of a kind, each with count 1, into out[0..n). EBUSY if there are fewer than n pages; then none is taken,
 * and out is unchanged. */
ek_err ek_pages_acquire(ek_pages *p, ek_layer_kind kind, int n, int32_t *out);
/* One more holder for a page that is held already. */
void ek_pages_retain(ek_pages *p, ek_layer_kind kind, int32_t page);
/* Removes one holder; a page without holders returns to its pool. */
void ek_pages_release(ek_pages *p, ek_layer_kind kind, int32_t page);
void ek_pages_copy(ek_pages *p, ek_layer_kind kind, int32_t from, int32_t to);

int ek_pages_refs(const ek_pages *p, ek_layer_kind kind, int32_t page); /* holders; 0: unused */
int ek_pages_unused(const ek_pages *p, ek_layer_kind kind); /* pages that acquire can return, with idle ones */
int ek_pages_idle(const ek_pages *p, ek_layer_kind kind);   /* cached pages without another holder */

/* The index becomes one more holder of a held page; at most once per page. */
void ek_pages_cache(ek_pages *p, ek_layer_kind kind, int32_t page);
/* Removes the index as a holder. */
void ek_pages_uncache(ek_pages *p, ek_layer_kind kind, int32_t page);
/* Calls reclaim when acquire needs n more pages of a kind than are in the pool: it must uncache idle pages until
 * there are n more, or none is idle. */
void ek_pages_set_reclaim(ek_pages *p, void (*reclaim)(void *arg, ek_layer_kind kind, int n), void *arg);

#endif
