/* The tree of the prefix index: nodes, their table, their orders of use. */
#include <stddef.h>
#include <string.h>

#include "base/hash/hash.h"
#include "base/hash/rng.h"
#include "cache/prefix_state.h"

static ek_content_id content_at(const ek_prefix_key *key, int pos)
{
    return key->content && pos < key->n_content ? key->content[pos] : (ek_content_id){{0, 0}};
}

static uint64_t hash_root(uint64_t salt)
{
    return ek_mix64(salt ^ 0x726f6f74);
}

static uint64_t hash_page(int32_t parent, const ek_prefix_key *key, int pos)
{
    uint64_t h = ek_hash64((uint64_t)parent + 1, key->token + pos, EK_PAGE_TOKENS * sizeof *key->token);
    for (int i = pos; key->content && i < pos + EK_PAGE_TOKENS && i < key->n_content; i++)
        if (key->content[i].h[0]) h = ek_mix64(h ^ key->content[i].h[0] ^ (uint64_t)i); /* 0: text */
    return h;
}

int ek_prefix_common(const ek_prefix *x, int32_t node, const ek_prefix_key *key)
{
    const ek_prefix_node *d = &x->node[node];
    int pos = d->depth * EK_PAGE_TOKENS, n = key->n - pos < d->n ? key->n - pos : d->n;
    bool plain = !d->has_content && !(key->content && pos < key->n_content);
    for (int i = 0; i < n; i++) {
        if (d->token[i] != key->token[pos + i]) return i;
        if (plain) continue;
        ek_content_id a = content_at(key, pos + i), b = {{0, 0}};
        if (d->has_content) b = x->content[node][i];
        if (a.h[0] != b.h[0] || a.h[1] != b.h[1]) return i;
    }
    return n;
}

static int32_t *bucket_of(const ek_prefix *x, uint64_t hash)
{
    return &x->bucket[hash & (x->n_buckets - 1)];
}

int32_t ek_prefix_root(const ek_prefix *x, uint64_t salt)
{
    int32_t i = *bucket_of(x, hash_root(salt));
    while (i != EK_NO_NODE && !(x->node[i].depth < 0 && x->node[i].salt == salt)) i = x->node[i].same;
    return i;
}

int32_t ek_prefix_whole(const ek_prefix *x, int32_t parent, const ek_prefix_key *key, int pos)
{
    uint64_t hash = hash_page(parent, key, pos);
    for (int32_t i = *bucket_of(x, hash); i != EK_NO_NODE; i = x->node[i].same) {
        const ek_prefix_node *d = &x->node[i];
        if (d->hash == hash && d->parent == parent && d->n == EK_PAGE_TOKENS &&
            ek_prefix_common(x, i, key) == EK_PAGE_TOKENS)
            return i;
    }
    return EK_NO_NODE;
}

/* --- orders of use */

/* The list of the order that contains the node; NULL: none. */
static ek_prefix_list *list_of(ek_prefix *x, ek_prefix_order o, int32_t node)
{
    return o == EK_ORDER_UNSAVED ? &x->unsaved : &x->owner[x->node[node].owner].list[o];
}

static void unlink_order(ek_prefix *x, ek_prefix_order o, int32_t i)
{
    ek_prefix_node *d = &x->node[i];
    ek_prefix_list *l = list_of(x, o, i);
    l->n--;
    if (d->newer[o] != EK_NO_NODE) x->node[d->newer[o]].older[o] = d->older[o];
    else l->newest = d->older[o];
    if (d->older[o] != EK_NO_NODE) x->node[d->older[o]].newer[o] = d->newer[o];
    else l->oldest = d->newer[o];
}

static void link_newest(ek_prefix *x, ek_prefix_order o, int32_t i)
{
    ek_prefix_node *d = &x->node[i];
    ek_prefix_list *l = list_of(x, o, i);
    l->n++;
    d->used[o] = ++x->clock;
    d->newer[o] = EK_NO_NODE;
    d->older[o] = l->newest;
    if (l->newest != EK_NO_NODE) x->node[l->newest].newer[o] = i;
    else l->oldest = i;
    l->newest = i;
}

