#include "cache/prefix.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "cache/prefix_state.h"

static int pages_for(int tokens)
{
    return tokens / EK_PAGE_TOKENS + (tokens % EK_PAGE_TOKENS > 0);
}

void ek_prefix_open(ek_prefix **out, ek_pages *p, const ek_kv_layout *layout, const int n_pages[EK_PAGE_KINDS],
                    int max_tokens, double max_idle_bytes)
{
    ek_prefix *x = ek_alloc(sizeof *x);
    *x = (ek_prefix){.pages = p, .layout = *layout, .max_idle_bytes = max_idle_bytes, .held = EK_NO_NODE};
    for (int k = 0; k < EK_KIND_COUNT; k++) x->has[k] = layout->page_bytes[k] > 0;
    /* Nodes: one per page, the root, and some for paths without sliding pages. */
    ek_layer_kind kind = x->has[EK_FULL] ? EK_FULL : EK_SLIDING;
    x->cap = 2 * (n_pages[kind] + n_pages[ek_kv_start_kind(kind)]) + 2 * pages_for(max_tokens) + 2;
    x->node = ek_alloc(sizeof *x->node * (size_t)x->cap);
    x->content = ek_alloc(sizeof *x->content * (size_t)x->cap); /* zeroed, because text never touches it */
    x->unused = EK_NO_NODE;
    for (int i = x->cap - 1; i >= 0; i--) {
        x->node[i].next = x->unused;
        x->unused = i;
    }
    for (x->n_buckets = 64; x->n_buckets < 2 * (uint64_t)x->cap;) x->n_buckets *= 2;
    x->bucket = ek_alloc(sizeof *x->bucket * x->n_buckets);
    memset(x->bucket, 0xff, sizeof *x->bucket * x->n_buckets);
    const ek_prefix_list none = {EK_NO_NODE, EK_NO_NODE, 0};
    x->unsaved = none;
    for (int i = 0; i < EK_PREFIX_OWNERS; i++)
        for (int o = 0; o < EK_ORDER_UNSAVED; o++) x->owner[i].list[o] = none;
    x->max_depth = pages_for(max_tokens);
    x->path = ek_alloc(sizeof *x->path * (size_t)x->max_depth);
    x->rival = EK_NO_NODE;
    ek_page_table_init(&x->hit, layout, max_tokens);
    ek_pages_set_reclaim(p, ek_prefix_reclaim, x);
    *out = x;
}

void ek_prefix_close(ek_prefix *x)
{
    if (!x) return;
    while (ek_prefix_evict_node(x)) continue;
    EK_ASSERT(x->n_nodes == 0);
    ek_page_table_fini(&x->hit);
    ek_held_close(x->held_queue);
    free(x->held_path);
    free(x->path);
    free(x->bucket);
    free(x->content);
    free(x->node);
    free(x);
}

/* --- hits */

/* The child of a node that has the most positions in common with the key. Among equals, the child with the most of
 * these in a sliding page. */
static int32_t best_child(const ek_prefix *x, int32_t parent, const ek_prefix_key *key, int *common)
{
    int32_t best = EK_NO_NODE;
    int longest = 0; /* number of written positions in the best child's sliding page */
    *common = -1;
    for (int32_t i = x->node[parent].child; i != EK_NO_NODE; i = x->node[i].next) {
        int n = ek_prefix_common(x, i, key), written = x->node[i].n_sliding < n ? x->node[i].n_sliding : n;
        if (n > *common || (n == *common && written > longest)) *common = n, best = i, longest = written;
    }
    return best;
}

int ek_prefix_find(ek_prefix *x, const ek_prefix_key *key)
{
    x->n_path = x->n_found = 0;
    x->n_wanted = key->n;
    x->rival = EK_NO_NODE;
    int32_t at = ek_prefix_root(x, key->salt);
    while (at != EK_NO_NODE && x->n_found < key->n) {
        int32_t next = EK_NO_NODE;
        if (key->n - x->n_found >= EK_PAGE_TOKENS) next = ek_prefix_whole(x, at, key, x->n_found);
        int common = EK_PAGE_TOKENS;
        if (next == EK_NO_NODE) next = x->rival = best_child(x, at, key, &common);
        if (next == EK_NO_NODE || common <= 0) break;
        x->path[x->n_path++] = next;
        x->n_found += common;
        at = common == EK_PAGE_TOKENS ? next : EK_NO_NODE;
    }
    return x->n_found;
}

