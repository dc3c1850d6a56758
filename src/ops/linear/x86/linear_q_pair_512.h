/* Forms Q4 and Q8 on AVX-512 VNNI for 2 to 8 rows (4 of two limbs): two panels at once, codes taken apart in registers.
 *
 * A row's four bytes are broadcast into a register and serve both panels. The next codes of both are fetched, a line
 * per vector of codes: more lines at once would fill the buffers that the loads need. */
#ifndef EK_OPS_X86_LINEAR_Q_PAIR_512_H
#define EK_OPS_X86_LINEAR_Q_PAIR_512_H

#include "ops/linear/x86/linear_pair_512.h"
#include "ops/linear/x86/linear_tile.h"
#include "ops/linear/x86/linear_512.h"
#include "ops/x86/tree_vec.h"

/* Without it gcc fetches a whole group's lines before its computation. */
#define FETCH_HERE __asm__ volatile("")

/* The lines of the next two panels that a tile fetches: at most one per vector of codes, and one after them. */
typedef struct pair_next {
    const uint8_t *at;
    ptrdiff_t line[65 / 4 + 1]; /* 0 for lines after a group's last: fetched twice, which costs less than a branch */
} pair_next;

/* sum[p][limb * n + r] += codes of panel p * that limb of row r over the A-group of inputs from k. next: NULL, or an
 * address to prefetch instead of the following bytes. */
INLINE void pair_dot(__m512i sum[PANELS][PAIR_ROWS], const uint8_t *codes, ptrdiff_t second, const int8_t *const *row,
                     ptrdiff_t k, ptrdiff_t low, pair_ahead ahead, const pair_next *next, const int n, const bool q8,
                     const int a_group, const int limbs)
{
    const __m512i nibble = _mm512_set1_epi8(15);
    const bool two_chains = n * limbs == 2; /* four sums would wait for the multiplier */
    __m512i other[PANELS][PAIR_ROWS], code[PANELS], high[PANELS];
    if (two_chains) UNROLL for (int p = 0; p < PANELS; p++) other[p][0] = other[p][1] = _mm512_setzero_si512();
    const int vectors = q8 ? a_group / 4 : a_group / 8;
    UNROLL for (int v = 0; v < vectors; v++)
    {
        UNROLL for (int p = 0; p < PANELS; p++)
        {
            const uint8_t *from = codes + p * second + 64 * v;
            if (!next) pair_fetch(from, ahead);
            else if (p == 0) fetch(next->at, next->line[v]);
            const __m512i both = _mm512_load_si512(from);
            code[p] = q8 ? both : _mm512_and_si512(both, nibble);
            if (!q8) high[p] = _mm512_and_si512(_mm512_srli_epi16(both, 4), nibble);
        }
        if (q8) {
            pair_multiply(two_chains && v % 2 ? other : sum, code, row, k + 4 * v, low, n, limbs);
        } else {
            pair_multiply(sum, code, row, k + 8 * v, low, n, limbs);
            pair_multiply(two_chains ? other : sum, high, row, k + 8 * v + 4, low, n, limbs);
        }
        FETCH_HERE;
    }
    if (two_chains)
        UNROLL for (int p = 0; p < PANELS; p++) UNROLL for (int i = 0; i < n * limbs; i++)
            sum[p][i] = _mm512_add_epi32(sum[p][i], other[p][i]);
}

/* Whether groups have MLX's layout, which is constant here: a scale and a bias in bf16 per A-group. */
INLINE bool pair_is_usual(const ek_linear *w, const int a_group)
{
    return w->group == a_group && w->biased && w->scale_dtype == EK_BF16;
}

