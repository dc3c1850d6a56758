/* Few tiles with many inputs leave multiprocessors without work: parts of 2^n leaves, which are nodes of T, go to
 * blocks of their own if that is faster, their sum included. */
#ifndef EK_CUDA_PRODUCT_PARTS_H
#define EK_CUDA_PRODUCT_PARTS_H

#include "cuda/product/layout.h"
#include "cuda/product/launch.h"

/* Time of a family's product in parts of that many units. */
typedef double ek_cuda_part_us(const ek_cuda_linear *l, int rows, int units, const ek_cuda_chip *chip);

/* Cuts p, a product of so many tiles in one part, which takes *us, by at most `blocks` blocks of a multiprocessor.
 * room: bytes for the parts' rows. */
void ek_cuda_in_parts(ek_cuda_product *p, const ek_cuda_linear *l, int rows, const ek_cuda_chip *chip, size_t room,
                      int tiles, int blocks, ek_cuda_part_us *part_us, double *us);

#endif
