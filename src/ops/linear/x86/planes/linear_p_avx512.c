/* Form PLANES on AVX-512 VNNI: linear_q_avx512.c's product over codes that are put together from planes of bits.
 *
 * A vector lane is one output of a panel. VPDPBUSD multiplies codes u (for a codebook c + 128, looked up by VPSHUFB) by
 * the row's signed bytes. A unit of 32 inputs is decoded once for up to 12 rows (6 with two limbs), with its scales:
 * they are the file's own, and cost two or three operations per group. */
#include "ops/inline.h"
#include "ops/linear/x86/linear_512.h"
#include "ops/linear/x86/linear_many_512.h"
#include "ops/linear/x86/planes/linear_p_unpack_512.h"
#include "ops/linear/x86/linear_tile.h"
#include "ops/x86/tree_vec.h"

enum { TILE = 12, TILE_2 = 6, SUMS = 12, AHEAD = 16384, NEAR = 2048 };

/* Prefetches a line; all lines of a unit at once would fill the buffers that loads need. */
INLINE void fetch_line(const uint8_t *at)
{
    fetch(at, AHEAD);
    _mm_prefetch((const char *)at + NEAR, _MM_HINT_T0);
}

/* With few sums the multiplier waits for itself, so sums are split into chains. */
INLINE int chains_of(const int sums)
{
    return sums == 1 ? 4 : sums <= 3 ? 2 : 1;
}

/* acc[limb * n + r] += codes * that limb of row r over the A-group from input k, quads [q, q + a_group / 4) of a unit.
 */
INLINE void dot(__m512i *acc, const uint8_t *unit, const int q, const int8_t *const *row, ptrdiff_t k, ptrdiff_t low,
                __m512i table, bool ahead, const int n, const int bits, const bool book, const int a_group,
                const int limbs)
{
    const int sums = n * limbs, chains = chains_of(sums);
    __m512i part[4][SUMS];
    UNROLL for (int i = 0; i < sums; i++) part[0][i] = acc[i];
    UNROLL for (int c = 1; c < chains; c++) UNROLL for (int i = 0; i < sums; i++) part[c][i] = _mm512_setzero_si512();
    UNROLL for (int t = 0; t < a_group / 4; t++)
    {
        if (ahead)
            UNROLL for (int line = (q + t) * bits / 8; line < (q + t + 1) * bits / 8; line++)
                fetch_line(unit + 64 * line);
        __m512i code = p_codes(unit, q + t, bits, book, table), *to = part[t % chains];
        UNROLL for (int i = 0; i < sums; i++)
            to[i] = _mm512_dpbusd_epi32(to[i], code, quad(row[i % n] + i / n * low + k + 4 * t));
    }
    UNROLL for (int i = 0; i < sums; i++) acc[i] = part[0][i];
    UNROLL for (int c = 1; c < chains; c++) UNROLL for (int i = 0; i < sums; i++)
        acc[i] = _mm512_add_epi32(acc[i], part[c][i]);
}

