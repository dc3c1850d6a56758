#include "cuda/tower/tensors.h"

#include <stdio.h>

#include "cuda/tower_args.h"

enum { SEGMENT = 256 };

ek_cuda_product ek_cuda_tensors_plan(int heads, int rows, int keys, int dim, const ek_cuda_chip *chip)
{
    const size_t cols = dim <= 32 ? 32 : dim <= 64 ? 64 : dim <= 72 ? 72 : EK_CUDA_TENSORS_MAX_DIM;
    const int tiles = heads * ek_cuda_over(rows, EK_CUDA_TENSORS_TILE),
              max = chip->multiprocessors * (cols == EK_CUDA_TENSORS_MAX_DIM ? 1 : 2);
    ek_cuda_product p = {.levels = ek_cuda_nodes(ek_cuda_over(keys, SEGMENT)),
                         .grid = {.x = (unsigned)(tiles < max ? tiles : max),
                                  .threads = 128,
                                  .shared = EK_CUDA_TENSORS_SHARED(cols),
                                  .overlap = true}};
    p.stack = p.grid.x * (size_t)p.levels * EK_CUDA_TENSORS_NODE(cols);
    snprintf(p.name, sizeof p.name, "ek_attn_tensors_%zu", cols);
    return p;
}
