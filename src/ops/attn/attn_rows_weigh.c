/* Weights of a segment in which some keys may be hidden (contract: ops/attn/attn_rows.h). */
#include <math.h>
#include <string.h>

#include "ops/attn/attn_rows.h"
#include "ops/math.h"
#include "ops/tree.h"

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
