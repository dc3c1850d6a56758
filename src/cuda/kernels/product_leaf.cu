// Products of Form Q for few rows of one matrix, of experts, and of two matrices with their gate (product_leaf.cuh).
#include "cuda/kernels/product_leaf.cuh"

using namespace ek;

#define LEAF(BITS, LIMBS, OCT)                                                                                        \
    extern "C" __global__ void __launch_bounds__(OCT <= LIMBS ? 512 : 256, OCT <= LIMBS ? 1 : 2)                              \
        ek_product_leaf_q##BITS##_l##LIMBS##_o##OCT(const __grid_constant__ ek_cuda_linear_args a)                    \
    {                                                                                                                 \
        ek_cuda_leaf_args p = {};                                                                                     \
        p.a = a;                                                                                                      \
        leaves<BITS, LIMBS, OCT>(p);                                                                                  \
    }                                                                                                                 \
    extern "C" __global__ void __launch_bounds__(OCT <= LIMBS ? 512 : 256, OCT <= LIMBS ? 1 : 2)                              \
        ek_products_leaf_q##BITS##_l##LIMBS##_o##OCT(const __grid_constant__ ek_cuda_leaf_args p)                     \
    {                                                                                                                 \
        leaves<BITS, LIMBS, OCT>(p);                                                                                  \
    }
LEAF(4, 1, 1)
LEAF(4, 1, 2)
LEAF(4, 2, 1)
LEAF(4, 2, 2)
LEAF(8, 1, 1)
LEAF(8, 2, 1)
