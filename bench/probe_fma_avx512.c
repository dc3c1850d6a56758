#include <immintrin.h>

#include "probe_fma.h"

float probe_fma_loop(int n)
{
    __m512 acc[16], x = _mm512_set1_ps(0.5f), y = _mm512_set1_ps(0x1p-20f);
    for (int i = 0; i < 16; i++) acc[i] = _mm512_setzero_ps();
    for (; n > 0; n--) {
        for (int i = 0; i < 16; i++) acc[i] = _mm512_fmadd_ps(x, y, acc[i]);
        __asm__ volatile("" : "+v"(x), "+v"(y));
    }
    for (int i = 1; i < 16; i++) acc[0] = _mm512_add_ps(acc[0], acc[i]);
    return _mm512_reduce_add_ps(acc[0]);
}
