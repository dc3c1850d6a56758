#ifdef __x86_64__
#include <immintrin.h>

#include "cli/peak.h"

/* As peak_avx512.c; the products of PMADDUBSW are summed by an addition each. */
#define SUMS    12
#define EACH(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)
#define ZERO(i) __m256i s##i = _mm256_setzero_si256();
#define STEP(i)                                                           \
    __asm__ volatile("vpmaddubsw %2, %1, %0" : "=x"(p) : "x"(a), "x"(b)); \
    __asm__ volatile("vpaddw %1, %0, %0" : "+x"(s##i) : "x"(p));
#define GATHER(i) total = _mm256_add_epi16(total, s##i);

double ek_peak_pmaddubsw_avx2(int64_t rounds, int32_t *sink)
{
    __m256i a = _mm256_set1_epi8(3), b = _mm256_set1_epi8(5), p, total = _mm256_setzero_si256();
    EACH(ZERO)
    for (int64_t r = 0; r < rounds; r++) {
        EACH(STEP)
    }
    EACH(GATHER)
    *sink = _mm256_extract_epi16(total, 0);
    return (double)rounds * SUMS * 32;
}
#endif
