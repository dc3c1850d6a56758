/* Form B of linear layers (ops/linear/linear_b.h) by VDPBF16PS.
 *
 * A tile is one panel by up to 8 rows, several groups of inputs at once: their sums are independent,
 * which hides the instruction's latency, and a panel stays one stream from memory. Pairs of a row lie
 * as dwords in the order of use and are broadcast from memory. */
#include "ops/x86/vec_avx512.h"

#include "ops/convert.h"
#include "ops/x86/vec_bf16.h"
#include "ops/linear/x86/bf16/linear_b_tile.h"

enum { GROUPS = 4, FETCH = 4608 };

/* ------------------------------------------------------------------ rows */

static void row_b(void *to, float *sum, const float *from, int k, int group)
{
    uint16_t *h = to;
    const vi ones = _mm512_set1_epi16(0x3f80);
    ek_narrow_bf16(to, from, k);
    for (int g = 0; g < k / group; g++) {
        vf lane = v_zero();
        for (int i = 0; i < group; i += 32, h += 32) {
            vi x = _mm512_loadu_si512(h);
            lane = dp(lane, x, ones);
            x = _mm512_shufflehi_epi16(_mm512_shufflelo_epi16(x, _MM_SHUFFLE(3, 1, 2, 0)), _MM_SHUFFLE(3, 1, 2, 0));
            _mm512_storeu_si512(h, x);
        }
        sum[g] = v_add_lanes(&lane);
    }
}

/* ------------------------------------------------------------------ codes */

/* Pairs of centred codes in the low nibbles of words: a permutation of words reads 5 bits of each. */
INLINE vi nibble_table(void)
{
    static const uint16_t c[16] = {0xc100, 0xc0e0, 0xc0c0, 0xc0a0, 0xc080, 0xc040, 0xc000, 0xbf80,
                                   0x0000, 0x3f80, 0x4000, 0x4040, 0x4080, 0x40a0, 0x40c0, 0x40e0};
    return _mm512_broadcast_i64x4(_mm256_loadu_si256((const __m256i *)c));
}

INLINE vi byte_float(vi u, const int byte) /* the signed byte of each dword */
{
    vi x = byte == 3 ? u : vi_shl(u, 24 - 8 * byte);
    return v_bits(_mm512_cvtepi32_ps(_mm512_srai_epi32(x, 24)));
}

/* Pair number i of the vector at codes: Q4 holds four, Q8 two. */
INLINE vi pair_of(vi u, vi table, const int i, const bool q8)
{
    if (!q8) return _mm512_permutexvar_epi16(_mm512_srli_epi32(u, (unsigned)(i / 2 * 4 + i % 2 * 8)), table);
    vi low = byte_float(u, i), high = byte_float(u, i + 2); /* exact in the upper halves */
    return _mm512_mask_blend_epi16(0xaaaaaaaau, _mm512_srli_epi32(low, 16), high);
}

/* ------------------------------------------------------------------ tiles */

/* A of several groups of n rows. */
INLINE void sum_groups(vf (*sums)[TILE], const uint8_t *codes, size_t group_bytes, const uint8_t *x, ptrdiff_t ldx,
                       const int group, const int n, const int groups, const bool q8, bool fetch_codes)
{
    const vi table = nibble_table(), flip = vi_set1((int)0x80808080u);
    const int pairs = q8 ? 2 : 4;
    UNROLL for (int g = 0; g < groups; g++) UNROLL for (int r = 0; r < n; r++) sums[g][r] = v_zero();
    uintptr_t ahead = (uintptr_t)codes + FETCH; /* in memory order, with scales; by group it took 1.9 times as long */
    const uintptr_t ahead_end = ahead + (size_t)groups * group_bytes;
    for (int k = 0; k < group; k += 2 * pairs, codes += 64, x += 4 * pairs) UNROLL for (int g = 0; g < groups; g++)
        {
            vi u = _mm512_load_si512(codes + (size_t)g * group_bytes);
            if (fetch_codes) _mm_prefetch((const char *)ahead, _MM_HINT_T0), ahead += 64;
            if (q8) u = _mm512_xor_si512(u, flip);
            UNROLL for (int i = 0; i < pairs; i++)
            {
                vi c = pair_of(u, table, i, q8);
                UNROLL for (int r = 0; r < n; r++)
                    sums[g][r] = dp(sums[g][r], c, pair_at(x + r * ldx + 2 * g * group + 4 * i));
            }
        }
    for (; fetch_codes && ahead < ahead_end; ahead += 64) _mm_prefetch((const char *)ahead, _MM_HINT_T0);
}

