/* For AVX2: codes of 8 and 4 bits if a tile of queries takes two passes. attn_groups.h includes this file. The first
 * pass decodes a vector, multiplies it, and stores it in the tile for the second pass. Conversions therefore run beside
 * multiply-adds instead of before them. Queries that fit into one pass need no tile. */
#ifndef EK_OPS_X86_ATTN_CODES_256_H
#define EK_OPS_X86_ATTN_CODES_256_H

/* With 4 bits and more queries, decoding the tile first is faster, by 1 % in all. */
#define DECODES(bits, n_q) ((bits) == 8 || ((bits) == 4 && (n_q) <= QUERIES))

/* --- scores */

typedef struct key_block {
    const float *q;
    const uint8_t *codes; /* the codes from the block's first dim on */
    const float *s, *b;   /* scales and biases of the page's keys */
    int n, n_q;           /* dims, queries */
    float *tile, *acc;    /* [dim][64], [query][64] */
} key_block;

/* score_pass for the block's first queries; kept: the tile is written. */
INLINE void score_pass_decoding(const int bits, const int nq, const int cols, const bool kept, const key_block *r,
                                int first, stream *ahead)
{
    vf a[EK_TILE][EK_PAGE_TOKENS / W], s[EK_PAGE_TOKENS / W], b[EK_PAGE_TOKENS / W];
    const float *q = r->q;
    const uint8_t *codes = r->codes;
    float *tile = r->tile + first, *acc = r->acc + first;
    UNROLL for (int c = 0; c < cols; c++)
    {
        s[c] = v_load(r->s + first + c * W);
        b[c] = bits < 8 ? v_load(r->b + first + c * W) : v_zero();
        UNROLL for (int i = 0; i < nq; i++) a[i][c] = v_load(acc + i * EK_PAGE_TOKENS + c * W);
    }
    for (int d = 0; d < r->n; d += SCORE_DIMS, q += SCORE_DIMS, codes += SCORE_DIMS * EK_PAGE_TOKENS * bits / 8) {
        stream_next(ahead);
        UNROLL for (int h = 0; h < SCORE_DIMS; h++)
        {
            vf key[EK_PAGE_TOKENS / W];
            UNROLL for (int c = 0; c < cols; c++)
            {
                key[c] = key_vector(bits, codes, h, first + c * W, s[c], b[c]);
                if (kept) v_store(tile + (d + h) * EK_PAGE_TOKENS + c * W, key[c]);
            }
            UNROLL for (int i = 0; i < nq; i++)
            {
                const vf x = v_set1(q[i * EK_Q_STRIDE + h]);
                UNROLL for (int c = 0; c < cols; c++) a[i][c] = v_fma(x, key[c], a[i][c]);
            }
        }
    }
    UNROLL for (int i = 0; i < nq; i++) UNROLL for (int c = 0; c < cols; c++)
        v_store(acc + i * EK_PAGE_TOKENS + c * W, a[i][c]);
}

INLINE void score_keys_decoding(const int bits, const int nq, const bool kept, const key_block *r, stream *ahead)
{
    for (int key = 0; key < EK_PAGE_TOKENS; key += GROUP_COLS(nq) * W)
        score_pass_decoding(bits, nq, GROUP_COLS(nq), kept, r, key, ahead);
}

INLINE void score_block_of(const int bits, const key_block *r, stream *ahead)
{
    if (r->n_q > QUERIES) {
        score_keys_decoding(bits, QUERIES, true, r, ahead);
        score_tile_dims(r->n_q - QUERIES, r->q + QUERIES * EK_Q_STRIDE, r->tile, r->n,
                        r->acc + QUERIES * EK_PAGE_TOKENS, NULL);
    } else if (r->n_q > 2) score_keys_decoding(bits, 4, false, r, ahead);
    else if (r->n_q == 2) score_keys_decoding(bits, 2, false, r, ahead);
    else score_keys_decoding(bits, 1, false, r, ahead);
}

APART void score_block_8(const key_block *r, stream *ahead)
{
    score_block_of(8, r, ahead);
}

APART void score_block_4(const key_block *r, stream *ahead)
{
    score_block_of(4, r, ahead);
}

/* --- values */

/* value_pass for the first queries, which see all slots, for vectors from c on of 64 dims. */
INLINE void value_pass_decoding(const int bits, const int nq, const int cols, const bool kept, const value_run *r,
                                const int c, stream *ahead)
{
    vf a[EK_TILE][VALUE_DIMS / W];
    const int group = (r->in_group + c * W) / r->group;
    const float *s = r->s + group, *b = r->b + group;
    const uint8_t *code = r->code;
    float *tile = r->decoded + c * W, *o = r->o + c * W;
    UNROLL for (int i = 0; i < nq; i++) UNROLL for (int v = 0; v < cols; v++)
        a[i][v] = r->fresh ? v_zero() : v_load(o + i * r->ldo + v * W);
    for (int j = r->j; j < r->end; j++, tile += VALUE_DIMS, code += r->row, s += r->groups, b += r->groups) {
        vf value[VALUE_DIMS / W];
        if (c == 0) stream_next(ahead);
        UNROLL for (int v = 0; v < cols; v++)
        {
            value[v] = value_vector(bits, code, c + v, s, b);
            if (kept) v_store(tile + v * W, value[v]);
        }
        UNROLL for (int i = 0; i < nq; i++)
        {
            const vf x = v_set1(r->e[i * EK_SEGMENT + j]);
            UNROLL for (int v = 0; v < cols; v++) a[i][v] = v_fma(x, value[v], a[i][v]);
        }
    }
    UNROLL for (int i = 0; i < nq; i++) UNROLL for (int v = 0; v < cols; v++) v_store(o + i * r->ldo + v * W, a[i][v]);
}

/* Vectors of dims that nq queries take at a time, at most as many as share a scale. */
#define DECODED_COLS(nq) (GROUP_COLS(nq) < 4 ? GROUP_COLS(nq) : 4)

INLINE void value_cols_decoding(const int bits, const int nq, const bool kept, const value_run *r, stream *ahead)
{
    UNROLL for (int c = 0; c < VALUE_DIMS / W; c += DECODED_COLS(nq))
        value_pass_decoding(bits, nq, DECODED_COLS(nq), kept, r, c, ahead);
}

INLINE void value_block_of(const int bits, const value_run *r, stream *ahead)
{
    if (r->n_q > QUERIES) {
        value_cols_decoding(bits, QUERIES, true, r, ahead);
        value_run rest = *r;
        rest.tile = r->decoded, rest.e += QUERIES * EK_SEGMENT, rest.o += QUERIES * r->ldo, rest.n_q -= QUERIES;
        value_tile_dims(&rest, NULL);
    } else if (r->n_q > 2) value_cols_decoding(bits, 4, false, r, ahead);
    else if (r->n_q == 2) value_cols_decoding(bits, 2, false, r, ahead);
    else value_cols_decoding(bits, 1, false, r, ahead);
}

APART void value_block_8(const value_run *r, stream *ahead)
{
    value_block_of(8, r, ahead);
}

APART void value_block_4(const value_run *r, stream *ahead)
{
    value_block_of(4, r, ahead);
}

#endif
