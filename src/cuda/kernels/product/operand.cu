// Quantises rows in groups of 64 directly into the order of products by wgmma (cuda/operand_args.h): the result of
// ek_arrange, without records.
#include "cuda/operand_args.h"
#include "cuda/kernels/norm.cuh"
#include "cuda/kernels/quantize.cuh"
#include "cuda/kernels/row.cuh"

using namespace ek;

// Four lanes have bytes i of four words; lane j gets word j, made of byte j of each.
__device__ __forceinline__ u32 turn_bytes(u32 own)
{
    const int j = threadIdx.x % 4;
    u32 other = __shfl_xor_sync(~0u, own, 1);
    own = __byte_perm(own, other, j & 1 ? 0x3715 : 0x6240);
    other = __shfl_xor_sync(~0u, own, 2);
    return __byte_perm(own, other, j & 2 ? 0x3276 : 0x5410);
}

// The row's column in an operand, for two units.
template <int LIMBS> __device__ __forceinline__ uint8_t *pair_of(u64 operand, int row, int pairs, int pair)
{
    constexpr int ROWS = EK_CUDA_WIDE_COLUMNS / LIMBS;
    return (uint8_t *)operand + ((int64_t)(row / ROWS) * pairs + pair) * EK_CUDA_WIDE_PAIR;
}

// By half a warp: v are elements 16 i + lane of block b of 128, which is two units; n is whole units. A value placed
// after the exponent of 2^23 is rounded like __float2int_rn. The bits of q are its own, and with 128 added the high
// limb begins at bit 8.
__device__ __forceinline__ void write_operands(const ek_cuda_operands &to, int row, int b, const float (&v)[8], int n)
{
    constexpr int ACTS = EK_CUDA_WIDE_COLUMNS * 128;
    const int lane = threadIdx.x % 16, piece = lane / 4, pairs = (n + 127) / 128;
    u32 top[2] = {0, 0};
#pragma unroll
    for (int i = 0; i < 8; i++) top[i / 4] = max(top[i / 4], __float_as_uint(v[i]) & 0x7fffffffu);
#pragma unroll
    for (int apart = 8; apart; apart /= 2)
#pragma unroll
        for (int g = 0; g < 2; g++) top[g] = max(top[g], __shfl_xor_sync(~0u, top[g], apart, 16));
    float inv_mine, sx, sx256; // a lane divides for one group, all lanes take the quotient
    group_scales(lane & 1 ? top[1] : top[0], &inv_mine, &sx, &sx256);
    int sums[2];
#pragma unroll
    for (int g = 0; g < 2; g++) {
        const float inv = __shfl_sync(~0u, inv_mine, g, 16);
        u32 q[4], high, low;
#pragma unroll
        for (int i = 0; i < 4; i++) q[i] = __float_as_uint(__fadd_rn(__fmul_rn(v[g * 4 + i], inv), 12582912.0f));
        low = __byte_perm(__byte_perm(q[0], q[1], 0x40), __byte_perm(q[2], q[3], 0x40), 0x5410);
#pragma unroll
        for (int i = 0; i < 4; i++) q[i] += 128;
        high = __byte_perm(__byte_perm(q[0], q[1], 0x51), __byte_perm(q[2], q[3], 0x51), 0x5410);
        if (!(inv > 0)) low = high = 0;
        sums[g] = __dp4a((int)high, 0x01010101, 0) * 65536 + __dp4a((int)low, 0x01010101, 0);
        high = turn_bytes(high), low = turn_bytes(low);
        if (b * 128 + g * 64 >= n) continue;
        if (to.one) {
            const int column = row % EK_CUDA_WIDE_COLUMNS;
            *(u32 *)(pair_of<1>(to.one, row, pairs, b) + column * 128 + ((g * 4 + piece) ^ column % 8) * 16 +
                     lane % 4 * 4) = high;
        }
        if (to.two) {
            const int column = row % (EK_CUDA_WIDE_COLUMNS / 2) * 2;
            uint8_t *const at = pair_of<2>(to.two, row, pairs, b) + column * 128 + lane % 4 * 4;
            *(u32 *)(at + ((g * 4 + piece) ^ column % 8) * 16) = high;
            *(u32 *)(at + 128 + ((g * 4 + piece) ^ (column + 1) % 8) * 16) = low;
        }
    }
#pragma unroll
    for (int apart = 8; apart; apart /= 2)
#pragma unroll
        for (int g = 0; g < 2; g++) sums[g] += __shfl_xor_sync(~0u, sums[g], apart, 16);
    if (lane >= 2 || b * 128 + lane * 64 >= n) return;
    const int sum = lane ? sums[1] : sums[0], sum_l = (int16_t)sum, sum_h = (sum - sum_l) >> 16;
    if (to.one)
        *(float2 *)(pair_of<1>(to.one, row, pairs, b) + ACTS + lane * 512 + row % 64 * 8) = make_float2(sx256,
                                                                                                        (float)sum_h);
    if (to.two)
        *(float2 *)(pair_of<2>(to.two, row, pairs, b) + ACTS + lane * 256 +
                    row % 32 * 8) = make_float2(sx, (float)(256 * sum_h + sum_l));
}

