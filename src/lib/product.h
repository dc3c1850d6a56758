/* Products of rows with matrices: the right operand (dense, quantised or packed) and its values as panels; the
 * assignment of rows to matrices, and the tiles. */
#ifndef EK_LIB_PRODUCT_H
#define EK_LIB_PRODUCT_H

#include "lib/lib.h"

/* A quantised tensor [..., R, C], checked. codes has rows of bytes. */
typedef struct lib_quant {
    ek_quant_mode mode;
    int bits, group;
    int64_t rows, cols;             /* R, C */
    lib_view codes, scales, biases; /* biases.data NULL for fp modes */
    float global;                   /* factor of all values; 1 without a global scale */
} lib_quant;

/* Checks v (mode, types, shapes) and writes it to q. EINVAL; `what` names the tensor in messages: "w". */
ek_err lib_quant_check(lib_quant *q, const ek_qview *v, const char *what);
/* Copies rows of codes that are not contiguous into working memory. ENOMEM. */
ek_err lib_quant_settle(lib_call *c, lib_quant *q);

/* One matrix: element (n, k) is output n, input k. */
typedef struct lib_matrix {
    int64_t n, k;
    enum { LIB_DENSE, LIB_QUANTISED, LIB_PACKED } kind;
    /* LIB_DENSE */
    const uint8_t *data;
    ek_type type;
    int64_t n_stride, k_stride; /* bytes */
    /* LIB_QUANTISED: rows run along inputs if transposed, along outputs if not */
    bool transposed;
    ek_quant_mode mode;
    int bits, group;
    const uint8_t *codes, *scales, *biases;
    int64_t code_row, scale_row, scale_step, bias_row, bias_step; /* bytes */
    float global;
    /* LIB_PACKED */
    const ek_linear *packed;
} lib_matrix;

/* The first matrix of q's batch: its last two dims. */
lib_matrix lib_matrix_of(const lib_quant *q, bool transposed);
/* Decodes n values of a quantised row from column c on, a multiple of 8, to f32. */
void lib_decode(const lib_kernels *k, const lib_matrix *m, int64_t row, int64_t c, int64_t n, float *to);

/* Fills panel[k * EK_DECODED_COLS + n]: outputs [n0, n0 + EK_DECODED_COLS) (zeros past m->n) by inputs [k0, k0 +
 * depth), depth <= EK_DECODED_DEPTH. temp has EK_PANEL * EK_DECODED_DEPTH floats. */
void lib_fill(const lib_kernels *k, const lib_matrix *m, int64_t n0, int64_t k0, int depth, float *panel, float *temp);

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
