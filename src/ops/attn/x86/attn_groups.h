/* Scores and values of formats with groups, for any vector of ops/x86/vec_*.h. Codes are decoded once for all queries
 * to a small tile of floats in the first-level cache, and one kernel multiplies for every format. A code width needs
 * one decoder of keys and one of values (attn_decode_*.h), and no kernels; a group size needs nothing.
 *
 * attn_tile.h includes this after QUERIES and the decoders. */
#ifndef EK_OPS_X86_ATTN_GROUPS_H
#define EK_OPS_X86_ATTN_GROUPS_H

#include <string.h>

#include "ops/attn/attn_kernels.h"
#include "ops/kv/kv_codec.h"

/* Decodes dims [d, d + 32) of the values of n slots into tile[n][VALUE_DIMS]. d is a multiple of 32; dims after the
 * last one may have any value. s and b: scales and biases of the first slot; the next slot's are stride further. */
APART void decode_values(const int bits, const uint8_t *v, int dim, int slot, int n, int d, const float *s,
                         const float *b, int stride, float *tile)
{
    switch (bits) {
    case 8:
        v += (size_t)slot * (size_t)dim + (size_t)d;
        for (int j = 0; j < n; j++, v += dim, tile += VALUE_DIMS)
            UNROLL for (int h = 0; h < 32 / W; h++)
                v_store(tile + h * W, v_mul(v_set1(s[j * stride]), v_from_i8((const int8_t *)v + h * W)));
        break;
    case 6: decode_values_planes(6, v, dim, slot, n, d, s, b, stride, tile); break;
    case 5: decode_values_planes(5, v, dim, slot, n, d, s, b, stride, tile); break;
    case 4: decode_values_planes(4, v, dim, slot, n, d, s, b, stride, tile); break;
    case 3: decode_values_planes(3, v, dim, slot, n, d, s, b, stride, tile); break;
    default: decode_values_planes(2, v, dim, slot, n, d, s, b, stride, tile);
    }
}

/* Prefetches of cache lines, spread over the iterations of another loop: memory and multipliers work at
 * the same time. They go to the L2 cache: the next phase starts after thousands of cycles. */
typedef struct stream {
    const uint8_t *at; /* NULL: nothing to fetch */
    size_t step;       /* bytes an iteration */
} stream;

INLINE void stream_next(stream *s)
{
    if (!s->at) return;
    for (size_t b = 0; b < s->step; b += 64) _mm_prefetch((const char *)s->at + b, _MM_HINT_T1);
    s->at += s->step;
}

/* --- scores */

enum { SCORE_DIMS = 4 /* of an iteration */ };

/* acc[i][key] += q[i] . key for nq queries, n dims and cols vectors of keys of a tile [dim][64]. */
INLINE void score_pass(const int nq, const int cols, const float *q, const float *tile, int n, float *acc,
                       stream *ahead)
{
    vf a[EK_TILE][EK_PAGE_TOKENS / W];
    UNROLL for (int i = 0; i < nq; i++) UNROLL for (int c = 0; c < cols; c++)
        a[i][c] = v_load(acc + i * EK_PAGE_TOKENS + c * W);
    for (int d = 0; d < n; d += SCORE_DIMS, q += SCORE_DIMS, tile += SCORE_DIMS * EK_PAGE_TOKENS) {
        if (ahead) stream_next(ahead);
        UNROLL for (int h = 0; h < SCORE_DIMS; h++)
        {
            vf key[EK_PAGE_TOKENS / W];
            UNROLL for (int c = 0; c < cols; c++) key[c] = v_load(tile + h * EK_PAGE_TOKENS + c * W);
            UNROLL for (int i = 0; i < nq; i++)
            {
                vf x = v_set1(q[i * EK_Q_STRIDE + h]);
                UNROLL for (int c = 0; c < cols; c++) a[i][c] = v_fma(x, key[c], a[i][c]);
            }
        }
    }
    UNROLL for (int i = 0; i < nq; i++) UNROLL for (int c = 0; c < cols; c++)
        v_store(acc + i * EK_PAGE_TOKENS + c * W, a[i][c]);
}

/* Vectors of keys that nq queries take at a time; one by 8, as in attn_tile.h. */
#define GROUP_COLS(nq) ((nq) == 8 ? 1 : QUERIES / (nq)*2 < EK_PAGE_TOKENS / W ? QUERIES / (nq)*2 : EK_PAGE_TOKENS / W)

INLINE void score_page(const int nq, const float *q, const float *tile, int n, float *acc, stream *ahead)
{
    for (int key = 0; key < EK_PAGE_TOKENS; key += GROUP_COLS(nq) * W)
        score_pass(nq, GROUP_COLS(nq), q, tile + key, n, acc + key, ahead);
}

