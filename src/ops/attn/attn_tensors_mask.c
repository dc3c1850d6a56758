/* The visible keys of a segment for a tile, as bits: causal, window and padding (the tile's ranges) and the mask. */
#include <string.h>

#include "ops/attn/attn_tensors_tile.h"

static uint64_t low_bits(int n) /* n in [0, 64] */
{
    return n >= 64 ? ~UINT64_C(0) : (UINT64_C(1) << n) - 1;
}

static int clamp(int64_t x, int max)
{
    return x < 0 ? 0 : x > max ? max : (int)x;
}

bool ek_attn_mask_at(const ek_attn_mask *m, const uint8_t *row, int64_t j, float *add)
{
    const uint8_t *at = row + j * m->key;
    *add = 0;
    if (m->bytes) return *at != 0;
    *add = ek_load_float(at, m->type);
    return !(*add <= -1e30f);
}

static const uint8_t *mask_row(const ek_tensors_call *c, const ek_tensors_tile *t, int i)
{
    return ek_attn_mask_row(&c->t->mask, t->b, ek_tensors_head(c, t, i), ek_tensors_row(c, t, i));
}

/* Every key is visible to every query. */
static void show_all(int n_q, ek_visible *v)
{
    memset(v->keys, 0xff, sizeof v->keys), memset(v->any, 0xff, sizeof v->any), memset(v->all, 0xff, sizeof v->all);
    for (int i = 0; i < n_q; i++) v->from[i] = 0, v->to[i] = EK_SEGMENT, v->holes[i] = false;
    v->live = (1u << n_q) - 1;
}

void ek_tensors_visible(const ek_tensors_call *c, const ek_tensors_tile *t, int64_t base, ek_visible *v)
{
    const int64_t slot0 = base + ek_tensors_start(c, t->b);
    const bool masked = c->t->mask.data != NULL;
    bool whole = !masked;
    for (int i = 0; i < t->n_q; i++) whole &= t->lo[i] <= slot0 && slot0 + EK_SEGMENT <= t->end[i];
    if (whole) { /* the usual case */
        show_all(t->n_q, v);
        return;
    }
    memset(v, 0, sizeof *v);
    memset(v->all, 0xff, sizeof v->all);
    for (int i = 0; i < t->n_q; i++) {
        const int from = clamp(t->lo[i] - slot0, EK_SEGMENT), to = clamp(t->end[i] - slot0, EK_SEGMENT);
        uint64_t *keys = v->keys[i];
        for (int w = 0; w < EK_SEGMENT_WORDS; w++)
            keys[w] = low_bits(clamp(to - w * 64, 64)) & ~low_bits(clamp(from - w * 64, 64));
        if (masked) {
            const uint8_t *row = mask_row(c, t, i);
            float add;
            for (int j = from; j < to; j++)
                if (!ek_attn_mask_at(&c->t->mask, row, base + j, &add)) keys[j / 64] &= ~(UINT64_C(1) << j % 64);
        }
        ek_visible_add(v, i);
    }
}

void ek_tensors_add_mask(const ek_tensors_call *c, const ek_tensors_tile *t, int64_t base, const ek_visible *v,
                         float *e)
{
    for (int i = 0; i < t->n_q; i++) {
        const uint8_t *row = mask_row(c, t, i);
        float add;
        for (int j = v->from[i]; j < v->to[i]; j++)
            if (ek_visible_at(v->keys[i], j)) {
                ek_attn_mask_at(&c->t->mask, row, base + j, &add);
                e[i * EK_SEGMENT + j] += add;
            }
    }
}
