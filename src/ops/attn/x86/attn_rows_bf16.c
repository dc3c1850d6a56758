/* Attention over rows, Form B (ops/attn/attn_rows.h) by VDPBF16PS. */
#include "ops/x86/vec_avx512.h"
#include "ops/x86/math_vec.h"

#include <string.h>

#include "ops/attn/attn_rows.h"
#include "ops/x86/vec_bf16.h"

enum {
    BLOCK = 128,                                         /* keys of a column of values before its sums are stored */
    AHEAD_LINES = 16 - 16 * EK_VALUES_EARLY / EK_SEGMENT /* lines that a tile prefetches per 16 of its own */
};

/* 32 elements of one row, the first n of them; NULL: zeros. */
INLINE vi load_row(const uint8_t *v, int n)
{
    if (!v) return _mm512_setzero_si512();
    return n < 32 ? _mm512_maskz_loadu_epi16((__mmask32)((1u << n) - 1), v) : _mm512_loadu_si512(v);
}

/* ------------------------------------------------------------------ scores */

/* Sums over the lanes of 16 vectors x in 8 steps; few vectors live between two steps. */
typedef struct lane_sums {
    vf half, quarter, pair;
    vf all; /* lane i: the lanes of x[i], added 8, 4, 2, 1 apart */
} lane_sums;

INLINE int lane_first(const int n) /* step n needs x of this index, and of the index 4 higher */
{
    return n % 2 * 8 + n / 2;
}

INLINE void add_lanes_step(const int n, vf u, vf v, lane_sums *s)
{
    u = v_add(_mm512_shuffle_f32x4(u, v, 0x44), _mm512_shuffle_f32x4(u, v, 0xee));
    if (n % 2 == 0) {
        s->half = u;
        return;
    }
    u = v_add(_mm512_shuffle_f32x4(s->half, u, 0x88), _mm512_shuffle_f32x4(s->half, u, 0xdd));
    if (n % 4 == 1) {
        s->quarter = u;
        return;
    }
    __m512d a = _mm512_castps_pd(s->quarter), b = _mm512_castps_pd(u);
    u = v_add(_mm512_castpd_ps(_mm512_unpacklo_pd(a, b)), _mm512_castpd_ps(_mm512_unpackhi_pd(a, b)));
    if (n == 3) s->pair = u;
    else s->all = v_add(_mm512_shuffle_ps(s->pair, u, 0x88), _mm512_shuffle_ps(s->pair, u, 0xdd));
}

/* Scores of nq queries by 16 / nq keys from k. */
INLINE void put_scores(const ek_score_block *b, const int nq, int k, vf sums)
{
    const int nk = 16 / nq;
    float out[16];
    v_store(out, v_mul(sums, v_set1(b->scale)));
    UNROLL for (int i = 0; i < nq; i++) memcpy(b->e + i * EK_SEGMENT + k, out + i * nk, sizeof *out * (size_t)nk);
}

/* nq queries by 16 / nq keys from k: a lane is a pair of dims. Rows are read two at a time, each from front
 * to back: nearly the order of memory. */
INLINE void score_keys(const ek_score_block *b, const int nq, int k)
{
    const int nk = 16 / nq, two = nk < 2 ? 1 : 2;
    vf acc[16];
    UNROLL for (int i = 0; i < 16; i++) acc[i] = v_zero();
    UNROLL for (int j = 0; j < nk; j += two) for (int d = 0; d < b->dim; d += 32)
    {
        vi key[2];
        UNROLL for (int n = 0; n < two; n++)
        {
            key[n] = load_row(b->key[k + j + n] + 2 * d, b->dim - d);
            if (b->ahead) fetch(b->key[k + j + n] + 2 * d, b->ahead);
        }
        UNROLL for (int i = 0; i < nq; i++)
        {
            vi q = _mm512_loadu_si512(b->q16 + ek_q16(i, d));
            UNROLL for (int n = 0; n < two; n++) acc[i * nk + j + n] = dp(acc[i * nk + j + n], key[n], q);
        }
    }
    lane_sums sums;
    UNROLL for (int n = 0; n < 8; n++) add_lanes_step(n, acc[lane_first(n)], acc[lane_first(n) + 4], &sums);
    put_scores(b, nq, k, sums.all);
}

