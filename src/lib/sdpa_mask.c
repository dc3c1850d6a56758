/* The visible keys of a segment for a tile, as bits: causal, window and padding (the tile's ranges) and the mask. */
#include <string.h>

#include "lib/sdpa.h"

static uint64_t low_bits(int n) /* n in [0, 64] */
{
    return n >= 64 ? ~UINT64_C(0) : (UINT64_C(1) << n) - 1;
}

static int clamp(int64_t x, int max)
{
    return x < 0 ? 0 : x > max ? max : (int)x;
}

bool lib_mask_at(const lib_view *mask, const uint8_t *row, int64_t j, float *add)
{
    const uint8_t *at = row + j * lib_stride(mask, 1);
    *add = 0;
    if (mask->type == EK_TYPE_U8) return *at != 0;
    *add = lib_float_at(at, mask->type);
    return !(*add <= -1e30f);
}

static const uint8_t *mask_row(const lib_sdpa *s, const lib_tile *t, int i)
{
    const lib_view *m = &s->mask;
    return m->data + t->b * m->stride[0] + lib_query_head(s, t, i) * m->stride[1] +
           lib_query_row(s, t, i) * m->stride[2];
}

/* Every key is visible to every query. */
static void show_all(int n_q, ek_visible *v)
{
    memset(v->keys, 0xff, sizeof v->keys), memset(v->any, 0xff, sizeof v->any), memset(v->all, 0xff, sizeof v->all);
    for (int i = 0; i < n_q; i++) v->from[i] = 0, v->to[i] = EK_SEGMENT, v->holes[i] = false;
    v->live = (1u << n_q) - 1;
}

void lib_find_visible(const lib_sdpa *s, const lib_tile *t, int64_t base, ek_visible *v)
{
    const int64_t slot0 = base + s->key_start[t->b];
    bool whole = !s->masked;
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
        if (s->masked) {
            const uint8_t *row = mask_row(s, t, i);
            float add;
            for (int j = from; j < to; j++)
                if (!lib_mask_at(&s->mask, row, base + j, &add)) keys[j / 64] &= ~(UINT64_C(1) << j % 64);
        }
        ek_visible_add(v, i);
    }
}

void lib_add_mask(const lib_sdpa *s, const lib_tile *t, int64_t base, const ek_visible *v, float *e)
{
    for (int i = 0; i < t->n_q; i++) {
        const uint8_t *row = mask_row(s, t, i);
        float add;
        for (int j = v->from[i]; j < v->to[i]; j++)
            if (ek_visible_at(v->keys[i], j)) {
                lib_mask_at(&s->mask, row, base + j, &add);
                e[i * EK_SEGMENT + j] += add;
            }
    }
}
