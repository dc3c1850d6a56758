/* The exact product's kernels on AVX-512. */
#include "ops/x86/vec_avx512.h"
#include "ops/inline.h"

enum { MADD_ROWS = 6 };
#define MADD_MAX 6

#include "ops/linear/x86/decoded_vec.h"

static void transpose(float *panel, const float *rows)
{
    for (int k = 0; k < EK_DECODED_DEPTH; k += 16) {
        __m512i r[16];
        UNROLL for (int i = 0; i < 16; i++) r[i] = _mm512_loadu_si512(rows + i * EK_DECODED_DEPTH + k);
        vi_transpose(r);
        UNROLL for (int i = 0; i < 16; i++) _mm512_storeu_si512(panel + (k + i) * EK_DECODED_COLS, r[i]);
    }
}

/* Codes of 4 bits select one of 16 floats: the permutation reads four bits of each lane. */
static void decode(float *to, const uint8_t *codes, int n, int bits, float s, float b)
{
    const __m512 value = _mm512_cvtepi32_ps(vi_iota()), sv = v_set1(s), bv = v_set1(b);
    int i = 0;
    if (bits == 4) {
        const __m512i shift = _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 0, 4, 8, 12, 16, 20, 24, 28);
        const __m512i half = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
        for (; i + 16 <= n; i += 16, codes += 8) {
            int64_t word;
            memcpy(&word, codes, sizeof word);
            __m512i u = _mm512_srlv_epi32(_mm512_permutexvar_epi32(half, _mm512_set1_epi64(word)), shift);
            v_store(to + i, v_fma(sv, _mm512_permutexvar_ps(u, value), bv));
        }
    } else if (bits == 8) {
        for (; i + 16 <= n; i += 16, codes += 16)
            v_store(to + i,
                    v_fma(sv, _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)codes))), bv));
    }
    if (i < n) decode_any(to + i, codes, n - i, bits, s, b);
}

/* 16 bytes of each of 16 rows: r[d] has dword d of every row. */
INLINE void load_dwords(__m512i *r, const uint8_t *const *rows, int at)
{
    __m512i z[4];
    UNROLL for (int i = 0; i < 4; i++) /* rows i, 4 + i, 8 + i, 12 + i */
    {
        z[i] = _mm512_castsi128_si512(_mm_loadu_si128((const __m128i *)(rows[i] + at)));
        z[i] = _mm512_inserti32x4(z[i], _mm_loadu_si128((const __m128i *)(rows[4 + i] + at)), 1);
        z[i] = _mm512_inserti32x4(z[i], _mm_loadu_si128((const __m128i *)(rows[8 + i] + at)), 2);
        z[i] = _mm512_inserti32x4(z[i], _mm_loadu_si128((const __m128i *)(rows[12 + i] + at)), 3);
    }
    __m512i a = _mm512_unpacklo_epi32(z[0], z[1]), b = _mm512_unpackhi_epi32(z[0], z[1]);
    __m512i c = _mm512_unpacklo_epi32(z[2], z[3]), d = _mm512_unpackhi_epi32(z[2], z[3]);
    r[0] = _mm512_unpacklo_epi64(a, c), r[1] = _mm512_unpackhi_epi64(a, c);
    r[2] = _mm512_unpacklo_epi64(b, d), r[3] = _mm512_unpackhi_epi64(b, d);
}

static void decode_turned(float *panel, const uint8_t *const *rows, int n, int bits, const float *s, const float *b)
{
    const __m512 value = _mm512_cvtepi32_ps(vi_iota()), sv = v_load(s), bv = v_load(b);
    const __m512i byte = vi_set1(255);
    __m512i r[4];
    for (int k = 0; k < n; k += bits == 4 ? 32 : 16) {
        load_dwords(r, rows, k * bits / 8);
        UNROLL for (int d = 0; d < 4; d++)
        {
            float *to = panel + (k + d * (bits == 4 ? 8 : 4)) * EK_DECODED_COLS;
            if (bits == 4)
                UNROLL for (int j = 0; j < 8; j++)
                    v_store(to + j * EK_DECODED_COLS,
                            v_fma(sv, _mm512_permutexvar_ps(_mm512_srli_epi32(r[d], 4u * (unsigned)j), value), bv));
            else
                UNROLL for (int j = 0; j < 4; j++)
                    v_store(to + j * EK_DECODED_COLS,
                            v_fma(sv, _mm512_cvtepi32_ps(vi_and(_mm512_srli_epi32(r[d], 8u * (unsigned)j), byte)), bv));
        }
    }
}

