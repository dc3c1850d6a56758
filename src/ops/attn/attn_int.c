/* Attention in integers: the definition over one segment (contract: ops/attn/attn_int.h). */
#include "ops/attn/attn_int.h"

#include <math.h>
#include <string.h>

#include "ops/math.h"

void ek_attn_int_scores(ek_kv_format f, ek_attn_segment *segment)
{
    const int dim = segment->head_dim;
    for (int i = 0; i < segment->n_q; i++) {
        const int16_t *q = segment->q_code + i * EK_CODE_STRIDE;
        for (int j = segment->from[i]; j < segment->to[i]; j++) {
            const uint8_t *k = segment->k[j / EK_PAGE_TOKENS];
            const int slot = j % EK_PAGE_TOKENS;
            uint32_t sum = 0;
            for (int d = 0; d < dim; d++) sum += (uint32_t)(q[d] * ek_kv_int_key(f, k, d, slot));
            segment->e[i * EK_SEGMENT + j] = (float)(int32_t)sum * *ek_kv_token_scale(f, k, dim, slot) *
                                             segment->q_scale[i];
        }
    }
}

/* The exponent E of W >= 2^-100; 128 if W is infinite. */
static int exponent_of(float w)
{
    uint32_t bits;
    memcpy(&bits, &w, sizeof bits);
    return (int)(bits >> 23) - 127;
}

float ek_attn_int_weigh(ek_kv_format f, ek_attn_segment *segment, int i, int *code)
{
    const float *e = segment->e + i * EK_SEGMENT;
    float w[EK_SEGMENT], max = 0;
    int sum = 0;
    for (int j = segment->from[i]; j < segment->to[i]; j++) {
        const uint8_t *v = segment->v[j / EK_PAGE_TOKENS];
        w[j] = e[j] * *ek_kv_token_scale(f, v, segment->head_dim, j % EK_PAGE_TOKENS);
        w[j] = w[j] < 0 ? 0 : w[j];
        max = w[j] > max ? w[j] : max; /* not NaN */
        sum += (int)rintf(e[j] * (float)(1 << EK_SUM_BITS));
    }
    segment->l[i] = (float)sum * (1.0f / (1 << EK_SUM_BITS));
    if (max < 0x1p-100f) return 0;
    const int below = exponent_of(max) - (EK_WEIGHT_BITS - 1);
    const float unit = ek_ldexp(1, below), by = ek_ldexp(1, -below);
    for (int j = segment->from[i]; j < segment->to[i]; j++) code[j] = (int)rintf(fminf(w[j] * by, EK_WEIGHT_CODE));
    return unit;
}

void ek_attn_int_values(ek_kv_format f, ek_attn_segment *segment)
{
    for (int i = 0; i < segment->n_q; i++) {
        if (segment->from[i] >= segment->to[i]) continue;
        int code[EK_SEGMENT];
        const float unit = ek_attn_int_weigh(f, segment, i, code);
        for (int d = 0; d < segment->head_dim; d++) {
            int64_t sum = 0;
            uint32_t low = 0; /* of the sum so far, with the page's products */
            for (int j = segment->from[i]; j < segment->to[i] && unit > 0; j++) {
                low += (uint32_t)(code[j] * ek_kv_int_value(f, segment->v[j / EK_PAGE_TOKENS], segment->head_dim,
                                                            j % EK_PAGE_TOKENS, d));
                if ((j + 1) % EK_PAGE_TOKENS && j + 1 < segment->to[i]) continue;
                sum += (int32_t)low >> 16;
                low &= 0xffff;
            }
            segment->o[i * segment->ldo + d] = (float)(sum * 65536 + low) * unit;
        }
    }
}
