/* Scores of 8-bit codes without a tile of floats, AVX-512. One pass takes all queries of a tile, so a decoded vector is
 * used once, in a register, and sums stay in registers for a chain: the stores took a quarter of the time where
 * a processor stores 64 bytes every other cycle. The terms and their order are those of attn_groups.h, which includes
 * this. */
#ifndef EK_OPS_X86_ATTN_FUSED_8_H
#define EK_OPS_X86_ATTN_FUSED_8_H

enum { CHAIN_BLOCKS = EK_CHAIN / TILE_DIMS }; /* of dims with one scale */

/* Codes of vector c of a row as floats: shifts and the conversion leave the multipliers of a Zen 4 alone, which a
 * dot product with one byte of four does not. */
INLINE vf key_codes(vi row, const int c)
{
    const vi high = c < 3 ? vi_shl(row, 24 - 8 * c) : row;
    return _mm512_cvtepi32_ps(_mm512_srai_epi32(high, 24));
}

/* acc[i][key] = q[i] . key for nq queries, a chain of n dims, and cols vectors of keys from vector `first` of the row
 * on, in the order of a tile's row. s: the scales of each TILE_DIMS dims, as page_scales made them. */
INLINE void score_pass_8(const int nq, const int cols, const int first, const float *q, const uint8_t *row, int n,
                         const float *s, float *acc, stream *ahead)
{
    vf a[EK_TILE][EK_PAGE_TOKENS / W];
    UNROLL for (int i = 0; i < nq; i++) UNROLL for (int c = 0; c < cols; c++) a[i][c] = v_zero();
    for (int block = 0; block < n; block += TILE_DIMS, s += EK_PAGE_TOKENS) {
        vf scale[EK_PAGE_TOKENS / W];
        UNROLL for (int c = 0; c < cols; c++) scale[c] = v_load(s + (first + c) * W);
        const int end = n - block < TILE_DIMS ? n - block : TILE_DIMS;
        for (int d = 0; d < end; d += SCORE_DIMS, q += SCORE_DIMS) {
            if (ahead) stream_next(ahead);
            UNROLL for (int h = 0; h < SCORE_DIMS; h++, row += EK_PAGE_TOKENS)
            {
                const vi x = _mm512_loadu_si512(row);
                vf key[EK_PAGE_TOKENS / W];
                UNROLL for (int c = 0; c < cols; c++) key[c] = v_mul(scale[c], key_codes(x, first + c));
                UNROLL for (int i = 0; i < nq; i++)
                {
                    const vf qi = v_set1(q[i * EK_Q_STRIDE + h]);
                    UNROLL for (int c = 0; c < cols; c++) a[i][c] = v_fma(qi, key[c], a[i][c]);
                }
            }
        }
    }
    UNROLL for (int i = 0; i < nq; i++) UNROLL for (int c = 0; c < cols; c++)
        v_store(acc + i * EK_PAGE_TOKENS + (first + c) * W, a[i][c]);
}

INLINE void score_chain_8_for(const int nq, const float *q, const uint8_t *row, int n, const float *s, float *acc,
                              stream *ahead)
{
    UNROLL for (int c = 0; c < EK_PAGE_TOKENS / W; c += GROUP_COLS(nq))
        score_pass_8(nq, GROUP_COLS(nq), c, q, row, n, s, acc, ahead);
}

/* All queries by a chain of n dims of a page's keys; scale: the page's first of the chain. */
APART void score_chain_8(int n_q, const float *q, const uint8_t *row, int n, const ek_f16 *scale, int group, float *acc,
                         stream *ahead)
{
    _Alignas(64) float s[CHAIN_BLOCKS * EK_PAGE_TOKENS];
    for (int b = 0; b * TILE_DIMS < n; b++)
        page_scales(scale + b * TILE_DIMS / group * EK_PAGE_TOKENS, s + b * EK_PAGE_TOKENS);
    if (n_q > 4) score_chain_8_for(8, q, row, n, s, acc, ahead);
    else if (n_q > 2) score_chain_8_for(4, q, row, n, s, acc, ahead);
    else if (n_q == 2) score_chain_8_for(2, q, row, n, s, acc, ahead);
    else score_chain_8_for(1, q, row, n, s, acc, ahead);
}

#endif
