/* Form Q on AVX-512 VNNI for many rows, whatever the weights' bytes: two panels by 8 rows (4 of two limbs).
 *
 * A row's four bytes, broadcast into a register, serve both panels, and so do its X and sx: a broadcast from memory for
 * every VPDPBUSD takes as many loads as the processor has for two products a cycle. Codes and scales of UNIT inputs are
 * unpacked once for up to TILES tiles of rows and stay in the first-level cache meanwhile.
 *
 * A file includes this, writes its unpack_fn and calls MANY_FN() for every size of A-group and of codes that it has,
 * outside of functions, and many_run(). Few rows have kernels of their own: the bits are the same. */
#ifndef EK_OPS_X86_LINEAR_MANY_512_H
#define EK_OPS_X86_LINEAR_MANY_512_H

#include "ops/inline.h"
#include "ops/linear/x86/linear_512.h"
#include "ops/linear/x86/linear_tile.h"
#include "ops/x86/tree_vec.h"

enum {
    MANY_ROWS = PAIR_ROWS,
    MANY_TILES = 16,    /* tiles of rows that share unpacked codes */
    MANY_MIN_ROWS = 16, /* fewer rows would wait for memory while codes are unpacked */
    UNIT = 512          /* inputs */
};

/* Codes c + 8, or c + 128 (wide), group after group and of each panel after panel; s and b'. */
typedef struct many_unit {
    _Alignas(64) uint8_t codes[UNIT * PANELS * EK_PANEL];
    _Alignas(64) unpacked_scales scale[UNIT / 16];
    const uint8_t *next[PANELS]; /* the next bytes to unpack, `rest` bytes of each */
    ptrdiff_t rest, share;
} many_unit;

/* leaf[p * MANY_ROWS + r] += the unit's groups, from input k on. */
typedef void many_fn(__m512 *leaf, many_unit *u, const ek_acts *x, int row0, ptrdiff_t k, int groups, bool biased);

/* Fetches a part of the codes to unpack next into the second-level cache; more at once would wait for memory. */
INLINE void many_fetch(many_unit *u)
{
    const ptrdiff_t share = u->share < u->rest ? u->share : u->rest;
    for (ptrdiff_t i = 0; i < share; i += 64)
        for (int p = 0; p < PANELS; p++) fetch(u->next[p], i);
    for (int p = 0; p < PANELS; p++) u->next[p] += share;
    u->rest -= share;
}

INLINE void many_tile(__m512 *leaf, many_unit *u, const ek_acts *x, int row0, ptrdiff_t k, int groups, bool biased,
                      const int a_group, const bool wide, const int limbs)
{
    enum { VEC = 64 };
    const int n = MANY_ROWS / limbs;
    const int8_t *row[MANY_ROWS]; /* the low limbs are further rows */
    UNROLL for (int r = 0; r < n; r++)
    {
        row[r] = ek_acts_record(x, row0 + r);
        if (limbs == 2) row[n + r] = row[r] + x->low;
    }
    ptrdiff_t at = x->groups[limbs - 1] + k / a_group * (ptrdiff_t)sizeof(ek_act_group);
    const uint8_t *codes = u->codes;
    const unpacked_scales *scale = u->scale;
    for (; groups > 0; groups--) {
        if (u->rest > 0) many_fetch(u);
        __m512i acc[PANELS][MANY_ROWS];
        UNROLL for (int r = 0; r < n; r++)
        {
            __m512i start = _mm512_set1_epi32(group_at(row[r], at)->start);
            if (wide) start = _mm512_slli_epi32(start, 4);
            UNROLL for (int p = 0; p < PANELS; p++)
            {
                if (limbs == 2) acc[p][r] = _mm512_setzero_si512(), acc[p][n + r] = start;
                else acc[p][r] = start;
            }
        }
        UNROLL for (int v = 0; v < a_group / 4; v++)
        {
            const __m512i first = _mm512_load_si512(codes + VEC * v);
            const __m512i second = _mm512_load_si512(codes + a_group * EK_PANEL + VEC * v);
            UNROLL for (int r = 0; r < MANY_ROWS; r++)
            {
                const __m512i q = quad(row[r] + k + 4 * v);
                acc[0][r] = _mm512_dpbusd_epi32(acc[0][r], first, q);
                acc[1][r] = _mm512_dpbusd_epi32(acc[1][r], second, q);
            }
        }
        if (limbs == 2)
            UNROLL for (int p = 0; p < PANELS; p++) UNROLL for (int r = 0; r < n; r++)
                acc[p][r] = _mm512_add_epi32(_mm512_slli_epi32(acc[p][r], 8), acc[p][n + r]);
        const __m512 s[PANELS] = {_mm512_load_ps((*scale)[0][0]), _mm512_load_ps((*scale)[1][0])};
        const __m512 centre[PANELS] = {_mm512_load_ps((*scale)[0][1]), _mm512_load_ps((*scale)[1][1])};
        if (biased) add_pair(leaf, MANY_ROWS, acc, s, centre, row, at, n, true);
        else add_pair(leaf, MANY_ROWS, acc, s, centre, row, at, n, false);
        k += a_group, at += (ptrdiff_t)sizeof(ek_act_group);
        codes += PANELS * a_group * EK_PANEL, scale++;
    }
}

