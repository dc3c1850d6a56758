// Products of Form Q for few rows of one matrix, of experts, and of two matrices with their gate (product_leaf.cuh).
#include "cuda/kernels/product/product_leaf.cuh"

using namespace ek;

#define ONE(BITS, LIMBS, OCT)                                                                      \
    extern "C" __global__ void __launch_bounds__(512, 1)                                           \
        ek_product_leaf_q##BITS##_l##LIMBS##_o##OCT(const __grid_constant__ ek_cuda_linear_args a) \
    {                                                                                              \
        ek_cuda_leaf_args p = {};                                                                  \
        p.a = a;                                                                                   \
        leaves<BITS, LIMBS, OCT>(p, blockIdx.x, gridDim.x, blockIdx.y);                            \
    }
#define FEW(LIMBS)                                                                      \
    extern "C" __global__ void __launch_bounds__(512, 1)                                \
        ek_product_leaf_q4_l##LIMBS##_r4(const __grid_constant__ ek_cuda_linear_args a) \
    {                                                                                   \
        ek_cuda_leaf_args p = {};                                                       \
        p.a = a;                                                                        \
        leaves<4, LIMBS, 1, false, 8>(p, blockIdx.x, gridDim.x, blockIdx.y);            \
    }
#define SEVERAL(BITS, LIMBS)                                                                  \
    extern "C" __global__ void __launch_bounds__(512, 1)                                      \
        ek_products_leaf_q##BITS##_l##LIMBS##_o1(const __grid_constant__ ek_cuda_leaf_args p) \
    {                                                                                         \
        leaves<BITS, LIMBS, 1>(p, blockIdx.x, gridDim.x, blockIdx.y);                         \
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
FEW(1)
FEW(2)

extern "C" __global__ void __launch_bounds__(512, 1)
    ek_product_leaf_q4_l1_r8(const __grid_constant__ ek_cuda_linear_args a)
{
    ek_cuda_leaf_args p = {};
    p.a = a;
    leaves<4, 1, 1, false, 8, 0, false, true>(p, blockIdx.x, gridDim.x, blockIdx.y);
}

extern "C" __global__ void __launch_bounds__(512, 1)
    ek_products_leaf_q4_l1_r4(const __grid_constant__ ek_cuda_leaf_args p)
{
    leaves<4, 1, 1, false, 8, 8>(p, blockIdx.x, gridDim.x, blockIdx.y);
}

// A group by the blocks of a cluster, where whole groups would not divide evenly among multiprocessors.
extern "C" __global__ void __launch_bounds__(256, 2)
    ek_products_leaf_q4_l1_s4(const __grid_constant__ ek_cuda_leaf_args p)
{
    leaves<4, 1, 1, true, 8, 2, false, false, true>(p, blockIdx.x, gridDim.x, blockIdx.y);
}

// The same of one matrix and u, where groups are fewer than multiprocessors.
extern "C" __global__ void __launch_bounds__(512, 1)
    ek_products_leaf_q4_l2_s4(const __grid_constant__ ek_cuda_leaf_args p)
{
    leaves<4, 2, 1, true, 4, 1, false, false, true>(p, blockIdx.x, gridDim.x, blockIdx.y);
}

extern "C" __global__ void __launch_bounds__(512, 1)
    ek_products_leaf_q4_l1_j4(const __grid_constant__ ek_cuda_leaf_args p)
{
    leaves<4, 1, 1, false, 8, 0, true>(p, blockIdx.x, gridDim.x, blockIdx.y);
}

// q with one limb, k and v with two.
template <int OCT, int UNITS = 4> __device__ __forceinline__ void heads(const ek_cuda_leaf_heads_args &h)
{
    ek_cuda_leaf_args p = {};
    int block = blockIdx.x - h.q_blocks;
    if (block < 0) {
        p.a = h.q;
        leaves<4, 1, 1, false, UNITS>(p, blockIdx.x, h.q_blocks, blockIdx.y);
        return;
    }
    p.a = h.k;
    if (block >= h.k_blocks) block -= h.k_blocks, p.a.codes = h.v_codes, p.a.scales = h.v_scales, p.a.y = h.v;
    leaves<4, 2, OCT, false, UNITS>(p, block, h.k_blocks, blockIdx.y);
}

extern "C" __global__ void __launch_bounds__(256, 2)
    ek_product_heads_q4_o1(const __grid_constant__ ek_cuda_leaf_heads_args h)
{
    heads<1>(h);
}

extern "C" __global__ void __launch_bounds__(256, 2)
    ek_product_heads_q4_o2(const __grid_constant__ ek_cuda_leaf_heads_args h)
{
    heads<2>(h);
}

extern "C" __global__ void __launch_bounds__(256, 2)
    ek_product_heads_q4_r4(const __grid_constant__ ek_cuda_leaf_heads_args h)
{
    heads<1, 8>(h);
}
