/* Eviction from the prefix index: the least recently used page that has no other holder, of the owner with the most
 * pages. */
#include <string.h>

#include "cache/prefix_state.h"

/* Whether the node's page for layers of a kind has no other holder. */
static bool is_idle(const ek_prefix *x, ek_layer_kind kind, int32_t node)
{
    int32_t page = x->node[node].page[kind];
    return page != EK_NO_PAGE && ek_pages_refs(x->pages, ek_prefix_kind(x, kind, node), page) == 1;
}

static void count(ek_prefix *x, int32_t i)
{
    x->evicted[EK_FULL] += is_idle(x, EK_FULL, i);
    x->evicted[EK_SLIDING] += is_idle(x, EK_SLIDING, i);
}

/* Owners that have nothing to evict. */
typedef bool owners[EK_PREFIX_OWNERS];

static int n_slidings(const ek_prefix_owner *o)
{
    return o->list[EK_ORDER_SLIDING].n + o->list[EK_ORDER_SELDOM].n;
}

static int n_in(const ek_prefix_owner *o, ek_layer_kind kind)
{
    return kind == EK_FULL ? o->list[EK_ORDER_NODES].n : n_slidings(o);
}

/* The owner with the most nodes, or sliding pages, among those that may have something to evict; -1: none. */
static int largest(const ek_prefix *x, ek_layer_kind kind, const owners tried)
{
    int largest = -1;
    for (int i = 0; i < EK_PREFIX_OWNERS; i++)
        if (!tried[i] && n_in(&x->owner[i], kind) > (largest < 0 ? 0 : n_in(&x->owner[largest], kind))) largest = i;
    return largest;
}

/* The oldest node without children whose full page is idle, of the largest owner that has one. Other nodes on the way
 * become the newest, because they are in use or were touched after a child. */
static int32_t oldest_idle(ek_prefix *x, owners tried)
{
    for (int o; (o = largest(x, EK_FULL, tried)) >= 0; tried[o] = true)
        for (int left = x->owner[o].list[EK_ORDER_NODES].n; left > 0; left--) {
            int32_t i = x->owner[o].list[EK_ORDER_NODES].oldest;
            const ek_prefix_node *d = &x->node[i];
            if (d->child == EK_NO_NODE && i != x->held && is_idle(x, EK_FULL, i)) return i;
            ek_prefix_touch(x, EK_ORDER_NODES, i);
        }
    return EK_NO_NODE;
}

/* The oldest node of an order with an idle sliding page of one of two kinds of page. */
static int32_t oldest_idle_in(ek_prefix *x, ek_prefix_order order, int owner, ek_layer_kind one, ek_layer_kind other)
{
    const ek_prefix_list *const list = &x->owner[owner].list[order];
    int32_t i = list->oldest, newer;
    for (int left = list->n; left > 0 && i != EK_NO_NODE; left--, i = newer) {
        const ek_layer_kind kind = ek_prefix_kind(x, EK_SLIDING, i);
        newer = x->node[i].newer[order];
        if (kind != one && kind != other) continue;
        if (is_idle(x, EK_SLIDING, i)) return i;
        ek_prefix_touch(x, order, i);
    }
    return EK_NO_NODE;
}

/* Compares two nodes, which may be none. The age of a seldom used page counts this many times. */
enum { SELDOM_AGE = 64 };

static int32_t first_of(const ek_prefix *x, int32_t seldom, int32_t likely)
{
    if (seldom == EK_NO_NODE || likely == EK_NO_NODE) return seldom == EK_NO_NODE ? likely : seldom;
    const uint64_t age = x->clock - x->node[seldom].used[EK_ORDER_SELDOM];
    return SELDOM_AGE * age >= x->clock - x->node[likely].used[EK_ORDER_SLIDING] ? seldom : likely;
}

/* The oldest node with an idle sliding page of one of two kinds, of the largest owner that has such a page. */
static int32_t oldest_idle_sliding(ek_prefix *x, ek_layer_kind one, ek_layer_kind other, owners tried)
{
    for (int o; (o = largest(x, EK_SLIDING, tried)) >= 0; tried[o] = true)
        for (;;) {
            const int32_t seldom = oldest_idle_in(x, EK_ORDER_SELDOM, o, one, other),
                          likely = oldest_idle_in(x, EK_ORDER_SLIDING, o, one, other), i = first_of(x, seldom, likely);
            if (i == EK_NO_NODE) break;
            if (x->node[i].spared == 0) return i;
            x->node[i].spared--;
            ek_prefix_touch_sliding(x, i, false);
        }
    return EK_NO_NODE;
}

