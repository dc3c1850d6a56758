/* Bodies of the exact product's kernels that are the same for any vector of ops/x86/vec_*.h. A file of one
 * instruction set defines MADD_ROWS (rows of a register tile) and MADD_MAX (the same, for the preprocessor)
 * before it includes this. */
#ifndef EK_OPS_X86_DECODED_VEC_H
#define EK_OPS_X86_DECODED_VEC_H

#include <string.h>

#include "ops/linear/decoded.h"
#include "ops/linear/x86/group_vec.h"

enum { MADD_VECS = 4 };

/* nr rows by MADD_VECS vectors from column c. */
INLINE void madd_tile(float *acc, const float *const *x, int64_t at, const float *panel, int depth, int c, const int nr)
{
    vf a[MADD_ROWS][MADD_VECS];
    UNROLL for (int r = 0; r < nr; r++) UNROLL for (int v = 0; v < MADD_VECS; v++)
        a[r][v] = v_load(acc + r * EK_DECODED_COLS + c + v * W);
    for (int k = 0; k < depth; k++) {
        vf w[MADD_VECS];
        UNROLL for (int v = 0; v < MADD_VECS; v++) w[v] = v_load(panel + k * EK_DECODED_COLS + c + v * W);
        UNROLL for (int r = 0; r < nr; r++)
        {
            vf xk = v_set1(x[r][at + k]);
            UNROLL for (int v = 0; v < MADD_VECS; v++) a[r][v] = v_fma(xk, w[v], a[r][v]);
        }
    }
    UNROLL for (int r = 0; r < nr; r++) UNROLL for (int v = 0; v < MADD_VECS; v++)
        v_store(acc + r * EK_DECODED_COLS + c + v * W, a[r][v]);
}

static void madd(float *acc, const float *const *x, int64_t at, int rows, const float *panel, int depth)
{
    for (int r = 0; r < rows; r += MADD_ROWS)
        for (int c = 0; c < EK_DECODED_COLS; c += MADD_VECS * W) {
            float *a = acc + r * EK_DECODED_COLS;
            switch (rows - r) {
            case 1: madd_tile(a, x + r, at, panel, depth, c, 1); break;
            case 2: madd_tile(a, x + r, at, panel, depth, c, 2); break;
#if MADD_MAX > 3
            case 3: madd_tile(a, x + r, at, panel, depth, c, 3); break;
            case 4: madd_tile(a, x + r, at, panel, depth, c, 4); break;
            case 5: madd_tile(a, x + r, at, panel, depth, c, 5); break;
#endif
            default: madd_tile(a, x + r, at, panel, depth, c, MADD_ROWS);
            }
        }
}

/* fma(s, u, b) of 8 codes: the low four and the high four codes of a word of 8-bit codes. */
INLINE __m256 decode_8(const uint8_t *codes, int bits, __m256i shift, __m256i mask, __m256 s, __m256 b)
{
    uint64_t word = 0;
    memcpy(&word, codes, (size_t)bits);
    __m256i u = _mm256_setr_m128i(_mm_set1_epi32((int)(uint32_t)word),
                                  _mm_set1_epi32((int)(uint32_t)(word >> 4 * bits)));
    u = _mm256_and_si256(_mm256_srlv_epi32(u, shift), mask);
    return _mm256_fmadd_ps(s, _mm256_cvtepi32_ps(u), b);
}

INLINE void decode_of(float *to, const uint8_t *codes, int n, const int bits, float s, float b)
{
    __m256i shift = _mm256_mullo_epi32(_mm256_setr_epi32(0, 1, 2, 3, 0, 1, 2, 3), _mm256_set1_epi32(bits));
    __m256i mask = _mm256_set1_epi32((1 << bits) - 1);
    for (int i = 0; i < n; i += 8, codes += bits)
        _mm256_storeu_ps(to + i, decode_8(codes, bits, shift, mask, _mm256_set1_ps(s), _mm256_set1_ps(b)));
}

static void decode_any(float *to, const uint8_t *codes, int n, int bits, float s, float b)
{
    switch (bits) {
    case 2: decode_of(to, codes, n, 2, s, b); break;
    case 3: decode_of(to, codes, n, 3, s, b); break;
    case 4: decode_of(to, codes, n, 4, s, b); break;
    case 5: decode_of(to, codes, n, 5, s, b); break;
    case 6: decode_of(to, codes, n, 6, s, b); break;
    default: decode_of(to, codes, n, 8, s, b);
    }
}

#endif
