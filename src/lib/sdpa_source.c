/* Attention over views as a source of work for the scheduler (ops/attn_sched.h). What a leaf is: sdpa_leaf.c. */
#include <string.h>

#include "lib/sdpa.h"

/* What causal, window and padding leave of the keys; masks hide more, in the leaves. */
static void tile(const void *self, ek_attn_tile *t)
{
    const lib_sdpa *s = self;
    const int64_t left = s->rows * s->ratio - t->number % s->tiles_per_head * EK_TILE;
    t->n_q = left < EK_TILE ? (int)left : EK_TILE;
    t->keys = t->number / s->tiles_per_head;
    const lib_tile at = lib_tile_of(s, t);
    const int64_t start = s->key_start[at.b];
    for (int i = 0; i < t->n_q; i++) {
        const int64_t own = lib_query_row(s, &at, i) + s->n_keys -
                            s->rows; /* the key that stands where the query does */
        int64_t lo = s->window ? own - s->window + 1 : 0, end = s->causal && own < s->n_keys ? own + 1 : s->n_keys;
        if (lo < 0) lo = 0;
        if (lo < -start) lo = -start;
        t->lo[i] = lo + start, t->end[i] = end + start;
    }
}

/* A row of q in bf16, as Form B reads it. */
static void pair_query(const lib_sdpa *s, uint16_t *q16, const uint8_t *from, int i)
{
    const int64_t stride = lib_stride(&s->q, 1);
    for (int d = 0; d < s->dim; d += 32) {
        const int n = s->dim - d < 32 ? s->dim - d : 32;
        uint16_t *to = q16 + ek_q16(i, d);
        if (stride == 2) memcpy(to, from + 2 * d, (size_t)n * sizeof *to);
        else
            for (int j = 0; j < n; j++) memcpy(to + j, from + (d + j) * stride, sizeof *to);
    }
}

static void queries(const void *self, const ek_attn_tile *tile, ek_attn_space *x)
{
    const lib_sdpa *s = self;
    const lib_tile at = lib_tile_of(s, tile), *t = &at;
    const lib_leaf_space place = lib_leaf_space_of(s, x), *space = &place;
    if (s->pairs) memset(space->q16, 0, sizeof *space->q16 * EK_TILE * EK_MAX_HEAD_DIM);
    else memset(space->q, 0, sizeof *space->q * EK_TILE * EK_Q_STRIDE);
    for (int i = 0; i < t->n_q; i++) {
        const uint8_t *from = s->q.data + t->b * s->q.stride[0] + lib_query_head(s, t, i) * s->q.stride[1] +
                              lib_query_row(s, t, i) * s->q.stride[2];
        float *q = space->q + i * EK_Q_STRIDE;
        if (s->pairs) {
            pair_query(s, space->q16, from, i);
            continue;
        }
        lib_load(s->k, q, from, s->q.type, s->q.stride[3], s->dim);
        for (int d = 0; d < s->dim && s->scale != 1; d++) q[d] *= s->scale;
    }
}

static float sink(const void *self, const ek_attn_tile *t, int i)
{
    const lib_sdpa *s = self;
    const lib_tile at = lib_tile_of(s, t);
    return s->sinks[lib_query_head(s, &at, i)];
}

static void result(const void *self, const ek_attn_tile *t, int i, float *row)
{
    const lib_sdpa *s = self;
    const lib_tile at = lib_tile_of(s, t);
    if (s->pairs && s->k->attn.order_bf16) s->k->attn.order_bf16(row, s->dim);
    uint8_t *to = s->y.data + at.b * s->y.stride[0] + lib_query_head(s, &at, i) * s->y.stride[1] +
                  lib_query_row(s, &at, i) * s->y.stride[2];
    lib_store(s->k, to, s->y.type, s->y.stride[3], row, s->dim);
}

static void run(void *call, ek_attn_task_fn *task, void *arg, int64_t n_tasks)
{
    lib_run(call, task, arg, n_tasks);
}

ek_err lib_attend(lib_call *c, const lib_sdpa *s)
{
    const ek_attn_source source = {.self = s,
                                   .n_tiles = s->batch * s->kv_heads * s->tiles_per_head,
                                   .group = 1,
                                   .masked = s->masked,
                                   .sinks = s->sinks != NULL,
                                   .ldo = s->ldo,
                                   .own_bytes = lib_leaf_bytes(s),
                                   .combine = s->k->attn.combine,
                                   .tile = tile,
                                   .queries = queries,
                                   .leaf = lib_leaf,
                                   .sink = sink,
                                   .result = result};
    ek_attn_cut cut;
    void *memory = lib_take(c, ek_attn_cut_work(&cut, &source, c->n_workers));
    if (!memory) return EK_ENOMEM;
    ek_attn_schedule(&source, &cut, &(ek_attn_workers){c, c->n_workers, run}, memory);
    return EK_OK;
}
