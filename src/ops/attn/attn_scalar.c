/* The definition of attention over one segment (contract: ops/attn/attn.h). */
#include <math.h>
#include <stdbool.h>

#include "ops/attn/attn_int.h"
#include "base/machine/cpu.h"
#include "ops/attn/attn_kernels.h"
#include "ops/kv/kv_codec.h"
#include "ops/math.h"
#include "ops/tree.h"

/* --- in integers (contract: ops/attn/attn_int.h) --- */

static void int_scores(ek_kv_format f, ek_attn_segment *segment)
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
    return (int)(ek_f32_bits(w) >> 23) - 127;
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

static void int_values(ek_kv_format f, ek_attn_segment *segment)
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

/* --- in floats, and every format --- */

static inline float score(ek_kv_format f, const float *q, const uint8_t *k, int slot, int head_dim)
{
    float s = 0;
    for (int d0 = 0; d0 < head_dim; d0 += EK_CHAIN) {
        float chain = 0;
        for (int d = d0; d < head_dim && d < d0 + EK_CHAIN; d++)
            chain = fmaf(q[d], ek_kv_key_term(f, k, head_dim, d, slot), chain);
        s = d0 ? s + chain : chain;
    }
    return s * ek_kv_term_scale(f, k, head_dim, slot);
}

static inline void scores(ek_kv_format f, ek_attn_segment *segment)
{
    if (ek_kv_rotated(f)) {
        int_scores(f, segment);
        return;
    }
    for (int i = 0; i < segment->n_q; i++)
        for (int j = segment->from[i]; j < segment->to[i]; j++)
            segment->e[i * EK_SEGMENT + j] = score(f, segment->q + i * EK_Q_STRIDE, segment->k[j / EK_PAGE_TOKENS],
                                                   j % EK_PAGE_TOKENS, segment->head_dim);
}

static void weights(ek_attn_segment *segment)
{
    for (int i = 0; i < segment->n_q; i++) {
        float *e = segment->e + i * EK_SEGMENT, lane[16] = {0};
        int n, m = INT32_MIN;
        for (int j = segment->from[i]; j < segment->to[i]; j++) {
            ek_exp_split(e[j], &n);
            if (n > m) m = n;
        }
        for (int j = segment->from[i]; j < segment->to[i]; j++) {
            float p = ek_exp_split(e[j], &n);
            e[j] = n - m < -125 ? 0.0f : ek_ldexp(p, n - m);
            lane[j % 16] += e[j];
        }
        segment->m[i] = m, segment->l[i] = ek_add_lanes(lane);
    }
}

static inline void values(ek_kv_format f, ek_attn_segment *segment)
{
    if (ek_kv_rotated(f)) {
        int_values(f, segment);
        return;
    }
    for (int i = 0; i < segment->n_q; i++)
        for (int d = 0; d < segment->head_dim; d++) {
            float o = 0;
            for (int j = segment->from[i]; j < segment->to[i]; j++) {
                const uint8_t *v = segment->v[j / EK_PAGE_TOKENS];
                int slot = j % EK_PAGE_TOKENS;
                float e = segment->e[i * EK_SEGMENT + j] * ek_kv_term_scale(f, v, segment->head_dim, slot);
                o = fmaf(e, ek_kv_value_term(f, v, segment->head_dim, slot, d), o);
            }
            segment->o[i * segment->ldo + d] = o;
        }
}

static void combine(float *b, const float *a, float fb, float fa, int n)
{
    for (int i = 0; i < n; i++) b[i] = a[i] * fa + b[i] * fb;
}

static inline bool loads(ek_kv_format f)
{
    (void)f;
    return true;
}

EK_KV_FORMATS(EK_ATTN_KERNELS)

void ek_attn_init(ek_attn_ops *ops, unsigned cpu)
{
    *ops = (ek_attn_ops){EK_KV_FORMATS(EK_ATTN_ENTRIES).weights = weights, .combine = combine, .encode = ek_attn_encode,
                         .rotate_back = ek_attn_rotate_back};
#if defined(__x86_64__)
    if (cpu & EK_CPU_AVX2) ek_attn_table_avx2(ops);
    if (cpu & EK_CPU_AVXVNNI) ek_attn_table_avxvnni(ops);
    if (cpu & EK_CPU_AVX512) ek_attn_table_avx512(ops);
    if (cpu & EK_CPU_ZEN4) ek_attn_table_zen4_avx512(ops);
    if (cpu & EK_CPU_AMX) ek_attn_table_amx(ops);
#elif defined(__aarch64__)
    if (cpu & EK_CPU_DOTPROD) ek_attn_table_dotprod(ops);
    if (cpu & EK_CPU_I8MM) ek_attn_table_i8mm(ops);
#else
    (void)cpu;
#endif
}