/* A panel of Form Q, 4 or 8 bits (ops/linear/linear_layout.h): lane o of a vector has the codes of output o. */
INLINE void unpack_panel(float *to, const ek_linear *w, const uint8_t *panel, int k0, int depth, const bool q8)
{
    const size_t group_bytes = ek_linear_group_bytes(w);
    const __m512i zero = vi_set1(ek_linear_stored_zero(w) - w->zero), byte = vi_set1(255);
    const __m512 value = _mm512_cvtepi32_ps(vi_sub(vi_iota(), zero));
    for (int k = 0; k < depth;) {
        const uint8_t *g = panel + (size_t)((k0 + k) / w->group) * group_bytes;
        int in = (k0 + k) % w->group, end = w->group - in < depth - k ? k + w->group - in : depth;
        vf s, b;
        load_scales(w, g, 0, &s, &b);
        for (const uint8_t *c = g + (size_t)in * (q8 ? 16 : 8); k < end; k += q8 ? 4 : 8, c += 64) {
            __m512i u = _mm512_loadu_si512(c);
            if (q8) UNROLL for (int j = 0; j < 4; j++)
                {
                    __m512i code = vi_sub(vi_and(_mm512_srli_epi32(u, 8u * (unsigned)j), byte), zero);
                    v_store(to + (k + j) * EK_DECODED_COLS, v_fma(s, _mm512_cvtepi32_ps(code), b));
                }
            else UNROLL for (int j = 0; j < 8; j++)
                {
                    __m512i code = _mm512_srli_epi32(u, 8u * (unsigned)(j % 4) + 4u * (unsigned)(j / 4));
                    v_store(to + (k + j) * EK_DECODED_COLS, v_fma(s, _mm512_permutexvar_ps(code, value), b));
                }
        }
    }
}

static void unpack(float *panel, const ek_linear *w, int p0, int k0, int depth)
{
    for (int p = 0; p < EK_DECODED_COLS / EK_PANEL && p0 + p < w->n_panels; p++) {
        const uint8_t *from = w->data + (size_t)(p0 + p) * w->panel_bytes;
        if (w->form == EK_W_Q8) unpack_panel(panel + p * EK_PANEL, w, from, k0, depth, true);
        else unpack_panel(panel + p * EK_PANEL, w, from, k0, depth, false);
    }
}

enum { PANELS = EK_DECODED_COLS / EK_PANEL, FETCH = 2048 };

/* The values of four panels go from codes into the sums of nr rows without being stored. */
INLINE void madd_codes(float *acc, const float *const *x, const ek_linear *w, int p0, int64_t k0, int depth,
                       const int nr, const bool q8)
{
    const size_t group_bytes = ek_linear_group_bytes(w);
    const __m512i zero = vi_set1(ek_linear_stored_zero(w) - w->zero), byte = vi_set1(255);
    const __m512 value = _mm512_cvtepi32_ps(vi_sub(vi_iota(), zero));
    const uint8_t *panel = w->data + (size_t)p0 * w->panel_bytes;
    vf a[EK_DECODED_FEW][PANELS];
    UNROLL for (int r = 0; r < nr; r++) UNROLL for (int p = 0; p < PANELS; p++)
        a[r][p] = v_load(acc + r * EK_DECODED_COLS + p * EK_PANEL);
    for (int64_t k = k0, last = k0 + depth; k < last;) {
        int64_t in = k % w->group, end = k - in + w->group < last ? k - in + w->group : last;
        const uint8_t *g = panel + (size_t)(k / w->group) * group_bytes;
        vf s[PANELS], b[PANELS];
        UNROLL for (int p = 0; p < PANELS; p++) load_scales(w, g + (size_t)p * w->panel_bytes, 0, &s[p], &b[p]);
        for (const uint8_t *c = g + in * (q8 ? 16 : 8); k < end; k += q8 ? 4 : 8, c += 64) {
            __m512i u[PANELS];
            UNROLL for (int p = 0; p < PANELS; p++)
            {
                u[p] = _mm512_loadu_si512(c + (size_t)p * w->panel_bytes);
                fetch(c + (size_t)p * w->panel_bytes, FETCH);
            }
            for (int j = 0; j < (q8 ? 4 : 8); j++) UNROLL for (int p = 0; p < PANELS; p++)
                {
                    __m512i code = _mm512_srli_epi32(u[p], q8 ? 8u * (unsigned)j
                                                              : 8u * (unsigned)(j % 4) + 4u * (unsigned)(j / 4));
                    vf v = q8 ? _mm512_cvtepi32_ps(vi_sub(vi_and(code, byte), zero))
                              : _mm512_permutexvar_ps(code, value);
                    v = v_fma(s[p], v, b[p]);
                    UNROLL for (int r = 0; r < nr; r++) a[r][p] = v_fma(v_set1(x[r][k + j]), v, a[r][p]);
                }
        }
    }
    UNROLL for (int r = 0; r < nr; r++) UNROLL for (int p = 0; p < PANELS; p++)
        v_store(acc + r * EK_DECODED_COLS + p * EK_PANEL, a[r][p]);
}

INLINE void madd_any(float *acc, const float *const *x, int rows, const ek_linear *w, int p0, int64_t k0, int depth,
                     const bool q8)
{
    if (rows == 1) madd_codes(acc, x, w, p0, k0, depth, 1, q8);
    else if (rows == 2) madd_codes(acc, x, w, p0, k0, depth, 2, q8);
    else madd_codes(acc, x, w, p0, k0, depth, 3, q8);
}

static void madd_few(float *acc, const float *const *x, int rows, const ek_linear *w, int p0, int64_t k0, int depth)
{
    if (w->form == EK_W_Q8) madd_any(acc, x, rows, w, p0, k0, depth, true);
    else madd_any(acc, x, rows, w, p0, k0, depth, false);
}

void ek_decoded_table_avx512(ek_decoded_ops *ops)
{
    *ops = (ek_decoded_ops){.decode = decode,
                            .decode_turned = decode_turned,
                            .transpose = transpose,
                            .unpack = unpack,
                            .madd = madd,
                            .madd_few = madd_few};
}
