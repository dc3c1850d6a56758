/* The library's inner loops on AVX-512. */
#include "ops/x86/vec_avx512.h"

INLINE vf load_f16(const void *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}

enum { MADD_ROWS = 6, VALUE_QUERIES = 8 };
#define MADD_MOST 6

#include "lib/x86/lib_tile.h"
#include "lib/x86/attn_fma.h"

/* 16 vectors of 16 dwords become their columns. */
INLINE void turn_16(__m512i *r)
{
    __m512i t[16];
    UNROLL for (int i = 0; i < 16; i += 4)
    {
        __m512i a = _mm512_unpacklo_epi32(r[i], r[i + 1]), b = _mm512_unpackhi_epi32(r[i], r[i + 1]);
        __m512i c = _mm512_unpacklo_epi32(r[i + 2], r[i + 3]), d = _mm512_unpackhi_epi32(r[i + 2], r[i + 3]);
        t[i] = _mm512_unpacklo_epi64(a, c), t[i + 1] = _mm512_unpackhi_epi64(a, c);
        t[i + 2] = _mm512_unpacklo_epi64(b, d), t[i + 3] = _mm512_unpackhi_epi64(b, d);
    }
    UNROLL for (int i = 0; i < 4; i++) /* column 4 l + i lies in quarter l of t[i], t[4 + i], … */
    {
        __m512i a = _mm512_shuffle_i32x4(t[i], t[4 + i], 0x88), b = _mm512_shuffle_i32x4(t[8 + i], t[12 + i], 0x88);
        __m512i c = _mm512_shuffle_i32x4(t[i], t[4 + i], 0xdd), d = _mm512_shuffle_i32x4(t[8 + i], t[12 + i], 0xdd);
        r[i] = _mm512_shuffle_i32x4(a, b, 0x88), r[8 + i] = _mm512_shuffle_i32x4(a, b, 0xdd);
        r[4 + i] = _mm512_shuffle_i32x4(c, d, 0x88), r[12 + i] = _mm512_shuffle_i32x4(c, d, 0xdd);
    }
}

static void turn(float *panel, const float *rows)
{
    for (int k = 0; k < LIB_DEPTH; k += 16) {
        __m512i r[16];
        UNROLL for (int i = 0; i < 16; i++) r[i] = _mm512_loadu_si512(rows + i * LIB_DEPTH + k);
        turn_16(r);
        UNROLL for (int i = 0; i < 16; i++) _mm512_storeu_si512(panel + (k + i) * LIB_COLS, r[i]);
    }
}

/* Codes of 4 bits select one of 16 floats: the permutation reads four bits of each lane. */
static void affine(float *to, const uint8_t *codes, int n, int bits, float s, float b)
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
    if (i < n) affine_any(to + i, codes, n - i, bits, s, b);
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

static void affine_turned(float *panel, const uint8_t *const *rows, int n, int bits, const float *s, const float *b)
{
    const __m512 value = _mm512_cvtepi32_ps(vi_iota()), sv = v_load(s), bv = v_load(b);
    const __m512i byte = vi_set1(255);
    __m512i r[4];
    for (int k = 0; k < n; k += bits == 4 ? 32 : 16) {
        load_dwords(r, rows, k * bits / 8);
        UNROLL for (int d = 0; d < 4; d++)
        {
            float *to = panel + (k + d * (bits == 4 ? 8 : 4)) * LIB_COLS;
            if (bits == 4)
                UNROLL for (int j = 0; j < 8; j++)
                    v_store(to + j * LIB_COLS,
                            v_fma(sv, _mm512_permutexvar_ps(_mm512_srli_epi32(r[d], 4u * (unsigned)j), value), bv));
            else
                UNROLL for (int j = 0; j < 4; j++)
                    v_store(to + j * LIB_COLS,
                            v_fma(sv, _mm512_cvtepi32_ps(vi_and(_mm512_srli_epi32(r[d], 8u * (unsigned)j), byte)), bv));
        }
    }
}

