// A group of activations in a quantised row (ops/linear/linear.h): the only place where the kernels round them.
#pragma once

#include "cuda/args.h"
#include "cuda/kernels/math.cuh"

namespace ek
{

// The scale of a group with the largest magnitude `top` (its bits), for two limbs and for one, and the factor of
// values; 0: all codes are 0.
__device__ __forceinline__ void group_scales(u32 top, float *inv, float *sx, float *sx256)
{
    const float most = bits(top);
    *inv = *sx = *sx256 = 0;
    if (top >= 0x7f800000u) *sx = *sx256 = bits(0x7fc00000u);
    else if (most >= 0x1p-100f) *sx = __fdiv_rn(most, 32512.0f), *inv = __fdiv_rn(32512.0f, most), *sx256 = 256 * *sx;
}

// q = 256 * high + low
__device__ __forceinline__ int two_limbs(float v, float inv, int *high)
{
    const int q = inv > 0 ? __float2int_rn(__fmul_rn(v, inv)) : 0;
    *high = (q + 128) >> 8;
    return q;
}

// By one warp: v are elements lane and lane + 32 of group g, 0 if absent; groups of 32 and 16 have only the first.
__device__ __forceinline__ void quantize_group(const ek_cuda_acts &to, int64_t row, int g, const float (&v)[2])
{
    const int lane = threadIdx.x % 32;
    u32 top = __float_as_uint(v[0]) & 0x7fffffffu;
    if (to.a_group == 64) top = max(top, __float_as_uint(v[1]) & 0x7fffffffu);
    top = __reduce_max_sync(~0u, top);
    float inv, sx, sx256;
    group_scales(top, &inv, &sx, &sx256);
    int8_t *h = (int8_t *)to.q + row * to.ldq, *l = h + to.low;
    int sum_h = 0, sum_q = 0;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        if (i * 32 >= to.a_group) break;
        int high, q = two_limbs(v[i], inv, &high);
        int at = g * to.a_group + lane + i * 32;
        if (lane < to.a_group) h[at] = (int8_t)high, l[at] = (int8_t)(q - 256 * high);
        sum_h += high, sum_q += q;
    }
    sum_h = __reduce_add_sync(~0u, sum_h), sum_q = __reduce_add_sync(~0u, sum_q);
    if (lane == 0) {
        *(float2 *)((uint8_t *)h + to.groups[0] + g * 8) = make_float2(sx256, (float)sum_h);
        *(float2 *)((uint8_t *)h + to.groups[1] + g * 8) = make_float2(sx, (float)sum_q);
    }
}

// The same for a group of 64 with elements 2 lane and 2 lane + 1 in a lane. A call that is not real writes nothing.
__device__ __forceinline__ void quantize_pairs(const ek_cuda_acts &to, int64_t row, int g, const float (&v)[2],
                                               bool real)
{
    const int lane = threadIdx.x % 32;
    const u32 top = __reduce_max_sync(~0u,
                                      max(__float_as_uint(v[0]) & 0x7fffffffu, __float_as_uint(v[1]) & 0x7fffffffu));
    float inv, sx, sx256;
    group_scales(top, &inv, &sx, &sx256);
    int high[2], low[2];
#pragma unroll
    for (int i = 0; i < 2; i++) low[i] = two_limbs(v[i], inv, &high[i]) - 256 * high[i];
    int8_t *h = (int8_t *)to.q + row * to.ldq + g * 64 + lane * 2;
    if (real) *(unsigned short *)h = (unsigned short)((high[0] & 255) | high[1] << 8);
    if (real) *(unsigned short *)(h + to.low) = (unsigned short)((low[0] & 255) | low[1] << 8);
    const int sum_h = __reduce_add_sync(~0u, high[0] + high[1]), sum_l = __reduce_add_sync(~0u, low[0] + low[1]);
    if (lane || !real) return;
    h = (int8_t *)to.q + row * to.ldq + g * 8;
    *(float2 *)(h + to.groups[0]) = make_float2(sx256, (float)sum_h);
    *(float2 *)(h + to.groups[1]) = make_float2(sx, (float)(256 * sum_h + sum_l));
}