/* All queries by the n dims of a tile. The number of queries is rounded up: absent ones are zeros. */
APART void score_tile_dims(int n_q, const float *q, const float *tile, int n, float *acc, stream *ahead)
{
    for (int i = 0; i < n_q; i += QUERIES) {
        const float *qi = q + i * EK_Q_STRIDE;
        float *ai = acc + i * EK_PAGE_TOKENS;
        stream *s = i == 0 ? ahead : NULL;
        if (QUERIES == 8 && n_q - i > 4) score_page(QUERIES, qi, tile, n, ai, s);
        else if (n_q - i > 2) score_page(4, qi, tile, n, ai, s);
        else if (n_q - i == 2) score_page(2, qi, tile, n, ai, s);
        else score_page(1, qi, tile, n, ai, s);
    }
}

typedef struct slots {
    const int *from, *to; /* of each query */
} slots;

typedef struct value_run {
    const float *e;
    const float *tile; /* its first slot is j; NULL: the codes themselves, in 8 bits, with FUSED */
    int n_q, n_vecs, j, end;
    const int *from, *to; /* visible slots of each query, NULL: all of [j, end) */
    bool fresh;           /* o counts as +0 */
    float *o;
    ptrdiff_t ldo;
    /* the codes that become this tile: */
    const uint8_t *code; /* the codes of slot j, from the first of 64 dims on; row bytes from slot to slot */
    const float *s, *b;  /* scales and biases of its group, `groups` from slot to slot */
    int row, groups, group, in_group; /* group: dims of a group; in_group: the group's dims before the first dim */
    float *decoded;
} value_run;

APART void value_tile_dims(const value_run *r, stream *ahead);

#if FUSED
#include "ops/attn/x86/attn_codes_512.h"
#else
#include "ops/attn/x86/attn_codes_256.h"
#endif

/* acc[i][key] = q[i] . key over dims [d0, end) of a page's keys, tile by tile. */
INLINE void score_chain(const ek_attn_segment *segment, const ek_kv_codec c, const uint8_t *k, int d0, int end,
                        const ek_f16 *scale, float *acc, stream *ahead)
{
    _Alignas(64) float tile[TILE_DIMS * EK_PAGE_TOKENS], s[EK_PAGE_TOKENS], b[EK_PAGE_TOKENS];
    const int dim = segment->head_dim;
    const size_t n_scales = (size_t)((dim + c.group - 1) / c.group) * EK_PAGE_TOKENS;
    memset(acc, 0, sizeof *acc * EK_TILE * EK_PAGE_TOKENS);
    for (int d = d0; d < end; d += TILE_DIMS) {
        const int n = end - d < TILE_DIMS ? end - d : TILE_DIMS;
        if (d % c.group == 0) {
            const ek_f16 *at = scale + d / c.group * EK_PAGE_TOKENS;
            page_scales(at, s);
            if (c.rule == EK_KV_AFFINE) page_scales(at + n_scales, b);
        }
#if !FUSED
        if (DECODES(c.bits, segment->n_q)) {
            const key_block r = {segment->q + d, k + d * c.bits / 8 * EK_PAGE_TOKENS, s, b, n, segment->n_q, tile, acc};
            if (c.bits == 8) score_block_8(&r, ahead);
            else score_block_4(&r, ahead);
            continue;
        }
#endif
        decode_keys(c.bits, k, dim, d, n, s, b, tile);
        score_tile_dims(segment->n_q, segment->q + d, tile, n, acc, ahead);
    }
}

/* Scores of a page, from e on. codes: bytes of the page's codes; the scales follow. */
INLINE void group_scores_page(ek_attn_segment *segment, const ek_kv_codec c, size_t codes, const uint8_t *k, float *e,
                              stream *ahead)
{
    _Alignas(64) float acc[EK_TILE * EK_PAGE_TOKENS];
    const int dim = segment->head_dim;
    const ek_f16 *scale = (const ek_f16 *)(k + codes);
    for (int d0 = 0; d0 < dim; d0 += EK_CHAIN) {
        const int end = dim < d0 + EK_CHAIN ? dim : d0 + EK_CHAIN;
#if FUSED
        if (FUSES(c.bits)) {
            score_chain_codes(segment, c, k, d0, end, scale, acc, e, ahead);
            continue;
        }
#endif
        score_chain(segment, c, k, d0, end, scale, acc, ahead);
        for (int i = 0; i < segment->n_q; i++) {
            float *from = acc + i * EK_PAGE_TOKENS, *to = e + i * EK_SEGMENT;
            vf x[EK_PAGE_TOKENS / W];
            UNROLL for (int j = 0; j < EK_PAGE_TOKENS / W; j++) x[j] = v_load(from + j * W);
            order_keys(x);
            UNROLL for (int j = 0; j < EK_PAGE_TOKENS / W; j++)
                v_store(to + j * W, d0 ? v_add(v_load(to + j * W), x[j]) : x[j]);
        }
    }
}

