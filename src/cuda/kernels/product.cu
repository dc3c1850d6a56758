// Quantising rows, and products of Form Q for few rows (contract: ops/linear.h).
#include "cuda/kernels/product_few.cuh"

using namespace ek;

// A warp a group. A lane holds elements lane and, in groups of 64, lane + 32.
extern "C" __global__ void __launch_bounds__(256) ek_quantize(const __grid_constant__ ek_cuda_quantize_args a)
{
    const ek_cuda_acts &to = a.to;
    const int lane = threadIdx.x % 32, g = blockIdx.x * 8 + threadIdx.x / 32, row = blockIdx.y;
    let_next_start();
    wait_for_previous();
    if (g * to.a_group >= to.k) return;
    const float *x = (const float *)a.x + row * a.ldx;
    float v[2];
    u32 top = 0;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        int at = g * to.a_group + lane + i * 32;
        v[i] = i * 32 < to.a_group && at < to.k ? x[at] : 0;
        top = max(top, __float_as_uint(v[i]) & 0x7fffffffu);
    }
    top = __reduce_max_sync(~0u, top);
    float most = bits(top), inv = 0, sx = 0, sx256 = 0;
    if (top >= 0x7f800000u) sx = sx256 = bits(0x7fc00000u);
    else if (most >= 0x1p-100f) sx = __fdiv_rn(most, 32512.0f), inv = __fdiv_rn(32512.0f, most), sx256 = 256 * sx;
    int8_t *h = (int8_t *)a.to.q + row * to.ldq, *l = h + to.low;
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

#define FEW(BITS, LIMBS, A, OCT)                                                                                      \
    extern "C" __global__ void __launch_bounds__(A == 32 || OCT > 1 ? 512 : 768, 1)                                               \
        ek_product_q##BITS##_l##LIMBS##_a##A##_o##OCT(const __grid_constant__ ek_cuda_linear_args a)                  \
    {                                                                                                                 \
        few<BITS, LIMBS, A, OCT>(a, blockIdx.y * (OCT * 8 / LIMBS), [&](int r) { return (const uint8_t *)a.x.q + r * a.x.ldq; });                                                                                  \
    }
#define FEW_OF(BITS, A) FEW(BITS, 1, A, 1) FEW(BITS, 1, A, 2) FEW(BITS, 2, A, 1) FEW(BITS, 2, A, 2) FEW(BITS, 2, A, 4)
FEW_OF(4, 64)
FEW_OF(8, 64)
FEW_OF(4, 32)
FEW_OF(8, 32)
