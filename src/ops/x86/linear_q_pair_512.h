/* Forms Q4 and Q8 on AVX-512 VNNI for 2 to 8 rows (4 of two limbs): two panels at once, codes taken apart in registers.
 *
 * A row's four bytes are broadcast into a register and serve both panels. What follows in both is fetched, a line per
 * vector of codes: more lines at once fill the buffers that the loads need. */
#ifndef EK_OPS_X86_LINEAR_Q_PAIR_512_H
#define EK_OPS_X86_LINEAR_Q_PAIR_512_H

#include "ops/x86/linear_pair_512.h"
#include "ops/x86/linear_unpack_512.h"
#include "ops/x86/tree_vec.h"

INLINE __m512i pair_load(const uint8_t *codes, ptrdiff_t ahead)
{
    if (ahead) pair_fetch(codes, ahead);
    return _mm512_load_si512(codes);
}

/* sum[p][limb * n + r] += codes of panel p * that limb of row r over the A-group of inputs from k. */
INLINE void pair_dot(__m512i sum[PANELS][PAIR_ROWS], const uint8_t *const *codes, const int8_t *const *row, ptrdiff_t k,
                     ptrdiff_t low, ptrdiff_t ahead, const int n, const bool q8, const int a_group, const int limbs)
{
    const __m512i nibble = _mm512_set1_epi8(15);
    const bool two_chains = n * limbs == 2; /* four sums would wait for the multiplier */
    __m512i other[PANELS][PAIR_ROWS], code[PANELS], high[PANELS];
    if (two_chains) UNROLL for (int p = 0; p < PANELS; p++) other[p][0] = other[p][1] = _mm512_setzero_si512();
    if (q8) {
        UNROLL for (int v = 0; v < a_group / 4; v++)
        {
            UNROLL for (int p = 0; p < PANELS; p++) code[p] = pair_load(codes[p] + 64 * v, ahead);
            pair_multiply(two_chains && v % 2 ? other : sum, code, row, k + 4 * v, low, n, limbs);
        }
    } else {
        UNROLL for (int v = 0; v < a_group / 8; v++)
        {
            UNROLL for (int p = 0; p < PANELS; p++)
            {
                const __m512i both = pair_load(codes[p] + 64 * v, ahead);
                code[p] = _mm512_and_si512(both, nibble);
                high[p] = _mm512_and_si512(_mm512_srli_epi16(both, 4), nibble);
            }
            pair_multiply(sum, code, row, k + 8 * v, low, n, limbs);
            pair_multiply(two_chains ? other : sum, high, row, k + 8 * v + 4, low, n, limbs);
        }
    }
    if (two_chains)
        UNROLL for (int p = 0; p < PANELS; p++) UNROLL for (int i = 0; i < n * limbs; i++)
            sum[p][i] = _mm512_add_epi32(sum[p][i], other[p][i]);
}