APART void group_scores(ek_attn_segment *segment, const ek_kv_codec c, size_t codes)
{
    const int nq = segment->n_q > 4 ? QUERIES : segment->n_q > 2 ? 4 : segment->n_q;
    const size_t steps = (size_t)(segment->head_dim / SCORE_DIMS * (EK_PAGE_TOKENS / (GROUP_COLS(nq) * W)));
    for (int p = 0; p < EK_SEGMENT_PAGES; p++) {
        stream ahead = {segment->fetch_v ? segment->v[p] : NULL, (segment->v_bytes + steps - 1) / steps};
        if (segment->k[p]) group_scores_page(segment, c, codes, segment->k[p], segment->e + p * EK_PAGE_TOKENS, &ahead);
    }
}

/* --- values */

/* o[i] += e[i] . values for nq queries, slots [j, end) and cols vectors, from vector c on, of dims of a tile
 * [slot][VALUE_DIMS] that begins with slot j. seen: the visible slots of each query; NULL: all. */
INLINE void value_pass(const int nq, const int cols, const bool codes, const value_run *r, int c, const float *e,
                       const slots *seen, float *o, stream *ahead)
{
    vf a[EK_TILE][VALUE_DIMS / W];
    const float *tile = r->tile + c * W, *s[VALUE_DIMS / W];
    const int8_t *code = (const int8_t *)r->code + c * W;
    UNROLL for (int v = 0; v < cols && codes; v++) s[v] = r->s + (c + v) * W / r->group;
    UNROLL for (int i = 0; i < nq; i++) UNROLL for (int v = 0; v < cols; v++)
        a[i][v] = r->fresh ? v_zero() : v_load(o + i * r->ldo + (c + v) * W);
    for (int j = r->j; j < r->end; j++, tile += VALUE_DIMS, code += r->row) {
        vf value[VALUE_DIMS / W];
        if (ahead) stream_next(ahead);
        UNROLL for (int v = 0; v < cols; v++)
        {
            if (codes) value[v] = v_mul(v_set1(*s[v]), v_from_i8(code + v * W)), s[v] += r->groups;
            else value[v] = v_load(tile + v * W);
        }
        UNROLL for (int i = 0; i < nq; i++)
        {
            if (seen && (j < seen->from[i] || j >= seen->to[i])) continue;
            vf x = v_set1(e[i * EK_SEGMENT + j]);
            UNROLL for (int v = 0; v < cols; v++) a[i][v] = v_fma(x, value[v], a[i][v]);
        }
    }
    UNROLL for (int i = 0; i < nq; i++) UNROLL for (int v = 0; v < cols; v++)
        v_store(o + i * r->ldo + (c + v) * W, a[i][v]);
}

/* All vectors of the tile's dims. */
INLINE void value_cols(const int nq, const bool codes, const value_run *r, const float *e, const slots *seen, float *o,
                       stream *ahead)
{
    int c = 0;
    for (; c + GROUP_COLS(nq) <= r->n_vecs; c += GROUP_COLS(nq), ahead = NULL)
        value_pass(nq, GROUP_COLS(nq), codes, r, c, e, seen, o, ahead);
    for (; c < r->n_vecs; c++, ahead = NULL) value_pass(nq, 1, codes, r, c, e, seen, o, ahead);
}

INLINE void value_queries(const int nq, const value_run *r, int i, stream *ahead)
{
    const float *e = r->e + i * EK_SEGMENT;
    float *o = r->o + i * r->ldo;
    const bool codes = FUSED && !r->tile;
    if (r->from) {
        const slots seen = {r->from + i, r->to + i};
        if (codes) value_cols(nq, true, r, e, &seen, o, ahead);
        else value_cols(nq, false, r, e, &seen, o, ahead);
    } else if (codes) value_cols(nq, true, r, e, NULL, o, ahead);
    else value_cols(nq, false, r, e, NULL, o, ahead);
}

APART void value_tile_dims(const value_run *r, stream *ahead)
{
    for (int i = 0; i < r->n_q; i += QUERIES) {
        stream *s = i == 0 ? ahead : NULL;
        if (QUERIES == 8 && r->n_q - i > 4) value_queries(QUERIES, r, i, s);
        else if (r->n_q - i > 2) value_queries(4, r, i, s);
        else if (r->n_q - i == 2) value_queries(2, r, i, s);
        else value_queries(1, r, i, s);
    }
}

/* Slots [j, end) of a tile that begins with slot `first` of the segment. Slots that all queries see take the path
 * without masks. */
