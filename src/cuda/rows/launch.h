/* Launches of row kernels: their names, conditions and grids. */
#ifndef EK_CUDA_ROWS_LAUNCH_H
#define EK_CUDA_ROWS_LAUNCH_H

#include "cuda/product/launch.h"
#include "cuda/product/layout.h"

/* --- the work between two linear layers (ek_stage, cuda/model_args.h) */

/* elements of a row (vulkan/kernels.def) */
enum { EK_CUDA_STAGE_SHORT = 2048, EK_CUDA_STAGE_MID = 4096, EK_CUDA_STAGE_LONG = 5632 };

/* The name of the kernel for rows of n elements. */
static inline const char *ek_cuda_stage_name(int n, const ek_cuda_chip *chip)
{
    if (!chip->plain || n > EK_CUDA_STAGE_LONG) return "ek_stage";
    return n <= EK_CUDA_STAGE_SHORT ? "ek_stage_short" : n <= EK_CUDA_STAGE_MID ? "ek_stage_mid" : "ek_stage_long";
}

/* --- the end of a layer with per-layer inputs in one launch (kernels/rows/layer_end.cu) */

/* Plans `rows` rows of both matrices, whose result `next` reads: the kernel's name and grid, and all of args except the
 * addresses of weights. False: no kernel does it, or other kernels are faster. The launch's blocks are clusters. */
bool ek_cuda_layer_end_plan(ek_cuda_product *out, ek_cuda_layer_end_args *args, const ek_cuda_linear *gate,
                            const ek_cuda_linear *proj, const ek_cuda_linear *next, int rows, const ek_cuda_chip *chip);

#endif