INLINE void pair_tile(const ek_linear *w, const ek_acts *x, int row0, float *y, ptrdiff_t ldy, const pair_panels *two,
                      const int n, const bool q8, const int a_group, const int limbs, const bool usual,
                      const bool in_turn)
{
    const int8_t *row[PAIR_ROWS];
    UNROLL for (int r = 0; r < n; r++) row[r] = ek_acts_record(x, row0 + r);
    const uint8_t *codes = two->codes;
    const ptrdiff_t low = x->low, panel_bytes = (ptrdiff_t)w->panel_bytes, second = two->second;
    ptrdiff_t k = 0, at = x->groups[limbs - 1];
    const int group = usual ? a_group : w->group, parts = group / a_group;
    const int groups = w->k / group, block = EK_KBLOCK_Q / group;
    const ptrdiff_t part_bytes = a_group * EK_PANEL / (q8 ? 1 : 2);
    const ptrdiff_t rest = usual ? 64 : (ptrdiff_t)(ek_linear_group_bytes(w) - ek_linear_code_bytes(w));
    const bool biased = usual || w->biased;
    const ek_dtype scale_dtype = usual ? EK_BF16 : w->scale_dtype;
    const __m512 zero = _mm512_set1_ps((float)w->zero);
    const int vectors = a_group / (q8 ? 4 : 8);
    pair_next next = {two->next, {0}};
    for (int i = 0; in_turn && i <= vectors && i < two->lines; i++) next.line[i] = 64 * i;

    __m512 node[EK_LINEAR_LEVELS][PANELS * PAIR_ROWS], a[PANELS * PAIR_ROWS];
    unsigned leaves = 0;
    for (int g = 0; g < groups; leaves++) {
        UNROLL for (int i = 0; i < PANELS * n; i++) a[i] = _mm512_setzero_ps();
        for (int end = g + block < groups ? g + block : groups; g < end; g++) {
            const pair_ahead ahead = pair_ahead_of(two, codes - two->codes, panel_bytes);
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
                pair_dot(sum, codes, second, row, k, low, ahead, in_turn ? &next : NULL, n, q8, a_group, limbs);
                codes += part_bytes;
                if (limbs == 2)
                    UNROLL for (int p = 0; p < PANELS; p++) UNROLL for (int r = 0; r < n; r++)
                        sum[p][r] = _mm512_add_epi32(_mm512_slli_epi32(sum[p][r], 8), sum[p][n + r]);
                const uint8_t *scales = codes + (parts - 1 - part) * part_bytes;
                __m512 s[PANELS], centre[PANELS]; /* read here, because sums fill the registers until now */
                UNROLL for (int p = 0; p < PANELS; p++)
                {
                    const uint8_t *from = scales + p * second;
                    s[p] = group_scales(from, scale_dtype, 0), centre[p] = zero;
                    if (biased) centre[p] = _mm512_fmadd_ps(zero, s[p], group_scales(from, scale_dtype, 1));
                }
                if (biased) add_pair(a, n, sum, s, centre, row, at, n, true);
                else add_pair(a, n, sum, s, centre, row, at, n, false);
                k += a_group, at += (ptrdiff_t)sizeof(ek_act_group);
            }
            if (in_turn) {
                fetch(next.at, next.line[vectors]);
                next.at += 64 * two->lines;
                if (next.at > two->next_end) next.at = two->next_end;
            } else {
                for (ptrdiff_t i = 0; i < rest; i += 64)
                    UNROLL for (int p = 0; p < PANELS; p++) fetch(codes + p * second + i, ahead.far);
            }
            codes += rest;
        }
        v_tree_push(*node, PANELS * PAIR_ROWS, leaves, a, PANELS * n);
    }
    UNROLL for (int p = 0; p < PANELS; p++) UNROLL for (int r = 0; r < n; r++) _mm512_mask_storeu_ps(
        y + (row0 + r) * ldy + p * EK_PANEL, two->mask[p], v_tree_sum(*node, PANELS * PAIR_ROWS, leaves, p * n + r));
}

/* Rows [r0, r1) in at least two tiles of up to max rows, which take turns on two panels: while they compute, the next
 * two panels arrive from memory as one stream. fns: by rows. */