INLINE void pair_tile(const ek_linear *w, const ek_acts *x, int row0, float *y, ptrdiff_t ldy, const pair_panels *two,
                      const int n, const bool q8, const int a_group, const int limbs)
{
    const int8_t *row[PAIR_ROWS];
    UNROLL for (int r = 0; r < n; r++) row[r] = ek_acts_record(x, row0 + r);
    const uint8_t *codes[PANELS] = {two->data[0], two->data[1]};
    const ptrdiff_t low = x->low, panel_bytes = (ptrdiff_t)w->panel_bytes;
    ptrdiff_t k = 0, at = x->groups[limbs - 1];
    const int groups = w->k / w->group, block = EK_KBLOCK_Q / w->group, parts = w->group / a_group;
    const size_t code_bytes = ek_linear_code_bytes(w), rest = ek_linear_group_bytes(w) - code_bytes;
    const bool biased = w->biased;
    const ek_dtype scale_dtype = w->scale_dtype;
    const __m512 zero = _mm512_set1_ps((float)w->zero);

    __m512 node[EK_LINEAR_LEVELS][PANELS * PAIR_ROWS], leaf[PANELS * PAIR_ROWS], *a = leaf;
    if (n > 6) __asm__("" : "+r"(a) : : "memory"); /* in memory: the registers are full of sums */
    unsigned leaves = 0;
    for (ptrdiff_t g = 0; g < groups; leaves++) {
        UNROLL for (int i = 0; i < PANELS * n; i++) a[i] = _mm512_setzero_ps();
        for (ptrdiff_t end = g + block < groups ? g + block : groups; g < end; g++) {
            __m512 s[PANELS], centre[PANELS];
            const ptrdiff_t ahead = pair_ahead(two, codes[0], panel_bytes);
            UNROLL for (int p = 0; p < PANELS; p++)
            {
                const uint8_t *scales = codes[p] + code_bytes;
                s[p] = group_scales(scales, scale_dtype, 0), centre[p] = zero;
                if (biased) centre[p] = _mm512_fmadd_ps(zero, s[p], group_scales(scales, scale_dtype, 1));
                for (size_t i = 0; ahead && i < rest; i += 64) fetch(scales + i, ahead);
            }
            for (int part = 0; part < parts; part++) {
                __m512i sum[PANELS][PAIR_ROWS];
                UNROLL for (int r = 0; r < n; r++)
                {
                    const __m512i start = _mm512_set1_epi32(group_at(row[r], at)->start);
                    UNROLL for (int p = 0; p < PANELS; p++)
                    {
                        sum[p][r] = _mm512_setzero_si512();
                        sum[p][(limbs - 1) * n + r] = q8 ? _mm512_slli_epi32(start, 4) : start;
                    }
                }
                pair_dot(sum, codes, row, k, low, ahead, n, q8, a_group, limbs);
                UNROLL for (int p = 0; p < PANELS; p++) codes[p] += a_group * EK_PANEL / (q8 ? 1 : 2);
                if (limbs == 2)
                    UNROLL for (int p = 0; p < PANELS; p++) UNROLL for (int r = 0; r < n; r++)
                        sum[p][r] = _mm512_add_epi32(_mm512_slli_epi32(sum[p][r], 8), sum[p][n + r]);
                if (biased) add_pair(a, n, sum, s, centre, row, at, n, true);
                else add_pair(a, n, sum, s, centre, row, at, n, false);
                k += a_group, at += (ptrdiff_t)sizeof(ek_act_group);
            }
            UNROLL for (int p = 0; p < PANELS; p++) codes[p] += rest;
        }
        v_tree_push(*node, PANELS * PAIR_ROWS, leaves, a, PANELS * n);
    }
    UNROLL for (int p = 0; p < PANELS; p++) UNROLL for (int r = 0; r < n; r++) _mm512_mask_storeu_ps(
        y + (row0 + r) * ldy + p * EK_PANEL, two->mask[p], v_tree_sum(*node, PANELS * PAIR_ROWS, leaves, p * n + r));
}

/* Its layout never settles on these. */
/* clang-format off */
#define PAIR_FN(q8, a, l, n)                                                                                      \
    static __attribute__((noinline)) void pair_##q8##_##a##_##l##_##n(                                            \
        const ek_linear *w, const ek_acts *x, int row, float *y, ptrdiff_t ldy, const pair_panels *two)           \
    {                                                                                                             \
        pair_tile(w, x, row, y, ldy, two, n, q8, a, l);                                                           \
    }
/* Of one limb by rows, then of two. */
#define PAIRS(q8, a)                                                                                              \
    PAIR_FN(q8, a, 1, 2) PAIR_FN(q8, a, 1, 3) PAIR_FN(q8, a, 1, 4) PAIR_FN(q8, a, 1, 5)                           \
    PAIR_FN(q8, a, 1, 6) PAIR_FN(q8, a, 1, 7) PAIR_FN(q8, a, 1, 8)                                                \
    PAIR_FN(q8, a, 2, 2) PAIR_FN(q8, a, 2, 3) PAIR_FN(q8, a, 2, 4)                                                \
    static pair_fn *const pairs_##q8##_##a[2][PAIR_ROWS + 1] = {                                                  \
        {0, 0, pair_##q8##_##a##_1_2, pair_##q8##_##a##_1_3, pair_##q8##_##a##_1_4, pair_##q8##_##a##_1_5,        \
         pair_##q8##_##a##_1_6, pair_##q8##_##a##_1_7, pair_##q8##_##a##_1_8},                                    \
        {0, 0, pair_##q8##_##a##_2_2, pair_##q8##_##a##_2_3, pair_##q8##_##a##_2_4}};
/* clang-format on */

#endif
