/* Attention in integers: the definition over one segment (contract: ops/attn/attn_int.h). */
#include "ops/attn/attn_int.h"

#include <math.h>

#include "ops/math.h"

void ek_attn_int_scores(ek_kv_format f, ek_attn_leaf *leaf)
{
    const int dim = leaf->head_dim;
    for (int i = 0; i < leaf->n_q; i++) {
        const int16_t *q = leaf->q_code + i * EK_CODE_STRIDE;
        for (int j = leaf->from[i]; j < leaf->to[i]; j++) {
            const uint8_t *k = leaf->k[j / EK_PAGE_TOKENS];
            const int slot = j % EK_PAGE_TOKENS;
            int sum = 0;
            for (int d = 0; d < dim; d++) sum += q[d] * ek_kv_int_key(f, k, d, slot);
            leaf->e[i * EK_SEGMENT + j] = (float)sum * *ek_kv_token_scale(f, k, dim, slot) * leaf->q_scale[i];
        }
    }
}

/* Codes of the weights of query i; returns 2^(E-13), and 0 if there are none. */
static float weigh(ek_kv_format f, ek_attn_leaf *leaf, int i, int *code)
{
    const float *e = leaf->e + i * EK_SEGMENT;
    float w[EK_SEGMENT], max = 0;
    int sum = 0, exponent;
    for (int j = leaf->from[i]; j < leaf->to[i]; j++) {
        const uint8_t *v = leaf->v[j / EK_PAGE_TOKENS];
        w[j] = e[j] * *ek_kv_token_scale(f, v, leaf->head_dim, j % EK_PAGE_TOKENS);
        max = w[j] > max ? w[j] : max;
        sum += (int)rintf(e[j] * (float)(1 << EK_SUM_BITS));
    }
    leaf->l[i] = (float)sum * (1.0f / (1 << EK_SUM_BITS));
    if (max < 0x1p-100f) return 0;
    frexpf(max, &exponent); /* E + 1 */
    const float unit = ek_ldexp(1, exponent - EK_WEIGHT_BITS), by = ek_ldexp(1, EK_WEIGHT_BITS - exponent);
    for (int j = leaf->from[i]; j < leaf->to[i]; j++) code[j] = (int)rintf(fminf(w[j] * by, EK_WEIGHT_CODE));
    return unit;
}

void ek_attn_int_values(ek_kv_format f, ek_attn_leaf *leaf)
{
    for (int i = 0; i < leaf->n_q; i++) {
        if (leaf->from[i] >= leaf->to[i]) continue;
        int code[EK_SEGMENT];
        const float unit = weigh(f, leaf, i, code);
        for (int d = 0; d < leaf->head_dim; d++) {
            int64_t sum = 0;
            for (int j = leaf->from[i]; j < leaf->to[i] && unit > 0; j++)
                sum += code[j] * ek_kv_int_value(f, leaf->v[j / EK_PAGE_TOKENS], leaf->head_dim, j % EK_PAGE_TOKENS, d);
            leaf->o[i * leaf->ldo + d] = (float)sum * unit;
        }
    }
}
