#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "asks.h"
#include "cache/prefix_state.h"

enum { MAX_PAGES = 512 };

/* The path of a node is followed from the root, so that each slot's value follows from all tokens before it. */
static void check_contents(const ek_prefix *x, const fake *f, int32_t node, const uint64_t before[EK_KIND_COUNT])
{
    const ek_prefix_node *d = &x->node[node];
    uint64_t value[EK_KIND_COUNT] = {before[0], before[1]};
    if (d->has_content) return; /* an embedding's value is known to its request alone; replies check it */
    for (int i = 0; i < d->n; i++)
        for (int k = 0; k < EK_KIND_COUNT; k++) {
            ek_layer_kind kind = (ek_layer_kind)k;
            if (!x->has[k]) continue;
            value[k] = fake_value(f, kind, d->token[i], d->depth * EK_PAGE_TOKENS + i, value[k]);
            int written = k == EK_FULL ? d->n : d->n_sliding;
            ek_layer_kind pages = ek_kv_page_kind(&x->layout, kind, d->depth);
            if (i < written) assert_true(f->page[pages][(size_t)d->page[k] * EK_PAGE_TOKENS + (size_t)i] == value[k]);
        }
    for (int32_t c = d->child; c != EK_NO_NODE; c = x->node[c].next) check_contents(x, f, c, value);
}

static void check_node(const ek_prefix *x, int32_t i, int *nodes, int *slidings)
{
    const ek_prefix_node *d = &x->node[i];
    ++*nodes;
    if (d->depth >= 0) {
        assert_true(d->n >= 1 && d->n <= EK_PAGE_TOKENS && d->n_sliding <= d->n);
        assert_true(d->n == EK_PAGE_TOKENS || d->child == EK_NO_NODE);
        assert_int_equal(d->page[EK_FULL] != EK_NO_PAGE, x->has[EK_FULL]);
        assert_int_equal(d->page[EK_SLIDING] != EK_NO_PAGE, d->n_sliding > 0);
        *slidings += d->n_sliding > 0;
    } else {
        assert_true(d->child != EK_NO_NODE);
    }
    int32_t prev = EK_NO_NODE;
    for (int32_t c = d->child; c != EK_NO_NODE; prev = c, c = x->node[c].next) {
        assert_int_equal(x->node[c].parent, i);
        assert_int_equal(x->node[c].prev, prev);
        assert_int_equal(x->node[c].depth, d->depth + 1);
        for (int32_t o = d->child; o != c; o = x->node[o].next) { /* no two say the same */
            int n = x->node[o].n < x->node[c].n ? x->node[o].n : x->node[c].n;
            bool same = memcmp(x->node[o].token, x->node[c].token, sizeof(int32_t) * (size_t)n) == 0;
            assert_false(same && !x->node[o].has_content && !x->node[c].has_content);
        }
        check_node(x, c, nodes, slidings);
    }
}

static int listed_of(const ek_prefix *x, ek_prefix_order o, int owner)
{
    const ek_prefix_list *l = &x->owner[owner].list[o];
    int n = 0;
    int32_t newer = EK_NO_NODE;
    for (int32_t i = l->newest; i != EK_NO_NODE; newer = i, i = x->node[i].older[o], n++) {
        assert_int_equal(x->node[i].owner, owner);
        assert_int_equal(x->node[i].newer[o], newer);
        if (newer != EK_NO_NODE) assert_true(x->node[newer].used[o] > x->node[i].used[o]);
    }
    assert_int_equal(l->oldest, newer);
    assert_int_equal(l->n, n);
    assert_true(n == 0 || x->owner[owner].n_roots > 0);
    return n;
}

static int listed(const ek_prefix *x, ek_prefix_order o)
{
    int n = 0;
    for (int i = 0; i < EK_PREFIX_OWNERS; i++) n += listed_of(x, o, i);
    return n;
}

void check_cache(const ek_engine *e, const fake *f)
{
    const ek_prefix *x = e->prefix;
    static int holders[EK_PAGE_KINDS][MAX_PAGES];
    static bool cached[EK_PAGE_KINDS][MAX_PAGES];
    memset(holders, 0, sizeof holders);
    memset(cached, 0, sizeof cached);
    int nodes = 0, slidings = 0, roots = 0;
    for (uint64_t b = 0; b < x->n_buckets; b++)
        for (int32_t i = x->bucket[b]; i != EK_NO_NODE; i = x->node[i].same) {
            if (x->node[i].depth >= 0) continue;
            roots++;
            check_node(x, i, &nodes, &slidings);
            for (int32_t c = x->node[i].child; c != EK_NO_NODE; c = x->node[c].next)
                check_contents(x, f, c, (uint64_t[EK_KIND_COUNT]){0});
        }
    assert_int_equal(nodes, x->n_nodes);
    assert_int_equal(listed(x, EK_ORDER_NODES), nodes - roots);
    assert_int_equal(listed(x, EK_ORDER_SLIDING) + listed(x, EK_ORDER_SELDOM), slidings);
    assert_int_equal(x->held, EK_NO_NODE);
    for (int o = 0; o < EK_PREFIX_OWNERS; o++)
        for (int32_t i = x->owner[o].list[EK_ORDER_NODES].newest; i != EK_NO_NODE; i = x->node[i].older[EK_ORDER_NODES])
            for (int k = 0; k < EK_KIND_COUNT; k++) {
                int32_t page = x->node[i].page[k];
                ek_layer_kind pages = ek_prefix_kind(x, (ek_layer_kind)k, i);
                if (page == EK_NO_PAGE) continue;
                assert_false(cached[pages][page]); /* a page stands at one node */
                cached[pages][page] = true;
                holders[pages][page]++;
            }
    for (int i = 0; i < e->n_running; i++)
        for (int k = 0; k < EK_KIND_COUNT; k++) {
            const ek_page_table *t = &e->running[i]->table;
            for (int p = t->first[k]; p < t->end[k]; p++)
                holders[ek_page_table_kind(t, (ek_layer_kind)k, p)][t->page[k][p]]++;
        }
    for (int k = 0; k < EK_KIND_COUNT && e->audit.tokens; k++)
        for (int p = e->audit.table.first[k]; p < e->audit.table.end[k]; p++)
            holders[ek_page_table_kind(&e->audit.table, (ek_layer_kind)k, p)][e->audit.table.page[k][p]]++;
    for (const ek_request *r = e->waiting; r; r = r->next) assert_true(r->table.n == 0 && r->n_done == 0);
    double idle_bytes = 0;
    for (int k = 0; k < EK_PAGE_KINDS; k++) {
        int used = 0, idle = 0;
        for (int p = 0; p < e->sizes.n_pages[k]; p++) {
            assert_int_equal(ek_pages_refs(e->pages, (ek_layer_kind)k, p), holders[k][p]);
            used += holders[k][p] > 0;
            idle += cached[k][p] && holders[k][p] == 1;
        }
        assert_int_equal(ek_pages_idle(e->pages, (ek_layer_kind)k), idle);
        assert_int_equal(ek_pages_unused(e->pages, (ek_layer_kind)k), e->sizes.n_pages[k] - used + idle);
        idle_bytes += idle * (double)x->layout.page_bytes[k];
    }
    assert_true(idle_bytes <= x->max_idle_bytes);
}
