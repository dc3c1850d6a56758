/* Inside src/model/tower: rows of floats in a work's memory, and row work spread over threads. */
#ifndef EK_MODEL_TOWER_ROWS_H
#define EK_MODEL_TOWER_ROWS_H

#include <stddef.h>
#include <stdint.h>

#include "base/machine/pool.h"

typedef struct ek_span {
    float *at;
    ptrdiff_t ld; /* elements */
} ek_span;

static inline float *ek_row_at(const ek_span *r, int i)
{
    return r->at + i * r->ld;
}

/* Hands out parts of a block of memory; while base is NULL it only counts the needed bytes. */
typedef struct ek_layout {
    uint8_t *base;
    size_t used;
} ek_layout;

static inline void *ek_take(ek_layout *l, size_t n)
{
    void *p = l->base ? l->base + l->used : NULL;
    l->used += (n + 63) / 64 * 64;
    return p;
}

/* Rows that begin on cache lines, and not all in the same sets of a first-level cache. */
static inline ek_span ek_take_rows(ek_layout *l, int n, int width)
{
    const ptrdiff_t ld = (width + 15) / 16 * 16 + (width % 1024 < 16 ? 16 : 0);
    return (ek_span){(float *)ek_take(l, sizeof(float) * (size_t)n * (size_t)ld), ld};
}

typedef void ek_tower_row_fn(const void *self, int row, int thread);
typedef struct ek_tower_spread {
    ek_tower_row_fn *fn;
    const void *self;
    int n;
} ek_tower_spread;

enum { EK_TOWER_TASK = 8 /* rows */ };

static inline void ek_tower_spread_task(void *arg, int task, int worker)
{
    const ek_tower_spread *s = (const ek_tower_spread *)arg;
    for (int i = task * EK_TOWER_TASK; i < (task + 1) * EK_TOWER_TASK && i < s->n; i++) s->fn(s->self, i, worker);
}

/* Calls fn(self, row, thread) for rows [0, n). */
static inline void ek_tower_each_row(ek_pool *pool, ek_tower_row_fn *fn, const void *self, int n)
{
    ek_tower_spread s = {fn, self, n};
    ek_pool_run(pool, ek_tower_spread_task, &s, (n + EK_TOWER_TASK - 1) / EK_TOWER_TASK);
}

#endif
