/* The bodies of attention's kernels for any vector of ops/x86/vec_*.h. A file of one ISA defines
 * QUERIES (of a register tile), includes this and registers what it instantiates.
 *
 * Scores: a lane is a key, d ascends; the queries of the tile share each load of K. Values: a lane
 * is a dimension, keys ascend; they share each load of V. Tiles choose which chains advance
 * together and nothing else. */
#ifndef EK_OPS_X86_ATTN_TILE_H
#define EK_OPS_X86_ATTN_TILE_H

#include <stdbool.h>

#include "ops/attn/attn_kernels.h"
#include "ops/attn/attn_int.h"
#include "ops/attn/x86/attn_groups.h"
#include "ops/kv/kv_codec.h"
#include "ops/x86/math_vec.h"

/* ------------------------------------------------------------------ loads of keys and values by format
 *
 * W elements per load, as ops/kv/kv_codec.h defines them. The format is a constant wherever these are inlined. Formats
 * with groups are decoded in tiles (attn_groups.h). loads() is false for a rule or a code width without a load; such
 * formats have no kernel. */

enum { COLS_MAX = 8 };

/* Whether the functions below know the format f. */
INLINE bool loads(const ek_kv_format f)
{
    const ek_kv_codec c = ek_kv_codecs[f];
    switch (c.rule) {
    case EK_KV_FLOAT:
    case EK_KV_HALF:
    case EK_KV_BFLOAT: return true;
    case EK_KV_TOKEN: return c.bits == 16;
    case EK_KV_SYMMETRIC: return c.bits == 8 && c.group % 32 == 0;
    case EK_KV_AFFINE: return c.bits >= 2 && c.bits <= 6 && c.group % 32 == 0;
    case EK_KV_ROTATED: return true; /* attn_int_tile.h */
    }
    return false;
}

/* Whether a load of 16 bits is more than a load and a shift or a mask. */
INLINE bool converts(const ek_kv_format f)
{
    return ek_kv_codecs[f].rule == EK_KV_HALF || ek_kv_codecs[f].rule == EK_KV_TOKEN;
}

/* --- keys: a lane is a key */

/* Terms of dim pair + half for keys [slot, slot + cols W), pair even. bf16 comes in pairs of even and odd lanes, which
 * in_order sorts after the computation; cols is even then. */
INLINE void load_keys(const ek_kv_format f, int cols, const uint8_t *k, int pair, int half, int slot, vf *x)
{
    const size_t at = (size_t)(pair + half) * EK_PAGE_TOKENS + (size_t)slot;
    for (int c = 0; c < cols; c++) {
        const size_t i = at + (size_t)(c * W);
        switch (ek_kv_codecs[f].rule) {
        case EK_KV_FLOAT: x[c] = v_load((const float *)k + i); break;
        case EK_KV_HALF: x[c] = v_from_f16((const uint16_t *)k + i); break;
        case EK_KV_BFLOAT:
            if (c % 2 == 0) v_load_bf16_pair((const uint16_t *)k + i, x + c);
            break;
        case EK_KV_TOKEN: x[c] = v_from_i16((const int16_t *)k + i); break;
        case EK_KV_SYMMETRIC:
        case EK_KV_AFFINE:
        case EK_KV_ROTATED: break;
        }
    }
}

/* --- values: a lane is a dim */

/* Terms of dims [d, d + cols W) of one token; a single vector may hold n < W of them. d is a multiple of cols W.
 * Lanes past the end of a row hold anything. */
INLINE void load_values(const ek_kv_format f, int cols, int n, const uint8_t *v, int dim, int slot, int d, vf *x)
{
    const size_t at = (size_t)slot * (size_t)dim + (size_t)d;
    const bool part = cols == 1;
    for (int c = 0; c < cols; c++) {
        const size_t i = at + (size_t)(c * W);
        switch (ek_kv_codecs[f].rule) {
        case EK_KV_FLOAT: x[c] = part ? v_load_part((const float *)v + i, n) : v_load((const float *)v + i); break;
        case EK_KV_HALF:
            x[c] = part ? v_from_f16_part((const uint16_t *)v + i, n) : v_from_f16((const uint16_t *)v + i);
            break;
        case EK_KV_BFLOAT:
            if (part) x[c] = v_load_bf16_part((const uint16_t *)v + i, n);
            else if (c % 2 == 0) v_load_bf16_pair((const uint16_t *)v + i, x + c);
            break;
        case EK_KV_TOKEN:
            x[c] = part ? v_from_i16_part((const int16_t *)v + i, n) : v_from_i16((const int16_t *)v + i);
            break;
        case EK_KV_SYMMETRIC:
        case EK_KV_AFFINE:
        case EK_KV_ROTATED: break;
        }
    }
}

