/* The definition of attention's kernels over rows of floats (contract: ops/attn/attn_rows.h). */
#include "ops/attn/attn_rows.h"

#include <math.h>
#include <string.h>

#include "base/machine/cpu.h"
#include "ops/bf16_step.h"
#include "ops/convert.h"
#include "ops/tree.h"
#include "ops/attn/x86/attn_x86.h"

static size_t size_of(ek_dtype t)
{
    return t == EK_F32 ? 4 : 2;
}

/* ------------------------------------------------------------------ Form A */

static float key_at(const ek_score_block *b, int j, int d)
{
    if (b->turned) return b->turned[d * EK_SCORE_KEYS + j];
    return ek_load_float(b->key[j] + (size_t)d * size_of(b->type), b->type);
}

static void scores(const ek_score_block *b)
{
    for (int i = 0; i < b->n_q; i++)
        for (int j = 0; j < EK_SCORE_KEYS; j++) {
            const float *q = b->q + i * EK_Q_STRIDE;
            float s = 0;
            for (int d0 = 0; d0 < b->dim; d0 += EK_CHAIN) {
                float chain = 0;
                for (int d = d0; d < b->dim && d < d0 + EK_CHAIN; d++) chain = fmaf(q[d], key_at(b, j, d), chain);
                s = d0 ? s + chain : chain;
            }
            b->e[i * EK_SEGMENT + j] = s;
        }
}

static void values(const ek_value_run *r)
{
    for (int i = 0; i < r->n_q; i++)
        for (int j = 0; j < r->n_keys; j++) {
            const uint8_t *v = r->v + j * r->stride;
            float e = r->e[i * EK_SEGMENT + j], *o = r->o + i * r->ldo;
            for (int d = 0; d < r->dim; d++)
                o[d] = fmaf(e, ek_load_float(v + (size_t)d * size_of(r->type), r->type), o[d]);
        }
}

/* ------------------------------------------------------------------ Form B */

static void scores_bf16(const ek_score_block *b)
{
    for (int i = 0; i < b->n_q; i++)
        for (int j = 0; j < EK_SCORE_KEYS; j++) {
            float lane[EK_LANES] = {0};
            for (int d = 0; d < (b->dim + 31) / 32 * 32; d += 2) {
                const uint8_t *k = b->key[j] + 2 * (size_t)d;
                const uint16_t *q = b->q16 + ek_q16(i, d);
                const float k0 = d < b->dim ? ek_load_float(k, EK_BF16) : 0,
                            k1 = d + 1 < b->dim ? ek_load_float(k + 2, EK_BF16) : 0;
                float *sum = &lane[d / 2 % EK_LANES];
                *sum = ek_bf16_pair(*sum, ek_bf16_f32(q[0]), k0, ek_bf16_f32(q[1]), k1);
            }
            b->e[i * EK_SEGMENT + j] = ek_add_lanes(lane) * b->scale;
        }
}

static void round_bf16(float *e, uint16_t *p, int from, int to, float *l)
{
    float lane[EK_LANES] = {0};
    for (int j = from; j < to; j++) {
        p[j] = ek_f32_bf16(e[j]);
        e[j] = ek_bf16_f32(p[j]);
        lane[j % EK_LANES] += e[j];
    }
    *l = ek_add_lanes(lane);
}

static void values_bf16(const ek_value_run *r)
{
    static const uint16_t absent[EK_MAX_HEAD_DIM];
    for (int i = 0; i < r->n_q; i++) {
        float *o = r->o + i * r->ldo;
        if (r->fresh) memset(o, 0, sizeof *o * (size_t)r->ldo);
        for (int j = -(r->slot & 1); j < r->n_keys; j += 2) { /* slot + j is even */
            const bool first = j >= 0, second = j + 1 < r->n_keys;
            const uint8_t *v0 = first ? r->v + j * r->stride : (const uint8_t *)absent;
            const uint8_t *v1 = second ? r->v + (j + 1) * r->stride : (const uint8_t *)absent;
            const uint16_t *p = r->p + i * EK_SEGMENT + j;
            const float e0 = first ? ek_bf16_f32(p[0]) : 0, e1 = second ? ek_bf16_f32(p[1]) : 0;
            for (int d = 0; d < r->dim; d++)
                o[d] = ek_bf16_pair(o[d], e0, ek_load_float(v0 + 2 * d, EK_BF16), e1,
                                    ek_load_float(v1 + 2 * d, EK_BF16));
        }
    }
}

/* ------------------------------------------------------------------ table */

void ek_attn_rows_init(ek_attn_rows_ops *ops, unsigned cpu)
{
    ek_attn_ops attn;
    ek_attn_init(&attn, cpu);
    *ops = (ek_attn_rows_ops){.scores = scores,
                              .weights = attn.weights,
                              .values = values,
                              .combine = attn.combine,
                              .scores_bf16 = scores_bf16,
                              .round_bf16 = round_bf16,
                              .values_bf16 = values_bf16};
#if defined(__x86_64__)
    if (cpu & EK_CPU_AVX2) ek_attn_rows_table_avx2(ops);
    if (cpu & EK_CPU_AVX512) ek_attn_rows_table_avx512(ops);
    if (cpu & EK_CPU_BF16) ek_attn_rows_table_bf16(ops);
#endif
}
