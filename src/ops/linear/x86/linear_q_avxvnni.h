/* Products of Form Q on AVX-VNNI, for linear_q_256.h: VPDPBUSD in vectors of 8 outputs, as linear_q_avx512.c does in
 * vectors of 16. The sums start at minus the stored offset times X. */
#ifndef EK_OPS_X86_LINEAR_Q_AVXVNNI_H
#define EK_OPS_X86_LINEAR_Q_AVXVNNI_H

#define WIDE_Q8   0
#define TILE_ROWS 6
#include "ops/linear/x86/linear_q_256_unit.h"

typedef struct scratch {
    int unused;
} scratch;

INLINE void prepare(scratch *to, const int8_t *const *row, const ek_acts *x, const unit *u, const int n, const int kind,
                    const int limbs)
{
    (void)to, (void)row, (void)x, (void)u, (void)n, (void)kind, (void)limbs;
}

INLINE void decode_q8(uint8_t *to, __m256i stored)
{
    _mm256_store_si256((__m256i *)(void *)to, stored);
}

/* With few sums the multipliers would wait for their own results (5 cycles, two at a time), so sums are split into
 * chains. */
INLINE int chains_of(const int rows)
{
    return rows == 1 ? 4 : rows == 2 ? 2 : 1;
}

/* The codes of quad t of half h: Q4 packed holds two quads in a byte. */
INLINE __m256i code_of(const uint8_t *codes, const int t, const int h, const int kind, const bool decoded)
{
    if (kind == CODES_4 && !decoded) return nibbles(codes + t / 2 * 64 + 32 * h, t % 2);
    return _mm256_load_si256((const __m256i *)(const void *)(codes + t * 64 + 32 * h));
}

/* acc[half][row] += codes * limb; k: where the limb lies in a record. */
INLINE void dot(__m256i acc[2][TILE_ROWS], const int8_t *const *row, const uint8_t *codes, ptrdiff_t k, int a_group,
                const int n, const int kind, const bool decoded)
{
    const int chains = chains_of(n);
    __m256i part[4][2][TILE_ROWS];
    UNROLL for (int h = 0; h < 2; h++) UNROLL for (int r = 0; r < n; r++)
    {
        part[0][h][r] = acc[h][r];
        UNROLL for (int c = 1; c < chains; c++) part[c][h][r] = _mm256_setzero_si256();
    }
    for (int k0 = 0; k0 < a_group; k0 += 16, k += 16, codes += code_stride(16, kind, decoded))
        UNROLL for (int t = 0; t < 4; t++)
        {
            __m256i code[2];
            UNROLL for (int h = 0; h < 2; h++) code[h] = code_of(codes, t, h, kind, decoded);
            UNROLL for (int r = 0; r < n; r++)
            {
                const __m256i q = quad(row[r] + k + 4 * t);
                UNROLL for (int h = 0; h < 2; h++)
                {
                    __m256i *to = &part[t % chains][h][r];
                    *to = _mm256_dpbusd_epi32(*to, code[h], q);
                    IN_REGISTER(*to);
                }
            }
        }
    UNROLL for (int h = 0; h < 2; h++) UNROLL for (int r = 0; r < n; r++)
    {
        acc[h][r] = part[0][h][r];
        UNROLL for (int c = 1; c < chains; c++) acc[h][r] = _mm256_add_epi32(acc[h][r], part[c][h][r]);
    }
}

INLINE void products(__m256i sum[2][TILE_ROWS], const scratch *made, const int8_t *const *row, const source *from,
                     int a_group, const int n, const int kind, const int limbs, const bool decoded)
{
    (void)made;
    const int shift = kind == CODES_8 ? 4 : kind == CODES_5 ? 1 : kind == CODES_6 ? 2 : 0;
    const bool at_once = limbs == 2 && 2 * n <= TILE_ROWS; /* the low limbs are further rows */
    const int sums = at_once ? 2 * n : n;
    const int8_t *of[TILE_ROWS];
    __m256i start[TILE_ROWS], acc[2][TILE_ROWS];
    UNROLL for (int r = 0; r < n; r++)
    {
        start[r] = _mm256_slli_epi32(_mm256_set1_epi32(group_at(row[r], from->of)->start), shift);
    }
    UNROLL for (int i = 0; i < sums; i++)
    {
        of[i] = row[i % n] + (i < n ? 0 : from->low);
        acc[0][i] = acc[1][i] = limbs == 1 || i >= n ? start[i % n] : _mm256_setzero_si256();
    }
    dot(acc, of, from->codes, from->k, a_group, sums, kind, decoded);
    UNROLL for (int h = 0; h < 2; h++) UNROLL for (int r = 0; r < n; r++)
        sum[h][r] = limbs == 1 ? acc[h][r] : _mm256_slli_epi32(acc[h][r], 8);
    if (limbs == 1) return;
    if (!at_once) {
        UNROLL for (int r = 0; r < n; r++) acc[0][r] = acc[1][r] = start[r];
        dot(acc, row, from->codes, from->k + from->low, a_group, n, kind, decoded);
    }
    UNROLL for (int h = 0; h < 2; h++) UNROLL for (int r = 0; r < n; r++)
        sum[h][r] = _mm256_add_epi32(sum[h][r], acc[h][sums - n + r]);
}

#endif
