#include "cache/page_table.h"

#include <limits.h>
#include <stdlib.h>

#include "base/alloc.h"

static int pages_for(int tokens)
{
    return tokens / EK_PAGE_TOKENS + (tokens % EK_PAGE_TOKENS > 0);
}

void ek_page_table_init(ek_page_table *t, const ek_kv_layout *layout, int max_tokens)
{
    EK_ASSERT(max_tokens >= 1);
    *t = (ek_page_table){.cap = pages_for(max_tokens), .window = layout->sliding_window, .n_start = layout->n_start};
    for (int k = 0; k < EK_KIND_COUNT; k++) {
        t->has[k] = layout->page_bytes[k] > 0;
        t->page[k] = ek_alloc(sizeof *t->page[k] * (size_t)t->cap);
        for (int i = 0; i < t->cap; i++) t->page[k][i] = EK_NO_PAGE;
    }
    EK_ASSERT(!t->has[EK_SLIDING] || t->window >= 1);
}

void ek_page_table_fini(ek_page_table *t)
{
    for (int k = 0; k < EK_KIND_COUNT; k++) {
        EK_ASSERT(t->first[k] == t->end[k]);
        free(t->page[k]);
    }
    *t = (ek_page_table){0};
}

/* The first entry of a kind that is visible to a row at pos. */
static int first_visible(const ek_page_table *t, ek_layer_kind kind, int pos)
{
    int lo = kind == EK_SLIDING ? pos - t->window + 1 : 0;
    return lo > 0 ? lo / EK_PAGE_TOKENS : 0;
}

/* Whether the next row would write into a page that others also hold. */
static bool shares_end(const ek_page_table *t, const ek_pages *p, ek_layer_kind kind)
{
    int i = t->n / EK_PAGE_TOKENS;
    return t->n % EK_PAGE_TOKENS > 0 && ek_pages_refs(p, ek_page_table_kind(t, kind, i), t->page[kind][i]) > 1;
}

/* The number of entries of [from, to) with pages of `kind`; a layer kind has two kinds of pages. */
static int of_kind(int n_start, ek_layer_kind kind, int from, int to)
{
    if (kind >= EK_KIND_COUNT) to = to < n_start ? to : n_start;
    else from = from > n_start ? from : n_start;
    return to > from ? to - from : 0;
}

static ek_layer_kind layer_kind(ek_layer_kind kind)
{
    return (ek_layer_kind)(kind % EK_KIND_COUNT);
}

int ek_page_table_held(const ek_page_table *t, ek_layer_kind kind)
{
    ek_layer_kind layers = layer_kind(kind);
    return of_kind(t->n_start, kind, t->first[layers], t->end[layers]);
}

int ek_page_table_missing(const ek_page_table *t, const ek_pages *p, ek_layer_kind kind, int n)
{
    ek_layer_kind layers = layer_kind(kind);
    if (!t->has[layers] || n == 0) return 0;
    bool copy = ek_page_table_kind(t, layers, t->n / EK_PAGE_TOKENS) == kind && shares_end(t, p, layers);
    return of_kind(t->n_start, kind, t->end[layers], pages_for(t->n + n)) + copy;
}

int ek_page_table_room(const ek_page_table *t, const ek_pages *p, int n)
{
    for (int k = 0; k < EK_KIND_COUNT; k++) {
        if (!t->has[k]) continue;
        int unused[2], i = t->n / EK_PAGE_TOKENS, end = t->end[k];
        for (int start = 0; start < 2; start++)
            unused[start] = ek_pages_unused(p, (ek_layer_kind)(k + start * EK_KIND_COUNT));
        if (shares_end(t, p, (ek_layer_kind)k) && --unused[i < t->n_start] < 0) return 0;
        int first = end < t->n_start ? t->n_start - end : 0; /* further entries with start pages */
        int64_t more = unused[1] < first ? unused[1] : (int64_t)first + unused[0];
        int64_t room = (end + more) * EK_PAGE_TOKENS - t->n;
        if (room < n) n = (int)room;
    }
    return n;
}

/* Replaces the last, partly filled page by a copy that only this table holds. */
static void own_end(ek_page_table *t, ek_pages *p, ek_layer_kind kind)
{
    int i = t->n / EK_PAGE_TOKENS;
    int32_t *at = &t->page[kind][i], own;
    kind = ek_page_table_kind(t, kind, i);
    const ek_err err = ek_pages_acquire(p, kind, 1, &own);
    EK_ASSERT(err == EK_OK);
    ek_pages_copy(p, kind, *at, own);
    ek_pages_release(p, kind, *at);
    *at = own;
}