int ek_prefix_usable(const ek_prefix *x, int max)
{
    int p = max < x->n_found ? max : x->n_found;
    while (p > 0 && x->has[EK_SLIDING]) {
        int i = (p - 1) / EK_PAGE_TOKENS, lo = ek_prefix_first_visible(x, p), have = 0;
        for (; i >= lo; i--) {
            int need = p - i * EK_PAGE_TOKENS < EK_PAGE_TOKENS ? p - i * EK_PAGE_TOKENS : EK_PAGE_TOKENS;
            have = x->node[x->path[i]].n_sliding;
            if (have < need) break;
        }
        if (i < lo) break;
        p = i * EK_PAGE_TOKENS + have; /* the largest position that page i allows */
    }
    return p > 0 ? p : 0;
}

/* x->hit holds the pages of the first n positions of the path, so that nothing can evict them. */
static void hold(ek_prefix *x, int n)
{
    ek_page_table *t = &x->hit;
    t->n = n;
    for (int k = 0; k < EK_KIND_COUNT; k++) {
        if (!x->has[k]) continue;
        t->first[k] = k == EK_SLIDING ? ek_prefix_first_visible(x, n) : 0;
        t->end[k] = pages_for(n);
        for (int i = t->first[k]; i < t->end[k]; i++) {
            t->page[k][i] = x->node[x->path[i]].page[k];
            ek_pages_retain(x->pages, ek_page_table_kind(t, (ek_layer_kind)k, i), t->page[k][i]);
        }
    }
}

int ek_prefix_adopt(ek_prefix *x, ek_page_table *t, int n)
{
    ek_err err = EK_OK;
    while (n > 0) {
        hold(x, n);
        /* Marks them as used now, so that the copy evicts no page of this path. */
        for (int i = ek_prefix_first_visible(x, n); i < pages_for(n); i++)
            if (x->node[x->path[i]].n_sliding > 0) ek_prefix_touch_sliding(x, x->path[i], false);
        ek_prefix_touch_path(x, x->path[pages_for(n) - 1]);
        err = ek_page_table_adopt(t, x->pages, &x->hit, n);
        ek_page_table_clear(&x->hit, x->pages);
        if (!err) break;
        n = ek_prefix_usable(x, n / EK_PAGE_TOKENS * EK_PAGE_TOKENS);
    }
    return n;
}

const int32_t *ek_prefix_rival(const ek_prefix *x, int *first, int *n)
{
    if (x->rival == EK_NO_NODE || x->n_found == x->n_wanted) return NULL;
    const ek_prefix_node *d = &x->node[x->rival];
    *first = d->depth * EK_PAGE_TOKENS;
    *n = d->n;
    return x->n_found < *first + d->n ? d->token : NULL;
}

/* --- adding pages to the index */

typedef struct put {
    const ek_prefix_key *key;
    ek_page_table *t;
    const ek_prefix_keep *keep;
    int n_keep;
    bool last;
} put;

static bool is_in(const ek_prefix_keep *keep, int i)
{
    return i >= keep->first && i < keep->end;
}

static bool is_kept(const put *w, int i, bool seldom)
{
    for (int k = 0; k < w->n_keep; k++)
        if (w->keep[k].seldom == seldom && is_in(&w->keep[k], i)) return true;
    return false;
}

/* Replaces t's page by the index's, which has the same contents. */
static void use_cached(ek_prefix *x, ek_page_table *t, ek_layer_kind kind, int i, int32_t page)
{
    int32_t own = t->page[kind][i];
    ek_layer_kind pages = ek_page_table_kind(t, kind, i);
    if (own == page) return;
    ek_pages_retain(x->pages, pages, page);
    t->page[kind][i] = page;
    ek_pages_release(x->pages, pages, own);
}

/* Adds the table's page i to the node, with n positions. */
static void put_sliding(ek_prefix *x, const put *w, int32_t node, int i, int n)
{
    ek_page_table *t = w->t;
    const ek_prefix_node *d = &x->node[node];
    if (!x->has[EK_SLIDING]) return;
    const bool held = i >= t->first[EK_SLIDING] && i < t->end[EK_SLIDING];
    const bool likely = (held && w->last) || is_kept(w, i, false);
    if (held && d->n_sliding == EK_PAGE_TOKENS && n == EK_PAGE_TOKENS) {
        use_cached(x, t, EK_SLIDING, i, d->page[EK_SLIDING]);
    } else if (held && d->n_sliding < n && (likely || is_kept(w, i, true))) {
        ek_prefix_drop_sliding(x, node);
        ek_prefix_set_sliding(x, node, t->page[EK_SLIDING][i], n, !likely);
    }
    if (likely && d->n_sliding > 0) ek_prefix_touch_sliding(x, node, false);
}

