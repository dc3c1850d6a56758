// Products of Form Q for few rows of one matrix in groups of 32 or 16 (product_plane.cuh).
#include "cuda/kernels/product/product_plane.cuh"

using namespace ek;

#define ONE(NAME, BITS, A, SCALES, LIMBS, ROWS, JOBS)                                                    \
    extern "C" __global__ void __launch_bounds__(512, 1)                                                 \
        ek_product_plane_##NAME##_l##LIMBS##_r##ROWS(const __grid_constant__ ek_cuda_linear_args a)      \
    {                                                                                                    \
        ek_cuda_leaf_args p = {};                                                                        \
        p.a = a;                                                                                         \
        planes<plane_format<BITS, A, SCALES>, LIMBS, ROWS, false>(p, blockIdx.x, gridDim.x, blockIdx.y); \
    }
EK_PLANE_KERNELS(ONE)
