/* Attention over rows (ops/attn/attn_rows.h): bodies that are the same for any vector of ops/x86/vec_*.h. A file of one
 * instruction set defines VALUE_QUERIES (queries of a register tile) before it includes this. */
#ifndef EK_OPS_X86_ATTN_ROWS_VEC_H
#define EK_OPS_X86_ATTN_ROWS_VEC_H

#include <string.h>

#include "ops/attn/attn_rows.h"
#include "ops/convert.h"
#include "ops/x86/fetch.h"

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
        for (; i + VALUE_QUERIES <= r->n_q; i += VALUE_QUERIES) value_dims(t, VALUE_QUERIES, r, i, j, end);
        if (VALUE_QUERIES > 4 && i + 4 <= r->n_q) value_dims(t, 4, r, i, j, end), i += 4;
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
