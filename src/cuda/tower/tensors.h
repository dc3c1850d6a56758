/* The launch of attention over tensors (kernels/attn/attn_tensors.cu), for towers of images. */
#ifndef EK_CUDA_TOWER_TENSORS_H
#define EK_CUDA_TOWER_TENSORS_H

#include "cuda/product/launch.h"

enum { EK_CUDA_TENSORS_MAX_DIM = 128 };

/* name, grid, stack and levels; dim up to EK_CUDA_TENSORS_MAX_DIM. */
ek_cuda_product ek_cuda_tensors_plan(int heads, int rows, int keys, int dim, const ek_cuda_chip *chip);

/* The same in integers, where each row sees all rows; and the launch of ek_tensors_codes, which writes its codes: grid
 * and bytes. */
ek_cuda_product ek_cuda_tensors_int_plan(int heads, int rows, int dim, const ek_cuda_chip *chip);
ek_cuda_grid ek_cuda_tensors_codes_grid(int heads, int kv_heads, int rows);
size_t ek_cuda_tensors_codes_bytes(int heads, int kv_heads, int rows, int dim);

#endif
