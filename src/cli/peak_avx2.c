#ifdef __x86_64__
#include <immintrin.h>

#include "cli/peak.h"

enum { SUMS = 8, PER_INSTRUCTION = 32 };

double ek_peak_pmaddubsw_avx2(int64_t rounds, int32_t *sink)
{
    __m256i sum[SUMS], a = _mm256_set1_epi8(3), b = _mm256_set1_epi8(5);
    for (int i = 0; i < SUMS; i++) sum[i] = _mm256_setzero_si256();
    for (int64_t r = 0; r < rounds; r++) {
#pragma GCC unroll 8
        for (int i = 0; i < SUMS; i++) {
            __asm__ volatile("" : "+x"(a)); /* a product computed once would do otherwise */
            sum[i] = _mm256_add_epi16(sum[i], _mm256_maddubs_epi16(a, b));
        }
    }
    for (int i = 1; i < SUMS; i++) sum[0] = _mm256_add_epi16(sum[0], sum[i]);
    *sink = _mm256_extract_epi16(sum[0], 0);
    return (double)rounds * SUMS * PER_INSTRUCTION;
}
#endif