/* --- after the chains */

/* Puts sums of terms that were loaded in pairs back in order. */
INLINE void in_order(const ek_kv_format f, int cols, vf *x)
{
    for (int c = 0; c < cols && ek_kv_codecs[f].rule == EK_KV_BFLOAT; c += 2) v_in_order(x + c);
}

/* Sums of chains, or weights, of W tokens from slot: times the tokens' scales. */
INLINE vf scale_tokens(const ek_kv_format f, vf x, const uint8_t *part, int dim, int slot)
{
    return ek_kv_codecs[f].rule == EK_KV_TOKEN ? v_mul(x, v_load(ek_kv_token_scale(f, part, dim, slot))) : x;
}

/* ------------------------------------------------------------------ tiles */

enum { FETCH_ROWS = 24 /* rows of K that a prefetch within a page runs ahead */ };

/* Vectors per query, so that TILE_VECS chains, or as many as there are, hide the latency of an fma. A tile of 8 queries
 * has one if each load is a conversion: a Zen 4 then multiplies all the time; with two it loses an eighth of it. */
#define MIN(a, b)         ((a) < (b) ? (a) : (b))
#define TILE_COLS(f, nq)  ((nq) == 8 && converts(f) ? 1 : TILE_VECS / (nq))
#define SCORE_COLS(f, nq) MIN(TILE_COLS(f, nq), EK_PAGE_TOKENS / W)
#define VALUE_COLS(f, nq) MIN(TILE_COLS(f, nq), COLS_MAX)

/* Scores of keys [slot, slot + cols W) of a page for nq queries. */
INLINE void score_tile(const ek_kv_format f, int nq, int cols, const float *q, const uint8_t *k, int slot, int dim,
                       float *e, stream *ahead, stream now)
{
    for (int d0 = 0; d0 < dim; d0 += EK_CHAIN) {
        int end = dim < d0 + EK_CHAIN ? dim : d0 + EK_CHAIN;
        vf acc[EK_TILE][COLS_MAX];
        for (int i = 0; i < nq; i++)
            for (int c = 0; c < cols; c++) acc[i][c] = v_zero();
        for (int pair = d0; pair < end; pair += 2)
            for (int half = 0; half < 2; half++) {
                stream_next(ahead);
                stream_next(&now);
                vf key[COLS_MAX];
                load_keys(f, cols, k, pair, half, slot, key);
                for (int i = 0; i < nq; i++) {
                    vf x = v_set1(q[i * EK_Q_STRIDE + pair + half]);
                    for (int c = 0; c < cols; c++) acc[i][c] = v_fma(x, key[c], acc[i][c]);
                }
            }
        for (int i = 0; i < nq; i++) {
            in_order(f, cols, acc[i]);
            for (int c = 0; c < cols; c++) {
                float *to = e + i * EK_SEGMENT + slot + c * W;
                vf s = d0 ? v_add(v_load(to), acc[i][c]) : acc[i][c];
                if (end == dim) s = scale_tokens(f, s, k, dim, slot + c * W);
                v_store(to, s);
            }
        }
    }
}

INLINE void score_pages(const ek_kv_format f, int nq, const ek_attn_segment *segment, int first)
{
    int step = SCORE_COLS(f, nq) * W;
    size_t row = segment->k_bytes / (size_t)segment->head_dim;
    for (int p = 0; p < EK_SEGMENT_PAGES; p++) {
        stream ahead = {segment->fetch_v && first == 0 ? segment->v[p] : NULL,
                        segment->v_bytes / (size_t)(segment->head_dim * (EK_PAGE_TOKENS / step))};
        for (int slot = 0; segment->k[p] && slot < EK_PAGE_TOKENS; slot += step) {
            int key = p * EK_PAGE_TOKENS + slot;
            if (key >= segment->all_to || key + step <= segment->all_from) continue;
            stream now = {segment->fetch_k && first == 0 && slot == 0 ? segment->k[p] + FETCH_ROWS * row : NULL, row};
            score_tile(f, nq, SCORE_COLS(f, nq), segment->q + first * EK_Q_STRIDE, segment->k[p], slot,
                       segment->head_dim, segment->e + first * EK_SEGMENT + p * EK_PAGE_TOKENS, &ahead, now);
        }
    }
}

