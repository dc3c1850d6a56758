/* The state of the prefix index, for the files of src/cache and for tests. */
#ifndef EK_CACHE_PREFIX_STATE_H
#define EK_CACHE_PREFIX_STATE_H

#include "cache/prefix.h"

enum {
    EK_NO_NODE = -1,
    EK_PREFIX_OWNERS = 64, /* distinguished owners; further ones share one of these */
    EK_PREFIX_SPARED = 2   /* times that a page is not evicted with which several sequences began */
};

/* Orders of use. Nodes: a path is touched from its end to its root, so the oldest node has no children. Sliding: nodes
 * with a sliding page. Seldom: nodes with a sliding page where a prompt is less likely to resume. Unsaved: nodes with a
 * page that is not on disk, in order of arrival. */
typedef enum ek_prefix_order {
    EK_ORDER_NODES,
    EK_ORDER_SLIDING,
    EK_ORDER_SELDOM,
    EK_ORDER_UNSAVED,
    EK_ORDER_COUNT
} ek_prefix_order;

typedef struct ek_prefix_list {
    int32_t newest, oldest;
    int n;
} ek_prefix_list;

/* An owner of nodes. Each has orders of its own, so that the owner with the most pages gives up its own first. */
typedef struct ek_prefix_owner {
    uint64_t id;
    int n_roots; /* 0: the entry is free */
    ek_prefix_list list[EK_ORDER_UNSAVED];
} ek_prefix_owner;

typedef struct ek_prefix_node {
    int32_t token[EK_PAGE_TOKENS]; /* [n] */
    int n;                         /* 1..64; fewer than 64: no children; 0: a root */
    int depth;                     /* positions [64 depth, 64 depth + n); -1: a root */
    int n_sliding;                 /* written positions of the sliding page; 0: no page */
    bool has_content;
    bool seldom;   /* the order of its sliding page */
    bool resumed;  /* a sequence resumed after it, in the next page or at its end */
    bool shared;   /* several did */
    int spared;    /* its sliding page, with which several sequences began, is not evicted this many times */
    int owner;     /* index; also for roots */
    uint64_t salt; /* of a root */
    ek_salt_name *salt_name;
    uint64_t hash;  /* of roots and whole nodes, which are in the table */
    ek_chain chain; /* of roots and whole nodes, with a saver or reports */
    int32_t page[EK_KIND_COUNT];
    bool startable, reported;                /* prefix_held.c */
    int n_held;                              /* itself if it is startable, plus the children whose count is above 0 */
    bool unsaved[EK_KIND_COUNT], listed;     /* listed: in EK_ORDER_UNSAVED */
    int32_t parent, child, prev, next, same; /* next: sibling, or in the free list; same: in a bucket */
    int32_t newer[EK_ORDER_COUNT], older[EK_ORDER_COUNT];
    uint64_t used[EK_ORDER_COUNT];
} ek_prefix_node;

struct ek_prefix {
    ek_pages *pages;
    ek_kv_layout layout;
    bool has[EK_KIND_COUNT];
    double max_idle_bytes;
    ek_prefix_node *node;
    ek_content_id (*content)[EK_PAGE_TOKENS]; /* for nodes with has_content */
    int cap, n_nodes;                         /* n_nodes: roots included */
    int32_t unused;                           /* free list */
    int32_t held;                             /* a node that put is working on; it is not evicted */
    int32_t *bucket;
    uint64_t n_buckets; /* a power of two */
    ek_prefix_owner owner[EK_PREFIX_OWNERS];
    ek_prefix_list unsaved;
    uint64_t clock, evicted[EK_KIND_COUNT];
    void (*save)(void *arg, const ek_prefix_unsaved *node); /* NULL: pages are not saved */
    void *save_arg;
    int n_unsaved;
    bool wrong;                /* the pages being dropped are wrong and are not saved */
    ek_held_queue *held_queue; /* NULL: held pages are not reported */
    int32_t *held_path, late_at;
    int n_reported, n_late, max_depth;
    uint64_t reported_digest;
    /* The found path. */
    int32_t *path;
    int n_path, n_found, n_wanted;
    int32_t rival;
    ek_page_table hit;
};

/* The kind of page that a node has for layers of a kind. */
static inline ek_layer_kind ek_prefix_kind(const ek_prefix *x, ek_layer_kind kind, int32_t node)
{
    return ek_kv_page_kind(&x->layout, kind, x->node[node].depth);
}

/* The first sliding page that a sequence needs to resume at pos. */
static inline int ek_prefix_first_visible(const ek_prefix *x, int pos)
{
    int lo = pos - x->layout.sliding_window + 1;
    return lo > 0 ? lo / EK_PAGE_TOKENS : 0;
}

/* The order in which a node with a sliding page is. */
static inline ek_prefix_order ek_prefix_sliding_order(const ek_prefix *x, int32_t node)
{
    return x->node[node].seldom ? EK_ORDER_SELDOM : EK_ORDER_SLIDING;
}

/* --- prefix_node.c: the tree and its orders --- */
/* Number of equal positions, from the node's first. */
int ek_prefix_common(const ek_prefix *x, int32_t node, const ek_prefix_key *key);
int32_t ek_prefix_root(const ek_prefix *x, uint64_t salt);
/* The whole node below parent with the 64 tokens of the key at pos. */
int32_t ek_prefix_whole(const ek_prefix *x, int32_t parent, const ek_prefix_key *key, int pos);
/* Adds a node; EK_NO_NODE if there is no room. The caller sets its pages. */
int32_t ek_prefix_add(ek_prefix *x, int32_t parent, const ek_prefix_key *key, int pos, int n);
int32_t ek_prefix_add_root(ek_prefix *x, const ek_prefix_key *key);
/* Notes that a whole page of the node is not on disk. */
void ek_prefix_mark_unsaved(ek_prefix *x, int32_t node, ek_layer_kind kind);
/* Describes the unsaved pages of a listed node, which then counts as saved. */
void ek_prefix_take_unsaved(ek_prefix *x, int32_t node, ek_prefix_unsaved *out);
void ek_prefix_touch(ek_prefix *x, ek_prefix_order o, int32_t node);
void ek_prefix_touch_path(ek_prefix *x, int32_t node); /* touches the node and its ancestors */
void ek_prefix_set_sliding(ek_prefix *x, int32_t node, int32_t page, int n, bool seldom);
/* The node's sliding page becomes the newest one of its order. */
void ek_prefix_touch_sliding(ek_prefix *x, int32_t node, bool seldom);
void ek_prefix_drop_sliding(ek_prefix *x, int32_t node);
/* For a node without children; drops empty ancestors without pages too. */
void ek_prefix_drop_node(ek_prefix *x, int32_t node);
int ek_prefix_drop_tree(ek_prefix *x, int32_t node); /* returns the number of dropped pages */

/* prefix_held.c: call after a page of a node came or went, and before a node without children is dropped. */
void ek_prefix_held_review(ek_prefix *x, int32_t node);
void ek_prefix_held_drop(ek_prefix *x, int32_t node);

/* --- prefix_evict.c --- */
void ek_prefix_reclaim(void *arg, ek_layer_kind kind, int n);
/* Drops one node without children, in use or not, to make room for another. */
bool ek_prefix_evict_node(ek_prefix *x);

#endif
