/* Products of Form Q by tiles of 128 outputs and 64 columns with mma.sync (kernels/product/product_tile.cu): many rows
 * of any format. */
#ifndef EK_CUDA_PRODUCT_TILE_H
#define EK_CUDA_PRODUCT_TILE_H

#include "cuda/product/layout.h"
#include "cuda/product/launch.h"

/* In one part, or with `us` in as many as take the shortest time, which it becomes; room: bytes for them. */
ek_cuda_product ek_cuda_tile_plan(const ek_cuda_linear *l, int rows, const ek_cuda_chip *chip, size_t room, double *us);
/* Of `matrices` alike for experts in `jobs` jobs of up to a tile of rows: 64, or 32 with two limbs. */
ek_cuda_product ek_cuda_tile_plan_jobs(const ek_cuda_linear *l, int jobs, int matrices, const ek_cuda_chip *chip);
/* In parts of that many units, 0: whole. */
double ek_cuda_tile_us(const ek_cuda_linear *l, int rows, int units, const ek_cuda_chip *chip);

#endif
