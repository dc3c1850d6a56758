/* Attention in integers on 64-bit Arm (contract: ops/attn/attn_int.h). A file of one instruction set includes this
 * after it has defined, for tiles of QUERIES queries by COLS vectors of 4 lanes,
 *
 *   add_fours()   sums of i8 += products of fours of signed bytes, of both limbs of the queries
 *   taken()       the sums of a query and a vector
 *
 * A lane is a key of a score, or a dim of a value. i8: a 32-bit lane holds four dims or tokens, which one instruction
 * multiplies by bytes: a query's codes are 64 h + l, a weight's 128 h + l. i12: a lane holds two, by 16-bit products
 * whose neighbours are added at the end. */
#ifndef EK_OPS_ARM_ATTN_INT_NEON_H
#define EK_OPS_ARM_ATTN_INT_NEON_H

#include <string.h>

#include "ops/attn/attn_int.h"

enum { QUERY_LOW = 6, WEIGHT_LOW = 7 /* bits of the lower limb */ };

/* Codes of a tile's queries or weights in limbs, fours in the order of i8's bytes. */
typedef struct limbs {
    _Alignas(16) int8_t high[EK_TILE][LIMB_STRIDE], low[EK_TILE][LIMB_STRIDE];
} limbs;

static void split(limbs *to, int i, const int16_t *code, int n, int low_bits)
{
    static const int order[4] = {0, 2, 1, 3};
    for (int j = 0; j < n; j++) {
        const int c = code[j - j % 4 + order[j % 4]];
        to->high[i][j] = (int8_t)(c >> low_bits), to->low[i][j] = (int8_t)(c & ((1 << low_bits) - 1));
    }
    memset(to->high[i] + n, 0, 8), memset(to->low[i] + n, 0, 8);
}

/* --- scores of 4 COLS keys from slot for queries [first, first + QUERIES) */

static void put_scores(const ek_attn_segment *segment, int first, const float *scale, float *e, int col, int i,
                       int32x4_t sum)
{
    const float32x4_t s = vmulq_f32(vcvtq_f32_s32(sum), vld1q_f32(scale + 4 * col));
    vst1q_f32(e + i * EK_SEGMENT + 4 * col, vmulq_n_f32(s, segment->q_scale[first + i]));
}

static void score_bytes(const ek_attn_segment *segment, const limbs *q, int first, const uint8_t *k, int slot, float *e)
{
    const int dim = segment->head_dim;
    const float *scale = ek_kv_token_scale(EK_KV_I8, k, dim, slot);
    int32x4_t high[QUERIES * COLS], low[QUERIES * COLS];
    UNROLL for (int i = 0; i < QUERIES * COLS; i++) high[i] = low[i] = vdupq_n_s32(0);
    add_fours(high, low, (const int8_t *)k + 4 * slot, 4 * EK_PAGE_TOKENS, q->high[first], q->low[first], dim / 4,
              COLS);
    UNROLL for (int i = 0; i < QUERIES; i++) UNROLL for (int c = 0; c < COLS; c++) put_scores(
        segment, first, scale, e, c, i, vaddq_s32(vshlq_n_s32(taken(high, i, c), QUERY_LOW), taken(low, i, c)));
}

/* sums[i][c] += products of pairs of 16 bits: rows of `ints` pairs, of which n are taken. */
INLINE void add_pairs(int32x4_t (*sum)[COLS][2], const int32_t *at, ptrdiff_t ints, const int16_t *code,
                      ptrdiff_t stride, int n, const int cols)
{
    for (; n > 0; n--, at += ints, code += 2) {
        int16x8_t x[COLS];
        UNROLL for (int c = 0; c < cols; c++) x[c] = vreinterpretq_s16_s32(vld1q_s32(at + 4 * c));
        UNROLL for (int i = 0; i < QUERIES; i++)
        {
            int32_t pair;
            memcpy(&pair, code + i * stride, sizeof pair);
            const int16x8_t y = vreinterpretq_s16_s32(vdupq_n_s32(pair));
            UNROLL for (int c = 0; c < cols; c++)
            {
                sum[i][c][0] = vmlal_s16(sum[i][c][0], vget_low_s16(x[c]), vget_low_s16(y));
                sum[i][c][1] = vmlal_high_s16(sum[i][c][1], x[c], y);
            }
        }
    }
}

