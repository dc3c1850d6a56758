/* Scores of 8-bit and 4-bit codes and values of 4-bit codes without a tile of floats, AVX-512. One pass takes all
 * queries of a tile, so a decoded vector is used once, in a register, and sums stay in registers: stores of a tile took
 * a quarter of the time on a processor that stores 64 bytes every other cycle. Terms and their order are those of
 * attn_groups.h, which includes this.
 *
 * Dwords are divided by shifts and masks. On Zen 4 these and conversions leave the multipliers free, while dot
 * products, widening loads and most shuffles use them. So a vector has the codes of every fourth key or dim, and sums
 * are put in order at the end. */
#ifndef EK_OPS_X86_ATTN_CODES_512_H
#define EK_OPS_X86_ATTN_CODES_512_H

#define FUSES(bits) ((bits) == 8 || (bits) == 4)

/* --- scores: vector c of a row of 64 bytes has keys 4 lane + c */

/* Scales of vector c, of a page's 64 of f16: word i is that of key 4 i + c. */
INLINE vf key_scales(const ek_f16 *at, const int c)
{
    const __m256i fourth = _mm256_setr_epi16(0, 4, 8, 12, 16, 20, 24, 28, 32, 36, 40, 44, 48, 52, 56, 60);
    const vi index = _mm512_castsi256_si512(_mm256_add_epi16(fourth, _mm256_set1_epi16((short)c)));
    const vi x = _mm512_permutex2var_epi16(_mm512_loadu_si512(at), index, _mm512_loadu_si512(at + 32));
    return _mm512_cvtph_ps(_mm512_castsi512_si256(x));
}

/* The left shift of vector c's code in the result of key_codes; half: of the dims that share a byte. */
#define KEY_SHIFT(bits, half, c) ((bits) == 8 ? ((c) == 0 ? 24 : 0) : (c) == 3 && (half) ? 0 : 8 * (c) + 4 * (half))

INLINE vf key_codes(const int bits, vi row, const int half, const int c)
{
    if (bits == 8 && c == 0) row = vi_shl(row, 24);
    if (bits == 8 && c > 0) row = _mm512_srai_epi32(c < 3 ? vi_shl(row, 24 - 8 * c) : row, 24);
    if (bits == 4 && c == 3 && half) row = _mm512_srli_epi32(row, 28);
    else if (bits == 4) row = vi_and(row, vi_set1(15 << (8 * c + 4 * half)));
    return _mm512_cvtepi32_ps(row);
}

typedef struct key_run {
    const float *q;
    const uint8_t *row;
    const ek_f16 *scale;
    ptrdiff_t biases; /* behind the scales */
    int n, group;     /* dims of the chain, of a group */
    bool more;        /* another chain came before */
    float *raw, *e;
} key_run;

/* acc[i][key] = q[i] . key for nq queries and cols vectors of keys from vector `first` of the row on. The last vectors
 * of a row put all of them in order. */
INLINE void score_pass_codes(const int bits, const int nq, const int cols, const int first, const key_run *r,
                             stream *ahead)
{
    vf a[EK_TILE][EK_PAGE_TOKENS / W];
    const float *q = r->q;
    const uint8_t *row = r->row;
    UNROLL for (int i = 0; i < nq; i++) UNROLL for (int c = 0; c < cols; c++) a[i][c] = v_zero();
    for (int block = 0; block < r->n; block += TILE_DIMS) {
        const ek_f16 *at = r->scale + block / r->group * EK_PAGE_TOKENS;
        vf scale[EK_PAGE_TOKENS / W], bias[EK_PAGE_TOKENS / W], by[2][EK_PAGE_TOKENS / W];
        UNROLL for (int c = 0; c < cols; c++)
        {
            scale[c] = key_scales(at, first + c);
            if (bits < 8) bias[c] = key_scales(at + r->biases, first + c);
        }
        UNROLL for (int h = 0; h < 8 / bits; h++) UNROLL for (int c = 0; c < cols; c++)
            by[h][c] = v_mul(scale[c], v_set1(1.0f / (float)(1 << KEY_SHIFT(bits, h, first + c)))); /* exact */
        const int end = r->n - block < TILE_DIMS ? r->n - block : TILE_DIMS;
        for (int d = 0; d < end; d += SCORE_DIMS, q += SCORE_DIMS) {
            if (ahead) stream_next(ahead);
            UNROLL for (int h = 0; h < SCORE_DIMS; h++)
            {
                const int half = bits == 4 ? h % 2 : 0;
                const vi x = _mm512_loadu_si512(row);
                if (bits == 8 || half) row += EK_PAGE_TOKENS;
                vf key[EK_PAGE_TOKENS / W];
                UNROLL for (int c = 0; c < cols; c++)
                {
                    const vf code = key_codes(bits, x, half, first + c);
                    key[c] = bits == 8 ? v_mul(by[0][c], code) : v_fma(by[half][c], code, bias[c]);
                }
                UNROLL for (int i = 0; i < nq; i++)
                {
                    const vf qi = v_set1(q[i * EK_Q_STRIDE + h]);
                    UNROLL for (int c = 0; c < cols; c++) a[i][c] = v_fma(qi, key[c], a[i][c]);
                }
            }
        }
    }
    UNROLL for (int i = 0; i < nq; i++)
    {
        float *raw = r->raw + i * EK_PAGE_TOKENS, *to = r->e + i * EK_SEGMENT;
        vf x[EK_PAGE_TOKENS / W];
        if (first + cols < EK_PAGE_TOKENS / W) {
            UNROLL for (int c = 0; c < cols; c++) v_store(raw + (first + c) * W, a[i][c]);
            continue;
        }
        UNROLL for (int c = 0; c < first; c++) x[c] = v_load(raw + c * W);
        UNROLL for (int c = 0; c < cols; c++) x[first + c] = a[i][c];
        order_keys(x);
        UNROLL for (int c = 0; c < EK_PAGE_TOKENS / W; c++)
            v_store(to + c * W, r->more ? v_add(v_load(to + c * W), x[c]) : x[c]);
    }
}

