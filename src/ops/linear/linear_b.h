/* Form B of a linear layer: products of quantised weights in BF16. The weights are those of Form Q
 * (ops/linear/linear.h), biased; the activations are rounded to BF16.
 *
 * Codes of up to 8 bits are exact in BF16, so a group is summed in the steps of ops/bf16_step.h over
 * the codes themselves, and scale and bias meet the sum once.
 *
 * row     x' = x rounded to BF16, to nearest even. X of a group of G inputs: 16 lanes; lane i takes
 *         the pair (32 n + 2 i, 32 n + 2 i + 1) of the group for n = 0, 1, … with factors 1, from +0; the
 *         lanes are added 8, 4, 2, 1 apart
 * group   A, from +0: for every four inputs in ascending k first the pair (k, k + 2), then (k + 1, k + 3),
 *         as they lie in a packed matrix; each with the centred codes c = u - zero
 * block   of 256 inputs, from +0, groups ascending: a = fma(s, A, a), then a = fma(b', X, a), where
 *         b' = fma(s, zero, b): the value of a weight is s u + b = s c + b'
 * output  blocks added by the tree T
 *
 * Flushing to zero is part of the steps only, not of the fma of blocks nor of the additions.
 * docs/numerics/bf16.md. */
#ifndef EK_OPS_LINEAR_B_H
#define EK_OPS_LINEAR_B_H

#include "ops/linear/linear_layout.h"

enum { EK_LINEAR_B_ROWS = 8 /* of a tile */ };

/* Rows in Form B. The caller owns the memory; x takes EK_LINEAR_B_BYTES bytes per input. */
typedef struct ek_acts_b {
    uint8_t *x;    /* x', in a form that `row` and `panel` of one instruction set share; 64-byte aligned */
    float *sum;    /* X of each group */
    ptrdiff_t ldx; /* bytes; a multiple of 64 */
    ptrdiff_t lds; /* elements */
} ek_acts_b;

enum { EK_LINEAR_B_BYTES = 4 };

typedef struct ek_linear_b_ops {
    /* Converts one row of k inputs (whole groups) and writes it to x and sum. */
    void (*row)(void *x, float *sum, const float *from, int k, int group);
    /* y[r][0..16) = rows [r0, r0 + n) of x, n <= EK_LINEAR_B_ROWS, times the 16 outputs of panel p.
     * fetch: prefetch, because the panel is not in a cache; speed only. */
    void (*panel)(float *y, ptrdiff_t ldy, const ek_acts_b *x, int r0, int n, const ek_linear *w, int p, bool fetch);
} ek_linear_b_ops;

/* The scalar definition, then the kernels that cpu (EK_CPU_* bits) allows. */
void ek_linear_b_init(ek_linear_b_ops *ops, unsigned cpu);
/* x86-64: each overwrites the slots for which it has kernels. */
void ek_linear_b_table_avx2(ek_linear_b_ops *ops);
void ek_linear_b_table_avx512(ek_linear_b_ops *ops);
void ek_linear_b_table_bf16(ek_linear_b_ops *ops); /* EK_CPU_BF16: by VDPBF16PS */

#endif
