/* Form Q on AVX-512 VNNI: a vector lane is one output of a panel.
 *
 * VPDPBUSD multiplies unsigned codes (c + 8 or c + 128) by the row's signed bytes, four k per lane, the row's four
 * bytes broadcast from memory. The accumulator starts at minus the offset times X, so it ends as exactly I. Two limbs
 * are two sums, joined as integers.
 *
 * One row, and 9 to 12 rows (5 and 6 with two limbs), take one panel at a time; 2 to 8 take two panels
 * (linear_q_pair_512.h); 16 and more take two unpacked panels. If other vector units than the multipliers divide codes
 * at no cost (EK_CPU_ZEN4), 9 and more rows are pairs of panels by up to 6 rows (3 with two limbs): all sums stay in
 * registers, a row's broadcast bytes serve both panels, and the codes come packed from the second-level cache. Up to 16
 * rows, these tiles take turns on two panels, and each fetches its part of the next two. With more rows, the first tile
 * passes over all panels of a task before the second. */
#include "ops/inline.h"
#include "ops/linear/x86/linear_512.h"
#include "ops/linear/x86/linear_many_512.h"
#include "ops/linear/x86/linear_q_pair_512.h"
#include "ops/linear/x86/linear_q_unpack_512.h"
#include "ops/linear/x86/linear_tile.h"
#include "ops/x86/tree_vec.h"

/* Bytes ahead. With several rows, prefetches go into the second-level cache: the rows take so long with a line that the
 * first level, which their activations share, would lose one of them. */
enum { TILE = 12, PAIR_TILE = 6, SUMS = 12, AHEAD = 16384, AHEAD_1 = 4096, NEAR = 1024 };
enum { MAX_IN_TURN = 16 }; /* rows; with more the memory is no limit */

/* With few sums the multiplier waits for itself (4 cycles), so sums are split into chains. */
INLINE int chains_of(const int sums)
{
    return sums == 1 ? 4 : sums <= 3 ? 2 : 1;
}

/* Prefetches a line; all lines of a group at once would fill the buffers that loads need. */
INLINE void fetch_both(const uint8_t *codes)
{
    fetch(codes, AHEAD);
    _mm_prefetch((const char *)codes + NEAR, _MM_HINT_T0);
}

/* acc[limb * n + r] += codes * that limb of row r over the A-group of inputs from k; low: where the low limbs
 * lie in a record. Returns the next codes. */
INLINE const uint8_t *dot(__m512i *acc, const uint8_t *codes, const int8_t *const *row, ptrdiff_t k, ptrdiff_t low,
                          bool ahead, const int n, const bool q8, const int a_group, const int limbs)
{
    const __m512i nibble = _mm512_set1_epi8(15);
    const int sums = n * limbs, chains = chains_of(sums);
    __m512i part[4][SUMS];
    UNROLL for (int i = 0; i < sums; i++) part[0][i] = acc[i];
    UNROLL for (int c = 1; c < chains; c++) UNROLL for (int i = 0; i < sums; i++) part[c][i] = _mm512_setzero_si512();
    if (q8) {
        UNROLL for (int v = 0; v < a_group / 4; v++, codes += 64)
        {
            if (ahead) fetch_both(codes);
            __m512i code = _mm512_load_si512(codes), *to = part[v % chains];
            UNROLL for (int i = 0; i < sums; i++)
                to[i] = _mm512_dpbusd_epi32(to[i], code, quad(row[i % n] + i / n * low + k + 4 * v));
        }
    } else {
        UNROLL for (int v = 0; v < a_group / 8; v++, codes += 64)
        {
            if (ahead) fetch_both(codes);
            __m512i both = _mm512_load_si512(codes);
            __m512i even = _mm512_and_si512(both, nibble), odd = _mm512_and_si512(_mm512_srli_epi16(both, 4), nibble);
            __m512i *to = part[2 * v % chains], *to_odd = part[(2 * v + 1) % chains];
            UNROLL for (int i = 0; i < sums; i++)
                to[i] = _mm512_dpbusd_epi32(to[i], even, quad(row[i % n] + i / n * low + k + 8 * v));
            UNROLL for (int i = 0; i < sums; i++)
                to_odd[i] = _mm512_dpbusd_epi32(to_odd[i], odd, quad(row[i % n] + i / n * low + k + 8 * v + 4));
        }
    }
    UNROLL for (int i = 0; i < sums; i++) acc[i] = part[0][i];
    UNROLL for (int c = 1; c < chains; c++) UNROLL for (int i = 0; i < sums; i++)
        acc[i] = _mm512_add_epi32(acc[i], part[c][i]);
    return codes;
}

