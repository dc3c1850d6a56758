/* The definitions of attention's inner loops, plain. attn_kernels.c instantiates them for any machine;
 * files of x86/ use them where a vector does not fit. */
#ifndef EK_LIB_ATTN_PLAIN_H
#define EK_LIB_ATTN_PLAIN_H

#include <math.h>
#include <string.h>

#include "lib/attn_kernels.h"
#include "ops/convert.h"

#define PLAIN static inline __attribute__((always_inline, unused))

/* One element of a float type. */
PLAIN float plain_one(const uint8_t *from, ek_type t)
{
    return ek_load_float(from, (ek_dtype)t); /* the same numbers: lib/kernels.h */
}

PLAIN void plain_scores(const lib_score_block *b)
{
    size_t size = b->type == EK_TYPE_F32 ? 4 : 2;
    for (int i = 0; i < b->n_q; i++)
        for (int j = 0; j < LIB_KEYS; j++) {
            const float *q = b->q + i * EK_Q_STRIDE;
            float s = 0;
            for (int d0 = 0; d0 < b->dim; d0 += EK_CHAIN) {
                float chain = 0;
                for (int d = d0; d < b->dim && d < d0 + EK_CHAIN; d++)
                    chain = fmaf(q[d], plain_one(b->key[j] + (size_t)d * size, b->type), chain);
                s = d0 ? s + chain : chain;
            }
            b->e[i * EK_SEGMENT + j] = s;
        }
}

PLAIN void plain_values(const lib_value_run *r)
{
    size_t size = r->type == EK_TYPE_F32 ? 4 : 2;
    for (int i = 0; i < r->n_q; i++)
        for (int j = 0; j < r->n_keys; j++) {
            const uint8_t *v = r->v + j * r->stride;
            float e = r->e[i * EK_SEGMENT + j], *o = r->o + i * r->ldo;
            for (int d = 0; d < r->dim; d++) o[d] = fmaf(e, plain_one(v + (size_t)d * size, r->type), o[d]);
        }
}

#endif
