/* Form F on AVX2: outputs 0..7 and 8..15 of a panel are the lanes of two vectors, their chains
 * ascend in k. A tile is up to 6 rows; with few rows it takes several panels instead, so that
 * enough chains are in flight. */
#include "ops/x86/vec_avx2.h"
#include "ops/linear/x86/linear_tile.h"
#include "ops/x86/tree_vec.h"

enum { TILE = 6, PANELS = 4, CHAINS = 12 };

INLINE __m256 weights(const uint8_t *panel, ptrdiff_t k, int half, const ek_wform form)
{
    if (form == EK_W_F32) return _mm256_load_ps((const float *)panel + k * EK_PANEL + half * 8);
    __m128i eight = _mm_load_si128((const __m128i *)panel + 2 * k + half);
    if (form == EK_W_F16) return _mm256_cvtph_ps(eight);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(eight), 16));
}

INLINE void tile(const ek_linear *w, const ek_acts *x, int row, float *y, ptrdiff_t ldy, const uint8_t *panel, int last,
                 const int n, const int panels, const ek_wform form)
{
    const float *rows[TILE];
    UNROLL for (int r = 0; r < n; r++) rows[r] = x->x + ek_acts_row(x, row + r) * x->ldx;
    const ptrdiff_t depth = w->k;
    const size_t panel_bytes = w->panel_bytes;

    __m256 node[EK_LINEAR_LEVELS][CHAINS];
    unsigned leaves = 0;
    for (ptrdiff_t k = 0; k < depth; leaves++) {
        __m256 a[CHAINS]; /* [panel][row][half] */
        UNROLL for (int i = 0; i < n * panels * 2; i++) a[i] = _mm256_setzero_ps();
        for (ptrdiff_t end = k + EK_KBLOCK < depth ? k + EK_KBLOCK : depth; k < end; k++) {
            UNROLL for (int p = 0; p < panels; p++)
            {
                __m256 low = weights(panel + (size_t)p * panel_bytes, k, 0, form);
                __m256 high = weights(panel + (size_t)p * panel_bytes, k, 1, form);
                UNROLL for (int r = 0; r < n; r++)
                {
                    __m256 xk = _mm256_set1_ps(rows[r][k]), *to = a + (p * n + r) * 2;
                    to[0] = _mm256_fmadd_ps(xk, low, to[0]);
                    to[1] = _mm256_fmadd_ps(xk, high, to[1]);
                }
            }
        }
        v_tree_push(*node, CHAINS, leaves, a, n * panels * 2);
    }
    UNROLL for (int p = 0; p < panels; p++) UNROLL for (int r = 0; r < n; r++)
    {
        int i = (p * n + r) * 2;
        ek_store_outputs(y + (row + r) * ldy + p * EK_PANEL, p == panels - 1 ? last : EK_PANEL,
                         v_tree_sum(*node, CHAINS, leaves, i), v_tree_sum(*node, CHAINS, leaves, i + 1));
    }
}

typedef void tile_fn(const ek_linear *w, const ek_acts *x, int row, float *y, ptrdiff_t ldy, const uint8_t *panel,
                     int last);

/* clang-format never settles on a layout of these. */
/* clang-format off */
#define TILE_FN(form, n, p)                                                                                       \
    static __attribute__((noinline)) void tile_##form##_##n##_##p(const ek_linear *w, const ek_acts *x, int row,  \
                                                                  float *y, ptrdiff_t ldy, const uint8_t *panel, \
                                                                  int last)                                      \
    {                                                                                                            \
        tile(w, x, row, y, ldy, panel, last, n, p, EK_W_##form);                                                 \
    }
#define TILES(form)                                                                                         \
    TILE_FN(form, 1, 1) TILE_FN(form, 2, 1) TILE_FN(form, 3, 1) TILE_FN(form, 4, 1) TILE_FN(form, 5, 1)     \
    TILE_FN(form, 6, 1) TILE_FN(form, 1, 4)                                                                 \
    static tile_fn *const tiles_##form[TILE + 1] = {tile_##form##_1_4, tile_##form##_1_1, tile_##form##_2_1,\
        tile_##form##_3_1, tile_##form##_4_1, tile_##form##_5_1, tile_##form##_6_1};
/* clang-format on */

TILES(F32)
TILES(F16)
TILES(BF16)

/* tiles: by rows; 0 is one row by four panels. */
static void run(const ek_linear *w, const ek_acts *x, int r0, int r1, float *y, ptrdiff_t ldy, int p0, int p1,
                tile_fn *const *tiles)
{
    for (int p = p0, step; p < p1; p += step) {
        step = r1 - r0 == 1 && p1 - p >= PANELS ? PANELS : 1;
        int last = ek_min(EK_PANEL, w->n - (p + step - 1) * EK_PANEL);
        for (int r = r0, n; r < r1; r += n) {
            n = ek_tile_rows(r1 - r, TILE);
            tiles[step == 1 ? n : 0](w, x, r, y + p * EK_PANEL, ldy, w->data + (size_t)p * w->panel_bytes, last);
        }
    }
}

void ek_linear_f32_avx2(const ek_linear *w, const ek_acts *x, int r0, int r1, float *y, ptrdiff_t ldy, int p0, int p1)
{
    run(w, x, r0, r1, y, ldy, p0, p1, tiles_F32);
}

void ek_linear_f16_avx2(const ek_linear *w, const ek_acts *x, int r0, int r1, float *y, ptrdiff_t ldy, int p0, int p1)
{
    run(w, x, r0, r1, y, ldy, p0, p1, tiles_F16);
}

void ek_linear_bf16_avx2(const ek_linear *w, const ek_acts *x, int r0, int r1, float *y, ptrdiff_t ldy, int p0, int p1)
{
    run(w, x, r0, r1, y, ldy, p0, p1, tiles_BF16);
}