/* The node below parent for n positions of the key at page i: an existing one (which may have more positions), or a new
 * one, which replaces one with fewer positions. */
static int32_t put_page(ek_prefix *x, const put *w, int32_t parent, int i, int n)
{
    int pos = i * EK_PAGE_TOKENS;
    int32_t node = n == EK_PAGE_TOKENS ? ek_prefix_whole(x, parent, w->key, pos) : EK_NO_NODE;
    for (int32_t c = x->node[parent].child, next; c != EK_NO_NODE && node == EK_NO_NODE; c = next) {
        next = x->node[c].next;
        int common = ek_prefix_common(x, c, w->key);
        if (common >= n && n < EK_PAGE_TOKENS) node = c;
        else if (common == x->node[c].n && common < n) ek_prefix_drop_node(x, c);
    }
    if (node != EK_NO_NODE) {
        if (x->has[EK_FULL] && n == EK_PAGE_TOKENS) use_cached(x, w->t, EK_FULL, i, x->node[node].page[EK_FULL]);
    } else {
        node = ek_prefix_add(x, parent, w->key, pos, n);
        if (node == EK_NO_NODE) return node;
        if (x->has[EK_FULL]) {
            x->node[node].page[EK_FULL] = w->t->page[EK_FULL][i];
            ek_pages_cache(x->pages, ek_prefix_kind(x, EK_FULL, node), x->node[node].page[EK_FULL]);
            if (n == EK_PAGE_TOKENS) ek_prefix_mark_unsaved(x, node, EK_FULL);
        }
        ek_prefix_held_review(x, node);
    }
    put_sliding(x, w, node, i, n);
    return node;
}

void ek_prefix_put(ek_prefix *x, const ek_prefix_key *key, ek_page_table *t, int n, const ek_prefix_keep *keep,
                   int n_keep, bool last)
{
    /* The key ends with the pages, because a node must not claim tokens that are not written. */
    ek_prefix_key written = *key;
    written.n = last ? n : n / EK_PAGE_TOKENS * EK_PAGE_TOKENS;
    if (written.n <= 0) return;
    put w = {.key = &written, .t = t, .keep = keep, .n_keep = n_keep, .last = last};
    int32_t at = ek_prefix_root(x, key->salt);
    if (at == EK_NO_NODE) at = ek_prefix_add_root(x, key);
    for (int i = 0; i < pages_for(written.n) && at != EK_NO_NODE; i++) {
        int rest = written.n - i * EK_PAGE_TOKENS;
        x->held = at;
        int32_t next = put_page(x, &w, at, i, rest < EK_PAGE_TOKENS ? rest : EK_PAGE_TOKENS);
        if (next == EK_NO_NODE) break;
        at = next;
    }
    x->held = EK_NO_NODE;
    x->n_path = x->n_found = 0;
    x->rival = EK_NO_NODE;
    if (at == EK_NO_NODE) return;
    ek_prefix_touch_path(x, at);
    if (x->node[at].depth < 0 && x->node[at].child == EK_NO_NODE) ek_prefix_drop_node(x, at);
}

/* --- positions where sequences begin, noted at the last whole page before them; sequences that begin in one page share
 * the note --- */

static void forget_path(ek_prefix *x)
{
    x->n_path = x->n_found = 0;
    x->rival = EK_NO_NODE;
}

void ek_prefix_began(ek_prefix *x, const ek_prefix_key *key, int n)
{
    const int pages = n / EK_PAGE_TOKENS;
    if (pages > 0 && ek_prefix_find(x, key) >= n) {
        ek_prefix_node *last = &x->node[x->path[pages - 1]];
        last->shared = last->resumed;
        last->resumed = true;
        for (int i = ek_prefix_first_visible(x, n); last->shared && i < pages; i++)
            x->node[x->path[i]].spared = EK_PREFIX_SPARED;
    }
    forget_path(x);
}

