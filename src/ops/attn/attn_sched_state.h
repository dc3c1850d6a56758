/* State shared by the files of attention's scheduler: memory (attn_cut.c), tasks and the tree T (attn_sched.c). */
#ifndef EK_OPS_ATTN_SCHED_STATE_H
#define EK_OPS_ATTN_SCHED_STATE_H

#include "ops/attn/attn_sched.h"

/* Consecutive leaves of a tile that one worker added, from a block on: nodes of T by level. */
typedef struct ek_attn_span {
    _Alignas(64) int64_t blocks;
    ek_attn_node *stack;     /* by level; if away, see node_at */
    bool away;               /* its sums were moved out of its worker's stack */
    unsigned count[EK_TILE]; /* leaves of a query */
} ek_attn_span;

/* A tile that is divided into blocks of 2^level leaves; blocks are numbered over all split tiles. */
typedef struct ek_attn_split {
    int64_t tile, first_block, n_blocks;
    int64_t first_node; /* nodes_per_block nodes per block, for sums that leave their worker's stack */
    int level;
} ek_attn_split;

typedef struct ek_attn_item {
    int64_t tile;
    int64_t keys;  /* whole tiles: n tiles from `tile` on; their number of keys */
    int64_t block; /* a split tile: n blocks from this one on */
    int n, split;  /* split: -1 for whole tiles */
} ek_attn_item;

typedef struct ek_attn_worker {
    bool ready;
    int64_t keys, queries; /* the latest read: its tile.keys, and the tile whose queries lie in space[0]; -1: none */
    ek_attn_space space[EK_ATTN_GROUP];
    ek_attn_node now;
    ek_attn_node *stack[EK_ATTN_GROUP], *joined; /* levels each */
    ek_attn_span *span;                          /* the span on stack[0], or NULL */
    const ek_attn_split *on;                     /* the split tile of that span */
    int64_t first, end;                          /* blocks of the split tile */
} ek_attn_worker;

typedef struct ek_attn_job {
    const ek_attn_source *s;
    const ek_attn_cut *cut;
    int levels;
    size_t node_bytes, worker_bytes;
    ek_attn_item *items;
    int64_t n_items, n_split;
    ek_attn_split *splits;
    ek_attn_span *spans; /* [block]: the span that begins there */
    ek_attn_node *nodes; /* nodes that left a worker's stack */
    uint8_t *sums;       /* memory of their sums */
    uint8_t *workers;
} ek_attn_job;

/* --- attn_cut.c: division of the work, and its memory */

/* A span of n blocks has at most n levels of whole blocks, and one node for the leaves after them. */
static inline int64_t ek_attn_nodes_per_block(const ek_attn_split *x)
{
    return x->level ? 2 : 1;
}

/* Tile `number` of s, with the scheduler's fields set. */
ek_attn_tile ek_attn_tile_at(const ek_attn_source *s, int64_t number);
/* Lays out a job in memory, and its list of tasks. */
void ek_attn_job_init(ek_attn_job *j, const ek_attn_source *s, const ek_attn_cut *cut, void *memory, int n_workers);
/* Lays out a worker's memory. at NULL: only returns its bytes. */
size_t ek_attn_worker_lay(const ek_attn_source *s, int levels, uint8_t *at);
void ek_attn_node_lay(const ek_attn_source *s, ek_attn_node *n, uint8_t *at);

#endif
