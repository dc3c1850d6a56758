/* Form PLANES on AMX: A-groups of 32 or 16 inputs, one tile product each. A unit of 32 inputs is 8 vectors of codes,
 * put together from planes of bits, and one A-group or two. */
#include "ops/x86/linear_amx.h"
#include "ops/x86/planes_vec.h"

AMX_FNS(32)
AMX_FNS(16)

INLINE void unpack_planes(weights *out, const ek_linear *w, const uint8_t *const *panel, int k, int groups,
                          const int bits, const bool book, const int group)
{
    const size_t scale_bytes = ek_planes_scale_bytes(w), block_bytes = ek_planes_block_bytes(w);
    const __m512i table = p_table(w->book), offset = _mm512_set1_epi8((char)ek_planes_offset(w));
    const __m512 zero = _mm512_set1_ps((float)w->zero);
    for (int p = 0; p < PANELS; p++) {
        const float *factors = (const float *)(const void *)(panel[p] + w->panel_bytes - EK_PANEL * sizeof(float));
        int in = k % w->block;
        const uint8_t *block = panel[p] + (size_t)(k / w->block) * block_bytes;
        for (int g = 0; g < groups;) {
            const p_block shared = p_open(w, block, factors, 0);
            const uint8_t *unit = block + scale_bytes + in / EK_UNIT * EK_UNIT * 2 * bits;
            for (size_t i = 0; in == 0 && i < scale_bytes; i += 64) fetch(block + i, AHEAD);
            for (int i = 0; i < EK_UNIT * 2 * bits; i += 64) fetch(unit + i, AHEAD);
            UNROLL for (int part = 0; part < EK_UNIT / group; part++, g++)
            {
                int8_t *codes = out->codes + (g * PANELS + p) * group * EK_PANEL;
                UNROLL for (int t = 0; t < group / 4; t++)
                {
                    __m512i u = p_codes(unit, part * group / 4 + t, bits, book, table);
                    _mm512_store_si512(codes + 64 * t, _mm512_sub_epi8(u, offset));
                }
                __m512 s, centre;
                p_scales(w, &shared, in / group + part, 0, zero, &s, &centre);
                _mm512_store_ps(out->scale[g][p][0], s);
                _mm512_store_ps(out->scale[g][p][1], centre);
            }
            in += EK_UNIT;
            if (in == w->block) in = 0, block += block_bytes;
        }
    }
}

#define UNPACK_FN(bits, book, group)                                                                                   \
    static void unpack_##bits##_##book##_##group(weights *out, const ek_linear *w, const uint8_t *const *panel, int k, \
                                                 int groups)                                                           \
    {                                                                                                                  \
        unpack_planes(out, w, panel, k, groups, bits, book, group);                                                    \
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

/* The number of rows decides speed only: AVX-512 gives the same bits. */
void ek_linear_planes_amx(const ek_linear *w, const ek_acts *x, int r0, int r1, float *y, ptrdiff_t ldy, int p0, int p1)
{
    if (r1 - r0 < MIN_ROWS) ek_linear_planes_avx512(w, x, r0, r1, y, ldy, p0, p1);
    else amx_run(w, x, r0, r1, y, ldy, p0, p1, unpack_of(w), w->a_group == 16 ? stages_16 : stages_32);
}
