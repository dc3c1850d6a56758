/* Form Q by SMMLA: 2 rows of 8 inputs by 2 outputs of 8 inputs. */
#include <arm_neon.h>

#include "ops/inline.h"
#include "ops/linear/linear.h"

enum { TILE = 4, UNIT = 512 };

/* Writes decoded codes: 8 inputs after 8 inputs, in 8 vectors of 2 outputs. */
INLINE void put_quads(int8_t *to, int pair, int i, int8x16_t first, int8x16_t second)
{
    const int32x4_t a = vreinterpretq_s32_s8(first), b = vreinterpretq_s32_s8(second);
    vst1q_s8(to + pair * 128 + 32 * i, vreinterpretq_s8_s32(vzip1q_s32(a, b)));
    vst1q_s8(to + pair * 128 + 32 * i + 16, vreinterpretq_s8_s32(vzip2q_s32(a, b)));
}

/* A single row, or the last of three, is multiplied twice. */
INLINE void products(int32x4_t sum[4][TILE], const int8_t *const *row, ptrdiff_t k, const int8_t *codes, int a_group,
                     const int n)
{
    const int pairs = (n + 1) / 2;
    int32x4_t m[8][TILE / 2];
    UNROLL for (int o = 0; o < 8; o++) UNROLL for (int p = 0; p < pairs; p++) m[o][p] = vdupq_n_s32(0);
    for (int j = 0; j < a_group; j += 8, codes += 8 * EK_PANEL) {
        int8x16_t q[TILE / 2];
        UNROLL for (int p = 0; p < pairs; p++)
            q[p] = vcombine_s8(vld1_s8(row[2 * p] + k + j), vld1_s8(row[2 * p + 1] + k + j));
        UNROLL for (int o = 0; o < 8; o++)
        {
            const int8x16_t c = vld1q_s8(codes + 16 * o);
            UNROLL for (int p = 0; p < pairs; p++) m[o][p] = vmmlaq_s32(m[o][p], q[p], c);
        }
    }
    UNROLL for (int i = 0; i < 4; i++) UNROLL for (int r = 0; r < n; r++)
    {
        const int64x2_t a = vreinterpretq_s64_s32(m[2 * i][r / 2]), b = vreinterpretq_s64_s32(m[2 * i + 1][r / 2]);
        sum[i][r] = vreinterpretq_s32_s64(r % 2 ? vzip2q_s64(a, b) : vzip1q_s64(a, b));
    }
}

#include "ops/linear/arm/linear_q_neon.h"

void ek_linear_q_i8mm(const ek_linear *w, const ek_acts *x, int r0, int r1, float *y, ptrdiff_t ldy, int p0, int p1)
{
    run(w, x, r0, r1, y, ldy, p0, p1);
}
