#include <immintrin.h>

#include "ops/x86/linear_tile.h"
#include "ops/x86/linear_x86.h"

/* 16 elements from x + i of a row's group that ends at n; absent ones are 0. */
static inline __m512 load(const float *x, int i, int n)
{
    int left = n - i;
    if (left >= 16) return _mm512_loadu_ps(x + i);
    return left <= 0 ? _mm512_setzero_ps() : _mm512_maskz_loadu_ps((__mmask16)((1 << left) - 1), x + i);
}

INLINE void quantize(const float *x, int k, int a_group, int8_t *q, float *sx, float *sxx, int32_t *start,
                     const int limbs)
{
    const float largest_code = limbs == 1 ? 127.0f : 32512.0f;
    const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
    for (int g = 0; g * a_group < k; g++, x += a_group, q += limbs * a_group) {
        int n = k - g * a_group < a_group ? k - g * a_group : a_group;
        __m512i top16 = _mm512_setzero_si512(), sum16 = top16;
        for (int i = 0; i < a_group; i += 16)
            top16 = _mm512_max_epu32(top16, _mm512_and_si512(_mm512_castps_si512(load(x, i, n)), magnitude));
        uint32_t top = _mm512_reduce_max_epu32(top16);
        float amax = ek_bits_f32(top), inv = 0;
        sx[g] = 0;
        if (top >= 0x7f800000u) sx[g] = ek_bits_f32(0x7fc00000u);
        else if (amax >= 0x1p-100f) sx[g] = amax / largest_code, inv = largest_code / amax;
        for (int i = 0; i < a_group; i += 16) {
            __m512i code = _mm512_setzero_si512();
            if (inv > 0) code = _mm512_cvtps_epi32(_mm512_mul_ps(load(x, i, n), _mm512_set1_ps(inv)));
            sum16 = _mm512_add_epi32(sum16, code);
            if (limbs == 2) {
                __m512i high = _mm512_srai_epi32(_mm512_add_epi32(code, _mm512_set1_epi32(128)), 8);
                code = _mm512_sub_epi32(code, _mm512_slli_epi32(high, 8));
                _mm_storeu_si128((__m128i *)(q + i), _mm512_cvtepi32_epi8(high));
            }
            _mm_storeu_si128((__m128i *)(q + (limbs - 1) * a_group + i), _mm512_cvtepi32_epi8(code));
        }
        int32_t sum = _mm512_reduce_add_epi32(sum16);
        sxx[g] = sx[g] * (float)sum;
        start[g] = -8 * sum;
    }
}

void ek_quantize_row_avx512(const float *x, int k, int a_group, int8_t *q, float *sx, float *sxx, int32_t *start)
{
    quantize(x, k, a_group, q, sx, sxx, start, 1);
}

void ek_quantize_row_2_avx512(const float *x, int k, int a_group, int8_t *q, float *sx, float *sxx, int32_t *start)
{
    quantize(x, k, a_group, q, sx, sxx, start, 2);
}
