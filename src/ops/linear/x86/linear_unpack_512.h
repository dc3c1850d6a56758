/* Codes and scales of two panels, unpacked for rows enough to pay for it: of AMX and of linear_many_512.h.
 *
 * Codes lie group after group and of each panel after panel, as packed: vector t of a group has inputs 4 t .. 4 t + 3
 * of 16 outputs. Scales are s and b' of both panels, group after group. */
#ifndef EK_OPS_X86_LINEAR_UNPACK_512_H
#define EK_OPS_X86_LINEAR_UNPACK_512_H

#include "ops/linear/x86/linear_512.h"

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
