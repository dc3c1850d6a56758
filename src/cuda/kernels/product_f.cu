// Products of Form F (contract: ops/linear.h): weights in the CPU's panels, a chain of 256 fma per leaf. A block
// computes a panel of 16 outputs for one row or 8; half a warp is a leaf, a lane one output of it.
#include <cuda_fp16.h>

#include "cuda/kernels/product.cuh"
#include "cuda/model_args.h"

using namespace ek;

constexpr int BLOCK = 256;

enum { FLOAT, HALF, BRAIN }; // EK_W_F32, EK_W_F16, EK_W_BF16

template <int F> __device__ __forceinline__ float weight(const void *panel, int64_t i)
{
    if (F == FLOAT) return ((const float *)panel)[i];
    unsigned short h = ((const unsigned short *)panel)[i];
    return F == HALF ? __half2float(__ushort_as_half(h)) : bits((u32)h << 16);
}

// Rows [row0, row0 + ROWS) up to a.rows; record(r) is where row r of x lies.
template <int F, int ROWS, class R> __device__ __forceinline__ void product(const ek_cuda_linear_args &a, int row0, R record)
{
    EK_DYNAMIC_SHARED(float, leaf); // [leaf][row][16]
    const int tid = threadIdx.x, o = tid % 16, k = a.x.k, leaves = (k + BLOCK - 1) / BLOCK;
    const int64_t panel_bytes = ((int64_t)k * 16 * (F == FLOAT ? 4 : 2) + 63) / 64 * 64;
    const uint8_t *panel = (const uint8_t *)a.codes + blockIdx.x * panel_bytes;
    const float *x[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; r++) x[r] = record(min(row0 + r, a.rows - 1));
    let_next_start();
    wait_for_previous(); // again where the caller has waited, which costs nothing
    // 16 inputs at a time: lane o has their weights for output o, and the rows' element o, which all need
    for (int l0 = 0; l0 < leaves; l0 += blockDim.x / 16) {
        const int l = l0 + tid / 16, end = l < leaves ? min(k, (l + 1) * BLOCK) : 0;
        float sum[ROWS] = {}, w[16], v[ROWS], next_w[16], next_v[ROWS];
        auto load = [&](int i) { // never under a condition, which would wait for each; past the end unused
#pragma unroll
            for (int j = 0; j < 16; j++) next_w[j] = weight<F>(panel, (int64_t)min(i + j, k - 1) * 16 + o);
#pragma unroll
            for (int r = 0; r < ROWS; r++) next_v[r] = x[r][min(i + o, k - 1)];
        };
        load(l * BLOCK);
#pragma unroll 1
        for (int i = l * BLOCK; __any_sync(~0u, i < end); i += 16) {
#pragma unroll
            for (int j = 0; j < 16; j++) w[j] = next_w[j];
#pragma unroll
            for (int r = 0; r < ROWS; r++) v[r] = next_v[r];
            load(i + 16 < (l + 1) * BLOCK ? i + 16 : k);
#pragma unroll
            for (int j = 0; j < 16; j++)
#pragma unroll
                for (int r = 0; r < ROWS; r++) {
                    float xj = __shfl_sync(~0u, v[r], j, 16);
                    if (i + j < end) sum[r] = fma_(xj, w[j], sum[r]);
                }
            if (i + 16 >= (l + 1) * BLOCK) break; // for both halves of the warp at once
        }
        if (l < leaves)
#pragma unroll
            for (int r = 0; r < ROWS; r++) leaf[(l * ROWS + r) * 16 + o] = sum[r];
    }
    __syncthreads();
    if (tid >= ROWS * 16) return;
    const int r = row0 + tid / 16, out = blockIdx.x * 16 + o;
    if (r < a.rows && out < a.n) ((float *)a.y)[r * a.ldy + out] = tree_sum([&](int i) { return leaf[i * ROWS * 16 + tid]; }, leaves);
}

#define PRODUCT(NAME, F, ROWS)                                                                                        \
    extern "C" __global__ void __launch_bounds__(256)                                                                 \
        ek_product_##NAME##_r##ROWS(const __grid_constant__ ek_cuda_linear_args a)                                    \
    {                                                                                                                 \
        product<F, ROWS>(a, blockIdx.y * ROWS, [&](int r) { return (const float *)a.f + r * a.ldf; });                                                                                          \
    }
PRODUCT(f32, FLOAT, 1)
PRODUCT(f16, HALF, 1)
PRODUCT(bf16, BRAIN, 1)
PRODUCT(f32, FLOAT, 8)
PRODUCT(f16, HALF, 8)
PRODUCT(bf16, BRAIN, 8)

// Two matrices in a launch, and experts (cuda/model_args.h).
#define PRODUCTS(NAME, F)                                                                                             \
    extern "C" __global__ void __launch_bounds__(256)                                                                 \
        ek_products_##NAME##_r8(const __grid_constant__ ek_cuda_products_args p)                                      \
    {                                                                                                                 \
        several<F>(p);                                                                                                \
    }

template <int F> __device__ __forceinline__ void several(const ek_cuda_products_args &p)
{
    ek_cuda_linear_args a = p.a;
    if (blockIdx.z) a.codes = p.codes2, a.y = p.y2;
    if (!p.jobs) {
        product<F, 8>(a, blockIdx.y * 8, [&](int r) { return (const float *)a.f + r * a.ldf; });
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
    product<F, 8>(a, 0, [&](int r) {
        r += job.first;
        return (const float *)a.f + (index ? index[r] : r) * a.ldf;
    });
}
PRODUCTS(f32, FLOAT)
PRODUCTS(f16, HALF)
PRODUCTS(bf16, BRAIN)
