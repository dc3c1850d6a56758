// The layout and the values of keys and values in a page (ops/kv/kv_codec.h), for kernels whose warps read 64
// neighbours at a time: the 64 keys of a page for a dim, or 64 dims of a value. A lane has two of them, so that a load
// of a warp is 64 contiguous elements: 256, 128, 64 or 32 bytes.
#pragma once

#include <cuda_fp16.h>

#include "cuda/args.h"
#include "cuda/kernels/math.cuh"

namespace ek
{

// Kinds of formats (ek_cuda_kv.k_format). PLANES: 6, 5, 3 and 2 bits; the number is known only at run time. ROTATED:
// for attention in integers, 16 or 8 bits (int_codes.cuh).
enum { F32, F16, BF16, I16, Q8, Q4, PLANES, ROTATED };

constexpr int PAGE = 64, SEGMENT = 256, BLOCK = 32; // BLOCK: dims of a value whose codes are contiguous

// The description of the pages of table entry i. The first positions may have their own formats.
template <class A> __device__ __forceinline__ ek_cuda_kv kv_at(const A &a, int i)
{
    return i < a.n_start ? a.start : a.kv;
}

// The layer's block of page i of a view; 0: no page.
__device__ __forceinline__ u64 page_block(const ek_cuda_kv &kv, int view, int i)
{
    int number = ((const int32_t *)kv.pages)[view * kv.ld_pages + i];
    return number < 0 ? 0 : kv.base + (u64)kv.stride * (u32)number;
}

// A head's keys or values: dims, bits of a code, log2 of the dims that share a scale.
struct kv_codec {
    int dim, bits, shift;
    __device__ __forceinline__ int groups() const
    {
        return (dim + (1 << shift) - 1) >> shift;
    }
    __device__ __forceinline__ int low() const // of two planes
    {
        return bits >= 4 ? 4 : 2;
    }
};

__device__ __forceinline__ kv_codec keys_of(const ek_cuda_kv &kv)
{
    return {kv.head_dim, kv.k_bits, kv.k_shift};
}

__device__ __forceinline__ kv_codec values_of(const ek_cuda_kv &kv)
{
    return {kv.head_dim, kv.v_bits, kv.v_shift};
}

// 8 and 4 bits and PLANES have scales by groups; 4 bits and PLANES biases, too.
__device__ __forceinline__ constexpr bool grouped(int f)
{
    return f >= Q8 && f <= PLANES;
}

__device__ __forceinline__ constexpr bool affine(int f)
{
    return f >= Q4;
}

__device__ __forceinline__ int k_plane(int plane, int dim)
{
    return (dim * plane + 7) / 8 * PAGE;
}

__device__ __forceinline__ int v_plane_row(int plane, int dim)
{
    return (dim + BLOCK - 1) / BLOCK * BLOCK / 8 * plane;
}

__device__ __forceinline__ float clamp_(float x, float least, float most)
{
    return x > least ? x < most ? x : most : least; // NaN: least
}

__device__ __forceinline__ unsigned short to_half(float x)
{
    return __half_as_ushort(__float2half_rn(clamp_(x, -65504.0f, 65504.0f)));
}

// Bytes of codes before the scales.
__device__ __forceinline__ int k_codes(int f, const kv_codec &c)
{
    if (f < Q4) return c.dim * PAGE * (f == F32 ? 4 : f == Q8 ? 1 : 2);
    if (f == Q4) return k_plane(4, c.dim);
    return k_plane(c.low(), c.dim) + (c.bits > c.low() ? k_plane(c.bits - c.low(), c.dim) : 0);
}

__device__ __forceinline__ int v_codes(int f, const kv_codec &c)
{
    if (f < Q4) return c.dim * PAGE * (f == F32 ? 4 : f == Q8 ? 1 : 2);
    return PAGE * v_plane_row(f == Q4 ? 4 : c.bits, c.dim);
}

__device__ __forceinline__ float half_f32(u32 h)
{
    return __half2float(__ushort_as_half((unsigned short)h));
}

// Integers to floats without a conversion: the code's bits are placed after the exponent of 2^23. Then that number, and
// the offset that made the code unsigned, are subtracted. Exact.
__device__ __forceinline__ float2 two_i16(u32 r)
{
    u32 u = r ^ 0x80008000u;
    return {bits(__byte_perm(u, 0x4B00u, 0x5410)) - 8421376.0f, bits(__byte_perm(u, 0x4B00u, 0x5432)) - 8421376.0f};
}

__device__ __forceinline__ float2 two_i8(u32 r)
{
    u32 u = r ^ 0x8080u;
    return {bits(__byte_perm(u, 0x4B000000u, 0x7440)) - 8388736.0f,
            bits(__byte_perm(u, 0x4B000000u, 0x7441)) - 8388736.0f};
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

// Codes with fewer than 8 bits, in two bytes of x, as floats.
__device__ __forceinline__ float2 two_codes(u32 x)
{
    return {bits(__byte_perm(x, 0x4B000000u, 0x7440)) - 8388608.0f,
            bits(__byte_perm(x, 0x4B000000u, 0x7441)) - 8388608.0f};
}

// A lane's two dims of slice number `slice` of 64: their indices, the group of their scale, and their offset in a row
// of values. Lanes after the head's last dim read the row's first bytes.
template <int F> struct lane_dims {
    int d0, d1, group;
    int at, row;                     // bytes
    int high, high_row, shift, bits; // PLANES: of the second plane, from the values' beginning; d0 where 4 bits have it
};

template <int F> __device__ __forceinline__ lane_dims<F> lane_dims_of(const kv_codec &c, int slice, int lane)
{
    lane_dims<F> l;
    if (F == Q4) {
        int g = slice * 2 + lane / 16;
        l.d0 = g * BLOCK + lane % 16, l.d1 = l.d0 + 16;
        if (g >= (c.dim + BLOCK - 1) / BLOCK) g = 0;
        l.group = g * BLOCK >> c.shift;
        l.at = g * 16 + lane % 16, l.row = v_plane_row(4, c.dim);
        return l;
    }
    l.d0 = slice * 64 + lane * 2, l.d1 = l.d0 + 1;
    const int d = l.d0 < c.dim ? l.d0 : 0;
    l.group = d >> c.shift;
    if (F == PLANES) {
        const int low = c.low(), high = c.bits - low;
        l.at = low == 4 ? d / BLOCK * 16 + d % 16 : d / 4, l.row = v_plane_row(low, c.dim);
        l.high = PAGE * l.row + d * high / 8, l.high_row = v_plane_row(high, c.dim);
        l.shift = d % 32, l.bits = c.bits;
    } else {
        const int size = F == F32 ? 4 : F == Q8 ? 1 : 2;
        l.at = d * size, l.row = c.dim * size;
    }
    return l;
}

// A chunk: ROWS rows of 64 elements as in memory, two per lane.
template <int F> struct chunk {
    static constexpr int ROWS = F == F32 || F == PLANES ? 8 : 16; // of V
    static constexpr int K_ROWS = F == Q4 ? 32 : F == F32 ? 8 : 16;
    u32 r[16];
    u32 scale, bias; // K in groups: of the lane's two keys
    int width;       // PLANES, K: bits

    // dims [d, d + K_ROWS) of the page's keys; k is the head's part of the page; dims beyond dim are not read
    template <bool EDGE> __device__ __forceinline__ void load_k(const uint8_t *k, const kv_codec &c, int d, int lane)
    {
        int last = c.dim - 1;
        if (F == F32) {
#pragma unroll
            for (int i = 0; i < 8; i++) {
                int row = EDGE ? min(d + i, last) : d + i;
                uint2 v = __ldg((const uint2 *)(k + (int64_t)row * 256) + lane);
                r[2 * i] = v.x, r[2 * i + 1] = v.y;
            }
        } else if (F == Q4) {
#pragma unroll
            for (int i = 0; i < 16; i++)
                r[i] = load16(k + (EDGE ? min(d / 2 + i, last / 2) : d / 2 + i) * 64 + lane * 2);
        } else if (F == PLANES) {
            width = c.bits;
            if (width >= 4) load_plane<EDGE, 4>(r, k, c.dim, d, lane), k += k_plane(4, c.dim);
            else load_plane<EDGE, 2>(r, k, c.dim, d, lane), k += k_plane(2, c.dim);
            if (width == 6) load_plane<EDGE, 2>(r + 8, k, c.dim, d, lane), k += k_plane(2, c.dim);
            else if (width != 2) load_plane<EDGE, 1>(r + 8, k, c.dim, d, lane), k += k_plane(1, c.dim);
        } else if (F == Q8) {
#pragma unroll
            for (int i = 0; i < 16; i++) r[i] = load16(k + (EDGE ? min(d + i, last) : d + i) * 64 + lane * 2);
        } else {
#pragma unroll
            for (int i = 0; i < 16; i++) r[i] = load32(k + (EDGE ? min(d + i, last) : d + i) * 128 + lane * 4);
        }
        if (grouped(F)) {
            const uint8_t *at = (F == PLANES ? k : k + k_codes(F, c)) + (d >> c.shift) * 128 + lane * 4;
            scale = load32(at);
            if (affine(F)) bias = load32(at + c.groups() * 128);
        }
    }

    // 16 dims of one plane
    template <bool EDGE, int P>
    static __device__ __forceinline__ void load_plane(u32 *to, const uint8_t *k, int dim, int d, int lane)
    {
        const int last = (dim * P - 1) / 8;
#pragma unroll
        for (int i = 0; i < 2 * P; i++)
            to[i] = load16(k + (EDGE ? min(d * P / 8 + i, last) : d * P / 8 + i) * 64 + lane * 2);
    }

    // the codes of dim d + i
    __device__ __forceinline__ u32 plane_codes(int i) const
    {
        const u32 low = width >= 4 ? r[i / 2] >> i % 2 * 4 & 0x0f0fu : r[i / 4] >> i % 4 * 2 & 0x0303u;
        if (width == 2) return low;
        if (width == 6) return low | (r[8 + i / 4] >> i % 4 * 2 & 0x0303u) << 4;
        return low | (r[8 + i / 8] >> i % 8 & 0x0101u) << (width - 1);
    }

    // the two keys of dim d + i
    __device__ __forceinline__ float2 key(int i) const
    {
        if (F == F32) return {bits(r[2 * i % 16]), bits(r[(2 * i + 1) % 16])};
        if (F == F16) return __half22float2(*(const __half2 *)&r[i]);
        if (F == BF16) return {bits(r[i] << 16), bits(r[i] & 0xffff0000u)};
        if (F == I16) return two_i16(r[i]);
        float2 s = __half22float2(*(const __half2 *)&scale);
        if (F == Q8) {
            float2 c = two_i8(r[i]);
            return {s.x * c.x, s.y * c.y};
        }
        float2 b = __half22float2(*(const __half2 *)&bias);
        if (F == PLANES) {
            float2 c = two_codes(plane_codes(i));
            return {fma_(s.x, c.x, b.x), fma_(s.y, c.y, b.y)};
        }
        int shift = i % 2 * 4;
        return {fma_(s.x, nibble(r[i / 2], shift), b.x), fma_(s.y, nibble(r[i / 2], shift + 8), b.y)};
    }

    // slots [slot, slot + ROWS) of the page's values at the lane's two dims; v is the head's part of the page
    __device__ __forceinline__ void load_v(const uint8_t *v, const lane_dims<F> &l, int slot)
    {
        const uint8_t *at = v + l.at + (int64_t)slot * l.row;
#pragma unroll
        for (int i = 0; i < ROWS; i++, at += l.row) {
            if (F == F32) {
                uint2 x = __ldg((const uint2 *)at);
                r[2 * i % 16] = x.x, r[(2 * i + 1) % 16] = x.y;
            } else if (F == Q8) r[i] = load16(at);
            else if (F == Q4) r[i] = __ldg(at);
            else if (F == PLANES) r[i] = l.bits >= 4 ? load16(at) : __ldg(at);
            else r[i] = load32(at);
        }
        if (F != PLANES || l.bits == 2) return;
        at = v + l.high + (int64_t)slot * l.high_row;
#pragma unroll
        for (int i = 0; i < ROWS; i++, at += l.high_row) r[(8 + i) % 16] = __ldg(at);
    }

    // the two values of slot + i; s and b: the row's scale and bias, if the format has them
    __device__ __forceinline__ float2 value(int i, float s, float b, const lane_dims<F> &l) const
    {
        if (F == F32) return {bits(r[2 * i % 16]), bits(r[(2 * i + 1) % 16])};
        if (F == F16) return __half22float2(*(const __half2 *)&r[i]);
        if (F == BF16) return {bits(r[i] << 16), bits(r[i] & 0xffff0000u)};
        if (F == I16) return two_i16(r[i]);
        if (F == Q8) {
            float2 c = two_i8(r[i]);
            return {s * c.x, s * c.y};
        }
        if (F == PLANES) {
            const u32 low = r[i], high = r[(8 + i) % 16];
            const int two = l.shift % 4 * 2;
            u32 x = l.bits >= 4 ? low >> l.shift / 16 * 4 & 0x0f0fu : (low >> two & 3u) | (low >> two << 6 & 0x300u);
            if (l.bits == 6) x |= (high >> two & 3u) << 4 | (high >> two << 10 & 0x3000u);
            else if (l.bits != 2)
                x |= ((high >> l.shift % 8 & 1u) | (high >> l.shift % 8 << 7 & 0x100u)) << (l.bits - 1);
            float2 c = two_codes(x);
            return {fma_(s, c.x, b), fma_(s, c.y, b)};
        }
        return {fma_(s, nibble(r[i], 0), b), fma_(s, nibble(r[i], 4), b)};
    }
};

} // namespace ek
