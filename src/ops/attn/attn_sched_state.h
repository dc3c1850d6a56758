/* What the files of attention's scheduler share: its memory (attn_cut.c), the tree T (attn_tree.c), its tasks
 * (attn_sched.c). */
#ifndef EK_OPS_ATTN_SCHED_STATE_H
#define EK_OPS_ATTN_SCHED_STATE_H

#include "ops/attn/attn_sched.h"

/* Leaves of a tile that one worker added, from a block on: nodes of T by level. */
typedef struct ek_attn_span {
    _Alignas(64) int64_t blocks;
    ek_attn_node *stack;     /* by level; if away, see node_at */
    bool away;               /* left the stack of its worker */
    unsigned count[EK_TILE]; /* leaves of a query */
} ek_attn_span;

/* A tile that is cut into blocks of 2^level leaves, numbered over all split tiles. */
typedef struct ek_attn_split {
    int64_t tile, first_block, n_blocks;
    int64_t first_node; /* nodes_per_block for each, for sums that leave the stack of their worker */
    int level;
} ek_attn_split;

typedef struct ek_attn_item {
    int64_t tile;
    int64_t keys;  /* of whole tiles: n from `tile` on */
    int64_t block; /* of a split tile: n from this one on */
    int n, split;  /* split: -1 for whole tiles */
} ek_attn_item;

typedef struct ek_attn_worker {
    bool ready;
    int64_t keys, queries; /* last read: tile.keys, and the tile whose queries stand in space[0]; -1: none */
    ek_attn_space space[EK_ATTN_GROUP];
    ek_attn_node now;
    ek_attn_node *stack[EK_ATTN_GROUP], *joined; /* levels each */
    ek_attn_span *span;                          /* the one on stack[0], or NULL */
    const ek_attn_split *on;                     /* whose it is */
    int64_t first, end;                          /* its blocks */
} ek_attn_worker;

typedef struct ek_attn_job {
    const ek_attn_source *s;
    const ek_attn_cut *cut;
    int levels;
    size_t node_bytes, worker_bytes;
    ek_attn_item *items;
    int64_t n_items, n_split;
    ek_attn_split *splits;
    ek_attn_span *spans; /* [block]: those that begin there */
    ek_attn_node *nodes; /* what left its stack */
    uint8_t *sums;       /* of these */
    uint8_t *workers;
} ek_attn_job;

/* --- attn_cut.c: how the work is divided, and the memory for it */

/* A span of n blocks has at most n levels of whole blocks, and what is behind them in one more node. */
static inline int64_t ek_attn_nodes_per_block(const ek_attn_split *x)
{
    return x->level ? 2 : 1;
}

/* Tile `number` of s, with what the scheduler adds to it. */
ek_attn_tile ek_attn_tile_at(const ek_attn_source *s, int64_t number);
/* Lays out a job in memory, and its list of tasks. */
void ek_attn_job_init(ek_attn_job *j, const ek_attn_source *s, const ek_attn_cut *cut, void *memory, int n_workers);
/* Lays out a worker's memory; with at = NULL: the bytes that it takes. */
size_t ek_attn_worker_lay(const ek_attn_source *s, int levels, uint8_t *at);
void ek_attn_node_lay(const ek_attn_source *s, ek_attn_node *n, uint8_t *at);

/* --- attn_tree.c: a stack holds the nodes of T by level; i: the query */

void ek_attn_node_copy(const ek_attn_source *s, ek_attn_node *to, const ek_attn_node *from, int i);
/* Query i of a node of 2^level leaves, a whole branch of the tree, behind count leaves. */
void ek_attn_tree_push(const ek_attn_source *s, ek_attn_node *stack, ek_attn_node *node, unsigned count, int level,
                       int i);
/* A leaf of n queries that have count leaves each: the sums change places with what lay on the stack. */
void ek_attn_tree_push_all(const ek_attn_source *s, ek_attn_node *stack, ek_attn_node *leaf, unsigned count, int n);
/* The sum of query i over the nodes of `count`, and of tail behind them unless NULL; NULL for none. Nodes are used
 * up. */
ek_attn_node *ek_attn_tree_fold(const ek_attn_source *s, ek_attn_node *stack, unsigned count, ek_attn_node *tail,
                                int i);
/* Passes the result of query i to s->result; sum NULL: no key was visible. row: room for it. */
void ek_attn_tree_finish(const ek_attn_source *s, const ek_attn_tile *t, const ek_attn_node *sum, int i,
                         float *restrict row);

#endif
