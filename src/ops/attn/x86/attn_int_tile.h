/* The bodies of attention in integers (contract: ops/attn/attn_int.h) for any vector of ops/x86/vec_*.h; included by
 * attn_tile.h.
 *
 * A lane is a key of a score, or a dim of a value, as with floats. A step multiplies two neighbours, dims of a key or
 * tokens of a value, by vi_dot16. A lane of i8 holds four numbers: its even bytes are one pair, its odd bytes the next.
 * Hidden keys and absent queries have codes of 0. */
#ifndef EK_OPS_X86_ATTN_INT_TILE_H
#define EK_OPS_X86_ATTN_INT_TILE_H

#include <stdbool.h>
#include <string.h>

#include "ops/math.h"

#ifndef HALVED
#define HALVED 0 /* 1: tiles of 8 queries by attn_int_halved_512.h */
#endif

/* The codes of the weights of a segment's queries, and the unit of each: 2^(E-13), 0 if all are 0. */
typedef struct weight_codes {
    _Alignas(64) int16_t code[EK_TILE][EK_SEGMENT];
    float unit[EK_TILE];
    int own[EK_TILE][EK_SEGMENT_PAGES]; /* subtracted products of a page: attn_int_halved_512.h */
} weight_codes;

#if HALVED
#include "ops/attn/x86/attn_int_halved_512.h"
#endif

/* R of ops/attn/attn_int.h for blocks of whole vectors. Steps within a vector: a lane and its partner become their sum
 * and their difference. */
INLINE void rotate_vectors(float *x, int dim, int n)
{
    static const float sign[4][16] = {{1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1},
                                      {1, 1, -1, -1, 1, 1, -1, -1, 1, 1, -1, -1, 1, 1, -1, -1},
                                      {1, 1, 1, 1, -1, -1, -1, -1, 1, 1, 1, 1, -1, -1, -1, -1},
                                      {1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1, -1, -1, -1}};
    for (int d = 0; d < dim; d += W) {
        vf y = v_load(x + d);
        y = v_fma(y, v_load(sign[0]), v_partner(y, 1));
        y = v_fma(y, v_load(sign[1]), v_partner(y, 2));
        y = v_fma(y, v_load(sign[2]), v_partner(y, 4));
        if (W == 16) y = v_fma(y, v_load(sign[3]), v_partner(y, 8));
        v_store(x + d, y);
    }
    for (int h = W; h < n; h *= 2)
        for (int i = 0; i < dim; i += 2 * h)
            for (int j = i; j < i + h; j += W) {
                const vf a = v_load(x + j), b = v_load(x + j + h);
                v_store(x + j, v_add(a, b)), v_store(x + j + h, v_sub(a, b));
            }
}

/* Computes the products that attn_int_halved_512.h subtracts. Call it after a query's codes were made. */
INLINE void keep_own(int16_t *code, int dim)
{
#if HALVED
    const int own = own_products(code, dim);
    memcpy(code + EK_MAX_HEAD_DIM, &own, sizeof own);
#else
    (void)code, (void)dim;
#endif
}

static float int_encode(float *x, int dim, int max_code, int16_t *code)
{
    const int n = ek_attn_block(dim);
    if (n < W) {
        const float scale = ek_attn_encode(x, dim, max_code, code);
        keep_own(code, dim);
        return scale;
    }
    const vf hold = v_set1(0x1p96f), under = v_set1(-0x1p96f), whole = v_set1(0x1.8p23f);
    for (int d = 0; d < dim; d += W) v_store(x + d, v_min(v_max(v_load(x + d), under), hold)); /* NaN: under */
    rotate_vectors(x, dim, n);
    vi top = vi_set1(0);
    for (int d = 0; d < dim; d += W) top = vi_max(top, vi_and(v_bits(v_load(x + d)), vi_set1(0x7fffffff)));
    const int bits = vi_reduce_max(top);
    float t;
    memcpy(&t, &bits, sizeof t);
    const bool none = t < 0x1p-100f;
    const vf by = v_set1(none ? 0 : (float)max_code / t), limit = v_set1((float)max_code);
    for (int d = 0; d < dim; d += W) {
        const vf c = v_min(v_max(v_mul(v_load(x + d), by), v_sub(v_zero(), limit)), limit);
        vi_store_16(code + d, vi_sub(v_bits(v_add(c, whole)), v_bits(whole)));
    }
    keep_own(code, dim);
    return none ? 0 : t / (float)max_code;
}

