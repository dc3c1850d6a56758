/* Attention over tensors as a source of work for the scheduler (attn_sched.h). A segment: attn_tensors_segment.c. */
#include "ops/attn/attn_tensors.h"

#include <string.h>

#include "ops/attn/attn_tensors_tile.h"

/* The tile's keys by causal, window and padding; masks hide more keys, per segment. */
static void tile(const void *self, ek_attn_tile *out)
{
    const ek_tensors_call *c = self;
    const ek_attn_tensors *t = c->t;
    const int64_t left = t->rows * c->ratio - out->number % c->tiles_per_head * EK_TILE;
    out->n_q = left < EK_TILE ? (int)left : EK_TILE;
    out->keys = out->number / c->tiles_per_head;
    const ek_tensors_tile at = ek_tensors_tile_of(c, out);
    const int64_t start = ek_tensors_start(c, at.b);
    for (int i = 0; i < out->n_q; i++) {
        const int64_t own = ek_tensors_row(c, &at, i) + t->keys - t->rows; /* the key at the query's position */
        int64_t lo = t->window ? own - t->window + 1 : 0, end = t->causal && own < t->keys ? own + 1 : t->keys;
        if (lo < 0) lo = 0;
        if (lo < -start) lo = -start;
        out->lo[i] = lo + start, out->end[i] = end + start;
    }
}

/* Copies a row of q in bf16, in Form B's order. */
static void pair_query(const ek_attn_tensors *t, uint16_t *q16, const uint8_t *from, int i)
{
    for (int d = 0; d < t->dim; d += 32) {
        const int n = t->dim - d < 32 ? t->dim - d : 32;
        uint16_t *to = q16 + ek_q16(i, d);
        if (t->q.element == 2) memcpy(to, from + 2 * d, (size_t)n * sizeof *to);
        else
            for (int j = 0; j < n; j++) memcpy(to + j, from + (d + j) * t->q.element, sizeof *to);
    }
}

static uint8_t *row_of(const ek_tensors_call *c, const ek_attn_tensor *x, const ek_tensors_tile *t, int i)
{
    return x->data + t->b * x->entry + ek_tensors_head(c, t, i) * x->head + ek_tensors_row(c, t, i) * x->row;
}

static void queries(const void *self, const ek_attn_tile *tile, ek_attn_space *x)
{
    const ek_tensors_call *c = self;
    const ek_attn_tensors *t = c->t;
    const ek_tensors_tile at = ek_tensors_tile_of(c, tile);
    const ek_tensors_space space = ek_tensors_space_of(c, x);
    if (t->pairs) memset(space.q16, 0, sizeof *space.q16 * EK_TILE * EK_MAX_HEAD_DIM);
    else memset(space.q, 0, sizeof *space.q * EK_TILE * EK_Q_STRIDE);
    for (int i = 0; i < at.n_q; i++) {
        const uint8_t *from = row_of(c, &t->q, &at, i);
        float *q = space.q + i * EK_Q_STRIDE;
        if (t->pairs) {
            pair_query(t, space.q16, from, i);
            continue;
        }
        ek_tensors_load(t, &t->q, from, q);
        for (int d = 0; d < t->dim && t->scale != 1; d++) q[d] *= t->scale;
    }
}

static float sink(const void *self, const ek_attn_tile *tile, int i)
{
    const ek_tensors_call *c = self;
    const ek_tensors_tile at = ek_tensors_tile_of(c, tile);
    return c->t->sinks[ek_tensors_head(c, &at, i)];
}

static void result(const void *self, const ek_attn_tile *tile, int i, float *row)
{
    const ek_tensors_call *c = self;
    const ek_attn_tensors *t = c->t;
    const ek_attn_tensor *y = &t->y;
    const ek_tensors_tile at = ek_tensors_tile_of(c, tile);
    if (t->pairs && t->attn->order_bf16) t->attn->order_bf16(row, t->dim);
    uint8_t *to = row_of(c, y, &at, i);
    if (y->element == (ptrdiff_t)ek_dtype_size(y->type) || t->dim == 1) {
        t->convert->narrow(to, y->type, row, t->dim);
        return;
    }
    for (int d = 0; d < t->dim; d++, to += y->element) ek_store_float(to, y->type, row[d]);
}

static bool is_direct(const ek_attn_tensors *t, const ek_attn_operand *x)
{
    return !x->read && !x->turned && (t->dim == 1 || x->at.element == (ptrdiff_t)ek_dtype_size(x->at.type));
}

static ek_tensors_call call_of(const ek_attn_tensors *t)
{
    const int ratio = (int)(t->heads / t->kv_heads);
    return (ek_tensors_call){.t = t,
                             .ratio = ratio,
                             .k_direct = is_direct(t, &t->k),
                             .v_direct = is_direct(t, &t->v),
                             .tiles_per_head = (t->rows * ratio + EK_TILE - 1) / EK_TILE,
                             .ldo = (t->dim + 31) / 32 * 32};
}

static ek_attn_source source_of(const ek_tensors_call *c)
{
    const ek_attn_tensors *t = c->t;
    return (ek_attn_source){.self = c,
                            .n_tiles = t->entries * t->kv_heads * c->tiles_per_head,
                            .group = t->pairs ? 1 : EK_ATTN_GROUP, /* Form B prefetches its keys and values itself */
                            .masked = t->mask.data != NULL,
                            .sinks = t->sinks != NULL,
                            .ldo = c->ldo,
                            .own_bytes = ek_tensors_space_bytes(c),
                            .combine = t->attn->combine,
                            .tile = tile,
                            .queries = queries,
                            .segment = ek_tensors_segment,
                            .sink = sink,
                            .result = result};
}

size_t ek_attn_tensors_bytes(const ek_attn_tensors *t, int n_workers)
{
    const ek_tensors_call c = call_of(t);
    const ek_attn_source source = source_of(&c);
    ek_attn_cut cut;
    return ek_attn_cut_work(&cut, &source, n_workers);
}

void ek_attn_tensors_run(const ek_attn_tensors *t, const ek_attn_workers *workers, void *memory)
{
    const ek_tensors_call c = call_of(t);
    const ek_attn_source source = source_of(&c);
    ek_attn_cut cut;
    ek_attn_cut_work(&cut, &source, workers->n_workers);
    ek_attn_schedule(&source, &cut, workers, memory);
}
