// Where keys and values lie in a page and what they are worth (ops/kv_codec.h), for kernels whose warps
// read 64 neighbours at a time: the 64 keys of a page for a dim, or 64 dims of a value. A lane holds two of
// them, so that a load of a warp is 64 elements in a row: 256, 128, 64 or 32 bytes.
#pragma once

#include <cuda_fp16.h>

#include "cuda/args.h"
#include "cuda/kernels/math.cuh"

namespace ek {

enum { F32, F16, BF16, I16, Q8, Q4 }; // ek_kv_format

constexpr int PAGE = 64, SEGMENT = 256, GROUP = 32;

// The layer's block of page i of a view; 0: no page.
__device__ __forceinline__ u64 page_block(const ek_cuda_kv &kv, int view, int i)
{
    int number = ((const int32_t *)kv.pages)[view * kv.ld_pages + i];
    return number < 0 ? 0 : kv.base + (u64)kv.stride * (u32)number;
}

struct kv_page_shape {
    int dim, groups;
};

__host__ __device__ __forceinline__ int64_t kv_code_bytes(int f, int dim)
{
    return (int64_t)dim * PAGE * (f == F32 ? 4 : f == Q8 ? 1 : 2);
}

// Bytes of codes in front of the scales.
__device__ __forceinline__ int64_t k_codes(int f, int dim)
{
    return f == Q4 ? (int64_t)dim * PAGE / 2 : kv_code_bytes(f, dim);
}

__device__ __forceinline__ int64_t v_codes(int f, int dim)
{
    return f == Q4 ? (int64_t)((dim + GROUP - 1) / GROUP) * 16 * PAGE : kv_code_bytes(f, dim);
}

__device__ __forceinline__ float half_f32(u32 h)
{
    return __half2float(__ushort_as_half((unsigned short)h));
}

// Integers to floats without a conversion: the code's bits behind the exponent of 2^23, less that and the
// offset that made it unsigned. Exact.
__device__ __forceinline__ float2 two_i16(u32 r)
{
    u32 u = r ^ 0x80008000u;
    return {bits(__byte_perm(u, 0x4B00u, 0x5410)) - 8421376.0f, bits(__byte_perm(u, 0x4B00u, 0x5432)) - 8421376.0f};
}

__device__ __forceinline__ float2 two_i8(u32 r)
{
    u32 u = r ^ 0x8080u;
    return {bits(__byte_perm(u, 0x4B000000u, 0x7440)) - 8388736.0f, bits(__byte_perm(u, 0x4B000000u, 0x7441)) - 8388736.0f};
}

__device__ __forceinline__ float nibble(u32 r, int shift)
{
    return bits((r >> shift & 15u) | 0x4B000000u) - 8388608.0f;
}

__device__ __forceinline__ u32 load32(const uint8_t *p)
{
    return __ldg((const u32 *)p);
}

__device__ __forceinline__ u32 load16(const uint8_t *p)
{
    return __ldg((const unsigned short *)p);
}

// A chunk: ROWS rows of 64 elements as they lie in memory, a lane's two of each.
template <int F> struct chunk {
    static constexpr int ROWS = F == F32 ? 8 : 16; // of V; K: as many dims, twice as many in 4 bits
    static constexpr int K_ROWS = F == Q4 ? 32 : ROWS;
    u32 r[16];
    u32 scale, bias; // K in 8 and 4 bits: of the lane's two keys

    // dims [d, d + K_ROWS) of the page's keys; k is the head's part of the page. Dims behind dim are not read.
    template <bool EDGE> __device__ __forceinline__ void load_k(const uint8_t *k, int dim, int d, int lane)
    {
        int last = dim - 1;
        if (F == F32) {
#pragma unroll
            for (int i = 0; i < 8; i++) {
                int row = EDGE ? min(d + i, last) : d + i;
                uint2 v = __ldg((const uint2 *)(k + (int64_t)row * 256) + lane);
                r[2 * i] = v.x, r[2 * i + 1] = v.y;
            }
        } else if (F == Q4) {
#pragma unroll
            for (int i = 0; i < 16; i++) r[i] = load16(k + (EDGE ? min(d / 2 + i, last / 2) : d / 2 + i) * 64 + lane * 2);
        } else if (F == Q8) {
#pragma unroll
            for (int i = 0; i < 16; i++) r[i] = load16(k + (EDGE ? min(d + i, last) : d + i) * 64 + lane * 2);
        } else {
#pragma unroll
            for (int i = 0; i < 16; i++) r[i] = load32(k + (EDGE ? min(d + i, last) : d + i) * 128 + lane * 4);
        }
        if (F == Q8 || F == Q4) {
            const uint8_t *at = k + k_codes(F, dim) + (d / GROUP) * 128 + lane * 4;
            scale = load32(at);
            if (F == Q4) bias = load32(at + (int64_t)((dim + GROUP - 1) / GROUP) * 128);
        }
    }

    // the two keys of dim d + i
    __device__ __forceinline__ float2 key(int i) const
    {
        if (F == F32) return {bits(r[2 * i]), bits(r[2 * i + 1])};
        if (F == F16) return __half22float2(*(const __half2 *)&r[i]);
        if (F == BF16) return {bits(r[i] << 16), bits(r[i] & 0xffff0000u)};
        if (F == I16) return two_i16(r[i]);
        float2 s = __half22float2(*(const __half2 *)&scale);
        if (F == Q8) {
            float2 c = two_i8(r[i]);
            return {s.x * c.x, s.y * c.y};
        }
        float2 b = __half22float2(*(const __half2 *)&bias);
        int shift = i % 2 * 4;
        return {fma_(s.x, nibble(r[i / 2], shift), b.x), fma_(s.y, nibble(r[i / 2], shift + 8), b.y)};
    }

    // slots [slot, slot + ROWS) of the page's values at the lane's two dims, whose first byte is at v
    __device__ __forceinline__ void load_v(const uint8_t *v, int dim, int slot)
    {
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            if (F == F32) {
                uint2 x = __ldg((const uint2 *)(v + (int64_t)(slot + i) * dim * 4));
                r[2 * i] = x.x, r[2 * i + 1] = x.y;
            } else if (F == Q8) r[i] = load16(v + (int64_t)(slot + i) * dim);
            else if (F == Q4) r[i] = __ldg(v + (int64_t)(slot + i) * ((dim + GROUP - 1) / GROUP * 16));
            else r[i] = load32(v + (int64_t)(slot + i) * dim * 2);
        }
    }