static void int_rotate_back(float *x, int dim)
{
    const int n = ek_attn_block(dim);
    if (n < W) {
        ek_attn_rotate_back(x, dim);
        return;
    }
    rotate_vectors(x, dim, n);
    for (int d = 0; d < dim; d += W) v_store(x + d, v_mul(v_load(x + d), v_set1(1.0f / (float)n)));
}

/* Pairs of 16-bit numbers in a load of a lane's 32 bits. */
#define INT_PAIRS(f) (ek_kv_codecs[f].bits == 16 ? 1 : 2)

INLINE vi pair_in(const ek_kv_format f, vi lanes, int pair)
{
    return INT_PAIRS(f) == 1 ? lanes : pair ? vi_high_bytes(lanes) : vi_low_bytes(lanes);
}

/* Scores of keys [slot, slot + cols W) of a page for nq queries. */
INLINE void int_score_tile(const ek_kv_format f, int nq, int cols, const ek_attn_segment *segment, int first,
                           const uint8_t *k, int slot, float *e, stream *ahead, stream now)
{
    const int dim = segment->head_dim, step = 2 * INT_PAIRS(f);
    const int16_t *q = segment->q_code + first * EK_CODE_STRIDE;
    vi acc[EK_TILE][COLS_MAX];
    for (int i = 0; i < nq; i++)
        for (int c = 0; c < cols; c++) acc[i][c] = vi_set1(0);
    const int *at = (const int *)k + slot;
    for (const int16_t *end = q + dim; q < end; q += step, at += EK_PAGE_TOKENS) {
        stream_next(ahead);
        stream_next(&now);
        vi key[COLS_MAX];
        for (int c = 0; c < cols; c++) key[c] = vi_load(at + c * W);
        for (int p = 0; p < INT_PAIRS(f); p++) {
            vi both[COLS_MAX];
            for (int c = 0; c < cols; c++) both[c] = pair_in(f, key[c], p);
            for (int i = 0; i < nq; i++)
                for (int c = 0; c < cols; c++) acc[i][c] = vi_dot16(acc[i][c], both[c], q + i * EK_CODE_STRIDE + 2 * p);
        }
    }
    for (int i = 0; i < nq; i++)
        for (int c = 0; c < cols; c++) {
            const vf scale = v_load(ek_kv_token_scale(f, k, dim, slot + c * W));
            v_store(e + i * EK_SEGMENT + slot + c * W,
                    v_mul(v_mul(vi_to_float(acc[i][c]), scale), v_set1(segment->q_scale[first + i])));
        }
}

#define INT_COLS(nq)       (MIN(TILE_VECS / (nq), EK_PAGE_TOKENS / W))
#define INT_VALUE_COLS(nq) (MIN(TILE_VECS / 2 / (nq), COLS_MAX))