static void evict(ek_prefix *x, int32_t i)
{
    count(x, i);
    ek_prefix_drop_node(x, i);
}

static void evict_sliding(ek_prefix *x, int32_t i)
{
    const ek_prefix_node *d = &x->node[i];
    x->evicted[EK_SLIDING]++;
    if (d->page[EK_FULL] == EK_NO_PAGE && d->child == EK_NO_NODE && i != x->held) ek_prefix_drop_node(x, i);
    else ek_prefix_drop_sliding(x, i);
}

bool ek_prefix_evict_node(ek_prefix *x)
{
    owners tried = {false};
    for (int o; (o = largest(x, EK_FULL, tried)) >= 0; tried[o] = true) {
        int32_t i = x->owner[o].list[EK_ORDER_NODES].oldest;
        while (i != EK_NO_NODE && (x->node[i].child != EK_NO_NODE || i == x->held))
            i = x->node[i].newer[EK_ORDER_NODES];
        if (i == EK_NO_NODE) continue;
        evict(x, i);
        return true;
    }
    return false;
}

void ek_prefix_reclaim(void *arg, ek_layer_kind kind, int n)
{
    ek_prefix *x = arg;
    owners tried = {false}; /* so that each page in use is looked at once */
    int want = ek_pages_unused(x->pages, kind) - ek_pages_idle(x->pages, kind) + n;
    while (ek_pages_unused(x->pages, kind) - ek_pages_idle(x->pages, kind) < want) {
        if (kind % EK_KIND_COUNT == EK_SLIDING) {
            int32_t i = oldest_idle_sliding(x, kind, kind, tried);
            if (i == EK_NO_NODE) return;
            evict_sliding(x, i);
            continue;
        }
        int32_t i = oldest_idle(x, tried);
        memset(tried, 0, i == EK_NO_NODE ? sizeof tried : 0);
        if (i != EK_NO_NODE) evict(x, i);
        else if (!ek_prefix_evict_node(x)) return; /* idle pages follow one in use: the index drops the latter */
    }
}

/* The approximate bytes of a node's owner in the index: pages of the first positions may have another size. */
static double bytes_of_owner(const ek_prefix *x, int32_t node)
{
    const ek_prefix_owner *o = &x->owner[x->node[node].owner];
    return (double)x->layout.page_bytes[EK_FULL] * o->list[EK_ORDER_NODES].n +
           (double)x->layout.page_bytes[EK_SLIDING] * n_slidings(o);
}

/* Whether a sliding page is evicted before a full one: the page of the larger owner, or the older page of one owner. */
static bool goes_first(const ek_prefix *x, int32_t sliding, int32_t full)
{
    if (x->node[sliding].owner != x->node[full].owner) return bytes_of_owner(x, sliding) > bytes_of_owner(x, full);
    return x->node[sliding].used[ek_prefix_sliding_order(x, sliding)] < x->node[full].used[EK_ORDER_NODES];
}

void ek_prefix_shrink(ek_prefix *x)
{
    owners no_full = {false}, no_sliding = {false};
    for (;;) {
        double idle = 0;
        for (int k = 0; k < EK_PAGE_KINDS; k++)
            idle += (double)x->layout.page_bytes[k] * ek_pages_idle(x->pages, (ek_layer_kind)k);
        if (idle <= x->max_idle_bytes) return;
        int32_t full = x->has[EK_FULL] ? oldest_idle(x, no_full) : EK_NO_NODE;
        int32_t sliding = oldest_idle_sliding(x, EK_SLIDING, EK_SLIDING_START, no_sliding);
        bool older = full == EK_NO_NODE || (sliding != EK_NO_NODE && goes_first(x, sliding, full));
        if (older && sliding != EK_NO_NODE) evict_sliding(x, sliding);
        else if (full != EK_NO_NODE) evict(x, full);
        else if (!ek_prefix_evict_node(x)) return;
    }
}