INLINE void tile(const ek_linear *w, const ek_acts *x, int row0, float *y, ptrdiff_t ldy, const uint8_t *codes,
                 __mmask16 mask, bool ahead, const int n, const bool q8, const int a_group, const int limbs)
{
    const int8_t *row[TILE];
    UNROLL for (int r = 0; r < n; r++) row[r] = ek_acts_record(x, row0 + r);
    const ptrdiff_t low = x->low;
    ptrdiff_t k = 0, at = x->groups[limbs - 1];
    const int groups = w->k / w->group, block = EK_KBLOCK_Q / w->group, parts = w->group / a_group;
    const size_t rest = ek_linear_group_bytes(w) - ek_linear_code_bytes(w), code_bytes = ek_linear_code_bytes(w);
    const bool biased = w->biased, by_lines = n * limbs > 1; /* with one sum there is no time for it */
    const ek_dtype scale_dtype = w->scale_dtype;
    const __m512 zero = _mm512_set1_ps((float)w->zero);

    __m512 node[EK_LINEAR_LEVELS][TILE];
    unsigned leaves = 0;
    for (ptrdiff_t g = 0; g < groups; leaves++) {
        __m512 a[TILE];
        UNROLL for (int r = 0; r < n; r++) a[r] = _mm512_setzero_ps();
        for (ptrdiff_t end = g + block < groups ? g + block : groups; g < end; g++, codes += rest) {
            __m512 s = group_scales(codes + code_bytes, scale_dtype, 0), centre = zero;
            for (size_t i = by_lines ? code_bytes : 0; ahead && i < code_bytes + rest; i += 64) {
                if (!by_lines) _mm_prefetch((const char *)codes + AHEAD_1 + i, _MM_HINT_T0);
                else fetch(codes + i, AHEAD);
            }
            if (biased) centre = _mm512_fmadd_ps(zero, s, group_scales(codes + code_bytes, scale_dtype, 1));
            for (int part = 0; part < parts; part++) {
                __m512i acc[SUMS];
                UNROLL for (int r = 0; r < n; r++)
                {
                    __m512i start = _mm512_set1_epi32(group_at(row[r], at)->start);
                    acc[r] = _mm512_setzero_si512();
                    acc[(limbs - 1) * n + r] = q8 ? _mm512_slli_epi32(start, 4) : start;
                }
                codes = dot(acc, codes, row, k, low, ahead && by_lines, n, q8, a_group, limbs);
                if (limbs == 2)
                    UNROLL for (int r = 0; r < n; r++)
                        acc[r] = _mm512_add_epi32(_mm512_slli_epi32(acc[r], 8), acc[n + r]);
                UNROLL for (int r = 0; r < n; r++)
                {
                    const ek_act_group *of = group_at(row[r], at);
                    __m512 t = _mm512_mul_ps(s, _mm512_cvtepi32_ps(acc[r]));
                    if (biased) t = _mm512_fmadd_ps(centre, _mm512_set1_ps(of->sum), t);
                    a[r] = _mm512_fmadd_ps(t, _mm512_set1_ps(of->sx), a[r]);
                }
                k += a_group, at += (ptrdiff_t)sizeof(ek_act_group);
            }
        }
        v_tree_push(*node, TILE, leaves, a, n);
    }
    UNROLL for (int r = 0; r < n; r++)
        _mm512_mask_storeu_ps(y + (row0 + r) * ldy, mask, v_tree_sum(*node, TILE, leaves, r));
}

typedef void tile_fn(const ek_linear *w, const ek_acts *x, int row, float *y, ptrdiff_t ldy, const uint8_t *codes,
                     __mmask16 mask, bool ahead);

/* clang-format never settles on a layout of these. */
/* clang-format off */
#define TILE_FN(q8, a, l, n)                                                                                      \
    static __attribute__((noinline)) void tile_##q8##_##a##_##l##_##n(                                            \
        const ek_linear *w, const ek_acts *x, int row, float *y, ptrdiff_t ldy, const uint8_t *codes,             \
        __mmask16 mask, bool ahead)                                                                               \
    {                                                                                                             \
        tile(w, x, row, y, ldy, codes, mask, ahead, n, q8, a, l);                                                 \
    }
