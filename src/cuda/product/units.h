/* Products of Form Q whose warps take units of 64 inputs, whatever the format, and exchange their sums
 * (kernels/product/product_few.cuh): few rows of what the family `warp` does not take, and two matrices or experts in a
 * launch.
 */
#ifndef EK_CUDA_PRODUCT_UNITS_H
#define EK_CUDA_PRODUCT_UNITS_H

#include "cuda/product/layout.h"
#include "cuda/product/launch.h"

enum { EK_CUDA_UNITS_ROWS = 16 }; /* of a tile, at most */

/* matrices: alike, in a launch, 0: one, by the kernel of one. jobs: of experts, 0: none. */
ek_cuda_product ek_cuda_units_plan(const ek_cuda_linear *l, int rows, int jobs, int matrices, const ek_cuda_chip *chip);
/* Of a matrix: all weights are read for every 16 rows. */
double ek_cuda_units_us(const ek_cuda_linear *l, int rows, const ek_cuda_chip *chip);

#endif
