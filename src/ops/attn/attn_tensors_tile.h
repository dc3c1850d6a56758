/* A tile of queries of attention over tensors (attn_tensors.h), and its working memory. Inside src/ops. */
#ifndef EK_OPS_ATTN_TENSORS_TILE_H
#define EK_OPS_ATTN_TENSORS_TILE_H

#include "ops/attn/attn_tensors.h"

/* A call: the data that its tiles share. */
typedef struct ek_tensors_call {
    const ek_attn_tensors *t;
    int ratio;               /* heads / kv_heads */
    bool k_direct, v_direct; /* kernels read the rows in place */
    int64_t tiles_per_head;  /* tiles of one KV head of one entry */
    ptrdiff_t ldo;           /* dim rounded up to 32 */
} ek_tensors_call;

/* A tile of the scheduler: its KV head, its first query (row * ratio + head within the KV head's group), and the
 * absolute positions that each query sees if no mask hides them. */
typedef struct ek_tensors_tile {
    int64_t b, kv_head, first;
    int n_q;
    const int64_t *lo, *end;
} ek_tensors_tile;

static inline ek_tensors_tile ek_tensors_tile_of(const ek_tensors_call *c, const ek_attn_tile *t)
{
    const int64_t head = t->number / c->tiles_per_head;
    return (ek_tensors_tile){.b = head / c->t->kv_heads,
                             .kv_head = head % c->t->kv_heads,
                             .first = t->number % c->tiles_per_head * EK_TILE,
                             .n_q = t->n_q,
                             .lo = t->lo,
                             .end = t->end};
}

static inline int64_t ek_tensors_row(const ek_tensors_call *c, const ek_tensors_tile *t, int i)
{
    return (t->first + i) / c->ratio;
}
static inline int64_t ek_tensors_head(const ek_tensors_call *c, const ek_tensors_tile *t, int i)
{
    return t->kv_head * c->ratio + (t->first + i) % c->ratio;
}
static inline int64_t ek_tensors_start(const ek_tensors_call *c, int64_t b)
{
    return c->t->key_start ? c->t->key_start[b] : 0;
}

/* Working memory of a tile. */
typedef struct ek_tensors_space {
    float *q, *e;  /* of the scheduler */
    float *rows;   /* [EK_SCORE_KEYS][ldo]: keys or values that cannot be read in place; Form B: in bf16 */
    uint16_t *q16; /* Form B: the queries, element d of query i at ek_q16(i, d) */
    uint16_t *p;   /* Form B: [EK_TILE][EK_SEGMENT], the rounded e in bf16 */
} ek_tensors_space;

static inline size_t ek_tensors_space_bytes(const ek_tensors_call *c)
{
    return sizeof(float) * (size_t)(EK_SCORE_KEYS * c->ldo) +
           sizeof(uint16_t) * EK_TILE * (EK_MAX_HEAD_DIM + EK_SEGMENT);
}

static inline ek_tensors_space ek_tensors_space_of(const ek_tensors_call *c, const ek_attn_space *x)
{
    ek_tensors_space own = {.q = x->q, .e = x->e, .rows = x->own};
    own.q16 = (uint16_t *)(own.rows + EK_SCORE_KEYS * c->ldo);
    own.p = own.q16 + EK_TILE * EK_MAX_HEAD_DIM;
    return own;
}

/* Loads a row's dim elements as floats. */
static inline void ek_tensors_load(const ek_attn_tensors *t, const ek_attn_tensor *x, const uint8_t *from, float *to)
{
    if (x->element == (ptrdiff_t)ek_dtype_size(x->type) || t->dim == 1) {
        t->convert->widen(to, from, x->type, t->dim);
        return;
    }
    for (int d = 0; d < t->dim; d++, from += x->element) to[d] = ek_load_float(from, x->type);
}

/* Computes one segment (ek_attn_source.segment, ops/attn/attn_sched.h). self: an ek_tensors_call. */
unsigned ek_tensors_segment(const void *self, const ek_attn_tile *tile, int64_t seg, ek_attn_when when,
                            ek_attn_space *space, ek_attn_node *out);

/* Writes the visible keys of a segment to v. Slot 0 of the segment is key `base`, which may be negative. */
void ek_tensors_visible(const ek_tensors_call *c, const ek_tensors_tile *t, int64_t base, ek_visible *v);
/* Adds a float mask to the scores e of visible keys. */
void ek_tensors_add_mask(const ek_tensors_call *c, const ek_tensors_tile *t, int64_t base, const ek_visible *v,
                         float *e);

#endif
