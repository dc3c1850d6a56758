// Products of Form Q for few rows in groups of 32 or 16 of one matrix, and q, k and v (warp.cuh).
#include "cuda/kernels/product/warp.cuh"

using namespace ek;

#define ONE(NAME, BITS, A, SCALES, LIMBS, ROWS, JOBS)                                              \
    extern "C" __global__ void __launch_bounds__(512, 1)                                           \
        ek_product_warp_##NAME##_l##LIMBS##_r##ROWS(const __grid_constant__ ek_cuda_linear_args a) \
    {                                                                                              \
        warps_of<weight_format<BITS, A, SCALES>, LIMBS, ROWS>(a);                                  \
    }
EK_WARP_OWN_KERNELS(ONE)

#define HEADS(NAME, BITS, Q, ROWS)                                                                \
    extern "C" __global__ void __launch_bounds__(256, 2)                                          \
        ek_product_warp_heads_##NAME##_r##ROWS(const __grid_constant__ ek_cuda_warp_heads_args h) \
    {                                                                                             \
        warp_heads<weight_format<BITS, 32, SCALES_F16>, Q, ROWS, ROWS>(h);                        \
    }
HEADS(q4h_32, 4, 1, 4)
HEADS(q4h_32, 4, 1, 8)
HEADS(q8h_32, 8, 2, 4)
HEADS(q8h_32, 8, 2, 8)
