// One element of a matrix in the device's layout, equal to that of ek_linear_row (ops/linear/linear.h).
#pragma once

#include <cuda_fp16.h>

#include "cuda/kernels/math.cuh"
#include "cuda/model_args.h"

namespace ek
{

// Element (o of 16, k) of Form Q in the device's layout: its centred code.
__device__ __forceinline__ int code_of(const uint8_t *unit, int o, int kk, int bits, int a_group)
{
    const int j = a_group == 64 ? kk / 8 % 2 : kk / 32, t = a_group == 64   ? kk / 16
                                                            : a_group == 32 ? kk % 32 / 8
                                                                            : kk % 16 / 4;
    const int upper = a_group == 16 ? kk / 16 % 2 : kk / 4 % 2, e = kk % 4, lane = o % 8 * 4 + t, i = o / 8;
    if (bits == 8) return (int8_t)unit[j * 512 + lane * 16 + (i + 2 * upper) * 4 + e];
    int c = unit[lane * 16 + (j * 2 + i) * 4 + e];
    c = upper ? c >> 4 : c & 15;
    return c >= 8 ? c - 16 : c;
}

// Element k of row `id` of the matrix in a.
__device__ __forceinline__ float element(const ek_cuda_embed_args &a, int64_t id, int k)
{
    const int o = (int)(id % 16);
    const int64_t panel = id / 16;
    float v;
    if (a.form < 3) {
        const int size = a.form == 0 ? 4 : 2;
        const uint8_t *at = (const uint8_t *)a.codes + panel * (((int64_t)a.k * 16 * size + 63) / 64 * 64) +
                            ((int64_t)k * 16 + o) * size;
        if (a.form == 0) v = *(const float *)at;
        else {
            unsigned short u = *(const unsigned short *)at;
            v = a.form == 1 ? __half2float(__ushort_as_half(u)) : bits((u32)u << 16);
        }
    } else {
        const int64_t units = (a.k + 63) / 64, groups = a.k >> a.group_shift;
        const int c = code_of((const uint8_t *)a.codes + (panel * units + k / 64) * a.bits * 128, o, k % 64, a.bits,
                              a.a_group);
        const int64_t g = (panel * groups + (k >> a.group_shift)) * 8 + o % 8; // of pairs of outputs g and g + 8
        float s, b = 0;
        if (a.f32_scales) {
            const float *at = (const float *)a.scales + g * (a.biased ? 4 : 2) + o / 8 * (a.biased ? 2 : 1);
            s = at[0];
            if (a.biased) b = at[1];
        } else {
            const unsigned short *at = (const unsigned short *)a.scales + g * (a.biased ? 4 : 2) +
                                       o / 8 * (a.biased ? 2 : 1);
            auto value = [&](int i) {
                return a.f16_scales ? __half2float(__ushort_as_half(at[i])) : bits((u32)at[i] << 16);
            };
            s = value(0);
            if (a.biased) b = value(1);
        }
        v = a.biased ? fma_(s, (float)(c + a.zero), b) : s * (float)c;
    }
    return v;
}

} // namespace ek
