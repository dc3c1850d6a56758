/* unpack_fn of forms Q4 and Q8. */
#ifndef EK_OPS_X86_LINEAR_Q_UNPACK_512_H
#define EK_OPS_X86_LINEAR_Q_UNPACK_512_H

#include "ops/linear/x86/linear_512.h"

/* Codes as stored, or signed: minus the code of 0. */
INLINE void unpack_codes(uint8_t *out, const uint8_t *codes, int n, int zero_code, const bool q8, const bool is_signed)
{
    const __m512i offset = _mm512_set1_epi8((char)zero_code);
    const __m512i low = _mm512_set1_epi8(15);
    for (int i = 0; i < n; i += q8 ? 4 : 8, codes += 64, out += q8 ? 64 : 128) {
        __m512i u = _mm512_load_si512(codes);
        __m512i first = q8 ? u : _mm512_and_si512(u, low), second = _mm512_and_si512(_mm512_srli_epi16(u, 4), low);
        if (is_signed) first = _mm512_sub_epi8(first, offset), second = _mm512_sub_epi8(second, offset);
        _mm512_store_si512(out, first);
        if (!q8) _mm512_store_si512(out + 64, second);
    }
}

static void unpack_q(uint8_t *codes, unpacked_scales *scales, const ek_linear *w, const uint8_t *const *panel, int k,
                     int groups, bool is_signed)
{
    const int group = w->a_group, per_scale = w->group / group;
    const size_t group_bytes = ek_linear_group_bytes(w), code_bytes = ek_linear_code_bytes(w);
    const __m512 zero = _mm512_set1_ps((float)w->zero);
    const int offset = ek_linear_stored_zero(w);
    const bool q8 = w->form == EK_W_Q8;
    for (int p = 0; p < PANELS; p++) {
        const uint8_t *from = panel[p] + (size_t)(k / w->group) * group_bytes;
        for (int g = 0; g < groups; g++) {
            const int part = (k / group + g) % per_scale;
            uint8_t *to = codes + (g * PANELS + p) * group * EK_PANEL;
            const uint8_t *at = from + code_bytes / (size_t)per_scale * (size_t)part;
            if (is_signed) {
                if (q8) unpack_codes(to, at, group, offset, true, true);
                else unpack_codes(to, at, group, offset, false, true);
            } else {
                if (q8) unpack_codes(to, at, group, 0, true, false);
                else unpack_codes(to, at, group, 0, false, false);
            }
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