/* 32 dims of eight queries by two keys, whose dims are in a and c. */
INLINE void score_dims(vf acc[16], const uint16_t *q, vi a, vi c)
{
    UNROLL for (int i = 0; i < 8; i++)
    {
        vi x = _mm512_loadu_si512(q + 32 * i);
        acc[i * 2] = dp(acc[i * 2], a, x), acc[i * 2 + 1] = dp(acc[i * 2 + 1], c, x);
    }
}

/* Eight queries by keys k and k + 1, of at least 256 dims; now: the lanes of their sums. The lanes of the keys before,
 * if any, are added meanwhile, because adding them at once would delay the multiplications. Rows of 256 dims are
 * prefetched in memory order, a few lines at a time. */
INLINE void score_pair(const ek_score_block *b, int k, float (*now)[16], float (*before)[16])
{
    const uint8_t *k0 = b->key[k], *k1 = b->key[k + 1];
    vf acc[16];
    lane_sums sums;
    UNROLL for (int i = 0; i < 16; i++) acc[i] = v_zero();
    UNROLL for (int n = 0; n < 8; n++)
    {
        const uint8_t *next = n < 4 ? k0 + 128 * n : k1 + 128 * (n - 4);
        vi a = _mm512_loadu_si512(k0 + 64 * n), c = _mm512_loadu_si512(k1 + 64 * n);
        fetch(next, b->ahead), fetch(next, b->ahead + 64);
        score_dims(acc, b->q16 + ek_q16(0, 32 * n), a, c);
        if (before) add_lanes_step(n, v_load(before[lane_first(n)]), v_load(before[lane_first(n) + 4]), &sums);
    }
    for (int d = 256; d < b->dim; d += 32) {
        vi a = load_row(k0 + 2 * d, b->dim - d), c = load_row(k1 + 2 * d, b->dim - d);
        fetch(k0, b->ahead + 2 * d), fetch(k1, b->ahead + 2 * d);
        score_dims(acc, b->q16 + ek_q16(0, d), a, c);
    }
    UNROLL for (int i = 0; i < 16; i++) v_store(now[i], acc[i]);
    if (before) put_scores(b, 8, k - 2, sums.all);
}

static __attribute__((noinline)) void score_pairs(const ek_score_block *b)
{
    _Alignas(64) float x[2][16][16];
    lane_sums sums;
    score_pair(b, 0, x[0], NULL);
    score_pair(b, 2, x[1], x[0]);
    for (int k = 4; k < EK_SCORE_KEYS; k += 4) {
        score_pair(b, k, x[0], x[1]);
        score_pair(b, k + 2, x[1], x[0]);
    }
    UNROLL for (int n = 0; n < 8; n++)
        add_lanes_step(n, v_load(x[1][lane_first(n)]), v_load(x[1][lane_first(n) + 4]), &sums);
    put_scores(b, 8, EK_SCORE_KEYS - 2, sums.all);
}

/* Queries from n_q on are zeros: a tile of 8 serves 5 to 8 queries. */
static void scores_bf16(const ek_score_block *b)
{
    const int nq = b->n_q > 4 ? 8 : b->n_q > 2 ? 4 : b->n_q;
    if (nq == 8 && b->dim >= 256) {
        score_pairs(b);
        return;
    }
    for (int k = 0; k < EK_SCORE_KEYS; k += 16 / nq) {
        if (nq == 8) score_keys(b, 8, k);
        else if (nq == 4) score_keys(b, 4, k);
        else if (nq == 2) score_keys(b, 2, k);
        else score_keys(b, 1, k);
    }
}

/* ------------------------------------------------------------------ weights */

