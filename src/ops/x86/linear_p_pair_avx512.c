/* Form PLANES on a Zen 4 (EK_CPU_ZEN4): two panels by 2 to 6 rows (2 or 3 of two limbs), as linear_q_pair_512.h, codes
 * put together in registers. Of types without biases whose blocks are one group: what their codes and scales are is a
 * constant of the kernels, as a choice in the loop would take registers that the sums need. */
#include "ops/x86/linear_pair_512.h"
#include "ops/x86/linear_tile.h"
#include "ops/x86/linear_x86.h"
#include "ops/x86/planes_vec.h"
#include "ops/x86/tree_vec.h"

enum { TILE = 6, GROUP = EK_UNIT };

/* No load moves across: left to itself gcc loads all bytes of a group first, into more registers than there are. */
#define IN_ORDER __asm__ volatile("" : : : "memory")

/* sum[p][limb * n + r] += codes of panel p * that limb of row r over the group from input k. */
INLINE void dot(__m512i sum[PANELS][PAIR_ROWS], const uint8_t *const *codes, const int8_t *const *row, ptrdiff_t k,
                ptrdiff_t low, const __m512i table, ptrdiff_t ahead, const int n, const int bits, const bool book,
                const int limbs)
{
    const bool two_chains = n * limbs == 2; /* four sums would wait for the multiplier */
    __m512i other[PANELS][PAIR_ROWS], code[PANELS];
    if (two_chains) UNROLL for (int p = 0; p < PANELS; p++) other[p][0] = other[p][1] = _mm512_setzero_si512();
    UNROLL for (int q = 0; q < GROUP / 4; q++)
    {
        IN_ORDER;
        if (ahead)
            UNROLL for (int line = q * bits / 8; line < (q + 1) * bits / 8; line++)
                UNROLL for (int p = 0; p < PANELS; p++) pair_fetch(codes[p] + 64 * line, ahead);
        UNROLL for (int p = 0; p < PANELS; p++) code[p] = p_codes(codes[p], q, bits, book, table);
        pair_multiply(two_chains && q % 2 ? other : sum, code, row, k + 4 * q, low, n, limbs);
    }
    if (two_chains)
        UNROLL for (int p = 0; p < PANELS; p++) UNROLL for (int i = 0; i < n * limbs; i++)
            sum[p][i] = _mm512_add_epi32(sum[p][i], other[p][i]);
}

INLINE void tile(const ek_linear *w, const ek_acts *x, int row0, float *y, ptrdiff_t ldy, const pair_panels *two,
                 const int n, const int bits, const bool book, const ek_wscale rule, const int limbs)
{
    const int8_t *row[TILE];
    UNROLL for (int r = 0; r < n; r++) row[r] = ek_acts_record(x, row0 + r);
    const uint8_t *block[PANELS] = {two->data[0], two->data[1]};
    const ptrdiff_t low = x->low, panel_bytes = (ptrdiff_t)w->panel_bytes;
    ptrdiff_t k = 0, at = x->groups[limbs - 1];
    const size_t scale_bytes = rule == EK_SCALE_PLAIN ? 2 * EK_PANEL : EK_PANEL;
    const __m512i table = p_table(book ? w->book : NULL);

    __m512 node[EK_LINEAR_LEVELS][PANELS * TILE];
    unsigned leaves = 0;
    for (; k < w->k; leaves++) {
        __m512 a[PANELS * TILE];
        UNROLL for (int i = 0; i < PANELS * n; i++) a[i] = _mm512_setzero_ps();
        for (ptrdiff_t end = k + EK_KBLOCK_Q < w->k ? k + EK_KBLOCK_Q : w->k; k < end; k += GROUP) {
            const ptrdiff_t ahead = pair_ahead(two, block[0], panel_bytes);
            __m512 s[PANELS], none[PANELS];
            const uint8_t *codes[PANELS];
            UNROLL for (int p = 0; p < PANELS; p++)
            {
                const p_block scales = p_open(rule, false, block[p], NULL, 0);
                p_scales(rule, false, &scales, 0, 0, _mm512_setzero_ps(), &s[p], &none[p]);
                if (ahead) fetch(block[p], ahead);
                codes[p] = block[p] + scale_bytes;
                block[p] = codes[p] + GROUP * 2 * bits;
            }
            __m512i sum[PANELS][PAIR_ROWS];
            UNROLL for (int r = 0; r < n; r++)
            {
                const __m512i start = _mm512_set1_epi32(p_start(group_at(row[r], at)->start, bits, book));
                UNROLL for (int p = 0; p < PANELS; p++)
                {
                    sum[p][r] = _mm512_setzero_si512();
                    sum[p][(limbs - 1) * n + r] = start;
                }
            }
            dot(sum, codes, row, k, low, table, ahead, n, bits, book, limbs);
            if (limbs == 2)
                UNROLL for (int p = 0; p < PANELS; p++) UNROLL for (int r = 0; r < n; r++)
                    sum[p][r] = _mm512_add_epi32(_mm512_slli_epi32(sum[p][r], 8), sum[p][n + r]);
            add_pair(a, n, sum, s, none, row, at, n, false);
            at += (ptrdiff_t)sizeof(ek_act_group);
        }
        v_tree_push(*node, PANELS * TILE, leaves, a, PANELS * n);
    }
    UNROLL for (int p = 0; p < PANELS; p++) UNROLL for (int r = 0; r < n; r++) _mm512_mask_storeu_ps(
        y + (row0 + r) * ldy + p * EK_PANEL, two->mask[p], v_tree_sum(*node, PANELS * TILE, leaves, p * n + r));
}

