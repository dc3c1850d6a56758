// A row in the registers of a block, between two linear layers (stage.cu, layer_end.cu).
#pragma once

#include "cuda/kernels/norm.cuh"

namespace ek
{

// A row in a block of threads, with a warp per 256 elements. A lane has 8 of its half's 128 elements, 16 apart. These
// are half a chain in a sum of squares, so a norm needs one barrier.
struct stage_row {
    float v[8];

    static __device__ __forceinline__ int first()
    {
        return threadIdx.x / 16 * 128 + threadIdx.x % 16;
    }

    __device__ __forceinline__ void read(const float *x, int n)
    {
#pragma unroll
        for (int i = 0; i < 8; i++) v[i] = x && first() + i * 16 < n ? x[first() + i * 16] : 0;
    }

    __device__ __forceinline__ void write(float *x, int n) const
    {
#pragma unroll
        for (int i = 0; i < 8; i++)
            if (first() + i * 16 < n) x[first() + i * 16] = v[i];
    }

    // the row's sum; leaf: as below
    __device__ __forceinline__ float sum(int n, float *leaf) const
    {
        const int blocks = (n + 255) / 256, lane = threadIdx.x % 32;
        float sum = 0;
#pragma unroll
        for (int i = 0; i < 8; i++) sum = sum + v[i]; // missing elements are 0 and change nothing, because no sum is -0
        sum = __shfl_up_sync(~0u, sum, 16);
#pragma unroll
        for (int i = 0; i < 8; i++) sum = sum + v[i];
        sum = add_lanes(sum);
        if (lane == 16) leaf[threadIdx.x / 32] = sum;
        __syncthreads();
        return tree_of_leaves(leaf, blocks);
    }

    // 1 / root mean square; leaf: 32 floats that no other code uses
    __device__ __forceinline__ float factor(int n, float eps, float *leaf) const
    {
        const int blocks = (n + 255) / 256, lane = threadIdx.x % 32;
        float sum = 0;
#pragma unroll
        for (int i = 0; i < 8; i++) sum = fma_(v[i], v[i], sum); // missing elements are 0 and change nothing
        sum = __shfl_up_sync(~0u, sum, 16);                      // the chains continue in the upper half
#pragma unroll
        for (int i = 0; i < 8; i++) sum = fma_(v[i], v[i], sum);
        sum = add_lanes(sum);
        if (lane == 16) leaf[threadIdx.x / 32] = sum;
        __syncthreads();
        return norm_factor(tree_of_leaves(leaf, blocks), n, eps);
    }
};

} // namespace ek
