// A group of activations as a quantised row has it (ops/linear.h): the one place where the kernels round them.
#pragma once

#include "cuda/args.h"
#include "cuda/kernels/math.cuh"

namespace ek {

// By one warp: v are elements lane and lane + 32 of group g, 0 where there are none; groups of 32 have only the first.
__device__ __forceinline__ void quantize_group(const ek_cuda_acts &to, int64_t row, int g, const float (&v)[2])
{
    const int lane = threadIdx.x % 32;
    u32 top = __float_as_uint(v[0]) & 0x7fffffffu;
    if (to.a_group == 64) top = max(top, __float_as_uint(v[1]) & 0x7fffffffu);
    top = __reduce_max_sync(~0u, top);
    float most = bits(top), inv = 0, sx = 0, sx256 = 0;
    if (top >= 0x7f800000u) sx = sx256 = bits(0x7fc00000u);
    else if (most >= 0x1p-100f) sx = __fdiv_rn(most, 32512.0f), inv = __fdiv_rn(32512.0f, most), sx256 = 256 * sx;
    int8_t *h = (int8_t *)to.q + row * to.ldq, *l = h + to.low;
    int sum_h = 0, sum_q = 0;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        if (i * 32 >= to.a_group) break;
        int q = inv > 0 ? __float2int_rn(__fmul_rn(v[i], inv)) : 0, high = (q + 128) >> 8;
        int at = g * to.a_group + lane + i * 32;
        h[at] = (int8_t)high;
        l[at] = (int8_t)(q - 256 * high);
        sum_h += high, sum_q += q;
    }
    sum_h = __reduce_add_sync(~0u, sum_h), sum_q = __reduce_add_sync(~0u, sum_q);
    if (lane == 0) {
        *(float2 *)((uint8_t *)h + to.groups[0] + g * 8) = make_float2(sx256, (float)sum_h);
        *(float2 *)((uint8_t *)h + to.groups[1] + g * 8) = make_float2(sx, (float)sum_q);
    }
}

} // namespace ek