static void pair_run_tiles(const ek_linear *w, const ek_acts *x, int r0, int r1, int max, float *y, ptrdiff_t ldy,
                           int p0, int p1, pair_fn *const *fns)
{
    enum { LINE = 64 };
    const ptrdiff_t tiles = (r1 - r0 + max - 1) / max, bytes = PANELS * (ptrdiff_t)w->panel_bytes;
    const ptrdiff_t share = (bytes / LINE + tiles - 1) / tiles * LINE, groups = w->k / w->group;
    for (int p = p0; p < p1; p += PANELS) {
        const bool both = p + 1 < p1;
        pair_panels two = {.codes = w->data + (size_t)p * w->panel_bytes,
                           .second = both ? (ptrdiff_t)w->panel_bytes : 0};
        two.mask[0] = outputs_of(w, p), two.mask[1] = both ? outputs_of(w, p + 1) : (__mmask16)0;
        two.lines = (int)((share / LINE + groups - 1) / groups);
        two.next_end = two.codes + bytes;
        for (int r = r0, n; r < r1; r += n) {
            n = ek_tile_rows(r1 - r, max);
            two.next = two.next_end;
            two.next_end = two.next + share;
            fns[n](w, x, r, y + p * EK_PANEL, ldy, &two);
        }
    }
}

/* clang-format changes these lines at every run. */
/* clang-format off */
#define PAIR_FN(q8, a, l, n)                                                                                      \
    static __attribute__((noinline)) void pair_##q8##_##a##_##l##_##n(                                            \
        const ek_linear *w, const ek_acts *x, int row, float *y, ptrdiff_t ldy, const pair_panels *two)           \
    {                                                                                                             \
        if (pair_is_usual(w, a)) pair_tile(w, x, row, y, ldy, two, n, q8, a, l, true, false);                     \
        else pair_tile(w, x, row, y, ldy, two, n, q8, a, l, false, false);                                        \
    }
/* Functions for the usual layout, with tiles in turn. */
#define TURN_FN(q8, a, l, n)                                                                                      \
    static __attribute__((noinline)) void turn_##q8##_##a##_##l##_##n(                                            \
        const ek_linear *w, const ek_acts *x, int row, float *y, ptrdiff_t ldy, const pair_panels *two)           \
    {                                                                                                             \
        pair_tile(w, x, row, y, ldy, two, n, q8, a, l, true, true);                                               \
    }
/* Functions of one limb by rows, then of two. */
#define PAIRS(q8, a)                                                                                              \
    PAIR_FN(q8, a, 1, 2) PAIR_FN(q8, a, 1, 3) PAIR_FN(q8, a, 1, 4) PAIR_FN(q8, a, 1, 5)                           \
    PAIR_FN(q8, a, 1, 6) PAIR_FN(q8, a, 1, 7) PAIR_FN(q8, a, 1, 8)                                                \
    PAIR_FN(q8, a, 2, 2) PAIR_FN(q8, a, 2, 3) PAIR_FN(q8, a, 2, 4)                                                \
    TURN_FN(q8, a, 1, 4) TURN_FN(q8, a, 1, 5) TURN_FN(q8, a, 1, 6) TURN_FN(q8, a, 2, 2) TURN_FN(q8, a, 2, 3)      \
    static pair_fn *const pairs_##q8##_##a[2][PAIR_ROWS + 1] = {                                                  \
        {0, 0, pair_##q8##_##a##_1_2, pair_##q8##_##a##_1_3, pair_##q8##_##a##_1_4, pair_##q8##_##a##_1_5,        \
         pair_##q8##_##a##_1_6, pair_##q8##_##a##_1_7, pair_##q8##_##a##_1_8},                                    \
        {0, 0, pair_##q8##_##a##_2_2, pair_##q8##_##a##_2_3, pair_##q8##_##a##_2_4}};                             \
    static pair_fn *const turns_##q8##_##a[2][PAIR_ROWS + 1] = {                                                  \
        {0, 0, 0, 0, turn_##q8##_##a##_1_4, turn_##q8##_##a##_1_5, turn_##q8##_##a##_1_6},                        \
        {0, 0, turn_##q8##_##a##_2_2, turn_##q8##_##a##_2_3}};
/* clang-format on */

#endif
