/* The scheduler of attention: it assigns segments of queries to workers, and adds them in the tree T. It decides no
 * bit: the leaves of a query and their order in T are fixed by its visible range (ops/attn/attn.h).
 *
 * A source gives access to queries, keys, values and results: in pages (attn_pages.c) or tensors (attn_tensors.h). A
 * tile is up to EK_TILE queries that read the same keys. Its work is either one task, alone or in a group of tiles that
 * share each segment while it is in the cache, or it is split into blocks of 2^k leaves, branches of T. A worker keeps
 * consecutive blocks on a stack of its own while they are branches of the tile's tree; the sums that remain when all
 * are done, about one per worker, are joined at the end. */
#ifndef EK_OPS_ATTN_SCHED_H
#define EK_OPS_ATTN_SCHED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/machine/pool.h"
#include "ops/attn/attn_kernels.h"

enum {
    EK_ATTN_GROUP = 4 /* tiles that share a segment; 4 trees of partial sums fit the second-level cache */,
    EK_ATTN_SHARED_HEAD = 64 /* bytes of ek_attn_space.shared that are cleared before a call */
};

/* A sum of segments: o relative to 2^m, l = the sum of weights. Lives in the scheduler's memory. */
typedef struct ek_attn_node {
    float *o; /* [EK_TILE][ldo] */
    float *l; /* [EK_TILE] */
    int *m;   /* [EK_TILE] */
} ek_attn_node;

typedef struct ek_attn_tile {
    int64_t number;                    /* in [0, n_tiles) */
    int64_t keys;                      /* equal for tiles that read the same keys */
    int64_t lo[EK_TILE], end[EK_TILE]; /* visible positions of each query, lo >= 0; lo >= end: none */
    int n_q;
    /* Written by the scheduler. */
    int64_t seg0, seg1; /* segments with a key that is visible to any query */
    bool gapless;       /* each query's visible range begins in seg0 and has no segment without a visible key */
} ek_attn_tile;

/* The working memory of one worker for one call; laid out by that worker. */
typedef struct ek_attn_space {
    float *q;     /* [EK_TILE][EK_Q_STRIDE] of the current tile */
    float *e;     /* [EK_TILE][EK_SEGMENT] */
    void *own;    /* own_bytes of the source, for the current tile; not cleared */
    void *shared; /* shared_bytes of the source, for all tiles of the worker; its head is 0 when a call begins */
} ek_attn_space;

/* The position of a leaf in its worker's order, from which a kernel chooses what to prefetch. Speed only. */
typedef struct ek_attn_when {
    bool begins; /* the first segment of a task, or of consecutive tasks */
    bool cold;   /* begins, and the worker read other keys before */
    bool first;  /* the first of the tiles that share the segment */
    bool alone;  /* no other tile shares the segment */
    bool last;   /* the last of these tiles; the next segment follows, probably on this worker */
} ek_attn_when;

typedef struct ek_attn_source {
    const void *self; /* first argument of each function */
    int64_t n_tiles;
    int group;                      /* tiles that may share segments, at most EK_ATTN_GROUP */
    bool masked;                    /* [lo, end) may have segments without a visible key */
    bool sinks;                     /* each query has a leaf before all segments: a weight without a value */
    ptrdiff_t ldo;                  /* floats of a query's o; a multiple of 16 */
    size_t own_bytes, shared_bytes; /* sizes of ek_attn_space.own and shared */
    ek_attn_combine_fn *combine;
    /* Fills in keys, lo, end and n_q of tile t->number. */
    void (*tile)(const void *self, ek_attn_tile *t);
    /* Copies the queries of t to space->q. */
    void (*queries)(const void *self, const ek_attn_tile *t, ek_attn_space *space);
    /* Computes segment seg for t. Returns one bit per query with a visible key in it; out receives o, m and l of these
     * queries. */
    unsigned (*segment)(const void *self, const ek_attn_tile *t, int64_t seg, ek_attn_when when, ek_attn_space *space,
                        ek_attn_node *out);
    float (*sink)(const void *self, const ek_attn_tile *t, int i); /* the sink of query i; called only with sinks */
    /* Receives the result of query i: ldo floats, zeros if no key was visible. row may be changed. */
    void (*result)(const void *self, const ek_attn_tile *t, int i, float *row);
} ek_attn_source;

typedef void ek_attn_task_fn(void *arg, int64_t task, int worker);

/* Runs task(arg, t, worker) for each t in [0, n_tasks), worker in [0, n_workers), in any order. */
typedef struct ek_attn_workers {
    void *self;
    int n_workers;
    void (*run)(void *self, ek_attn_task_fn *task, void *arg, int64_t n_tasks);
} ek_attn_workers;
ek_attn_workers ek_attn_workers_of(ek_pool *pool); /* NULL: the caller alone */

/* The division of one call's work. */
typedef struct ek_attn_cut {
    int64_t max_leaves; /* leaves per tile */
    int64_t limit;      /* maximum leaves of a tile that is not split */
    int level;          /* level of a block: it has 2^level leaves */
    int64_t n_items, n_split, n_blocks, n_nodes;
    int group;
} ek_attn_cut;

/* Chooses the division and returns the bytes of memory that ek_attn_schedule needs for it. */
size_t ek_attn_cut_work(ek_attn_cut *cut, const ek_attn_source *s, int n_workers);

/* Computes all tiles of s and passes each result to s->result. memory: as many bytes as ek_attn_cut_work returned,
 * 64-byte aligned. */
void ek_attn_schedule(const ek_attn_source *s, const ek_attn_cut *cut, const ek_attn_workers *workers, void *memory);

/* An upper bound of ek_attn_cut_work for any call of at most n_tiles tiles with at most max_leaves leaves each, for a
 * source that is not masked. Reads ldo, own_bytes, shared_bytes and group of s. */
size_t ek_attn_schedule_bytes(const ek_attn_source *s, int64_t n_tiles, int64_t max_leaves, int n_workers);

#endif