/* Tiles by limbs and rows; numbers of rows that are missing here take pairs of panels. */
#define TILES(q8, a)                                                                                              \
    TILE_FN(q8, a, 1, 1) TILE_FN(q8, a, 1, 9) TILE_FN(q8, a, 1, 10) TILE_FN(q8, a, 1, 11) TILE_FN(q8, a, 1, 12)   \
    TILE_FN(q8, a, 2, 1) TILE_FN(q8, a, 2, 5) TILE_FN(q8, a, 2, 6)                                                \
    static tile_fn *const tiles_##q8##_##a[2][TILE + 1] = {                                                       \
        {0, tile_##q8##_##a##_1_1, 0, 0, 0, 0, 0, 0, 0, tile_##q8##_##a##_1_9, tile_##q8##_##a##_1_10,            \
         tile_##q8##_##a##_1_11, tile_##q8##_##a##_1_12},                                                         \
        {0, tile_##q8##_##a##_2_1, 0, 0, 0, tile_##q8##_##a##_2_5, tile_##q8##_##a##_2_6}};                       \
    PAIRS(q8, a)
/* clang-format on */

TILES(0, 32)
TILES(0, 64)
TILES(1, 32)
TILES(1, 64)

MANY(32, 64)

/* The number of rows, from r on, that a pair holds or that tiles divide evenly. */
static int tile_rows(int r0, int r, int r1, int limbs, bool zen4)
{
    if (r1 - r0 <= PAIR_ROWS / limbs) return r1 - r0;
    return ek_tile_rows(r1 - r, (zen4 ? PAIR_TILE : TILE) / limbs);
}

static void run(const ek_linear *w, const ek_acts *x, int r0, int r1, float *y, ptrdiff_t ldy, int p0, int p1,
                bool zen4, tile_fn *const (*by_limbs)[TILE + 1], pair_fn *const (*pairs)[PAIR_ROWS + 1],
                pair_fn *const (*by_tile)[PAIR_ROWS + 1])
{
    if (!zen4 && r1 - r0 >= MANY_MIN_ROWS) {
        many_run(w, x, r0, r1, y, ldy, p0, p1, unpack_q, many[w->form == EK_W_Q8][w->a_group == 64]);
        return;
    }
    const int rows = r1 - r0;
    if (zen4 && rows > PAIR_ROWS / w->limbs && rows <= MAX_IN_TURN && pair_is_usual(w, w->a_group)) {
        pair_run_tiles(w, x, r0, r1, PAIR_TILE / w->limbs, y, ldy, p0, p1, by_tile[w->limbs - 1]);
        return;
    }
    tile_fn *const *tiles = by_limbs[w->limbs - 1];
    for (int r = r0, n; r < r1; r += n) {
        n = tile_rows(r0, r, r1, w->limbs, zen4);
        const bool first = r == r0;
        if (n > 1 && (zen4 || !tiles[n])) {
            const ptrdiff_t ahead = !first ? 0 : zen4 ? PAIR_AHEAD_ZEN4 : PAIR_AHEAD;
            pair_run(w, x, r, y, ldy, p0, p1, ahead, pairs[w->limbs - 1][n], NULL);
            continue;
        }
        const bool ahead = first &&
                           (w->form == EK_W_Q4 || n > 1); /* for one row of Q8 the hardware prefetches better alone */
        for (int p = p0; p < p1; p++)
            tiles[n](w, x, r, y + p * EK_PANEL, ldy, w->data + (size_t)p * w->panel_bytes, outputs_of(w, p), ahead);
    }
}

INLINE void run_q4(const ek_linear *w, const ek_acts *x, int r0, int r1, float *y, ptrdiff_t ldy, int p0, int p1,
                   bool zen4)
{
    if (w->a_group == 32) run(w, x, r0, r1, y, ldy, p0, p1, zen4, tiles_0_32, pairs_0_32, turns_0_32);
    else run(w, x, r0, r1, y, ldy, p0, p1, zen4, tiles_0_64, pairs_0_64, turns_0_64);
}

INLINE void run_q8(const ek_linear *w, const ek_acts *x, int r0, int r1, float *y, ptrdiff_t ldy, int p0, int p1,
                   bool zen4)
{
    if (w->a_group == 32) run(w, x, r0, r1, y, ldy, p0, p1, zen4, tiles_1_32, pairs_1_32, turns_1_32);
    else run(w, x, r0, r1, y, ldy, p0, p1, zen4, tiles_1_64, pairs_1_64, turns_1_64);
}

void ek_linear_q4_avx512(const ek_linear *w, const ek_acts *x, int r0, int r1, float *y, ptrdiff_t ldy, int p0, int p1)
{
    run_q4(w, x, r0, r1, y, ldy, p0, p1, false);
}

void ek_linear_q8_avx512(const ek_linear *w, const ek_acts *x, int r0, int r1, float *y, ptrdiff_t ldy, int p0, int p1)
{
    run_q8(w, x, r0, r1, y, ldy, p0, p1, false);
}

void ek_linear_q4_avx512_zen4(const ek_linear *w, const ek_acts *x, int r0, int r1, float *y, ptrdiff_t ldy, int p0,
                              int p1)
{
    run_q4(w, x, r0, r1, y, ldy, p0, p1, true);
}

void ek_linear_q8_avx512_zen4(const ek_linear *w, const ek_acts *x, int r0, int r1, float *y, ptrdiff_t ldy, int p0,
                              int p1)
{
    run_q8(w, x, r0, r1, y, ldy, p0, p1, true);
}
