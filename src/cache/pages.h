/* Memory for keys and values: two pools of pages, one for full and one for sliding layers.
 *
 * A page holds 64 consecutive positions of every owning layer of its kind (ops/kv.h). It is
 * counted: the requests and, later, the prefix index that read it each hold one reference. A
 * page may be written only while it has one holder, at slots nobody has written before; a full
 * page is never written again, which is what makes sharing it safe.
 *
 * All memory is taken by open; acquire and release move pointers and take nothing. What a page
 * holds when it is acquired is left over from its last holder and must never matter.
 * Engine thread only. */
#ifndef EK_CACHE_PAGES_H
#define EK_CACHE_PAGES_H

#include <stdbool.h>

#include "ops/kv.h"

typedef struct ek_page {
    uint8_t *data; /* page_bytes of its kind, 64-byte aligned */
    int refs;      /* holders; 0 while in the pool */
    ek_layer_kind kind;
    struct ek_page *next; /* in the pool's list of free pages */
} ek_page;

typedef struct ek_pages ek_pages;

/* Bytes that open takes for n[kind] pages of each kind. */
size_t ek_pages_bytes(const ek_kv_layout *layout, const int n[EK_KIND_COUNT]);

/* Takes the memory of n[kind] pages; a kind without owning layers (page_bytes 0) gets none.
 * ENOMEM with both numbers when the system has less than that. */
ek_err ek_pages_open(ek_pages **out, const ek_kv_layout *layout, const int n[EK_KIND_COUNT]);
void ek_pages_close(ek_pages *p); /* every page must have been released */

/* Puts n pages of a kind, count 1, into out[0..n). All or none: EBUSY leaves out alone. */
ek_err ek_pages_acquire(ek_pages *p, ek_layer_kind kind, int n, ek_page **out);
/* One more holder for a page that is held already. */
void ek_page_retain(ek_page *page);
/* Gives up one hold on each of n pages; a page without holders returns to its pool. */
void ek_pages_release(ek_pages *p, ek_page *const *pages, int n);

int ek_pages_unused(const ek_pages *p, ek_layer_kind kind); /* that acquire can still give */
int ek_pages_total(const ek_pages *p, ek_layer_kind kind);

/* For tests: fills pages with NaN whenever they change hands. */
void ek_pages_poison(ek_pages *p, bool on);

#endif
