#ifdef __x86_64__
#include <immintrin.h>

#include "base/machine/peak.h"

/* 12 sums: more than latency times throughput, so that the multipliers never wait. They are
 * separate variables and the instructions are spelled out: a compiler would keep an array of them
 * in memory, or do a product once. */
#define EACH(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)

int64_t ek_peak_int8_avx512(void)
{
#define ZERO(i)   __m512i s##i = _mm512_setzero_si512();
#define STEP(i)   __asm__ volatile("vpdpbusd %2, %1, %0" : "+v"(s##i) : "v"(a), "v"(b));
#define GATHER(i) total = _mm512_add_epi32(total, s##i);
    __m512i a = _mm512_set1_epi8(3), b = _mm512_set1_epi8(5), total = _mm512_setzero_si512();
    EACH(ZERO)
    for (int r = 0; r < EK_PEAK_ROUNDS; r++) {
        EACH(STEP)
    }
    EACH(GATHER)
    return _mm512_reduce_add_epi32(total);
#undef ZERO
#undef STEP
#undef GATHER
}

int64_t ek_peak_f32_avx512(void)
{
#define ZERO(i)   __m512 s##i = _mm512_setzero_ps();
#define STEP(i)   __asm__ volatile("vfmadd231ps %2, %1, %0" : "+v"(s##i) : "v"(a), "v"(b));
#define GATHER(i) total = _mm512_add_ps(total, s##i);
    __m512 a = _mm512_set1_ps(0.5f), b = _mm512_set1_ps(0x1p-20f), total = _mm512_setzero_ps();
    EACH(ZERO)
    for (int r = 0; r < EK_PEAK_ROUNDS; r++) {
        EACH(STEP)
    }
    EACH(GATHER)
    return (int64_t)_mm512_reduce_add_ps(total);
}

/* One stream: the lines are fetched 64 of them ahead. */
int64_t ek_peak_read_avx512(const void *chunk)
{
    const char *p = chunk;
    __m512i a = _mm512_setzero_si512(), b = a, c = a, d = a;
    for (size_t i = 0; i < EK_PEAK_CHUNK; i += 256) {
        for (size_t line = 0; line < 256; line += 64) _mm_prefetch(p + i + 4096 + line, _MM_HINT_T0);
        a = _mm512_or_si512(a, _mm512_load_si512(p + i));
        b = _mm512_or_si512(b, _mm512_load_si512(p + i + 64));
        c = _mm512_or_si512(c, _mm512_load_si512(p + i + 128));
        d = _mm512_or_si512(d, _mm512_load_si512(p + i + 192));
    }
    return _mm512_reduce_or_epi64(_mm512_or_si512(_mm512_or_si512(a, b), _mm512_or_si512(c, d)));
}
#endif
