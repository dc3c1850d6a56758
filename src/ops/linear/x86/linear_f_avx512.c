/* Form F on AVX-512: a vector lane is one output of a panel, its chain of fused multiply-adds
 * ascends in k. A tile is a few panels by up to 8 rows, so that enough independent chains are
 * in flight to hide the latency of one. */
#include "ops/x86/vec_avx512.h"
#include "ops/linear/x86/linear_tile.h"
#include "ops/x86/tree_vec.h"

enum { TILE = 8, PANELS = 4, CHAINS = 16 };

/* Elements 0..15 of step k of a panel, widened exactly. */
INLINE __m512 weights(const uint8_t *panel, ptrdiff_t k, const ek_wform form)
{
    if (form == EK_W_F32) return _mm512_load_ps((const float *)panel + k * EK_PANEL);
    __m256i half = _mm256_load_si256((const __m256i *)panel + k);
    if (form == EK_W_F16) return _mm512_cvtph_ps(half);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

INLINE void tile(const ek_linear *w, const ek_acts *x, int row, float *y, ptrdiff_t ldy, const uint8_t *panel,
                 __mmask16 last, const int n, const int panels, const ek_wform form)
{
    const float *rows[TILE];
    UNROLL for (int r = 0; r < n; r++) rows[r] = x->x + ek_acts_row(x, row + r) * x->ldx;
    const ptrdiff_t depth = w->k;
    const size_t panel_bytes = w->panel_bytes;

    __m512 node[EK_LINEAR_LEVELS][CHAINS];
    unsigned leaves = 0;
    for (ptrdiff_t k = 0; k < depth; leaves++) {
        __m512 a[CHAINS]; /* [panel][row] */
        UNROLL for (int i = 0; i < n * panels; i++) a[i] = _mm512_setzero_ps();
        for (ptrdiff_t end = k + EK_KBLOCK < depth ? k + EK_KBLOCK : depth; k < end; k++) {
            __m512 wk[PANELS];
            UNROLL for (int p = 0; p < panels; p++) wk[p] = weights(panel + (size_t)p * panel_bytes, k, form);
            UNROLL for (int r = 0; r < n; r++)
            {
                __m512 xk = _mm512_set1_ps(rows[r][k]);
                UNROLL for (int p = 0; p < panels; p++) a[p * n + r] = _mm512_fmadd_ps(xk, wk[p], a[p * n + r]);
            }
        }
        v_tree_push(*node, CHAINS, leaves, a, n * panels);
    }
    UNROLL for (int p = 0; p < panels; p++) UNROLL for (int r = 0; r < n; r++)
        _mm512_mask_storeu_ps(y + (row + r) * ldy + p * EK_PANEL, p == panels - 1 ? last : 0xffff,
                              v_tree_sum(*node, CHAINS, leaves, p * n + r));
}

typedef void tile_fn(const ek_linear *w, const ek_acts *x, int row, float *y, ptrdiff_t ldy, const uint8_t *panel,
                     __mmask16 last);

/* clang-format never settles on a layout of these. */
/* clang-format off */
#define TILE_FN(form, n, p)                                                                                        \
    static __attribute__((noinline)) void tile_##form##_##n##_##p(const ek_linear *w, const ek_acts *x, int row,   \
                                                                  float *y, ptrdiff_t ldy, const uint8_t *panel,  \
                                                                  __mmask16 last)                                 \
    {                                                                                                             \
        tile(w, x, row, y, ldy, panel, last, n, p, EK_W_##form);                                                  \
    }
#define TILES(form)                                                                                              \
    TILE_FN(form, 1, 1) TILE_FN(form, 2, 1) TILE_FN(form, 3, 1) TILE_FN(form, 4, 1) TILE_FN(form, 5, 1)          \
    TILE_FN(form, 6, 1) TILE_FN(form, 7, 1) TILE_FN(form, 8, 1) TILE_FN(form, 4, 2) TILE_FN(form, 5, 2)          \
    TILE_FN(form, 6, 2) TILE_FN(form, 7, 2) TILE_FN(form, 8, 2) TILE_FN(form, 1, 4) TILE_FN(form, 2, 4)          \
    TILE_FN(form, 3, 4)                                                                                          \
    static const tile_set tiles_##form = {                                                                       \
        {NULL, tile_##form##_1_1, tile_##form##_2_1, tile_##form##_3_1, tile_##form##_4_1, tile_##form##_5_1,    \
         tile_##form##_6_1, tile_##form##_7_1, tile_##form##_8_1},                                               \
        {NULL, tile_##form##_1_4, tile_##form##_2_4, tile_##form##_3_4, tile_##form##_4_2, tile_##form##_5_2,    \
         tile_##form##_6_2, tile_##form##_7_2, tile_##form##_8_2}};
/* clang-format on */

typedef struct tile_set {
    tile_fn *one[TILE + 1], *wide[TILE + 1]; /* by rows; wide: 4 panels up to 3 rows, then 2 */
} tile_set;

TILES(F32)
TILES(F16)
TILES(BF16)

static void run(const ek_linear *w, const ek_acts *x, int r0, int r1, float *y, ptrdiff_t ldy, int p0, int p1,
                const tile_set *tiles)
{
    const int wide = r1 - r0 <= 3 ? PANELS : 2; /* more than 3 rows: no tile has fewer than 4 */
    for (int p = p0, step; p < p1; p += step) {
        step = p1 - p >= wide ? wide : 1;
        int left = w->n - (p + step - 1) * EK_PANEL;
        __mmask16 last = (__mmask16)(left >= EK_PANEL ? 0xffff : (1 << left) - 1);
        for (int r = r0, n; r < r1; r += n) {
            n = ek_tile_rows(r1 - r, TILE);
            (step == 1 ? tiles->one : tiles->wide)[n](w, x, r, y + p * EK_PANEL, ldy,
                                                      w->data + (size_t)p * w->panel_bytes, last);
        }
    }
}

void ek_linear_f32_avx512(const ek_linear *w, const ek_acts *x, int r0, int r1, float *y, ptrdiff_t ldy, int p0, int p1)
{
    run(w, x, r0, r1, y, ldy, p0, p1, &tiles_F32);
}

void ek_linear_f16_avx512(const ek_linear *w, const ek_acts *x, int r0, int r1, float *y, ptrdiff_t ldy, int p0, int p1)
{
    run(w, x, r0, r1, y, ldy, p0, p1, &tiles_F16);
}

void ek_linear_bf16_avx512(const ek_linear *w, const ek_acts *x, int r0, int r1, float *y, ptrdiff_t ldy, int p0,
                           int p1)
{
    run(w, x, r0, r1, y, ldy, p0, p1, &tiles_BF16);
}
