/* Attention in integers by SDOT: a lane's four bytes by those of a query. */
#include <arm_neon.h>

#include "ops/attn/attn_kernels.h"
#include "ops/inline.h"

enum { QUERIES = 4, COLS = 2, LIMB_STRIDE = EK_MAX_HEAD_DIM + 16 };

INLINE int32x4_t taken(const int32x4_t *sum, int i, int c)
{
    return sum[i * COLS + c];
}

INLINE int8x16_t four(const int8_t *code)
{
    return vreinterpretq_s8_s32(vld1q_dup_s32((const int32_t *)(const void *)code));
}

INLINE void add_fours(int32x4_t *high, int32x4_t *low, const int8_t *at, ptrdiff_t row, const int8_t *code_high,
                      const int8_t *code_low, int n, const int cols)
{
    for (; n > 0; n--, at += row, code_high += 4, code_low += 4) {
        int8x16_t x[COLS];
        UNROLL for (int c = 0; c < cols; c++) x[c] = vld1q_s8(at + 16 * c);
        UNROLL for (int i = 0; i < QUERIES; i++)
        {
            const int8x16_t h = four(code_high + i * LIMB_STRIDE), l = four(code_low + i * LIMB_STRIDE);
            UNROLL for (int c = 0; c < cols; c++)
            {
                high[i * COLS + c] = vdotq_s32(high[i * COLS + c], x[c], h);
                low[i * COLS + c] = vdotq_s32(low[i * COLS + c], x[c], l);
            }
        }
    }
}

#include "ops/attn/arm/attn_int_neon.h"

void ek_attn_table_dotprod(ek_attn_ops *ops)
{
    fill_table(ops);
}