/* A panel of Form Q, 4 or 8 bits (ops/linear_layout.h): lane o of a vector has the codes of output o. */
INLINE void unpack_panel(float *to, const ek_linear *w, const uint8_t *panel, int k0, int depth, const bool q8)
{
    size_t group_bytes = ek_linear_group_bytes(w), code_bytes = ek_linear_code_bytes(w);
    const __m512i zero = vi_set1(ek_linear_stored_zero(w) - w->zero), byte = vi_set1(255);
    const __m512 value = _mm512_cvtepi32_ps(vi_sub(vi_iota(), zero));
    for (int k = 0; k < depth;) {
        const uint8_t *g = panel + (size_t)((k0 + k) / w->group) * group_bytes, *at = g + code_bytes;
        int in = (k0 + k) % w->group, end = w->group - in < depth - k ? k + w->group - in : depth;
        vf s, b;
        if (w->scale_dtype == EK_BF16)
            s = v_load_bf16((const uint16_t *)at), b = v_load_bf16((const uint16_t *)at + 16);
        else s = v_load((const float *)at), b = v_load((const float *)at + 16);
        for (const uint8_t *c = g + (size_t)in * (q8 ? 16 : 8); k < end; k += q8 ? 4 : 8, c += 64) {
            __m512i u = _mm512_loadu_si512(c);
            if (q8) UNROLL for (int j = 0; j < 4; j++)
                {
                    __m512i code = vi_sub(vi_and(_mm512_srli_epi32(u, 8u * (unsigned)j), byte), zero);
                    v_store(to + (k + j) * LIB_COLS, v_fma(s, _mm512_cvtepi32_ps(code), b));
                }
            else UNROLL for (int j = 0; j < 8; j++)
                {
                    __m512i code = _mm512_srli_epi32(u, 8u * (unsigned)(j % 4) + 4u * (unsigned)(j / 4));
                    v_store(to + (k + j) * LIB_COLS, v_fma(s, _mm512_permutexvar_ps(code, value), b));
                }
        }
    }
}

static void unpack(float *panel, const ek_linear *w, int p0, int k0, int depth)
{
    if (!w->biased || k0 % 8 || depth % 8) {
        plain_unpack(panel, w, p0, k0, depth);
        return;
    }
    for (int p = 0; p < LIB_COLS / EK_PANEL && p0 + p < w->n_panels; p++) {
        const uint8_t *from = w->data + (size_t)(p0 + p) * w->panel_bytes;
        if (w->form == EK_W_Q8) unpack_panel(panel + p * EK_PANEL, w, from, k0, depth, true);
        else unpack_panel(panel + p * EK_PANEL, w, from, k0, depth, false);
    }
}

enum { PANELS = LIB_COLS / EK_PANEL, FETCH = 2048 };