ek_err ek_page_table_extend(ek_page_table *t, ek_pages *p, int n)
{
    EK_ASSERT(n >= 1 && pages_for(t->n + n) <= t->cap);
    for (int k = 0; k < EK_KIND_COUNT; k++) {
        ek_layer_kind kind = (ek_layer_kind)k;
        if (!t->has[k]) continue;
        EK_ASSERT(t->end[k] == pages_for(t->n));
        EK_ASSERT(t->first[k] <= first_visible(t, kind, t->n));
    }
    for (int k = 0; k < EK_PAGE_KINDS; k++) {
        ek_layer_kind kind = (ek_layer_kind)k;
        int more = ek_page_table_missing(t, p, kind, n), unused = ek_pages_unused(p, kind);
        if (more > unused)
            return ek_fail(EK_EBUSY, "%d pages wanted for positions %d to %d, %d are unused", more, t->n, t->n + n - 1,
                           unused);
    }
    for (int k = 0; k < EK_KIND_COUNT; k++) {
        ek_layer_kind kind = (ek_layer_kind)k;
        if (!t->has[k]) continue;
        if (shares_end(t, p, kind)) own_end(t, p, kind);
        for (int end = pages_for(t->n + n); t->end[k] < end;) {
            ek_layer_kind pages = ek_page_table_kind(t, kind, t->end[k]);
            int more = of_kind(t->n_start, pages, t->end[k], end);
            const ek_err err = ek_pages_acquire(p, pages, more, t->page[k] + t->end[k]);
            EK_ASSERT(err == EK_OK);
            t->end[k] += more;
        }
        for (int i = t->n / EK_PAGE_TOKENS; i < t->end[k]; i++)
            EK_ASSERT(ek_pages_refs(p, ek_page_table_kind(t, kind, i), t->page[k][i]) == 1);
    }
    t->n += n;
    return EK_OK;
}

static void drop(ek_page_table *t, ek_pages *p, ek_layer_kind kind, int i)
{
    ek_pages_release(p, ek_page_table_kind(t, kind, i), t->page[kind][i]);
    t->page[kind][i] = EK_NO_PAGE;
}

void ek_page_table_truncate(ek_page_table *t, ek_pages *p, int n)
{
    EK_ASSERT(n >= 0 && n <= t->n);
    for (int k = 0; k < EK_KIND_COUNT; k++) {
        if (!t->has[k]) continue;
        EK_ASSERT(t->first[k] <= first_visible(t, (ek_layer_kind)k, n));
        while (t->end[k] > pages_for(n)) drop(t, p, (ek_layer_kind)k, --t->end[k]);
    }
    t->n = n;
}

/* Returns the pages of a kind in entries below `first`. */
static void drop_below(ek_page_table *t, ek_pages *p, ek_layer_kind kind, int first)
{
    if (first > t->end[kind]) first = t->end[kind];
    while (t->first[kind] < first) drop(t, p, kind, t->first[kind]++);
}

void ek_page_table_trim(ek_page_table *t, ek_pages *p, int n)
{
    EK_ASSERT(n <= t->n);
    if (t->has[EK_SLIDING]) drop_below(t, p, EK_SLIDING, first_visible(t, EK_SLIDING, n));
}

bool ek_page_table_holds(const ek_page_table *t, int n)
{
    for (int k = 0; k < EK_KIND_COUNT; k++)
        if (t->has[k] && t->first[k] > first_visible(t, (ek_layer_kind)k, n)) return false;
    return n <= t->n;
}

ek_err ek_page_table_adopt(ek_page_table *t, ek_pages *p, const ek_page_table *from, int n)
{
    EK_ASSERT(t->n == 0 && n >= 1 && pages_for(n) <= t->cap && ek_page_table_holds(from, n));
    int whole = n / EK_PAGE_TOKENS;
    bool part = n % EK_PAGE_TOKENS > 0;
    for (int k = 0; k < EK_KIND_COUNT; k++)
        if (t->has[k] && ek_pages_unused(p, ek_page_table_kind(t, (ek_layer_kind)k, whole)) < part)
            return ek_fail(EK_EBUSY, "no page for a copy of positions %d to %d", whole * EK_PAGE_TOKENS, n - 1);
    for (int k = 0; k < EK_KIND_COUNT; k++) {
        ek_layer_kind kind = (ek_layer_kind)k;
        if (!t->has[k]) continue;
        t->end[k] = pages_for(n);
        t->first[k] = first_visible(t, kind, n);
        for (int i = t->first[k]; i < whole; i++) {
            t->page[k][i] = from->page[k][i];
            ek_pages_retain(p, ek_page_table_kind(t, kind, i), t->page[k][i]);
        }
    }
    for (int k = 0; k < EK_KIND_COUNT && part; k++) {
        ek_layer_kind kind = ek_page_table_kind(t, (ek_layer_kind)k, whole);
        if (!t->has[k]) continue;
        const ek_err err = ek_pages_acquire(p, kind, 1, &t->page[k][whole]);
        EK_ASSERT(err == EK_OK);
        ek_pages_copy(p, kind, from->page[k][whole], t->page[k][whole]);
    }
    t->n = n;
    return EK_OK;
}

void ek_page_table_clear(ek_page_table *t, ek_pages *p)
{
    for (int k = 0; k < EK_KIND_COUNT; k++) {
        drop_below(t, p, (ek_layer_kind)k, t->end[k]);
        t->first[k] = t->end[k] = 0;
    }
    t->n = 0;
}

int ek_page_table_max(const ek_kv_layout *layout, ek_layer_kind kind, int max_tokens, int rows)
{
    if (layout->page_bytes[kind] == 0) return 0;
    int whole = of_kind(layout->n_start, kind, 0, pages_for(max_tokens));
    if (layer_kind(kind) == EK_FULL) return whole;
    /* W - 1 positions back and `rows` forward: a run of n positions touches most pages if it starts at the last
     * position of a page. */
    int64_t n = (int64_t)layout->sliding_window - 1 + rows;
    int64_t max = n == 1 ? 1 : (n - 2) / EK_PAGE_TOKENS + 2;
    return max < whole ? (int)max : whole;
}
