/* A step of Form B (lib/bf16.h) in every lane. After ops/x86/vec_avx512.h. */
#ifndef EK_LIB_X86_VEC_BF16_H
#define EK_LIB_X86_VEC_BF16_H

#include <string.h>

/* sum + the pair of a times the pair of b, the second of a pair first. */
INLINE vf dp(vf sum, vi a, vi b)
{
    return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b);
}

INLINE vi pair_at(const void *p) /* of bf16, in every lane */
{
    int pair;
    memcpy(&pair, p, sizeof pair);
    return vi_set1(pair);
}

#endif
