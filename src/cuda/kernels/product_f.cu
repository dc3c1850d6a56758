// Products of Form F (contract: ops/linear.h): weights in the CPU's panels, a chain of 256 fma a leaf. A block
// computes a panel of 16 outputs for up to 8 rows; half a warp is a leaf, a lane one output of it.
#include <cuda_fp16.h>

#include "cuda/kernels/product.cuh"

using namespace ek;

constexpr int BLOCK = 256, ROWS = 8;

enum { FLOAT, HALF, BRAIN }; // EK_W_F32, EK_W_F16, EK_W_BF16

template <int F> __device__ __forceinline__ float weight(const void *panel, int64_t i)
{
    if (F == FLOAT) return ((const float *)panel)[i];
    unsigned short h = ((const unsigned short *)panel)[i];
    return F == HALF ? __half2float(__ushort_as_half(h)) : bits((u32)h << 16);
}

template <int F> __device__ __forceinline__ void product(const ek_cuda_linear_args &a)
{
    extern __shared__ float leaf[]; // [leaf][row][16]
    const int tid = threadIdx.x, o = tid % 16, k = a.x.k, leaves = (k + BLOCK - 1) / BLOCK, row0 = blockIdx.y * ROWS;
    const int64_t panel_bytes = ((int64_t)k * 16 * (F == FLOAT ? 4 : 2) + 63) / 64 * 64;
    const uint8_t *panel = (const uint8_t *)a.codes + blockIdx.x * panel_bytes;
    const float *x[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; r++) x[r] = (const float *)a.f + min(row0 + r, a.rows - 1) * a.ldf;
    let_next_start();
    wait_for_previous();
    for (int l = tid / 16; l < leaves; l += 16) {
        float sum[ROWS] = {};
        const int end = min(k, (l + 1) * BLOCK);
        int i = l * BLOCK;
        for (; i + 8 <= end; i += 8) {
            float w[8];
#pragma unroll
            for (int j = 0; j < 8; j++) w[j] = weight<F>(panel, (int64_t)(i + j) * 16 + o);
#pragma unroll
            for (int r = 0; r < ROWS; r++)
#pragma unroll
                for (int j = 0; j < 8; j++) sum[r] = fma_(x[r][i + j], w[j], sum[r]);
        }
        for (; i < end; i++)
#pragma unroll
            for (int r = 0; r < ROWS; r++) sum[r] = fma_(x[r][i], weight<F>(panel, (int64_t)i * 16 + o), sum[r]);
#pragma unroll
        for (int r = 0; r < ROWS; r++) leaf[(l * ROWS + r) * 16 + o] = sum[r];
    }
    __syncthreads();
    if (tid >= ROWS * 16) return;
    const int r = row0 + tid / 16, out = blockIdx.x * 16 + o;
    if (r < a.rows && out < a.n) ((float *)a.y)[r * a.ldy + out] = tree_sum([&](int i) { return leaf[i * ROWS * 16 + tid]; }, leaves);
}

#define PRODUCT(NAME, F)                                                                                              \
    extern "C" __global__ void __launch_bounds__(256) ek_product_##NAME(const __grid_constant__ ek_cuda_linear_args a) \
    {                                                                                                                 \
        product<F>(a);                                                                                                \
    }
PRODUCT(f32, FLOAT)
PRODUCT(f16, HALF)
PRODUCT(bf16, BRAIN)
