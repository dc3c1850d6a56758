/* The definition of attention's kernels over rows of floats, and weights of a segment with hidden keys (contract:
 * ops/attn/attn_rows.h). */
#include "ops/attn/attn_rows.h"

#include <math.h>
#include <string.h>

#include "base/machine/cpu.h"
#include "ops/bf16_step.h"
#include "ops/convert.h"
#include "ops/math.h"
#include "ops/tree.h"

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

/* ------------------------------------------------------------------ weights with hidden keys */

void ek_visible_add(ek_visible *v, int i)
{
    const uint64_t *keys = v->keys[i];
    int n = 0, first = -1, last = -1;
    for (int w = 0; w < EK_SEGMENT_WORDS; w++) {
        if (!keys[w]) continue;
        n += keys[w] == ~UINT64_C(0) ? 64 : __builtin_popcountll(keys[w]);
        if (first < 0) first = w * 64 + __builtin_ctzll(keys[w]);
        last = w * 64 + 63 - __builtin_clzll(keys[w]);
    }
    v->from[i] = v->to[i] = 0, v->holes[i] = false;
    if (n == 0) return;
    v->from[i] = first, v->to[i] = last + 1;
    v->holes[i] = n != last + 1 - first;
    v->live |= 1u << i;
    for (int w = 0; w < EK_SEGMENT_WORDS; w++) v->any[w] |= keys[w], v->all[w] &= keys[w];
}

/* Gives hidden keys between visible ones the lowest possible score. Their weight is then +0, because their exponent is
 * far below that of any visible key. */
static void hide(const ek_visible *v, int n_q, float *e)
{
    for (int i = 0; i < n_q; i++)
        if (v->holes[i])
            for (int j = v->from[i]; j < v->to[i]; j++)
                if (!ek_visible_at(v->keys[i], j)) e[i * EK_SEGMENT + j] = -INFINITY;
}

/* If the visible keys have that score too, all weights are equal, and the hidden keys are removed here. */
static void hide_again(const ek_visible *v, ek_attn_segment *segment, uint16_t *p)
{
    int lowest;
    ek_exp_split(-INFINITY, &lowest);
    for (int i = 0; i < segment->n_q; i++) {
        if (!v->holes[i] || segment->m[i] > lowest) continue;
        float *e = segment->e + i * EK_SEGMENT, lane[EK_LANES] = {0};
        for (int j = v->from[i]; j < v->to[i]; j++) {
            if (ek_visible_at(v->keys[i], j)) lane[j % EK_LANES] += e[j];
            else {
                e[j] = 0;
                if (p) p[i * EK_SEGMENT + j] = 0;
            }
        }
        segment->l[i] = ek_add_lanes(lane);
    }
}

static void weigh_bf16(const ek_attn_rows_ops *ops, ek_attn_segment *segment, int i, uint16_t *p)
{
    float *e = segment->e + i * EK_SEGMENT;
    const int from = segment->from[i], to = segment->to[i];
    if (ops->weights_bf16) {
        ops->weights_bf16(e, p, from, to, &segment->m[i], &segment->l[i]);
        return;
    }
    ek_attn_segment one = {.n_q = 1, .head_dim = segment->head_dim, .from = {from}, .to = {to}, .e = e};
    ops->weights(&one);
    segment->m[i] = one.m[0];
    ops->round_bf16(e, p, from, to, &segment->l[i]);
}

void ek_attn_rows_weigh(const ek_attn_rows_ops *ops, ek_attn_segment *segment, const ek_visible *v, uint16_t *p,
                        const uint8_t *ahead, ptrdiff_t ahead_bytes)
{
    const ptrdiff_t share = EK_VALUES_EARLY / EK_TILE * 2 *
                            segment->head_dim; /* per query, so that the memory is busy meanwhile */
    hide(v, segment->n_q, segment->e);
    memcpy(segment->from, v->from, sizeof v->from);
    memcpy(segment->to, v->to, sizeof v->to);
    if (!p) ops->weights(segment);
    for (int i = 0; p && i < segment->n_q; i++) {
        for (ptrdiff_t at = i * share; ahead && at < ahead_bytes && at < (i + 1) * share; at += 64)
            __builtin_prefetch(ahead + at, 0, 2);
        if (v->live >> i & 1) weigh_bf16(ops, segment, i, p + i * EK_SEGMENT);
    }
    hide_again(v, segment, p);
    for (int i = 0; i < segment->n_q; i++) {
        if (v->live >> i & 1) continue;
        memset(segment->e + i * EK_SEGMENT, 0, sizeof *segment->e * EK_SEGMENT);
        if (p) memset(p + i * EK_SEGMENT, 0, sizeof *p * EK_SEGMENT);
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
