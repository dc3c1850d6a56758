/* The end of a quantised group, for both vector widths. */
#ifndef EK_OPS_X86_LINEAR_QUANTIZE_H
#define EK_OPS_X86_LINEAR_QUANTIZE_H

#include <immintrin.h>

#include "ops/linear/linear.h"
#include "ops/x86/inline.h"

/* h, l: the sums of the limbs over k % 4 = 0, 1, 2, 3. two: NULL for one limb alone. */
INLINE void put_group(ek_act_group *one, ek_act_group *two, float sx, __m128i h, __m128i l)
{
    __m128i pairs = _mm_hadd_epi32(h, l); /* of h over k % 4 < 2 and the others, of l likewise */
    __m128i total = _mm_hadd_epi32(pairs, pairs);
    const int32_t x_h = _mm_cvtsi128_si32(total), x_q = 256 * x_h + _mm_extract_epi32(total, 1);
    const __m128i lower = _mm_setr_epi32(0, 0, EK_ACT_LOWER, EK_ACT_LOWER);
    pairs = _mm_sub_epi32(_mm_setzero_si128(), _mm_add_epi32(_mm_slli_epi32(pairs, 3), lower));
    pairs = _mm_shuffle_epi8(pairs, _mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, -1, -1, -1, -1, -1, -1, -1, -1));
    *one = (ek_act_group){256 * sx, (float)x_h, -8 * x_h, _mm_cvtsi128_si32(pairs)};
    if (two) *two = (ek_act_group){sx, (float)x_q, -8 * x_q, _mm_extract_epi32(pairs, 1)};
}

#endif
