/* Reports of the index's pages with which a prompt can begin, to another thread (held.h).
 *
 * A node is startable if a sequence may resume at its end: its full page exists, and sliding pages cover the window
 * before that end. A node is held if it or a node below it is startable, because the path to that point leads through
 * it. A path's own sliding pages are not needed, because no window of a later resume covers them. */
#include <string.h>

#include "base/alloc.h"
#include "cache/prefix_state.h"

static bool can_start(const ek_prefix *x, int32_t i)
{
    const ek_prefix_node *d = &x->node[i];
    if (d->n < EK_PAGE_TOKENS || (x->has[EK_FULL] && d->page[EK_FULL] == EK_NO_PAGE)) return false;
    if (!x->has[EK_SLIDING]) return true;
    for (int k = d->depth - ek_prefix_first_visible(x, (d->depth + 1) * EK_PAGE_TOKENS); k >= 0; k--) {
        if (x->node[i].n_sliding < EK_PAGE_TOKENS) return false;
        i = x->node[i].parent;
    }
    return true;
}

static uint64_t name_of(const ek_prefix_node *d)
{
    uint64_t hash = 0;
    for (int i = 0; i < 8; i++) hash = hash << 8 | d->chain.h[i];
    return hash;
}

/* Names each picture or sound where its positions begin in the page. */
static void name_media(const ek_prefix *x, int32_t i, ek_held_page *p)
{
    const ek_content_id *c = x->content[i], none = {{0, 0}}, *before = &none;
    for (int k = 0; x->node[i].has_content && k < EK_PAGE_TOKENS; before = &c[k++]) {
        if (!c[k].h[0] || !memcmp(&c[k], before, sizeof *c)) continue;
        if (p->n_media < EK_HELD_MEDIA) p->media[p->n_media++] = c[k].h[0];
        else p->media[EK_HELD_MEDIA - 1] ^= c[k].h[1];
    }
}

static bool report(ek_prefix *x, int32_t i)
{
    ek_prefix_node *d = &x->node[i];
    const ek_prefix_node *parent = &x->node[d->parent];
    ek_held_page p = {.hash = name_of(d), .first = d->depth == 0};
    if (!p.first) p.parent = name_of(parent);
    else p.salt = parent->salt_name;
    memcpy(p.token, d->token, sizeof p.token);
    name_media(x, i, &p);
    EK_ASSERT(p.first || parent->reported);
    if (!ek_held_came(x->held_queue, &p)) return false;
    d->reported = true;
    x->n_reported++;
    x->reported_digest ^= p.hash;
    return true;
}

static void take_back(ek_prefix *x, int32_t i)
{
    ek_prefix_node *d = &x->node[i];
    if (!d->reported) {
        x->n_late--;
        return;
    }
    ek_held_went(x->held_queue, name_of(d));
    d->reported = false;
    x->n_reported--;
    x->reported_digest ^= name_of(d);
}

/* Reports the path from the first reported node down to node i. Returns whether all its nodes are reported now. */
static bool report_path(ek_prefix *x, int32_t i)
{
    int n = 0;
    for (; x->node[i].depth >= 0 && !x->node[i].reported; i = x->node[i].parent) x->held_path[n++] = i;
    while (n > 0) {
        if (!report(x, x->held_path[n - 1])) return false;
        n--;
    }
    return true;
}

static void set_startable(ek_prefix *x, int32_t i, bool on)
{
    if (x->node[i].startable == on) return;
    x->node[i].startable = on;
    int32_t from = i;
    int n_new = 0;
    for (; x->node[i].depth >= 0; i = x->node[i].parent) {
        ek_prefix_node *d = &x->node[i];
        if (on ? d->n_held++ > 0 : --d->n_held > 0) break;
        if (on) n_new++;
        else take_back(x, i);
    }
    if (n_new == 0) return;
    int before = x->n_reported;
    x->n_late += n_new; /* until they are reported */
    report_path(x, from);
    x->n_late -= x->n_reported - before;
}

/* After a page of a node was added or removed: reviews the node, and the nodes whose window contains it. */
void ek_prefix_held_review(ek_prefix *x, int32_t node)
{
    if (!x->held_queue) return;
    const int base = x->node[node].depth,
              reach = x->has[EK_SLIDING] ? x->layout.sliding_window / EK_PAGE_TOKENS + 1 : 0;
    for (int32_t at = node;;) {
        const ek_prefix_node *d = &x->node[at];
        set_startable(x, at, can_start(x, at));
        bool down = d->child != EK_NO_NODE && d->depth - base < reach;
        if (down && (at == node || d->n_sliding == EK_PAGE_TOKENS)) {
            at = d->child;
            continue;
        }
        while (at != node && x->node[at].next == EK_NO_NODE) at = x->node[at].parent;
        if (at == node) return;
        at = x->node[at].next;
    }
}

void ek_prefix_held_drop(ek_prefix *x, int32_t node)
{
    if (x->held_queue && x->node[node].depth >= 0) set_startable(x, node, false);
    EK_ASSERT(x->node[node].n_held == 0);
}

void ek_prefix_held_flush(ek_prefix *x)
{
    enum { NODES = 4096 }; /* nodes reviewed per call, of which a step makes one */
    if (!x->held_queue) return;
    for (int n = 0; x->n_late > 0 && n < NODES; n++) {
        int32_t i = x->late_at;
        const ek_prefix_node *d = &x->node[i];
        int before = x->n_reported;
        bool whole = d->n_held == 0 || d->reported || report_path(x, i);
        x->n_late -= x->n_reported - before;
        if (!whole) break; /* no room */
        x->late_at = i + 1 < x->cap ? i + 1 : 0;
    }
    ek_held_flush(x->held_queue);
}

ek_err ek_prefix_report(ek_prefix *x, int n_waiting)
{
    EK_ASSERT(x->n_nodes == 0 && !x->held_queue);
    EK_TRY(ek_held_open(&x->held_queue, x->cap, n_waiting));
    x->held_path = ek_alloc(sizeof *x->held_path * (size_t)x->max_depth);
    return EK_OK;
}

ek_held_queue *ek_prefix_held(const ek_prefix *x)
{
    return x->held_queue;
}
