/* Which family of kernels computes a call: the only place that compares families. Each family (product/floats.h,
 * units.h, warp.h, tile.h, mid.h, wide.h) says what fits it, its launch, and how long that takes (cuda/times.h). No
 * bit depends on a choice. tests/cuda/choices.txt has what is chosen for the published models. */
#ifndef EK_CUDA_PRODUCT_CHOOSE_H
#define EK_CUDA_PRODUCT_CHOOSE_H

#include "cuda/product/layout.h"
#include "cuda/product/launch.h"

/* How to compute `rows` rows on a chip. room: bytes of scratch memory for parts; 0: no parts. */
ek_cuda_product ek_cuda_product_plan(const ek_cuda_linear *l, int rows, const ek_cuda_chip *chip, size_t room);

/* A product with its gate for that many rows, or jobs of experts, as the input of `next`: false where both matrices and
 * ek_gate would be faster, or no kernel does it. */
bool ek_cuda_gated_plan(ek_cuda_product *out, const ek_cuda_linear *l, int rows, int jobs, ek_cuda_gate gate,
                        const ek_cuda_linear *next, const ek_cuda_chip *chip);

/* q, k and v (v NULL: values are keys) for the same rows in one launch: false where the kernels do not fit or would not
 * win. */
bool ek_cuda_heads_plan(ek_cuda_heads *out, const ek_cuda_linear *q, const ek_cuda_linear *k, const ek_cuda_linear *v,
                        int rows, const ek_cuda_chip *chip);

/* The same for ek_products_* (cuda/model_args.h): `matrices` (1 or 2) in a launch, for `rows` rows, or for experts in
 * at most `jobs` jobs of up to `rows` rows (jobs 0: no experts). name is empty where rows are too many: compute the
 * matrices one by one. */
ek_cuda_product ek_cuda_products_plan(const ek_cuda_linear *l, int rows, int jobs, int matrices,
                                      const ek_cuda_chip *chip);
/* Two matrices alike by the kernels of ek_cuda_warp_args.y2: false where these do not fit or would not win. */
bool ek_cuda_pair_plan(ek_cuda_product *out, const ek_cuda_linear *l, int rows, const ek_cuda_chip *chip);

#endif
