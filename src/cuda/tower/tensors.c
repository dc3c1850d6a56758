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

ek_cuda_product ek_cuda_tensors_int_plan(int heads, int rows, int dim, const ek_cuda_chip *chip)
{
    const int steps = EK_CUDA_TENSORS_INT_STEPS(dim), tiles = heads * ek_cuda_over(rows, EK_CUDA_TENSORS_TILE),
              max = chip->multiprocessors * (steps == 4 ? 1 : 2), segments = ek_cuda_over(rows, SEGMENT);
    ek_cuda_product p = {.grid = {.x = (unsigned)(tiles < max ? tiles : max),
                                  .threads = 256,
                                  .shared = (size_t)(EK_CUDA_TENSORS_INT_K(dim) + EK_CUDA_TENSORS_INT_V(dim)),
                                  .overlap = true}};
    while (segments >> p.levels) p.levels++;
    p.stack = p.grid.x * (size_t)p.levels * (size_t)EK_CUDA_TENSORS_INT_NODE(dim);
    snprintf(p.name, sizeof p.name, "ek_attn_tensors_int_%d", steps * 32);
    return p;
}

ek_cuda_grid ek_cuda_tensors_codes_grid(int heads, int kv_heads, int rows)
{
    return (ek_cuda_grid){.x = (unsigned)(ek_cuda_over(rows, SEGMENT) * SEGMENT / 8),
                          .y = (unsigned)(heads + 2 * kv_heads),
                          .threads = 256,
                          .overlap = true};
}

size_t ek_cuda_tensors_codes_bytes(int heads, int kv_heads, int rows, int dim)
{
    const int q = SEGMENT * (EK_CUDA_TENSORS_INT_STEPS(dim) * 64 + 4), /* of a segment */
        kv = EK_CUDA_TENSORS_INT_K(dim) + EK_CUDA_TENSORS_INT_V(dim);
    return (size_t)ek_cuda_over(rows, SEGMENT) * ((size_t)kv_heads * (size_t)kv + (size_t)heads * (size_t)q);
}
