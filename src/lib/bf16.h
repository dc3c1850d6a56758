/* Form B of attention: scores, weights and values over bf16 tensors, in the steps of ops/bf16_step.h.
 *
 * score   16 lanes; lane i takes the pair of dims (32 n + 2 i, 32 n + 2 i + 1) for n = 0, 1, … from +0,
 *         dims behind the last count as zeros; the lanes are added 8, 4, 2, 1 apart; times the scale
 * weight  as elsewhere (ops/attn.h), then rounded to bf16, to nearest even; l sums the rounded ones
 * value   pairs of slots (2j, 2j + 1) of the segment in ascending order; a pair of which the query
 *         sees neither is no step */
#ifndef EK_LIB_BF16_H
#define EK_LIB_BF16_H

#include <string.h>

#include "lib/attn_plain.h"
#include "ops/bf16_step.h"
#include "ops/tree.h"

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
                lane[d / 2 % 16] = ek_bf16_pair(lane[d / 2 % 16], ek_bf16_f32(q[0]), k0, ek_bf16_f32(q[1]), k1);
            }
            b->e[i * EK_SEGMENT + j] = ek_add_lanes(lane) * b->scale;
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
    *l = ek_add_lanes(lane);
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
                o[d] = ek_bf16_pair(o[d], e0, plain_one(v0 + 2 * d, EK_TYPE_BF16), e1,
                                    plain_one(v1 + 2 * d, EK_TYPE_BF16));
        }
    }
}

#endif