/* Sums of e v over the visible keys of each query, for cols vectors from dim d; a single one may
 * hold n < W elements. Keys visible to all queries take a path without masks. */
INLINE void value_tile(const ek_kv_format f, int nq, int cols, int n, const ek_attn_segment *segment, int first, int d)
{
    const float *e = segment->e + first * EK_SEGMENT;
    const int *from = segment->from + first, *to = segment->to + first;
    vf acc[EK_TILE][COLS_MAX], value[COLS_MAX];
    for (int i = 0; i < nq; i++)
        for (int c = 0; c < cols; c++) acc[i][c] = v_zero();
    for (int p = 0; p < EK_SEGMENT_PAGES; p++) {
        if (!segment->v[p]) continue;
        int page = p * EK_PAGE_TOKENS, j = segment->all_from > page ? segment->all_from : page;
        int end = segment->all_to < page + EK_PAGE_TOKENS ? segment->all_to : page + EK_PAGE_TOKENS;
        stream ahead = {segment->k_next[p],
                        segment->k_bytes * (size_t)(cols * W) / (size_t)(segment->head_dim * EK_PAGE_TOKENS)};
        if (ahead.at) ahead.at += (size_t)d * (segment->k_bytes / (size_t)segment->head_dim);
        while (j < end) {
            int common = j >= segment->common_from && j < segment->common_to;
            int stop = !common && j >= segment->common_to          ? end
                       : common                                    ? segment->common_to
                       : segment->common_from < segment->common_to ? segment->common_from
                                                                   : end;
            if (stop > end) stop = end;
            for (; common && j < stop; j++) {
                stream_next(&ahead);
                load_values(f, cols, n, segment->v[p], segment->head_dim, j - page, d, value);
                for (int i = 0; i < nq; i++) {
                    vf x = v_set1(e[i * EK_SEGMENT + j]);
                    for (int c = 0; c < cols; c++) acc[i][c] = v_fma(x, value[c], acc[i][c]);
                }
            }
            for (; j < stop; j++) {
                load_values(f, cols, n, segment->v[p], segment->head_dim, j - page, d, value);
                for (int i = 0; i < nq; i++) {
                    if (j < from[i] || j >= to[i]) continue;
                    vf x = v_set1(e[i * EK_SEGMENT + j]);
                    for (int c = 0; c < cols; c++) acc[i][c] = v_fma(x, value[c], acc[i][c]);
                }
            }
        }
    }
    for (int i = 0; i < nq; i++) {
        if (cols > 1) in_order(f, cols, acc[i]);
        for (int c = 0; c < cols; c++) v_store(segment->o + (first + i) * segment->ldo + d + c * W, acc[i][c]);
    }
}

INLINE void value_dims(const ek_kv_format f, int nq, const ek_attn_segment *segment, int first)
{
    int d = 0, dim = segment->head_dim;
    for (; d + VALUE_COLS(f, nq) * W <= dim; d += VALUE_COLS(f, nq) * W)
        value_tile(f, nq, VALUE_COLS(f, nq), W, segment, first, d);
    if (VALUE_COLS(f, nq) > 4 && d + 4 * W <= dim) value_tile(f, nq, 4, W, segment, first, d), d += 4 * W;
    if (VALUE_COLS(f, nq) > 2 && d + 2 * W <= dim) value_tile(f, nq, 2, W, segment, first, d), d += 2 * W;
    if (VALUE_COLS(f, nq) > 1 && d + W <= dim) value_tile(f, nq, 1, W, segment, first, d), d += W;
    if (d < dim) value_tile(f, nq, 1, dim - d, segment, first, d);
}

/* The keys of j .. j + W - 1 that lie in [from, to). */
INLINE vm visible(int j, int from, int to)
{
    vi at = vi_add(vi_iota(), vi_set1(j));
    return vm_and(vi_less(vi_set1(from - 1), at), vi_less(at, vi_set1(to)));
}

#include "ops/attn/x86/attn_int_tile.h"

