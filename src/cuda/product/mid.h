/* Products of 9 to some hundred rows by wgmma in narrow tiles (kernels/product/product_mid.cuh), alone or with the gate
 * of a second matrix: 4 bits of what wgmma takes. Blocks have oct x 8 columns, 1, 2 or 4. */
#ifndef EK_CUDA_PRODUCT_MID_H
#define EK_CUDA_PRODUCT_MID_H

#include "cuda/product/layout.h"
#include "cuda/product/launch.h"

bool ek_cuda_mid_fits(const ek_cuda_linear *l);
/* By the columns and parts that take the shortest time, *us; room: bytes for parts, 0: none. */
ek_cuda_product ek_cuda_mid_plan(const ek_cuda_linear *l, int rows, ek_cuda_gate gate, const ek_cuda_chip *chip,
                                 size_t room, double *us);
/* By these; units: of a part. */
ek_cuda_product ek_cuda_mid_plan_at(const ek_cuda_linear *l, int rows, int oct, int units, ek_cuda_gate gate);

/* q of one limb, k and v of two in one launch: false where they are not alike enough. */
bool ek_cuda_mid_heads_plan(ek_cuda_heads *out, const ek_cuda_linear *q, const ek_cuda_linear *k,
                            const ek_cuda_linear *v, int rows, const ek_cuda_chip *chip, double *us);
/* v: whether values are not keys. */
ek_cuda_heads ek_cuda_mid_heads_plan_at(const ek_cuda_linear *q, const ek_cuda_linear *k, bool v, int rows, int oct);

#endif
