/* Sums of products of attention in integers with fewer multiplications than products, for processors that add twice as
 * many vectors as they multiply (EK_CPU_ZEN4): four vector operations a cycle, two of them products.
 *
 * Take four neighbours of two vectors x and y: dims of a query and a key, or tokens of weights and values. Let a be the
 * first two, b the other two, and * the sum of two products. Then (S. Winograd, 1968)
 *
 *   x_a * y_a + x_b * y_b = (x_a + y_b) * (x_b + y_a) - x_a * x_b - y_a * y_b
 *
 * one product and two additions of 16 bits in place of two products. Of the two terms subtracted at the end one depends
 * on the query alone, the other on the key alone. The sums of 16 bits do not overflow: a code of at most 2047 is added
 * to another such code or to one of at most 16,383. All further arithmetic is exact modulo 2^32, and the result is
 * smaller than that (ops/attn/attn_int.h), so the bits are those of every other kernel.
 *
 * Three of four such groups of four are computed this way, the fourth by plain products. Then two pipes multiply nearly
 * all the time and the other two add all the time: 2.75 cycles for 16 dims of 16 keys; products alone take 4. */
#ifndef EK_OPS_X86_ATTN_INT_HALVED_512_H
#define EK_OPS_X86_ATTN_INT_HALVED_512_H

#include <string.h>

#include "ops/attn/attn_int.h"
#include "ops/attn/x86/attn_groups.h"

enum { HALVED_COLS = 2, HALVED_FOURS = EK_PAGE_TOKENS / 4 };

/* Whether group g of four, of dims or of a page's tokens, is computed with one product. */
INLINE bool is_halved(int g)
{
    return g % 4 != 3;
}

