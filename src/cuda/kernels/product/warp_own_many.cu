// Products of Form Q for few rows in groups of 32 or 16: of two matrices of one shape, of experts, and of two matrices
// with their gate (warp.cuh, cuda/model_args.h).
#include "cuda/kernels/product/warp.cuh"

using namespace ek;

#define SEVERAL(NAME, BITS, A, SCALES, LIMBS, ROWS, JOBS)                                               \
    extern "C" __global__ void __launch_bounds__(512, 1)                                                \
        ek_products_warp_##NAME##_l##LIMBS##_r##ROWS(const __grid_constant__ ek_cuda_warp_args p)       \
    {                                                                                                   \
        warps<weight_format<BITS, A, SCALES>, LIMBS, ROWS, JOBS>(p, blockIdx.x, gridDim.x, blockIdx.y); \
    }
EK_WARP_OWN_KERNELS(SEVERAL)
