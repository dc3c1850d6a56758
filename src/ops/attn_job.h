/* What a call of ek_attn_run is cut into. For attn.c, which cuts, and attn_task.c, which computes. */
#ifndef EK_OPS_ATTN_JOB_H
#define EK_OPS_ATTN_JOB_H

#include <stdatomic.h>
#include <stdbool.h>

#include "ops/attn_kernels.h"

enum { EK_ATTN_GROUP = 4 /* tiles that share a segment; 4 trees of partial sums fit the L2 cache */ };

struct ek_attn {
    ek_attn_shape shape;
    ek_attn_fn *scores, *weights, *values;
    int ratio; /* query heads of one KV head */
    ptrdiff_t ldo;
    size_t k_bytes, v_bytes; /* of one KV head in a block */
};

/* A node of T for the queries of a tile: sum of e v relative to 2^m, and of e. */
typedef struct node {
    float *o; /* [EK_TILE][ldo] */
    int *m;   /* [EK_TILE] */
    float *l;
} node;

typedef struct tile {
    int row, head; /* the first query: row, head within the KV head's group */
    int n_q;
    int seg0, seg1; /* touched by any of the queries */
    int slot;       /* of the first chunk's result; -1: the tile is not split */
    int n_chunks;
} tile;

typedef struct item {
    int tile, n_tiles;
    int chunk; /* of a split tile; -1: whole tiles */
} item;

typedef struct worker {
    float *q; /* [EK_ATTN_GROUP][EK_TILE][EK_Q_STRIDE] */
    float *e; /* [EK_TILE][EK_SEGMENT] */
    node temp;
    node *stack[EK_ATTN_GROUP]; /* [levels] */
} worker;

typedef struct job {
    const ek_attn *a;
    const ek_kv_view *views;
    const ek_attn_row *rows;
    const float *q;
    ptrdiff_t ldq;
    float *out;
    ptrdiff_t ldout;
    tile *tiles;
    item *items;
    int n_tiles, n_items, n_slots;
    int log_chunk; /* k */
    worker *workers;
    node *slots;      /* [slot][KV head] */
    atomic_int *left; /* chunks not yet done, [tile][KV head] */
} job;

/* The row of query i of a tile. */
static inline const ek_attn_row *ek_attn_query_row(const job *j, const tile *t, int i, int *head)
{
    int at = t->head + i;
    *head = at % j->a->ratio;
    return &j->rows[t->row + at / j->a->ratio];
}

/* A task of ek_pool_run; arg is the job: an item for one KV head. */
void ek_attn_task(void *arg, int task, int number);

#endif
