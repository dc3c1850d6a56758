/* Readers of GGUF's block formats, one per row of the table in weight_type.c, and the codebooks. */
#ifndef EK_OPS_UNPACK_GGUF_H
#define EK_OPS_UNPACK_GGUF_H

#include "ops/weights/weight_type.h"

/* Codebooks of four bits: centred codes by index. */
extern const int8_t ek_iq4_values[16];
extern const int8_t ek_e2m1_doubled[16]; /* E2M1 times 2: 0, .5, 1, 1.5, 2, 3, 4, 6 and the same negated */

/* 2^(e - 128): half of what E8M0 says, for doubled E2M1. e = 0 and 1 are subnormal. */
static inline float ek_e8m0_half(uint8_t e)
{
    return ek_bits_f32(e < 2 ? 0x00200000u << e : (uint32_t)(e - 1) << 23);
}

/* E4M3 / 256, which is a binary16: the scale of EK_SCALE_E4M3. 0x7f is 480 / 256. */
static inline float ek_e4m3_half(uint8_t byte)
{
    return ek_f16_f32((ek_f16)((byte & 0x80) << 8 | (byte & 0x7f) << 7));
}

/* d of EK_SCALE_E4M3: half the gain, for doubled E2M1, times 256. */
static inline float ek_e4m3_factor(const ek_weight_data *w)
{
    return (w->gain != 0 ? w->gain : 1) * 128;
}

ek_unpack_fn ek_unpack_q4_0, ek_unpack_q4_1, ek_unpack_q5_0, ek_unpack_q5_1, ek_unpack_q8_0;
ek_unpack_fn ek_unpack_q2_k, ek_unpack_q3_k, ek_unpack_q4_k, ek_unpack_q5_k, ek_unpack_q6_k;
ek_unpack_fn ek_unpack_iq4_nl, ek_unpack_iq4_xs, ek_unpack_mxfp4, ek_unpack_nvfp4;
ek_subscales_fn ek_subscales_32, ek_subscales_mxfp4, ek_subscales_q2_k, ek_subscales_q3_k, ek_subscales_q45_k,
    ek_subscales_q6_k, ek_subscales_iq4_xs, ek_subscales_nvfp4;

#endif
