/* The page table of one sequence: which page holds which positions.
 *
 * A table has the positions [0, n) and may write only behind them: extend takes what the next rows
 * need. Entry i of a kind holds positions [64 i, 64 i + 64). Held are the entries [first, end) of a
 * kind; the others are EK_NO_PAGE. Full layers: first stays 0. Sliding layers: an entry is given back
 * once no future row can see any of its positions (trim).
 *
 * Tables share pages (adopt). A page is written only by its one holder, at or behind the holder's end:
 * extend takes a copy of a page that it would have to write and that others hold too.
 * Engine thread only; init and fini of a table that holds nothing may run anywhere. */
#ifndef EK_CACHE_PAGE_TABLE_H
#define EK_CACHE_PAGE_TABLE_H

#include <stdbool.h>

#include "cache/pages.h"

typedef struct ek_page_table {
    int32_t *page[EK_KIND_COUNT];
    int first[EK_KIND_COUNT], end[EK_KIND_COUNT];
    int n;                   /* positions [0, n) are written, or being written by the step that runs */
    int pin;                 /* trim keeps what a row at this position sees; INT_MAX: nothing is pinned */
    int cap;                 /* entries of each array */
    int window;              /* W: a row at p sees [p - W + 1, p] in sliding layers */
    bool has[EK_KIND_COUNT]; /* false: no layer of that kind owns keys */
} ek_page_table;

/* An empty table for positions below max_tokens; takes the memory of its arrays. */
void ek_page_table_init(ek_page_table *t, const ek_kv_layout *layout, int max_tokens);
void ek_page_table_fini(ek_page_table *t); /* must hold nothing */

/* Pages of a kind that extend by n rows would take. */
int ek_page_table_missing(const ek_page_table *t, const ek_pages *p, ek_layer_kind kind, int n);
/* By how many rows, 0..n, the table can be extended with the unused pages. */
int ek_page_table_room(const ek_page_table *t, const ek_pages *p, int n);

/* Makes room for rows at [t->n, t->n + n), which may then be written, and counts them as there.
 * All or none over both kinds: EBUSY changes nothing. */
ek_err ek_page_table_extend(ek_page_table *t, ek_pages *p, int n);

/* Forgets the positions from n on, n <= t->n, and gives back the pages that hold nothing else: drafted
 * tokens that were refused. What row n sees in sliding layers must still be held, so truncate first and
 * trim then. */
void ek_page_table_truncate(ek_page_table *t, ek_pages *p, int n);

/* Gives back the sliding pages that no row at t->n or behind can see: entry i goes when its last
 * position 64 i + 63 is below t->n - W + 1. Not those that the pin keeps. */
void ek_page_table_trim(ek_page_table *t, ek_pages *p);

/* Trim keeps every sliding page that a row at `pos` sees, until the next call; INT_MAX ends it. For a
 * position that a step will pass and that is to be adopted behind it: a chunk that ends farther on would
 * trim what its prefix needs. Must still be held. */
void ek_page_table_pin(ek_page_table *t, int pos);

/* Whether t holds all that a sequence beginning with t's first n positions needs. */
bool ek_page_table_holds(const ek_page_table *t, int n);
/* Makes the empty table t one of the first n >= 1 positions of `from`, which holds them: whole pages are
 * shared; the last one, if n ends inside it, is copied, so that neither has to wait for the other.
 * EBUSY without a page for the copy changes nothing. */
ek_err ek_page_table_adopt(ek_page_table *t, ek_pages *p, const ek_page_table *from, int n);

/* Gives back everything: the request is finished, or starts over. */
void ek_page_table_clear(ek_page_table *t, ek_pages *p);

/* The largest number of pages of a kind that one request holds while rows at ascending positions below
 * max_tokens run, `rows` of them per step, nothing pinned. */
int ek_page_table_max(const ek_kv_layout *layout, ek_layer_kind kind, int max_tokens, int rows);

#endif
