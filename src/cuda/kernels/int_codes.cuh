// Code that the kernels of attention in integers share with those that store keys (contract: ops/attn/attn_int.h):
// rotation, codes, limbs for products of int8, weights.
//
// A code c is two limbs, c = 128 h + l, with l from 0 to 127 and h = c >> 7: with 12 bits h is -16 to 15, for a
// weight's 14 bits 0 to 127. Sums of products of limbs over 512 dims or 256 keys stay below 2^24.
#pragma once

#include "cuda/kernels/kv.cuh"

namespace ek
{

constexpr int QUERY_CODE = 2047, WEIGHT_CODE = 16383, WEIGHT_BITS = 14, SUM_BITS = 21;
constexpr float WHOLE = 12582912.0f; // 1.5 2^23: x + WHOLE has rne(x) in its low bits, for |x| < 2^22
constexpr u32 WHOLE_BITS = 0x4B400000u;

__device__ __forceinline__ int rounded(float x) // |x| < 2^22
{
    return (int)(__float_as_uint(x + WHOLE) - WHOLE_BITS);
}

// Bytes of the codes before the scales of a page's keys or values.
__device__ __forceinline__ int rotated_codes(int bits, int dim)
{
    return dim * PAGE * (bits / 8);
}

// The place of a code in its part of a page (ek_kv_int_place).
__device__ __forceinline__ int rotated_place(int bits, int pair, int lanes, int lane)
{
    if (bits == 16) return (pair / 2 * lanes + lane) * 2 + pair % 2;
    return (pair / 4 * lanes + lane) * 4 + (pair & 1) * 2 + (pair >> 1 & 1);
}

// --- a head over the lanes of a warp: x[i] is element 32 i + lane; 0 after the head's dims ---
constexpr int HEAD = 16; // of 512 dims

// R x
template <int COUNT> __device__ __forceinline__ void rotate(float (&x)[COUNT], int dim)
{
    const int n = dim & -dim, lane = threadIdx.x % 32;
#pragma unroll
    for (int h = 1; h < 32; h *= 2) {
        if (h >= n) break;
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            if (i * 32 >= dim) break;
            const float other = __shfl_xor_sync(~0u, x[i], h);
            x[i] = lane & h ? other - x[i] : x[i] + other;
        }
    }
#pragma unroll
    for (int h = 1; h < COUNT; h *= 2) {
        if (h * 32 >= n) break;
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            if (i & h) continue;
            const float a = x[i], b = x[i + h];
            x[i] = a + b, x[i + h] = a - b;
        }
    }
}

// x becomes R x, and code[i] the code of x[i]. Returns the scale.
template <int COUNT>
__device__ __forceinline__ float encode(float (&x)[COUNT], int dim, int largest, int (&code)[COUNT])
{
    const int lane = threadIdx.x % 32;
    u32 top = 0;
#pragma unroll
    for (int i = 0; i < COUNT; i++) x[i] = i * 32 + lane < dim ? clamp_(x[i], -0x1p96f, 0x1p96f) : 0.0f;
    rotate(x, dim);
#pragma unroll
    for (int i = 0; i < COUNT; i++) top = max(top, __float_as_uint(x[i]) & 0x7fffffffu);
    const float t = bits(__reduce_max_sync(~0u, top)), c = (float)largest;
    const bool none = t < 0x1p-100f;
    const float by = none ? 0.0f : __fdiv_rn(c, t);
#pragma unroll
    for (int i = 0; i < COUNT; i++) code[i] = rounded(clamp_(x[i] * by, -c, c));
    return none ? 0.0f : __fdiv_rn(t, c);
}

// Writes codes and scale of a token to its slot. `at`: a page's keys or values of the head. x becomes R x.
template <int COUNT>
__device__ __forceinline__ void store_rotated(uint8_t *at, float (&x)[COUNT], int dim, int code_bits, int slot,
                                              bool keys)
{
    const int lane = threadIdx.x % 32;
    int code[COUNT];
    const float scale = encode(x, dim, code_bits == 16 ? 2047 : 127, code);
    if (lane == 0) ((float *)(at + rotated_codes(code_bits, dim)))[slot] = scale;
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        const int d = i * 32 + lane;
        if (d >= dim) break;
        const int to = keys ? rotated_place(code_bits, d, PAGE, slot) : rotated_place(code_bits, slot, dim, d);
        if (code_bits == 16) ((int16_t *)at)[to] = (int16_t)code[i];
        else ((int8_t *)at)[to] = (int8_t)code[i];
    }
}