INLINE vi dot_vectors(vi sum, vi a, vi b)
{
    __asm__("vpdpwssd %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
    return sum;
}

INLINE vi pair_of(const int16_t *code)
{
    int pair;
    memcpy(&pair, code, sizeof pair);
    return vi_set1(pair);
}

/* The sum over the fours of x that are halved of x_a * x_b. */
static int own_products(const int16_t *x, int n)
{
    uint32_t sum = 0; /* modulo 2^32 */
    for (int g = 0; g < n / 4; g++, x += 4)
        if (is_halved(g)) sum += (uint32_t)(x[0] * x[2]) + (uint32_t)(x[1] * x[3]);
    return (int)sum;
}

/* Adds four dims or tokens of EK_TILE queries, whose codes begin at x; a and b have those of y; own: y_a * y_b. */
INLINE void add_four(vi acc[EK_TILE][HALVED_COLS], vi own[HALVED_COLS], const vi *a, const vi *b, const int16_t *x,
                     ptrdiff_t stride, const bool halved)
{
    UNROLL for (int i = 0; i < EK_TILE; i++)
    {
        const vi xa = pair_of(x + i * stride), xb = pair_of(x + i * stride + 2);
        UNROLL for (int c = 0; c < HALVED_COLS; c++)
        {
            if (halved) acc[i][c] = dot_vectors(acc[i][c], _mm512_add_epi16(xa, b[c]), _mm512_add_epi16(xb, a[c]));
            else acc[i][c] = dot_vectors(dot_vectors(acc[i][c], a[c], xa), b[c], xb);
        }
    }
    if (halved) UNROLL for (int c = 0; c < HALVED_COLS; c++) own[c] = dot_vectors(own[c], a[c], b[c]);
}

/* A four of vectors whose first row begins at `at`, of rows `ld` numbers apart. */
INLINE void load_four(const ek_kv_format f, vi *a, vi *b, const int *at, ptrdiff_t ld)
{
    UNROLL for (int c = 0; c < HALVED_COLS; c++)
    {
        const vi x = vi_load(at + c * W);
        if (ek_kv_codecs[f].bits == 16) a[c] = x, b[c] = vi_load(at + ld + c * W);
        else a[c] = vi_low_bytes(x), b[c] = vi_high_bytes(x);
    }
}

/* Rows of a page that hold four dims or tokens. */
INLINE int rows_of_four(const ek_kv_format f)
{
    return ek_kv_codecs[f].bits == 16 ? 2 : 1;
}

/* Adds the next four. */
INLINE void next_four(const ek_kv_format f, vi acc[EK_TILE][HALVED_COLS], vi own[HALVED_COLS], const int **at,
                      ptrdiff_t ld, const int16_t **x, ptrdiff_t stride, stream *ahead, stream *now, const bool halved)
{
    vi a[HALVED_COLS], b[HALVED_COLS];
    for (int i = 0; i < rows_of_four(f); i++) {
        stream_next(ahead);
        if (now) stream_next(now);
    }
    load_four(f, a, b, *at, ld);
    add_four(acc, own, a, b, *x, stride, halved);
    *x += 4, *at += rows_of_four(f) * ld;
}

/* n fours, halved by their number; the loop has no way out of its middle, or gcc moves every sum to memory. */
INLINE void add_fours(const ek_kv_format f, vi acc[EK_TILE][HALVED_COLS], vi own[HALVED_COLS], const int *at,
                      ptrdiff_t ld, const int16_t *x, ptrdiff_t stride, int n, stream *ahead, stream *now)
{
    for (; n >= 4; n -= 4) {
        next_four(f, acc, own, &at, ld, &x, stride, ahead, now, true);
        next_four(f, acc, own, &at, ld, &x, stride, ahead, now, true);
        next_four(f, acc, own, &at, ld, &x, stride, ahead, now, true);
        next_four(f, acc, own, &at, ld, &x, stride, ahead, now, false);
    }
    for (; n > 0; n--) next_four(f, acc, own, &at, ld, &x, stride, ahead, now, true);
}

/* Scores of two vectors of keys from slot for the queries of a tile. As int_score_tile of attn_int_tile.h. */
INLINE void halved_score_tile(const ek_kv_format f, const ek_attn_segment *segment, const uint8_t *k, int slot,
                              float *e, stream *ahead, stream now)
{
    const int dim = segment->head_dim;
    vi acc[EK_TILE][HALVED_COLS], own[HALVED_COLS];
    UNROLL for (int c = 0; c < HALVED_COLS; c++) own[c] = vi_set1(0);
    UNROLL for (int i = 0; i < EK_TILE; i++) UNROLL for (int c = 0; c < HALVED_COLS; c++) acc[i][c] = vi_set1(0);
    add_fours(f, acc, own, (const int *)k + slot, EK_PAGE_TOKENS, segment->q_code, EK_CODE_STRIDE, dim / 4, ahead,
              &now);
    const int16_t *code = segment->q_code;
    vf scale[HALVED_COLS];
    UNROLL for (int c = 0; c < HALVED_COLS; c++) scale[c] = v_load(ek_kv_token_scale(f, k, dim, slot + c * W));
    UNROLL for (int i = 0; i < EK_TILE; i++)
    {
        const vi query = pair_of(code + i * EK_CODE_STRIDE + EK_MAX_HEAD_DIM);
        UNROLL for (int c = 0; c < HALVED_COLS; c++)
        {
            const vf sum = vi_to_float(vi_sub(vi_sub(acc[i][c], own[c]), query));
            v_store(e + i * EK_SEGMENT + slot + c * W, v_mul(v_mul(sum, scale[c]), v_set1(segment->q_scale[i])));
        }
    }
}

/* Whether a query sees all of page p: then all its slots are written. What others hold may be no codes, and is
 * multiplied by 0 alone. */
INLINE bool whole_page(const ek_attn_segment *segment, int p)
{
    for (int i = 0; i < segment->n_q; i++)
        if (segment->from[i] <= p * EK_PAGE_TOKENS && segment->to[i] >= (p + 1) * EK_PAGE_TOKENS) return true;
    return false;
}

/* Sums of two vectors of dims from d, as in int_value_tile; carried sums lie in memory. */
INLINE void halved_value_tile(const ek_kv_format f, const ek_attn_segment *segment, const weight_codes *w, int d)
{
    const int dim = segment->head_dim, rows = rows_of_four(f);
    _Alignas(64) int carried[EK_TILE * HALVED_COLS * W];
    vi acc[EK_TILE][HALVED_COLS], own[HALVED_COLS];
    UNROLL for (int i = 0; i < EK_TILE; i++) UNROLL for (int c = 0; c < HALVED_COLS; c++) acc[i][c] = vi_set1(0);
    memset(carried, 0, sizeof carried);
    for (int p = 0; p < EK_SEGMENT_PAGES; p++) {
        if (!segment->v[p]) continue;
        const int page = p * EK_PAGE_TOKENS;
        const bool whole = whole_page(segment, p);
        int four = (segment->all_from > page ? segment->all_from - page : 0) / 4;
        const int n = ((segment->all_to < page + EK_PAGE_TOKENS ? segment->all_to - page : EK_PAGE_TOKENS) + 3) / 4;
        stream ahead = {segment->k_next[p], (size_t)(4 / rows) * segment->k_bytes * (size_t)(HALVED_COLS * W) /
                                                (size_t)(dim * EK_PAGE_TOKENS)};
        if (ahead.at) ahead.at += (size_t)d * (segment->k_bytes / (size_t)dim);
        const int *at = (const int *)segment->v[p] + four * rows * dim + d;
        const int16_t *code = w->code[0] + page + 4 * four;
        UNROLL for (int c = 0; c < HALVED_COLS; c++) own[c] = vi_set1(0);
        if (whole) add_fours(f, acc, own, at, dim, code, EK_SEGMENT, HALVED_FOURS, &ahead, NULL);
        for (; !whole && four < n; four++) next_four(f, acc, own, &at, dim, &code, EK_SEGMENT, &ahead, NULL, false);
        UNROLL for (int i = 0; i < EK_TILE; i++)
        {
            const vi weights_own = vi_set1(whole ? w->own[i][p] : 0);
            UNROLL for (int c = 0; c < HALVED_COLS; c++)
            {
                int *to = carried + (i * HALVED_COLS + c) * W;
                const vi sum = vi_sub(vi_sub(acc[i][c], own[c]), weights_own);
                vi_store(to, vi_add(vi_load(to), vi_sra(sum, 16)));
                acc[i][c] = vi_and(sum, vi_set1(0xffff));
            }
        }
    }
    UNROLL for (int i = 0; i < EK_TILE; i++) UNROLL for (int c = 0; c < HALVED_COLS; c++)
    {
        const vf high = vi_to_float(vi_load(carried + (i * HALVED_COLS + c) * W));
        const vf sum = v_fma(high, v_set1(65536), vi_to_float(acc[i][c]));
        v_store(segment->o + i * segment->ldo + d + c * W, v_mul(sum, v_set1(w->unit[i])));
    }
}

#endif