/* Its layout never settles on these. */
/* clang-format off */
#define TILE_FN(name, bits, book, rule, l, n)                                                                     \
    static __attribute__((noinline)) void pair_##name##_##l##_##n(                                                \
        const ek_linear *w, const ek_acts *x, int row, float *y, ptrdiff_t ldy, const pair_panels *two)           \
    {                                                                                                             \
        tile(w, x, row, y, ldy, two, n, bits, book, rule, l);                                                     \
    }
/* Of one limb by rows, then of two. */
#define TILES(name, ...)                                                                                          \
    TILE_FN(name, __VA_ARGS__, 1, 2) TILE_FN(name, __VA_ARGS__, 1, 3) TILE_FN(name, __VA_ARGS__, 1, 4)            \
    TILE_FN(name, __VA_ARGS__, 1, 5) TILE_FN(name, __VA_ARGS__, 1, 6)                                             \
    TILE_FN(name, __VA_ARGS__, 2, 2) TILE_FN(name, __VA_ARGS__, 2, 3)                                             \
    static pair_fn *const pairs_##name[2][TILE + 1] = {                                                           \
        {0, 0, pair_##name##_1_2, pair_##name##_1_3, pair_##name##_1_4, pair_##name##_1_5, pair_##name##_1_6},    \
        {0, 0, pair_##name##_2_2, pair_##name##_2_3}};
/* clang-format on */

TILES(q4_0, 4, false, EK_SCALE_PLAIN)
TILES(q5_0, 5, false, EK_SCALE_PLAIN)
TILES(q8_0, 8, false, EK_SCALE_PLAIN)
TILES(iq4_nl, 4, true, EK_SCALE_PLAIN)
TILES(mxfp4, 4, true, EK_SCALE_E8M0)

/* NULL: a panel at a time is faster. 8-bit codes of 2 rows wait for the memory, which sends one stream better than two,
 * and 7 or 8 rows (4 of two limbs) for most of their time, so that one tile beats two. */
static pair_fn *const (*pairs_of(const ek_linear *w, int rows))[TILE + 1]
{
    if (rows == 1 || w->biased || w->scale > EK_SCALE_E8M0) return NULL;
    if (w->book) return w->scale == EK_SCALE_E8M0 ? pairs_mxfp4 : pairs_iq4_nl;
    if (w->bits == 4) return pairs_q4_0;
    if (w->bits == 5) return pairs_q5_0;
    const int sums = rows * w->limbs;
    return rows == 2 || sums == 7 || sums == 8 ? NULL : pairs_q8_0;
}

void ek_linear_planes_avx512_zen4(const ek_linear *w, const ek_acts *x, int r0, int r1, float *y, ptrdiff_t ldy, int p0,
                                  int p1)
{
    pair_fn *const(*pairs)[TILE + 1] = pairs_of(w, r1 - r0);
    if (!pairs) {
        ek_linear_planes_avx512_zen4_panels(w, x, r0, r1, y, ldy, p0, p1);
        return;
    }
    for (int r = r0, n; r < r1; r += n) {
        n = ek_tile_rows(r1 - r, TILE / w->limbs);
        pair_run(w, x, r, y, ldy, p0, p1, r == r0, pairs[w->limbs - 1][n]);
    }
}
