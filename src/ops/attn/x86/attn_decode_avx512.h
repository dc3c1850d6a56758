/* Decoders of formats with groups (attn_groups.h), AVX-512.
 *
 * Keys: 64 bytes hold the codes of a page's 64 keys for a dim, or for the dims that share bytes. Shifts divide their
 * dwords, so that vector j of a tile's row has keys 4 lane + j; order_keys sorts the sums, once per chain. Codes of at
 * most 4 bits become floats by a permutation of a table, which uses only the lowest bits of an index: no mask, no
 * conversion. */
#ifndef EK_OPS_X86_ATTN_DECODE_AVX512_H
#define EK_OPS_X86_ATTN_DECODE_AVX512_H

#include <string.h>

#include "ops/kv/kv_codec.h"
#include "ops/x86/vec_avx512.h"

enum { TILE_DIMS = 32, VALUE_SLOTS = 32, VALUE_DIMS = 64 };

/* 64 of f16, in the order of a tile's row. */
INLINE void page_scales(const ek_f16 *at, float *s)
{
    const vi even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const vi a = _mm512_loadu_si512(at), b = _mm512_loadu_si512(at + 32);
    const vi pair[2] = {_mm512_permutex2var_epi32(a, even, b),
                        _mm512_permutex2var_epi32(a, _mm512_or_si512(even, vi_set1(1)), b)};
    UNROLL for (int j = 0; j < 4; j++)
    {
        vi half = j % 2 ? _mm512_srli_epi32(pair[j / 2], 16) : pair[j / 2];
        v_store(s + j * W, _mm512_cvtph_ps(_mm512_cvtepi32_epi16(half)));
    }
}

/* Puts sums of 64 keys in a tile's order into ascending order. */
INLINE void order_keys(vf *x)
{
    const vf a = x[0], b = x[1], c = x[2], d = x[3];
    __m512d lo[2] = {_mm512_castps_pd(_mm512_unpacklo_ps(a, b)), _mm512_castps_pd(_mm512_unpacklo_ps(c, d))};
    __m512d hi[2] = {_mm512_castps_pd(_mm512_unpackhi_ps(a, b)), _mm512_castps_pd(_mm512_unpackhi_ps(c, d))};
    const vf u[4] = {_mm512_castpd_ps(_mm512_unpacklo_pd(lo[0], lo[1])), /* quarter l: keys 16 l to 16 l + 3 */
                     _mm512_castpd_ps(_mm512_unpackhi_pd(lo[0], lo[1])),
                     _mm512_castpd_ps(_mm512_unpacklo_pd(hi[0], hi[1])),
                     _mm512_castpd_ps(_mm512_unpackhi_pd(hi[0], hi[1]))};
    const vf p = _mm512_shuffle_f32x4(u[0], u[1], 0x44), q = _mm512_shuffle_f32x4(u[2], u[3], 0x44);
    const vf r = _mm512_shuffle_f32x4(u[0], u[1], 0xee), s = _mm512_shuffle_f32x4(u[2], u[3], 0xee);
    x[0] = _mm512_shuffle_f32x4(p, q, 0x88);
    x[1] = _mm512_shuffle_f32x4(p, q, 0xdd);
    x[2] = _mm512_shuffle_f32x4(r, s, 0x88);
    x[3] = _mm512_shuffle_f32x4(r, s, 0xdd);
}

/* x shifted right by n, or left by -n */
INLINE vi shifted(vi x, const int n)
{
    return n > 0 ? _mm512_srli_epi32(x, (unsigned)n) : n < 0 ? _mm512_slli_epi32(x, (unsigned)-n) : x;
}

/* low where mask has ones, high elsewhere */
INLINE vi merged(vi mask, vi low, vi high)
{
    return _mm512_ternarylogic_epi32(mask, low, high, 0xca);
}

/* The floats 0 to 15; for shorter codes repeated. */
INLINE vf code_table(const int bits)
{
    if (bits == 2) return _mm512_setr_ps(0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3);
    if (bits == 3) return _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7);
    return _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}

INLINE vf upper_table(void)
{
    return v_add(code_table(4), v_set1(16));
}

/* Four dims at a time: two rows of the 4-bit plane, one row of the 2-bit plane, half the dims of a row of
 * the 1-bit plane. */