void ek_prefix_touch(ek_prefix *x, ek_prefix_order o, int32_t node)
{
    unlink_order(x, o, node);
    link_newest(x, o, node);
}

void ek_prefix_touch_path(ek_prefix *x, int32_t node)
{
    for (; node != EK_NO_NODE && x->node[node].depth >= 0; node = x->node[node].parent)
        ek_prefix_touch(x, EK_ORDER_NODES, node);
}

/* --- pages that the store lacks */

void ek_prefix_mark_unsaved(ek_prefix *x, int32_t node, ek_layer_kind kind)
{
    ek_prefix_node *d = &x->node[node];
    if (!x->save) return;
    d->unsaved[kind] = true;
    if (d->listed) return;
    d->listed = true;
    x->n_unsaved++;
    link_newest(x, EK_ORDER_UNSAVED, node);
}

/* Describes the unsaved pages of a node, which then count as saved. */
void ek_prefix_take_unsaved(ek_prefix *x, int32_t i, ek_prefix_unsaved *out)
{
    ek_prefix_node *d = &x->node[i];
    *out = (ek_prefix_unsaved){.chain = &d->chain, .token = d->token, .depth = d->depth};
    if (d->has_content) out->content = x->content[i];
    for (int k = 0; k < EK_KIND_COUNT; k++) {
        out->page[k] = d->unsaved[k] ? d->page[k] : EK_NO_PAGE;
        d->unsaved[k] = false;
    }
    d->listed = false;
    x->n_unsaved--;
    unlink_order(x, EK_ORDER_UNSAVED, i);
}

bool ek_prefix_next_unsaved(ek_prefix *x, ek_prefix_unsaved *out)
{
    int32_t i = x->unsaved.oldest;
    if (i == EK_NO_NODE) return false;
    ek_prefix_take_unsaved(x, i, out);
    return true;
}

int ek_prefix_n_unsaved(const ek_prefix *x)
{
    return x->n_unsaved;
}

uint64_t ek_prefix_unsaved_mark(const ek_prefix *x)
{
    return x->clock;
}

bool ek_prefix_saved_until(const ek_prefix *x, uint64_t mark)
{
    return x->unsaved.oldest == EK_NO_NODE || x->node[x->unsaved.oldest].used[EK_ORDER_UNSAVED] > mark;
}

/* Saves the node's pages, because it is about to lose one. */
static void save_now(ek_prefix *x, int32_t i)
{
    ek_prefix_unsaved u;
    if (!x->node[i].listed) return;
    ek_prefix_take_unsaved(x, i, &u);
    if (!x->wrong && x->save) x->save(x->save_arg, &u);
}

void ek_prefix_set_saver(ek_prefix *x, void (*save)(void *arg, const ek_prefix_unsaved *node), void *arg)
{
    EK_ASSERT(!save || x->n_nodes == 0);
    x->save = save;
    x->save_arg = arg;
}

/* --- names */

ek_chain ek_chain_root(uint64_t salt)
{
    ek_chain c;
    char text[16] = "root";
    memcpy(text + 8, &salt, sizeof salt);
    ek_sha256(c.h, text, sizeof text);
    return c;
}

ek_chain ek_chain_next(const ek_chain *before, const int32_t token[EK_PAGE_TOKENS], const ek_content_id *content)
{
    struct {
        ek_chain before;
        int32_t token[EK_PAGE_TOKENS];
        ek_content_id content[EK_PAGE_TOKENS];
    } all;
    ek_chain c;
    bool plain = true;
    memset(&all, 0, sizeof all);
    all.before = *before;
    memcpy(all.token, token, sizeof all.token);
    for (int i = 0; content && i < EK_PAGE_TOKENS; i++) plain = plain && !content[i].h[0] && !content[i].h[1];
    if (!plain) memcpy(all.content, content, sizeof all.content);
    ek_sha256(c.h, &all, plain ? offsetof(typeof(all), content) : sizeof all);
    return c;
}