#define MANY_FN(a, wide, limbs)                                                                                       \
    static __attribute__((noinline)) void many_##a##_##wide##_##limbs(__m512 *leaf, many_unit *u, const ek_acts *x,   \
                                                                      int row0, ptrdiff_t k, int groups, bool biased) \
    {                                                                                                                 \
        many_tile(leaf, u, x, row0, k, groups, biased, a, wide, limbs);                                               \
    }

/* The tiles by the size of an A-group, two of them, and by wide, and their table [wide][a == large][limbs - 1]. */
#define MANY_FNS(a) MANY_FN(a, 0, 1) MANY_FN(a, 0, 2) MANY_FN(a, 1, 1) MANY_FN(a, 1, 2)
#define MANY(small, large)                                                                    \
    MANY_FNS(small)                                                                           \
    MANY_FNS(large)                                                                           \
    static many_fn *const many[2][2][2] = {                                                   \
        {{many_##small##_0_1, many_##small##_0_2}, {many_##large##_0_1, many_##large##_0_2}}, \
        {{many_##small##_1_1, many_##small##_1_2}, {many_##large##_1_1, many_##large##_1_2}}};

/* Two panels (the last of an odd number twice) for tiles of `n` rows, each of which begins at row[i]. */
static void many_panels(const ek_linear *w, const ek_acts *x, const int *row, int tiles, int n, float *y, ptrdiff_t ldy,
                        int p, int p1, unpack_fn *unpack, many_fn *fn)
{
    many_unit u;
    __m512 sum[MANY_TILES][PANELS * MANY_ROWS], node[MANY_TILES][EK_LINEAR_LEVELS][PANELS * MANY_ROWS];
    const uint8_t *panel[PANELS];
    for (int i = 0; i < PANELS; i++) panel[i] = w->data + (size_t)ek_min(p + i, p1 - 1) * w->panel_bytes;
    const size_t step = w->panel_bytes * UNIT / (size_t)w->k; /* approximate */
    unsigned leaves = 0;
    for (int k = 0; k < w->k; k += UNIT) {
        const int groups = ek_min(UNIT, w->k - k) / w->a_group;
        const bool last = k + UNIT >= w->k;
        const bool in_place = v_tree_in_place(leaves);
        for (int i = 0; i < PANELS; i++)
            u.next[i] = last ? panel[i] + PANELS * w->panel_bytes : panel[i] + step * (size_t)(k / UNIT + 1);
        u.rest = (ptrdiff_t)step, u.share = (u.rest / (tiles * groups) + 64) / 64 * 64;
        unpack(u.codes, u.scale, w, panel, k, groups, false);
        for (int i = 0; i < tiles; i++) {
            __m512 *leaf = in_place ? node[i][0] : sum[i];
            if (k % EK_KBLOCK_Q == 0) memset(leaf, 0, sizeof *sum);
            fn(leaf, &u, x, row[i], k, groups, w->biased);
        }
        if (!last && (k + UNIT) % EK_KBLOCK_Q) continue;
        for (int i = 0; i < tiles && !in_place; i++)
            v_tree_push(*node[i], PANELS * MANY_ROWS, leaves, sum[i], PANELS * MANY_ROWS);
        leaves++;
    }
    for (int i = 0; i < tiles; i++)
        for (int r = 0; r < n; r++)
            for (int j = 0; j < PANELS && p + j < p1; j++)
                _mm512_mask_storeu_ps(y + (row[i] + r) * ldy + (p + j) * EK_PANEL, outputs_of(w, p + j),
                                      v_tree_sum(*node[i], PANELS * MANY_ROWS, leaves, j * MANY_ROWS + r));
}

/* For at least MANY_MIN_ROWS rows; fns: for one limb, for two. The last tile ends with the last row; rows that it
 * shares with the previous tile get the same result twice. */
static void many_run(const ek_linear *w, const ek_acts *x, int r0, int r1, float *y, ptrdiff_t ldy, int p0, int p1,
                     unpack_fn *unpack, many_fn *const *fns)
{
    const int n = MANY_ROWS / w->limbs;
    for (int r = r0; r < r1;) {
        int row[MANY_TILES], tiles = 0;
        for (; r < r1 && tiles < MANY_TILES; r += n) row[tiles++] = ek_min(r, r1 - n);
        for (int p = p0; p < p1; p += PANELS)
            many_panels(w, x, row, tiles, n, y, ldy, p, p1, unpack, fns[w->limbs - 1]);
    }
}

#endif
