// Products of Form Q for few rows in groups of 32 or 16 of two matrices alike, of experts, and of two matrices with
// their gate (product_plane.cuh, cuda/model_args.h).
#include "cuda/kernels/product/product_plane.cuh"

using namespace ek;

#define SEVERAL(NAME, BITS, A, SCALES, LIMBS, ROWS, JOBS)                                               \
    extern "C" __global__ void __launch_bounds__(512, 1)                                                \
        ek_products_plane_##NAME##_l##LIMBS##_r##ROWS(const __grid_constant__ ek_cuda_leaf_args p)      \
    {                                                                                                   \
        planes<plane_format<BITS, A, SCALES>, LIMBS, ROWS, JOBS>(p, blockIdx.x, gridDim.x, blockIdx.y); \
    }
EK_PLANE_KERNELS(SEVERAL)
