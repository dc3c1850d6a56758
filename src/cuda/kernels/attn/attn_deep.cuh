// A lane's part of a piece in shared memory for ek_attn_deep: four adjacent keys of a dim, or four dims of a value,
// decoded once for all queries of a tile (formats: ops/kv/kv_codec.h).
#pragma once

#include "cuda/kernels/attn/attn.cuh"

namespace ek
{

// Pieces: STEP dims of the segment's keys, of each chain, or STEP values. Scales and biases follow the codes.
__device__ __forceinline__ constexpr int deep_bits(int f)
{
    return f == F32 ? 32 : f <= I16 ? 16 : f == Q8 ? 8 : 4;
}

template <int F, int DIM> struct deep_piece {
    static constexpr int BITS = deep_bits(F), FIT = EK_CUDA_ATTN_PIECE * 8 / BITS / DIM, STEP = FIT < 32 ? FIT : 32;
    static constexpr int CODES = STEP * DIM * BITS / 8, SCALES = 2 * DIM;
    static constexpr int BYTES = CODES + (grouped(F) ? SCALES : 0) + (affine(F) ? SCALES : 0);
};

// The 4-bit code at bit p <= 12 of w, as a float. It is placed after the exponent that gives bit p the weight 1; that
// power is subtracted.
__device__ __forceinline__ float code4(u32 w, int p)
{
    return bits((w & 15u << p) | (u32)(150 - p) << 23) - bits((u32)(150 - p) << 23);
}

// An 8-bit code times its scale, by one fma. c, placed after the exponent of 2^15, is 32896 + c. That times the scale,
// minus 32896 scales, is the result; all is exact in 24 bits.
__device__ __forceinline__ float code8(u32 flipped, int i)
{
    return bits(__byte_perm(flipped, 0x47000000u, 0x7404u + (u32)i * 16));
}

__device__ __forceinline__ void four_halves(float (&x)[4], const uint8_t *at)
{
    const uint2 r = *(const uint2 *)at;
    const float2 a = __half22float2(*(const __half2 *)&r.x), b = __half22float2(*(const __half2 *)&r.y);
    x[0] = a.x, x[1] = a.y, x[2] = b.x, x[3] = b.y;
}

template <int F> __device__ __forceinline__ void four_floats(float (&x)[4], const uint8_t *at)
{
    if (F == F32) {
        const float4 v = *(const float4 *)at;
        x[0] = v.x, x[1] = v.y, x[2] = v.z, x[3] = v.w;
    } else if (F == F16) four_halves(x, at);
    else {
        const uint2 r = *(const uint2 *)at;
        if (F == BF16)
            x[0] = bits(r.x << 16), x[1] = bits(r.x & 0xffff0000u), x[2] = bits(r.y << 16),
            x[3] = bits(r.y & 0xffff0000u);
        else {
            const float2 a = two_i16(r.x), b = two_i16(r.y);
            x[0] = a.x, x[1] = a.y, x[2] = b.x, x[3] = b.y;
        }
    }
}

// Four keys over dims of one group.
template <int F> struct deep_keys {
    static constexpr int ROW = F == F32   ? 256
                               : F <= I16 ? 128
                                          : 64,
                         DIMS = F == Q4 ? 2 : 1; // a row of a page: bytes, dims
    float s[4], b[4];

    __device__ __forceinline__ void scales(const uint8_t *at, int apart)
    {
        if (!grouped(F)) return;
        four_halves(s, at);
        if (affine(F)) four_halves(b, at + apart);
        else
#pragma unroll
            for (int i = 0; i < 4; i++) b[i] = s[i] * -32896.0f;
    }

    __device__ __forceinline__ void decode(float (&k)[DIMS][4], const uint8_t *at) const
    {
        if (!grouped(F)) {
            four_floats<F>(k[0], at);
            return;
        }
        const u32 r = *(const u32 *)at, flipped = r ^ 0x80808080u;
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
            for (int d = 0; d < DIMS; d++)
                k[d][i] = fma_(s[i], F == Q8 ? code8(flipped, i) : code4(i < 2 ? r : r >> 16, i % 2 * 8 + d * 4), b[i]);
    }
};

// Four dims of a value: dim and the three after it; for 4 bits dim, dim + 1, dim + 16 and dim + 17.
template <int F> struct deep_values {
    int at, dim; // in a row
    int scale, apart, row_scale;

    __device__ __forceinline__ void open(int warp, int lane, int shift, int groups, int scales, int biases)
    {
        dim = F == Q4 ? warp * 128 + lane / 8 * 32 + lane % 8 * 2 : warp * 128 + lane * 4;
        at = F == Q4 ? warp * 64 + lane * 2 : dim * (deep_bits(F) / 8);
        scale = scales + (dim >> shift) * 2, apart = biases, row_scale = groups * 2;
    }

    __device__ __forceinline__ void decode(float (&v)[4], const uint8_t *piece, int key, int row) const
    {
        const uint8_t *const codes = piece + at + key * row;
        if (!grouped(F)) {
            four_floats<F>(v, codes);
            return;
        }
        const uint8_t *const scales = piece + scale + key * row_scale;
        const float s = half_f32(*(const unsigned short *)scales);
        const float b = affine(F) ? half_f32(*(const unsigned short *)(scales + apart)) : s * -32896.0f;
        const u32 r = F == Q4 ? *(const unsigned short *)codes : *(const u32 *)codes, flipped = r ^ 0x80808080u;
#pragma unroll
        for (int i = 0; i < 4; i++) v[i] = fma_(s, F == Q8 ? code8(flipped, i) : code4(r, i % 2 * 8 + i / 2 * 4), b);
    }
};

// s += x k over the lane's four neighbours, in alternating direction, so that consecutive fma share a kept operand.
template <int N>
__device__ __forceinline__ void add_products(float (&s)[N][4], const float (&x)[N], const float (&k)[4])
{
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int at = n % 2 ? 3 - i : i;
            s[n][at] = fma_(x[n], k[at], s[n][at]);
        }
}

} // namespace ek
