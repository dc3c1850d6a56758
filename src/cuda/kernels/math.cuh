// exp, tanh, ln of ops/math.c, the tree T, and conversions of tensor/dtype.h: the same operations in the same order,
// each correctly rounded. nvcc gets -fmad=false, so an fma occurs only where it is written.
#pragma once

#include "cuda/kernels/device.cuh"

namespace ek
{

constexpr float LN2_HI = 0.693145751953125f, LN2_LO = 1.428606765330187e-06f;

__device__ __forceinline__ float fma_(float a, float b, float c)
{
    return __fmaf_rn(a, b, c);
}

__device__ __forceinline__ float bits(u32 u)
{
    return __uint_as_float(u);
}

// 2^n for -126 <= n <= 127
__device__ __forceinline__ float pow2(int n)
{
    return bits((u32)(n + 127) << 23);
}

// 2^n for n <= 0, +0 below 2^-125
__device__ __forceinline__ float factor(int n)
{
    return n < -125 ? 0.0f : pow2(n);
}

// q with exp(r) = 1 + r + q r^2, where r = s - nf ln 2
__device__ __forceinline__ float exp_rest(float s, float nf, float &r)
{
    r = fma_(nf, -LN2_HI, s);
    r = fma_(nf, -LN2_LO, r);
    float q = 1.9875691500e-4f;
    q = fma_(q, r, 1.3981999507e-3f);
    q = fma_(q, r, 8.3334519073e-3f);
    q = fma_(q, r, 4.1665795894e-2f);
    q = fma_(q, r, 1.6666665459e-1f);
    q = fma_(q, r, 5.0000001201e-1f);
    return q;
}

__device__ __forceinline__ float exp_split(float s, int *n)
{
    s = s > -0x1p20f ? s : -0x1p20f;
    s = s < 0x1p20f ? s : 0x1p20f;
    float nf = rintf(__fmul_rn(s, 1.44269504f));
    float r, q = exp_rest(s, nf, r);
    *n = (int)nf;
    return __fadd_rn(fma_(q, __fmul_rn(r, r), r), 1.0f);
}

__device__ __forceinline__ float ldexp_(float x, int n)
{
    n = n < -252 ? -252 : n > 252 ? 252 : n;
    if (n > 127) return x * pow2(n - 126) * pow2(126);
    if (n < -126) return x * pow2(n + 126) * pow2(-126);
    return x * pow2(n);
}

__device__ __forceinline__ float exp_(float x)
{
    if (x != x) return x;
    int n;
    float p = exp_split(x, &n);
    return ldexp_(p, n);
}

__device__ __forceinline__ float tanh_(float x)
{
    float a = fabsf(x);
    if (x != x) return x;
    if (a > 9.0f) return copysignf(1.0f, x);
    if (a < 0.625f) {
        float z = x * x;
        float p = -5.70498872745e-3f;
        p = fma_(p, z, 2.06390887954e-2f);
        p = fma_(p, z, -5.37397155531e-2f);
        p = fma_(p, z, 1.33314422036e-1f);
        p = fma_(p, z, -3.33332819422e-1f);
        return fma_(p * z, x, x);
    }
    return copysignf(1.0f - __fdiv_rn(2.0f, exp_(2.0f * a) + 1.0f), x);
}

// tanh_(y) except for NaN. Its exponential is that of a number in [1.25, 20]. So nothing is clamped, the integer comes
// from the bits of 2^23 and more, 2^n from an addition to the exponent, and 2 / (e + 1) is twice the reciprocal.
__device__ __forceinline__ float tanh_of_number(float y)
{
    const float a = fabsf(y), z = y * y;
    float p = -5.70498872745e-3f;
    p = fma_(p, z, 2.06390887954e-2f);
    p = fma_(p, z, -5.37397155531e-2f);
    p = fma_(p, z, 1.33314422036e-1f);
    p = fma_(p, z, -3.33332819422e-1f);
    const float near = fma_(p * z, y, y), s = 2.0f * (a > 9.0f ? 10.0f : a); // tanh(10) is 1
    const float whole = __fadd_rn(__fmul_rn(s, 1.44269504f), 12582912.0f), nf = __fadd_rn(whole, -12582912.0f);
    float r, q = exp_rest(s, nf, r);
    const float e = bits(__float_as_uint(__fadd_rn(fma_(q, __fmul_rn(r, r), r), 1.0f)) +
                         (__float_as_uint(whole) << 23));
    return a < 0.625f ? near : copysignf(fma_(-2.0f, __frcp_rn(e + 1.0f), 1.0f), y);
}

__device__ __forceinline__ float gelu_(float x)
{
    float t = fma_(0.044715f * (x * x), x, x);
    return 0.5f * x * (1.0f + tanh_of_number(0.7978845608f * t)); // NaN because of the factor x
}

// ln(2^k (1 + f))
__device__ __forceinline__ float ln_tail(float k, float f)
{
    float t = __fdiv_rn(f, 2.0f + f), z = t * t, h = 0.5f * f * f;
    float q = 0.233304672163f;
    q = fma_(q, z, 0.285508208160f);
    q = fma_(q, z, 0.400001218398f);
    q = fma_(q, z, 0.666666665545f);
    float tail = fma_(k, LN2_LO, t * fma_(q, z, h));
    return fma_(k, LN2_HI, f - (h - tail));
}

__device__ __forceinline__ float ln_(float x)
{
    if (!(x > 0)) return x == 0 ? bits(0xff800000u) : bits(0x7fc00000u);
    if (x > 0x1.fffffep127f) return x;
    int k = 0;
    if (x < 0x1p-126f) x *= 0x1p24f, k = -24;
    u32 u = __float_as_uint(x);
    k += (int)(u - 0x3f3504f3u) >> 23;
    float f = bits(((u - 0x3f3504f3u) & 0x007fffffu) + 0x3f3504f3u) - 1.0f;
    return ln_tail((float)k, f);
}

// n + 1/2 rounded once
__device__ __forceinline__ float plus_half(u32 n)
{
    return fma_((float)(int)(n >> 16), 65536.0f, (float)(int)(n & 0xffff) + 0.5f);
}

__device__ __forceinline__ float standard_gumbel(u32 n)
{
    float e = n < 1u << 30 ? -ln_tail(0, plus_half(n) * -0x1p-32f) : -ln_(plus_half(~n) * 0x1p-32f);
    return -ln_(e);
}

// --- an order of floats by unsigned integers: larger is larger, -0 = +0, NaN not allowed; above 0 for
// every number, so that 0 means none
__device__ __forceinline__ u64 mix64(u64 x) // ek_mix64 of base/hash/rng.h
{
    x += 0x9E3779B97F4A7C15u;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
}

__device__ __forceinline__ u32 ordered(float x)
{
    u32 u = __float_as_uint(x == 0 ? 0.0f : x);
    return u & 0x80000000u ? ~u : u | 0x80000000u;
}

__device__ __forceinline__ float unordered(u32 k)
{
    return bits(k & 0x80000000u ? k & 0x7fffffffu : ~k);
}

// value descending, then index ascending, as one descending integer
__device__ __forceinline__ u64 rank_key(float x, u32 index)
{
    return (u64)ordered(x) << 32 | (u32)~index;
}

__device__ __forceinline__ u64 warp_max(u64 k)
{
    for (int apart = 16; apart; apart /= 2) {
        u64 other = __shfl_xor_sync(~0u, k, apart);
        k = other > k ? other : k;
    }
    return k;
}

// --- sums of a row: 16 lanes of half a warp, added 8, 4, 2, 1 apart; lane 0 has the sum
__device__ __forceinline__ float add_lanes(float lane)
{
    for (int apart = 8; apart; apart /= 2) lane = lane + __shfl_down_sync(~0u, lane, apart, 16);
    return lane;
}

// T over leaf[0..n) by all threads of the block, into leaf[0]; n >= 1. Neighbours are added level by level, and a last
// one without a neighbour waits. This is the same tree.
__device__ __forceinline__ void block_tree(float *leaf, int n)
{
    for (int apart = 1; apart < n; apart *= 2) {
        __syncthreads();
        for (int i = threadIdx.x * 2 * apart; i + apart < n; i += blockDim.x * 2 * apart)
            leaf[i] = leaf[i] + leaf[i + apart];
    }
    __syncthreads();
}

// --- Philox4x32-10 and the noise of a token (base/hash/rng.h, engine/sample/sampler.h)
__device__ __forceinline__ float gumbel(u64 seed, int pos, int purpose, u32 token)
{
    u32 c0 = (u32)pos, c1 = token / 4, c2 = (u32)purpose, c3 = 0;
    u32 k0 = (u32)seed, k1 = (u32)(seed >> 32);
#pragma unroll
    for (int round = 0; round < 10; round++) {
        u64 p0 = (u64)0xD2511F53u * c0, p1 = (u64)0xCD9E8D57u * c2;
        u32 n0 = (u32)(p1 >> 32) ^ c1 ^ k0, n2 = (u32)(p0 >> 32) ^ c3 ^ k1;
        c0 = n0, c1 = (u32)p1, c2 = n2, c3 = (u32)p0;
        k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
    }
    u32 lane = token % 4;
    return standard_gumbel(lane == 0 ? c0 : lane == 1 ? c1 : lane == 2 ? c2 : c3);
}

} // namespace ek
