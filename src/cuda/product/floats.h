/* Products of Form F: for few rows by warps (kernels/product/product_f.cuh), for many by tiles of 64 rows and 128
 * outputs (kernels/product/product_many.cu). */
#ifndef EK_CUDA_PRODUCT_FLOATS_H
#define EK_CUDA_PRODUCT_FLOATS_H

#include "cuda/product/layout.h"
#include "cuda/product/launch.h"

/* Both in as many parts as take the shortest time, which *us becomes; room: bytes of scratch memory for them. */
ek_cuda_product ek_cuda_floats_plan_few(const ek_cuda_linear *l, int rows, const ek_cuda_chip *chip, size_t room,
                                        double *us);
ek_cuda_product ek_cuda_floats_plan_tiles(const ek_cuda_linear *l, int rows, const ek_cuda_chip *chip, size_t room,
                                          double *us);
/* Without parts. */
double ek_cuda_floats_few_us(const ek_cuda_linear *l, int rows, const ek_cuda_chip *chip);
/* In parts of that many units of 64 inputs, 0: whole. */
double ek_cuda_floats_tiles_us(const ek_cuda_linear *l, int rows, int units, const ek_cuda_chip *chip);
/* Nodes of T that a block of the second keeps, of a matrix of k inputs. */
int ek_cuda_floats_levels(int k);
/* Of `matrices` alike in a launch, or of experts in `jobs` jobs of up to 8 rows (0: none). */
ek_cuda_product ek_cuda_floats_plan_many(const ek_cuda_linear *l, int rows, int jobs, int matrices,
                                         const ek_cuda_chip *chip);

#endif