INLINE void value_slots(const ek_attn_segment *segment, value_run r, int end, stream *ahead)
{
    for (int next; r.j < end; r.j = next, r.fresh = false) {
        const int common = r.j >= segment->common_from && r.j < segment->common_to;
        r.end = end;
        if (common && segment->common_to < end) r.end = segment->common_to;
        if (!common && r.j < segment->common_from && segment->common_from < segment->common_to &&
            segment->common_from < end)
            r.end = segment->common_from;
        r.from = common ? NULL : segment->from, r.to = common ? NULL : segment->to;
        value_tile_dims(&r, ahead);
        next = r.end;
        if (r.tile) r.tile += (next - r.j) * VALUE_DIMS;
        else r.code += (next - r.j) * r.row, r.s += (next - r.j) * r.groups;
    }
}

/* Adds slots [from, to) of a page of values, whose first slot is `page` of the segment. */
INLINE void group_values_page(ek_attn_segment *segment, const ek_kv_codec c, size_t codes, const uint8_t *v, int page,
                              int from, int to, bool fresh, stream *ahead)
{
    _Alignas(64) float tile[VALUE_SLOTS * VALUE_DIMS], s[EK_PAGE_TOKENS * EK_MAX_HEAD_DIM / 32],
        b[EK_PAGE_TOKENS * EK_MAX_HEAD_DIM / 32];
    const int dim = segment->head_dim, groups = (dim + c.group - 1) / c.group;
    const int row = (c.bits == 8 ? dim : (int)ek_kv_padded(dim)) * c.bits / 8; /* bytes, for 8 and 4 bits */
    const ek_f16 *scale = (const ek_f16 *)(v + codes);
    for (int i = from * groups / 16 * 16; i < to * groups; i += W) { /* a page has no scales after its 64 */
        v_store(s + i, v_from_f16(scale + i));
        if (c.rule == EK_KV_AFFINE) v_store(b + i, v_from_f16(scale + groups * EK_PAGE_TOKENS + i));
    }
    for (int d = 0; d < dim; d += VALUE_DIMS) {
        const int n_vecs = dim - d < VALUE_DIMS ? (dim - d + W - 1) / W : VALUE_DIMS / W;
        value_run run = {.e = segment->e,
                         .n_q = segment->n_q,
                         .n_vecs = n_vecs,
                         .j = page + from,
                         .fresh = fresh,
                         .o = segment->o + d,
                         .ldo = segment->ldo,
                         .row = row,
                         .groups = groups,
                         .group = c.group,
                         .in_group = d % c.group,
                         .decoded = tile};
        if (FUSED && c.bits == 8) {
            run.code = v + from * row + d, run.s = s + from * groups + d / c.group;
            value_slots(segment, run, page + to, ahead);
            continue;
        }
        for (int j = from, end; j < to; j = end, run.fresh = false) {
            end = j + VALUE_SLOTS < to ? j + VALUE_SLOTS : to;
            const float *sj = s + j * groups, *bj = b + j * groups;
#if !FUSED
            if (DECODES(c.bits, segment->n_q) && n_vecs == VALUE_DIMS / W && page + j >= segment->common_from &&
                page + end <= segment->common_to) {
                run.code = v + j * row + d * c.bits / 8;
                run.s = sj + d / c.group, run.b = bj + d / c.group;
                run.j = page + j, run.end = page + end;
                if (c.bits == 8) value_block_8(&run, ahead);
                else value_block_4(&run, ahead);
                continue;
            }
#endif
            for (int n = d; n < dim && n < d + VALUE_DIMS; n += 32)
                decode_values(c.bits, v, dim, j, end - j, n, sj + n / c.group, bj + n / c.group, groups,
                              tile + (n - d));
            run.tile = tile, run.j = page + j;
            value_slots(segment, run, page + end, ahead);
        }
    }
}

APART void group_values(ek_attn_segment *segment, const ek_kv_codec c, size_t codes)
{
#if FUSED
    if (c.bits == 4) {
        group_values_4(segment, c, codes);
        return;
    }
#endif
    const size_t columns = (size_t)((segment->head_dim + VALUE_DIMS - 1) / VALUE_DIMS);
    bool fresh = true;
    for (int p = 0; p < EK_SEGMENT_PAGES; p++) {
        if (!segment->v[p]) continue;
        const int page = p * EK_PAGE_TOKENS, to = segment->all_to - page, from = segment->all_from - page;
        stream ahead = {segment->k_next[p], segment->k_bytes / (columns * EK_PAGE_TOKENS)};
        group_values_page(segment, c, codes, segment->v[p], page, from > 0 ? from : 0,
                          to < EK_PAGE_TOKENS ? to : EK_PAGE_TOKENS, fresh, &ahead);
        fresh = false;
    }
}

#endif
