/* The step of Form B: sums of products of BF16 numbers. docs/numerics/bf16.md.
 *
 * A step adds one product to a binary32 sum: fma(a, b, sum), rounded once to nearest even. Numbers below 2^-126 count
 * as zeros of their sign, in the operands and in the result. A result is compared with 2^-126 after rounding to 24 bits
 * with unlimited exponent range. Steps come in pairs, the second element of a pair first. VDPBF16PS does the same
 * (Intel's manual; found equal on processors of both makers), and any fused multiply-add can do it. An absent element
 * of a pair counts as +0 in both factors. */
#ifndef EK_OPS_BF16_STEP_H
#define EK_OPS_BF16_STEP_H

#include <float.h>
#include <math.h>
#include <stdbool.h>

/* +0 or -0 for numbers below 2^-126; NaN stays. */
static inline float ek_bf16_flush(float x)
{
    return fabsf(x) < FLT_MIN ? copysignf(0, x) : x;
}

static inline float ek_bf16_step(float sum, float a, float b)
{
    a = ek_bf16_flush(a), b = ek_bf16_flush(b);
    float r = fmaf(a, b, sum);
    if (!(fabsf(r) <= FLT_MIN)) return r;
    if (fabsf(r) < FLT_MIN) return copysignf(0, r);
    /* 2^-126 may have come from below, by the coarse steps there: it stays from 2^-126 - 2^-151 on.
     * The difference is exact in binary64, so the sign of this is that of the exact sum's. */
    double sign = r < 0 ? -1 : 1, above = fma(sign * (double)a, (double)b, sign * (double)sum - (0x1p-126 - 0x1p-151));
    return above < 0 ? copysignf(0, r) : r;
}

/* sum + a0 b0 + a1 b1 */
static inline float ek_bf16_pair(float sum, float a0, float b0, float a1, float b1)
{
    return ek_bf16_step(ek_bf16_step(sum, a1, b1), a0, b0);
}

/* Whether this machine's VDPBF16PS equals the step: the order of a pair, one rounding per step, and zeros below 2^-126.
 * The machine must have the instruction (EK_CPU_BF16). x86-64 only. */
bool ek_bf16_sound(void);

#endif
