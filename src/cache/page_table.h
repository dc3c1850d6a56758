/* Pages of keys and values: page numbers in a pool per kind of page (ek_layer_kind), two of which may be empty, and
 * below, the page table of one sequence.
 *
 * A page holds 64 consecutive positions of every owning layer of its kind (ops/kv/kv.h). Here it is a
 * number; the memory behind it belongs to the executor, which may be a device. A page is counted: each
 * page table that reads it holds one reference. Only a page's single holder writes it, at or behind the
 * holder's end (below). A page with several holders is never written; this makes sharing safe.
 *
 * The prefix index (prefix.h) is a holder too, of pages that it marks as cached. A cached page without another
 * holder is idle. Idle pages count as available, because acquire makes the index release them first.
 *
 * acquire and release allocate nothing. An acquired page still has its last holder's contents; no result may
 * depend on them. Engine thread only. */
#ifndef EK_CACHE_PAGE_TABLE_H
#define EK_CACHE_PAGE_TABLE_H

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

/* --- The page table of one sequence: which page holds which positions.
 *
 * A table has the positions [0, n) and may write only behind them: extend acquires the pages of
 * the next rows. Entry i of a kind holds positions [64 i, 64 i + 64). The table holds the entries [first, end) of
 * a kind; all others are EK_NO_PAGE. Full layers: first stays 0. Sliding layers: an entry is released
 * once none of its positions is visible to a future row (trim).
 *
 * Tables share pages (adopt). A page is written only by its one holder, at or behind the holder's end:
 * before it would write a page with other holders, extend copies the page.
 * Engine thread only; init and fini of a table that holds nothing may run anywhere. */

typedef struct ek_page_table {
    int32_t *page[EK_KIND_COUNT];
    int first[EK_KIND_COUNT], end[EK_KIND_COUNT];
    int n;                   /* positions [0, n) are written, or being written by the running step */
    int cap;                 /* entries of each array */
    int window;              /* W: [p - W + 1, p] is visible to a row at p in sliding layers */
    int n_start;             /* entries [0, n_start) are pages of the start kinds */
    bool has[EK_KIND_COUNT]; /* false: no layer of that kind owns keys */
} ek_page_table;

/* An empty table for positions below max_tokens; allocates its arrays. */
void ek_page_table_init(ek_page_table *t, const ek_kv_layout *layout, int max_tokens);
void ek_page_table_fini(ek_page_table *t); /* must hold nothing */

/* The kind of page of an entry. */
static inline ek_layer_kind ek_page_table_kind(const ek_page_table *t, ek_layer_kind kind, int i)
{
    return i < t->n_start ? ek_kv_start_kind(kind) : kind;
}

/* Pages of a kind (of the EK_PAGE_KINDS) that the entries hold. */
int ek_page_table_held(const ek_page_table *t, ek_layer_kind kind);
/* Pages of a kind that extend by n rows would acquire. */
int ek_page_table_missing(const ek_page_table *t, const ek_pages *p, ek_layer_kind kind, int n);
/* The largest number of rows, 0..n, by which the unused pages can extend the table. */
int ek_page_table_room(const ek_page_table *t, const ek_pages *p, int n);

/* Makes room for rows at [t->n, t->n + n), which may then be written; t->n grows by n.
 * All or none over all kinds: EBUSY changes nothing. */
ek_err ek_page_table_extend(ek_page_table *t, ek_pages *p, int n);

/* Drops the positions from n on, n <= t->n, such as refused drafts, and releases the pages that hold nothing else. What
 * is visible to row n in sliding layers must still be held, so truncate before trim. */
void ek_page_table_truncate(ek_page_table *t, ek_pages *p, int n);

/* Releases the sliding pages that no row from n on sees, n <= t->n: entry i is released if its last position 64 i + 63
 * is below n - W + 1. */
void ek_page_table_trim(ek_page_table *t, ek_pages *p, int n);

/* Whether t holds all that a sequence beginning with t's first n positions needs. */
bool ek_page_table_holds(const ek_page_table *t, int n);
/* Makes the empty table t one of the first n >= 1 positions of `from`, which holds them: whole pages are
 * shared; the last one, if n ends inside it, is copied, so that neither has to wait for the other.
 * EBUSY without a page for the copy changes nothing. */
ek_err ek_page_table_adopt(ek_page_table *t, ek_pages *p, const ek_page_table *from, int n);

/* Releases every page: the request is finished, or starts over. */
void ek_page_table_clear(ek_page_table *t, ek_pages *p);

/* The largest number of pages of a kind (of the EK_PAGE_KINDS) that one request holds. Its rows are at ascending
 * positions below max_tokens, and a step computes `rows` rows. */
int ek_page_table_max(const ek_kv_layout *layout, ek_layer_kind kind, int max_tokens, int rows);

#endif
