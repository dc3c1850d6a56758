/* Attention over views: what a call is, what a tile of it does. Internal to src/lib. */
#ifndef EK_LIB_SDPA_H
#define EK_LIB_SDPA_H

#include "lib/operand.h"

enum { LIB_WORDS = EK_SEGMENT / 64 };

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
    bool pairs; /* EK_BFLOAT16: Form B (lib/bf16.h) */
    bool causal;
    int64_t window; /* 0: none */
    bool masked;
    lib_view mask;        /* broadcast to [B, H, qL, kL] */
    int64_t *key_start;   /* B */
    const float *sinks;   /* H, or NULL */
    int64_t tiles_a_head; /* tiles of one KV head of one b */
    ptrdiff_t ldo;        /* D rounded up to 32 */
} lib_sdpa;

/* Up to EK_TILE queries that read one KV head: row by row, head by head of the group. */
typedef struct lib_tile {
    int64_t b, kv_head, first; /* first query: row * ratio + head within the group */
    int n_q;
    int64_t lo[EK_TILE], hi[EK_TILE]; /* keys that causal, window and padding leave; may be empty */
    int64_t seg0, seg1;               /* segments that any of them touches */
} lib_tile;

/* Working memory of a task. */
typedef struct lib_leaf_space {
    float *q;          /* [EK_TILE][EK_Q_STRIDE] */
    float *e;          /* [EK_TILE][EK_SEGMENT] */
    float *rows;       /* [LIB_KEYS][dim]: keys or values that are not read in place; Form B: in bf16 */
    uint16_t *q16, *p; /* Form B: q, and e after it was rounded, in bf16 */
    bool cold;         /* nobody has fetched anything of the next segment */
} lib_leaf_space;

/* A sum of segments: o relative to 2^m. */
typedef struct lib_node {
    float *o; /* [EK_TILE][ldo] */
    float *l; /* [EK_TILE] */
    int *m;
} lib_node;

/* Everything behind the checks. */
ek_err lib_attend(lib_call *c, const lib_sdpa *s);

static inline int64_t lib_query_row(const lib_sdpa *s, const lib_tile *t, int i)
{
    return (t->first + i) / s->ratio;
}
static inline int64_t lib_query_head(const lib_sdpa *s, const lib_tile *t, int i)
{
    return t->kv_head * s->ratio + (t->first + i) % s->ratio;
}

/* One segment for a tile. Returns the queries that see a key of it, a bit each: for these out
 * holds o, m and l. */
unsigned lib_leaf(const lib_sdpa *s, const lib_tile *t, int64_t seg, lib_leaf_space *space, lib_node *out);

/* Whether the mask leaves key j to row (b, head, row); *add is what it adds to the score. */
bool lib_mask_at(const lib_view *mask, const uint8_t *row, int64_t j, float *add);

#endif
