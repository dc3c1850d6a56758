/* Products on the device: all of cuda/product in one header, with the names that its callers have known. */
#ifndef EK_CUDA_LINEAR_H
#define EK_CUDA_LINEAR_H

#include "cuda/product/choose.h"
#include "cuda/product/format.h"
#include "cuda/product/mid.h"
#include "cuda/product/warp.h"
#include "cuda/product/wide.h"

#define ek_cuda_leaf_fits  ek_cuda_affine_64
#define ek_cuda_plane_fits ek_cuda_own_scales
#define ek_cuda_job_fits   ek_cuda_warp_job_fits
#define ek_cuda_few_plan   ek_cuda_warp_plan

static inline bool ek_cuda_plane_wins(const ek_cuda_linear *l, int rows, int multiprocessors)
{
    ek_cuda_product p;
    return ek_cuda_pair_plan(&p, l, rows, multiprocessors);
}

static inline ek_cuda_product ek_cuda_plane_pair(const ek_cuda_linear *l, int rows, int multiprocessors)
{
    ek_cuda_product p = {.name = ""};
    ek_cuda_pair_plan(&p, l, rows, multiprocessors);
    return p;
}

#endif
