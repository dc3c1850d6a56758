/* Form Q by SDOT: a lane is an output; four bytes of a row are a lane of the vector with its codes. */
#include <arm_neon.h>

#include "ops/inline.h"
#include "ops/linear/linear.h"

enum { TILE = 4, UNIT = 512 };

/* Writes decoded codes: quad after quad, 16 outputs of 4 bytes. */
INLINE void put_quads(int8_t *to, int pair, int i, int8x16_t first, int8x16_t second)
{
    vst1q_s8(to + pair * 128 + 16 * i, first);
    vst1q_s8(to + pair * 128 + 64 + 16 * i, second);
}

/* One quad: a lane of q times the codes of 16 outputs. */
#define DOT(lane)                                                                                 \
    UNROLL for (int i = 0; i < 4; i++)                                                            \
    {                                                                                             \
        const int8x16_t c = vld1q_s8(codes + lane * 64 + 16 * i);                                 \
        UNROLL for (int r = 0; r < n; r++) sum[i][r] = vdotq_laneq_s32(sum[i][r], c, q[r], lane); \
    }

INLINE void products(int32x4_t sum[4][TILE], const int8_t *const *row, ptrdiff_t k, const int8_t *codes, int a_group,
                     const int n)
{
    UNROLL for (int i = 0; i < 4; i++) UNROLL for (int r = 0; r < n; r++) sum[i][r] = vdupq_n_s32(0);
    for (int j = 0; j < a_group; j += 16, codes += 16 * EK_PANEL) {
        int8x16_t q[TILE];
        UNROLL for (int r = 0; r < n; r++) q[r] = vld1q_s8(row[r] + k + j);
        DOT(0)
        DOT(1)
        DOT(2)
        DOT(3)
    }
}

#include "ops/linear/arm/linear_q_neon.h"

void ek_linear_q_dotprod(const ek_linear *w, const ek_acts *x, int r0, int r1, float *y, ptrdiff_t ldy, int p0, int p1)
{
    run(w, x, r0, r1, y, ldy, p0, p1);
}
