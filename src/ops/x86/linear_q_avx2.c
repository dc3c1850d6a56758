/* Form Q on AVX2: a 4-byte lane is one output of half a panel (8 outputs).
 *
 * Q4: PMADDUBSW multiplies unsigned codes up to 15 by the row's bytes; eight of its sums fit
 * into 16 bits (8 * 2 * 15 * 127 = 30480) before PMADDWD widens them. The sum starts at -8 X.
 * Q8: the centred code's sign is moved to the row's byte, so |c| <= 128 is the unsigned
 * operand and a pair stays below 2 * 128 * 127 = 32512; widened at once.
 * Two limbs: Q4 sums the high limbs, shifts, and goes on with the low ones (-128 fits as well:
 * 8 * 2 * 15 * 128 = 30720). Q8 multiplies 16-bit codes by PMADDWD, even k and odd k apart. */
#include <string.h>

#include "ops/x86/vec_avx2.h"
#include "ops/x86/linear_tile.h"
#include "ops/x86/linear_x86.h"
#include "ops/x86/tree_vec.h"

enum { TILE = 4, HALF = 8, CHUNK = 256 /* inputs whose codes stay in the first cache for the second half */ };

INLINE __m256i quad(const int8_t *q)
{
    int32_t four;
    memcpy(&four, q, sizeof four);
    return _mm256_set1_epi32(four);
}

/* k: where the limbs of the A-group lie in a record. */
INLINE void dot_q4(__m256i *acc, const uint8_t *codes, const int8_t *const *row, ptrdiff_t k, const int n,
                   const int a_group)
{
    const __m256i low = _mm256_set1_epi8(15), ones = _mm256_set1_epi16(1);
    for (int v0 = 0; v0 < a_group / 8; v0 += 4) {
        __m256i pairs[TILE];
        UNROLL for (int r = 0; r < n; r++) pairs[r] = _mm256_setzero_si256();
        UNROLL for (int v = v0; v < v0 + 4; v++)
        {
            __m256i both = _mm256_load_si256((const __m256i *)(codes + 64 * v));
            __m256i even = _mm256_and_si256(both, low), odd = _mm256_and_si256(_mm256_srli_epi16(both, 4), low);
            UNROLL for (int r = 0; r < n; r++)
            {
                const int8_t *q = row[r] + k + 8 * v;
                pairs[r] = _mm256_add_epi16(pairs[r], _mm256_maddubs_epi16(even, quad(q)));
                pairs[r] = _mm256_add_epi16(pairs[r], _mm256_maddubs_epi16(odd, quad(q + 4)));
            }
        }
        UNROLL for (int r = 0; r < n; r++) acc[r] = _mm256_add_epi32(acc[r], _mm256_madd_epi16(pairs[r], ones));
    }
}

INLINE void dot_q8(__m256i *acc, const uint8_t *codes, const int8_t *const *row, ptrdiff_t k, const int n,
                   const int a_group)
{
    const __m256i flip = _mm256_set1_epi8(-128), ones = _mm256_set1_epi16(1);
    for (int v = 0; v < a_group / 4; v++) {
        __m256i c = _mm256_xor_si256(_mm256_load_si256((const __m256i *)(codes + 64 * v)), flip);
        __m256i size = _mm256_abs_epi8(c);
        UNROLL for (int r = 0; r < n; r++)
        {
            __m256i pairs = _mm256_maddubs_epi16(size, _mm256_sign_epi8(quad(row[r] + k + 4 * v), c));
            acc[r] = _mm256_add_epi32(acc[r], _mm256_madd_epi16(pairs, ones));
        }
    }
}

/* A chunk of a row as 16-bit codes: the 4-byte lane of quad t holds k = 4 t and 4 t + 2 in even,
 * 4 t + 1 and 4 t + 3 in odd. */
typedef struct wide_row {
    _Alignas(32) int32_t even[CHUNK / 4], odd[CHUNK / 4];
} wide_row;

INLINE void widen(wide_row *to, const int8_t *h, const int8_t *l, int n)
{
    for (int k = 0; k < n; k += 32) {
        __m256i high = _mm256_loadu_si256((const __m256i *)(h + k));
        __m256i low = _mm256_loadu_si256((const __m256i *)(l + k));
        __m256i even = _mm256_add_epi16(_mm256_slli_epi16(high, 8), _mm256_srai_epi16(_mm256_slli_epi16(low, 8), 8));
        __m256i odd = _mm256_add_epi16(_mm256_slli_epi16(_mm256_srai_epi16(high, 8), 8), _mm256_srai_epi16(low, 8));
        _mm256_store_si256((__m256i *)(to->even + k / 4), even);
        _mm256_store_si256((__m256i *)(to->odd + k / 4), odd);
    }
}

