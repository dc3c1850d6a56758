#include "ops/linear/x86/linear_tile.h"

static inline __m256 load(const float *x, int i, int n)
{
    if (n - i >= 8) return _mm256_loadu_ps(x + i);
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_maskload_ps(x + i, _mm256_cmpgt_epi32(_mm256_set1_epi32(n - i), lane));
}

static inline uint32_t largest(__m256i v)
{
    __m128i m = _mm_max_epu32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0x4e));
    m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0xb1));
    return (uint32_t)_mm_cvtsi128_si32(m);
}

static inline __m128i halves(__m256i v)
{
    return _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
}

/* 32 codes of four vectors as bytes in order. */
static inline __m256i bytes(const __m256i *code)
{
    __m256i low = _mm256_packs_epi32(code[0], code[1]), high = _mm256_packs_epi32(code[2], code[3]);
    return _mm256_permutevar8x32_epi32(_mm256_packs_epi16(low, high), _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

void ek_quantize_row_avx2(const float *x, int k, int a_group, int8_t *h, int8_t *l, ek_act_group *one,
                          ek_act_group *two)
{
    const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
    for (int g = 0; g * a_group < k; g++, x += a_group, h += a_group) {
        int n = k - g * a_group < a_group ? k - g * a_group : a_group;
        __m256i top8 = _mm256_setzero_si256(), sum_h = top8, sum_l = top8;
        for (int i = 0; i < a_group; i += 8)
            top8 = _mm256_max_epu32(top8, _mm256_and_si256(_mm256_castps_si256(load(x, i, n)), magnitude));
        uint32_t top = largest(top8);
        float amax = ek_bits_f32(top), inv = 0, sx = 0;
        if (top >= 0x7f800000u) sx = ek_bits_f32(0x7fc00000u);
        else if (amax >= 0x1p-100f) sx = amax / 32512, inv = 32512 / amax;
        for (int i = 0; i < a_group; i += 32) {
            __m256i code[4], high[4];
            for (int j = 0; j < 4; j++) {
                code[j] = _mm256_setzero_si256();
                if (inv > 0) code[j] = _mm256_cvtps_epi32(_mm256_mul_ps(load(x, i + 8 * j, n), _mm256_set1_ps(inv)));
                high[j] = _mm256_srai_epi32(_mm256_add_epi32(code[j], _mm256_set1_epi32(128)), 8);
                sum_h = _mm256_add_epi32(sum_h, high[j]);
                code[j] = _mm256_sub_epi32(code[j], _mm256_slli_epi32(high[j], 8));
                sum_l = _mm256_add_epi32(sum_l, code[j]);
            }
            if (a_group == 16) { /* bytes behind a row's last group belong to others */
                _mm_storeu_si128((__m128i *)h, _mm256_castsi256_si128(bytes(high)));
                if (l) _mm_storeu_si128((__m128i *)l, _mm256_castsi256_si128(bytes(code)));
                break;
            }
            _mm256_storeu_si256((__m256i *)(h + i), bytes(high));
            if (l) _mm256_storeu_si256((__m256i *)(l + i), bytes(code));
        }
        put_group(&one[g], l ? &two[g] : NULL, sx, halves(sum_h), halves(sum_l));
        if (l) l += a_group;
    }
}
