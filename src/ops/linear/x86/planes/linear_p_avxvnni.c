/* Form PLANES on AVX-VNNI: VPDPBUSD of codes u (for a codebook c + 128) by the row's bytes. The start, minus the codes'
 * offset times X, is added afterwards. With two limbs the high one is summed first and shifted, then the low one is
 * added. */
#include "ops/linear/x86/linear_q_avxvnni.h"
#include "ops/linear/x86/linear_q_256.h"
#include "ops/linear/x86/planes/planes_vec.h"

/* More rows are faster with decoded codes. */
enum { TILE = 3, PACKED = 3, PACKED_2 = 2, PACKED_BIASED = 3, PACKED_BIASED_2 = 2 };

typedef __m256i planes_table;

INLINE planes_table planes_table_of(const int8_t *book)
{
    return p_table(book);
}

/* acc[h][r] += codes of half panel h * the limb of row r at k, over quads [q, q + a_group / 4) of a unit. */
INLINE void planes_dot(__m256i acc[2][TILE], const uint8_t *at, const int q, const int8_t *const *row, ptrdiff_t k,
                       const planes_table *table, const int n, const int bits, const bool book, const int a_group)
{
    const int chains = chains_of(n);
    __m256i part[4][2][TILE];
    UNROLL for (int h = 0; h < 2; h++) UNROLL for (int r = 0; r < n; r++)
    {
        part[0][h][r] = acc[h][r];
        UNROLL for (int c = 1; c < chains; c++) part[c][h][r] = _mm256_setzero_si256();
    }
    UNROLL for (int t = 0; t < a_group / 4; t++)
    {
        __m256i code[2];
        UNROLL for (int h = 0; h < 2; h++) code[h] = p_codes(at + 32 * h, q + t, bits, book, *table);
        UNROLL for (int r = 0; r < n; r++)
        {
            const __m256i x = quad(row[r] + k + 4 * t);
            UNROLL for (int h = 0; h < 2; h++)
                part[t % chains][h][r] = _mm256_dpbusd_epi32(part[t % chains][h][r], code[h], x);
        }
    }
    UNROLL for (int h = 0; h < 2; h++) UNROLL for (int r = 0; r < n; r++)
    {
        acc[h][r] = part[0][h][r];
        UNROLL for (int c = 1; c < chains; c++) acc[h][r] = _mm256_add_epi32(acc[h][r], part[c][h][r]);
    }
}

INLINE void planes_products(__m256i i[2][TILE], const source *from, const int8_t *const *row, const int first,
                            const planes_table *table, const int n, const int bits, const bool book, const int a_group,
                            const int limbs)
{
    UNROLL for (int r = 0; r < n; r++) i[0][r] = i[1][r] = _mm256_setzero_si256();
    if (limbs == 2) {
        planes_dot(i, from->codes, first, row, from->k, table, n, bits, book, a_group);
        UNROLL for (int h = 0; h < 2; h++) UNROLL for (int r = 0; r < n; r++) i[h][r] = _mm256_slli_epi32(i[h][r], 8);
    }
    planes_dot(i, from->codes, first, row, from->k + (limbs == 2 ? from->low : 0), table, n, bits, book, a_group);
    UNROLL for (int h = 0; h < 2; h++) UNROLL for (int r = 0; r < n; r++)
        i[h][r] = _mm256_add_epi32(i[h][r], _mm256_set1_epi32(p_start(group_at(row[r], from->of)->start, bits, book)));
}

#include "ops/linear/x86/planes/linear_p_256.h"

void ek_linear_planes_avxvnni(const ek_linear *w, const ek_acts *x, int r0, int r1, float *y, ptrdiff_t ldy, int p0,
                              int p1)
{
    run_planes(w, x, r0, r1, y, ldy, p0, p1);
}
