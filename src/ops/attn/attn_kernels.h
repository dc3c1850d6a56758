/* The attention kernels of an instruction set: one segment of 256 keys for a tile of up to 8 queries
 * that read the same KV head. Internal to ops/attn*.c.
 *
 * A segment is computed by three functions: scores (by the format of K), weights (exponent split,
 * segment maximum, l) and values (by the format of V; for values in integers l too). No addition
 * of a query contains a key that is hidden from it. */
#ifndef EK_OPS_ATTN_KERNELS_H
#define EK_OPS_ATTN_KERNELS_H

#include <stdbool.h>

#include "ops/attn/attn.h"

enum {
    EK_TILE = 8, /* queries of a tile */
    EK_SEGMENT_PAGES = EK_SEGMENT / EK_PAGE_TOKENS,
    EK_Q_STRIDE = EK_MAX_HEAD_DIM + 16,    /* floats between queries; not a power of two */
    EK_CODE_STRIDE = EK_MAX_HEAD_DIM + 32, /* int16 between the codes of queries */
    EK_CHAIN = 256                         /* dims of one chain of a score */
};

typedef struct ek_attn_segment {
    int n_q, head_dim;
    int from[EK_TILE], to[EK_TILE];     /* visible keys, of 256; from >= to: none */
    int all_from, all_to;               /* union over the queries with a visible key */
    int common_from, common_to;         /* intersection over these; may be empty */
    const uint8_t *k[EK_SEGMENT_PAGES]; /* this head's part of each page; NULL: no key of it is visible */
    const uint8_t *v[EK_SEGMENT_PAGES];
    const uint8_t *k_next[EK_SEGMENT_PAGES]; /* the segment after this one, to prefetch; may be NULL */
    bool fetch_k, fetch_v;                   /* to prefetch while scoring, because they were not read lately */
    size_t k_bytes, v_bytes;                 /* of a head's part of one page */
    const float *q;                          /* [EK_TILE][EK_Q_STRIDE], 64-byte aligned */
    const int16_t *q_code;                   /* [EK_TILE][EK_CODE_STRIDE], 64-byte aligned: of absent queries 0; */
    const float *q_scale;                    /* [EK_TILE], scale / n; both for keys in integers only (attn_int.h) */
    void *limbs;                             /* limb_bytes that tiles of this segment share; NULL: a tile alone */
    float *e;                                /* [EK_TILE][EK_SEGMENT]: scores, then weights */
    float *o;                                /* [EK_TILE][ldo]: sum of e_j v_j, not divided */
    ptrdiff_t ldo;                           /* head_dim rounded up to 16 */
    int m[EK_TILE];
    float l[EK_TILE];
} ek_attn_segment;

typedef void ek_attn_fn(ek_attn_segment *segment);
/* The codes of queries, and the last step of a result (ek_attn_encode and ek_attn_rotate_back of ops/attn/attn_int.h).
 * code has room for EK_CODE_STRIDE; the elements after EK_MAX_HEAD_DIM are the kernels' own. */
typedef float ek_attn_encode_fn(float *x, int dim, int max_code, int16_t *code);
typedef void ek_attn_rotate_fn(float *x, int dim);
/* b = a * fa + b * fb, each product rounded; n is a multiple of 16. */
typedef void ek_attn_combine_fn(float *b, const float *a, float fb, float fa, int n);

/* NULL: the format has no kernel. */
typedef struct ek_attn_ops {
    ek_attn_fn *scores[EK_KV_FORMAT_COUNT]; /* k, q -> e, at least for visible keys */
    ek_attn_fn *weights;                    /* e -> e, m, l; e is +0 for hidden keys of 16-blocks with a visible one */
    ek_attn_fn *values[EK_KV_FORMAT_COUNT]; /* v, e -> o */
    ek_attn_combine_fn *combine;            /* combines two nodes of T */
    ek_attn_encode_fn *encode;
    ek_attn_rotate_fn *rotate_back;
    /* Bytes of a segment that kernels of i12 keep for the next tile; the first 64 are 0 before a worker's first tile.
     * NULL: none. */
    size_t (*limb_bytes)(int head_dim);
} ek_attn_ops;

/* One kernel per format: a file that has scores(format, segment) and values(format, segment) as inline bodies makes its
 * kernels with EK_KV_FORMATS(EK_ATTN_KERNELS) and its table with EK_KV_FORMATS(EK_ATTN_ENTRIES); loads(format) says
 * whether the bodies can load a format. */
#define EK_ATTN_KERNELS(id, name, rule, bits, group)  \
    static void scores_##id(ek_attn_segment *segment) \
    {                                                 \
        scores(EK_KV_##id, segment);                  \
    }                                                 \
    static void values_##id(ek_attn_segment *segment) \
    {                                                 \
        values(EK_KV_##id, segment);                  \
    }
#define EK_ATTN_ENTRIES(id, name, rule, bits, group)              \
    .scores[EK_KV_##id] = loads(EK_KV_##id) ? scores_##id : NULL, \
    .values[EK_KV_##id] = loads(EK_KV_##id) ? values_##id : NULL,

void ek_attn_init(ek_attn_ops *ops, unsigned cpu); /* the scalar definition, then the kernels that cpu allows */
/* x86-64 and 64-bit Arm: each overwrites the slots for which it has kernels; on Arm those are formats in integers. */
void ek_attn_table_avx2(ek_attn_ops *ops);
void ek_attn_table_avxvnni(ek_attn_ops *ops);
void ek_attn_table_avx512(ek_attn_ops *ops);
void ek_attn_table_zen4_avx512(ek_attn_ops *ops);
void ek_attn_table_amx(ek_attn_ops *ops);
void ek_attn_table_dotprod(ek_attn_ops *ops);
void ek_attn_table_i8mm(ek_attn_ops *ops);

/* ek_attn_plan over a table of kernels. */
ek_err ek_attn_plan_ops(ek_attn **out, const ek_attn_ops *ops, const ek_attn_shape *shape);

#endif
