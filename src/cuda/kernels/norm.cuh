// Norms of rows and of heads (contracts: ops/rows/rows.h).
#pragma once

#include "cuda/args.h"
#include "cuda/kernels/math.cuh"

namespace ek
{

constexpr int MAX_LEAVES = 2048; // rows of up to 524,288 elements

// T over leaf[0..n): by one warp if they fit, which needs no further barriers. Every thread gets the result.
__device__ __forceinline__ float tree(float *leaf, int n)
{
    if (n > 32) {
        block_tree(leaf, n);
        float sum = leaf[0];
        __syncthreads();
        return sum;
    }
    __syncthreads();
    if (threadIdx.x < 32) {
        const int i = threadIdx.x;
        float v = i < n ? leaf[i] : 0;
        for (int apart = 1; apart < n; apart *= 2) {
            float other = __shfl_down_sync(~0u, v, apart);
            if (i % (2 * apart) == 0 && i + apart < n) v = v + other;
        }
        __syncwarp();
        if (i == 0) leaf[0] = v;
    }
    __syncthreads();
    float sum = leaf[0];
    __syncthreads();
    return sum;
}

// Sum of squares of x[0..n) (SQUARE) or of its elements, for every thread of the block; x may be shared memory. The
// caller has made x visible.
template <bool SQUARE> __device__ __forceinline__ float row_sum(const float *x, int n, float *leaf)
{
    const int half = threadIdx.x / 16, lane = threadIdx.x % 16, halves = blockDim.x / 16, blocks = (n + 255) / 256;
    for (int b0 = 0; b0 < blocks; b0 += halves) { // the same for all threads, because the shuffles need whole warps
        const int b = b0 + half;
        float sum = 0;
        if ((b + 1) * 256 <= n) {
#pragma unroll
            for (int i = 0; i < 256; i += 16) {
                float v = x[b * 256 + i + lane];
                sum = SQUARE ? fma_(v, v, sum) : sum + v;
            }
        } else if (b < blocks) {
            for (int at = b * 256 + lane; at < n; at += 16) {
                float v = x[at];
                sum = SQUARE ? fma_(v, v, sum) : sum + v;
            }
        }
        sum = add_lanes(sum);
        if (b < blocks && lane == 0) leaf[b] = sum;
    }
    return tree(leaf, blocks);
}

__device__ __forceinline__ float norm_factor(float ss, int n, float eps)
{
    return __fdiv_rn(1.0f, __fsqrt_rn(__fdiv_rn(ss, (float)n) + eps));
}

// T over leaf[0..n), n up to 32 and none of them -0, by a warp: all lanes get the result. Missing leaves are 0, which
// changes no such sum, and lanes repeat the leaves, so that only n decides the number of levels.
__device__ __forceinline__ float tree_of_leaves(const float *leaf, int n)
{
    const int last = n > 16 ? 31 : n > 8 ? 15 : n > 4 ? 7 : 3, i = threadIdx.x & last;
    float s = i < n ? leaf[i] : 0;
#pragma unroll
    for (int apart = 1; apart < 32; apart *= 2)
        if (apart <= last) s = s + __shfl_xor_sync(~0u, s, apart);
    return s;
}

// Finishes a head in shared memory, which is visible: normed with head.norm (0: without weights), then rotated if
// head.cos, for row r.
__device__ __forceinline__ void finish_head(float *x, const ek_cuda_head &head, int r, int dim, float *leaf)
{
    const float f = norm_factor(row_sum<true>(x, dim, leaf), dim, head.eps), *w = (const float *)head.norm;
    const float *cos = (const float *)head.cos + r * head.ld_table, *sin = (const float *)head.sin + r * head.ld_table;
    const int half = dim / 2;
    for (int j = threadIdx.x; j < half; j += blockDim.x) {
        float x0 = x[j] * f, x1 = x[j + half] * f;
        if (w) x0 = x0 * w[j], x1 = x1 * w[j + half];
        const bool turns = head.cos && j < head.rotated;
        x[j] = turns ? fma_(-x1, sin[j], x0 * cos[j]) : x0;
        x[j + half] = turns ? fma_(x0, sin[j], x1 * cos[j]) : x1;
    }
    __syncthreads();
}

} // namespace ek
