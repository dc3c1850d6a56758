/* The end of a layer with per-layer inputs in one launch (kernels/rows/layer_end.cu): its conditions and its launch. */
#ifndef EK_CUDA_LAYER_END_H
#define EK_CUDA_LAYER_END_H

#include "cuda/product/launch.h"
#include "cuda/product/layout.h"

/* Plans `rows` rows of both matrices, whose result `next` reads: the kernel's name and grid, and all of args except the
 * addresses of weights. False: no kernel does it, or other kernels are faster. The launch's blocks are clusters. */
bool ek_cuda_layer_end_plan(ek_cuda_product *out, ek_cuda_layer_end_args *args, const ek_cuda_linear *gate,
                            const ek_cuda_linear *proj, const ek_cuda_linear *next, int rows, const ek_cuda_chip *chip);

#endif