static void score_pairs(const ek_attn_segment *segment, const limbs *none, int first, const uint8_t *k, int slot,
                        float *e)
{
    const int dim = segment->head_dim;
    const float *scale = ek_kv_token_scale(EK_KV_I12, k, dim, slot);
    int32x4_t sum[QUERIES][COLS][2];
    (void)none;
    UNROLL for (int i = 0; i < QUERIES; i++) UNROLL for (int c = 0; c < COLS; c++)
        sum[i][c][0] = sum[i][c][1] = vdupq_n_s32(0);
    add_pairs(sum, (const int32_t *)(const void *)k + slot, EK_PAGE_TOKENS, segment->q_code + first * EK_CODE_STRIDE,
              EK_CODE_STRIDE, dim / 2, COLS);
    UNROLL for (int i = 0; i < QUERIES; i++) UNROLL for (int c = 0; c < COLS; c++)
        put_scores(segment, first, scale, e, c, i, vpaddq_s32(sum[i][c][0], sum[i][c][1]));
}

typedef void score_fn(const ek_attn_segment *segment, const limbs *q, int first, const uint8_t *k, int slot, float *e);

static void scores_of(ek_attn_segment *segment, const limbs *q, score_fn *score)
{
    for (int first = 0; first < segment->n_q; first += QUERIES)
        for (int key = 0; key < EK_SEGMENT; key += 4 * COLS) {
            const uint8_t *k = segment->k[key / EK_PAGE_TOKENS];
            if (!k || key >= segment->all_to || key + 4 * COLS <= segment->all_from) continue;
            score(segment, q, first, k, key % EK_PAGE_TOKENS, segment->e + first * EK_SEGMENT + key);
        }
}

static void scores_i8(ek_attn_segment *segment)
{
    limbs q;
    for (int i = 0; i < EK_TILE; i++) split(&q, i, segment->q_code + i * EK_CODE_STRIDE, segment->head_dim, QUERY_LOW);
    scores_of(segment, &q, score_bytes);
}

static void scores_i12(ek_attn_segment *segment)
{
    scores_of(segment, NULL, score_pairs);
}

/* --- values: dims [d, d + 4 cols) for queries [first, first + QUERIES) */

/* Codes of the weights and the unit of each query: hidden keys and absent queries have 0. */
typedef struct weight_codes {
    _Alignas(16) int16_t code[EK_TILE][EK_SEGMENT];
    float unit[EK_TILE];
} weight_codes;

static void code_weights(const ek_kv_format f, ek_attn_segment *segment, weight_codes *w)
{
    memset(w, 0, sizeof *w);
    for (int i = 0; i < segment->n_q; i++) {
        int code[EK_SEGMENT];
        if (segment->from[i] >= segment->to[i]) continue;
        w->unit[i] = ek_attn_int_weigh(f, segment, i, code);
        for (int j = segment->from[i]; j < segment->to[i] && w->unit[i] > 0; j++) w->code[i][j] = (int16_t)code[j];
    }
}

/* The visible fours or pairs of page p: the first, and the end. */
static void visible(const ek_attn_segment *segment, int p, int of, int *from, int *to)
{
    const int page = p * EK_PAGE_TOKENS, end = segment->all_to - page;
    *from = segment->all_from > page ? (segment->all_from - page) / of : 0;
    *to = end < 0 ? 0 : end < EK_PAGE_TOKENS ? (end + of - 1) / of : EK_PAGE_TOKENS / of;
}

static void put_value(const ek_attn_segment *segment, const weight_codes *w, int i, int d, float32x4_t sum)
{
    vst1q_f32(segment->o + i * segment->ldo + d, vmulq_n_f32(sum, w->unit[i]));
}

