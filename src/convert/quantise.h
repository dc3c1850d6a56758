/* Quantisers: blocks of float32 values to the bytes of a format. Deterministic C without contraction, the same on every
 * machine; a block depends on its own values only.
 *
 * Layouts: ggml, ggml-common.h. Decoding is that of ops/weights/weight_type.h, and every choice here is made by the
 * squared error of the decoded values, with scales as they are stored (rounded to half precision). */
#ifndef EK_CONVERT_QUANTISE_H
#define EK_CONVERT_QUANTISE_H

#include "convert/target.h"

ek_target_put_fn ek_put_q4_0, ek_put_q4_1, ek_put_q5_0, ek_put_q5_1, ek_put_q8_0, ek_put_iq4_nl, ek_put_mxfp4;
ek_target_put_fn ek_put_q2_k, ek_put_q3_k, ek_put_q4_k, ek_put_q5_k, ek_put_q6_k, ek_put_iq4_xs;

extern const float ek_iq4_table[16]; /* of IQ4_NL and IQ4_XS */

/* MLX affine by the rule of mx.quantize on a CPU (mlx, backend/cpu/quantized.cpp), bits 2, 3, 4, 5, 6 or 8: the edge of
 * larger magnitude is a code's value, then 0 is moved onto a code; scales and biases are rounded to BF16. */
void ek_put_affine(const float *x, int n, int bits, int group, uint8_t *codes, uint8_t *scales, uint8_t *biases);

#endif
