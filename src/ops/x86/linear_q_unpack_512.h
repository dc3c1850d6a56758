/* unpack_fn of forms Q4 and Q8. */
#ifndef EK_OPS_X86_LINEAR_Q_UNPACK_512_H
#define EK_OPS_X86_LINEAR_Q_UNPACK_512_H

#include "ops/x86/linear_unpack_512.h"

static void unpack_codes(uint8_t *out, const uint8_t *codes, int n, __m512i offset, const bool q8)
{
    const __m512i low = _mm512_set1_epi8(15);
    for (int i = 0; i < n; i += q8 ? 4 : 8, codes += 64, out += q8 ? 64 : 128) {
        __m512i u = _mm512_load_si512(codes);
        if (q8) {
            _mm512_store_si512(out, _mm512_sub_epi8(u, offset));
            continue;
        }
        _mm512_store_si512(out, _mm512_sub_epi8(_mm512_and_si512(u, low), offset));
        _mm512_store_si512(out + 64, _mm512_sub_epi8(_mm512_and_si512(_mm512_srli_epi16(u, 4), low), offset));
    }
}

static void unpack(uint8_t *codes, unpacked_scales *scales, const ek_linear *w, const uint8_t *const *panel, int k,
                   int groups, bool is_signed)
{
    const int group = w->a_group, per_scale = w->group / group;
    const size_t group_bytes = ek_linear_group_bytes(w), code_bytes = ek_linear_code_bytes(w);
    const __m512 zero = _mm512_set1_ps((float)w->zero);
    const __m512i offset = _mm512_set1_epi8((char)(is_signed ? ek_linear_stored_zero(w) : 0));
    for (int p = 0; p < PANELS; p++) {
        const uint8_t *from = panel[p] + (size_t)(k / w->group) * group_bytes;
        for (int g = 0; g < groups; g++) {
            const int part = (k / group + g) % per_scale;
            uint8_t *to = codes + (g * PANELS + p) * group * EK_PANEL;
            const uint8_t *at = from + code_bytes / (size_t)per_scale * (size_t)part;
            if (w->form == EK_W_Q8) unpack_codes(to, at, group, offset, true);
            else unpack_codes(to, at, group, offset, false);
            __m512 s = group_scales(from + code_bytes, w->scale_dtype, 0);
            _mm512_store_ps(scales[g][p][0], s);
            if (w->biased)
                _mm512_store_ps(scales[g][p][1],
                                _mm512_fmadd_ps(zero, s, group_scales(from + code_bytes, w->scale_dtype, 1)));
            if (part == per_scale - 1) from += group_bytes;
        }
    }
}

#endif
