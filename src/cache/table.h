/* The page table of one request: which page holds which positions.
 *
 * Entry i of a kind holds positions [64 i, 64 i + 64). Held are the entries [first, end) of a
 * kind; the others are NULL. Full layers: first stays 0. Sliding layers: an entry is given
 * back once no future row can see any of its positions (ek_table_trim).
 * Engine thread only; init and fini of a table that holds nothing may run anywhere. */
#ifndef EK_CACHE_TABLE_H
#define EK_CACHE_TABLE_H

#include "cache/pages.h"

typedef struct ek_table {
    ek_page **page[EK_KIND_COUNT];
    uint8_t **data[EK_KIND_COUNT]; /* the same pages as the model reads them (ek_seq) */
    int first[EK_KIND_COUNT], end[EK_KIND_COUNT];
    int cap;                 /* entries of each array */
    int window;              /* W: a row at p sees [p - W + 1, p] in sliding layers */
    bool has[EK_KIND_COUNT]; /* false: no layer of that kind owns keys */
} ek_table;

/* An empty table for positions below max_tokens; takes the memory of its arrays. */
void ek_table_init(ek_table *t, const ek_kv_layout *layout, int max_tokens);
void ek_table_fini(ek_table *t); /* must hold nothing */

/* Pages of a kind that rows [pos, pos + n) still need. */
int ek_table_missing(const ek_table *t, ek_layer_kind kind, int pos, int n);
/* How many of the rows [pos, pos + n) the table and the unused pages have room for: 0..n. */
int ek_table_room(const ek_table *t, const ek_pages *p, int pos, int n);

/* Takes the missing pages of rows [pos, pos + n) in both kinds. All or none: EBUSY changes
 * nothing. Rows are extended in ascending order, every position of the window before pos is
 * held (or pos is the first). The pages to be written have one holder. */
ek_err ek_table_extend(ek_table *t, ek_pages *p, int pos, int n);

/* Gives back the sliding pages that no row at a position >= next can see: entry i goes when
 * its last position 64 i + 63 is below next - W + 1, the first position that row next sees. */
void ek_table_trim(ek_table *t, ek_pages *p, int next);

/* Gives back everything: the request is finished, or starts over. */
void ek_table_clear(ek_table *t, ek_pages *p);

/* The most pages of a kind one request can hold while rows at ascending positions below
 * max_tokens run, `rows` of them in a step. */
int ek_table_most(const ek_kv_layout *layout, ek_layer_kind kind, int max_tokens, int rows);

#endif