// R / n, applied to a result.
template <int COUNT> __device__ __forceinline__ void rotate_back(float (&x)[COUNT], int dim)
{
    const float by = bits(__float_as_uint(1.0f) -
                          ((u32)(__float_as_uint((float)(dim & -dim)) - __float_as_uint(1.0f))));
    rotate(x, dim);
#pragma unroll
    for (int i = 0; i < COUNT; i++) x[i] = x[i] * by;
}

// --- a lane's part of operand a of mma and wgmma: 16 columns of a page's part (keys, or dims of values) by 32 summed
// elements, in pairs (16 bits) or fours (8). The product's rows g and g + 8 are columns 2 g and 2 g + 1. ---
template <int BITS> struct fragment {
    static constexpr int ROWS = BITS == 16 ? 16 : 8; // words of 4 bytes that lie below each other
    uint2 w[BITS == 16 ? 4 : 2];

    static __device__ __forceinline__ int row(int i, int t) // of w[i]
    {
        return BITS == 16 ? i / 2 * 8 + 2 * t + i % 2 : i * 4 + t;
    }

    __device__ __forceinline__ void limbs(u32 (&l)[4], u32 (&h)[4]) const
    {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            if (BITS == 16) {
                const uint2 a = w[half * 2 % (BITS / 4)], b = w[(half * 2 + 1) % (BITS / 4)];
                l[half * 2] = __byte_perm(a.x, b.x, 0x6420) & 0x7f7f7f7fu;
                l[half * 2 + 1] = __byte_perm(a.y, b.y, 0x6420) & 0x7f7f7f7fu;
                h[half * 2] = __byte_perm(a.x >> 7, b.x >> 7, 0x6420);
                h[half * 2 + 1] = __byte_perm(a.y >> 7, b.y >> 7, 0x6420);
            } else {
                l[half * 2] = __byte_perm(w[half].x, 0, 0x3120);
                l[half * 2 + 1] = __byte_perm(w[half].y, 0, 0x3120);
            }
        }
    }
};

// The sum of a score, for 12-bit codes of keys and for 8-bit ones (one limb: ll and lh).
template <int BITS> __device__ __forceinline__ int score_sum(int hh, int mid, int ll)
{
    return BITS == 16 ? (hh << 14) + (mid << 7) + ll : (mid << 7) + ll;
}

// f32 of 16384 hh + 128 mid + ll, rounded once.
template <int BITS> __device__ __forceinline__ float value_sum_of(int hh, int mid, int ll)
{
    if (BITS == 8) hh = 0;
    const int y = hh * 128 + mid + (ll >> 7), low = (y & 511) << 7 | (ll & 127);
    return fma_((float)(y >> 9), 65536.0f, (float)low);
}

// --- weights
__device__ __forceinline__ float held_score(float s)
{
    s = s > -0x1p20f ? s : -0x1p20f; // NaN: -2^20
    return s < 0x1p20f ? s : 0x1p20f;
}

// n of exp_split for a clamped score, as bits of WHOLE + n, which have the order of n.
__device__ __forceinline__ u32 exponent_bits(float s)
{
    return __float_as_uint(__fadd_rn(__fmul_rn(s, 1.44269504f), WHOLE));
}

// e = p 2^(n - m) for a clamped score; +0 if n - m < -125; max_n: m as bits of WHOLE + m.
__device__ __forceinline__ float weight_of(float s, u32 max_n)
{
    const u32 n = exponent_bits(s);
    float r, q = exp_rest(s, bits(n) - WHOLE, r);
    const float p = __fadd_rn(fma_(q, __fmul_rn(r, r), r), 1.0f);
    const int apart = (int)(n - max_n);
    return apart < -125 ? 0.0f : bits(__float_as_uint(p) + ((u32)apart << 23)); // p is above 1/2: exact
}

// rne(2^21 e), as bits of WHOLE + it
__device__ __forceinline__ u32 sum_bits(float e)
{
    return __float_as_uint(fma_(e, (float)(1 << SUM_BITS), WHOLE));
}

// 2^(13 - E) and 2^(E - 13) of the largest product W of a segment; 0 if W < 2^-100.
__device__ __forceinline__ float code_factor(float largest)
{
    return largest < 0x1p-100f ? 0.0f
                               : bits(((u32)(127 + 127 + WEIGHT_BITS - 1) - (__float_as_uint(largest) >> 23)) << 23);
}

__device__ __forceinline__ float code_unit(float largest)
{
    return largest < 0x1p-100f ? 0.0f : bits(((__float_as_uint(largest) >> 23) - (u32)(WEIGHT_BITS - 1)) << 23);
}

// Bits of WHOLE + the code, whose low 14 bits are the code.
__device__ __forceinline__ u32 code_bits(float w, float factor)
{
    return __float_as_uint(__fadd_rn(fminf(w * factor, (float)WEIGHT_CODE), WHOLE));
}

} // namespace ek
