/* One segment of attention where keys and values are rows of floats: the operator library's tensors. Kernels by
 * instruction set; docs/NUMERICS.md 5. Kernels over pages: ops/attn/attn_kernels.h.
 *
 * A segment is computed in three steps: scores, weights, values. There are two forms:
 *
 * Form A, for rows in f32, f16 and bf16: numbers are widened to f32, the sums are those of ops/attn/attn.h, so pages of
 * the same numbers give the same bits.
 *
 * Form B, for rows in bf16, in the steps of ops/bf16_step.h (docs/numerics/bf16.md):
 *   score   16 lanes; lane i takes the pair of dims (32 n + 2 i, 32 n + 2 i + 1) for n = 0, 1, … from +0,
 *           dims after the last count as zeros; the lanes are added 8, 4, 2, 1 apart; times the scale
 *   weight  as in Form A, then rounded to bf16, to nearest even; l sums the rounded ones
 *   value   pairs of slots (2j, 2j + 1) of the segment in ascending order; a pair with both slots hidden
 *           from the query is skipped
 *
 * ops/attn/attn_rows.c is the definition; every kernel equals it bit for bit. Nothing here can fail: the caller has
 * checked the shapes. Internal to src/ops and src/lib. */
#ifndef EK_OPS_ATTN_ROWS_H
#define EK_OPS_ATTN_ROWS_H

#include "ops/attn/attn_kernels.h"
#include "tensor/dtype.h"

enum {
    EK_SCORE_KEYS = 16,    /* keys of a block of scores: one lane each */
    EK_VALUES_AHEAD = 128, /* prefetch distance, in rows of values */
    EK_VALUES_EARLY = 32,  /* rows of a segment that are prefetched before a whole tile adds its values */
    EK_SEGMENT_WORDS = EK_SEGMENT / 64
};

/* Index of element d of query i, Form B: for each 32 dims, the elements of all queries lie together. */
static inline ptrdiff_t ek_q16(int i, int d)
{
    return ((ptrdiff_t)(d / 32) * EK_TILE + i) * 32 + d % 32;
}

/* A block of scores: EK_SCORE_KEYS keys for a tile of queries. */
typedef struct ek_score_block {
    const uint8_t *key[EK_SCORE_KEYS]; /* rows of dim elements of type; all 16 are readable */
    const float *turned; /* Form A, F32: instead of key, element d of key j at turned[16 d + j]; or NULL */
    ptrdiff_t ahead;     /* distance in bytes from a key to a later one that is prefetched; 0: none */
    ek_dtype type;       /* F32, F16, BF16; Form B: BF16 */
    int dim;             /* 1 to EK_MAX_HEAD_DIM */
    const float *q; /* Form A: n_q rows, stride EK_Q_STRIDE, with zeros after dim up to a multiple of 32; queries n_q to
                       EK_TILE are zeros */
    const uint16_t *q16; /* Form B: the queries in bf16, element d of query i at ek_q16(i, d); zeros as in q */
    float scale;         /* Form B: the scale of scores; Form A: not read, because q is scaled */
    int n_q;             /* 1 to EK_TILE */
    float *e;            /* n_q rows, stride EK_SEGMENT: EK_SCORE_KEYS scores each */
} ek_score_block;

/* Values of n_keys consecutive keys, all visible to all n_q queries; o[i] += e[i][j] v_j for keys j in ascending order.
 */
typedef struct ek_value_run {
    const uint8_t *v; /* row of the first key: dim elements of type */
    ptrdiff_t stride; /* bytes from row to row */
    int n_keys;
    int slot; /* Form B: of the first key in its segment */
    ek_dtype type;
    int dim, n_q;
    const float *e;    /* weight of the first key; queries EK_SEGMENT apart */
    const uint16_t *p; /* Form B: the same in bf16 */
    /* Form B, a whole segment of contiguous rows: the address from which as many bytes as the segment has (for a whole
     * tile EK_VALUES_EARLY rows fewer) are prefetched while it is added, at most ahead_bytes. NULL: prefetch
     * EK_VALUES_AHEAD rows ahead. */
    const uint8_t *ahead;
    ptrdiff_t ahead_bytes;
    float *o;      /* queries ldo apart */
    bool fresh;    /* Form B: o is not initialised and counts as +0 */
    ptrdiff_t ldo; /* dim rounded up to a multiple of 16, Form B: of 32 */
} ek_value_run;

typedef struct ek_attn_rows_ops {
    void (*scores)(const ek_score_block *b);
    void (*values)(const ek_value_run *r);
    ek_attn_fn *weights;         /* of ek_attn_ops */
    ek_attn_combine_fn *combine; /* of ek_attn_ops */
    /* Form B. values_bf16 may permute each whole 32 floats of a query's o; order_bf16 restores the order. order_bf16
     * NULL: o is always in order. */
    void (*scores_bf16)(const ek_score_block *b);
    void (*values_bf16)(const ek_value_run *r);
    void (*order_bf16)(float *o, int dim);
    /* Weights of slots [from, to) are rounded in place; p gets the same in bf16; *l their sum. Whole blocks of 16 slots
     * are read and written: weights() left +0 there. */
    void (*round_bf16)(float *e, uint16_t *p, int from, int to, float *l);
    /* weights() of one query, then round_bf16, in one call; NULL: not available */
    void (*weights_bf16)(float *e, uint16_t *p, int from, int to, int *m, float *l);
} ek_attn_rows_ops;

/* The scalar definition, then the kernels that cpu (EK_CPU_* bits) allows. */
void ek_attn_rows_init(ek_attn_rows_ops *ops, unsigned cpu);
/* x86-64: each overwrites the slots for which it has kernels. */
void ek_attn_rows_table_avx2(ek_attn_rows_ops *ops);
void ek_attn_rows_table_avx512(ek_attn_rows_ops *ops);
void ek_attn_rows_table_bf16(ek_attn_rows_ops *ops); /* EK_CPU_BF16: by VDPBF16PS */

/* The keys of a segment that are visible to the queries of a tile: bit j % 64 of word j / 64 is slot j. */
typedef struct ek_visible {
    uint64_t keys[EK_TILE][EK_SEGMENT_WORDS];
    uint64_t any[EK_SEGMENT_WORDS], all[EK_SEGMENT_WORDS]; /* visible to any of the live queries; to all of them */
    int from[EK_TILE], to[EK_TILE];                        /* the first visible slot, and one past the last */
    bool holes[EK_TILE];                                   /* hidden slots between from and to */
    unsigned live;                                         /* one bit per query that has a visible key */
} ek_visible;

static inline bool ek_visible_at(const uint64_t *keys, int slot)
{
    return keys[slot / 64] >> (slot % 64) & 1;
}

/* Adds query i: fills in the other fields from keys[i]. Before the first query the caller sets any to zeros, all to
 * ones and live to 0. */
void ek_visible_add(ek_visible *v, int i);

/* Turns the scores of a segment into weights. segment: n_q, head_dim and e are read; e, from, to, m and l are written.
 * Weights of hidden keys between visible ones are +0 whatever their score; a query that is not live has +0 everywhere.
 * p: NULL, or Form B: [EK_TILE][EK_SEGMENT] of weights in bf16.
 * ahead: rows of values in bf16 (ahead_bytes readable bytes), of which the first EK_VALUES_EARLY rows are prefetched
 * meanwhile; NULL: none. */
void ek_attn_rows_weigh(const ek_attn_rows_ops *ops, ek_attn_segment *segment, const ek_visible *v, uint16_t *p,
                        const uint8_t *ahead, ptrdiff_t ahead_bytes);

#endif