/* --- nodes */

static void enter_table(ek_prefix *x, int32_t i, uint64_t hash)
{
    int32_t *bucket = bucket_of(x, hash);
    x->node[i].hash = hash;
    x->node[i].same = *bucket;
    *bucket = i;
}

static void remove_from_table(ek_prefix *x, int32_t i)
{
    int32_t *at = bucket_of(x, x->node[i].hash);
    while (*at != i) at = &x->node[*at].same;
    *at = x->node[i].same;
}

static int32_t take(ek_prefix *x)
{
    if (x->unused == EK_NO_NODE && !ek_prefix_evict_node(x)) return EK_NO_NODE;
    int32_t i = x->unused;
    x->unused = x->node[i].next;
    ek_prefix_node *d = &x->node[i];
    memset(d, 0, sizeof *d);
    d->parent = d->child = d->prev = d->next = d->same = EK_NO_NODE;
    for (int k = 0; k < EK_KIND_COUNT; k++) d->page[k] = EK_NO_PAGE;
    x->n_nodes++;
    return i;
}

static int owner_of(const ek_prefix *x, uint64_t id)
{
    int unused = -1;
    for (int i = 0; i < EK_PREFIX_OWNERS; i++) {
        if (x->owner[i].n_roots > 0 && x->owner[i].id == id) return i;
        if (x->owner[i].n_roots == 0 && unused < 0) unused = i;
    }
    return unused >= 0 ? unused : (int)(id % EK_PREFIX_OWNERS);
}

int32_t ek_prefix_add_root(ek_prefix *x, const ek_prefix_key *key)
{
    uint64_t salt = key->salt;
    int32_t i = take(x);
    if (i == EK_NO_NODE) return i;
    x->node[i].depth = -1;
    x->node[i].salt = salt;
    x->node[i].owner = owner_of(x, key->owner);
    ek_prefix_owner *o = &x->owner[x->node[i].owner];
    if (o->n_roots++ == 0) o->id = key->owner;
    x->node[i].salt_name = ek_salt_name_retain(key->salt_name);
    if (x->save || x->held_queue) x->node[i].chain = ek_chain_root(salt);
    enter_table(x, i, hash_root(salt));
    return i;
}

int32_t ek_prefix_add(ek_prefix *x, int32_t parent, const ek_prefix_key *key, int pos, int n)
{
    int32_t i = take(x);
    if (i == EK_NO_NODE) return i;
    ek_prefix_node *d = &x->node[i];
    d->depth = pos / EK_PAGE_TOKENS;
    d->n = n;
    d->owner = x->node[parent].owner;
    memcpy(d->token, key->token + pos, (size_t)n * sizeof *d->token);
    d->has_content = key->content && pos < key->n_content;
    for (int k = 0; k < n && d->has_content; k++) x->content[i][k] = content_at(key, pos + k);
    d->parent = parent;
    d->next = x->node[parent].child;
    if (d->next != EK_NO_NODE) x->node[d->next].prev = i;
    x->node[parent].child = i;
    if (n == EK_PAGE_TOKENS) enter_table(x, i, hash_page(parent, key, pos));
    if (n == EK_PAGE_TOKENS && (x->save || x->held_queue))
        d->chain = ek_chain_next(&x->node[parent].chain, d->token, d->has_content ? x->content[i] : NULL);
    link_newest(x, EK_ORDER_NODES, i);
    return i;
}

void ek_prefix_set_sliding(ek_prefix *x, int32_t node, int32_t page, int n, bool seldom)
{
    ek_prefix_node *d = &x->node[node];
    EK_ASSERT(d->n_sliding == 0 && n > 0);
    ek_pages_cache(x->pages, ek_prefix_kind(x, EK_SLIDING, node), page);
    d->page[EK_SLIDING] = page;
    d->n_sliding = n;
    d->seldom = seldom;
    link_newest(x, ek_prefix_sliding_order(x, node), node);
    if (n < EK_PAGE_TOKENS) return;
    ek_prefix_mark_unsaved(x, node, EK_SLIDING);
    ek_prefix_held_review(x, node);
}

