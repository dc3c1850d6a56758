/* Attention over views: the description of a call, and its source of work for the scheduler (ops/attn_sched.h).
 * Internal to src/lib. */
#ifndef EK_LIB_SDPA_H
#define EK_LIB_SDPA_H

#include "lib/operand.h"
#include "ops/attn_sched.h"

/* Keys or values, [B, Hkv, kL, D]. */
typedef struct lib_kv {
    bool quantised;
    bool direct; /* kernels read rows where they lie */
    lib_view dense;
    lib_quant q;
} lib_kv;

typedef struct lib_sdpa {
    const lib_kernels *k;
    lib_view q, y;
    lib_kv keys, values;
    int64_t batch, heads, kv_heads, rows, n_keys; /* B, H, Hkv, qL, kL */
    int ratio, dim;                               /* H / Hkv; D */
    float scale;
    bool pairs; /* EK_BFLOAT16: Form B (ops/attn_rows.h) */
    bool causal;
    int64_t window; /* 0: none */
    bool masked;
    lib_view mask;          /* broadcast to [B, H, qL, kL] */
    int64_t *key_start;     /* B */
    const float *sinks;     /* H, or NULL */
    int64_t tiles_per_head; /* tiles of one KV head of one b */
    ptrdiff_t ldo;          /* D rounded up to 32 */
} lib_sdpa;

/* A tile of the scheduler: its KV head, its first query (row * ratio + head within the KV head's group), and the
 * absolute positions that are visible to each query but for the mask: key j stands at key_start + j. */
typedef struct lib_tile {
    int64_t b, kv_head, first;
    int n_q;
    const int64_t *lo, *end;
} lib_tile;

static inline lib_tile lib_tile_of(const lib_sdpa *s, const ek_attn_tile *t)
{
    const int64_t head = t->number / s->tiles_per_head;
    return (lib_tile){.b = head / s->kv_heads,
                      .kv_head = head % s->kv_heads,
                      .first = t->number % s->tiles_per_head * EK_TILE,
                      .n_q = t->n_q,
                      .lo = t->lo,
                      .end = t->end};
}

static inline int64_t lib_query_row(const lib_sdpa *s, const lib_tile *t, int i)
{
    return (t->first + i) / s->ratio;
}
static inline int64_t lib_query_head(const lib_sdpa *s, const lib_tile *t, int i)
{
    return t->kv_head * s->ratio + (t->first + i) % s->ratio;
}

/* Working memory of a tile. */
typedef struct lib_leaf_space {
    float *q, *e;  /* the scheduler's */
    float *rows;   /* [EK_SCORE_KEYS][ldo]: keys or values that are not read in place; Form B: in bf16 */
    uint16_t *q16; /* Form B: the queries, element d of query i at ek_q16(i, d) */
    uint16_t *p;   /* Form B: [EK_TILE][EK_SEGMENT], e after it was rounded, in bf16 */
} lib_leaf_space;

static inline size_t lib_leaf_bytes(const lib_sdpa *s)
{
    return sizeof(float) * (size_t)(EK_SCORE_KEYS * s->ldo) +
           sizeof(uint16_t) * EK_TILE * (EK_MAX_HEAD_DIM + EK_SEGMENT);
}

static inline lib_leaf_space lib_leaf_space_of(const lib_sdpa *s, const ek_attn_space *x)
{
    lib_leaf_space own = {.q = x->q, .e = x->e, .rows = x->own};
    own.q16 = (uint16_t *)(own.rows + EK_SCORE_KEYS * s->ldo);
    own.p = own.q16 + EK_TILE * EK_MAX_HEAD_DIM;
    return own;
}

/* Computes s->y; the caller has checked everything. ENOMEM. */
ek_err lib_attend(lib_call *c, const lib_sdpa *s);

/* Computes one segment (ek_attn_source.leaf, ops/attn_sched.h). */
unsigned lib_leaf(const void *self, const ek_attn_tile *tile, int64_t seg, ek_attn_when when, ek_attn_space *space,
                  ek_attn_node *out);

/* Whether key j is visible in a row (b, head, row) of the mask; *add receives the term it adds to the score. */
bool lib_mask_at(const lib_view *mask, const uint8_t *row, int64_t j, float *add);
/* Writes the visible keys of a segment to v. Slot 0 of the segment is key `base`, which may be negative. */
void lib_find_visible(const lib_sdpa *s, const lib_tile *t, int64_t base, ek_visible *v);
/* Adds a mask of floats to the scores e of visible keys. */
void lib_add_mask(const lib_sdpa *s, const lib_tile *t, int64_t base, const ek_visible *v, float *e);

#endif
