/* Products of many rows by wgmma (kernels/product/wide_product.cuh): of a matrix, of one or two matrices of experts in
 * at most `jobs` jobs of up to `rows` rows (jobs above 0), with a gate, or of q, k and v. Their rows are written in
 * wgmma's order first. */
#ifndef EK_CUDA_PRODUCT_WIDE_H
#define EK_CUDA_PRODUCT_WIDE_H

#include "cuda/product/layout.h"
#include "cuda/product/launch.h"

bool ek_cuda_wide_fits(const ek_cuda_linear *l, const ek_cuda_chip *chip);
/* split, parts: not decided. */
ek_cuda_product ek_cuda_wide_plan(const ek_cuda_linear *l, int rows, int jobs, int matrices, const ek_cuda_chip *chip);
/* Of a matrix, in as many parts as take the shortest time, *us. */
ek_cuda_product ek_cuda_wide_plan_parts(const ek_cuda_linear *l, int rows, const ek_cuda_chip *chip, size_t room,
                                        double *us);
/* In parts of that many units, 0: whole. */
double ek_cuda_wide_us(const ek_cuda_linear *l, int rows, int units, const ek_cuda_chip *chip);

/* With the gate of a second matrix alike, as the operand of `next`. False: no kernel does it. */
bool ek_cuda_wide_gate_plan(ek_cuda_product *out, const ek_cuda_linear *l, const ek_cuda_linear *next, int rows,
                            int jobs, const ek_cuda_chip *chip);
/* q with one limb, k and v with two, all of 4 bits with scales alike, in one launch that deals all their tiles to its
 * blocks; q or v may be NULL. q.grid is the launch, q.name the kernel, q.stack for all. False: no kernel does it. */
bool ek_cuda_wide_heads_plan(ek_cuda_heads *out, const ek_cuda_linear *q, const ek_cuda_linear *k,
                             const ek_cuda_linear *v, int rows, const ek_cuda_chip *chip);

/* Bytes of its operand, 0 where it does not take l; the kernel that writes it. */
size_t ek_cuda_wide_operand(const ek_cuda_linear *l, int rows, int jobs, const ek_cuda_chip *chip);
const char *ek_cuda_arrange_name(const ek_cuda_linear *l);

#endif
