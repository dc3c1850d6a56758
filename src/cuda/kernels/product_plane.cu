// Products of Form Q for few rows with their file's own scales: of one matrix, of two alike, of experts, and of two
// matrices with their gate (product_plane.cuh).
#include "cuda/kernels/product_plane.cuh"

using namespace ek;

#define ONE(NAME, BITS, A, SCALES, LIMBS, ROWS)                                                                       \
    extern "C" __global__ void __launch_bounds__(512, 1)                                                              \
        ek_product_plane_##NAME##_l##LIMBS##_r##ROWS(const __grid_constant__ ek_cuda_linear_args a)                   \
    {                                                                                                                 \
        ek_cuda_leaf_args p = {};                                                                                     \
        p.a = a;                                                                                                      \
        planes<plane_format<BITS, A, SCALES>, LIMBS, ROWS>(p, blockIdx.x, gridDim.x);                                 \
    }                                                                                                                 \
    extern "C" __global__ void __launch_bounds__(512, 1)                                                              \
        ek_products_plane_##NAME##_l##LIMBS##_r##ROWS(const __grid_constant__ ek_cuda_leaf_args p)                    \
    {                                                                                                                 \
        planes<plane_format<BITS, A, SCALES>, LIMBS, ROWS>(p, blockIdx.x, gridDim.x);                                 \
    }
// Biased scales and groups of 16 with two limbs leave registers for 4 rows.
#define FOUR(NAME, BITS, A, SCALES) ONE(NAME, BITS, A, SCALES, 1, 4) ONE(NAME, BITS, A, SCALES, 2, 4)
FOUR(q4_32, 4, 32, PLANE_F16)
FOUR(q8_32, 8, 32, PLANE_F16)
FOUR(q4b_32, 4, 32, PLANE_F32_BIASED)
FOUR(q8_16, 8, 16, PLANE_F32)
ONE(q4_32, 4, 32, PLANE_F16, 1, 8)
ONE(q4_32, 4, 32, PLANE_F16, 2, 8)
ONE(q8_32, 8, 32, PLANE_F16, 1, 8)
ONE(q8_32, 8, 32, PLANE_F16, 2, 8)
ONE(q8_16, 8, 16, PLANE_F32, 1, 8)
