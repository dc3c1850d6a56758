/* Mixture of experts: the dense MLP and the experts of a layer. */
#ifndef EK_GPU_RECIPE_EXPERTS_H
#define EK_GPU_RECIPE_EXPERTS_H

#include "cuda/model_args.h"
#include "gpu/recipe/recipe.h"

/* Both of layer i for n rows, from o's output in x->y: the MLP's to x->y, the experts' to x->pair_out, row_pair and
 * weight, which `end`, the arguments of the layer's end, then names. One beside the other where they read rows alike.
 */
void ek_gpu_write_moe(ek_gpu_writer *w, int i, int n, ek_cuda_stage_args *end);

#endif
