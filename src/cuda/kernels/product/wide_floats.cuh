// The float part of wide_product.cuh for a group: wgmma's integers become floats and are added to the chains,
// sum[((panel * OCTETS + octet of columns) * 2 + half of the panel) * PER + row of the lane].
#pragma once

#include "cuda/kernels/product/product_fragment.cuh"

namespace ek
{

// A lane's value from an accumulator's outputs v[0], v[1]: of row c, or made from two limbs.
template <int LIMBS> __device__ __forceinline__ float wide_value(const int *v, int c)
{
    return __int2float_rn(LIMBS == 1 ? v[c] : v[0] * 256 + v[1]);
}

// Groups of 64: chunk i of CHUNK columns. s, b: of the lane's outputs of a panel. x: {sx, X} of the lane's columns. If
// not all columns are needed, the last quarter is left out.
template <int LIMBS, int TALL, int CHUNK, int OCTETS, int SUMS>
__device__ __forceinline__ void wide_floats(float (&sum)[SUMS], int (&d)[TALL][CHUNK / 2], int i,
                                            const float (&s)[TALL][2], const float (&b)[TALL][2], const uint8_t *x,
                                            bool all = true)
{
    constexpr int PER = LIMBS == 1 ? 2 : 1;
#pragma unroll
    for (int m = 0; m < TALL; m++) wgmma_pin(d[m]);
#pragma unroll
    for (int o = 0; o < CHUNK / 8; o++) {
        if (o == CHUNK / 8 * 3 / 4 && !all) return;
        const int octet = i * (CHUNK / 8) + o;
        float sx[2], X[2];
        if (LIMBS == 1) {
            const float4 v = *(const float4 *)(x + octet * 64);
            sx[0] = v.x, X[0] = v.y, sx[1] = v.z, X[1] = v.w;
        } else {
            const float2 v = *(const float2 *)(x + octet * 32);
            sx[0] = v.x, X[0] = v.y;
        }
#pragma unroll
        for (int m = 0; m < TALL; m++)
#pragma unroll
            for (int h = 0; h < 2; h++)
#pragma unroll
                for (int c = 0; c < PER; c++) {
                    const float whole = wide_value<LIMBS>(&d[m][o * 4 + h * 2], c);
                    float &to = sum[((m * OCTETS + octet) * 2 + h) * PER + c];
                    to = fma_(fma_(b[m][h], X[c], __fmul_rn(s[m][h], whole)), sx[c], to);
                }
    }
}

// Groups of 32, without biases: the first 2 N columns. s: of outputs g and g + 8. x: sx of the lane's columns. If not
// all columns are needed, the last quarter is left out.
template <int LIMBS, int TALL, int OCTETS, int N, int SUMS>
__device__ __forceinline__ void wide_floats_32(float (&sum)[SUMS], int (&d)[TALL][N], const float2 (&s)[TALL],
                                               const uint8_t *x, bool all)
{
    constexpr int PER = LIMBS == 1 ? 2 : 1;
#pragma unroll
    for (int m = 0; m < TALL; m++) wgmma_pin(d[m]);
#pragma unroll
    for (int o = 0; o < N / 4; o++) {
        if (o == N / 4 * 3 / 4 && !all) return;
        float sx[2];
        if (LIMBS == 1) {
            const float2 v = *(const float2 *)(x + o * 32);
            sx[0] = v.x, sx[1] = v.y;
        } else {
            sx[0] = *(const float *)(x + o * 16);
        }
#pragma unroll
        for (int m = 0; m < TALL; m++)
#pragma unroll
            for (int h = 0; h < 2; h++)
#pragma unroll
                for (int c = 0; c < PER; c++) {
                    const float whole = wide_value<LIMBS>(&d[m][o * 4 + h * 2], c);
                    float &to = sum[((m * OCTETS + o) * 2 + h) * PER + c];
                    to = fma_(__fmul_rn(h ? s[m].y : s[m].x, whole), sx[c], to);
                }
    }
}

// --- the sums of a thread: nodes of T in scratch memory, the float4 of all threads adjacent, and results ---

template <int SUMS> __device__ __forceinline__ void wide_clear(float (&sum)[SUMS])
{
#pragma unroll
    for (int i = 0; i < SUMS; i++) sum[i] = 0;
}

// from, to: the thread's first number of a node
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

// y: the lane's first value, in rows of ld floats. Unless ALL, only the first `rows` rows and `outs` outputs from
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
