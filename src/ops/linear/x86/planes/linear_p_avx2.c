/* Form PLANES on AVX2.
 *
 * For packed codes, PMADDUBSW multiplies u by the row's bytes. A lane's part of an A-group, at most 16 inputs, is
 * summed in 16 bits; then PMADDWD adds the lanes, and with two limbs multiplies the high limb's sums by 256.
 *
 *   2, 3, 4 bits   at most 16 * 15 * 128 = 30720; the start, minus the codes' offset times X, is added afterwards
 *   5, 6 bits      may wrap around, from minus the offset times the limb's sum on, as in linear_q_avx2.h
 *   8 bits         and codebooks (as c + 128): low and high half are multiplied separately, like 4 bits
 *
 * Codes are put together once for both limbs. */
#include "ops/linear/x86/linear_q_avx2.h"
#include "ops/linear/x86/linear_q_256.h"
#include "ops/linear/x86/planes/planes_vec.h"

enum {
    TILE = 3, /* rows per tile of packed codes */
    SUMS = 4, /* limbs of them */
    /* maximum rows that read packed codes; for more, codes are decoded once */
    PACKED = 8,
    PACKED_2 = 8,
    PACKED_BIASED = 6,
    PACKED_BIASED_2 = 4
};

/* The halves of a codebook's values + 128, by index. */
typedef struct planes_table {
    __m256i low, high;
} planes_table;

INLINE planes_table planes_table_of(const int8_t *book)
{
    const __m256i all = p_table(book), low = _mm256_set1_epi8(15);
    return (planes_table){_mm256_and_si256(all, low), _mm256_and_si256(_mm256_srli_epi16(all, 4), low)};
}

/* Codes that one byte holds: sum[h][limb * n + r], in 16 bits, += codes of half panel h * that limb of row r. */
INLINE void dot_bytes(__m256i sum[2][SUMS], const source *from, const int8_t *const *row, const int first, const int n,
                      const int bits, const int a_group, const int limbs)
{
    UNROLL for (int t = 0; t < a_group / 4; t++)
    {
        const __m256i code[2] = {p_codes(from->codes, first + t, bits, false, _mm256_setzero_si256()),
                                 p_codes(from->codes + 32, first + t, bits, false, _mm256_setzero_si256())};
        UNROLL for (int i = 0; i < limbs * n; i++)
        {
            const __m256i x = quad(row[i % n] + i / n * from->low + from->k + 4 * t);
            UNROLL for (int h = 0; h < 2; h++)
            {
                sum[h][i] = _mm256_add_epi16(sum[h][i], _mm256_maddubs_epi16(code[h], x));
                IN_REGISTER(sum[h][i]);
            }
        }
    }
}

/* i[h][r] = I of half panel h and row r. */
INLINE void products_of_bytes(__m256i i[2][TILE], const source *from, const int8_t *const *row, const int first,
                              const int n, const int bits, const int a_group, const int limbs)
{
    const bool wraps = bits > 4;
    const int kind = bits == 6 ? CODES_6 : CODES_5, shift = bits - 4;
    const __m256i ones = _mm256_set1_epi16(1), high = _mm256_set1_epi16(limbs == 2 ? 256 : 1);
    __m256i sum[2][SUMS];
    UNROLL for (int r = 0; r < n; r++)
    {
        __m256i one = wraps ? start_of(row[r], from->one, kind, 0) : _mm256_setzero_si256();
        if (wraps && limbs == 2) { /* the amount by which the low limb is kept lower, in both lanes: 256 */
            one = _mm256_add_epi16(one, _mm256_set1_epi32(2 * EK_ACT_LOWER / 256));
            sum[0][n + r] = sum[1][n + r] = start_of(row[r], from->of, kind, EK_ACT_LOWER);
        } else if (limbs == 2) sum[0][n + r] = sum[1][n + r] = _mm256_setzero_si256();
        sum[0][r] = sum[1][r] = one;
    }
    dot_bytes(sum, from, row, first, n, bits, a_group, limbs);
    UNROLL for (int h = 0; h < 2; h++) UNROLL for (int r = 0; r < n; r++)
    {
        i[h][r] = _mm256_madd_epi16(sum[h][r], high);
        if (limbs == 2) i[h][r] = _mm256_add_epi32(i[h][r], _mm256_madd_epi16(sum[h][n + r], ones));
        if (!wraps)
            i[h][r] = _mm256_add_epi32(
                i[h][r], _mm256_set1_epi32(group_at(row[r], from->of)->start >> (shift < 0 ? -shift : 0)));
    }
}

