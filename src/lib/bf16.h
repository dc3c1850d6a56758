/* Form B: sums of products of bf16 numbers, as attention over bf16 tensors makes them.
 *
 * A step adds one product to a binary32 sum: fma(a, b, sum), rounded once to nearest even, where
 * numbers below 2^-126 count as zeros of their sign, in the operands and in the result (which is
 * below if it is after rounding to 24 bits without a limit of the exponent). Steps come in pairs,
 * the second element of a pair first. That is what VDPBF16PS does (Intel's manual, its operation;
 * seen equal on processors of both makers), and any fused multiply-add can do it. A pair of which
 * one element is absent takes +0 for both factors.
 *
 * score   16 lanes; lane i takes the pair of dims (32 n + 2 i, 32 n + 2 i + 1) for n = 0, 1, … from +0,
 *         dims behind the last count as zeros; the lanes are added 8, 4, 2, 1 apart; times the scale
 * weight  as elsewhere (ops/attn.h), then rounded to bf16, to nearest even; l sums the rounded ones
 * value   pairs of slots (2j, 2j + 1) of the segment in ascending order; a pair of which the query
 *         sees neither is no step */
#ifndef EK_LIB_BF16_H
#define EK_LIB_BF16_H

#include <float.h>
#include <math.h>
#include <string.h>

#include "lib/plain.h"

PLAIN float plain_flush(float x)
{
    return fabsf(x) < FLT_MIN ? copysignf(0, x) : x; /* NaN stays */
}

PLAIN float plain_step(float sum, float a, float b)
{
    a = plain_flush(a), b = plain_flush(b);
    float r = fmaf(a, b, sum);
    if (!(fabsf(r) <= FLT_MIN)) return r;
    if (fabsf(r) < FLT_MIN) return copysignf(0, r);
    /* 2^-126 may have come from below, by the coarse steps there: it stays from 2^-126 - 2^-151 on.
     * The difference is exact in binary64, so the sign of this is that of the exact sum's. */
    double sign = r < 0 ? -1 : 1, above = fma(sign * (double)a, (double)b, sign * (double)sum - (0x1p-126 - 0x1p-151));
    return above < 0 ? copysignf(0, r) : r;
}

/* sum + a0 b0 + a1 b1 */
PLAIN float plain_pair(float sum, float a0, float b0, float a1, float b1)
{
    return plain_step(plain_step(sum, a1, b1), a0, b0);
}

PLAIN float plain_add_lanes(float *lane)
{
    for (int apart = 8; apart > 0; apart /= 2)
        for (int i = 0; i < apart; i++) lane[i] += lane[i + apart];
    return lane[0];
}

PLAIN void plain_scores_bf16(const lib_score_block *b)
{
    for (int i = 0; i < b->n_q; i++)
        for (int j = 0; j < LIB_KEYS; j++) {
            float lane[16] = {0};
            for (int d = 0; d < (b->dim + 31) / 32 * 32; d += 2) {
                const uint8_t *k = b->key[j] + 2 * (size_t)d;
                float k0 = d < b->dim ? plain_one(k, EK_TYPE_BF16) : 0,
                      k1 = d + 1 < b->dim ? plain_one(k + 2, EK_TYPE_BF16) : 0;
                const uint16_t *q = b->q16 + lib_q16(i, d); /* zeros behind dim */
                lane[d / 2 % 16] = plain_pair(lane[d / 2 % 16], ek_bf16_f32(q[0]), k0, ek_bf16_f32(q[1]), k1);
            }
            b->e[i * EK_SEGMENT + j] = plain_add_lanes(lane) * b->scale;
        }
}

/* Weights of slots [from, to) are rounded in place; p has the same in bf16; *l is their sum: lanes of slots
 * mod 16, then 8, 4, 2, 1 apart. Vectors take whole 16 slots: what weights() of their ISA left there is +0. */
PLAIN void plain_round_bf16(float *e, uint16_t *p, int from, int to, float *l)
{
    float lane[16] = {0};
    for (int j = from; j < to; j++) {
        p[j] = ek_f32_bf16(e[j]);
        e[j] = ek_bf16_f32(p[j]);
        lane[j % 16] += e[j];
    }
    *l = plain_add_lanes(lane);
}

PLAIN void plain_values_bf16(const lib_value_run *r)
{
    static const uint16_t none[EK_MAX_HEAD_DIM];
    for (int i = 0; i < r->n_q; i++) {
        if (r->fresh) memset(r->o + i * r->ldo, 0, sizeof *r->o * (size_t)r->ldo);
        for (int j = -(r->slot & 1); j < r->n_keys; j += 2) {
            bool low = j >= 0, high = j + 1 < r->n_keys;
            const uint8_t *v0 = low ? r->v + j * r->stride : (const uint8_t *)none;
            const uint8_t *v1 = high ? r->v + (j + 1) * r->stride : (const uint8_t *)none;
            const uint16_t *p = r->p + i * EK_SEGMENT + j;
            float e0 = low ? ek_bf16_f32(p[0]) : 0, e1 = high ? ek_bf16_f32(p[1]) : 0, *o = r->o + i * r->ldo;
            for (int d = 0; d < r->dim; d++)
                o[d] = plain_pair(o[d], e0, plain_one(v0 + 2 * d, EK_TYPE_BF16), e1,
                                  plain_one(v1 + 2 * d, EK_TYPE_BF16));
        }
    }
}

#endif