/* 16383 127 256 < 2^31: a segment's sums need no carry. */
INLINE void value_bytes(const ek_attn_segment *segment, const weight_codes *w, const limbs *of, int first, int d,
                        const int cols)
{
    const int dim = segment->head_dim;
    int32x4_t high[QUERIES * COLS], low[QUERIES * COLS];
    UNROLL for (int i = 0; i < QUERIES * COLS; i++) high[i] = low[i] = vdupq_n_s32(0);
    for (int p = 0, from, to; p < EK_SEGMENT_PAGES; p++) {
        visible(segment, p, 4, &from, &to);
        const int at = p * EK_PAGE_TOKENS + 4 * from;
        if (segment->v[p] && from < to)
            add_fours(high, low, (const int8_t *)segment->v[p] + (ptrdiff_t)4 * (from * dim + d), 4 * dim,
                      of->high[first] + at, of->low[first] + at, to - from, cols);
    }
    UNROLL for (int i = 0; i < QUERIES; i++) UNROLL for (int c = 0; c < cols; c++)
        put_value(segment, w, first + i, d + 4 * c,
                  vcvtq_f32_s32(vaddq_s32(vshlq_n_s32(taken(high, i, c), WEIGHT_LOW), taken(low, i, c))));
}

INLINE void value_pairs(const ek_attn_segment *segment, const weight_codes *w, const limbs *none, int first, int d,
                        const int cols)
{
    const int dim = segment->head_dim;
    int32x4_t carried[QUERIES][COLS], left[QUERIES][COLS], sum[QUERIES][COLS][2];
    (void)none;
    UNROLL for (int i = 0; i < QUERIES; i++) UNROLL for (int c = 0; c < cols; c++)
        carried[i][c] = left[i][c] = vdupq_n_s32(0);
    for (int p = 0, from, to; p < EK_SEGMENT_PAGES; p++) {
        visible(segment, p, 2, &from, &to);
        if (!segment->v[p] || from >= to) continue;
        UNROLL for (int i = 0; i < QUERIES; i++) UNROLL for (int c = 0; c < cols; c++)
            sum[i][c][0] = sum[i][c][1] = vdupq_n_s32(0);
        add_pairs(sum, (const int32_t *)(const void *)segment->v[p] + (ptrdiff_t)from * dim + d, dim,
                  w->code[first] + p * EK_PAGE_TOKENS + 2 * from, EK_SEGMENT, to - from, cols);
        UNROLL for (int i = 0; i < QUERIES; i++) UNROLL for (int c = 0; c < cols; c++)
        {
            const int32x4_t all = vaddq_s32(vpaddq_s32(sum[i][c][0], sum[i][c][1]), left[i][c]);
            carried[i][c] = vaddq_s32(carried[i][c], vshrq_n_s32(all, 16));
            left[i][c] = vandq_s32(all, vdupq_n_s32(0xffff));
        }
    }
    UNROLL for (int i = 0; i < QUERIES; i++) UNROLL for (int c = 0; c < cols; c++) put_value(
        segment, w, first + i, d + 4 * c, vfmaq_n_f32(vcvtq_f32_s32(left[i][c]), vcvtq_f32_s32(carried[i][c]), 65536));
}

static void values_i8(ek_attn_segment *segment)
{
    weight_codes w;
    limbs of;
    code_weights(EK_KV_I8, segment, &w);
    for (int i = 0; i < EK_TILE; i++) split(&of, i, w.code[i], EK_SEGMENT, WEIGHT_LOW);
    for (int first = 0, d; first < segment->n_q; first += QUERIES) {
        for (d = 0; d + 4 * COLS <= segment->head_dim; d += 4 * COLS) value_bytes(segment, &w, &of, first, d, COLS);
        for (; d < segment->head_dim; d += 4) value_bytes(segment, &w, &of, first, d, 1);
    }
}

static void values_i12(ek_attn_segment *segment)
{
    weight_codes w;
    code_weights(EK_KV_I12, segment, &w);
    for (int first = 0, d; first < segment->n_q; first += QUERIES) {
        for (d = 0; d + 4 * COLS <= segment->head_dim; d += 4 * COLS) value_pairs(segment, &w, NULL, first, d, COLS);
        for (; d < segment->head_dim; d += 4) value_pairs(segment, &w, NULL, first, d, 1);
    }
}

INLINE void fill_table(ek_attn_ops *ops)
{
    ops->scores[EK_KV_I8] = scores_i8, ops->values[EK_KV_I8] = values_i8;
    ops->scores[EK_KV_I12] = scores_i12, ops->values[EK_KV_I12] = values_i12;
}

#endif
