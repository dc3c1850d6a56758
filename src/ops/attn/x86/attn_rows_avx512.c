/* Attention over rows (ops/attn/attn_rows.h) on AVX-512. */
#include "ops/x86/vec_avx512.h"

enum { VALUE_QUERIES = 8 };

#include "ops/attn/x86/attn_rows_fma.h"
#include "ops/attn/x86/attn_rows_vec.h"
#include "ops/attn/x86/attn_rows_x86.h"

/* 16 dims (f32) or 32 (16 bits) of 16 keys, turned: a vector of keys per dim or pair of dims. */
INLINE void load_keys(__m512i *r, const ek_score_block *b, size_t at, int left, const bool wide)
{
    if (left >= (wide ? 16 : 32)) {
        UNROLL for (int j = 0; j < 16; j++) r[j] = _mm512_loadu_si512(b->key[j] + at);
    } else {
        UNROLL for (int j = 0; j < 16; j++)
            r[j] = wide ? _mm512_maskz_loadu_epi32((__mmask16)((1u << left) - 1), b->key[j] + at)
                        : _mm512_maskz_loadu_epi16((__mmask32)((1u << left) - 1), b->key[j] + at);
    }
    vi_turn(r);
}

INLINE vf pair_part(ek_dtype t, __m512i x, const int high)
{
    if (t == EK_BF16) return v_as_float(high ? vi_and(x, vi_set1((int)0xffff0000u)) : vi_shl(x, 16));
    return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(high ? _mm512_srli_epi32(x, 16) : x));
}

INLINE void score_queries(const ek_score_block *b, const ek_dtype t, const float *q, float *e, const int nq)
{
    const bool wide = t == EK_F32;
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
INLINE void scores_of(const ek_score_block *b, const ek_dtype t)
{
    if (b->n_q > 4) score_queries(b, t, b->q, b->e, 8);
    else if (b->n_q > 2) score_queries(b, t, b->q, b->e, 4);
    else if (b->n_q == 2) score_queries(b, t, b->q, b->e, 2);
    else score_queries(b, t, b->q, b->e, 1);
}

static void scores(const ek_score_block *b)
{
    if (b->type == EK_F32) scores_of(b, EK_F32);
    else if (b->type == EK_BF16) scores_of(b, EK_BF16);
    else scores_of(b, EK_F16);
}

void ek_attn_rows_table_avx512(ek_attn_rows_ops *ops)
{
    ops->scores = scores;
    ops->values = values;
    ops->scores_bf16 = scores_bf16;
    ops->round_bf16 = round_bf16;
    ops->values_bf16 = values_bf16;
}
