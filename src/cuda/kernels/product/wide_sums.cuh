// The sums of a thread of wide_product.cuh, in the order that wide_floats.cuh has: nodes of T in scratch memory, a
// float4 of each thread behind the other's, and results.
#pragma once

#include "cuda/kernels/product/product_fragment.cuh"

namespace ek
{

template <int SUMS> __device__ __forceinline__ void wide_clear(float (&sum)[SUMS])
{
#pragma unroll
    for (int i = 0; i < SUMS; i++) sum[i] = 0;
}

// from, to: the thread's first of a node
template <int THREADS, int SUMS> __device__ __forceinline__ void wide_add(float (&sum)[SUMS], const float4 *from)
{
#pragma unroll
    for (int i = 0; i < SUMS / 4; i++) {
        const float4 v = from[i * THREADS];
        sum[i * 4] = v.x + sum[i * 4], sum[i * 4 + 1] = v.y + sum[i * 4 + 1];
        sum[i * 4 + 2] = v.z + sum[i * 4 + 2], sum[i * 4 + 3] = v.w + sum[i * 4 + 3];
    }
}

template <int THREADS, int SUMS> __device__ __forceinline__ void wide_put(const float (&sum)[SUMS], float4 *to)
{
#pragma unroll
    for (int i = 0; i < SUMS / 4; i++)
        to[i * THREADS] = make_float4(sum[i * 4], sum[i * 4 + 1], sum[i * 4 + 2], sum[i * 4 + 3]);
}

// y: the lane's first value, of rows of ld floats. Unless ALL, only the first `rows` rows and `outs` outputs from
// there.
template <bool ALL, int LIMBS, int TALL, int OCTETS, int SUMS>
__device__ __forceinline__ void wide_store(const float (&sum)[SUMS], float *y, int64_t ld, int rows, int outs)
{
    constexpr int PER = LIMBS == 1 ? 2 : 1;
    const int64_t further = (4 * PER - PER + 1) * ld;
#pragma unroll
    for (int o = 0; o < OCTETS; o++)
#pragma unroll
        for (int c = 0; c < PER; c++) {
#pragma unroll
            for (int m = 0; m < TALL; m++)
#pragma unroll
                for (int h = 0; h < 2; h++)
                    if (ALL || (o * 4 * PER + c < rows && m * 64 + h * 8 < outs))
                        y[m * 64 + h * 8] = sum[((m * OCTETS + o) * 2 + h) * PER + c];
            y += c + 1 < PER ? ld : further;
        }
}

} // namespace ek
