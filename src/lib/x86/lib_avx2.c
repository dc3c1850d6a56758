/* The library's inner loops on AVX2, FMA and F16C. */
#include "ops/x86/vec_avx2.h"

INLINE vf load_f16(const void *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
}

enum { MADD_ROWS = 3, VALUE_QUERIES = 4 };
#define MADD_MOST 3

#include "lib/x86/lib_tile.h"
#include "lib/x86/attn_fma.h"

/* 8 vectors of 8 dwords become their columns. */
INLINE void turn_8(__m256i *r)
{
    __m256i t[8];
    UNROLL for (int i = 0; i < 8; i += 4)
    {
        __m256i a = _mm256_unpacklo_epi32(r[i], r[i + 1]), b = _mm256_unpackhi_epi32(r[i], r[i + 1]);
        __m256i c = _mm256_unpacklo_epi32(r[i + 2], r[i + 3]), d = _mm256_unpackhi_epi32(r[i + 2], r[i + 3]);
        t[i] = _mm256_unpacklo_epi64(a, c), t[i + 1] = _mm256_unpackhi_epi64(a, c);
        t[i + 2] = _mm256_unpacklo_epi64(b, d), t[i + 3] = _mm256_unpackhi_epi64(b, d);
    }
    UNROLL for (int i = 0; i < 4; i++)
    {
        r[i] = _mm256_permute2x128_si256(t[i], t[4 + i], 0x20);
        r[4 + i] = _mm256_permute2x128_si256(t[i], t[4 + i], 0x31);
    }
}

static void turn(float *panel, const float *rows)
{
    for (int k = 0; k < LIB_DEPTH; k += 8)
        for (int half = 0; half < EK_PANEL; half += 8) {
            __m256i r[8];
            UNROLL for (int i = 0; i < 8; i++)
                r[i] = _mm256_loadu_si256((const __m256i *)(rows + (half + i) * LIB_DEPTH + k));
            turn_8(r);
            UNROLL for (int i = 0; i < 8; i++)
                _mm256_storeu_si256((__m256i *)(panel + (k + i) * LIB_COLS + half), r[i]);
        }
}

