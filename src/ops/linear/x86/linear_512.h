/* Code that the kernels of Form Q on AVX-512 VNNI share: a row's bytes, its groups, the float part of two panels, and
 * unpacked panels. */
#ifndef EK_OPS_X86_LINEAR_512_H
#define EK_OPS_X86_LINEAR_512_H

#include <string.h>

#include "ops/x86/vec_avx512.h"
#include "ops/linear/linear_layout.h"

enum { PANELS = 2, PAIR_ROWS = 8 }; /* a tile of two panels: 16 sums, or with two limbs those of 4 rows */

/* A row's four bytes in every lane. */
INLINE __m512i quad(const int8_t *q)
{
    int32_t four;
    memcpy(&four, q, sizeof four);
    return _mm512_set1_epi32(four);
}

INLINE const ek_act_group *group_at(const int8_t *row, ptrdiff_t at)
{
    return (const ek_act_group *)(const void *)(row + at);
}

/* The outputs of panel p. */
INLINE __mmask16 outputs_of(const ek_linear *w, int p)
{
    const int left = w->n - p * EK_PANEL;
    return (__mmask16)(left >= EK_PANEL ? 0xffff : left <= 0 ? 0 : (1 << left) - 1);
}

/* leaf[p * stride + r] += t * sx of n rows by both panels; sum[p][r] is I. */
INLINE void add_pair(__m512 *leaf, const int stride, __m512i sum[PANELS][PAIR_ROWS], const __m512 *s,
                     const __m512 *centre, const int8_t *const *row, ptrdiff_t at, const int n, const bool biased)
{
    UNROLL for (int r = 0; r < n; r++)
    {
        const ek_act_group *of = group_at(row[r], at);
        const __m512 x = _mm512_set1_ps(of->sum), sx = _mm512_set1_ps(of->sx);
        UNROLL for (int p = 0; p < PANELS; p++)
        {
            __m512 *a = &leaf[p * stride + r], t = _mm512_mul_ps(s[p], _mm512_cvtepi32_ps(sum[p][r]));
            if (biased) t = _mm512_fmadd_ps(centre[p], x, t);
            *a = _mm512_fmadd_ps(t, sx, *a);
        }
    }
}

/* --- Codes and scales of two panels, unpacked for rows enough to pay for it: of AMX and of linear_many_512.h.
 *
 * Codes lie group after group and of each panel after panel, as packed: vector t of a group has inputs 4 t .. 4 t + 3
 * of 16 outputs. Scales are s and b' of both panels, group after group. */

typedef float unpacked_scales[PANELS][2][EK_PANEL];

/* Unpacks `groups` A-groups from input k of two panels. Codes are signed, c; or for VPDPBUSD c + 8, with more than 4
 * bits and for codebooks c + 128. */
typedef void unpack_fn(uint8_t *codes, unpacked_scales *scales, const ek_linear *w, const uint8_t *const *panel, int k,
                       int groups, bool is_signed);

/* Scales (i = 0) or biases of a group of Form Q4 or Q8. */
INLINE __m512 group_scales(const uint8_t *at, ek_dtype t, int i)
{
    if (t == EK_F32) return _mm512_load_ps((const float *)(const void *)at + i * EK_PANEL);
    __m256i half = _mm256_load_si256((const __m256i *)(const void *)at + i);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

#endif
