/* Products of Form F (kernels/product/product_f.cuh): one kernel, for all rows. */
#ifndef EK_CUDA_PRODUCT_FLOATS_H
#define EK_CUDA_PRODUCT_FLOATS_H

#include "cuda/product/layout.h"
#include "cuda/product/launch.h"

ek_cuda_product ek_cuda_floats_plan(const ek_cuda_linear *l, int rows);
/* Of `matrices` alike in a launch, or of experts in `jobs` jobs of up to 8 rows (0: none). */
ek_cuda_product ek_cuda_floats_plan_many(const ek_cuda_linear *l, int rows, int jobs, int matrices);

#endif