INLINE void tile(const ek_linear *w, const ek_acts *x, int row0, float *y, ptrdiff_t ldy, const uint8_t *block,
                 __mmask16 mask, bool ahead, const int n, const int bits, const bool book, const int a_group,
                 const int limbs)
{
    const int8_t *row[TILE];
    UNROLL for (int r = 0; r < n; r++) row[r] = ek_acts_record(x, row0 + r);
    const ptrdiff_t low = x->low;
    ptrdiff_t k = 0, at = x->groups[limbs - 1];
    const size_t scale_bytes = ek_planes_scale_bytes(w), block_bytes = ek_planes_block_bytes(w);
    const int size = w->block, per_unit = EK_UNIT / a_group;
    const ptrdiff_t unit_bytes = EK_UNIT * 2 * bits;
    const bool biased = w->biased;
    const __m512 zero = _mm512_set1_ps((float)w->zero);
    const __m512i table = p_table(w->book);
    const float *factors = (const float *)(const void *)(block + w->panel_bytes - EK_PANEL * sizeof(float));

    __m512 node[EK_LINEAR_LEVELS][TILE];
    unsigned leaves = 0;
    for (; k < w->k; leaves++) {
        __m512 a[TILE];
        UNROLL for (int r = 0; r < n; r++) a[r] = _mm512_setzero_ps();
        for (ptrdiff_t end = k + EK_KBLOCK_Q < w->k ? k + EK_KBLOCK_Q : w->k; k < end; block += block_bytes) {
            const uint8_t *unit = block + scale_bytes;
            const p_block scales = p_open(w->scale, w->biased, block, factors, 0);
            if (ahead)
                for (size_t i = 0; i < scale_bytes; i += 64) fetch_line(block + i);
            for (int g = 0; g < size / a_group; unit += unit_bytes) {
                UNROLL for (int part = 0; part < per_unit; part++)
                {
                    __m512i acc[SUMS];
                    __m512 s, centre;
                    p_scales(w->scale, w->biased, &scales, g++, 0, zero, &s, &centre);
                    UNROLL for (int r = 0; r < n; r++)
                    {
                        acc[r] = _mm512_setzero_si512();
                        acc[(limbs - 1) * n + r] = _mm512_set1_epi32(p_start(group_at(row[r], at)->start, bits, book));
                    }
                    dot(acc, unit, part * a_group / 4, row, k, low, table, ahead, n, bits, book, a_group, limbs);
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
        }
        v_tree_push(*node, TILE, leaves, a, n);
    }
    UNROLL for (int r = 0; r < n; r++)
        _mm512_mask_storeu_ps(y + (row0 + r) * ldy, mask, v_tree_sum(*node, TILE, leaves, r));
}

typedef void tile_fn(const ek_linear *w, const ek_acts *x, int row, float *y, ptrdiff_t ldy, const uint8_t *block,
                     __mmask16 mask, bool ahead);

/* Rows of the existing tiles, in both tables below. */
static const int8_t sizes[2][7] = {{12, 8, 6, 4, 3, 2, 1}, {6, 4, 3, 2, 1, 0, 0}};

/* clang-format never settles on a layout of these. */
/* clang-format off */
#define TILE_FN(b, k, a, l, n)                                                                                    \
    static __attribute__((noinline)) void tile_##b##_##k##_##a##_##l##_##n(                                       \
        const ek_linear *w, const ek_acts *x, int row, float *y, ptrdiff_t ldy, const uint8_t *block,             \
        __mmask16 mask, bool ahead)                                                                               \
    {                                                                                                             \
        tile(w, x, row, y, ldy, block, mask, ahead, n, b, k, a, l);                                               \
    }
#define TILES(b, k, a)                                                                                            \
    TILE_FN(b, k, a, 1, 1) TILE_FN(b, k, a, 1, 2) TILE_FN(b, k, a, 1, 3) TILE_FN(b, k, a, 1, 4)                   \
    TILE_FN(b, k, a, 1, 6) TILE_FN(b, k, a, 1, 8) TILE_FN(b, k, a, 1, 12)                                         \
    TILE_FN(b, k, a, 2, 1) TILE_FN(b, k, a, 2, 2) TILE_FN(b, k, a, 2, 3) TILE_FN(b, k, a, 2, 4)                   \
    TILE_FN(b, k, a, 2, 6)                                                                                        \
    static tile_fn *const tiles_##b##_##k##_##a[2][7] = {                                                         \
        {tile_##b##_##k##_##a##_1_12, tile_##b##_##k##_##a##_1_8, tile_##b##_##k##_##a##_1_6,                     \
         tile_##b##_##k##_##a##_1_4, tile_##b##_##k##_##a##_1_3, tile_##b##_##k##_##a##_1_2,                      \
         tile_##b##_##k##_##a##_1_1},                                                                             \
        {tile_##b##_##k##_##a##_2_6, tile_##b##_##k##_##a##_2_4, tile_##b##_##k##_##a##_2_3,                      \
         tile_##b##_##k##_##a##_2_2, tile_##b##_##k##_##a##_2_1}};
/* clang-format on */

TILES(2, 0, 16)
TILES(3, 0, 16)
TILES(6, 0, 16)
TILES(4, 1, 16)
TILES(4, 0, 32)
TILES(5, 0, 32)
TILES(8, 0, 32)
TILES(4, 1, 32)

static tile_fn *const (*tiles_of(const ek_linear *w))[7]
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

MANY(16, 32)

static void run_few(const ek_linear *w, const ek_acts *x, int r0, int r1, float *y, ptrdiff_t ldy, int p0, int p1)
{
    tile_fn *const *tiles = tiles_of(w)[w->limbs - 1];
    const int8_t *rows = sizes[w->limbs - 1];
    /* single rows that the hardware does not prefetch better alone */
    const bool one_too = !w->book && w->bits < 8 && (w->limbs == 2 || !w->biased);
    for (int r = r0, i = 0; r < r1; r += rows[i]) {
        while (rows[i] > r1 - r) i++;
        for (int p = p0; p < p1; p++) {
            tiles[i](w, x, r, y + p * EK_PANEL, ldy, w->data + (size_t)p * w->panel_bytes, outputs_of(w, p),
                     r == r0 && (rows[i] > 1 || one_too));
        }
    }
}

void ek_linear_planes_avx512(const ek_linear *w, const ek_acts *x, int r0, int r1, float *y, ptrdiff_t ldy, int p0,
                             int p1)
{
    if (r1 - r0 < MANY_MIN_ROWS) run_few(w, x, r0, r1, y, ldy, p0, p1);
    else many_run(w, x, r0, r1, y, ldy, p0, p1, unpack_of(w), many[is_wide(w)][w->a_group == 32]);
}

/* Where putting codes together for every 12 rows (6 of two limbs) runs beside the products, many rows too read them
 * packed. Codebooks, and all but 4 bits of two limbs, were slower or not measured so. */
void ek_linear_planes_avx512_zen4_panels(const ek_linear *w, const ek_acts *x, int r0, int r1, float *y, ptrdiff_t ldy,
                                         int p0, int p1)
{
    if (!w->book && (w->limbs == 1 || w->bits == 4)) run_few(w, x, r0, r1, y, ldy, p0, p1);
    else ek_linear_planes_avx512(w, x, r0, r1, y, ldy, p0, p1);
}