/* quad0: the A-group's first quad in the chunk. */
INLINE void dot_q8_wide(__m256i *acc, const uint8_t *codes, const wide_row *wide, int quad0, const int n,
                        const int a_group)
{
    const __m256i flip = _mm256_set1_epi8(-128);
    for (int v = 0; v < a_group / 4; v++) {
        __m256i c = _mm256_xor_si256(_mm256_load_si256((const __m256i *)(codes + 64 * v)), flip);
        __m256i even = _mm256_srai_epi16(_mm256_slli_epi16(c, 8), 8), odd = _mm256_srai_epi16(c, 8);
        UNROLL for (int r = 0; r < n; r++)
        {
            __m256i pairs = _mm256_madd_epi16(even, _mm256_set1_epi32(wide[r].even[quad0 + v]));
            acc[r] = _mm256_add_epi32(acc[r], pairs);
            pairs = _mm256_madd_epi16(odd, _mm256_set1_epi32(wide[r].odd[quad0 + v]));
            acc[r] = _mm256_add_epi32(acc[r], pairs);
        }
    }
}

INLINE __m256 scales(const uint8_t *at, ek_dtype t, int i) /* i counts half panels */
{
    if (t == EK_F32) return _mm256_load_ps((const float *)at + i * HALF);
    __m128i eight = _mm_load_si128((const __m128i *)at + i);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(eight), 16));
}

/* Adds one group of half `h` to sum; part0 is its first A-group, quad0 its first quad in the chunk. */
INLINE void group(__m256 *sum, const ek_linear *w, const uint8_t *codes, const ek_acts *x, const int8_t *const *row,
                  const wide_row *wide, ptrdiff_t part0, int quad0, const int h, const int n, const bool q8,
                  const int a_group, const int limbs)
{
    const uint8_t *at = codes + ek_linear_code_bytes(w);
    const ptrdiff_t low = x->low, groups = x->groups[limbs - 1];
    __m256 s = scales(at, w->scale_dtype, h), centre = s;
    if (w->biased) centre = _mm256_fmadd_ps(_mm256_set1_ps((float)w->zero), s, scales(at, w->scale_dtype, 2 + h));
    codes += 32 * h;
    for (ptrdiff_t a = part0; a < part0 + w->group / a_group; a++, quad0 += a_group / 4) {
        const ek_act_group *of[TILE];
        __m256i acc[TILE];
        UNROLL for (int r = 0; r < n; r++) of[r] = (const ek_act_group *)(const void *)(row[r] + groups) + a;
        UNROLL for (int r = 0; r < n; r++) acc[r] = _mm256_setzero_si256();
        if (q8 && limbs == 1) dot_q8(acc, codes, row, a * a_group, n, a_group);
        if (q8 && limbs == 2) dot_q8_wide(acc, codes, wide, quad0, n, a_group);
        if (!q8) {
            if (limbs == 2) {
                dot_q4(acc, codes, row, a * a_group, n, a_group);
                UNROLL for (int r = 0; r < n; r++) acc[r] = _mm256_slli_epi32(acc[r], 8);
            }
            UNROLL for (int r = 0; r < n; r++) acc[r] = _mm256_add_epi32(acc[r], _mm256_set1_epi32(of[r]->start));
            dot_q4(acc, codes, row, a * a_group + (limbs == 2 ? low : 0), n, a_group);
        }
        UNROLL for (int r = 0; r < n; r++)
        {
            __m256 t = _mm256_mul_ps(s, _mm256_cvtepi32_ps(acc[r]));
            if (w->biased) t = _mm256_fmadd_ps(centre, _mm256_set1_ps(of[r]->sum), t);
            sum[r] = _mm256_fmadd_ps(t, _mm256_set1_ps(of[r]->sx), sum[r]);
        }
        codes += a_group * (q8 ? 16 : 8);
    }
}

