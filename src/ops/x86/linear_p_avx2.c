/* Form PLANES on AVX2: a 4-byte lane is one output of half a panel (8 outputs); a tile takes both halves.
 *
 * PMADDUBSW multiplies codes u by the row's bytes; its sums stay in 16 bits for as many quads as fit beside limbs down
 * to -128, then PMADDWD widens them: 2, 3, 4 bits   8 sums:  8 * 2 * 15 * 128 = 30720 5 bits         4 sums:  4 * 2 *
 * 31 * 128 = 31744 6 bits         2 sums:  2 * 2 * 63 * 128 = 32256 8 bits, and codebooks (as c + 128): low and high
 * half are multiplied each for itself, as 4 bits The sum starts at minus the codes' offset times X. Of two limbs the
 * high one is summed first, shifted, and the low one added. */
#include <string.h>

#include "ops/x86/vec_avx2.h"
#include "ops/x86/linear_tile.h"
#include "ops/x86/linear_x86.h"
#include "ops/x86/planes_vec.h"
#include "ops/x86/tree_vec.h"

enum { TILE = 4, HALF = 8 };

INLINE __m256i quad(const int8_t *q)
{
    int32_t four;
    memcpy(&four, q, sizeof four);
    return _mm256_set1_epi32(four);
}

/* The halves of a codebook's values + 128, by index. */
typedef struct tables {
    __m256i low, high;
} tables;

INLINE tables tables_of(const int8_t *book)
{
    const __m256i all = p_table(book), low = _mm256_set1_epi8(15);
    return (tables){_mm256_and_si256(all, low), _mm256_and_si256(_mm256_srli_epi16(all, 4), low)};
}

/* acc[h][r] += codes of half panel h * the limb of row r at k, over quads [q, q + a_group / 4) of a unit. A broadcast
 * of four activation bytes serves both halves. */
INLINE void dot(__m256i acc[2][TILE], const uint8_t *unit, const int q, const int8_t *const *row, ptrdiff_t k,
                const tables *table, const int n, const int bits, const bool book, const int a_group)
{
    const bool halves = book || bits == 8;
    const int quads = a_group / 4, sums = bits == 6 ? 2 : bits == 5 ? 4 : 8, fit = sums < quads ? sums : quads;
    const __m256i low = _mm256_set1_epi8(15), ones = _mm256_set1_epi16(1);
    UNROLL for (int t0 = 0; t0 < quads; t0 += fit)
    {
        __m256i pairs[2][2][TILE];
        UNROLL for (int h = 0; h < 2; h++) UNROLL for (int r = 0; r < n; r++)
            pairs[h][0][r] = pairs[h][1][r] = _mm256_setzero_si256();
        UNROLL for (int t = t0; t < t0 + fit; t++)
        {
            __m256i code[2], top[2];
            UNROLL for (int h = 0; h < 2; h++)
            {
                code[h] = top[h] = p_codes(unit + 32 * h, q + t, bits, false, low);
                if (book) {
                    top[h] = _mm256_shuffle_epi8(table->high, code[h]);
                    code[h] = _mm256_shuffle_epi8(table->low, code[h]);
                } else if (halves) {
                    top[h] = _mm256_and_si256(_mm256_srli_epi16(code[h], 4), low);
                    code[h] = _mm256_and_si256(code[h], low);
                }
            }
            UNROLL for (int r = 0; r < n; r++)
            {
                const __m256i x = quad(row[r] + k + 4 * t);
                UNROLL for (int h = 0; h < 2; h++)
                {
                    pairs[h][0][r] = _mm256_add_epi16(pairs[h][0][r], _mm256_maddubs_epi16(code[h], x));
                    if (halves) pairs[h][1][r] = _mm256_add_epi16(pairs[h][1][r], _mm256_maddubs_epi16(top[h], x));
                }
            }
        }
        UNROLL for (int h = 0; h < 2; h++) UNROLL for (int r = 0; r < n; r++)
        {
            acc[h][r] = _mm256_add_epi32(acc[h][r], _mm256_madd_epi16(pairs[h][0][r], ones));
            if (halves)
                acc[h][r] = _mm256_add_epi32(acc[h][r], _mm256_slli_epi32(_mm256_madd_epi16(pairs[h][1][r], ones), 4));
        }
    }
}