    // the two values of slot + i; s and b: the row's scale and bias where the format has them
    __device__ __forceinline__ float2 value(int i, float s, float b) const
    {
        if (F == F32) return {bits(r[2 * i]), bits(r[2 * i + 1])};
        if (F == F16) return __half22float2(*(const __half2 *)&r[i]);
        if (F == BF16) return {bits(r[i] << 16), bits(r[i] & 0xffff0000u)};
        if (F == I16) return two_i16(r[i]);
        if (F == Q8) {
            float2 c = two_i8(r[i]);
            return {s * c.x, s * c.y};
        }
        return {fma_(s, nibble(r[i], 0), b), fma_(s, nibble(r[i], 4), b)};
    }
};

// A lane's two dims of slice number `slice` of 64: where their bytes begin in a row of values, and which they
// are. Lanes behind the head's last dim read the row's first bytes.
template <int F> __device__ __forceinline__ int64_t lane_dims(int dim, int slice, int lane, int *d0, int *d1, int *group)
{
    int groups = (dim + GROUP - 1) / GROUP;
    if (F == Q4) {
        int g = slice * 2 + lane / 16;
        *d0 = g * GROUP + lane % 16, *d1 = *d0 + 16;
        if (g >= groups) g = 0;
        *group = g;
        return g * 16 + lane % 16;
    }
    *d0 = slice * 64 + lane * 2, *d1 = *d0 + 1;
    int d = *d0 < dim ? *d0 : 0;
    *group = d / GROUP;
    return (int64_t)d * (F == F32 ? 4 : F == Q8 ? 1 : 2);
}

} // namespace ek
