/* Products of Form Q on AVX2, for linear_q_256.h.
 *
 * CODES_4: PMADDUBSW multiplies codes c + 8 by the row's bytes; its sums are added as 16-bit numbers that wrap around,
 * from -8 times the limb's sum over the same inputs, so the end is the sum of c * limb again: of the 32 inputs that a
 * 16-bit lane sees of an A-group of 64 at most 32 * 8 * 127 = 32512 for h. Of l, down to -128, it can be 32768, but not
 * -32768: it is kept 128 lower. One PMADDWD per A-group adds the two lanes. CODES_5, of A-groups of 32 at most, and
 * CODES_6, of 16, have the same bounds: 16 * 16 * 127 and 8 * 32 * 127.
 * CODES_8: 16-bit codes by 16-bit activations by PMADDWD, even and odd k apart, straight into 32 bits. */
#ifndef EK_OPS_X86_LINEAR_Q_AVX2_H
#define EK_OPS_X86_LINEAR_Q_AVX2_H

#define WIDE_Q8   1
#define TILE_ROWS 4
#include "ops/linear/x86/linear_q_256_unit.h"

/* Rows of a unit as 16-bit numbers, h or q: the lane of quad t holds k = 4 t and 4 t + 2 in even, 4 t + 1 and 4 t + 3
 * in odd. Of CODES_8 only. */
typedef struct scratch {
    _Alignas(32) int32_t even[TILE_ROWS][EK_KBLOCK_Q / 4], odd[TILE_ROWS][EK_KBLOCK_Q / 4];
} scratch;

INLINE void prepare(scratch *to, const int8_t *const *row, const ek_acts *x, const unit *u, const int n, const int kind,
                    const int limbs)
{
    if (kind != CODES_8) return;
    for (int r = 0; r < n; r++)
        for (int k = 0; k < u->n; k += 32) {
            const int8_t *at = row[r] + u->k + k;
            __m256i h = _mm256_loadu_si256((const __m256i *)(const void *)at), odd = _mm256_srai_epi16(h, 8);
            __m256i even = _mm256_slli_epi16(h, 8);
            if (limbs == 1) even = _mm256_srai_epi16(even, 8);
            else {
                __m256i l = _mm256_loadu_si256((const __m256i *)(const void *)(at + x->low));
                even = _mm256_add_epi16(even, _mm256_srai_epi16(_mm256_slli_epi16(l, 8), 8));
                odd = _mm256_add_epi16(_mm256_slli_epi16(odd, 8), _mm256_srai_epi16(l, 8));
            }
            _mm256_store_si256((__m256i *)(void *)(to->even[r] + k / 4), even);
            _mm256_store_si256((__m256i *)(void *)(to->odd[r] + k / 4), odd);
        }
}

/* Centred codes from c + 128: k % 4 = 0, 2 in even, 1, 3 in odd. */
INLINE void widen(__m256i stored, __m256i *even, __m256i *odd)
{
    __m256i c = _mm256_xor_si256(stored, _mm256_set1_epi8(-128));
    *even = _mm256_srai_epi16(_mm256_slli_epi16(c, 8), 8), *odd = _mm256_srai_epi16(c, 8);
}

INLINE void decode_q8(uint8_t *to, __m256i stored)
{
    __m256i even, odd;
    widen(stored, &even, &odd);
    _mm256_store_si256((__m256i *)(void *)to, even);
    _mm256_store_si256((__m256i *)(void *)(to + 32), odd);
}

/* acc[half][row] += c * limb in 16 bits; k: where the limb lies in a record. */
INLINE void dot_q4(__m256i acc[2][TILE_ROWS], const int8_t *const *row, const uint8_t *codes, ptrdiff_t k, int a_group,
                   const int n, const bool decoded)
{
    for (int v = 0; v < a_group / 8; v++, k += 8, codes += decoded ? 128 : 64)
        UNROLL for (int second = 0; second < 2; second++)
        {
            __m256i code[2];
            UNROLL for (int h = 0; h < 2; h++)
            {
                const __m256i *bytes = (const __m256i *)(const void *)(codes + 64 * second + 32 * h);
                code[h] = decoded ? _mm256_load_si256(bytes) : nibbles(codes + 32 * h, second);
            }
            UNROLL for (int r = 0; r < n; r++)
            {
                __m256i q = quad(row[r] + k + 4 * second);
                UNROLL for (int h = 0; h < 2; h++)
                {
                    acc[h][r] = _mm256_add_epi16(acc[h][r], _mm256_maddubs_epi16(code[h], q));
                    IN_REGISTER(acc[h][r]);
                }
            }
        }
}