/* The values of four panels go from codes into the sums of nr rows without a stop in memory. */
INLINE void madd_codes(float *acc, const float *const *x, const ek_linear *w, int p0, int64_t k0, int depth,
                       const int nr, const bool q8)
{
    size_t group_bytes = ek_linear_group_bytes(w), code_bytes = ek_linear_code_bytes(w);
    const __m512i zero = vi_set1(ek_linear_stored_zero(w) - w->zero), byte = vi_set1(255);
    const __m512 value = _mm512_cvtepi32_ps(vi_sub(vi_iota(), zero));
    const uint8_t *panel = w->data + (size_t)p0 * w->panel_bytes;
    vf a[LIB_FEW][PANELS];
    UNROLL for (int r = 0; r < nr; r++) UNROLL for (int p = 0; p < PANELS; p++)
        a[r][p] = v_load(acc + r * LIB_COLS + p * EK_PANEL);
    for (int64_t k = k0, last = k0 + depth; k < last;) {
        int64_t in = k % w->group, end = k - in + w->group < last ? k - in + w->group : last;
        const uint8_t *g = panel + (size_t)(k / w->group) * group_bytes;
        vf s[PANELS], b[PANELS];
        UNROLL for (int p = 0; p < PANELS; p++)
        {
            const uint8_t *at = g + (size_t)p * w->panel_bytes + code_bytes;
            if (w->scale_dtype == EK_BF16)
                s[p] = v_load_bf16((const uint16_t *)at), b[p] = v_load_bf16((const uint16_t *)at + 16);
            else s[p] = v_load((const float *)at), b[p] = v_load((const float *)at + 16);
        }
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
        v_store(acc + r * LIB_COLS + p * EK_PANEL, a[r][p]);
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

/* ------------------------------------------------------------------ scores */

/* 16 dims (f32) or 32 (16 bits) of 16 keys, turned: a vector of keys per dim or pair of dims. */
INLINE void load_keys(__m512i *r, const lib_score_block *b, size_t at, int left, const bool wide)
{
    if (left >= (wide ? 16 : 32)) {
        UNROLL for (int j = 0; j < 16; j++) r[j] = _mm512_loadu_si512(b->key[j] + at);
    } else {
        UNROLL for (int j = 0; j < 16; j++)
            r[j] = wide ? _mm512_maskz_loadu_epi32((__mmask16)((1u << left) - 1), b->key[j] + at)
                        : _mm512_maskz_loadu_epi16((__mmask32)((1u << left) - 1), b->key[j] + at);
    }
    turn_16(r);
}

INLINE vf pair_part(ek_type t, __m512i x, const int high)
{
    if (t == EK_TYPE_BF16) return v_as_float(high ? vi_and(x, vi_set1((int)0xffff0000u)) : vi_shl(x, 16));
    return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(high ? _mm512_srli_epi32(x, 16) : x));
}

INLINE void score_queries(const lib_score_block *b, const ek_type t, const float *q, float *e, const int nq)
{
    const bool wide = t == EK_TYPE_F32;
    const int step = wide ? 16 : 32;
    for (int d0 = 0; d0 < b->dim; d0 += EK_CHAIN) {
        int end = b->dim < d0 + EK_CHAIN ? b->dim : d0 + EK_CHAIN;
        vf acc[EK_TILE];
        UNROLL for (int i = 0; i < nq; i++) acc[i] = v_zero();
        for (int d = d0; d < end; d += step) {
            __m512i r[16];
            load_keys(r, b, (size_t)d * (wide ? 4 : 2), end - d, wide);
            if (b->ahead)
                UNROLL for (int j = 0; j < 16; j++) fetch(b->key[j], (ptrdiff_t)d * (wide ? 4 : 2) + b->ahead);
            UNROLL for (int c = 0; c < 16; c++)
            {
                if (wide) {
                    UNROLL for (int i = 0; i < nq; i++)
                        acc[i] = v_fma(v_set1(q[i * EK_Q_STRIDE + d + c]), v_as_float(r[c]), acc[i]);
                } else {
                    vf low = pair_part(t, r[c], 0), high = pair_part(t, r[c], 1);
                    UNROLL for (int i = 0; i < nq; i++)
                        acc[i] = v_fma(v_set1(q[i * EK_Q_STRIDE + d + 2 * c]), low, acc[i]);
                    UNROLL for (int i = 0; i < nq; i++)
                        acc[i] = v_fma(v_set1(q[i * EK_Q_STRIDE + d + 2 * c + 1]), high, acc[i]);
                }
            }
        }
        UNROLL for (int i = 0; i < nq; i++)
        {
            float *to = e + i * EK_SEGMENT;
            v_store(to, d0 ? v_add(v_load(to), acc[i]) : acc[i]);
        }
    }
}

/* The queries behind n_q are zeros: a tile of 8 serves 5 to 8 of them. */
INLINE void scores_of(const lib_score_block *b, const ek_type t)
{
    if (b->n_q > 4) score_queries(b, t, b->q, b->e, 8);
    else if (b->n_q > 2) score_queries(b, t, b->q, b->e, 4);
    else if (b->n_q == 2) score_queries(b, t, b->q, b->e, 2);
    else score_queries(b, t, b->q, b->e, 1);
}

static void scores(const lib_score_block *b)
{
    if (b->type == EK_TYPE_F32) scores_of(b, EK_TYPE_F32);
    else if (b->type == EK_TYPE_BF16) scores_of(b, EK_TYPE_BF16);
    else scores_of(b, EK_TYPE_F16);
}

void lib_kernels_avx512(lib_kernels *k)
{
    k->widen = widen;
    k->narrow = narrow;
    k->affine = affine;
    k->turn = turn;
    k->affine_turned = affine_turned;
    k->madd = madd;
    k->unpack = unpack;
    k->madd_few = madd_few;
    k->scores = scores;
    k->values = values;
    k->scores_bf16 = scores_bf16;
    k->round_bf16 = round_bf16;
    k->values_bf16 = values_bf16;
    k->combine = combine;
}
