// Code that the kernels of Form Q share: fragments of int8 products, scales, the formula of a group
// (ops/linear/linear.h).
//
// A unit is 64 inputs of a panel of 16 outputs, as fragments of two mma.sync m16n8k32 (cuda/product/layout.h). The
// inputs of lane t = lane % 4 are 16 t .. 16 t + 15 of the unit with activations in groups of 64, 8 t .. 8 t + 7 of
// each half in groups of 32, and 4 t .. 4 t + 3 of each quarter in groups of 16, so that a row of activations is read
// in memory order. Columns of the product are rows of activations, or with two limbs h and l of a row in adjacent
// columns.
#pragma once

#include <cuda_fp16.h>

#include "cuda/args.h"
#include "cuda/kernels/math.cuh"
#include "cuda/kernels/mma.cuh"

namespace ek
{

constexpr int MAGIC = 0x4B400000; // the float 12582912; as an integer start it makes a sum I the float 12582912 + I
constexpr float MAGIC_F = 12582912.0f;

// a lane's scales: {s, b} of outputs g and g + 8, or {s} without biases
__device__ __forceinline__ int scale_bytes(const ek_cuda_linear_args &a)
{
    return (a.f32_scales ? 8 : 4) << (a.biased ? 1 : 0);
}

__device__ __forceinline__ void copy_scales(void *to, const uint8_t *from, int bytes)
{
    if (bytes == 8) copy_async<8>(to, from);
    else if (bytes == 4) copy_async<4>(to, from);
    else copy_async<16>(to, from);
}

// s and b' = fma(zero, s, b) of outputs g and g + 8
__device__ __forceinline__ void read_scales(const ek_cuda_linear_args &a, const uint8_t *at, float (&s)[2],
                                            float (&b)[2])
{
    float zero = (float)a.zero;
    b[0] = b[1] = 0;
    if (a.f16_scales) {
        float2 x = __half22float2(*(const __half2 *)at);
        s[0] = x.x, s[1] = x.y;
        if (!a.biased) return;
        float2 y = __half22float2(*(const __half2 *)(at + 4));
        s[1] = y.x, b[0] = fma_(zero, x.x, x.y), b[1] = fma_(zero, y.x, y.y);
    } else if (!a.f32_scales && a.biased) {
        uint2 v = *(const uint2 *)at;
        s[0] = bits(v.x << 16), b[0] = fma_(zero, s[0], bits(v.x & 0xffff0000u));
        s[1] = bits(v.y << 16), b[1] = fma_(zero, s[1], bits(v.y & 0xffff0000u));
    } else if (!a.f32_scales) {
        u32 v = *(const u32 *)at;
        s[0] = bits(v << 16), s[1] = bits(v & 0xffff0000u);
    } else if (a.biased) {
        float4 v = *(const float4 *)at;
        s[0] = v.x, b[0] = fma_(zero, v.x, v.y), s[1] = v.z, b[1] = fma_(zero, v.z, v.w);
    } else {
        float2 v = *(const float2 *)at;
        s[0] = v.x, s[1] = v.y;
    }
}

// A lane's codes of a unit as two fragments. 4 bits: 16 c, from two's complement nibbles.
template <int BITS> __device__ __forceinline__ void read_codes(const uint8_t *at, u32 (&a)[8])
{
    const u32 m = 0xF0F0F0F0u;
    uint4 v = *(const uint4 *)at;
    if (BITS == 4) {
        a[0] = v.x << 4 & m, a[1] = v.y << 4 & m, a[2] = v.x & m, a[3] = v.y & m;
        a[4] = v.z << 4 & m, a[5] = v.w << 4 & m, a[6] = v.z & m, a[7] = v.w & m;
    } else {
        uint4 w = *(const uint4 *)(at + 512);
        a[0] = v.x, a[1] = v.y, a[2] = v.z, a[3] = v.w;
        a[4] = w.x, a[5] = w.y, a[6] = w.z, a[7] = w.w;
    }
}

// A lane's values of a group: outputs g (i = 0) and g + 8, columns 2 t and 2 t + 1: one limb two rows, two
// limbs one row.
template <int BITS, int LIMBS, int A> struct group_product {
    static constexpr int ROWS = LIMBS == 1 ? 2 : 1; // of a lane
    float i[2][ROWS];                               // (float)I

    // sub: the part of the unit, if a group is less than a unit
    __device__ __forceinline__ void run(const u32 (&a)[8], const uint4 &b, int sub)
    {
        constexpr int START = LIMBS == 1 ? MAGIC : 0;
        int d[4] = {START, START, START, START};
        if (A == 64) mma(d, a, b.x, b.y), mma(d, a + 4, b.z, b.w);
        else if (A == 16) mma_half(d, a + sub * 2, sub == 0 ? b.x : sub == 1 ? b.y : sub == 2 ? b.z : b.w);
        else if (sub == 0) mma(d, a, b.x, b.y);
        else mma(d, a + 4, b.z, b.w);
#pragma unroll
        for (int h = 0; h < 2; h++) {
            if (LIMBS == 1) {
                constexpr float UNIT = BITS == 4 ? 0.0625f : 1;
#pragma unroll
                for (int c = 0; c < ROWS; c++)
                    i[h][c] = fma_(__int_as_float(d[h * 2 + c]), UNIT, -MAGIC_F * UNIT); // exact
            } else {
                int sum = BITS == 4 ? d[h * 2] * 16 + (d[h * 2 + 1] >> 4) : d[h * 2] * 256 + d[h * 2 + 1];
                i[h][0] = __int2float_rn(sum);
            }
        }
    }
};

__device__ __forceinline__ float group_value(float s, float b, float i, float x, bool biased)
{
    float t = __fmul_rn(s, i);
    return biased ? fma_(b, x, t) : t;
}

// T over n values f(0) .. f(n - 1), 1 <= n <= EK_CUDA_MAX_LEAVES.
template <class F> __device__ __forceinline__ float tree_sum(F f, int n)
{
    constexpr int LEVELS = 8;
    if (n == 1) return f(0);
    if (n == 2) return f(0) + f(1);
    float node[LEVELS], sum = 0;
    for (int i = 0; i < n; i++) {
        float up = f(i);
        bool put = false;
#pragma unroll
        for (int l = 0; l < LEVELS; l++) {
            if (put) continue;
            if (i >> l & 1) up = node[l] + up;
            else node[l] = up, put = true;
        }
    }
    bool any = false;
#pragma unroll
    for (int l = 0; l < LEVELS; l++)
        if (n >> l & 1) sum = any ? node[l] + sum : node[l], any = true;
    return sum;
}

// n / by, for n below 2^31; over: the largest number of 32 bits over by.
__device__ __forceinline__ int quotient(int n, int by, u32 over, int *rest)
{
    int q = (int)((u64)(u32)n * over >> 32), left = n - q * by;
    if (left >= by) q++, left -= by; // the product is too small by less than 1
    *rest = left;
    return q;
}

// n / by, both below 2^20, in a few instructions.
__device__ __forceinline__ int small_quotient(int n, int by, int *rest)
{
    int q = (int)__fdividef((float)n, (float)by), left = n - q * by; // off by less than 2
    if (left < 0) q--, left += by;
    if (left >= by) q++, left -= by;
    *rest = left;
    return q;
}

} // namespace ek