INLINE void tile(const ek_linear *w, const ek_acts *x, int row0, float *y, ptrdiff_t ldy, const uint8_t *panel,
                 int last, const int n, const bool q8, const int a_group, const int limbs)
{
    const int8_t *row[TILE];
    wide_row wide[TILE];
    UNROLL for (int r = 0; r < n; r++) row[r] = ek_acts_record(x, row0 + r);
    const int groups = w->k / w->group, block = EK_KBLOCK_Q / w->group, chunk = CHUNK / w->group;
    const int parts = w->group / a_group;
    const size_t group_bytes = ek_linear_group_bytes(w);

    __m256 node[2][EK_LINEAR_LEVELS][TILE];
    unsigned leaves = 0;
    for (int g0 = 0; g0 < groups; leaves++) {
        __m256 leaf[2][TILE];
        UNROLL for (int r = 0; r < n; r++) leaf[0][r] = leaf[1][r] = _mm256_setzero_ps();
        for (int end = ek_min(g0 + block, groups), g1; g0 < end; g0 = g1) {
            g1 = ek_min(g0 + chunk, end);
            if (q8 && limbs == 2) UNROLL for (int r = 0; r < n; r++)
                {
                    const int8_t *high = row[r] + (ptrdiff_t)g0 * w->group;
                    widen(&wide[r], high, high + x->low, (g1 - g0) * w->group);
                }
            for (int h = 0; h < 2; h++) {
                __m256 sum[TILE];
                UNROLL for (int r = 0; r < n; r++) sum[r] = leaf[h][r];
                for (ptrdiff_t g = g0; g < g1; g++)
                    group(sum, w, panel + (size_t)g * group_bytes, x, row, wide, g * parts,
                          (int)(g - g0) * w->group / 4, h, n, q8, a_group, limbs);
                UNROLL for (int r = 0; r < n; r++) leaf[h][r] = sum[r];
            }
        }
        for (int h = 0; h < 2; h++) v_tree_push(*node[h], TILE, leaves, leaf[h], n);
    }
    UNROLL for (int r = 0; r < n; r++) ek_store_outputs(
        y + (row0 + r) * ldy, last, v_tree_sum(*node[0], TILE, leaves, r), v_tree_sum(*node[1], TILE, leaves, r));
}

typedef void tile_fn(const ek_linear *w, const ek_acts *x, int row, float *y, ptrdiff_t ldy, const uint8_t *panel,
                     int last);

/* Its layout never settles on these. */
/* clang-format off */
#define TILE_FN(q8, a, l, n)                                                                           \
    static __attribute__((noinline)) void tile_##q8##_##a##_##l##_##n(                                 \
        const ek_linear *w, const ek_acts *x, int row, float *y, ptrdiff_t ldy, const uint8_t *panel,  \
        int last)                                                                                      \
    {                                                                                                  \
        tile(w, x, row, y, ldy, panel, last, n, q8, a, l);                                             \
    }
#define TILES(q8, a)                                                                                   \
    TILE_FN(q8, a, 1, 1) TILE_FN(q8, a, 1, 2) TILE_FN(q8, a, 1, 3) TILE_FN(q8, a, 1, 4)                \
    TILE_FN(q8, a, 2, 1) TILE_FN(q8, a, 2, 2) TILE_FN(q8, a, 2, 3) TILE_FN(q8, a, 2, 4)                \
    static tile_fn *const tiles_##q8##_##a[2][TILE] = {                                                \
        {tile_##q8##_##a##_1_1, tile_##q8##_##a##_1_2, tile_##q8##_##a##_1_3, tile_##q8##_##a##_1_4},  \
        {tile_##q8##_##a##_2_1, tile_##q8##_##a##_2_2, tile_##q8##_##a##_2_3, tile_##q8##_##a##_2_4}};
/* clang-format on */

TILES(0, 32)
TILES(0, 64)
TILES(1, 32)
TILES(1, 64)

static void run(const ek_linear *w, const ek_acts *x, int r0, int r1, float *y, ptrdiff_t ldy, int p0, int p1,
                tile_fn *const (*tiles)[TILE])
{
    for (int p = p0; p < p1; p++)
        for (int r = r0, n; r < r1; r += n) {
            n = ek_tile_rows(r1 - r, TILE);
            tiles[w->limbs - 1][n - 1](w, x, r, y + p * EK_PANEL, ldy, w->data + (size_t)p * w->panel_bytes,
                                       ek_min(EK_PANEL, w->n - p * EK_PANEL));
        }
}

void ek_linear_q4_avx2(const ek_linear *w, const ek_acts *x, int r0, int r1, float *y, ptrdiff_t ldy, int p0, int p1)
{
    run(w, x, r0, r1, y, ldy, p0, p1, w->a_group == 32 ? tiles_0_32 : tiles_0_64);
}

void ek_linear_q8_avx2(const ek_linear *w, const ek_acts *x, int r0, int r1, float *y, ptrdiff_t ldy, int p0, int p1)
{
    run(w, x, r0, r1, y, ldy, p0, p1, w->a_group == 32 ? tiles_1_32 : tiles_1_64);
}
