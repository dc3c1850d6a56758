// A panel of Form F (contract: ops/linear/linear.h): weights in the CPU's panels, a chain of 256 fma per leaf. A block
// computes a panel of 16 outputs; half a warp is a leaf, a lane one output of it.
#pragma once

#include <cuda_fp16.h>

#include "cuda/kernels/product/product_fragment.cuh"
#include "cuda/model_args.h"

namespace ek
{

constexpr int BLOCK = 256;

enum { FLOAT, HALF, BRAIN }; // EK_W_F32, EK_W_F16, EK_W_BF16

template <int F> __device__ __forceinline__ float weight(const void *panel, int64_t i)
{
    if (F == FLOAT) return ((const float *)panel)[i];
    unsigned short h = ((const unsigned short *)panel)[i];
    return F == HALF ? __half2float(__ushort_as_half(h)) : bits((u32)h << 16);
}

template <int F> __device__ __forceinline__ int64_t panel_bytes(int k)
{
    return ((int64_t)k * 16 * (F == FLOAT ? 4 : 2) + 63) / 64 * 64;
}

template <int F> __device__ __forceinline__ const uint8_t *panel_at(const ek_cuda_linear_args &a, int number)
{
    return (const uint8_t *)a.codes + number * panel_bytes<F>(a.x.k);
}

// Rows [row0, row0 + ROWS) up to a.rows of a panel by its number; record(r) is where row r of x lies.
template <int F, int ROWS, class R>
__device__ __forceinline__ void product(const ek_cuda_linear_args &a, int number, int row0, R record)
{
    EK_DYNAMIC_SHARED(float, leaf); // [leaf][row][16]
    const int tid = threadIdx.x, o = tid % 16, k = a.x.k, leaves = (k + BLOCK - 1) / BLOCK;
    const uint8_t *panel = panel_at<F>(a, number);
    const float *x[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; r++) x[r] = record(min(row0 + r, a.rows - 1));
    let_next_start();
    if (ROWS > 1) wait_for_previous(); // again where the caller has waited, which costs nothing
    // 16 inputs at a time: lane o has their weights for output o, and the rows' element o, which all need
    for (int l0 = 0; l0 < leaves; l0 += blockDim.x / 16) {
        const int l = l0 + tid / 16, end = l < leaves ? min(k, (l + 1) * BLOCK) : 0;
        float sum[ROWS] = {}, w[16], v[ROWS], next_w[16], next_v[ROWS];
        // never under a condition, which would wait for each; past the end unused
        auto load_weights = [&](int i) {
#pragma unroll
            for (int j = 0; j < 16; j++) next_w[j] = weight<F>(panel, (int64_t)min(i + j, k - 1) * 16 + o);
        };
        auto load_rows = [&](int i) {
#pragma unroll
            for (int r = 0; r < ROWS; r++) next_v[r] = x[r][min(i + o, k - 1)];
        };
        load_weights(l * BLOCK);
        if (ROWS == 1 && l0 == 0) wait_for_previous();
        load_rows(l * BLOCK);
#pragma unroll 1
        for (int i = l * BLOCK; __any_sync(~0u, i < end); i += 16) {
#pragma unroll
            for (int j = 0; j < 16; j++) w[j] = next_w[j];
#pragma unroll
            for (int r = 0; r < ROWS; r++) v[r] = next_v[r];
            const int next = i + 16 < (l + 1) * BLOCK ? i + 16 : k;
            load_weights(next), load_rows(next);
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
    const int r = row0 + tid / 16, out = number * 16 + o;
    if (r < a.rows && out < a.n)
        ((float *)a.y)[r * a.ldy + out] = tree_sum([&](int i) { return leaf[i * ROWS * 16 + tid]; }, leaves);
}

} // namespace ek
