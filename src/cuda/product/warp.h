/* Products of few rows with mma.sync, whose warps have chunks of inputs each and their weights on their way all the
 * time (kernels/product/warp.cuh): of a matrix, of experts (jobs above 0), or with a gate
 * (cuda/model_args.h). Fits: groups of 64 with bf16 scales and biases (warp_64.c), and groups of 32 and 16 with their
 * file's own scales (warp_own.c). */
#ifndef EK_CUDA_PRODUCT_WARP_H
#define EK_CUDA_PRODUCT_WARP_H

#include "cuda/product/layout.h"
#include "cuda/product/launch.h"

bool ek_cuda_warp_fits(const ek_cuda_linear *l);
/* Whether jobs of so many rows of experts fit. */
bool ek_cuda_warp_job_fits(const ek_cuda_linear *l, int rows);
/* Whether a gate's products can be the input of `next`. */
bool ek_cuda_warp_gate_fits(const ek_cuda_linear *l, const ek_cuda_linear *next);
ek_cuda_product ek_cuda_warp_plan(const ek_cuda_linear *l, int rows, int jobs, ek_cuda_gate gate,
                                  const ek_cuda_chip *chip);
/* Of two matrices alike (ek_cuda_warp_args.y2). False: no kernel does it. */
bool ek_cuda_warp_pair_plan(ek_cuda_product *out, const ek_cuda_linear *l, int rows, const ek_cuda_chip *chip);
double ek_cuda_warp_us(const ek_cuda_linear *l, int rows, const ek_cuda_chip *chip);
double ek_cuda_warp_gate_us(const ek_cuda_linear *l, int rows, const ek_cuda_chip *chip); /* of two matrices */

/* q, k and v (v NULL: values are keys) for the same rows in one launch. False: no kernel does it. */
bool ek_cuda_warp_heads_plan(ek_cuda_heads *out, const ek_cuda_linear *q, const ek_cuda_linear *k,
                             const ek_cuda_linear *v, int rows, const ek_cuda_chip *chip);
double ek_cuda_warp_heads_us(const ek_cuda_linear *q, const ek_cuda_linear *k, const ek_cuda_linear *v, int rows,
                             const ek_cuda_chip *chip);

/* The two launches of a layer with experts that hold blocks of the dense MLP too (cuda/model_args.h): q is of the gate
 * of the dense MLP, or of experts, whose q_blocks are then of a job; k of the router, whose k_blocks are of a tile of
 * rows, or of the dense MLP's down; their tiles are k_tiles. False: no kernel does it. */
bool ek_cuda_experts_first_plan(ek_cuda_heads *out, const ek_cuda_linear *gate, const ek_cuda_linear *down,
                                const ek_cuda_linear *router, int rows, const ek_cuda_chip *chip);
bool ek_cuda_experts_second_plan(ek_cuda_heads *out, const ek_cuda_linear *gate, const ek_cuda_linear *down,
                                 const ek_cuda_linear *expert_down, int rows, int tile, int jobs,
                                 const ek_cuda_chip *chip);

#endif