INLINE void tile(const ek_linear *w, const ek_acts *x, int row0, float *y, ptrdiff_t ldy, const uint8_t *block,
                 int last, const int n, const int bits, const bool book, const int a_group, const int limbs)
{
    const int8_t *row[TILE];
    UNROLL for (int r = 0; r < n; r++) row[r] = ek_acts_record(x, row0 + r);
    const ptrdiff_t low = x->low;
    ptrdiff_t k = 0, at = x->groups[limbs - 1];
    const tables table = tables_of(w->book);
    const size_t scale_bytes = ek_planes_scale_bytes(w), block_bytes = ek_planes_block_bytes(w);
    const int size = w->block, per_unit = EK_UNIT / a_group;
    const bool biased = w->biased;
    const __m256 zero = _mm256_set1_ps((float)w->zero);
    const float *factors = (const float *)(const void *)(block + w->panel_bytes - EK_PANEL * sizeof(float));

    __m256 node[2][EK_LINEAR_LEVELS][TILE];
    unsigned leaves = 0;
    for (; k < w->k; leaves++) {
        __m256 sum[2][TILE];
        UNROLL for (int r = 0; r < n; r++) sum[0][r] = sum[1][r] = _mm256_setzero_ps();
        for (ptrdiff_t end = k + EK_KBLOCK_Q < w->k ? k + EK_KBLOCK_Q : w->k; k < end; block += block_bytes) {
            const p_block scales[2] = {p_open(w, block, factors, 0), p_open(w, block, factors, HALF)};
            const uint8_t *unit = block + scale_bytes;
            for (int g = 0; g < size / a_group; unit += EK_UNIT * 2 * bits)
                UNROLL for (int part = 0; part < per_unit; part++, g++)
                {
                    const int q = part * a_group / 4;
                    __m256i acc[2][TILE];
                    UNROLL for (int r = 0; r < n; r++) acc[0][r] = acc[1][r] = _mm256_setzero_si256();
                    if (limbs == 2) {
                        dot(acc, unit, q, row, k, &table, n, bits, book, a_group);
                        UNROLL for (int h = 0; h < 2; h++) UNROLL for (int r = 0; r < n; r++)
                            acc[h][r] = _mm256_slli_epi32(acc[h][r], 8);
                    }
                    dot(acc, unit, q, row, k + (limbs == 2 ? low : 0), &table, n, bits, book, a_group);
                    UNROLL for (int h = 0; h < 2; h++)
                    {
                        __m256 s, centre;
                        p_scales(w, &scales[h], g, h * HALF, zero, &s, &centre);
                        UNROLL for (int r = 0; r < n; r++)
                        {
                            const ek_act_group *of = (const ek_act_group *)(const void *)(row[r] + at);
                            __m256i i = _mm256_add_epi32(acc[h][r], _mm256_set1_epi32(p_start(of->start, bits, book)));
                            __m256 t = _mm256_mul_ps(s, _mm256_cvtepi32_ps(i));
                            if (biased) t = _mm256_fmadd_ps(centre, _mm256_set1_ps(of->sum), t);
                            sum[h][r] = _mm256_fmadd_ps(t, _mm256_set1_ps(of->sx), sum[h][r]);
                        }
                    }
                    k += a_group, at += (ptrdiff_t)sizeof(ek_act_group);
                }
        }
        for (int h = 0; h < 2; h++) v_tree_push(*node[h], TILE, leaves, sum[h], n);
    }
    UNROLL for (int r = 0; r < n; r++) ek_store_outputs(
        y + (row0 + r) * ldy, last, v_tree_sum(*node[0], TILE, leaves, r), v_tree_sum(*node[1], TILE, leaves, r));
}

typedef void tile_fn(const ek_linear *w, const ek_acts *x, int row, float *y, ptrdiff_t ldy, const uint8_t *panel,
                     int last);

/* Its layout never settles on these. */
/* clang-format off */
#define TILE_FN(b, k, a, l, n)                                                                         \
    static __attribute__((noinline)) void tile_##b##_##k##_##a##_##l##_##n(                            \
        const ek_linear *w, const ek_acts *x, int row, float *y, ptrdiff_t ldy, const uint8_t *panel,  \
        int last)                                                                                      \
    {                                                                                                  \
        tile(w, x, row, y, ldy, panel, last, n, b, k, a, l);                                           \
    }
#define TILES(b, k, a)                                                                                 \
    TILE_FN(b, k, a, 1, 1) TILE_FN(b, k, a, 1, 2) TILE_FN(b, k, a, 1, 3) TILE_FN(b, k, a, 1, 4)        \
    TILE_FN(b, k, a, 2, 1) TILE_FN(b, k, a, 2, 2) TILE_FN(b, k, a, 2, 3) TILE_FN(b, k, a, 2, 4)        \
    static tile_fn *const tiles_##b##_##k##_##a[2][TILE] = {                                           \
        {tile_##b##_##k##_##a##_1_1, tile_##b##_##k##_##a##_1_2, tile_##b##_##k##_##a##_1_3,           \
         tile_##b##_##k##_##a##_1_4},                                                                  \
        {tile_##b##_##k##_##a##_2_1, tile_##b##_##k##_##a##_2_2, tile_##b##_##k##_##a##_2_3,           \
         tile_##b##_##k##_##a##_2_4}};
/* clang-format on */

TILES(2, 0, 16)
TILES(3, 0, 16)
TILES(6, 0, 16)
TILES(4, 1, 16)
TILES(4, 0, 32)
TILES(5, 0, 32)
TILES(8, 0, 32)
TILES(4, 1, 32)

static tile_fn *const (*tiles_of(const ek_linear *w))[TILE]
{
    if (w->book) return w->a_group == 16 ? tiles_4_1_16 : tiles_4_1_32;
    switch (w->bits) {
    case 2: return tiles_2_0_16;
    case 3: return tiles_3_0_16;
    case 4: return tiles_4_0_32;
    case 5: return tiles_5_0_32;
    case 6: return tiles_6_0_16;
    default: return tiles_8_0_32;
    }
}

void ek_linear_planes_avx2(const ek_linear *w, const ek_acts *x, int r0, int r1, float *y, ptrdiff_t ldy, int p0,
                           int p1)
{
    tile_fn *const *tiles = tiles_of(w)[w->limbs - 1];
    for (int p = p0; p < p1; p++)
        for (int r = r0, n; r < r1; r += n) {
            n = ek_tile_rows(r1 - r, TILE);
            tiles[n - 1](w, x, r, y + p * EK_PANEL, ldy, w->data + (size_t)p * w->panel_bytes,
                         ek_min(EK_PANEL, w->n - p * EK_PANEL));
        }
}
