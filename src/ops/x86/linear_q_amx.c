/* Form Q of MLX's weights on AMX: A-groups of 64 or 32 inputs, one tile product each. */
#include "ops/x86/linear_amx.h"

AMX_FNS(64)
AMX_FNS(32)

static void unpack_codes(int8_t *out, const uint8_t *codes, int n, const bool q8)
{
    const __m512i low = _mm512_set1_epi8(15), eight = _mm512_set1_epi8(8), sign = _mm512_set1_epi8(-128);
    if (q8) {
        for (int i = 0; i < n; i += 4, codes += 64, out += 64)
            _mm512_store_si512(out, _mm512_xor_si512(_mm512_load_si512(codes), sign));
        return;
    }
    for (int i = 0; i < n; i += 8, codes += 64, out += 128) {
        __m512i both = _mm512_load_si512(codes);
        _mm512_store_si512(out, _mm512_sub_epi8(_mm512_and_si512(both, low), eight));
        _mm512_store_si512(out + 64, _mm512_sub_epi8(_mm512_and_si512(_mm512_srli_epi16(both, 4), low), eight));
    }
}

INLINE __m512 scales(const uint8_t *at, ek_dtype t, int i)
{
    if (t == EK_F32) return _mm512_load_ps((const float *)(const void *)at + i * EK_PANEL);
    __m256i half = _mm256_load_si256((const __m256i *)(const void *)at + i);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

static void unpack(weights *out, const ek_linear *w, const uint8_t *const *panel, int k, int groups)
{
    const int group = w->a_group, per_scale = w->group / group;
    const size_t group_bytes = ek_linear_group_bytes(w), code_bytes = ek_linear_code_bytes(w);
    const __m512 zero = _mm512_set1_ps((float)w->zero);
    for (int p = 0; p < PANELS; p++) {
        const uint8_t *from = panel[p] + (size_t)(k / w->group) * group_bytes;
        for (int g = 0; g < groups; g++) {
            const int part = (k / group + g) % per_scale;
            for (size_t i = 0; part == 0 && i < group_bytes; i += 64) fetch(from + i, AHEAD);
            unpack_codes(out->codes + (g * PANELS + p) * group * EK_PANEL,
                         from + code_bytes / (size_t)per_scale * (size_t)part, group, w->form == EK_W_Q8);
            __m512 s = scales(from + code_bytes, w->scale_dtype, 0);
            _mm512_store_ps(out->scale[g][p][0], s);
            if (w->biased)
                _mm512_store_ps(out->scale[g][p][1],
                                _mm512_fmadd_ps(zero, s, scales(from + code_bytes, w->scale_dtype, 1)));
            if (part == per_scale - 1) from += group_bytes;
        }
    }
}

static void run(const ek_linear *w, const ek_acts *x, int r0, int r1, float *y, ptrdiff_t ldy, int p0, int p1)
{
    amx_run(w, x, r0, r1, y, ldy, p0, p1, unpack, w->a_group == 32 ? stages_32 : stages_64);
}

/* The number of rows decides speed only: AVX-512 gives the same bits. */
void ek_linear_q4_amx(const ek_linear *w, const ek_acts *x, int r0, int r1, float *y, ptrdiff_t ldy, int p0, int p1)
{
    if (r1 - r0 < MIN_ROWS) ek_linear_q4_avx512(w, x, r0, r1, y, ldy, p0, p1);
    else run(w, x, r0, r1, y, ldy, p0, p1);
}

void ek_linear_q8_amx(const ek_linear *w, const ek_acts *x, int r0, int r1, float *y, ptrdiff_t ldy, int p0, int p1)
{
    if (r1 - r0 < MIN_ROWS) ek_linear_q8_avx512(w, x, r0, r1, y, ldy, p0, p1);
    else run(w, x, r0, r1, y, ldy, p0, p1);
}