INLINE void score_chain_for(const int bits, const int nq, const key_run *r, stream *ahead)
{
    UNROLL for (int c = 0; c < EK_PAGE_TOKENS / W; c += GROUP_COLS(nq))
        score_pass_codes(bits, nq, GROUP_COLS(nq), c, r, ahead);
}

INLINE void score_chain_of(const int bits, int n_q, const key_run *r, stream *ahead)
{
    if (n_q > 4) score_chain_for(bits, 8, r, ahead);
    else if (n_q > 2) score_chain_for(bits, 4, r, ahead);
    else if (n_q == 2) score_chain_for(bits, 2, r, ahead);
    else score_chain_for(bits, 1, r, ahead);
}

APART void score_chain_8(int n_q, const key_run *r, stream *ahead)
{
    score_chain_of(8, n_q, r, ahead);
}

APART void score_chain_4(int n_q, const key_run *r, stream *ahead)
{
    score_chain_of(4, n_q, r, ahead);
}

/* All queries by dims [d0, end), a chain, of a page's keys; e: the scores of its first key. */
INLINE void score_chain_codes(const ek_attn_segment *segment, const ek_kv_codec c, const uint8_t *k, int d0, int end,
                              const ek_f16 *scale, float *raw, float *e, stream *ahead)
{
    const key_run r = {.q = segment->q + d0,
                       .row = k + d0 * c.bits / 8 * EK_PAGE_TOKENS,
                       .scale = scale + d0 / c.group * EK_PAGE_TOKENS,
                       .biases = (ptrdiff_t)((segment->head_dim + c.group - 1) / c.group) * EK_PAGE_TOKENS,
                       .n = end - d0,
                       .group = c.group,
                       .more = d0 > 0,
                       .raw = raw,
                       .e = e};
    if (c.bits == 8) score_chain_8(segment->n_q, &r, ahead);
    else score_chain_4(segment->n_q, &r, ahead);
}

/* --- values in 4 bits: 32 dims with one scale in two vectors */

/* Lanes 4 l to 4 l + 3 have the same codes, before different shifts: byte l of each dword. A table has the group's
 * value of each code. */
INLINE void value_codes_4(const uint8_t *code, const float *s, const float *b, vf *x)
{
    const vi lane = vi_iota(), row = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)code));
    const vf value = v_fma(v_set1(*s), code_table(4), v_set1(*b));
    UNROLL for (int v = 0; v < 2; v++)
    {
        const vi right = vi_add(vi_and(vi_add(lane, lane), vi_set1(24)), vi_set1(4 * v));
        x[v] = _mm512_permutexvar_ps(_mm512_srlv_epi32(row, right), value);
    }
}

/* Puts sums over such a vector into the order of ascending dims. */
INLINE vf order_values_4(vf x)
{
    const vi lane = vi_iota();
    return _mm512_permutexvar_ps(vi_add(_mm512_srli_epi32(lane, 2), vi_shl(vi_and(lane, vi_set1(3)), 2)), x);
}

typedef struct code_run {
    const ek_attn_segment *segment;
    ptrdiff_t row;      /* bytes of a token's codes */
    size_t at;          /* the offset of the first of 32 dims in it */
    int d, n_vecs;      /* d: that dim; n_vecs: the vectors of a row of o that hold these dims */
    const float *s, *b; /* scales and biases of the segment's first slot, `groups` from slot to slot */
    int groups;
} code_run;

