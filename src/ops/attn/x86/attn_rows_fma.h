/* Attention over rows, Form B (ops/attn/attn_rows.h) by fused multiply-adds, for machines without VDPBF16PS. */
#ifndef EK_OPS_X86_ATTN_ROWS_FMA_H
#define EK_OPS_X86_ATTN_ROWS_FMA_H

#include <string.h>

#include "ops/attn/x86/attn_rows_vec.h"
#include "ops/x86/vec_bf16.h"

enum { SCORE_QUERIES = 4, SCORE_KEYS = 2 };

/* ------------------------------------------------------------------ scores */

/* Lanes c W to c W + W of nq queries by SCORE_KEYS keys. */
INLINE void score_lanes(const ek_score_block *b, const int nq, int i0, int k0, int c, float (*lanes)[EK_SCORE_KEYS][16])
{
    vf acc[SCORE_QUERIES][SCORE_KEYS], q[2], k[SCORE_KEYS][2];
    UNROLL for (int i = 0; i < nq; i++) UNROLL for (int n = 0; n < SCORE_KEYS; n++) acc[i][n] = v_zero();
    for (int d = 2 * W * c; d < b->dim; d += 32) {
        UNROLL for (int n = 0; n < SCORE_KEYS; n++)
        {
            uint16_t tail[2 * W] = {0};
            const uint8_t *at = b->key[k0 + n] + 2 * d;
            if (b->dim - d < 2 * W) at = memcpy(tail, at, 2 * (size_t)(b->dim - d));
            v_load_bf16_pair((const uint16_t *)at, k[n]);
            if (b->ahead) fetch(b->key[k0 + n] + 2 * d, b->ahead);
        }
        UNROLL for (int i = 0; i < nq; i++)
        {
            v_load_bf16_pair(b->q16 + ek_q16(i0 + i, d), q);
            UNROLL for (int n = 0; n < SCORE_KEYS; n++)
                acc[i][n] = v_fma(q[0], k[n][0], v_fma(q[1], k[n][1], acc[i][n]));
        }
    }
    UNROLL for (int i = 0; i < nq; i++) UNROLL for (int n = 0; n < SCORE_KEYS; n++)
        v_store(lanes[i0 + i][k0 + n] + c * W, acc[i][n]);
}

static __attribute__((noinline)) void score_steps(const ek_score_block *b, float (*lanes)[EK_SCORE_KEYS][16])
{
    for (int k = 0; k < EK_SCORE_KEYS; k += SCORE_KEYS)
        for (int c = 0; c < LANE_VECS; c++)
            for (int i = 0; i < b->n_q; i += SCORE_QUERIES) { /* absent queries are zeros */
                if (b->n_q - i == 1) score_lanes(b, 1, i, k, c, lanes);
                else score_lanes(b, SCORE_QUERIES, i, k, c, lanes);
            }
}

static void scores_bf16(const ek_score_block *b)
{
    _Alignas(64) float lanes[EK_TILE][EK_SCORE_KEYS][16];
    unsigned was = _mm_getcsr();
    _mm_setcsr(was | FLUSH);
    score_steps(b, lanes);
    _mm_setcsr(was);
    for (int i = 0; i < b->n_q; i++)
        for (int j = 0; j < EK_SCORE_KEYS; j++) {
            vf lane[LANE_VECS];
            UNROLL for (int c = 0; c < LANE_VECS; c++) lane[c] = v_load(lanes[i][j] + c * W);
            b->e[i * EK_SEGMENT + j] = v_add_lanes(lane) * b->scale;
        }
}

/* ------------------------------------------------------------------ weights */

static void round_bf16(float *e, uint16_t *p, int from, int to, float *l)
{
    vf lane[LANE_VECS];
    UNROLL for (int c = 0; c < LANE_VECS; c++) lane[c] = v_zero();
    for (int j = from / 16 * 16; j < to; j += 16) {
        ek_narrow_bf16(p + j, e + j, 16);
        UNROLL for (int c = 0; c < LANE_VECS; c++)
        {
            vf x = v_load_bf16(p + j + c * W);
            v_store(e + j + c * W, x);
            lane[c] = v_add(lane[c], x);
        }
    }
    *l = v_add_lanes(lane);
}

/* ------------------------------------------------------------------ values */

/* nq queries by cols vectors, the last of n elements, from dim d; keys [j0, j1), where j0 + slot is even
 * and j0 may be the absent one before the first. */
INLINE void pair_tile(const int nq, const int cols, int n, const ek_value_run *r, int i0, int d, int j0, int j1)
{
    float *o = r->o + i0 * r->ldo + d;
    const float *e = r->e + i0 * EK_SEGMENT;
    vf acc[EK_TILE][VALUE_VECS];
    UNROLL for (int i = 0; i < nq; i++) UNROLL for (int c = 0; c < cols; c++)
        acc[i][c] = v_load(o + i * r->ldo + c * W);
    for (int j = j0; j < j1; j += 2)
        for (int at = j + 1; at >= j; at--) {
            const bool there = at >= 0 && at < j1;
            const uint8_t *v = r->v + at * r->stride + d * 2;
            vf x[VALUE_VECS];
            UNROLL for (int c = 0; c < cols; c++)
                x[c] = there ? load_value(EK_BF16, v + c * W * 2, c == cols - 1 ? n : W) : v_zero();
            if (i0 == 0 && there) fetch(v, VALUE_KEYS * r->stride);
            UNROLL for (int i = 0; i < nq; i++)
            {
                vf ej = there ? v_set1(e[i * EK_SEGMENT + at]) : v_zero();
                UNROLL for (int c = 0; c < cols; c++) acc[i][c] = v_fma(ej, x[c], acc[i][c]);
            }
        }
    UNROLL for (int i = 0; i < nq; i++) UNROLL for (int c = 0; c < cols; c++)
        v_store(o + i * r->ldo + c * W, acc[i][c]);
}

INLINE void pair_dims(const int nq, const ek_value_run *r, int i0, int j0, int j1)
{
    int d = 0;
    for (; d + VALUE_VECS * W <= r->dim; d += VALUE_VECS * W) pair_tile(nq, VALUE_VECS, W, r, i0, d, j0, j1);
    for (; d + W <= r->dim; d += W) pair_tile(nq, 1, W, r, i0, d, j0, j1);
    if (d < r->dim) pair_tile(nq, 1, r->dim - d, r, i0, d, j0, j1);
}

static __attribute__((noinline)) void value_steps(const ek_value_run *r)
{
    for (int j = -(r->slot & 1), end; j < r->n_keys; j = end) {
        int i = 0;
        end = j + VALUE_KEYS < r->n_keys ? j + VALUE_KEYS : r->n_keys;
        for (; i + TILE_QUERIES <= r->n_q; i += TILE_QUERIES) pair_dims(TILE_QUERIES, r, i, j, end);
        if (TILE_QUERIES > 4 && i + 4 <= r->n_q) pair_dims(4, r, i, j, end), i += 4;
        if (i + 2 <= r->n_q) pair_dims(2, r, i, j, end), i += 2;
        if (i < r->n_q) pair_dims(1, r, i, j, end);
    }
}

static void values_bf16(const ek_value_run *r)
{
    unsigned was = _mm_getcsr();
    for (int i = 0; r->fresh && i < r->n_q; i++) memset(r->o + i * r->ldo, 0, sizeof *r->o * (size_t)r->ldo);
    _mm_setcsr(was | FLUSH);
    value_steps(r);
    _mm_setcsr(was);
}

#endif
