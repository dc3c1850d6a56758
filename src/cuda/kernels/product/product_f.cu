// Products of Form F, of a matrix for one row or 8, of two, and of experts (product_f.cuh).
#include "cuda/kernels/product/product_f.cuh"

using namespace ek;

#define PRODUCT(NAME, F, ROWS)                                                                                     \
    extern "C" __global__ void __launch_bounds__(256)                                                              \
        ek_product_##NAME##_r##ROWS(const __grid_constant__ ek_cuda_linear_args a)                                 \
    {                                                                                                              \
        product<F, ROWS>(a, blockIdx.x, blockIdx.y * ROWS, [&](int r) { return (const float *)a.f + r * a.ldf; }); \
    }
PRODUCT(f32, FLOAT, 1)
PRODUCT(f16, HALF, 1)
PRODUCT(bf16, BRAIN, 1)
PRODUCT(f32, FLOAT, 8)
PRODUCT(f16, HALF, 8)
PRODUCT(bf16, BRAIN, 8)

// Two matrices in a launch, and experts (cuda/model_args.h).
#define PRODUCTS(NAME, F)                                                        \
    extern "C" __global__ void __launch_bounds__(256)                            \
        ek_products_##NAME##_r8(const __grid_constant__ ek_cuda_products_args p) \
    {                                                                            \
        several<F>(p);                                                           \
    }

template <int F> __device__ __forceinline__ void several(const ek_cuda_products_args &p)
{
    ek_cuda_linear_args a = p.a;
    if (blockIdx.z) a.codes = p.codes2, a.y = p.y2;
    if (!p.jobs) {
        product<F, 8>(a, blockIdx.x, blockIdx.y * 8, [&](int r) { return (const float *)a.f + r * a.ldf; });
        return;
    }
    let_next_start();
    wait_for_previous();
    if (blockIdx.y >= *(const u32 *)p.n_jobs) return;
    const ek_cuda_job job = ((const ek_cuda_job *)p.jobs)[blockIdx.y];
    a.codes += job.expert * p.expert_bytes;
    a.y += (u64)job.first * a.ldy * 4;
    a.rows = job.n;
    const int32_t *index = (const int32_t *)p.index;
    product<F, 8>(a, blockIdx.x, 0, [&](int r) {
        r += job.first;
        return (const float *)a.f + (index ? index[r] : r) * a.ldf;
    });
}
PRODUCTS(f32, FLOAT)
PRODUCTS(f16, HALF)
PRODUCTS(bf16, BRAIN)
