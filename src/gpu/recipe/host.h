/* Mixture of experts whose experts the host computes. */
#ifndef EK_GPU_RECIPE_HOST_H
#define EK_GPU_RECIPE_HOST_H

#include "cuda/model_args.h"
#include "gpu/recipe/recipe.h"

/* As ek_gpu_write_moe (gpu/recipe/experts.h); of a row's experts `end` names their sum, as the output of one. */
void ek_gpu_write_moe_with_host(ek_gpu_writer *w, int i, int n, ek_cuda_stage_args *end);

#endif
