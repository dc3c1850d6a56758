#ifdef __x86_64__
#include <immintrin.h>

#include "base/machine/peak.h"

/* As peak_avx512.c; the products of PMADDUBSW are summed by an addition each. */
#define EACH(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)

int64_t ek_peak_int8_avx2(void)
{
#define ZERO(i) __m256i s##i = _mm256_setzero_si256();
#define STEP(i)                                                           \
    __asm__ volatile("vpmaddubsw %2, %1, %0" : "=x"(p) : "x"(a), "x"(b)); \
    __asm__ volatile("vpaddw %1, %0, %0" : "+x"(s##i) : "x"(p));
#define GATHER(i) total = _mm256_add_epi16(total, s##i);
    __m256i a = _mm256_set1_epi8(3), b = _mm256_set1_epi8(5), p, total = _mm256_setzero_si256();
    EACH(ZERO)
    for (int r = 0; r < EK_PEAK_ROUNDS; r++) {
        EACH(STEP)
    }
    EACH(GATHER)
    return _mm256_extract_epi16(total, 0);
#undef ZERO
#undef STEP
#undef GATHER
}

int64_t ek_peak_f32_avx2(void)
{
#define ZERO(i)   __m256 s##i = _mm256_setzero_ps();
#define STEP(i)   __asm__ volatile("vfmadd231ps %2, %1, %0" : "+x"(s##i) : "x"(a), "x"(b));
#define GATHER(i) total = _mm256_add_ps(total, s##i);
    __m256 a = _mm256_set1_ps(0.5f), b = _mm256_set1_ps(0x1p-20f), total = _mm256_setzero_ps();
    EACH(ZERO)
    for (int r = 0; r < EK_PEAK_ROUNDS; r++) {
        EACH(STEP)
    }
    EACH(GATHER)
    return (int64_t)_mm256_cvtss_f32(total);
}
#endif
