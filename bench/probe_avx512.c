#include <immintrin.h>

#include "probe.h"

uint64_t probe_read_chunk(const uint8_t *data, size_t bytes)
{
    __m512i a = _mm512_setzero_si512(), b = a, c = a, d = a;
    for (size_t i = 0; i < bytes; i += 256) {
        _mm_prefetch((const char *)data + i + 4096, _MM_HINT_T0);
        _mm_prefetch((const char *)data + i + 4096 + 64, _MM_HINT_T0);
        _mm_prefetch((const char *)data + i + 4096 + 128, _MM_HINT_T0);
        _mm_prefetch((const char *)data + i + 4096 + 192, _MM_HINT_T0);
        a = _mm512_or_si512(a, _mm512_load_si512(data + i));
        b = _mm512_or_si512(b, _mm512_load_si512(data + i + 64));
        c = _mm512_or_si512(c, _mm512_load_si512(data + i + 128));
        d = _mm512_or_si512(d, _mm512_load_si512(data + i + 192));
    }
    return (uint64_t)_mm512_reduce_or_epi64(_mm512_or_si512(_mm512_or_si512(a, b), _mm512_or_si512(c, d)));
}

int probe_macs_loop(int n)
{
    __m512i acc[12], u = _mm512_set1_epi8(3), s = _mm512_set1_epi8(-5);
    for (int i = 0; i < 12; i++) acc[i] = _mm512_setzero_si512();
    for (; n > 0; n--) {
        for (int i = 0; i < 12; i++) acc[i] = _mm512_dpbusd_epi32(acc[i], u, s);
        __asm__ volatile("" : "+v"(u), "+v"(s));
    }
    for (int i = 1; i < 12; i++) acc[0] = _mm512_add_epi32(acc[0], acc[i]);
    return _mm512_reduce_add_epi32(acc[0]);
}
