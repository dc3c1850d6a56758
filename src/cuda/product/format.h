/* What kernels of products are compiled for: the formats of weights, and what names of kernels say of them. */
#ifndef EK_CUDA_PRODUCT_FORMAT_H
#define EK_CUDA_PRODUCT_FORMAT_H

#include "cuda/product/layout.h"

/* MLX's: bf16 scales and biases, groups of 64 of weights and activations. */
bool ek_cuda_affine_64(const ek_cuda_linear *l);
/* f16 scales without biases, groups of 32, whole units: what of the next also wgmma takes. */
bool ek_cuda_half_32(const ek_cuda_linear *l);
/* Groups of 32 or 16 that activations have too, with the scales of their file, and inputs whose leaves, of two panels,
 * fit into a block's shared memory. Never both this and the first. */
bool ek_cuda_own_scales(const ek_cuda_linear *l);

/* Bits, scales and groups in a kernel's name: of MLX's q4 or q8, else bits, the scales' type (h f16, b bf16, f f32), m
 * with biases, and the group: q4h_32, q8fm_32, q8f_16. */
typedef struct ek_cuda_kind {
    char name[16];
} ek_cuda_kind;
ek_cuda_kind ek_cuda_kind_of(const ek_cuda_linear *l);

#endif
