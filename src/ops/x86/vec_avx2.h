/* Eight floats of AVX2 and FMA under the names that the shared kernel bodies use. */
#ifndef EK_OPS_X86_VEC_AVX2_H
#define EK_OPS_X86_VEC_AVX2_H

#include <immintrin.h>
#include <stdint.h>

#include "ops/inline.h"

typedef __m256 vf;
typedef __m256i vi;
typedef __m256i vm; /* all ones or all zeros in each lane */
enum { W = 8 };

#define V_(name)  _mm256_##name
#define VI_(name) _mm256_##name##_si256
typedef int v_count; /* bits of a shift */

INLINE __m128i v_half(const void *p)
{
    return _mm_loadu_si128((const __m128i *)p);
}
/* n is 4. */
INLINE __m128i v_half_part(const void *p, int n)
{
    (void)n;
    return _mm_loadl_epi64((const __m128i *)p);
}
INLINE __m128i v_quarter(const void *p)
{
    return _mm_loadl_epi64((const __m128i *)p);
}
INLINE vf v_as_float(vi x)
{
    return _mm256_castsi256_ps(x);
}
INLINE vi v_bits(vf x)
{
    return _mm256_castps_si256(x);
}
INLINE vi vi_load(const int *p)
{
    return _mm256_loadu_si256((const __m256i *)p);
}
INLINE void vi_store(int *p, vi x)
{
    _mm256_storeu_si256((__m256i *)p, x);
}

#include "ops/x86/vec_width.h"

INLINE vf v_from_f16_part(const uint16_t *p, int n)
{
    return n == W ? v_from_f16(p) : _mm256_cvtph_ps(v_half_part(p, n));
}
INLINE vf v_set1_f16(const uint16_t *p)
{
    return _mm256_cvtph_ps(_mm_set1_epi16((short)*p));
}

INLINE vf v_round(vf x)
{
    return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

INLINE vi vi_iota(void)
{
    return _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
}
/* Each 32 bits: + the products of the two signed 16-bit halves with those at `pair`. */
INLINE vi vi_dot16(vi sum, vi a, const int16_t *pair)
{
    const __m256i both = _mm256_castps_si256(_mm256_broadcast_ss((const float *)(const void *)pair));
#ifdef __AVXVNNI__
    sum = _mm256_dpwssd_avx_epi32(sum, a, both);
#else
    sum = _mm256_add_epi32(sum, _mm256_madd_epi16(a, both));
#endif
    IN_REGISTER(sum);
    return sum;
}
/* Lane l gets lane l ^ h, h a power of two below W. */
INLINE vf v_partner(vf x, int h)
{
    return h == 1 ? _mm256_permute_ps(x, 0xb1) : h == 2 ? _mm256_permute_ps(x, 0x4e) : _mm256_permute2f128_ps(x, x, 1);
}
INLINE void vi_store_16(int16_t *p, vi x) /* the lower halves, of numbers that fit */
{
    const __m128i low = _mm256_castsi256_si128(x), high = _mm256_extracti128_si256(x, 1);
    _mm_storeu_si128((__m128i *)p, _mm_packs_epi32(low, high));
}
INLINE int vi_reduce_max(vi x)
{
    __m128i y = _mm_max_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    y = _mm_max_epi32(y, _mm_shuffle_epi32(y, 0x4e));
    return _mm_cvtsi128_si32(_mm_max_epi32(y, _mm_shuffle_epi32(y, 0xb1)));
}

INLINE vm vm_and(vm a, vm b)
{
    return _mm256_and_si256(a, b);
}
INLINE vm v_less(vf a, vf b)
{
    return v_bits(_mm256_cmp_ps(a, b, _CMP_LT_OQ));
} /* false for NaN */
INLINE vm v_same(vf a, vf b)
{
    return v_bits(_mm256_cmp_ps(a, b, _CMP_EQ_OQ));
}
INLINE vm vi_less(vi a, vi b)
{
    return _mm256_cmpgt_epi32(b, a);
}
INLINE vf v_pick(vm m, vf yes, vf no)
{
    return _mm256_blendv_ps(no, yes, v_as_float(m));
}
INLINE vi vi_pick(vm m, vi yes, vi no)
{
    return _mm256_blendv_epi8(no, yes, m);
}
INLINE int vm_any(vm m)
{
    return !_mm256_testz_si256(m, m);
}

/* The first n <= W elements; the rest +0. */
INLINE vm vm_first(int n)
{
    return vi_less(vi_iota(), vi_set1(n));
}
INLINE vf v_load_part(const float *p, int n)
{
    return _mm256_maskload_ps(p, vm_first(n));
}
INLINE void v_store_part(float *p, vf x, int n)
{
    _mm256_maskstore_ps(p, vm_first(n), x);
}

/* n is 4 or 8. */
INLINE vf v_load_bf16_part(const uint16_t *p, int n)
{
    if (n == W) return v_load_bf16(p);
    return v_as_float(vi_shl(_mm256_cvtepu16_epi32(_mm_loadl_epi64((const __m128i *)p)), 16));
}

INLINE vf v_from_u4(const uint8_t *p, int shift)
{
    vi x = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p));
    return _mm256_cvtepi32_ps(vi_and(_mm256_srl_epi32(x, _mm_cvtsi32_si128(shift)), vi_set1(15)));
}
INLINE vf v_affine_u4(const uint8_t *p, int shift, vf s, vf b)
{
    return v_fma(s, v_from_u4(p, shift), b);
}
INLINE vf v_from_nibble(vi a) /* the lowest of each dword, less 8 */
{
    return vi_to_float(vi_sub(vi_and(a, vi_set1(15)), vi_set1(8)));
}

/* After v_load_bf16_pair. */
INLINE void v_in_order(vf x[2])
{
    vf lo = _mm256_unpacklo_ps(x[0], x[1]), hi = _mm256_unpackhi_ps(x[0], x[1]);
    x[0] = _mm256_permute2f128_ps(lo, hi, 0x20);
    x[1] = _mm256_permute2f128_ps(lo, hi, 0x31);
}

/* Sums of 16 lanes in two vectors: lanes 0..7, 8..15. Added 8, 4, 2, 1 apart. */
enum { LANE_VECS = 2 };
INLINE float v_add_lanes(const vf *lane)
{
    __m256 s8 = _mm256_add_ps(lane[0], lane[1]);
    return v_add_eight(s8);
}

/* 8 vectors of 8 dwords become their columns. */
INLINE void vi_transpose(vi *r)
{
    __m256i t[8];
    UNROLL for (int i = 0; i < 8; i += 4)
    {
        __m256i a = _mm256_unpacklo_epi32(r[i], r[i + 1]), b = _mm256_unpackhi_epi32(r[i], r[i + 1]);
        __m256i c = _mm256_unpacklo_epi32(r[i + 2], r[i + 3]), d = _mm256_unpackhi_epi32(r[i + 2], r[i + 3]);
        t[i] = _mm256_unpacklo_epi64(a, c), t[i + 1] = _mm256_unpackhi_epi64(a, c);
        t[i + 2] = _mm256_unpacklo_epi64(b, d), t[i + 3] = _mm256_unpackhi_epi64(b, d);
    }
    UNROLL for (int i = 0; i < 4; i++)
    {
        r[i] = _mm256_permute2x128_si256(t[i], t[4 + i], 0x20);
        r[4 + i] = _mm256_permute2x128_si256(t[i], t[4 + i], 0x31);
    }
}

#endif
