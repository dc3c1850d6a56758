#include <arm_neon.h>
#include <string.h>

#include "ops/linear/linear.h"

static inline void put_limbs(int8_t *to, int32x4_t a, int32x4_t b)
{
    vst1_s8(to, vmovn_s16(vcombine_s16(vmovn_s32(a), vmovn_s32(b))));
}

void ek_quantize_row_neon(const float *x, int k, int a_group, int8_t *h, int8_t *l, ek_act_group *one,
                          ek_act_group *two)
{
    const uint32x4_t magnitude = vdupq_n_u32(0x7fffffff);
    for (int g = 0; g * a_group < k; g++, x += a_group, h += a_group) {
        const int n = k - g * a_group < a_group ? k - g * a_group : a_group;
        float padded[64] = {0};
        const float *from = x;
        if (n < a_group) from = memcpy(padded, x, sizeof *x * (size_t)n);
        uint32x4_t top4 = vdupq_n_u32(0);
        for (int i = 0; i < a_group; i += 4)
            top4 = vmaxq_u32(top4, vandq_u32(vreinterpretq_u32_f32(vld1q_f32(from + i)), magnitude));
        const uint32_t top = vmaxvq_u32(top4);
        float amax = ek_bits_f32(top), inv = 0, sx = 0;
        if (top >= 0x7f800000u) sx = ek_bits_f32(0x7fc00000u);
        else if (amax >= 0x1p-100f) sx = amax / 32512, inv = 32512 / amax;
        int32x4_t sum_h = vdupq_n_s32(0), sum_l = sum_h; /* lane: k % 4 */
        for (int i = 0; i < a_group; i += 8) {
            int32x4_t high[2], low[2];
            for (int j = 0; j < 2; j++) {
                int32x4_t q = vdupq_n_s32(0);
                if (inv > 0) q = vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(from + i + 4 * j), inv));
                high[j] = vshrq_n_s32(vaddq_s32(q, vdupq_n_s32(128)), 8);
                low[j] = vsubq_s32(q, vshlq_n_s32(high[j], 8));
                sum_h = vaddq_s32(sum_h, high[j]);
                sum_l = vaddq_s32(sum_l, low[j]);
            }
            put_limbs(h + i, high[0], high[1]);
            if (l) put_limbs(l + i, low[0], low[1]);
        }
        const int32_t h0 = vaddv_s32(vget_low_s32(sum_h)), h1 = vaddv_s32(vget_high_s32(sum_h));
        const int32_t l0 = vaddv_s32(vget_low_s32(sum_l)), l1 = vaddv_s32(vget_high_s32(sum_l));
        const int32_t x_h = h0 + h1, x_q = 256 * x_h + l0 + l1;
        one[g] = (ek_act_group){256 * sx, (float)x_h, -8 * x_h, ek_act_starts(h0, h1, 0)};
        if (!l) continue;
        two[g] = (ek_act_group){sx, (float)x_q, -8 * x_q, ek_act_starts(l0, l1, EK_ACT_LOWER)};
        l += a_group;
    }
}
