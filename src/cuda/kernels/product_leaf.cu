// Products of Form Q for few rows of one matrix, of experts, and of two matrices with their gate (product_leaf.cuh).
#include "cuda/kernels/product_leaf.cuh"

using namespace ek;

#define ONE(BITS, LIMBS, OCT)                                                                                         \
    extern "C" __global__ void __launch_bounds__(512, 1)                                                              \
        ek_product_leaf_q##BITS##_l##LIMBS##_o##OCT(const __grid_constant__ ek_cuda_linear_args a)                    \
    {                                                                                                                 \
        ek_cuda_leaf_args p = {};                                                                                     \
        p.a = a;                                                                                                      \
        leaves<BITS, LIMBS, OCT>(p);                                                                                  \
    }
#define SEVERAL(BITS, LIMBS)                                                                                          \
    extern "C" __global__ void __launch_bounds__(512, 1)                                                              \
        ek_products_leaf_q##BITS##_l##LIMBS##_o1(const __grid_constant__ ek_cuda_leaf_args p)                         \
    {                                                                                                                 \
        leaves<BITS, LIMBS, 1>(p);                                                                                    \
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
