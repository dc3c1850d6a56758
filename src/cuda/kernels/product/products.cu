// Products of Form Q for few rows of two matrices in a launch, and of experts (cuda/model_args.h).
#include "cuda/kernels/product/product_few.cuh"
#include "cuda/model_args.h"

using namespace ek;

template <int BITS, int LIMBS, int A, int OCT> __device__ __forceinline__ void several(const ek_cuda_products_args &p)
{
    ek_cuda_linear_args a = p.a;
    int row0 = blockIdx.y * (OCT * 8 / LIMBS);
    if (blockIdx.z) a.codes = p.codes2, a.scales = p.scales2, a.y = p.y2;
    if (!p.jobs) {
        few<BITS, LIMBS, A, OCT>(a, row0, [&](int r) { return (const uint8_t *)a.x.q + r * a.x.ldq; });
        return;
    }
    let_next_start();
    wait_for_previous();
    if (blockIdx.y >= *(const u32 *)p.n_jobs) return;
    const ek_cuda_job job = ((const ek_cuda_job *)p.jobs)[blockIdx.y];
    a.codes += job.expert * p.expert_bytes, a.scales += job.expert * p.expert_bytes;
    a.y += (u64)job.first * a.ldy * 4;
    a.rows = job.n;
    const int32_t *index = (const int32_t *)p.index;
    few<BITS, LIMBS, A, OCT>(a, 0, [&](int r) {
        r += job.first;
        return (const uint8_t *)a.x.q + (index ? index[r] : r) * a.x.ldq;
    });
}

#define SEVERAL(BITS, LIMBS, A, OCT)                                                                    \
    extern "C" __global__ void __launch_bounds__(512, 1)                                                \
        ek_products_q##BITS##_l##LIMBS##_a##A##_o##OCT(const __grid_constant__ ek_cuda_products_args p) \
    {                                                                                                   \
        several<BITS, LIMBS, A, OCT>(p);                                                                \
    }
#define SEVERAL_OF(BITS, A) \
    SEVERAL(BITS, 1, A, 1) SEVERAL(BITS, 1, A, 2) SEVERAL(BITS, 2, A, 1) SEVERAL(BITS, 2, A, 2) SEVERAL(BITS, 2, A, 4)
SEVERAL_OF(4, 64)
SEVERAL_OF(8, 64)
SEVERAL_OF(4, 32)
SEVERAL_OF(8, 32)
SEVERAL_OF(8, 16)
