/* Products of rows with matrices: the assignment of rows to matrices, and the tiles. */
#ifndef EK_LIB_PRODUCT_H
#define EK_LIB_PRODUCT_H

#include "lib/operand.h"

/* One output matrix [M, N]: the beginnings of its operands. */
typedef struct lib_pair {
    int64_t x, y;                 /* byte offsets of row 0 */
    int64_t w;                    /* index of the matrix; pairs with equal indices share it */
    int64_t data, scales, biases; /* byte offsets into w's arrays; data is also codes */
} lib_pair;

typedef struct lib_product {
    lib_view x; /* rows readable as f32 (lib_rows_readable) */
    lib_view y;
    int64_t m, x_row, y_row, y_step; /* rows per pair; byte strides */
    lib_matrix w;
    int64_t n_pairs;
    lib_pair *pair; /* [n_pairs]; pairs of one matrix are adjacent */
} lib_product;

/* y = x w^T in the exact form (evenkeel_ops.h). */
ek_err lib_product_run(lib_call *c, const lib_kernels *k, const lib_product *p);
/* The same with activations in integers or in bf16: w is affine, transposed and not packed. */
ek_err lib_product_run_packing(lib_call *c, const lib_kernels *k, const lib_product *p, ek_precision precision);

/* Computes pairs [first, first + n_pairs) with the packed w, by the engine's kernels or those of ops/linear/linear_b.h.
 * precision is used only for Form Q, where it is not EK_EXACT. */
ek_err lib_linear_run(lib_call *c, const lib_kernels *k, const ek_linear *w, const lib_product *p, int64_t first,
                      int64_t n_pairs, ek_precision precision);

/* Packs an affine, transposed matrix into w, which ek_linear_plan has laid out for it. */
ek_err lib_pack_affine(lib_call *c, ek_linear *w, const lib_matrix *m);

/* The right operand of a product with all its matrices: batch is its leading dims (of codes, for
 * a quantised one), w the first matrix. shape is for messages. */
typedef struct lib_operand {
    lib_matrix w;
    int n_batch;
    lib_view parts[3]; /* data or codes, scales, biases; unused ones have no dims */
    char shape[LIB_SHAPE_TEXT];
} lib_operand;

ek_err lib_operand_dense(lib_operand *o, const ek_view *w, bool transpose);
ek_err lib_operand_quantised(lib_call *c, lib_operand *o, const ek_qview *w, bool transpose);

ek_err lib_packed_matmul(lib_call *c, const ek_view *y, const ek_view *x, const ek_linear *w, ek_precision precision);

#endif
