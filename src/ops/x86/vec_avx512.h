/* Sixteen floats of AVX-512 under the names that the shared kernel bodies use. */
#ifndef EK_OPS_X86_VEC_AVX512_H
#define EK_OPS_X86_VEC_AVX512_H

#include <immintrin.h>
#include <stdint.h>

#include "ops/inline.h"

typedef __m512 vf;
typedef __m512i vi;
typedef __mmask16 vm;
enum { W = 16 };

#define V_(name)  _mm512_##name
#define VI_(name) _mm512_##name##_si512
typedef unsigned v_count; /* bits of a shift */

INLINE __m256i v_half(const void *p)
{
    return _mm256_loadu_si256((const __m256i *)p);
}
INLINE __m256i v_half_part(const void *p, int n)
{
    return _mm256_maskz_loadu_epi16((__mmask16)((1u << n) - 1), p);
}
INLINE __m128i v_quarter(const void *p)
{
    return _mm_loadu_si128((const __m128i *)p);
}
INLINE vf v_as_float(vi x)
{
    return _mm512_castsi512_ps(x);
}
INLINE vi v_bits(vf x)
{
    return _mm512_castps_si512(x);
}
INLINE vi vi_load(const int *p)
{
    return _mm512_loadu_si512(p);
}
INLINE void vi_store(int *p, vi x)
{
    _mm512_storeu_si512(p, x);
}

#include "ops/x86/vec_width.h"

INLINE vf v_from_f16_part(const uint16_t *p, int n)
{
    if (n == W) return v_from_f16(p);
    return _mm512_cvtph_ps(v_half_part(p, n));
}
INLINE vf v_set1_f16(const uint16_t *p)
{
    return _mm512_cvtph_ps(_mm256_set1_epi16((short)*p));
}

INLINE vf v_round(vf x)
{
    return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

INLINE vi vi_iota(void)
{
    return _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}
/* Each 32 bits: + the products of the two signed 16-bit halves with those at `pair`. In assembly, because gcc 12 copies
 * every sum of the intrinsic from register to register. */
INLINE vi vi_dot16(vi sum, vi a, const int16_t *pair)
{
    __asm__("vpdpwssd %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(a), "m"(*(const int16_t(*)[2])pair));
    return sum;
}
/* Lane l gets lane l ^ h, h a power of two below W. */
INLINE vf v_partner(vf x, int h)
{
    return h == 1   ? _mm512_permute_ps(x, 0xb1)
           : h == 2 ? _mm512_permute_ps(x, 0x4e)
           : h == 4 ? _mm512_shuffle_f32x4(x, x, 0xb1)
                    : _mm512_shuffle_f32x4(x, x, 0x4e);
}
INLINE void vi_store_16(int16_t *p, vi x) /* the lower halves */
{
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtepi32_epi16(x));
}
INLINE int vi_reduce_max(vi x)
{
    return _mm512_reduce_max_epi32(x);
}

INLINE vm vm_and(vm a, vm b)
{
    return (vm)(a & b);
}
INLINE vm v_less(vf a, vf b)
{
    return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ);
} /* false for NaN */
INLINE vm v_same(vf a, vf b)
{
    return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ);
}
INLINE vm vi_less(vi a, vi b)
{
    return _mm512_cmplt_epi32_mask(a, b);
}
INLINE vf v_pick(vm m, vf yes, vf no)
{
    return _mm512_mask_blend_ps(m, no, yes);
}
INLINE vi vi_pick(vm m, vi yes, vi no)
{
    return _mm512_mask_blend_epi32(m, no, yes);
}
INLINE int vm_any(vm m)
{
    return m != 0;
}

/* The first n <= W elements; the rest +0. */
INLINE vf v_load_part(const float *p, int n)
{
    return _mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), p);
}
INLINE void v_store_part(float *p, vf x, int n)
{
    _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1), x);
}

INLINE vf v_load_bf16_part(const uint16_t *p, int n)
{
    return v_as_float(vi_shl(_mm512_cvtepu16_epi32(v_half_part(p, n)), 16));
}

/* A permutation uses only the low 4 bits of an index, so a table of 16 floats needs no mask and no conversion. If scale
 * and bias are the same in all lanes, the table holds the decoded values. */
INLINE vi u4_at(const uint8_t *p, int shift)
{
    vi x = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p));
    return shift == 0 ? x : _mm512_srl_epi32(x, _mm_cvtsi32_si128(shift));
}
INLINE vf u4_floats(void)
{
    return _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}
INLINE vf v_from_u4(const uint8_t *p, int shift)
{
    return _mm512_permutexvar_ps(u4_at(p, shift), u4_floats());
}
INLINE vf v_affine_u4(const uint8_t *p, int shift, vf s, vf b) /* s is the same in all lanes, and so is b */
{
    return _mm512_permutexvar_ps(u4_at(p, shift), v_fma(s, u4_floats(), b));
}
INLINE vf v_from_nibble(vi a) /* the lowest nibble of each dword, minus 8 */
{
    return _mm512_permutexvar_ps(
        a, _mm512_setr_ps(-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7)); /* reads 4 bits */
}

/* After v_load_bf16_pair. */
INLINE void v_in_order(vf x[2])
{
    const vi lo = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    const vi hi = _mm512_setr_epi32(8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
    vf even = x[0];
    x[0] = _mm512_permutex2var_ps(even, lo, x[1]);
    x[1] = _mm512_permutex2var_ps(even, hi, x[1]);
}

/* Sums of 16 lanes: one vector here, two in AVX2. Added 8, 4, 2, 1 apart. */
enum { LANE_VECS = 1 };
INLINE float v_add_lanes(const vf *lane)
{
    __m256 s8 = _mm256_add_ps(_mm512_castps512_ps256(lane[0]), _mm512_extractf32x8_ps(lane[0], 1));
    return v_add_eight(s8);
}

/* 16 vectors of 16 dwords become their columns. */
INLINE void vi_transpose(vi *r)
{
    __m512i t[16];
    UNROLL for (int i = 0; i < 16; i += 4)
    {
        __m512i a = _mm512_unpacklo_epi32(r[i], r[i + 1]), b = _mm512_unpackhi_epi32(r[i], r[i + 1]);
        __m512i c = _mm512_unpacklo_epi32(r[i + 2], r[i + 3]), d = _mm512_unpackhi_epi32(r[i + 2], r[i + 3]);
        t[i] = _mm512_unpacklo_epi64(a, c), t[i + 1] = _mm512_unpackhi_epi64(a, c);
        t[i + 2] = _mm512_unpacklo_epi64(b, d), t[i + 3] = _mm512_unpackhi_epi64(b, d);
    }
    UNROLL for (int i = 0; i < 4; i++) /* column 4 l + i lies in quarter l of t[i], t[4 + i], … */
    {
        __m512i a = _mm512_shuffle_i32x4(t[i], t[4 + i], 0x88), b = _mm512_shuffle_i32x4(t[8 + i], t[12 + i], 0x88);
        __m512i c = _mm512_shuffle_i32x4(t[i], t[4 + i], 0xdd), d = _mm512_shuffle_i32x4(t[8 + i], t[12 + i], 0xdd);
        r[i] = _mm512_shuffle_i32x4(a, b, 0x88), r[8 + i] = _mm512_shuffle_i32x4(a, b, 0xdd);
        r[4 + i] = _mm512_shuffle_i32x4(c, d, 0x88), r[12 + i] = _mm512_shuffle_i32x4(c, d, 0xdd);
    }
}

#endif
