/* Form PLANES on a Zen 4 (EK_CPU_ZEN4): two panels by 2 to 6 rows (2 or 3 with two limbs), like linear_q_pair_512.h,
 * with codes put together in registers. The form of codes and scales is a constant of each kernel, because a choice in
 * the loop would take registers that the sums need. */
#include "ops/linear/x86/linear_pair_512.h"
#include "ops/linear/x86/linear_tile.h"
#include "ops/linear/x86/planes/planes_vec.h"
#include "ops/x86/tree_vec.h"

enum { PAIR_TILE = 6 };

/* A type's constants. */
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

/* ------------------------------------------------------------------ types without biases whose blocks are one group */

/* clang-format off */
/* A type, and its kernels of one limb by rows, then of two. */
#define PAIRS(name, ...)                                                                                          \
    static const pair_type type_##name = {__VA_ARGS__};                                                           \
    PAIR_FN(name, 1, 2) PAIR_FN(name, 1, 3) PAIR_FN(name, 1, 4) PAIR_FN(name, 1, 5) PAIR_FN(name, 1, 6)           \
    PAIR_FN(name, 2, 2) PAIR_FN(name, 2, 3)                                                                       \
    static pair_fn *const pairs_##name[2][PAIR_TILE + 1] = {                                                      \
        {0, 0, pair_##name##_1_2, pair_##name##_1_3, pair_##name##_1_4, pair_##name##_1_5, pair_##name##_1_6},    \
        {0, 0, pair_##name##_2_2, pair_##name##_2_3}};
/* clang-format on */

PAIRS(q4_0, 4, 32, 32, false, false, EK_SCALE_PLAIN)
PAIRS(q5_0, 5, 32, 32, false, false, EK_SCALE_PLAIN)
PAIRS(q8_0, 8, 32, 32, false, false, EK_SCALE_PLAIN)
PAIRS(iq4_nl, 4, 32, 32, true, false, EK_SCALE_PLAIN)
PAIRS(mxfp4, 4, 32, 32, true, false, EK_SCALE_E8M0)

/* NULL: a panel at a time is not slower. 2 rows of 4 and 8 bits wait for the memory, which sends one stream better than
 * two, and 7 or 8 rows of 8 bits (4 of two limbs) for most of their time, so that one tile beats two. */
static pair_fn *const (*pairs_of(const ek_linear *w, int rows))[PAIR_TILE + 1]
{
    if (rows == 1 || w->biased || w->scale > EK_SCALE_E8M0) return NULL;
    if (w->book) return w->scale == EK_SCALE_E8M0 ? pairs_mxfp4 : pairs_iq4_nl;
    const int sums = rows * w->limbs;
    if (w->bits == 4) return sums == 2 ? NULL : pairs_q4_0;
    if (w->bits == 5) return pairs_q5_0;
    return rows == 2 || sums == 7 || sums == 8 ? NULL : pairs_q8_0;
}

/* ------------------------------------------------------------------ types whose groups share a block's scales, by many
 * rows of one limb. Computing s and b' of a group takes up to three multiplications, too many for 6 rows, so they are
 * computed once for all rows of a task and kept in the second-level cache. */

/* With fewer rows it is slower. The scales of GROUPS groups of two panels are 256 KB. */
enum { MIN_ROWS = 64, GROUPS = 1024, SCALES_AHEAD = 4 /* blocks */ };

/* Numbers of rows are divided into tiles of 5 and 6. */
#define TYPE(name, ...)                                 \
    static const pair_type type_##name = {__VA_ARGS__}; \
    PAIR_FN(name, 1, 5)                                 \
    PAIR_FN(name, 1, 6)                                 \
    static pair_fn *const pairs_##name[2] = {pair_##name##_1_5, pair_##name##_1_6};

TYPE(q2_k, 2, 16, 256, false, true, PAIR_DECODED)
TYPE(q3_k, 3, 16, 256, false, false, PAIR_DECODED)
TYPE(q4_k, 4, 32, 256, false, true, PAIR_DECODED)
TYPE(q5_k, 5, 32, 256, false, true, PAIR_DECODED)
TYPE(q6_k, 6, 16, 256, false, false, PAIR_DECODED)
TYPE(iq4_xs, 4, 32, 256, true, false, PAIR_DECODED)
TYPE(nvfp4, 4, 16, 64, true, false, PAIR_DECODED)

static pair_fn *const *decoded_pairs_of(const ek_linear *w)
{
    if (w->book) return w->scale == EK_SCALE_E4M3 ? pairs_nvfp4 : pairs_iq4_xs;
    switch (w->bits) {
    case 2: return pairs_q2_k;
    case 3: return pairs_q3_k;
    case 4: return pairs_q4_k;
    case 5: return pairs_q5_k;
    default: return pairs_q6_k;
    }
}

/* Decodes panel p and the next one, or the last one twice. */
static void decode(const ek_linear *w, int p, int p1, unpacked_scales *to)
{
    const size_t block_bytes = ek_planes_block_bytes(w), scale_bytes = ek_planes_scale_bytes(w);
    const __m512 zero = _mm512_set1_ps((float)w->zero);
    for (int i = 0; i < PANELS; i++) {
        const uint8_t *block = w->data + (size_t)ek_min(p + i, p1 - 1) * w->panel_bytes;
        const float *factors = (const float *)(const void *)(block + w->panel_bytes - EK_PANEL * sizeof(float));
        for (int g = 0; g < w->k / w->a_group; block += block_bytes) {
            for (size_t line = 0; line < scale_bytes; line += 64)
                fetch(block + line, SCALES_AHEAD * (ptrdiff_t)block_bytes);
            const p_block shared = p_open(w->scale, w->biased, block, factors, 0);
            for (int in = 0; in < w->block / w->a_group; in++, g++) {
                __m512 s, centre;
                p_scales(w->scale, w->biased, &shared, in, 0, zero, &s, &centre);
                _mm512_store_ps(to[g][i][0], s);
                _mm512_store_ps(to[g][i][1], centre);
            }
        }
    }
}

static void run_decoded(const ek_linear *w, const ek_acts *x, int r0, int r1, float *y, ptrdiff_t ldy, int p0, int p1)
{
    const int groups = w->k / w->a_group;
    if (w->limbs == 2 || r1 - r0 < MIN_ROWS || w->block == w->group || groups > GROUPS) {
        ek_linear_planes_avx512_zen4_panels(w, x, r0, r1, y, ldy, p0, p1);
        return;
    }
    _Alignas(64) unpacked_scales scales[GROUPS];
    const int step = GROUPS / groups * PANELS;
    pair_fn *const *fns = decoded_pairs_of(w);
    for (int p = p0, end; p < p1; p = end) {
        end = ek_min(p + step, p1);
        for (int i = p; i < end; i += PANELS) decode(w, i, end, scales + (i - p) / PANELS * groups);
        for (int r = r0, n; r < r1; r += n) {
            n = ek_tile_rows(r1 - r, PAIR_TILE);
            pair_run(w, x, r, y, ldy, p, end, r == r0 ? PAIR_AHEAD : 0, fns[n - 5], scales);
        }
    }
}

void ek_linear_planes_avx512_zen4(const ek_linear *w, const ek_acts *x, int r0, int r1, float *y, ptrdiff_t ldy, int p0,
                                  int p1)
{
    pair_fn *const(*pairs)[PAIR_TILE + 1] = pairs_of(w, r1 - r0);
    if (!pairs) {
        run_decoded(w, x, r0, r1, y, ldy, p0, p1);
        return;
    }
    for (int r = r0, n; r < r1; r += n) {
        n = ek_tile_rows(r1 - r, PAIR_TILE / w->limbs);
        pair_run(w, x, r, y, ldy, p0, p1, r == r0 ? PAIR_AHEAD : 0, pairs[w->limbs - 1][n], NULL);
    }
}
