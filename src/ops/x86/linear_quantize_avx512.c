#include "ops/x86/linear_quantize.h"
#include "ops/x86/linear_tile.h"
#include "ops/x86/linear_x86.h"

/* 16 elements from x + i of a row's group that ends at n; absent ones are 0. */
static inline __m512 load(const float *x, int i, int n)
{
    int left = n - i;
    if (left >= 16) return _mm512_loadu_ps(x + i);
    return left <= 0 ? _mm512_setzero_ps() : _mm512_maskz_loadu_ps((__mmask16)((1 << left) - 1), x + i);
}

static inline __m128i quarters(__m512i v)
{
    __m256i half = _mm256_add_epi32(_mm512_castsi512_si256(v), _mm512_extracti64x4_epi64(v, 1));
    return _mm_add_epi32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
}

void ek_quantize_row_avx512(const float *x, int k, int a_group, int8_t *h, int8_t *l, ek_act_group *one,
                            ek_act_group *two)
{
    const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
    for (int g = 0; g * a_group < k; g++, x += a_group, h += a_group, l += a_group) {
        int n = k - g * a_group < a_group ? k - g * a_group : a_group;
        __m512i top16 = _mm512_setzero_si512(), sum_h = top16, sum_l = top16;
        for (int i = 0; i < a_group; i += 16)
            top16 = _mm512_max_epu32(top16, _mm512_and_si512(_mm512_castps_si512(load(x, i, n)), magnitude));
        uint32_t top = _mm512_reduce_max_epu32(top16);
        float amax = ek_bits_f32(top), inv = 0, sx = 0;
        if (top >= 0x7f800000u) sx = ek_bits_f32(0x7fc00000u);
        else if (amax >= 0x1p-100f) sx = amax / 32512, inv = 32512 / amax;
        for (int i = 0; i < a_group; i += 16) {
            __m512i code = _mm512_setzero_si512();
            if (inv > 0) code = _mm512_cvtps_epi32(_mm512_mul_ps(load(x, i, n), _mm512_set1_ps(inv)));
            __m512i high = _mm512_srai_epi32(_mm512_add_epi32(code, _mm512_set1_epi32(128)), 8);
            sum_h = _mm512_add_epi32(sum_h, high);
            code = _mm512_sub_epi32(code, _mm512_slli_epi32(high, 8));
            sum_l = _mm512_add_epi32(sum_l, code);
            _mm_storeu_si128((__m128i *)(h + i), _mm512_cvtepi32_epi8(high));
            _mm_storeu_si128((__m128i *)(l + i), _mm512_cvtepi32_epi8(code));
        }
        put_group(&one[g], &two[g], sx, quarters(sum_h), quarters(sum_l));
    }
}