INLINE void int_score_pages(const ek_kv_format f, int nq, const ek_attn_segment *segment, int first)
{
    const int step = INT_COLS(nq) * W;
    const size_t row = EK_PAGE_TOKENS * sizeof(int);
    for (int p = 0; p < EK_SEGMENT_PAGES; p++) {
        stream ahead = {segment->fetch_v && first == 0 ? segment->v[p] : NULL,
                        (size_t)(2 * INT_PAIRS(f)) * segment->v_bytes /
                            (size_t)(segment->head_dim * (EK_PAGE_TOKENS / step))};
        for (int slot = 0; segment->k[p] && slot < EK_PAGE_TOKENS; slot += step) {
            const int key = p * EK_PAGE_TOKENS + slot;
            if (key >= segment->all_to || key + step <= segment->all_from) continue;
            stream now = {segment->fetch_k && first == 0 && slot == 0 ? segment->k[p] + FETCH_ROWS * row : NULL, row};
            float *e = segment->e + first * EK_SEGMENT + p * EK_PAGE_TOKENS;
#if HALVED
            if (nq == EK_TILE) {
                halved_score_tile(f, segment, segment->k[p], slot, e, &ahead, now);
                continue;
            }
#endif
            int_score_tile(f, nq, INT_COLS(nq), segment, first, segment->k[p], slot, e, &ahead, now);
        }
    }
}

INLINE void int_scores(const ek_kv_format f, ek_attn_segment *segment)
{
    for (int i = 0; i < segment->n_q; i += QUERIES) {
        const int n = segment->n_q - i;
        if (QUERIES == 8 && n > 4) int_score_pages(f, QUERIES, segment, i);
        else if (n > 2) int_score_pages(f, 4, segment, i);
        else if (n == 2) int_score_pages(f, 2, segment, i);
        else int_score_pages(f, 1, segment, i);
    }
}

static void code_weights(ek_attn_segment *segment, size_t v_codes, weight_codes *out)
{
    memset(out, 0, sizeof *out);
    for (int i = 0; i < segment->n_q; i++) {
        float *e = segment->e + i * EK_SEGMENT;
        const int from = segment->from[i], to = segment->to[i];
        if (from >= to) continue;
        const int begin = from / 16 * 16, end = (to + 15) / 16 * 16;
        const vf whole = v_set1(0x1.8p23f);
        vf max = v_zero();
        vi sum = vi_set1(0);
        for (int j = begin; j < end; j += W) {
            const float *scale = (const float *)(segment->v[j / EK_PAGE_TOKENS] + v_codes) + j % EK_PAGE_TOKENS;
            const vf x = v_load(e + j), held = v_max(v_zero(), v_mul(x, v_load(scale))); /* NaN stays */
            const vf w = v_pick(visible(j, from, to), held, v_zero());
            sum = vi_add(sum, v_int(v_round(v_mul(x, v_set1(1 << EK_SUM_BITS)))));
            max = v_max(w, max); /* passes over NaN */
            v_store(e + j, w);
        }
        int lane[W], total = 0;
        vi_store(lane, sum);
        for (int l = 0; l < W; l++) total += lane[l];
        segment->l[i] = (float)total * (1.0f / (1 << EK_SUM_BITS));
        const int exponent = (vi_reduce_max(v_bits(max)) >> 23) - 127; /* E */
        if (exponent < -100) continue;
        out->unit[i] = ek_ldexp(1, exponent - (EK_WEIGHT_BITS - 1));
        const vf by = v_set1(ek_ldexp(1, EK_WEIGHT_BITS - 1 - exponent)), limit = v_set1(EK_WEIGHT_CODE);
        for (int j = begin; j < end; j += W) {
            const vf c = v_min(v_mul(v_load(e + j), by), limit); /* NaN: limit */
            vi_store_16(out->code[i] + j, vi_sub(v_bits(v_add(c, whole)), v_bits(whole)));
        }
#if HALVED
        for (int p = begin / EK_PAGE_TOKENS; p * EK_PAGE_TOKENS < end; p++)
            out->own[i][p] = own_products(out->code[i] + p * EK_PAGE_TOKENS, EK_PAGE_TOKENS);
#endif
    }
}

