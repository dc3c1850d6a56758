/* unpack_fn of form PLANES. A unit of 32 inputs has one A-group or two. Its codes are 8 vectors, which are put together
 * from planes of bits. */
#ifndef EK_OPS_X86_LINEAR_P_UNPACK_512_H
#define EK_OPS_X86_LINEAR_P_UNPACK_512_H

#include "ops/linear/x86/linear_512.h"
#include "ops/linear/x86/planes/planes_vec.h"

INLINE bool is_wide(const ek_linear *w)
{
    return w->book || w->bits > 4;
}

INLINE void unpack_planes(uint8_t *codes, unpacked_scales *scales, const ek_linear *w, const uint8_t *const *panel,
                          int k, int groups, bool is_signed, const int bits, const bool book, const int group)
{
    const size_t scale_bytes = ek_planes_scale_bytes(w), block_bytes = ek_planes_block_bytes(w);
    const int wanted = is_signed ? 0 : is_wide(w) ? 128 : 8;
    const __m512i table = p_table(w->book), more = _mm512_set1_epi8((char)(wanted - ek_planes_offset(w)));
    const __m512 zero = _mm512_set1_ps((float)w->zero);
    for (int p = 0; p < PANELS; p++) {
        const float *factors = (const float *)(const void *)(panel[p] + w->panel_bytes - EK_PANEL * sizeof(float));
        int in = k % w->block;
        const uint8_t *block = panel[p] + (size_t)(k / w->block) * block_bytes;
        for (int g = 0; g < groups;) {
            const p_block shared = p_open(w->scale, w->biased, block, factors, 0);
            const uint8_t *unit = block + scale_bytes + in / EK_UNIT * EK_UNIT * 2 * bits;
            UNROLL for (int part = 0; part < EK_UNIT / group; part++, g++)
            {
                uint8_t *to = codes + (g * PANELS + p) * group * EK_PANEL;
                UNROLL for (int t = 0; t < group / 4; t++)
                {
                    __m512i u = p_codes(unit, part * group / 4 + t, bits, book, table);
                    _mm512_store_si512(to + 64 * t, _mm512_add_epi8(u, more));
                }
                __m512 s, centre;
                p_scales(w->scale, w->biased, &shared, in / group + part, 0, zero, &s, &centre);
                _mm512_store_ps(scales[g][p][0], s);
                _mm512_store_ps(scales[g][p][1], centre);
            }
            in += EK_UNIT;
            if (in == w->block) in = 0, block += block_bytes;
        }
    }
}

#define UNPACK_FN(bits, book, group)                                                                             \
    static void unpack_##bits##_##book##_##group(uint8_t *codes, unpacked_scales *scales, const ek_linear *w,    \
                                                 const uint8_t *const *panel, int k, int groups, bool is_signed) \
    {                                                                                                            \
        unpack_planes(codes, scales, w, panel, k, groups, is_signed, bits, book, group);                         \
    }
UNPACK_FN(2, 0, 16)
UNPACK_FN(3, 0, 16)
UNPACK_FN(6, 0, 16)
UNPACK_FN(4, 1, 16)
UNPACK_FN(4, 0, 32)
UNPACK_FN(5, 0, 32)
UNPACK_FN(8, 0, 32)
UNPACK_FN(4, 1, 32)

static unpack_fn *unpack_of(const ek_linear *w)
{
    if (w->book) return w->a_group == 16 ? unpack_4_1_16 : unpack_4_1_32;
    switch (w->bits) {
    case 2: return unpack_2_0_16;
    case 3: return unpack_3_0_16;
    case 4: return unpack_4_0_32;
    case 5: return unpack_5_0_32;
    case 6: return unpack_6_0_16;
    default: return unpack_8_0_32;
    }
}

#endif
