/* Decoders of formats with groups (attn_groups.h), AVX2: eight codes at a time, in order. */
#ifndef EK_OPS_X86_ATTN_DECODE_AVX2_H
#define EK_OPS_X86_ATTN_DECODE_AVX2_H

#include <string.h>

#include "ops/kv/kv_codec.h"
#include "ops/x86/vec_avx2.h"

enum { TILE_DIMS = 32, VALUE_SLOTS = 32, VALUE_DIMS = 64 };

/* 64 of f16 */
INLINE void page_scales(const ek_f16 *at, float *s)
{
    for (int i = 0; i < EK_PAGE_TOKENS; i += W) v_store(s + i, v_from_f16(at + i));
}

INLINE void order_keys(vf *x)
{
    (void)x;
}

INLINE vi bytes_at(const uint8_t *p)
{
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p));
}

INLINE vi bits_of(vi x, const int shift, const int mask)
{
    return vi_and(_mm256_srli_epi32(x, shift), vi_set1(mask));
}

/* Four dims at a time: two rows of the 4-bit plane, one row of the 2-bit plane, half the dims of a row of
 * the 1-bit plane. */
INLINE void decode_keys_planes(const int bits, const uint8_t *k, int dim, int d0, int n, const float *s, const float *b,
                               float *tile)
{
    const uint8_t *nibbles = k, *twos = k + (bits & 4 ? ek_kv_k_plane(4, dim) : 0);
    const uint8_t *ones = twos + (bits & 2 ? ek_kv_k_plane(2, dim) : 0);
    for (int d = d0; d < d0 + n; d += 4, tile += 4 * EK_PAGE_TOKENS) {
        const uint8_t *four_at = nibbles + d / 2 * EK_PAGE_TOKENS, *two_at = twos + d / 4 * EK_PAGE_TOKENS;
        const uint8_t *one_at = ones + d / 8 * EK_PAGE_TOKENS;
        const __m128i half = _mm_cvtsi32_si128(d & 4);
        for (int key = 0; key < EK_PAGE_TOKENS; key += W) {
            const vf scale = v_load(s + key), bias = v_load(b + key);
            vi four[2], two, one;
            if (bits & 4) UNROLL for (int h = 0; h < 2; h++) four[h] = bytes_at(four_at + h * EK_PAGE_TOKENS + key);
            if (bits & 2) two = bytes_at(two_at + key);
            if (bits & 1) one = _mm256_srl_epi32(bytes_at(one_at + key), half);
            UNROLL for (int h = 0; h < 4; h++)
            {
                vi code = vi_set1(0);
                if (bits & 4) code = h % 2 ? _mm256_srli_epi32(four[h / 2], 4) : vi_and(four[h / 2], vi_set1(15));
                if (bits & 2) code = vi_or(code, vi_shl(bits_of(two, 2 * h, 3), bits & 4));
                if (bits & 1) code = vi_or(code, vi_shl(bits_of(one, h, 1), bits & 6));
                v_store(tile + h * EK_PAGE_TOKENS + key, v_fma(scale, _mm256_cvtepi32_ps(code), bias));
            }
        }
    }
}

/* 8 keys of dim d from `key` on, in 8 or 4 bits; k: the page's first row of the chain's codes. */
INLINE vf key_vector(const int bits, const uint8_t *k, const int d, int key, vf s, vf b)
{
    if (bits == 8) return v_mul(s, v_from_i8((const int8_t *)k + d * EK_PAGE_TOKENS + key));
    const vi both = bytes_at(k + d / 2 * EK_PAGE_TOKENS + key);
    return v_fma(s, _mm256_cvtepi32_ps(d % 2 ? _mm256_srli_epi32(both, 4) : vi_and(both, vi_set1(15))), b);
}

/* Dims [d, d + n) of a page's 64 keys, n a multiple of 4, to tile[n][64]; s and b as page_scales made them. */
APART void decode_keys(const int bits, const uint8_t *k, int dim, int d, int n, const float *s, const float *b,
                       float *tile)
{
    switch (bits) {
    case 8:
        k += d * EK_PAGE_TOKENS;
        for (int i = 0; i < n * EK_PAGE_TOKENS; i += EK_PAGE_TOKENS)
            UNROLL for (int key = 0; key < EK_PAGE_TOKENS; key += W)
                v_store(tile + i + key, v_mul(v_load(s + key), v_from_i8((const int8_t *)k + i + key)));
        break;
    case 6: decode_keys_planes(6, k, dim, d, n, s, b, tile); break;
    case 5: decode_keys_planes(5, k, dim, d, n, s, b, tile); break;
    case 4: decode_keys_planes(4, k, dim, d, n, s, b, tile); break;
    case 3: decode_keys_planes(3, k, dim, d, n, s, b, tile); break;
    default: decode_keys_planes(2, k, dim, d, n, s, b, tile);
    }
}

/* --- values */

INLINE vi word_at(const uint8_t *p)
{
    int x;
    memcpy(&x, p, sizeof x);
    return vi_set1(x);
}

/* Vector c of 8 of a slot's dims, in 8 or 4 bits; code: its first dim of 64. */
INLINE vf value_vector(const int bits, const uint8_t *code, const int c, const float *s, const float *b)
{
    if (bits == 8) return v_mul(v_set1(*s), v_from_i8((const int8_t *)code + c * W));
    const vi both = bytes_at(code + c / 4 * 16 + c % 2 * 8);
    const vi codes = c % 4 < 2 ? vi_and(both, vi_set1(15)) : _mm256_srli_epi32(both, 4);
    return v_fma(v_set1(*s), _mm256_cvtepi32_ps(codes), v_set1(*b));
}

INLINE void decode_values_planes(const int bits, const uint8_t *v, int dim, int slot, int n, int d, const float *s,
                                 const float *b, int stride, float *tile)
{
    const size_t blocks = ek_kv_padded(dim) / 32, first = (size_t)slot * blocks + (size_t)d / 32;
    const uint8_t *nibbles = v + first * 16, *twos = v + (bits & 4 ? ek_kv_v_plane(4, dim) : 0);
    const uint8_t *ones = twos + (bits & 2 ? ek_kv_v_plane(2, dim) : 0) + first * 4;
    const vi lane = vi_iota();
    twos += first * 8;
    for (int j = 0; j < n; j++, tile += VALUE_DIMS) {
        const vf scale = v_set1(s[j * stride]), bias = v_set1(b[j * stride]);
        UNROLL for (int h = 0; h < 4; h++) /* 8 dims */
        {
            vi code = vi_set1(0);
            if (bits & 4) code = bits_of(bytes_at(nibbles + h % 2 * 8), h / 2 * 4, 15);
            if (bits & 2) {
                vi two = _mm256_srlv_epi32(word_at(twos + h / 2 * 4), vi_add(vi_add(lane, lane), vi_set1(h % 2 * 16)));
                code = vi_or(code, vi_shl(vi_and(two, vi_set1(3)), bits & 4));
            }
            if (bits & 1) {
                vi one = _mm256_srlv_epi32(word_at(ones), vi_add(lane, vi_set1(h * 8)));
                code = vi_or(code, vi_shl(vi_and(one, vi_set1(1)), bits & 6));
            }
            v_store(tile + h * W, v_fma(scale, _mm256_cvtepi32_ps(code), bias));
        }
        nibbles += blocks * 16, twos += blocks * 8, ones += blocks * 4;
    }
}

#endif
