/* Attention over rows (ops/attn/attn_rows.h): bodies that are the same for any vector of ops/x86/vec_*.h. A file of one
 * instruction set defines TILE_QUERIES (queries of a register tile) before it includes this. */
#ifndef EK_OPS_X86_ATTN_ROWS_VEC_H
#define EK_OPS_X86_ATTN_ROWS_VEC_H

#include <string.h>

#include "ops/attn/attn_rows.h"
#include "ops/convert.h"
#include "ops/x86/inline.h"

/* ------------------------------------------------------------------ scores */

/* W dims (f32) or 2 W (16 bits) of W keys, turned: a vector of keys per dim or pair of dims. Of each instruction set.
 */
INLINE void load_keys(vi *r, const uint8_t *const *key, size_t at, int left, const bool wide);
/* The lower or upper halves of x, as floats. Of each instruction set. */
INLINE vf pair_part(ek_dtype t, vi x, const int high);

/* nq queries from i0 on with W keys from `first` on. */
INLINE void score_queries(const ek_score_block *b, const ek_dtype t, int first, int i0, const int nq)
{
    const bool wide = t == EK_F32;
    const int step = wide ? W : 2 * W;
    const float *q = b->q + i0 * EK_Q_STRIDE;
    for (int d0 = 0; d0 < b->dim; d0 += EK_CHAIN) {
        int end = b->dim < d0 + EK_CHAIN ? b->dim : d0 + EK_CHAIN;
        vf acc[TILE_QUERIES];
        UNROLL for (int i = 0; i < nq; i++) acc[i] = v_zero();
        for (int d = d0; d < end; d += step) {
            const ptrdiff_t at = (ptrdiff_t)d * (wide ? 4 : 2);
            vi r[W];
            load_keys(r, b->key + first, (size_t)at, end - d, wide);
            if (b->ahead && i0 == 0) UNROLL for (int j = 0; j < W; j++) fetch(b->key[first + j], at + b->ahead);
            UNROLL for (int c = 0; c < W; c++)
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
            float *to = b->e + (i0 + i) * EK_SEGMENT + first;
            v_store(to, d0 ? v_add(v_load(to), acc[i]) : acc[i]);
        }
    }
}

/* The same where the keys are turned already. */
INLINE void score_turned(const ek_score_block *b, int first, int i0, const int nq)
{
    const float *q = b->q + i0 * EK_Q_STRIDE, *k = b->turned + first;
    for (int d0 = 0; d0 < b->dim; d0 += EK_CHAIN) {
        const int end = b->dim < d0 + EK_CHAIN ? b->dim : d0 + EK_CHAIN;
        vf acc[TILE_QUERIES];
        UNROLL for (int i = 0; i < nq; i++) acc[i] = v_zero();
        for (int d = d0; d < end; d++) {
            const vf key = v_load(k + d * EK_SCORE_KEYS);
            UNROLL for (int i = 0; i < nq; i++) acc[i] = v_fma(v_set1(q[i * EK_Q_STRIDE + d]), key, acc[i]);
        }
        UNROLL for (int i = 0; i < nq; i++)
        {
            float *to = b->e + (i0 + i) * EK_SEGMENT + first;
            v_store(to, d0 ? v_add(v_load(to), acc[i]) : acc[i]);
        }
    }
}

INLINE void score_tile(const ek_score_block *b, const ek_dtype t, const bool turned, int first, int i0, const int nq)
{
    if (turned) score_turned(b, first, i0, nq);
    else score_queries(b, t, first, i0, nq);
}

/* Queries after n_q are zeros: a tile of 8 serves 5 to 8 queries, one of 4 serves 3 and 4. */
INLINE void scores_of(const ek_score_block *b, const ek_dtype t, const bool turned)
{
    for (int first = 0; first < EK_SCORE_KEYS; first += W)
        for (int i = 0; i < b->n_q; i += TILE_QUERIES) {
            if (TILE_QUERIES > 4 && b->n_q - i > 4) score_tile(b, t, turned, first, i, TILE_QUERIES);
            else if (b->n_q - i > 2) score_tile(b, t, turned, first, i, 4);
            else if (b->n_q - i == 2) score_tile(b, t, turned, first, i, 2);
            else score_tile(b, t, turned, first, i, 1);
        }
}

