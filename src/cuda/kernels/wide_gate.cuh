// The end of a tile of wide_product.cuh with a gate: gelu of the first product times the second, 64 outputs by 64 rows,
// quantised with one limb and written in ek_arrange's order.
#pragma once

#include "cuda/kernels/quantize.cuh"

namespace ek
{

// 4 codes of one limb, whose sum is added to *sum; inv above 0. A value after the exponent of 2^23 is rounded like
// __float2int_rn, and its bits from 8 on, with 128 added, are the high limb.
__device__ __forceinline__ u32 high_limbs(const float *v, float inv, int *sum)
{
    u32 q[4];
#pragma unroll
    for (int i = 0; i < 4; i++) q[i] = __float_as_uint(__fadd_rn(__fmul_rn(v[i], inv), 12582912.0f)) + 128;
    const u32 word = __byte_perm(__byte_perm(q[0], q[1], 0x51), __byte_perm(q[2], q[3], 0x51), 0x5410);
    *sum = __dp4a((int)word, 0x01010101, *sum);
    return word;
}

// A: inputs of a group. sum: a lane's sums, [matrix][octet of rows][half][row], in wgmma's order; for a block of 128
// threads. between: 17,408 bytes of shared memory that no other code reads. to: two units of an operand, of which this
// is the first or second. Floats go through shared memory, 32 rows at once, to 4 lanes per row. Each lane has the 16
// outputs of a piece of the operand. The code is short, because it runs only once per tile.
template <int A>
__device__ __forceinline__ void gate_tile(const float (&sum)[64], float *between, uint8_t *to, int second)
{
    constexpr int ROW = 68, MATRIX = 32 * ROW; // floats: rows 2 t begin in different banks, and so do rows r and r + 4
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int part = 0; part < 2; part++) {
        __syncthreads(); // the memory is free
#pragma unroll
        for (int m = 0; m < 2; m++)
#pragma unroll
            for (int o = 0; o < 4; o++)
#pragma unroll
                for (int h = 0; h < 2; h++)
#pragma unroll
                    for (int c = 0; c < 2; c++)
                        between[m * MATRIX + ((o * 4 + lane % 4) * 2 + c) * ROW + warp * 16 + h * 8 + lane / 4] =
                            sum[((m * 8 + part * 4 + o) * 2 + h) * 2 + c];
        __syncthreads();
        const int q = lane % 4, r = warp * 8 + lane / 4 % 2 * 4 + lane / 8, row = part * 32 + r;
        // outputs 16 i + 4 q .., of groups of 32 8 i + 4 (q % 2) .. of half q / 2; the oldest leave
        constexpr int STEP = A == 64 ? 16 : 8;
        const float *from = between + r * ROW + (A == 64 ? q * 4 : q / 2 * 32 + q % 2 * 4);
        float v[16];
        u32 top = 0;
#pragma unroll
        for (int i = 0; i < 16; i++) v[i] = 0;
#pragma unroll 1
        for (int i = 0; i < 4; i++) {
            const float4 g = *(const float4 *)(from + i * STEP), u = *(const float4 *)(from + MATRIX + i * STEP);
            const float next[4] = {gelu_(g.x) * u.x, gelu_(g.y) * u.y, gelu_(g.z) * u.z, gelu_(g.w) * u.w};
#pragma unroll
            for (int j = 0; j < 12; j++) v[j] = v[j + 4];
#pragma unroll
            for (int j = 0; j < 4; j++) v[12 + j] = next[j], top = max(top, __float_as_uint(next[j]) & 0x7fffffffu);
        }
        top = max(top, __shfl_xor_sync(~0u, top, 1));
        if (A == 64) top = max(top, __shfl_xor_sync(~0u, top, 2));
        float inv, sx, sx256;
        group_scales(top, &inv, &sx, &sx256);
        int codes = 0;
        u32 word[4];
#pragma unroll
        for (int i = 0; i < 4; i++) word[i] = high_limbs(v + i * 4, inv, &codes);
        if (!(inv > 0)) word[0] = word[1] = word[2] = word[3] = 0, codes = 0;
        codes += __shfl_xor_sync(~0u, codes, 1);
        codes += __shfl_xor_sync(~0u, codes, 2);
        *(uint4 *)(to + row * 128 + ((second * 4 + q) ^ row % 8) * 16) = make_uint4(word[0], word[1], word[2], word[3]);
        if (A == 64 && q == 0) *(float2 *)(to + 8192 + second * 512 + row * 8) = make_float2(sx256, (float)codes);
        if (A == 32 && q % 2 == 0) *(float *)(to + 8192 + second * 512 + q / 2 * 256 + row * 4) = sx256;
    }
}

} // namespace ek
