// The k-th largest of many values, by a block of 1024 threads.
#pragma once

#include "cuda/kernels/math.cuh"

namespace ek
{

constexpr int CHOOSERS = 1024;

// The k-th largest of value[0..n), 1 <= k <= n, as an ordered integer, by digits of 8 bits.
__device__ __forceinline__ u32 kth_largest(const float *value, int n, int k, u32 *histogram)
{
    __shared__ u32 digit_found;
    __shared__ int k_left;
    u32 prefix = 0;
    for (int shift = 24; shift >= 0; shift -= 8) {
        for (int i = threadIdx.x; i < 256; i += CHOOSERS) histogram[i] = 0;
        __syncthreads();
        for (int i = threadIdx.x; i < n; i += CHOOSERS) {
            u32 v = ordered(value[i]);
            if (shift == 24 || v >> (shift + 8) == prefix) atomicAdd(&histogram[v >> shift & 255], 1u);
        }
        __syncthreads();
        if (threadIdx.x < 32) { // lane 0 has the 8 largest digits
            int mine = 0, high = 255 - 8 * (int)threadIdx.x;
            for (int i = 0; i < 8; i++) mine += (int)histogram[high - i];
            int upto = mine;
            for (int apart = 1; apart < 32; apart *= 2) {
                int other = __shfl_up_sync(~0u, upto, apart);
                if ((int)threadIdx.x >= apart) upto += other;
            }
            int before = upto - mine;
            if (before < k && k <= upto)
                for (int i = 0; i < 8; i++) {
                    int h = (int)histogram[high - i];
                    if (before < k && k <= before + h) digit_found = (u32)(high - i), k_left = k - before;
                    before += h;
                }
        }
        __syncthreads();
        prefix = prefix << 8 | digit_found;
        k = k_left;
        __syncthreads();
    }
    return prefix;
}

} // namespace ek
