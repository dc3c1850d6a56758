#ifdef __x86_64__
#include <immintrin.h>

#include "cli/peak.h"

/* 16 sums: more than latency times throughput, so that the multipliers never wait. */
enum { SUMS = 16, PER_INSTRUCTION = 64 };

double ek_peak_vpdpbusd_avx512(int64_t rounds, int32_t *sink)
{
    __m512i sum[SUMS], a = _mm512_set1_epi8(3), b = _mm512_set1_epi8(5);
    for (int i = 0; i < SUMS; i++) sum[i] = _mm512_setzero_si512();
    for (int64_t r = 0; r < rounds; r++) {
#pragma GCC unroll 16
        for (int i = 0; i < SUMS; i++) {
            sum[i] = _mm512_dpbusd_epi32(sum[i], a, b);
            __asm__ volatile("" : "+v"(sum[i])); /* keeps every one of them */
        }
    }
    for (int i = 1; i < SUMS; i++) sum[0] = _mm512_add_epi32(sum[0], sum[i]);
    *sink = _mm512_reduce_add_epi32(sum[0]);
    return (double)rounds * SUMS * PER_INSTRUCTION;
}
#endif