/* Slots [j, stop) of page p: all are visible to nq queries, or only the visible ones are added. */
INLINE void value_slots_4(const int nq, const code_run *r, int p, int j, int stop, const bool all, vf a[EK_TILE][2],
                          stream *ahead)
{
    const ek_attn_segment *segment = r->segment;
    const float *e = segment->e, *s = r->s + j * r->groups, *b = r->b + j * r->groups;
    const uint8_t *code = segment->v[p] + r->at + (j - p * EK_PAGE_TOKENS) * r->row;
    for (; j < stop; j++, code += r->row, s += r->groups, b += r->groups) {
        vf value[2];
        if (all) stream_next(ahead);
        value_codes_4(code, s, b, value);
        UNROLL for (int i = 0; i < nq; i++)
        {
            if (!all && (j < segment->from[i] || j >= segment->to[i])) continue;
            const vf x = v_set1(e[i * EK_SEGMENT + j]);
            UNROLL for (int v = 0; v < 2; v++) a[i][v] = v_fma(x, value[v], a[i][v]);
        }
    }
}

/* Sums of nq queries for 32 dims over all slots of the segment. */
INLINE void value_pass_4(const int nq, const code_run *r)
{
    const ek_attn_segment *segment = r->segment;
    vf a[EK_TILE][2];
    UNROLL for (int i = 0; i < nq; i++) UNROLL for (int v = 0; v < 2; v++) a[i][v] = v_zero();
    for (int p = 0; p < EK_SEGMENT_PAGES; p++) {
        if (!segment->v[p]) continue;
        const int page = p * EK_PAGE_TOKENS;
        int j = segment->all_from > page ? segment->all_from : page, stop;
        const int end = segment->all_to < page + EK_PAGE_TOKENS ? segment->all_to : page + EK_PAGE_TOKENS;
        const size_t dim_bytes = segment->k_bytes / (size_t)segment->head_dim;
        stream ahead = {segment->k_next[p], dim_bytes * 32 / EK_PAGE_TOKENS};
        if (ahead.at) ahead.at += (size_t)r->d * dim_bytes;
        for (; j < end; j = stop) {
            const bool all = j >= segment->common_from && j < segment->common_to;
            stop = end;
            if (all && segment->common_to < stop) stop = segment->common_to;
            if (!all && j < segment->common_from && segment->common_from < segment->common_to &&
                segment->common_from < stop)
                stop = segment->common_from;
            if (all) value_slots_4(nq, r, p, j, stop, true, a, &ahead);
            else value_slots_4(nq, r, p, j, stop, false, a, NULL);
        }
    }
    UNROLL for (int i = 0; i < nq; i++)
    {
        v_store(segment->o + i * segment->ldo + r->d, order_values_4(a[i][0]));
        if (r->n_vecs == 2) v_store(segment->o + i * segment->ldo + r->d + W, order_values_4(a[i][1]));
    }
}

APART void value_dims_4(const code_run *r)
{
    const int n_q = r->segment->n_q;
    if (n_q > 4) value_pass_4(8, r);
    else if (n_q > 2) value_pass_4(4, r);
    else if (n_q == 2) value_pass_4(2, r);
    else value_pass_4(1, r);
}

/* A page's scales (or biases) of slots [from, to) as floats: a page has 64 of each group, none beyond. */
INLINE void slot_scales(const ek_f16 *at, int from, int to, int groups, float *s)
{
    for (int i = from * groups / 16 * 16; i < to * groups; i += W) v_store(s + i, v_from_f16(at + i));
}

INLINE void group_values_4(const ek_attn_segment *segment, const ek_kv_codec c, size_t codes)
{
    _Alignas(64) float s[EK_SEGMENT * EK_MAX_HEAD_DIM / 32], b[EK_SEGMENT * EK_MAX_HEAD_DIM / 32];
    const int dim = segment->head_dim, groups = (dim + c.group - 1) / c.group;
    for (int p = 0; p < EK_SEGMENT_PAGES; p++) {
        if (!segment->v[p]) continue;
        const int page = p * EK_PAGE_TOKENS, from = segment->all_from - page, to = segment->all_to - page;
        const int first = from > 0 ? from : 0, end = to < EK_PAGE_TOKENS ? to : EK_PAGE_TOKENS;
        const ek_f16 *scale = (const ek_f16 *)(segment->v[p] + codes);
        slot_scales(scale, first, end, groups, s + page * groups);
        slot_scales(scale + groups * EK_PAGE_TOKENS, first, end, groups, b + page * groups);
    }
    for (int d = 0; d < dim; d += 32) {
        const code_run r = {.segment = segment,
                            .row = (ptrdiff_t)ek_kv_padded(dim) / 2,
                            .at = (size_t)d / 2,
                            .d = d,
                            .n_vecs = dim - d > W ? 2 : 1,
                            .s = s + d / c.group,
                            .b = b + d / c.group,
                            .groups = groups};
        value_dims_4(&r);
    }
}

#endif