/* The same for codes of 8 bits: the low and the high half of each are multiplied. */
INLINE void products_of_halves(__m256i i[2][TILE], const source *from, const int8_t *const *row, const int first,
                               const planes_table *table, const int n, const int bits, const bool book,
                               const int a_group, const int limbs)
{
    const __m256i low = _mm256_set1_epi8(15), ones = _mm256_set1_epi16(1);
    UNROLL for (int l = 0; l < limbs; l++)
    {
        __m256i part[2][2][TILE];
        UNROLL for (int h = 0; h < 2; h++) UNROLL for (int r = 0; r < n; r++)
            part[h][0][r] = part[h][1][r] = _mm256_setzero_si256();
        UNROLL for (int t = 0; t < a_group / 4; t++)
        {
            __m256i code[2], top[2];
            UNROLL for (int h = 0; h < 2; h++)
            {
                code[h] = top[h] = p_codes(from->codes + 32 * h, first + t, bits, false, low);
                if (book) {
                    top[h] = _mm256_shuffle_epi8(table->high, code[h]);
                    code[h] = _mm256_shuffle_epi8(table->low, code[h]);
                } else {
                    top[h] = _mm256_and_si256(_mm256_srli_epi16(code[h], 4), low);
                    code[h] = _mm256_and_si256(code[h], low);
                }
            }
            UNROLL for (int r = 0; r < n; r++)
            {
                const __m256i x = quad(row[r] + l * from->low + from->k + 4 * t);
                UNROLL for (int h = 0; h < 2; h++)
                {
                    part[h][0][r] = _mm256_add_epi16(part[h][0][r], _mm256_maddubs_epi16(code[h], x));
                    part[h][1][r] = _mm256_add_epi16(part[h][1][r], _mm256_maddubs_epi16(top[h], x));
                }
            }
        }
        UNROLL for (int h = 0; h < 2; h++) UNROLL for (int r = 0; r < n; r++)
        {
            __m256i sum = _mm256_add_epi32(_mm256_madd_epi16(part[h][0][r], ones),
                                           _mm256_slli_epi32(_mm256_madd_epi16(part[h][1][r], ones), 4));
            i[h][r] = l ? _mm256_add_epi32(_mm256_slli_epi32(i[h][r], 8), sum) : sum;
        }
    }
    UNROLL for (int h = 0; h < 2; h++) UNROLL for (int r = 0; r < n; r++)
        i[h][r] = _mm256_add_epi32(i[h][r], _mm256_set1_epi32(p_start(group_at(row[r], from->of)->start, bits, book)));
}

INLINE void planes_products(__m256i i[2][TILE], const source *from, const int8_t *const *row, const int first,
                            const planes_table *table, const int n, const int bits, const bool book, const int a_group,
                            const int limbs)
{
    if (book || bits == 8) products_of_halves(i, from, row, first, table, n, bits, book, a_group, limbs);
    else products_of_bytes(i, from, row, first, n, bits, a_group, limbs);
}

#include "ops/linear/x86/planes/linear_p_256.h"

void ek_linear_planes_avx2(const ek_linear *w, const ek_acts *x, int r0, int r1, float *y, ptrdiff_t ldy, int p0,
                           int p1)
{
    run_planes(w, x, r0, r1, y, ldy, p0, p1);
}