/* Up to QUERIES queries at a time, rounded up to a power of two: absent ones are zeros. */
INLINE void scores(const ek_kv_format f, ek_attn_segment *segment)
{
    if (ek_kv_rotated(f)) {
        int_scores(f, segment);
        return;
    }
    if (ek_kv_codecs[f].group) {
        group_scores(segment, ek_kv_codecs[f], ek_kv_k_codes(f, segment->head_dim));
        return;
    }
    for (int i = 0; i < segment->n_q; i += QUERIES) {
        int n = segment->n_q - i;
        if (QUERIES == 8 && n > 4) score_pages(f, QUERIES, segment, i);
        else if (n > 2) score_pages(f, 4, segment, i);
        else if (n == 2) score_pages(f, 2, segment, i);
        else score_pages(f, 1, segment, i);
    }
}

/* The weight of a value's codes: e_j times the token's scale. The result for hidden keys is not defined. */
INLINE void scale_weights(const ek_kv_format f, ek_attn_segment *segment)
{
    for (int i = 0; i < segment->n_q; i++)
        for (int j = segment->from[i] / 16 * 16; j < segment->to[i]; j += W) {
            float *e = segment->e + i * EK_SEGMENT + j;
            const uint8_t *v = segment->v[j / EK_PAGE_TOKENS];
            v_store(e, scale_tokens(f, v_load(e), v, segment->head_dim, j % EK_PAGE_TOKENS));
        }
}

INLINE void values(const ek_kv_format f, ek_attn_segment *segment)
{
    if (ek_kv_rotated(f)) {
        int_values(f, segment);
        return;
    }
    if (ek_kv_codecs[f].rule == EK_KV_TOKEN) scale_weights(f, segment);
    for (int i = segment->n_q; i < EK_TILE; i++) segment->from[i] = segment->to[i] = 0;
    if (ek_kv_codecs[f].group) {
        group_values(segment, ek_kv_codecs[f], ek_kv_v_codes(f, segment->head_dim));
        return;
    }
    for (int i = 0; i < segment->n_q; i += QUERIES) {
        int n = segment->n_q - i;
        if (QUERIES == 8 && n > 4) value_dims(f, QUERIES, segment, i);
        else if (n > 2) value_dims(f, 4, segment, i);
        else if (n == 2) value_dims(f, 2, segment, i);
        else value_dims(f, 1, segment, i);
    }
}

static void weights(ek_attn_segment *segment)
{
    int n[EK_SEGMENT];
    for (int i = 0; i < segment->n_q; i++) {
        float *e = segment->e + i * EK_SEGMENT;
        int from = segment->from[i], to = segment->to[i];
        if (from >= to) continue;
        int begin = from / 16 * 16, end = (to + 15) / 16 * 16;
        vi max = vi_set1(INT32_MIN), nj;
        for (int j = begin; j < end; j += W) {
            v_store(e + j, v_exp_split(v_load(e + j), &nj));
            vi_store(n + j, nj);
            max = vi_max(max, vi_pick(visible(j, from, to), nj, vi_set1(INT32_MIN)));
        }
        int m = vi_reduce_max(max);
        vf lane[LANE_VECS];
        for (int c = 0; c < LANE_VECS; c++) lane[c] = v_zero();
        for (int j = begin; j < end; j += 16)
            for (int c = 0; c < LANE_VECS; c++) {
                int at = j + c * W;
                vi shift = vi_sub(vi_load(n + at), vi_set1(m));
                vm counts = vm_and(visible(at, from, to), vi_less(vi_set1(-126), shift));
                vf x = v_pick(counts, v_scale(v_load(e + at), shift), v_zero());
                v_store(e + at, x);
                lane[c] = v_add(lane[c], x);
            }
        segment->m[i] = m, segment->l[i] = v_add_lanes(lane);
    }
}

static void combine(float *b, const float *a, float fb, float fa, int n)
{
    const vf by = v_set1(fb), ay = v_set1(fa);
    for (int i = 0; i < n; i += W) v_store(b + i, v_add(v_mul(v_load(a + i), ay), v_mul(v_load(b + i), by)));
}

EK_KV_FORMATS(EK_ATTN_KERNELS)

INLINE void fill_table(ek_attn_ops *ops)
{
    *ops = (ek_attn_ops){EK_KV_FORMATS(EK_ATTN_ENTRIES).weights = weights, .combine = combine, .encode = int_encode,
                         .rotate_back = int_rotate_back};
}

#endif
