// Products of Form F for few rows, of a matrix, of two, and of experts (product_f.cuh).
#include "cuda/kernels/product/product_f.cuh"

using namespace ek;

#define PRODUCT(NAME, F, ROWS)                                                     \
    extern "C" __global__ void __launch_bounds__(EK_CUDA_FEW_WARPS * 32)           \
        ek_product_##NAME##_r##ROWS(const __grid_constant__ ek_cuda_linear_args a) \
    {                                                                              \
        alone<F, ROWS>(a);                                                         \
    }

template <int F, int ROWS> __device__ __forceinline__ void alone(const ek_cuda_linear_args &a)
{
    const int tiles = (a.rows + ROWS - 1) / ROWS, step = a.split ? a.split * 64 : a.x.k;
    const int parts = (a.x.k + step - 1) / step, tile = blockIdx.x % tiles, rest = blockIdx.x / tiles;
    let_next_start();
    product<F, ROWS>(a, rest / parts * (EK_CUDA_FEW_OUTPUTS(ROWS) / 16), tile * ROWS, rest % parts,
                     [&](int r) { return (const float *)a.f + r * a.ldf; });
}

#define PRODUCT_ALL(ROWS)     \
    PRODUCT(f32, FLOAT, ROWS) \
    PRODUCT(f16, HALF, ROWS)  \
    PRODUCT(bf16, BRAIN, ROWS)
PRODUCT_ALL(1)
PRODUCT_ALL(2)
PRODUCT_ALL(4)
PRODUCT_ALL(8)

// Two matrices in a launch, and experts (cuda/model_args.h).
template <int F, int ROWS> __device__ __forceinline__ void several(const ek_cuda_products_args &p)
{
    ek_cuda_linear_args a = p.a;
    const int panel0 = blockIdx.x * (EK_CUDA_FEW_OUTPUTS(ROWS) / 16);
    if (blockIdx.z) a.codes = p.codes2, a.y = p.y2;
    let_next_start();
    if (!p.jobs) {
        product<F, ROWS>(a, panel0, blockIdx.y * ROWS, 0, [&](int r) { return (const float *)a.f + r * a.ldf; });
        return;
    }
    wait_for_previous();
    if (blockIdx.y >= *(const u32 *)p.n_jobs) return;
    const ek_cuda_job job = ((const ek_cuda_job *)p.jobs)[blockIdx.y];
    a.codes += job.expert * p.expert_bytes;
    a.y += (u64)job.first * a.ldy * 4;
    a.rows = job.n;
    const int32_t *index = (const int32_t *)p.index;
    product<F, ROWS>(a, panel0, 0, 0, [&](int r) {
        r += job.first;
        return (const float *)a.f + (index ? index[r] : r) * a.ldf;
    });
}

#define PRODUCTS(NAME, F, ROWS)                                                       \
    extern "C" __global__ void __launch_bounds__(EK_CUDA_FEW_WARPS * 32)              \
        ek_products_##NAME##_r##ROWS(const __grid_constant__ ek_cuda_products_args p) \
    {                                                                                 \
        several<F, ROWS>(p);                                                          \
    }
#define PRODUCTS_ALL(ROWS)     \
    PRODUCTS(f32, FLOAT, ROWS) \
    PRODUCTS(f16, HALF, ROWS)  \
    PRODUCTS(bf16, BRAIN, ROWS)
PRODUCTS_ALL(1)
PRODUCTS_ALL(4)
PRODUCTS_ALL(8)
