#ifdef __x86_64__
#include <immintrin.h>

#include "base/machine/peak.h"

/* As peak_avx512.c. */
#define EACH(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)

int64_t ek_peak_int8_avxvnni(void)
{
#define ZERO(i)   __m256i s##i = _mm256_setzero_si256();
#define STEP(i)   __asm__ volatile("%{vex%} vpdpbusd %2, %1, %0" : "+x"(s##i) : "x"(a), "x"(b));
#define GATHER(i) total = _mm256_add_epi32(total, s##i);
    __m256i a = _mm256_set1_epi8(3), b = _mm256_set1_epi8(5), total = _mm256_setzero_si256();
    EACH(ZERO)
    for (int r = 0; r < EK_PEAK_ROUNDS; r++) {
        EACH(STEP)
    }
    EACH(GATHER)
    return _mm256_extract_epi32(total, 0);
}
#endif