extern "C" __global__ void __launch_bounds__(256)
    ek_quantize_operands(const __grid_constant__ ek_cuda_quantize_operands_args a)
{
    const int b = blockIdx.x * 16 + threadIdx.x / 16, at = b * 128 + threadIdx.x % 16;
    const float *x = (const float *)a.x + blockIdx.y * a.ldx;
    float v[8];
    let_next_start();
    wait_for_previous();
#pragma unroll
    for (int i = 0; i < 8; i++) v[i] = at + i * 16 < a.k ? x[at + i * 16] : 0;
    write_operands(a.to, blockIdx.y, b, v, a.k);
}

constexpr int STAGE_THREADS = EK_CUDA_STAGE_ROWS_WIDTH / 8;

template <bool EXPERTS> __device__ __forceinline__ void stage(const ek_cuda_stage_rows_args &p)
{
    __shared__ float leaf[4][STAGE_THREADS / 32], pair_weight[EK_CUDA_MAX_TOP_K];
    __shared__ int32_t pair[EK_CUDA_MAX_TOP_K];
    const ek_cuda_stage_args &a = p.s;
    const int r = blockIdx.x, at = stage_row::first(), n = a.n;
    stage_row h, y;
    let_next_start();
    const float scalar = a.scalar ? *(const float *)a.scalar : 1;
    wait_for_previous();
    h.read((const float *)(EXPERTS && a.h_from ? a.h_from : a.h) + r * a.ld, n);
    if (a.y) {
        y.read((const float *)a.y + r * a.ld, n);
        if (EXPERTS) {
            if ((int)threadIdx.x < a.top_k) {
                pair_weight[threadIdx.x] = ((const float *)a.weight)[r * a.top_k + threadIdx.x];
                pair[threadIdx.x] = ((const int32_t *)a.row_pair)[r * a.top_k + threadIdx.x];
            }
            __syncthreads();
            const float *const outs = (const float *)a.pair_out + at;
            stage_row sum, norm;
#pragma unroll
            for (int i = 0; i < 8; i++) sum.v[i] = 0;
#pragma unroll 2
            for (int k = 0; k < a.top_k; k++) {
                const float f = pair_weight[k], *out = outs + pair[k] * a.ld;
#pragma unroll
                for (int i = 0; i < 8; i++)
                    if (at + i * 16 < n) sum.v[i] = fma_(f, out[i * 16], sum.v[i]);
            }
            const float f1 = y.factor(n, a.eps, leaf[0]), f2 = sum.factor(n, a.eps, leaf[1]);
            norm.read((const float *)a.norm_1, n);
#pragma unroll
            for (int i = 0; i < 8; i++) y.v[i] = y.v[i] * f1 * norm.v[i];
            norm.read((const float *)a.norm_2, n);
#pragma unroll
            for (int i = 0; i < 8; i++) y.v[i] = y.v[i] + sum.v[i] * f2 * norm.v[i];
        }
        stage_row w;
        w.read((const float *)a.y_norm, n);
        const float f = y.factor(n, a.eps, leaf[2]);
#pragma unroll
        for (int i = 0; i < 8; i++) h.v[i] = h.v[i] + y.v[i] * f * w.v[i];
    }
    if (a.scalar)
#pragma unroll
        for (int i = 0; i < 8; i++) h.v[i] = h.v[i] * scalar;
    if (a.y || a.scalar) h.write((float *)a.h + r * a.ld, n);
    if (a.x_norm) {
        stage_row norm;
        norm.read((const float *)a.x_norm, n);
        const float f = h.factor(n, a.eps, leaf[3]);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const float v = h.v[i] * f * norm.v[i];
            h.v[i] = a.has_factor ? v * a.factor : v;
        }
    }
    if (a.x) h.write((float *)a.x + r * a.ld, n);
    if (a.to.q) quantize_block<64>(a.to, r, threadIdx.x / 16, h.v, n);
    if (p.to.one || p.to.two) write_operands(p.to, r, threadIdx.x / 16, h.v, n);
}

extern "C" __global__ void __launch_bounds__(STAGE_THREADS, 2)
    ek_stage_rows(const __grid_constant__ ek_cuda_stage_rows_args p)
{
    stage<false>(p);
}

extern "C" __global__ void __launch_bounds__(STAGE_THREADS)
    ek_stage_rows_experts(const __grid_constant__ ek_cuda_stage_rows_args p)
{
    stage<true>(p);
}
