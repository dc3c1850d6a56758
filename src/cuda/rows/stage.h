/* The kernel for the work between two linear layers (ek_stage, cuda/model_args.h). */
#ifndef EK_CUDA_STAGE_H
#define EK_CUDA_STAGE_H

#include "cuda/chip.h"

enum { EK_CUDA_STAGE_SHORT = 2048, EK_CUDA_STAGE_MID = 4096 }; /* elements of a row (vulkan/kernels.def) */

/* The name of the kernel for rows of n elements. */
static inline const char *ek_cuda_stage_name(int n, const ek_cuda_chip *chip)
{
    if (!chip->plain || n > EK_CUDA_STAGE_MID) return "ek_stage";
    return n <= EK_CUDA_STAGE_SHORT ? "ek_stage_short" : "ek_stage_mid";
}

#endif
