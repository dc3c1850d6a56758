/* Form PLANES on AVX2.
 *
 * Of packed codes PMADDUBSW multiplies u by the row's bytes; its sums stay in 16 bits for as many quads as fit beside
 * limbs down to -128, then PMADDWD widens them:
 *     2, 3, 4 bits   8 sums:  8 * 2 * 15 * 128 = 30720
 *     5 bits         4 sums:  4 * 2 * 31 * 128 = 31744
 *     6 bits         2 sums:  2 * 2 * 63 * 128 = 32256
 *     8 bits, and codebooks (as c + 128): low and high half are multiplied each for itself, as 4 bits
 * The start, minus the codes' offset times X, is added behind. Of two limbs the high one is summed first, shifted, and
 * the low one added. */
#include "ops/x86/linear_q_avx2.h"
#include "ops/x86/linear_q_256.h"
#include "ops/x86/planes_vec.h"

enum { TILE = 3 }; /* rows that read packed codes; more are faster with decoded ones */

/* The halves of a codebook's values + 128, by index. */
typedef struct planes_table {
    __m256i low, high;
} planes_table;

INLINE planes_table planes_table_of(const int8_t *book)
{
    const __m256i all = p_table(book), low = _mm256_set1_epi8(15);
    return (planes_table){_mm256_and_si256(all, low), _mm256_and_si256(_mm256_srli_epi16(all, 4), low)};
}

/* acc[h][r] += codes of half panel h * the limb of row r at k, over quads [q, q + a_group / 4) of a unit. A broadcast
 * of four activation bytes serves both halves. */
INLINE void planes_dot(__m256i acc[2][TILE], const uint8_t *at, const int q, const int8_t *const *row, ptrdiff_t k,
                       const planes_table *table, const int n, const int bits, const bool book, const int a_group)
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
                code[h] = top[h] = p_codes(at + 32 * h, q + t, bits, false, low);
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

#include "ops/x86/linear_p_256.h"

void ek_linear_planes_avx2(const ek_linear *w, const ek_acts *x, int r0, int r1, float *y, ptrdiff_t ldy, int p0,
                           int p1)
{
    run_planes(w, x, r0, r1, y, ldy, p0, p1);
}