void ek_prefix_passed(ek_prefix *x, const ek_prefix_key *key, int n, const ek_prefix_keep *end)
{
    const int pages = n / EK_PAGE_TOKENS;
    if (pages > 0 && ek_prefix_find(x, key) >= n && !x->node[x->path[pages - 1]].shared)
        for (int i = ek_prefix_first_visible(x, n); i < pages; i++)
            if (x->node[x->path[i]].n_sliding > 0 && !is_in(end, i)) ek_prefix_touch_sliding(x, x->path[i], true);
    forget_path(x);
}

int ek_prefix_drop(ek_prefix *x, const ek_prefix_key *key, int n)
{
    int found = ek_prefix_find(x, key);
    if (found <= n / EK_PAGE_TOKENS * EK_PAGE_TOKENS) return 0;
    int32_t node = x->path[n / EK_PAGE_TOKENS];
    x->n_path = x->n_found = 0;
    x->rival = EK_NO_NODE;
    return ek_prefix_drop_tree(x, node);
}

int32_t ek_prefix_page(const ek_prefix *x, ek_layer_kind kind, int i)
{
    if ((i + 1) * EK_PAGE_TOKENS > x->n_found) return EK_NO_PAGE; /* the last node may agree only in part */
    const ek_prefix_node *d = &x->node[x->path[i]];
    return kind == EK_FULL || d->n_sliding == EK_PAGE_TOKENS ? d->page[kind] : EK_NO_PAGE;
}

ek_chain ek_prefix_chain(const ek_prefix *x, const ek_prefix_key *key, int i)
{
    return i < 0 ? ek_chain_root(key->salt) : x->node[x->path[i]].chain;
}

bool ek_prefix_attach(ek_prefix *x, const ek_prefix_key *key, int i, const int32_t page[EK_KIND_COUNT])
{
    ek_prefix_key whole = *key;
    whole.n = (i + 1) * EK_PAGE_TOKENS;
    int found = ek_prefix_find(x, &whole);
    bool there = found == whole.n && x->node[x->path[i]].n == EK_PAGE_TOKENS;
    if (!there && found / EK_PAGE_TOKENS < i) return false;
    int32_t node = there ? x->path[i] : EK_NO_NODE;
    if (!there && (!x->has[EK_FULL] || page[EK_FULL] != EK_NO_PAGE)) {
        int32_t parent = i > 0 ? x->path[i - 1] : ek_prefix_root(x, key->salt);
        if (parent == EK_NO_NODE) parent = ek_prefix_add_root(x, key);
        if (parent == EK_NO_NODE) return false;
        x->held = parent;
        for (int32_t c = x->node[parent].child, next; c != EK_NO_NODE; c = next) { /* a child with fewer positions */
            next = x->node[c].next;
            if (x->node[c].n < EK_PAGE_TOKENS && ek_prefix_common(x, c, &whole) == x->node[c].n)
                ek_prefix_drop_node(x, c);
        }
        node = ek_prefix_add(x, parent, &whole, i * EK_PAGE_TOKENS, EK_PAGE_TOKENS);
        x->held = EK_NO_NODE;
        if (node != EK_NO_NODE && x->has[EK_FULL]) {
            x->node[node].page[EK_FULL] = page[EK_FULL];
            ek_pages_cache(x->pages, ek_prefix_kind(x, EK_FULL, node), page[EK_FULL]);
        }
        if (node != EK_NO_NODE) ek_prefix_held_review(x, node);
    }
    x->n_path = x->n_found = 0;
    x->rival = EK_NO_NODE;
    if (node == EK_NO_NODE) return false;
    if (page[EK_SLIDING] != EK_NO_PAGE && x->node[node].n_sliding < EK_PAGE_TOKENS) {
        ek_prefix_drop_sliding(x, node);
        bool full = x->node[node].unsaved[EK_FULL];
        ek_prefix_set_sliding(x, node, page[EK_SLIDING], EK_PAGE_TOKENS, false);
        x->node[node].unsaved[EK_SLIDING] = false; /* the page came from the store */
        if (!full && x->node[node].listed) {
            ek_prefix_unsaved none;
            ek_prefix_take_unsaved(x, node, &none);
        }
    }
    ek_prefix_touch_path(x, node);
    return true;
}

void ek_prefix_stats_read(const ek_prefix *x, ek_prefix_stats *out)
{
    *out = (ek_prefix_stats){
        .nodes = x->n_nodes, .reported = x->n_reported, .late = x->n_late, .reported_digest = x->reported_digest};
    memcpy(out->evicted, x->evicted, sizeof x->evicted);
}
