#include <immintrin.h>

#include "ops/x86/linear_tile.h"
#include "ops/x86/linear_x86.h"

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

static inline int32_t total(__m256i v)
{
    __m128i s = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1));
    return _mm_cvtsi128_si32(s);
}

/* 32 codes of four vectors as bytes in order. */
static inline __m256i bytes(const __m256i *code)
{
    __m256i low = _mm256_packs_epi32(code[0], code[1]), high = _mm256_packs_epi32(code[2], code[3]);
    return _mm256_permutevar8x32_epi32(_mm256_packs_epi16(low, high), _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

INLINE void quantize(const float *x, int k, int a_group, int8_t *q, float *sx, float *sxx, int32_t *start,
                     const int limbs)
{
    const float largest_code = limbs == 1 ? 127.0f : 32512.0f;
    const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
    for (int g = 0; g * a_group < k; g++, x += a_group, q += limbs * a_group) {
        int n = k - g * a_group < a_group ? k - g * a_group : a_group;
        __m256i top8 = _mm256_setzero_si256(), sum8 = top8;
        for (int i = 0; i < a_group; i += 8)
            top8 = _mm256_max_epu32(top8, _mm256_and_si256(_mm256_castps_si256(load(x, i, n)), magnitude));
        uint32_t top = largest(top8);
        float amax = ek_bits_f32(top), inv = 0;
        sx[g] = 0;
        if (top >= 0x7f800000u) sx[g] = ek_bits_f32(0x7fc00000u);
        else if (amax >= 0x1p-100f) sx[g] = amax / largest_code, inv = largest_code / amax;
        for (int i = 0; i < a_group; i += 32) {
            __m256i code[4];
            for (int j = 0; j < 4; j++) {
                code[j] = _mm256_setzero_si256();
                if (inv > 0) code[j] = _mm256_cvtps_epi32(_mm256_mul_ps(load(x, i + 8 * j, n), _mm256_set1_ps(inv)));
                sum8 = _mm256_add_epi32(sum8, code[j]);
            }
            if (limbs == 2) {
                __m256i high[4];
                for (int j = 0; j < 4; j++) {
                    high[j] = _mm256_srai_epi32(_mm256_add_epi32(code[j], _mm256_set1_epi32(128)), 8);
                    code[j] = _mm256_sub_epi32(code[j], _mm256_slli_epi32(high[j], 8));
                }
                _mm256_storeu_si256((__m256i *)(q + i), bytes(high));
            }
            _mm256_storeu_si256((__m256i *)(q + (limbs - 1) * a_group + i), bytes(code));
        }
        int32_t sum = total(sum8);
        sxx[g] = sx[g] * (float)sum;
        start[g] = -8 * sum;
    }
}

void ek_quantize_row_avx2(const float *x, int k, int a_group, int8_t *q, float *sx, float *sxx, int32_t *start)
{
    quantize(x, k, a_group, q, sx, sxx, start, 1);
}

void ek_quantize_row_2_avx2(const float *x, int k, int a_group, int8_t *q, float *sx, float *sxx, int32_t *start)
{
    quantize(x, k, a_group, q, sx, sxx, start, 2);
}