static void round_bf16(float *e, uint16_t *p, int from, int to, float *l)
{
    vf sum = v_zero();
    for (int j = from / 16 * 16; j < to; j += 16) {
        __m256i h = (__m256i)_mm512_cvtneps_pbh(v_load(e + j)); /* weights are zeros or above 2^-126 */
        vf x = v_as_float(vi_shl(_mm512_cvtepu16_epi32(h), 16));
        _mm256_storeu_si256((__m256i *)(p + j), h);
        v_store(e + j, x);
        sum = v_add(sum, x);
    }
    *l = v_add_lanes(&sum);
}

/* The slots of [from, to) among the 16 from j on. */
INLINE __mmask16 visible(int j, int from, int to)
{
    unsigned below = from > j ? (1u << (from - j)) - 1 : 0, above = to - j < 16 ? ~0u << (to - j) : 0;
    return (__mmask16) ~(below | above);
}

/* [from, to) is whole unless some of its blocks of 16 are incomplete. */
INLINE void weigh(float *e, uint16_t *p, int from, int to, const bool whole, int *m, float *l)
{
    int n[EK_SEGMENT], begin = from / 16 * 16;
    vi max = vi_set1(INT32_MIN), nj;
    for (int j = begin; j < to; j += 16) {
        v_store(e + j, v_exp_split(v_load(e + j), &nj));
        vi_store(n + j, nj);
        max = whole ? vi_max(max, nj) : _mm512_mask_max_epi32(max, visible(j, from, to), max, nj);
    }
    *m = vi_reduce_max(max);
    vf sum = v_zero();
    for (int j = begin; j < to; j += 16) {
        vi shift = vi_sub(vi_load(n + j), vi_set1(*m));
        vm counts = vi_less(vi_set1(-126), shift);
        if (!whole) counts = vm_and(counts, visible(j, from, to));
        __m256i h = (__m256i)_mm512_cvtneps_pbh(v_pick(counts, v_scale(v_load(e + j), shift), v_zero()));
        vf x = v_as_float(vi_shl(_mm512_cvtepu16_epi32(h), 16));
        _mm256_storeu_si256((__m256i *)(p + j), h);
        v_store(e + j, x);
        sum = v_add(sum, x);
    }
    *l = v_add_lanes(&sum);
}

static void weights_bf16(float *e, uint16_t *p, int from, int to, int *m, float *l)
{
    if (from % 16 == 0 && to % 16 == 0) weigh(e, p, from, to, true, m, l);
    else weigh(e, p, from, to, false, m, l);
}

/* ------------------------------------------------------------------ values */

/* 32 dims for nq queries: two rows are multiplied in pairs, and the sums stay in the order of the pairs. */
INLINE void value_pair(vf (*acc)[2], const int nq, const uint8_t *v0, const uint8_t *v1, int n, const uint16_t *p,
                       vi mask)
{
    vi a = load_row(v0, n), b = load_row(v1, n), lo = _mm512_unpacklo_epi16(a, b), hi = _mm512_unpackhi_epi16(a, b);
    UNROLL for (int i = 0; i < nq; i++)
    {
        vi e = vi_and(pair_at(p + i * EK_SEGMENT), mask);
        acc[i][0] = dp(acc[i][0], lo, e), acc[i][1] = dp(acc[i][1], hi, e);
    }
}

/* Slots [j0, j1) of the run for the n of 32 dims from d on. Meanwhile it prefetches: lines from `next` on, `step`
 * apart, for the next 16 rows, or the rows EK_VALUES_AHEAD below. */