/* Sums of codes of weights and values for cols vectors from dim d. Lanes after a row's end are read but not used. */
INLINE void int_value_tile(const ek_kv_format f, int nq, int cols, const ek_attn_segment *segment,
                           const weight_codes *w, int first, int d)
{
    const int dim = segment->head_dim, step = 2 * INT_PAIRS(f);
    vi acc[EK_TILE][COLS_MAX], carried[EK_TILE][COLS_MAX];
    for (int i = 0; i < nq; i++)
        for (int c = 0; c < cols; c++) acc[i][c] = carried[i][c] = vi_set1(0);
    for (int p = 0; p < EK_SEGMENT_PAGES; p++) {
        if (!segment->v[p]) continue;
        const int page = p * EK_PAGE_TOKENS;
        const int from = (segment->all_from > page ? segment->all_from - page : 0) / step * step;
        const int to = segment->all_to < page + EK_PAGE_TOKENS ? segment->all_to - page : EK_PAGE_TOKENS;
        stream ahead = {segment->k_next[p], (size_t)step * segment->k_bytes * (size_t)(cols * W) /
                                                (size_t)(segment->head_dim * EK_PAGE_TOKENS)};
        if (ahead.at) ahead.at += (size_t)d * (segment->k_bytes / (size_t)segment->head_dim);
        const int *at = (const int *)segment->v[p] + from / step * dim + d;
        const int16_t *code = w->code[first] + page + from;
        for (const int16_t *end = w->code[first] + page + to; code < end; code += step, at += dim) {
            stream_next(&ahead);
            vi value[COLS_MAX];
            for (int c = 0; c < cols; c++) value[c] = vi_load(at + c * W);
            for (int pair = 0; pair < INT_PAIRS(f); pair++) {
                vi both[COLS_MAX];
                for (int c = 0; c < cols; c++) both[c] = pair_in(f, value[c], pair);
                for (int i = 0; i < nq; i++)
                    for (int c = 0; c < cols; c++)
                        acc[i][c] = vi_dot16(acc[i][c], both[c], code + i * EK_SEGMENT + 2 * pair);
            }
        }
        for (int i = 0; i < nq; i++)
            for (int c = 0; c < cols; c++) {
                carried[i][c] = vi_add(carried[i][c], vi_sra(acc[i][c], 16));
                acc[i][c] = vi_and(acc[i][c], vi_set1(0xffff));
            }
    }
    for (int i = 0; i < nq; i++)
        for (int c = 0; c < cols; c++) {
            const vf sum = v_fma(vi_to_float(carried[i][c]), v_set1(65536), vi_to_float(acc[i][c]));
            v_store(segment->o + (first + i) * segment->ldo + d + c * W, v_mul(sum, v_set1(w->unit[first + i])));
        }
}

INLINE void int_value_dims(const ek_kv_format f, int nq, const ek_attn_segment *segment, const weight_codes *w,
                           int first)
{
    const int dim = segment->head_dim;
    int d = 0;
#if HALVED
    for (; nq == EK_TILE && d + HALVED_COLS * W <= dim; d += HALVED_COLS * W) halved_value_tile(f, segment, w, d);
#endif
    for (; d + INT_VALUE_COLS(nq) * W <= dim; d += INT_VALUE_COLS(nq) * W)
        int_value_tile(f, nq, INT_VALUE_COLS(nq), segment, w, first, d);
    for (; d < dim; d += W) int_value_tile(f, nq, 1, segment, w, first, d);
}

INLINE void int_values(const ek_kv_format f, ek_attn_segment *segment)
{
    weight_codes w;
    code_weights(segment, ek_kv_v_codes(f, segment->head_dim), &w);
    for (int i = 0; i < segment->n_q; i += QUERIES) {
        const int n = segment->n_q - i;
        if (QUERIES == 8 && n > 4) int_value_dims(f, QUERIES, segment, &w, i);
        else if (n > 2) int_value_dims(f, 4, segment, &w, i);
        else if (n == 2) int_value_dims(f, 2, segment, &w, i);
        else int_value_dims(f, 1, segment, &w, i);
    }
}

#endif
