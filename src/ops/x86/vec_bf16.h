/* The step of Form B (ops/bf16_step.h) in every lane. Included after a vec_*.h. */
#ifndef EK_OPS_X86_VEC_BF16_H
#define EK_OPS_X86_VEC_BF16_H

#include <string.h>

/* Without the instruction, zeros for numbers below 2^-126 come from the processor's flush-to-zero and
 * denormals-are-zero modes (bits of MXCSR). They are on for the steps only, and steps are in functions of their own
 * (noinline), so that no other instruction moves across the switch. */
enum { FLUSH = 0x8040 };

#if defined(__AVX512BF16__)
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

#endif