void ek_prefix_touch_sliding(ek_prefix *x, int32_t node, bool seldom)
{
    unlink_order(x, ek_prefix_sliding_order(x, node), node);
    x->node[node].seldom = seldom;
    link_newest(x, ek_prefix_sliding_order(x, node), node);
}

void ek_prefix_drop_sliding(ek_prefix *x, int32_t node)
{
    ek_prefix_node *d = &x->node[node];
    if (d->n_sliding == 0) return;
    save_now(x, node);
    unlink_order(x, ek_prefix_sliding_order(x, node), node);
    ek_pages_uncache(x->pages, ek_prefix_kind(x, EK_SLIDING, node), d->page[EK_SLIDING]);
    bool whole = d->n_sliding == EK_PAGE_TOKENS;
    d->page[EK_SLIDING] = EK_NO_PAGE;
    d->n_sliding = 0;
    if (whole) ek_prefix_held_review(x, node);
}

static void give_back(ek_prefix *x, int32_t i)
{
    x->node[i].next = x->unused;
    x->unused = i;
    x->n_nodes--;
}

/* Whether no sequence can resume at the node or below it. */
static bool is_empty(const ek_prefix *x, int32_t i)
{
    const ek_prefix_node *d = &x->node[i];
    return d->child == EK_NO_NODE && i != x->held && d->page[EK_FULL] == EK_NO_PAGE && d->n_sliding == 0;
}

static void drop_one(ek_prefix *x, int32_t i)
{
    ek_prefix_node *d = &x->node[i];
    EK_ASSERT(d->child == EK_NO_NODE && i != x->held);
    save_now(x, i);
    if (x->wrong && x->save && d->depth >= 0 && d->n == EK_PAGE_TOKENS)
        x->save(x->save_arg, &(ek_prefix_unsaved){.chain = &d->chain, .page = {EK_NO_PAGE, EK_NO_PAGE}});
    ek_prefix_drop_sliding(x, i);
    ek_prefix_held_drop(x, i);
    if (d->page[EK_FULL] != EK_NO_PAGE) ek_pages_uncache(x->pages, ek_prefix_kind(x, EK_FULL, i), d->page[EK_FULL]);
    if (d->depth < 0 || d->n == EK_PAGE_TOKENS) remove_from_table(x, i);
    if (d->depth < 0) {
        x->owner[d->owner].n_roots--;
        ek_salt_name_release(d->salt_name);
    }
    if (d->depth >= 0) {
        unlink_order(x, EK_ORDER_NODES, i);
        if (d->prev != EK_NO_NODE) x->node[d->prev].next = d->next;
        else x->node[d->parent].child = d->next;
        if (d->next != EK_NO_NODE) x->node[d->next].prev = d->prev;
    }
    give_back(x, i);
}

void ek_prefix_drop_node(ek_prefix *x, int32_t node)
{
    int32_t parent = x->node[node].parent;
    drop_one(x, node);
    while (parent != EK_NO_NODE && is_empty(x, parent)) {
        node = parent;
        parent = x->node[node].parent;
        drop_one(x, node);
    }
}

int ek_prefix_drop_tree(ek_prefix *x, int32_t node)
{
    int pages = 0;
    x->wrong = true;
    for (int32_t at = node;;) {
        while (x->node[at].child != EK_NO_NODE) at = x->node[at].child;
        int32_t parent = x->node[at].parent;
        pages += (x->node[at].page[EK_FULL] != EK_NO_PAGE) + (x->node[at].n_sliding > 0);
        if (at == node) break;
        drop_one(x, at);
        at = parent;
    }
    ek_prefix_drop_node(x, node);
    x->wrong = false;
    return pages;
}
