/* The inner loops of the library, by instruction set. Each equals the plain definition in
 * lib/plain.h bit for bit. */
#ifndef EK_LIB_KERNELS_H
#define EK_LIB_KERNELS_H

#include <evenkeel_ops.h>
#include "ops/attn_kernels.h"
#include "ops/linear_layout.h"
#include "ops/rows.h"

enum {
    LIB_COLS = 64,  /* outputs of a tile of a product: 4 panels */
    LIB_DEPTH = 64, /* inputs of a panel that lies in the first-level cache; divides EK_KBLOCK */
    LIB_FEW = 3,
    LIB_PAIR_ROWS = 8, /* of a tile of a product in bf16 */
    LIB_KEYS = 16,     /* keys of a block of scores: one lane each */
    LIB_AHEAD = 128,   /* rows of values from one that is added to one that is fetched */
    LIB_EARLY = 32     /* of a segment's rows, those that are fetched before a whole tile adds its values */
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

/* Rows as a product in bf16 reads them (lib/product_bf16.h). */
typedef struct lib_pair_rows {
    uint8_t *x;    /* 4 bytes an input, in a form that pair_row and pair_panel of one ISA share; 64-byte aligned */
    float *sum;    /* X of each group */
    ptrdiff_t ldx; /* bytes; a multiple of 64 */
    ptrdiff_t lds; /* elements */
} lib_pair_rows;

/* Queries of Form B meet a key 32 dims at a time: those of all queries lie together. */
static inline ptrdiff_t lib_q16(int i, int d)
{
    return ((ptrdiff_t)(d / 32) * EK_TILE + i) * 32 + d % 32;
}

typedef struct lib_kernels {
    /* n elements that lie one after the other, F32, F16 or BF16 */
    void (*widen)(float *to, const uint8_t *from, ek_type t, int64_t n);
    void (*narrow)(uint8_t *to, ek_type t, const float *from, int64_t n);
    /* to[i] = fma(s, code i, b); n is a multiple of 8, codes start at a byte */
    void (*affine)(float *to, const uint8_t *codes, int n, int bits, float s, float b);
    /* affine and turn in one, for codes of 4 or 8 bits: panel[k * LIB_COLS + i] = fma(s[i], code k of
     * row i, b[i]), i < 16, k < n; n is a multiple of 32. NULL: none */
    void (*affine_turned)(float *panel, const uint8_t *const *rows, int n, int bits, const float *s, const float *b);
    /* panel[k * LIB_COLS + i] = rows[i * LIB_DEPTH + k], i < 16, k < LIB_DEPTH */
    void (*turn)(float *panel, const float *rows);
    /* acc[r * LIB_COLS + n] = fma(x[r][k], panel[k * LIB_COLS + n], …) over ascending k < depth */
    void (*madd)(float *acc, const float *const *x, int64_t at, int rows, const float *panel, int depth);
    /* the panel's values for inputs [k0, k0 + depth) of 4 panels of w from p0: Q4 and Q8 forms */
    void (*unpack)(float *panel, const ek_linear *w, int p0, int k0, int depth);
    /* both in one, for at most LIB_FEW rows and 4 whole panels; k0 and depth multiples of 8. NULL: none */
    void (*madd_few)(float *acc, const float *const *x, int rows, const ek_linear *w, int p0, int64_t k0, int depth);
    void (*scores)(const lib_score_block *b);
    void (*values)(const lib_value_run *r);
    /* Attention of bf16 tensors, Form B (lib/bf16.h). values_bf16 may keep o in an order of its own, for
     * whole 32 floats of a query, until order_bf16 is called; NULL: it does not. */
    void (*scores_bf16)(const lib_score_block *b);
    void (*round_bf16)(float *e, uint16_t *p, int from, int to, float *l);
    /* the engine's weights of one query, then round_bf16; NULL: none in one */
    void (*weights_bf16)(float *e, uint16_t *p, int from, int to, int *m, float *l);
    void (*values_bf16)(const lib_value_run *r);
    void (*order_bf16)(float *o, int dim);
    /* Products in bf16, lib/product_bf16.h. pair_panel: n <= LIB_PAIR_ROWS rows from r0 by the 16 outputs of a panel;
     * fetch: the panel comes from memory. */
    void (*pair_row)(void *to, float *sum, const float *from, int k, int group);
    void (*pair_panel)(float *y, ptrdiff_t ldy, const lib_pair_rows *x, int r0, int n, const ek_linear *w, int p,
                       bool fetch);
    void (*combine)(float *b, const float *a, float fb, float fa, int n); /* b = a * fa + b * fb, each rounded */
    void (*weights)(ek_attn_leaf *leaf);                                  /* the engine's */
    ek_row_ops rows;
    ek_linear_ops linear;
} lib_kernels;

void lib_kernels_init(lib_kernels *k, unsigned cpu);
/* The table for flags that this machine has, or some of them; never written again, so that every core has it at hand.
 */
const lib_kernels *lib_kernels_of(unsigned cpu);
void lib_kernels_avx2(lib_kernels *k);
void lib_kernels_avx512(lib_kernels *k);
void lib_attn_bf16(lib_kernels *k);
void lib_product_avx2(lib_kernels *k);
void lib_product_avx512(lib_kernels *k);
void lib_product_bf16(lib_kernels *k);
bool lib_bf16_sound(void); /* for a machine with EK_CPU_BF16 */

#endif
