#ifdef __x86_64__
#include <immintrin.h>

#include "cli/peak.h"

/* 12 sums: more than latency times throughput, so that the multipliers never wait. They are
 * separate variables and the instruction is spelled out: a compiler would keep an array of them
 * in memory, or do a product once. */
#define SUMS      12
#define EACH(X)   X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)
#define ZERO(i)   __m512i s##i = _mm512_setzero_si512();
#define STEP(i)   __asm__ volatile("vpdpbusd %2, %1, %0" : "+v"(s##i) : "v"(a), "v"(b));
#define GATHER(i) total = _mm512_add_epi32(total, s##i);

double ek_peak_vpdpbusd_avx512(int64_t rounds, int32_t *sink)
{
    __m512i a = _mm512_set1_epi8(3), b = _mm512_set1_epi8(5), total = _mm512_setzero_si512();
    EACH(ZERO)
    for (int64_t r = 0; r < rounds; r++) {
        EACH(STEP)
    }
    EACH(GATHER)
    *sink = _mm512_reduce_add_epi32(total);
    return (double)rounds * SUMS * 64;
}
#endif
