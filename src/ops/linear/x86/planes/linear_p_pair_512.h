/* Form PLANES on a Zen 4: two panels at once, with codes put together in registers. The tile of linear_p_pair_avx512.c
 * and of linear_p_decoded_avx512.c. */
#ifndef EK_OPS_X86_LINEAR_P_PAIR_512_H
#define EK_OPS_X86_LINEAR_P_PAIR_512_H

#include "ops/linear/x86/linear_pair_512.h"
#include "ops/linear/x86/linear_tile.h"
#include "ops/linear/x86/linear_unpack_512.h"
#include "ops/linear/x86/linear_x86.h"
#include "ops/linear/x86/planes/planes_vec.h"
#include "ops/x86/tree_vec.h"

enum { PAIR_TILE = 6 };

/* A type's constants. A kernel has them at compile time, because a choice in the loop would take registers that the
 * sums need. */
typedef struct pair_type {
    int bits, a_group, block;
    bool book, biased;
    int rule; /* the rule of its scales, or PAIR_DECODED: s and b' are floats, A-group after A-group */
} pair_type;
enum { PAIR_DECODED = -1 };

/* Keeps loads in order. Otherwise gcc loads all bytes of a group first, into more registers than there are. */
#define IN_ORDER __asm__ volatile("" : : : "memory")

/* sum[p][limb * n + r] += codes of panel p * that limb of row r over the A-group from input k, whose first quad is
 * number `first` of a unit. */
INLINE void dot(__m512i sum[PANELS][PAIR_ROWS], const uint8_t *const *unit, const int first, const int8_t *const *row,
                ptrdiff_t k, ptrdiff_t low, const __m512i table, pair_ahead ahead, const int n, const pair_type t,
                const int limbs)
{
    const bool two_chains = n * limbs == 2; /* four sums would wait for the multiplier */
    __m512i other[PANELS][PAIR_ROWS], code[PANELS];
    if (two_chains) UNROLL for (int p = 0; p < PANELS; p++) other[p][0] = other[p][1] = _mm512_setzero_si512();
    UNROLL for (int v = 0; v < t.a_group / 4; v++)
    {
        const int q = first + v;
        IN_ORDER;
        if (ahead.far)
            UNROLL for (int line = q * t.bits / 8; line < (q + 1) * t.bits / 8; line++)
                UNROLL for (int p = 0; p < PANELS; p++) pair_fetch(unit[p] + 64 * line, ahead);
        UNROLL for (int p = 0; p < PANELS; p++) code[p] = p_codes(unit[p], q, t.bits, t.book, table);
        pair_multiply(two_chains && v % 2 ? other : sum, code, row, k + 4 * v, low, n, limbs);
    }
    if (two_chains)
        UNROLL for (int p = 0; p < PANELS; p++) UNROLL for (int i = 0; i < n * limbs; i++)
            sum[p][i] = _mm512_add_epi32(sum[p][i], other[p][i]);
}

INLINE void tile(const ek_linear *w, const ek_acts *x, int row0, float *y, ptrdiff_t ldy, const pair_panels *two,
                 const int n, const pair_type t, const int limbs)
{
    const int8_t *row[PAIR_TILE];
    UNROLL for (int r = 0; r < n; r++) row[r] = ek_acts_record(x, row0 + r);
    const uint8_t *block[PANELS] = {two->codes, two->codes + two->second};
    const unpacked_scales *decoded = two->scales;
    const ptrdiff_t low = x->low, panel_bytes = (ptrdiff_t)w->panel_bytes;
    ptrdiff_t k = 0, at = x->groups[limbs - 1];
    const size_t scale_bytes = t.rule == PAIR_DECODED    ? ek_planes_scale_bytes(w)
                               : t.rule == EK_SCALE_E8M0 ? EK_PANEL
                                                         : 2 * EK_PANEL;
    const __m512i table = p_table(t.book ? w->book : NULL);

    __m512 node[EK_LINEAR_LEVELS][PANELS * PAIR_TILE];
    unsigned leaves = 0;
    for (; k < w->k; leaves++) {
        __m512 a[PANELS * PAIR_TILE];
        UNROLL for (int i = 0; i < PANELS * n; i++) a[i] = _mm512_setzero_ps();
        for (ptrdiff_t end = k + EK_KBLOCK_Q < w->k ? k + EK_KBLOCK_Q : w->k; k < end;) {
            const pair_ahead ahead = pair_ahead_of(two, block[0] - two->codes, panel_bytes);
            __m512 s[PANELS], centre[PANELS];
            const uint8_t *unit[PANELS];
            UNROLL for (int p = 0; p < PANELS; p++)
            {
                if (t.rule != PAIR_DECODED) { /* a block is a group */
                    const p_block scales = p_open((ek_wscale)t.rule, false, block[p], NULL, 0);
                    p_scales((ek_wscale)t.rule, false, &scales, 0, 0, _mm512_setzero_ps(), &s[p], &centre[p]);
                    if (ahead.far) fetch(block[p], ahead.far);
                }
                unit[p] = block[p] + scale_bytes;
            }
            for (int u = 0; u < t.block / EK_UNIT; u++) {
                UNROLL for (int part = 0; part < EK_UNIT / t.a_group; part++)
                {
                    __m512i sum[PANELS][PAIR_ROWS];
                    UNROLL for (int r = 0; r < n; r++)
                    {
                        const __m512i start = _mm512_set1_epi32(p_start(group_at(row[r], at)->start, t.bits, t.book));
                        UNROLL for (int p = 0; p < PANELS; p++)
                        {
                            sum[p][r] = _mm512_setzero_si512();
                            sum[p][(limbs - 1) * n + r] = start;
                        }
                    }
                    dot(sum, unit, part * t.a_group / 4, row, k, low, table, ahead, n, t, limbs);
                    if (limbs == 2)
                        UNROLL for (int p = 0; p < PANELS; p++) UNROLL for (int r = 0; r < n; r++)
                            sum[p][r] = _mm512_add_epi32(_mm512_slli_epi32(sum[p][r], 8), sum[p][n + r]);
                    if (t.rule == PAIR_DECODED) {
                        UNROLL for (int p = 0; p < PANELS; p++) s[p] = _mm512_load_ps((*decoded)[p][0]),
                                                                centre[p] = _mm512_load_ps((*decoded)[p][1]);
                        decoded++;
                    }
                    add_pair(a, n, sum, s, centre, row, at, n, t.biased);
                    k += t.a_group, at += (ptrdiff_t)sizeof(ek_act_group);
                }
                UNROLL for (int p = 0; p < PANELS; p++) unit[p] += EK_UNIT * 2 * t.bits;
            }
            UNROLL for (int p = 0; p < PANELS; p++) block[p] = unit[p];
        }
        v_tree_push(*node, PANELS * PAIR_TILE, leaves, a, PANELS * n);
    }
    UNROLL for (int p = 0; p < PANELS; p++) UNROLL for (int r = 0; r < n; r++) _mm512_mask_storeu_ps(
        y + (row0 + r) * ldy + p * EK_PANEL, two->mask[p], v_tree_sum(*node, PANELS * PAIR_TILE, leaves, p * n + r));
}

/* clang-format changes these lines at every run. */
/* clang-format off */
#define PAIR_FN(name, l, n)                                                                                       \
    static __attribute__((noinline)) void pair_##name##_##l##_##n(                                                \
        const ek_linear *w, const ek_acts *x, int row, float *y, ptrdiff_t ldy, const pair_panels *two)           \
    {                                                                                                             \
        tile(w, x, row, y, ldy, two, n, type_##name, l);                                                          \
    }
/* clang-format on */

#endif
