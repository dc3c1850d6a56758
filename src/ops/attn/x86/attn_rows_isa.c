/* Attention over rows (ops/attn/attn_rows.h) on AVX2 and AVX-512: Form A, and Form B by fused multiply-adds for
 * machines without VDPBF16PS. */
#include "ops/x86/isa.h"

#include <string.h>

#include "ops/attn/attn_rows.h"
#include "ops/convert.h"
#include "ops/x86/vec_bf16.h"

enum { TILE_QUERIES = W == 8 ? 4 : 8 /* queries of a register tile */ };

/* load_keys: W dims (f32) or 2 W (16 bits) of W keys, turned: a vector of keys per dim or pair of dims.
 * pair_part: the lower or upper halves of x, as floats. */
#ifdef EK_ISA_avx2
INLINE void load_keys(vi *r, const uint8_t *const *key, size_t at, int left, const bool wide)
{
    const int step = wide ? 8 : 16, size = wide ? 4 : 2;
    UNROLL for (int j = 0; j < 8; j++)
    {
        const uint8_t *from = key[j] + at;
        if (left >= step) {
            r[j] = _mm256_loadu_si256((const __m256i *)from);
            continue;
        }
        uint8_t part[32] = {0};
        memcpy(part, from, (size_t)left * (size_t)size);
        r[j] = _mm256_loadu_si256((const __m256i *)part);
    }
    vi_transpose(r);
}

INLINE vf pair_part(ek_dtype t, __m256i x, const int high)
{
    if (t == EK_BF16) return v_as_float(high ? vi_and(x, vi_set1((int)0xffff0000u)) : vi_shl(x, 16));
    __m256i half = high ? _mm256_srli_epi32(x, 16) : vi_and(x, vi_set1(0xffff));
    half = _mm256_permute4x64_epi64(_mm256_packus_epi32(half, half), 0xd8);
    return _mm256_cvtph_ps(_mm256_castsi256_si128(half));
}
#else
INLINE void load_keys(vi *r, const uint8_t *const *key, size_t at, int left, const bool wide)
{
    if (left >= (wide ? 16 : 32)) {
        UNROLL for (int j = 0; j < 16; j++) r[j] = _mm512_loadu_si512(key[j] + at);
    } else {
        UNROLL for (int j = 0; j < 16; j++)
            r[j] = wide ? _mm512_maskz_loadu_epi32((__mmask16)((1u << left) - 1), key[j] + at)
                        : _mm512_maskz_loadu_epi16((__mmask32)((1u << left) - 1), key[j] + at);
    }
    vi_transpose(r);
}

INLINE vf pair_part(ek_dtype t, __m512i x, const int high)
{
    if (t == EK_BF16) return v_as_float(high ? vi_and(x, vi_set1((int)0xffff0000u)) : vi_shl(x, 16));
    return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(high ? _mm512_srli_epi32(x, 16) : x));
}
#endif

/* ------------------------------------------------------------------ Form A: scores */

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

/* ------------------------------------------------------------------ Form A: values */

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

/* ------------------------------------------------------------------ Form B: scores */

enum { SCORE_QUERIES = 4, SCORE_KEYS = 2 };

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

/* ------------------------------------------------------------------ Form B: weights */

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

/* ------------------------------------------------------------------ Form B: values */

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

void EK_OF_ISA(ek_attn_rows_table)(ek_attn_rows_ops *ops)
{
    ops->scores = scores;
    ops->values = values;
    ops->scores_bf16 = scores_bf16;
    ops->round_bf16 = round_bf16;
    ops->values_bf16 = values_bf16;
}
