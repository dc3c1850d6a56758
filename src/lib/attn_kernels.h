/* The inner loops of attention over views, by instruction set. Each equals the plain definition in
 * lib/attn_plain.h or lib/bf16.h bit for bit. */
#ifndef EK_LIB_ATTN_KERNELS_H
#define EK_LIB_ATTN_KERNELS_H

#include <evenkeel_ops.h>
#include "ops/attn_kernels.h"

enum {
    LIB_KEYS = 16,   /* keys of a block of scores: one lane each */
    LIB_AHEAD = 128, /* rows of values from one that is added to one that is fetched */
    LIB_EARLY = 32   /* of a segment's rows, those that are fetched before a whole tile adds its values */
};

/* A block of scores: keys in lanes. */
typedef struct lib_score_block {
    const uint8_t *key[LIB_KEYS]; /* rows of dim elements of type; all readable */
    ptrdiff_t ahead;              /* from a key to one that is read soon: worth a prefetch; 0: none */
    ek_type type;                 /* F32, F16, BF16 */
    int dim;
    const float *q; /* n_q rows, stride EK_Q_STRIDE, zeros behind dim up to a multiple of 32 */
    const uint16_t
        *q16; /* Form B: the same in bf16, which they all are, element d of query i at lib_q16(i, d); else not read */
    float scale; /* Form B: of the scores; else not read */
    int n_q;     /* 1 to EK_TILE */
    float *e;    /* n_q rows, stride EK_SEGMENT: LIB_KEYS scores each */
} lib_score_block;

/* o[i] = fma(e[i][j], v_j, o[i]) for keys j in ascending order. Form B: lib/bf16.h. */
typedef struct lib_value_run {
    const uint8_t *v; /* row of the first key */
    ptrdiff_t stride; /* bytes from row to row */
    int n_keys;
    int slot; /* Form B: of the first key in its segment */
    ek_type type;
    int dim, n_q;
    const float *e;    /* of the first key; queries EK_SEGMENT apart */
    const uint16_t *p; /* Form B: the same in bf16 */
    /* Form B, a whole segment of rows that lie one after the other: what is fetched while it is added, as much as
     * it has itself, for a whole tile less LIB_EARLY rows, and at most soon_bytes. NULL: rows LIB_AHEAD below. */
    const uint8_t *soon;
    ptrdiff_t soon_bytes;
    float *o;   /* queries ldo apart */
    bool fresh; /* Form B: o has nothing yet and counts as +0 */
    ptrdiff_t ldo;
} lib_value_run;

/* Queries of Form B meet a key 32 dims at a time: those of all queries lie together. */
static inline ptrdiff_t lib_q16(int i, int d)
{
    return ((ptrdiff_t)(d / 32) * EK_TILE + i) * 32 + d % 32;
}

typedef struct lib_attn_ops {
    void (*scores)(const lib_score_block *b);
    void (*weights)(ek_attn_leaf *leaf); /* the engine's */
    void (*values)(const lib_value_run *r);
    ek_attn_combine_fn *combine; /* the engine's */
    /* Attention of bf16 tensors, Form B (lib/bf16.h). values_bf16 may keep o in an order of its own, for
     * whole 32 floats of a query, until order_bf16 is called; NULL: it does not. */
    void (*scores_bf16)(const lib_score_block *b);
    void (*round_bf16)(float *e, uint16_t *p, int from, int to, float *l);
    /* the engine's weights of one query, then round_bf16; NULL: none in one */
    void (*weights_bf16)(float *e, uint16_t *p, int from, int to, int *m, float *l);
    void (*values_bf16)(const lib_value_run *r);
    void (*order_bf16)(float *o, int dim);
} lib_attn_ops;

void lib_attn_init(lib_attn_ops *ops, unsigned cpu); /* scalar, then what cpu (EK_CPU_* bits) allows */
void lib_attn_table_avx2(lib_attn_ops *ops);
void lib_attn_table_avx512(lib_attn_ops *ops);
void lib_attn_table_bf16(lib_attn_ops *ops);
bool lib_bf16_sound(void); /* for a machine with EK_CPU_BF16 */

#endif
