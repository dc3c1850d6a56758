/* Shared code of the linear kernels: compile-time tiles by forced inlining. */
#ifndef EK_OPS_X86_LINEAR_TILE_H
#define EK_OPS_X86_LINEAR_TILE_H

#include "ops/linear/linear_layout.h"
#include "ops/x86/inline.h"

#if defined(__AVX2__)
#include <immintrin.h>

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