// By A / 8 lanes: v are elements at .. at + 7 of a group of A; the next lane has the next 8. All lanes call it. Lanes
// without `there` write nothing.
template <int A>
__device__ __forceinline__ void quantize_eights(const ek_cuda_acts &to, int64_t row, int at, const float (&v)[8],
                                                bool there)
{
    u32 top = 0;
#pragma unroll
    for (int i = 0; i < 8; i++) top = max(top, __float_as_uint(v[i]) & 0x7fffffffu);
#pragma unroll
    for (int apart = A / 16; apart; apart /= 2) top = max(top, __shfl_xor_sync(~0u, top, apart, 8));
    float inv, sx, sx256;
    group_scales(top, &inv, &sx, &sx256);
    int sum = 0; // of high limbs in the upper half, of low limbs in the lower
    u32 h[2] = {0, 0}, l[2] = {0, 0};
#pragma unroll
    for (int i = 0; i < 8; i++) {
        int high, low = two_limbs(v[i], inv, &high);
        low -= 256 * high;
        h[i / 4] |= (u32)(high & 255) << i % 4 * 8, l[i / 4] |= (u32)(low & 255) << i % 4 * 8;
        sum += high * 65536 + low;
    }
#pragma unroll
    for (int apart = A / 16; apart; apart /= 2) sum += __shfl_xor_sync(~0u, sum, apart, 8);
    if (!there) return;
    int8_t *codes = (int8_t *)to.q + row * to.ldq + at;
    *(uint2 *)codes = make_uint2(h[0], h[1]), *(uint2 *)(codes + to.low) = make_uint2(l[0], l[1]);
    if (at % A) return;
    const int low = (int16_t)sum, high = (sum - low) >> 16;
    uint8_t *group = (uint8_t *)to.q + row * to.ldq + at / A * 8;
    *(float2 *)(group + to.groups[0]) = make_float2(sx256, (float)high);
    *(float2 *)(group + to.groups[1]) = make_float2(sx, (float)(256 * high + low));
}

// x[i % N], by a tree of choices.
template <int N, class T> __device__ __forceinline__ T pick(const T (&x)[N], int i)
{
    T left[N];
#pragma unroll
    for (int k = 0; k < N; k++) left[k] = x[k];
#pragma unroll
    for (int bit = 1; bit < N; bit *= 2)
#pragma unroll
        for (int k = 0; k < N; k += 2 * bit) left[k] = i & bit ? left[k + bit] : left[k];
    return left[0];
}

// By half a warp: v are elements 16 i + lane of block b of 128; those past n are 0. Groups of A.
template <int A>
__device__ __forceinline__ void quantize_block(const ek_cuda_acts &to, int64_t row, int b, const float (&v)[8], int n)
{
    constexpr int GROUPS = 128 / A, EACH = A / 16;
    const int lane = threadIdx.x % 16;
    u32 top[GROUPS];
#pragma unroll
    for (int g = 0; g < GROUPS; g++) {
        top[g] = 0;
#pragma unroll
        for (int i = 0; i < EACH; i++) top[g] = max(top[g], __float_as_uint(v[g * EACH + i]) & 0x7fffffffu);
    }
#pragma unroll
    for (int apart = 8; apart; apart /= 2)
#pragma unroll
        for (int g = 0; g < GROUPS; g++) top[g] = max(top[g], __shfl_xor_sync(~0u, top[g], apart, 16));
    const u32 mine = pick(top, lane); // each lane divides for one group, and all lanes take the quotient
    float inv_mine, sx, sx256;
    group_scales(mine, &inv_mine, &sx, &sx256);
    int8_t *h = (int8_t *)to.q + row * to.ldq, *l = h + to.low;
    int sums[GROUPS]; // of high limbs in the upper half, of low limbs in the lower
#pragma unroll
    for (int g = 0; g < GROUPS; g++) {
        const float inv = __shfl_sync(~0u, inv_mine, g, 16);
        sums[g] = 0;
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            const int at = b * 128 + (g * EACH + i) * 16 + lane;
            int high, q = two_limbs(v[g * EACH + i], inv, &high);
            if (b * 128 + g * A < n) h[at] = (int8_t)high, l[at] = (int8_t)(q - 256 * high);
            sums[g] += high * 65536 + (q - 256 * high);
        }
    }
#pragma unroll
    for (int apart = 8; apart; apart /= 2)
#pragma unroll
        for (int g = 0; g < GROUPS; g++) sums[g] += __shfl_xor_sync(~0u, sums[g], apart, 16);
    const int sum = pick(sums, lane);
    if (lane >= GROUPS || b * 128 + lane * A >= n) return;
    const int low = (int16_t)sum, high = (sum - low) >> 16, g = b * GROUPS + lane;
    *(float2 *)((uint8_t *)h + to.groups[0] + g * 8) = make_float2(sx256, (float)high);
    *(float2 *)((uint8_t *)h + to.groups[1] + g * 8) = make_float2(sx, (float)(256 * high + low));
}

} // namespace ek
