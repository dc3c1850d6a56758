/* Attention in integers by SMMLA: two lanes of eight bytes, of two fours, by those of two queries. */
#include <arm_neon.h>

#include "ops/attn/attn_kernels.h"
#include "ops/inline.h"

enum { QUERIES = 4, COLS = 2, LIMB_STRIDE = EK_MAX_HEAD_DIM + 16, PAIRS = QUERIES / 2 };

/* The sum of query i and lane c: sums lie [pair of queries][pair of lanes], each 2 by 2. */
INLINE int32x4_t taken(const int32x4_t *sum, int i, int c)
{
    const int32x4_t *at = sum + i / 2 * 2 * COLS + 2 * c;
    const int64x2_t a = vreinterpretq_s64_s32(at[0]), b = vreinterpretq_s64_s32(at[1]);
    return vreinterpretq_s32_s64(i % 2 ? vzip2q_s64(a, b) : vzip1q_s64(a, b));
}

/* Eight bytes each of two queries. Behind an odd number of fours there are zeros, or codes that are multiplied by
 * zeros. */
INLINE int8x16_t eights(const int8_t *code)
{
    return vcombine_s8(vld1_s8(code), vld1_s8(code + LIMB_STRIDE));
}

INLINE void add_fours(int32x4_t *high, int32x4_t *low, const int8_t *at, ptrdiff_t row, const int8_t *code_high,
                      const int8_t *code_low, int n, const int cols)
{
    for (; n > 0; n -= 2, at += 2 * row, code_high += 8, code_low += 8) {
        int8x16_t lanes[2 * COLS];
        UNROLL for (int c = 0; c < cols; c++)
        {
            const int32x4_t a = vreinterpretq_s32_s8(vld1q_s8(at + 16 * c));
            const int32x4_t b = n > 1 ? vreinterpretq_s32_s8(vld1q_s8(at + row + 16 * c)) : vdupq_n_s32(0);
            lanes[2 * c] = vreinterpretq_s8_s32(vzip1q_s32(a, b));
            lanes[2 * c + 1] = vreinterpretq_s8_s32(vzip2q_s32(a, b));
        }
        UNROLL for (int p = 0; p < PAIRS; p++)
        {
            const int8x16_t h = eights(code_high + 2 * p * LIMB_STRIDE), l = eights(code_low + 2 * p * LIMB_STRIDE);
            UNROLL for (int c = 0; c < 2 * cols; c++)
            {
                high[p * 2 * COLS + c] = vmmlaq_s32(high[p * 2 * COLS + c], h, lanes[c]);
                low[p * 2 * COLS + c] = vmmlaq_s32(low[p * 2 * COLS + c], l, lanes[c]);
            }
        }
    }
}

#include "ops/attn/arm/attn_int_neon.h"

void ek_attn_table_i8mm(ek_attn_ops *ops)
{
    fill_table(ops);
}
