/* The family `warp` for groups of 64 with bf16 scales and biases; what product/warp.h says, of these alone. */
#ifndef EK_CUDA_PRODUCT_WARP_64_H
#define EK_CUDA_PRODUCT_WARP_64_H

#include "cuda/product/layout.h"
#include "cuda/product/launch.h"

ek_cuda_product ek_cuda_warp_64_plan(const ek_cuda_linear *l, int rows, int jobs, ek_cuda_gate gate,
                                     const ek_cuda_chip *chip);
double ek_cuda_warp_64_us(const ek_cuda_linear *l, int rows, const ek_cuda_chip *chip);
double ek_cuda_warp_64_gate_us(const ek_cuda_linear *l, int rows, const ek_cuda_chip *chip);
bool ek_cuda_warp_64_heads_plan(ek_cuda_heads *out, const ek_cuda_linear *q, const ek_cuda_linear *k,
                                const ek_cuda_linear *v, int rows, const ek_cuda_chip *chip);
bool ek_cuda_warp_64_first_plan(ek_cuda_heads *out, const ek_cuda_linear *gate, const ek_cuda_linear *down,
                                const ek_cuda_linear *router, int rows, const ek_cuda_chip *chip);
bool ek_cuda_warp_64_second_plan(ek_cuda_heads *out, const ek_cuda_linear *gate, const ek_cuda_linear *down,
                                 const ek_cuda_linear *expert_down, int rows, int tile, int jobs,
                                 const ek_cuda_chip *chip);

#endif
