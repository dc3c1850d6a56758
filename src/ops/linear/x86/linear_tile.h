/* Shared code of the linear kernels: compile-time tiles by forced inlining. */
#ifndef EK_OPS_X86_LINEAR_TILE_H
#define EK_OPS_X86_LINEAR_TILE_H

#include "ops/linear/linear_layout.h"
#include "ops/inline.h"

#if defined(__AVX2__)
/* The first n of a panel's 16 outputs. */
INLINE void ek_store_outputs(float *y, int n, __m256 low, __m256 high)
{
    if (n == EK_PANEL) {
        _mm256_storeu_ps(y, low);
        _mm256_storeu_ps(y + 8, high);
        return;
    }
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    _mm256_maskstore_ps(y, _mm256_cmpgt_epi32(_mm256_set1_epi32(n), lane), low);
    if (n > 8) _mm256_maskstore_ps(y + 8, _mm256_cmpgt_epi32(_mm256_set1_epi32(n - 8), lane), high);
}

/* The end of a quantised group. h, l: the sums of the limbs over k % 4 = 0, 1, 2, 3. two: NULL for one limb alone. */
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

static inline int ek_min(int a, int b)
{
    return a < b ? a : b;
}

/* Rows of the next tile when `left` remain: as few tiles as possible, as even as possible (a
 * tile of one row costs almost as much as one of four). */
static inline int ek_tile_rows(int left, int max_rows)
{
    int tiles = (left + max_rows - 1) / max_rows;
    return (left + tiles - 1) / tiles;
}

#endif
