/* Attention over rows (ops/attn/attn_rows.h) on AVX2. */
#include "ops/x86/vec_avx2.h"

enum { VALUE_QUERIES = 4 };

#include "ops/attn/x86/attn_rows_fma.h"
#include "ops/attn/x86/attn_rows_vec.h"
#include "ops/attn/x86/attn_rows_x86.h"

/* 8 dims (f32) or 16 (16 bits) of 8 keys, turned. */
INLINE void load_keys(__m256i *r, const ek_score_block *b, int first, int d, int left, const bool wide)
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
    vi_turn(r);
}

INLINE vf pair_part(ek_dtype t, __m256i x, const int high)
{
    if (t == EK_BF16) return v_as_float(high ? vi_and(x, vi_set1((int)0xffff0000u)) : vi_shl(x, 16));
    __m256i half = high ? _mm256_srli_epi32(x, 16) : vi_and(x, vi_set1(0xffff));
    half = _mm256_permute4x64_epi64(_mm256_packus_epi32(half, half), 0xd8);
    return _mm256_cvtph_ps(_mm256_castsi256_si128(half));
}

INLINE void score_queries(const ek_score_block *b, const ek_dtype t, int first, int i0, const int nq)
{
    const bool wide = t == EK_F32;
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

INLINE void scores_of(const ek_score_block *b, const ek_dtype t)
{
    for (int first = 0; first < EK_SCORE_KEYS; first += 8)
        for (int i = 0; i < b->n_q; i += 4) { /* absent queries are zeros */
            if (b->n_q - i == 1) score_queries(b, t, first, i, 1);
            else score_queries(b, t, first, i, 4);
        }
}

static void scores(const ek_score_block *b)
{
    if (b->type == EK_F32) scores_of(b, EK_F32);
    else if (b->type == EK_BF16) scores_of(b, EK_BF16);
    else scores_of(b, EK_F16);
}

void ek_attn_rows_table_avx2(ek_attn_rows_ops *ops)
{
    ops->scores = scores;
    ops->values = values;
    ops->scores_bf16 = scores_bf16;
    ops->round_bf16 = round_bf16;
    ops->values_bf16 = values_bf16;
}