static void scores(const ek_score_block *b)
{
    if (b->turned) scores_of(b, EK_F32, true);
    else if (b->type == EK_F32) scores_of(b, EK_F32, false);
    else if (b->type == EK_BF16) scores_of(b, EK_BF16, false);
    else scores_of(b, EK_F16, false);
}

/* ------------------------------------------------------------------ values */

enum { VALUE_VECS = 2, VALUE_KEYS = 32 };

INLINE vf load_value(ek_dtype t, const uint8_t *p, int n)
{
    if (t == EK_F32) return n == W ? v_load((const float *)p) : v_load_part((const float *)p, n);
    if (n < W) {
        float part[W] = {0};
        for (int i = 0; i < n; i++) part[i] = ek_load_float(p + 2 * i, t);
        return v_load(part);
    }
    return t == EK_BF16 ? v_load_bf16((const uint16_t *)p) : v_from_f16((const uint16_t *)p);
}

/* nq queries by cols vectors, the last of n elements, from dim d; keys [j0, j1). */
INLINE void value_tile(ek_dtype t, const int nq, const int cols, int n, const ek_value_run *r, int i0, int d, int j0,
                       int j1)
{
    const int size = t == EK_F32 ? 4 : 2;
    float *o = r->o + i0 * r->ldo + d;
    const float *e = r->e + i0 * EK_SEGMENT;
    vf acc[EK_TILE][VALUE_VECS];
    UNROLL for (int i = 0; i < nq; i++) UNROLL for (int c = 0; c < cols; c++)
        acc[i][c] = v_load(o + i * r->ldo + c * W); /* ldo is a multiple of 16 */
    for (int j = j0; j < j1; j++) {
        const uint8_t *v = r->v + j * r->stride + d * size;
        vf x[VALUE_VECS];
        UNROLL for (int c = 0; c < cols; c++) x[c] = load_value(t, v + c * W * size, c == cols - 1 ? n : W);
        if (i0 == 0) fetch(v, VALUE_KEYS * r->stride);
        UNROLL for (int i = 0; i < nq; i++)
        {
            vf ej = v_set1(e[i * EK_SEGMENT + j]);
            UNROLL for (int c = 0; c < cols; c++) acc[i][c] = v_fma(ej, x[c], acc[i][c]);
        }
    }
    UNROLL for (int i = 0; i < nq; i++) UNROLL for (int c = 0; c < cols; c++)
        v_store(o + i * r->ldo + c * W, acc[i][c]);
}

INLINE void value_dims(ek_dtype t, const int nq, const ek_value_run *r, int i0, int j0, int j1)
{
    int d = 0;
    for (; d + VALUE_VECS * W <= r->dim; d += VALUE_VECS * W) value_tile(t, nq, VALUE_VECS, W, r, i0, d, j0, j1);
    for (; d + W <= r->dim; d += W) value_tile(t, nq, 1, W, r, i0, d, j0, j1);
    if (d < r->dim) value_tile(t, nq, 1, r->dim - d, r, i0, d, j0, j1);
}

INLINE void values_of(ek_dtype t, const ek_value_run *r)
{
    for (int j = 0; j < r->n_keys; j += VALUE_KEYS) {
        int end = j + VALUE_KEYS < r->n_keys ? j + VALUE_KEYS : r->n_keys, i = 0;
        for (; i + TILE_QUERIES <= r->n_q; i += TILE_QUERIES) value_dims(t, TILE_QUERIES, r, i, j, end);
        if (TILE_QUERIES > 4 && i + 4 <= r->n_q) value_dims(t, 4, r, i, j, end), i += 4;
        if (i + 2 <= r->n_q) value_dims(t, 2, r, i, j, end), i += 2;
        if (i < r->n_q) value_dims(t, 1, r, i, j, end);
    }
}

static void values(const ek_value_run *r)
{
    if (r->type == EK_F32) values_of(EK_F32, r);
    else if (r->type == EK_BF16) values_of(EK_BF16, r);
    else values_of(EK_F16, r);
}

#endif