INLINE void panel(float *y, ptrdiff_t ldy, const ek_acts_b *rows, int r0, const ek_linear *w, int p, bool fetch_codes,
                  const int n, const bool q8)
{
    const int at_once = n <= 4 ? 4 : 2; /* groups */
    const int groups = w->k / w->group, block = EK_KBLOCK / w->group;
    const size_t group_bytes = ek_linear_group_bytes(w);
    const uint8_t *codes = w->data + (size_t)p * w->panel_bytes, *x = rows->x + r0 * rows->ldx;
    const float *sum = rows->sum + r0 * rows->lds;
    tree t;
    t.count = 0;
    for (int g = 0; g < groups;) {
        vf a[TILE], sums[GROUPS][TILE], s, b;
        UNROLL for (int r = 0; r < n; r++) a[r] = v_zero();
        for (int end = g + block < groups ? g + block : groups, now; g < end; g += now) {
            now = end - g >= at_once ? at_once : at_once > 2 && end - g >= 2 ? 2 : 1;
            const uint8_t *xg = x + (ptrdiff_t)g * w->group * 2;
            if (now == at_once)
                sum_groups(sums, codes, group_bytes, xg, rows->ldx, w->group, n, at_once, q8, fetch_codes);
            else if (now == 2) sum_groups(sums, codes, group_bytes, xg, rows->ldx, w->group, n, 2, q8, fetch_codes);
            else sum_groups(sums, codes, group_bytes, xg, rows->ldx, w->group, n, 1, q8, fetch_codes);
            UNROLL for (int i = 0; i < at_once; i++, codes += group_bytes)
            {
                if (i == now) break;
                load_centred(w, codes, 0, &s, &b);
                add_group(a, sums[i], s, b, sum + g + i, rows->lds, n);
            }
        }
        tree_push(&t, a, n);
    }
    UNROLL for (int r = 0; r < n; r++) v_store(y + r * ldy, tree_sum(&t, r));
}

#define PANEL(q8, n)                                                                                            \
    static __attribute__((noinline)) void panel_##q8##_##n(float *y, ptrdiff_t ldy, const ek_acts_b *x, int r0, \
                                                           const ek_linear *w, int p, bool fetch_codes)         \
    {                                                                                                           \
        panel(y, ldy, x, r0, w, p, fetch_codes, n, q8);                                                         \
    }
#define PANELS(q8) \
    PANEL(q8, 1) PANEL(q8, 2) PANEL(q8, 3) PANEL(q8, 4) PANEL(q8, 5) PANEL(q8, 6) PANEL(q8, 7) PANEL(q8, 8)
#define NAMES(q8)                                                                                       \
    {                                                                                                   \
        panel_##q8##_1, panel_##q8##_2, panel_##q8##_3, panel_##q8##_4, panel_##q8##_5, panel_##q8##_6, \
            panel_##q8##_7, panel_##q8##_8                                                              \
    }
PANELS(0)
PANELS(1)

static void panel_b(float *y, ptrdiff_t ldy, const ek_acts_b *x, int r0, int n, const ek_linear *w, int p,
                    bool fetch_codes)
{
    typedef void panel_fn(float *y, ptrdiff_t ldy, const ek_acts_b *x, int r0, const ek_linear *w, int p,
                          bool fetch_codes);
    static panel_fn *const by_rows[2][TILE] = {NAMES(0), NAMES(1)};
    by_rows[w->form == EK_W_Q8][n - 1](y, ldy, x, r0, w, p, fetch_codes);
}

void ek_linear_b_table_bf16(ek_linear_b_ops *ops)
{
    *ops = (ek_linear_b_ops){row_b, panel_b};
}
