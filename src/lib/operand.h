/* The right operand of a product (dense, quantised or packed) and its values as panels. */
#ifndef EK_LIB_OPERAND_H
#define EK_LIB_OPERAND_H

#include "lib/view.h"

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

#endif