INLINE void value_column(const ek_value_run *r, const int nq, int i0, int d, int n, int j0, int j1, const bool lines,
                         const uint8_t *next, ptrdiff_t step)
{
    float *o = r->o + i0 * r->ldo + d;
    const uint16_t *p = r->p + i0 * EK_SEGMENT;
    const uint8_t *v = r->v + 2 * d;
    const vi all = vi_set1(-1);
    vf acc[EK_TILE][2];
    if (r->fresh && j0 <= 0) {
        UNROLL for (int i = 0; i < nq; i++) acc[i][0] = acc[i][1] = v_zero();
    } else {
        UNROLL for (int i = 0; i < nq; i++) acc[i][0] = v_load(o + i * r->ldo), acc[i][1] = v_load(o + i * r->ldo + W);
    }
    int j = j0;
    if (j < 0) { /* the run begins with the second of a pair */
        value_pair(acc, nq, NULL, v, n, p - 1, vi_set1((int)0xffff0000u));
        j = 1;
    }
    for (; j + 16 <= j1; j += 16, next += step) UNROLL for (int k = 0; k < 16; k += 2)
        {
            const uint8_t *row = v + (j + k) * r->stride;
            if (!lines) fetch(row, EK_VALUES_AHEAD * r->stride), fetch(row + r->stride, EK_VALUES_AHEAD * r->stride);
            else if (k < (nq == EK_TILE ? AHEAD_LINES : 16)) fetch(next, 64 * k), fetch(next, 64 * k + 64);
            value_pair(acc, nq, row, row + r->stride, n, p + j + k, all);
        }
    for (; j + 2 <= j1; j += 2) value_pair(acc, nq, v + j * r->stride, v + (j + 1) * r->stride, n, p + j, all);
    if (j < j1) value_pair(acc, nq, v + j * r->stride, NULL, n, p + j, vi_set1(0xffff));
    UNROLL for (int i = 0; i < nq; i++) v_store(o + i * r->ldo, acc[i][0]), v_store(o + i * r->ldo + W, acc[i][1]);
}

/* Adjacent rows are prefetched in memory order; the order of use took 1.3 times as long. */
INLINE void value_queries(const ek_value_run *r, const int nq, int i0, int j0, int j1)
{
    const int columns = (r->dim + 31) / 32;
    for (int c = 0; c < columns; c++) {
        const ptrdiff_t step = 64 * (nq == EK_TILE ? AHEAD_LINES : 16),
                        at = (j0 / 16 * columns + (j1 - j0) / 16 * c) * step;
        const int d = 32 * c;
        if (d + 32 > r->dim) value_column(r, nq, i0, d, r->dim - d, j0, j1, false, r->v, 0);
        else if (!r->ahead) value_column(r, nq, i0, d, 32, j0, j1, false, r->v, 0);
        else {
            const bool more = i0 == 0 && at < r->ahead_bytes;
            value_column(r, nq, i0, d, 32, j0, j1, true, more ? r->ahead + at : r->v, more ? step : 0);
        }
    }
}

static void values_bf16(const ek_value_run *r)
{
    for (int j = -(r->slot & 1), end; j < r->n_keys; j = end) {
        int i = 0;
        end = j + BLOCK < r->n_keys ? j + BLOCK : r->n_keys;
        if (r->n_q == EK_TILE) {
            value_queries(r, EK_TILE, 0, j, end);
            continue;
        }
        if (r->n_q >= 4) value_queries(r, 4, 0, j, end), i = 4;
        if (i + 2 <= r->n_q) value_queries(r, 2, i, j, end), i += 2;
        if (i < r->n_q) value_queries(r, 1, i, j, end);
    }
}

/* Puts dims in order: each quarter of the first vector has dims 0 to 3 of 8, of the second dims 4 to 7. */
static void order_bf16(float *o, int dim)
{
    const vi lo = _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
    const vi hi = _mm512_setr_epi32(8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15, 28, 29, 30, 31);
    for (int d = 0; d < dim; d += 32) {
        vf a = v_load(o + d), b = v_load(o + d + W);
        v_store(o + d, _mm512_permutex2var_ps(a, lo, b));
        v_store(o + d + W, _mm512_permutex2var_ps(a, hi, b));
    }
}

void ek_attn_rows_table_bf16(ek_attn_rows_ops *ops)
{
    ops->scores_bf16 = scores_bf16;
    ops->round_bf16 = round_bf16;
    ops->weights_bf16 = weights_bf16;
    ops->values_bf16 = values_bf16;
    ops->order_bf16 = order_bf16;
}
