/* The family `warp` for groups of 32 and 16 with their file's own scales; what product/warp.h says, of these alone. */
#ifndef EK_CUDA_PRODUCT_WARP_OWN_H
#define EK_CUDA_PRODUCT_WARP_OWN_H

#include "cuda/product/layout.h"
#include "cuda/product/launch.h"

/* Rows of a job of experts, at most. */
int ek_cuda_warp_own_job_rows(const ek_cuda_linear *l, int rows);
/* matrices: alike, in a launch, without a gate (ek_cuda_warp_args.y2). */
ek_cuda_product ek_cuda_warp_own_plan(const ek_cuda_linear *l, int rows, int jobs, int matrices, ek_cuda_gate gate,
                                      const ek_cuda_chip *chip);
double ek_cuda_warp_own_us(const ek_cuda_linear *l, int rows, const ek_cuda_chip *chip);
bool ek_cuda_warp_own_heads_plan(ek_cuda_heads *out, const ek_cuda_linear *q, const ek_cuda_linear *k,
                                 const ek_cuda_linear *v, int rows, const ek_cuda_chip *chip);
/* The first with a router of floats. */
bool ek_cuda_warp_own_first_plan(ek_cuda_heads *out, const ek_cuda_linear *gate, const ek_cuda_linear *down,
                                 const ek_cuda_linear *router, int rows, const ek_cuda_chip *chip);
bool ek_cuda_warp_own_second_plan(ek_cuda_heads *out, const ek_cuda_linear *gate, const ek_cuda_linear *down,
                                  const ek_cuda_linear *expert_down, int rows, int tile, int jobs,
                                  const ek_cuda_chip *chip);

#endif
