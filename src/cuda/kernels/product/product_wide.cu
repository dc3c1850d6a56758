// Products of Form Q for many rows by wgmma, and the rows as they read them (contract: ops/linear/linear.h).
#include "cuda/kernels/product/wide_kernels.cuh"

using namespace ek;

EK_WIDE(q4, 4, 1, 64)
EK_WIDE(q4, 4, 2, 64)
EK_WIDE(q8, 8, 1, 64)
EK_WIDE(q8, 8, 2, 64)

extern "C" __global__ void EK_WIDE_BOUNDS ek_products_q4_l1_wide_gate(const __grid_constant__ ek_cuda_products_args p)
{
    EK_DYNAMIC_SHARED(uint8_t, base);
    wide<4, 1, 64, true>{p.a, &p, base}.run(blockIdx.x);
}

// Of experts; alone, for the second loop costs 2 % where it is not used.
extern "C" __global__ void EK_WIDE_BOUNDS
ek_products_q4_l1_wide_gate_jobs(const __grid_constant__ ek_cuda_products_args p)
{
    EK_DYNAMIC_SHARED(uint8_t, base);
    wide<4, 1, 64, true, 0, JOB_SHORT>{p.a, &p, base}.run(blockIdx.x);
}

EK_WIDE_HEADS(q4, 4, 64)

EK_ARRANGE(, 1, 64)
EK_ARRANGE(, 2, 64)