INLINE void dot_q8(__m256i acc[2][TILE_ROWS], const scratch *made, const source *from, int a_group, const int n,
                   const bool decoded)
{
    const uint8_t *codes = from->codes;
    for (int v = 0; v < a_group / 4; v++, codes += decoded ? 128 : 64) {
        __m256i even[2], odd[2];
        UNROLL for (int h = 0; h < 2; h++)
        {
            if (!decoded) widen(_mm256_load_si256((const __m256i *)(const void *)(codes + 32 * h)), &even[h], &odd[h]);
            else {
                even[h] = _mm256_load_si256((const __m256i *)(const void *)(codes + 64 * h));
                odd[h] = _mm256_load_si256((const __m256i *)(const void *)(codes + 64 * h + 32));
            }
        }
        UNROLL for (int r = 0; r < n; r++)
        {
            const __m256i q = _mm256_set1_epi32(made->even[r][from->in_unit / 4 + v]);
            UNROLL for (int h = 0; h < 2; h++)
            {
                acc[h][r] = _mm256_add_epi32(acc[h][r], _mm256_madd_epi16(even[h], q));
                IN_REGISTER(acc[h][r]);
            }
            const __m256i q1 = _mm256_set1_epi32(made->odd[r][from->in_unit / 4 + v]);
            UNROLL for (int h = 0; h < 2; h++)
            {
                acc[h][r] = _mm256_add_epi32(acc[h][r], _mm256_madd_epi16(odd[h], q1));
                IN_REGISTER(acc[h][r]);
            }
        }
    }
}

/* The start of a 16-bit sum: -8, -16 or -32 times the limb's sum, minus `lower`. */
INLINE __m256i start_of(const int8_t *row, ptrdiff_t at, const int kind, const int lower)
{
    const int shift = kind == CODES_5 ? 1 : kind == CODES_6 ? 2 : 0;
    const __m256i start = _mm256_slli_epi16(_mm256_set1_epi32(group_at(row, at)->starts), shift);
    const int more = (lower << shift) - lower;
    return more ? _mm256_add_epi16(start, _mm256_set1_epi16((short)more)) : start;
}

INLINE void products(__m256i sum[2][TILE_ROWS], const scratch *made, const int8_t *const *row, const source *from,
                     int a_group, const int n, const int kind, const int limbs, const bool decoded)
{
    const __m256i ones = _mm256_set1_epi16(1);
    __m256i acc[2][TILE_ROWS];
    if (kind == CODES_8) {
        UNROLL for (int h = 0; h < 2; h++) UNROLL for (int r = 0; r < n; r++) sum[h][r] = _mm256_setzero_si256();
        dot_q8(sum, made, from, a_group, n, decoded);
        return;
    }
    const bool at_once = limbs == 2 && 2 * n <= TILE_ROWS; /* the low limbs are further rows */
    const int8_t *of[TILE_ROWS];
    UNROLL for (int r = 0; r < n; r++)
    {
        of[r] = row[r];
        acc[0][r] = acc[1][r] = start_of(row[r], from->one, kind, 0);
        if (!at_once) continue;
        of[n + r] = row[r] + from->low;
        acc[0][n + r] = acc[1][n + r] = start_of(row[r], from->of, kind, EK_ACT_LOWER);
    }
    dot_q4(acc, of, from->codes, from->k, a_group, at_once ? 2 * n : n, decoded);
    UNROLL for (int h = 0; h < 2; h++) UNROLL for (int r = 0; r < n; r++)
        sum[h][r] = _mm256_madd_epi16(acc[h][r], ones);
    if (limbs == 1) return;
    const int low = at_once ? n : 0;
    if (!at_once) {
        UNROLL for (int r = 0; r < n; r++) acc[0][r] = acc[1][r] = start_of(row[r], from->of, kind, EK_ACT_LOWER);
        dot_q4(acc, row, from->codes, from->k + from->low, a_group, n, decoded);
    }
    const __m256i lower = _mm256_set1_epi32(2 * EK_ACT_LOWER);
    UNROLL for (int h = 0; h < 2; h++) UNROLL for (int r = 0; r < n; r++)
    {
        __m256i high = _mm256_add_epi32(_mm256_slli_epi32(sum[h][r], 8), lower);
        sum[h][r] = _mm256_add_epi32(high, _mm256_madd_epi16(acc[h][low + r], ones));
    }
}

#endif
