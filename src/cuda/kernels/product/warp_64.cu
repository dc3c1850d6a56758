// Products of Form Q for few rows in groups of 64 of one matrix, of experts, and of two matrices with their gate
// (warp.cuh).
#include "cuda/kernels/product/warp.cuh"

using namespace ek;

#define KERNEL(NAME, ARGS) extern "C" __global__ void __launch_bounds__(512, 1) NAME(const __grid_constant__ ARGS a)
#define ONE(BITS, LIMBS, OCT)                                                \
    KERNEL(ek_product_warp_q##BITS##_l##LIMBS##_o##OCT, ek_cuda_linear_args) \
    {                                                                        \
        warps_of<affine_64<BITS>, LIMBS, OCT * 8 / LIMBS>(a);                \
    }
#define SEVERAL(BITS, LIMBS)                                                                  \
    KERNEL(ek_products_warp_q##BITS##_l##LIMBS##_o1, ek_cuda_warp_args)                       \
    {                                                                                         \
        warps<affine_64<BITS>, LIMBS, 8 / LIMBS, true>(a, blockIdx.x, gridDim.x, blockIdx.y); \
    }
ONE(4, 1, 1)
ONE(4, 2, 1)
ONE(4, 2, 2)
ONE(8, 1, 1)
ONE(8, 2, 1)
SEVERAL(4, 1)
SEVERAL(4, 2)
SEVERAL(8, 1)
SEVERAL(8, 2)

// By chunks of 512 inputs.
KERNEL(ek_product_warp_q4_l1_r4, ek_cuda_linear_args)
{
    warps_of<affine_64<4, 8>, 1, 4>(a);
}

KERNEL(ek_product_warp_q4_l2_r4, ek_cuda_linear_args)
{
    warps_of<affine_64<4, 8>, 2, 4>(a);
}

KERNEL(ek_product_warp_q4_l1_r8, ek_cuda_linear_args)
{
    warps_of<affine_64<4, 8>, 1, 8, true>(a);
}

KERNEL(ek_products_warp_q4_l1_r4, ek_cuda_warp_args)
{
    warps<affine_64<4, 8>, 1, 4, false, false, 8>(a, blockIdx.x, gridDim.x, blockIdx.y);
}

KERNEL(ek_products_warp_q4_l1_j4, ek_cuda_warp_args)
{
    warps<affine_64<4, 8>, 1, 4, true, true>(a, blockIdx.x, gridDim.x, blockIdx.y);
}

#if EK_HAS_CLUSTERS
// A group is shared by the blocks of a cluster, if whole groups would not divide evenly among multiprocessors.
extern "C" __global__ void __launch_bounds__(256, 2)
    ek_products_warp_q4_l1_s4(const __grid_constant__ ek_cuda_warp_args a)
{
    warps<affine_64<4, 8>, 1, 4, false, true, 2, true>(a, blockIdx.x, gridDim.x, blockIdx.y);
}

// The same for one matrix and u, if there are fewer groups than multiprocessors.
KERNEL(ek_products_warp_q4_l2_s4, ek_cuda_warp_args)
{
    warps<affine_64<4>, 2, 4, false, true, 1, true>(a, blockIdx.x, gridDim.x, blockIdx.y);
}
#endif

#define HEADS(NAME, UNITS, Q_ROWS, ROWS)                                                   \
    extern "C" __global__ void __launch_bounds__(256, 2)                                   \
        ek_product_warp_heads_q4_##NAME(const __grid_constant__ ek_cuda_warp_heads_args h) \
    {                                                                                      \
        warp_heads<affine_64<4, UNITS>, 1, Q_ROWS, ROWS>(h);                               \
    }
HEADS(o1, 4, 8, 4)
HEADS(o2, 4, 8, 8)
HEADS(r4, 8, 4, 4)