/* Half a panel of Form Q: lane o of a vector has the codes of output o. */
INLINE void unpack_half(float *to, const ek_linear *w, const uint8_t *panel, int half, int k0, int depth, const bool q8)
{
    size_t group_bytes = ek_linear_group_bytes(w), code_bytes = ek_linear_code_bytes(w);
    const __m256i zero = vi_set1(ek_linear_stored_zero(w) - w->zero), mask = vi_set1(q8 ? 255 : 15);
    for (int k = 0; k < depth;) {
        const uint8_t *g = panel + (size_t)((k0 + k) / w->group) * group_bytes, *at = g + code_bytes;
        int in = (k0 + k) % w->group, end = w->group - in < depth - k ? k + w->group - in : depth;
        vf s, b;
        if (w->scale_dtype == EK_BF16)
            s = v_load_bf16((const uint16_t *)at + half), b = v_load_bf16((const uint16_t *)at + 16 + half);
        else s = v_load((const float *)at + half), b = v_load((const float *)at + 16 + half);
        for (const uint8_t *c = g + (size_t)in * (q8 ? 16 : 8) + half * 4; k < end; k += q8 ? 4 : 8, c += 64) {
            __m256i u = _mm256_loadu_si256((const __m256i *)c);
            for (int j = 0; j < (q8 ? 4 : 8); j++) {
                __m256i code = vi_and(_mm256_srli_epi32(u, 8 * (j % 4) + 4 * (j / 4)), mask);
                v_store(to + (k + j) * LIB_COLS, v_fma(s, _mm256_cvtepi32_ps(vi_sub(code, zero)), b));
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
    for (int p = 0; p < LIB_COLS / EK_PANEL && p0 + p < w->n_panels; p++)
        for (int half = 0; half < EK_PANEL; half += 8) {
            const uint8_t *from = w->data + (size_t)(p0 + p) * w->panel_bytes;
            float *to = panel + p * EK_PANEL + half;
            if (w->form == EK_W_Q8) unpack_half(to, w, from, half, k0, depth, true);
            else unpack_half(to, w, from, half, k0, depth, false);
        }
}

/* ------------------------------------------------------------------ scores */

/* 8 dims (f32) or 16 (16 bits) of 8 keys, turned. */
INLINE void load_keys(__m256i *r, const lib_score_block *b, int first, int d, int left, const bool wide)
{
    const int step = wide ? 8 : 16, size = wide ? 4 : 2;
    UNROLL for (int j = 0; j < 8; j++)
    {
        const uint8_t *from = b->key[first + j] + (size_t)d * (size_t)size;
        if (left >= step) {
            r[j] = _mm256_loadu_si256((const __m256i *)from);
            continue;
        }
        uint8_t part[32] = {0};
        memcpy(part, from, (size_t)left * (size_t)size);
        r[j] = _mm256_loadu_si256((const __m256i *)part);
    }
    turn_8(r);
}

INLINE vf pair_part(ek_type t, __m256i x, const int high)
{
    if (t == EK_TYPE_BF16) return v_as_float(high ? vi_and(x, vi_set1((int)0xffff0000u)) : vi_shl(x, 16));
    __m256i half = high ? _mm256_srli_epi32(x, 16) : vi_and(x, vi_set1(0xffff));
    half = _mm256_permute4x64_epi64(_mm256_packus_epi32(half, half), 0xd8);
    return _mm256_cvtph_ps(_mm256_castsi256_si128(half));
}

INLINE void score_queries(const lib_score_block *b, const ek_type t, int first, int i0, const int nq)
{
    const bool wide = t == EK_TYPE_F32;
    const int step = wide ? 8 : 16;
    const float *q = b->q + i0 * EK_Q_STRIDE;
    for (int d0 = 0; d0 < b->dim; d0 += EK_CHAIN) {
        int end = b->dim < d0 + EK_CHAIN ? b->dim : d0 + EK_CHAIN;
        vf acc[4];
        UNROLL for (int i = 0; i < nq; i++) acc[i] = v_zero();
        for (int d = d0; d < end; d += step) {
            __m256i r[8];
            load_keys(r, b, first, d, end - d, wide);
            if (b->ahead && i0 == 0)
                UNROLL for (int j = 0; j < 8; j++) fetch(b->key[first + j], (ptrdiff_t)d * (wide ? 4 : 2) + b->ahead);
            UNROLL for (int c = 0; c < 8; c++)
            {
                if (wide) {
                    UNROLL for (int i = 0; i < nq; i++)
                        acc[i] = v_fma(v_set1(q[i * EK_Q_STRIDE + d + c]), v_as_float(r[c]), acc[i]);
                } else {
                    vf low = pair_part(t, r[c], 0), high = pair_part(t, r[c], 1);
                    UNROLL for (int i = 0; i < nq; i++)
                    {
                        acc[i] = v_fma(v_set1(q[i * EK_Q_STRIDE + d + 2 * c]), low, acc[i]);
                        acc[i] = v_fma(v_set1(q[i * EK_Q_STRIDE + d + 2 * c + 1]), high, acc[i]);
                    }
                }
            }
        }
        UNROLL for (int i = 0; i < nq; i++)
        {
            float *to = b->e + (i0 + i) * EK_SEGMENT + first;
            v_store(to, d0 ? v_add(v_load(to), acc[i]) : acc[i]);
        }
    }
}

INLINE void scores_of(const lib_score_block *b, const ek_type t)
{
    for (int first = 0; first < LIB_KEYS; first += 8)
        for (int i = 0; i < b->n_q; i += 4) { /* absent queries are zeros */
            if (b->n_q - i == 1) score_queries(b, t, first, i, 1);
            else score_queries(b, t, first, i, 4);
        }
}

static void scores(const lib_score_block *b)
{
    if (b->type == EK_TYPE_F32) scores_of(b, EK_TYPE_F32);
    else if (b->type == EK_TYPE_BF16) scores_of(b, EK_TYPE_BF16);
    else scores_of(b, EK_TYPE_F16);
}

void lib_kernels_avx2(lib_kernels *k)
{
    k->widen = widen;
    k->narrow = narrow;
    k->affine = affine_any;
    k->turn = turn;
    k->madd = madd;
    k->unpack = unpack;
    k->scores = scores;
    k->values = values;
    k->scores_bf16 = scores_bf16;
    k->round_bf16 = round_bf16;
    k->values_bf16 = values_bf16;
    k->combine = combine;
}
