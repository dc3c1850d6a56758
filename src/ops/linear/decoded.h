/* The exact product over weights that are decoded on the fly: Form F of ops/linear/linear.h (one chain of fused
 * multiply-adds in ascending k per output and block of 256, blocks added by the tree T), for matrices that
 * are not packed as floats.
 *
 * A tile is some rows by EK_DECODED_COLS outputs. Their weights are made in the first-level cache,
 * EK_DECODED_DEPTH inputs at a time, as a panel:
 *     panel[k * EK_DECODED_COLS + n] = w[n][k]
 * The caller's ek_decoded_fill writes the panel, and every row of the tile reads it. The division into tiles changes
 * no bit. */
#ifndef EK_OPS_DECODED_H
#define EK_OPS_DECODED_H

#include "ops/linear/linear_layout.h"

enum {
    EK_DECODED_COLS = 64,  /* outputs of a tile: 4 panels of ops/linear/linear.h */
    EK_DECODED_DEPTH = 64, /* inputs of a panel; divides EK_KBLOCK */
    EK_DECODED_FEW = 3     /* maximum rows of madd_few */
};

typedef struct ek_decoded_ops {
    /* to[i] = fma(s, (float)code i, b); code i is bits [i bits, (i + 1) bits) of a little-endian bit string; bits
     * 2, 3, 4, 5, 6 or 8; n is a multiple of 8 */
    void (*decode)(float *to, const uint8_t *codes, int n, int bits, float s, float b);
    /* decode and transpose in one call, for 4 or 8 bits: panel[k * EK_DECODED_COLS + i] = fma(s[i], code k of rows[i],
     * b[i]), i < 16, k < n; n is a multiple of 32. NULL: not available on this instruction set */
    void (*decode_turned)(float *panel, const uint8_t *const *rows, int n, int bits, const float *s, const float *b);
    /* panel[k * EK_DECODED_COLS + i] = rows[i * EK_DECODED_DEPTH + k], i < 16, k < EK_DECODED_DEPTH */
    void (*transpose)(float *panel, const float *rows);
    /* The panel of inputs [k0, k0 + depth) of up to four packed panels of w from p0, as many as exist. w is biased Form
     * Q; k0 and depth are multiples of 8. Values are fma(s, (float)u, b), as in ek_linear_row. */
    void (*unpack)(float *panel, const ek_linear *w, int p0, int k0, int depth);
    /* acc[r * EK_DECODED_COLS + n] = fma(x[r][at + k], panel[k * EK_DECODED_COLS + n], acc) for ascending k < depth */
    void (*madd)(float *acc, const float *const *x, int64_t at, int rows, const float *panel, int depth);
    /* unpack and madd in one call, for at most EK_DECODED_FEW rows and four whole panels. NULL: not available */
    void (*madd_few)(float *acc, const float *const *x, int rows, const ek_linear *w, int p0, int64_t k0, int depth);
} ek_decoded_ops;

/* The scalar definition, then the kernels that cpu (EK_CPU_* bits) allows. */
void ek_decoded_init(ek_decoded_ops *ops, unsigned cpu);
void ek_decoded_table_avx2(ek_decoded_ops *ops); /* x86-64: each overwrites the slots for which it has kernels */
void ek_decoded_table_avx512(ek_decoded_ops *ops);

/* Writes the panel of inputs [k0, k0 + depth), depth <= EK_DECODED_DEPTH; missing outputs are zeros. */
typedef void ek_decoded_fill(const void *source, int64_t k0, int depth, float *panel);

/* The weights of a tile: a function, or four whole panels of a packed matrix. */
typedef struct ek_decoded_source {
    ek_decoded_fill *fill;
    const void *source; /* for fill */
    /* NULL, or a matrix whose panels from p0, all with 16 outputs, madd_few may read instead. */
    const ek_linear *packed;
    int p0;
} ek_decoded_source;

/* Size of scratch, in floats, for a tile of `rows` rows and k inputs. */
size_t ek_decoded_scratch(int rows, int64_t k);
/* The sums of a tile over k inputs, [rows][EK_DECODED_COLS], in scratch; zeros for k = 0. x: its rows, 4-byte
 * aligned. Cannot fail. */
const float *ek_decoded_tile(const ek_decoded_ops *ops, const float *const *x, int rows, int64_t k,
                             const ek_decoded_source *from, float *scratch);

#endif