INLINE void decode_keys_planes(const int bits, const uint8_t *k, int dim, int d0, int n, const float *s, const float *b,
                               float *tile)
{
    const uint8_t *nibbles = k, *twos = k + (bits & 4 ? ek_kv_k_plane(4, dim) : 0);
    const uint8_t *ones = twos + (bits & 2 ? ek_kv_k_plane(2, dim) : 0);
    const vf table = code_table(bits), upper = upper_table();
    vf scale[4], bias[4];
    UNROLL for (int j = 0; j < 4; j++) scale[j] = v_load(s + j * W), bias[j] = v_load(b + j * W);
    for (int d = d0; d < d0 + n; d += 4) {
        vi four[2], two, one;
        if (bits & 4)
            UNROLL for (int h = 0; h < 2; h++) four[h] = _mm512_loadu_si512(nibbles + (d / 2 + h) * EK_PAGE_TOKENS);
        if (bits & 2) two = _mm512_loadu_si512(twos + d / 4 * EK_PAGE_TOKENS);
        if (bits & 1)
            one = _mm512_srl_epi32(_mm512_loadu_si512(ones + d / 8 * EK_PAGE_TOKENS), _mm_cvtsi32_si128(d & 4));
        UNROLL for (int h = 0; h < 4; h++, tile += EK_PAGE_TOKENS) UNROLL for (int j = 0; j < 4; j++)
        {
            vi code;
            vf x;
            if (bits == 2) code = shifted(two, 8 * j + 2 * h);
            if (bits == 3) code = merged(vi_set1(3), shifted(two, 8 * j + 2 * h), shifted(one, 8 * j + h - 2));
            if (bits == 5)
                code = merged(vi_set1(15), shifted(four[h / 2], 8 * j + h % 2 * 4), shifted(one, 8 * j + h - 4));
            if (bits == 6)
                code = merged(vi_set1(15), shifted(four[h / 2], 8 * j + h % 2 * 4), shifted(two, 8 * j + 2 * h - 4));
            if (bits == 6) x = _mm512_cvtepi32_ps(vi_and(code, vi_set1(63)));
            else if (bits == 5) x = _mm512_permutex2var_ps(table, code, upper);
            else x = _mm512_permutexvar_ps(code, table);
            v_store(tile + j * W, v_fma(scale[j], x, bias[j]));
        }
    }
}

/* Dims [d, d + n) of a page's 64 keys, n a multiple of 4, to tile[n][64]; s and b as page_scales made them. 8 and
 * 4 bits: attn_codes_512.h. */
APART void decode_keys(const int bits, const uint8_t *k, int dim, int d, int n, const float *s, const float *b,
                       float *tile)
{
    switch (bits) {
    case 6: decode_keys_planes(6, k, dim, d, n, s, b, tile); break;
    case 5: decode_keys_planes(5, k, dim, d, n, s, b, tile); break;
    case 3: decode_keys_planes(3, k, dim, d, n, s, b, tile); break;
    default: decode_keys_planes(2, k, dim, d, n, s, b, tile);
    }
}

/* --- values */

/* Of 32 dims of a token in planes: dims 0 to 15 and 16 to 31. */
INLINE void value_codes(const int bits, const uint8_t *nibbles, const uint8_t *twos, const uint8_t *ones, vi code[2])
{
    vi four[2], two[2], one[2];
    const vi lane = vi_iota(), low = vi_set1(bits & 4 ? 15 : 3);
    if (bits & 4) {
        four[0] = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)nibbles));
        four[1] = _mm512_srli_epi32(four[0], 4);
    }
    UNROLL for (int h = 0; h < 2; h++)
    {
        uint32_t part;
        const vi by = bits & 4 ? vi_sub(vi_add(lane, lane), vi_set1(4)) : vi_add(lane, lane); /* two bits: behind 4 */
        if (bits & 2) {
            memcpy(&part, twos + 4 * h, sizeof part);
            two[h] = _mm512_rorv_epi32(vi_set1((int)part), by);
        }
        if (bits & 1) { /* the last bit, after 4 or 2 */
            memcpy(&part, ones, sizeof part);
            one[h] = _mm512_rorv_epi32(vi_set1((int)part), vi_add(lane, vi_set1(16 * h - (bits & 4 ? 4 : 2))));
        }
        if (bits == 4) code[h] = four[h];
        if (bits == 2) code[h] = two[h];
        if (bits == 3) code[h] = merged(low, two[h], one[h]);
        if (bits == 5) code[h] = merged(low, four[h], one[h]);
        if (bits == 6) code[h] = vi_and(merged(low, four[h], two[h]), vi_set1(63));
    }
}

INLINE void decode_values_planes(const int bits, const uint8_t *v, int dim, int slot, int n, int d, const float *s,
                                 const float *b, int stride, float *tile)
{
    const size_t blocks = ek_kv_padded(dim) / 32, first = (size_t)slot * blocks + (size_t)d / 32;
    const uint8_t *nibbles = v + first * 16, *twos = v + (bits & 4 ? ek_kv_v_plane(4, dim) : 0) + first * 8;
    const uint8_t *ones = v + (bits & 4 ? ek_kv_v_plane(4, dim) : 0) + (bits & 2 ? ek_kv_v_plane(2, dim) : 0) +
                          first * 4;
    const vf table = code_table(bits), upper = upper_table();
    for (int j = 0; j < n; j++, tile += VALUE_DIMS) {
        vi code[2];
        value_codes(bits, nibbles, twos, ones, code);
        const vf scale = v_set1(s[j * stride]), bias = v_set1(b[j * stride]);
        const vf value = v_fma(scale, table, bias); /* of each code */
        if (bits == 6)
            UNROLL for (int h = 0; h < 2; h++) v_store(tile + h * W, v_fma(scale, _mm512_cvtepi32_ps(code[h]), bias));
        else if (bits == 5) {
            const vf more = v_fma(scale, upper, bias);
            UNROLL for (int h = 0; h < 2; h++) v_store(tile + h * W, _mm512_permutex2var_ps(value, code[h], more));
        } else UNROLL for (int h = 0; h < 2; h++) v_store(tile + h * W, _mm512_permutexvar_ps(code[h], value));
        nibbles += blocks * 16, twos += blocks * 8, ones += blocks * 4;
    }
}

#endif
