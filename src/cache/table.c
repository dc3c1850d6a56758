#include "cache/table.h"

#include <stdlib.h>

#include "base/buf.h"

static int pages_for(int tokens)
{
    return tokens / EK_PAGE_TOKENS + (tokens % EK_PAGE_TOKENS > 0);
}

void ek_table_init(ek_table *t, const ek_kv_layout *layout, int max_tokens)
{
    EK_ASSERT(max_tokens >= 1);
    *t = (ek_table){.cap = pages_for(max_tokens), .window = layout->sliding_window};
    for (int k = 0; k < EK_KIND_COUNT; k++) {
        t->has[k] = layout->page_bytes[k] > 0;
        t->page[k] = ek_alloc(sizeof *t->page[k] * (size_t)t->cap);
        t->data[k] = ek_alloc(sizeof *t->data[k] * (size_t)t->cap);
    }
    EK_ASSERT(!t->has[EK_SLIDING] || t->window >= 1);
}

void ek_table_fini(ek_table *t)
{
    for (int k = 0; k < EK_KIND_COUNT; k++) {
        EK_ASSERT(t->first[k] == t->end[k]);
        free(t->page[k]);
        free(t->data[k]);
    }
    *t = (ek_table){0};
}

/* The first entry a row at pos sees in sliding layers. */
static int first_seen(const ek_table *t, int pos)
{
    int lo = pos - t->window + 1;
    return lo > 0 ? lo / EK_PAGE_TOKENS : 0;
}

int ek_table_missing(const ek_table *t, ek_layer_kind kind, int pos, int n)
{
    int more = pages_for(pos + n) - t->end[kind];
    return t->has[kind] && more > 0 ? more : 0;
}

int ek_table_room(const ek_table *t, const ek_pages *p, int pos, int n)
{
    for (int k = 0; k < EK_KIND_COUNT; k++) {
        if (!t->has[k]) continue;
        int64_t room = ((int64_t)t->end[k] + ek_pages_unused(p, (ek_layer_kind)k)) * EK_PAGE_TOKENS - pos;
        if (room < n) n = room > 0 ? (int)room : 0;
    }
    return n;
}

static void check_extend(const ek_table *t, ek_layer_kind kind, int pos, int n)
{
    EK_ASSERT(pos >= 0 && n >= 1 && pages_for(pos + n) <= t->cap);
    EK_ASSERT(pages_for(pos) <= t->end[kind]);
    int seen = kind == EK_SLIDING ? first_seen(t, pos) : 0;
    EK_ASSERT(t->first[kind] <= seen);
    for (int i = pos / EK_PAGE_TOKENS; i < t->end[kind]; i++) EK_ASSERT(t->page[kind][i]->refs == 1);
}

ek_err ek_table_extend(ek_table *t, ek_pages *p, int pos, int n)
{
    for (int k = 0; k < EK_KIND_COUNT; k++) {
        if (!t->has[k]) continue;
        check_extend(t, (ek_layer_kind)k, pos, n);
        int more = ek_table_missing(t, (ek_layer_kind)k, pos, n), unused = ek_pages_unused(p, (ek_layer_kind)k);
        if (more > unused)
            return ek_fail(EK_EBUSY, "%d pages wanted for positions %d to %d, %d are unused", more, pos, pos + n - 1,
                           unused);
    }
    for (int k = 0; k < EK_KIND_COUNT; k++) {
        int more = ek_table_missing(t, (ek_layer_kind)k, pos, n), end = t->end[k];
        if (more == 0) continue;
        EK_TRY(ek_pages_acquire(p, (ek_layer_kind)k, more, t->page[k] + end));
        for (int i = end; i < end + more; i++) t->data[k][i] = t->page[k][i]->data;
        t->end[k] = end + more;
    }
    return EK_OK;
}

/* Gives back the entries of a kind below `first`. */
static void drop_below(ek_table *t, ek_pages *p, ek_layer_kind kind, int first)
{
    if (first > t->end[kind]) first = t->end[kind];
    for (int i = t->first[kind]; i < first; i++) {
        ek_pages_release(p, &t->page[kind][i], 1);
        t->page[kind][i] = NULL;
        t->data[kind][i] = NULL;
    }
    if (first > t->first[kind]) t->first[kind] = first;
}

void ek_table_trim(ek_table *t, ek_pages *p, int next)
{
    if (t->has[EK_SLIDING]) drop_below(t, p, EK_SLIDING, first_seen(t, next));
}

void ek_table_clear(ek_table *t, ek_pages *p)
{
    for (int k = 0; k < EK_KIND_COUNT; k++) {
        drop_below(t, p, (ek_layer_kind)k, t->end[k]);
        t->first[k] = t->end[k] = 0;
    }
}

int ek_table_most(const ek_kv_layout *layout, ek_layer_kind kind, int max_tokens, int rows)
{
    if (layout->page_bytes[kind] == 0) return 0;
    int whole = pages_for(max_tokens);
    if (kind == EK_FULL) return whole;
    /* W - 1 positions back and `rows` forward: a run of n positions touches most pages when it
     * starts at the last slot of one. */
    int64_t n = (int64_t)layout->sliding_window - 1 + rows;
    int64_t most = n == 1 ? 1 : (n - 2) / EK_PAGE_TOKENS + 2;
    return most < whole ? (int)most : whole;
}
