/* One segment of 256 keys for a tile of queries: rows of tensors for the kernels of attn_rows.h. */
#include <string.h>

#include "ops/attn/attn_tensors_tile.h"

/* Distance in keys between reading and prefetching; in Form B keys are read faster. */
enum { AHEAD = 2 * EK_SCORE_KEYS, AHEAD_PAIRS = 3 * EK_SCORE_KEYS };

/* ------------------------------------------------------------------ rows of keys and values */

static const uint8_t *row_at(const ek_attn_operand *x, const ek_tensors_tile *t, int64_t j)
{
    return x->at.data + t->b * x->at.entry + t->kv_head * x->at.head + j * x->at.row;
}

/* Copies row j into a form that kernels read: f32, in Form B unchanged. Returns the bytes of such a row. */
static ptrdiff_t copy_row(const ek_tensors_call *c, const ek_attn_operand *x, const ek_tensors_tile *t, int64_t j,
                          int place, ek_tensors_space *space)
{
    const int dim = c->t->dim;
    if (!c->t->pairs) {
        float *to = space->rows + (ptrdiff_t)place * dim;
        if (x->read) x->read(x->self, t->b, t->kv_head, j, to);
        else ek_tensors_load(c->t, &x->at, row_at(x, t, j), to);
        return (ptrdiff_t)sizeof(float) * dim;
    }
    uint16_t *to = (uint16_t *)space->rows + (ptrdiff_t)place * dim;
    const uint8_t *from = row_at(x, t, j);
    for (int d = 0; d < dim; d++) memcpy(to + d, from + d * x->at.element, sizeof *to);
    return (ptrdiff_t)sizeof *to * dim;
}

/* The block of 16 turned keys from j on. */
static const float *block_at(const ek_attn_operand *x, const ek_tensors_tile *t, int64_t j, int dim)
{
    return (const float *)(x->at.data + t->b * x->at.entry + t->kv_head * x->at.head) + j * dim;
}

static void score(const ek_tensors_call *c, const ek_tensors_tile *t, int64_t base, const ek_visible *v,
                  ek_tensors_space *space)
{
    ek_score_block b = {.type = c->k_direct ? c->t->k.at.type : EK_F32, .dim = c->t->dim, .q = space->q, .n_q = t->n_q};
    ptrdiff_t copied = c->t->dim * (c->t->pairs ? (ptrdiff_t)sizeof(uint16_t) : (ptrdiff_t)sizeof(float));
    const int ahead = c->t->pairs ? AHEAD_PAIRS : AHEAD;
    b.q16 = space->q16, b.scale = c->t->scale;
    for (int j0 = 0; j0 < EK_SEGMENT; j0 += EK_SCORE_KEYS) {
        unsigned some = (unsigned)(v->any[j0 / 64] >> (j0 % 64)) & 0xffffu;
        if (!some) continue;
        if (c->t->k.turned) {
            b.turned = block_at(&c->t->k, t, base + j0, c->t->dim);
            b.e = space->e + j0;
            c->t->attn->scores(&b);
            continue;
        }
        int first = __builtin_ctz(some); /* used in place of keys that are hidden from all queries */
        const bool direct = some == 0xffffu && c->k_direct;
        if (direct) b.key[0] = row_at(&c->t->k, t, base + j0);
        for (int j = 1; j < EK_SCORE_KEYS && direct; j++) b.key[j] = b.key[j - 1] + c->t->k.at.row;
        for (int j = 0; j < EK_SCORE_KEYS && !direct; j++) {
            int from = some >> j & 1 ? j : first;
            if (c->k_direct) b.key[j] = row_at(&c->t->k, t, base + j0 + from);
            else {
                b.key[j] = (const uint8_t *)space->rows + from * copied;
                if (from == j) copy_row(c, &c->t->k, t, base + j0 + j, j, space);
            }
        }
        b.ahead = c->k_direct && base + j0 + ahead < c->t->keys ? ahead * c->t->k.at.row : 0;
        b.e = space->e + j0;
        if (c->t->pairs) c->t->attn->scores_bf16(&b);
        else c->t->attn->scores(&b);
    }
}

/* The rows of values that follow EK_VALUES_AHEAD rows of a segment, as many as a segment has, if they are adjacent;
 * returns their bytes. */
static ptrdiff_t values_ahead(const ek_tensors_call *c, const ek_tensors_tile *t, int64_t base, const uint8_t **ahead)
{
    const ek_attn_operand *x = &c->t->v;
    int64_t rows = c->t->keys - base - EK_VALUES_AHEAD, stride = 2 * c->t->dim;
    *ahead = NULL;
    if (!c->v_direct || x->at.row != stride || base < 0) return 0;
    *ahead = row_at(x, t, base + (rows > 0 ? EK_VALUES_AHEAD : 0));
    return rows <= 0 ? 0 : (rows < EK_SEGMENT ? rows : EK_SEGMENT) * stride;
}

/* ------------------------------------------------------------------ values */

/* Keys [from, to) for queries [i, i + n_q). */
static void add_run(const ek_tensors_call *c, const ek_tensors_tile *t, int64_t base, ek_tensors_space *space,
                    const ek_attn_node *out, int i, int n_q, int from, int to)
{
    const ek_attn_operand *x = &c->t->v;
    ek_value_run r = {.type = EK_F32, .dim = c->t->dim, .n_q = n_q, .ldo = c->ldo, .o = out->o + i * c->ldo};
    for (int j = from, end; j < to; j = end) {
        if (c->v_direct) {
            r.v = row_at(x, t, base + j), r.stride = x->at.row, r.type = x->at.type;
            end = to;
        } else { /* whole pairs at a time */
            end = j / EK_SCORE_KEYS * EK_SCORE_KEYS + EK_SCORE_KEYS < to
                      ? j / EK_SCORE_KEYS * EK_SCORE_KEYS + EK_SCORE_KEYS
                      : to;
            for (int n = j; n < end; n++) r.stride = copy_row(c, x, t, base + n, n - j, space);
            r.v = (const uint8_t *)space->rows;
        }
        r.n_keys = end - j, r.slot = j;
        if (c->t->pairs && r.n_keys == EK_SEGMENT) {
            const ptrdiff_t early = n_q == EK_TILE ? EK_VALUES_EARLY * 2 * c->t->dim : 0,
                            bytes = values_ahead(c, t, base, &r.ahead);
            r.fresh = n_q == t->n_q;
            if (bytes > early) r.ahead += early, r.ahead_bytes = bytes - early;
        }
        r.e = space->e + i * EK_SEGMENT + j, r.p = space->p + i * EK_SEGMENT + j;
        if (c->t->pairs) c->t->attn->values_bf16(&r);
        else c->t->attn->values(&r);
    }
}

/* Whether slots [j, j + step) are visible to all queries, and to some. */
static void visible_to(const ek_visible *v, int j, int step, bool *all, bool *some)
{
    *all = ek_visible_at(v->all, j) && ek_visible_at(v->all, j + step - 1);
    *some = ek_visible_at(v->any, j) || ek_visible_at(v->any, j + step - 1);
}

/* Keys that are visible to all queries in one go; the others query by query. Each query takes its keys in
 * ascending order; in Form B pairs of slots stay together. */
static void value(const ek_tensors_call *c, const ek_tensors_tile *t, int64_t base, const ek_visible *v,
                  ek_tensors_space *space, const ek_attn_node *out)
{
    const int step = c->t->pairs ? 2 : 1;
    const bool whole = (v->all[0] & v->all[1] & v->all[2] & v->all[3]) == ~UINT64_C(0); /* the usual case */
    if (!whole || !c->t->pairs || !c->v_direct) memset(out->o, 0, sizeof *out->o * (size_t)(t->n_q * c->ldo));
    if (whole) {
        add_run(c, t, base, space, out, 0, t->n_q, 0, EK_SEGMENT);
        return;
    }
    for (int j = 0, end; j < EK_SEGMENT; j = end) {
        bool all, some, next_all, next_some;
        visible_to(v, j, step, &all, &some);
        for (end = j + step; end < EK_SEGMENT; end += step) {
            visible_to(v, end, step, &next_all, &next_some);
            if (next_all != all || next_some != some) break;
        }
        if (all) add_run(c, t, base, space, out, 0, t->n_q, j, end);
        else if (some)
            for (int i = 0; i < t->n_q; i++)
                for (int from = j, to; from < end; from = to) {
                    const bool visible = ek_visible_at(v->keys[i], from);
                    for (to = from + 1; to < end && ek_visible_at(v->keys[i], to) == visible;) to++;
                    if (visible) add_run(c, t, base, space, out, i, 1, from, to);
                }
    }
}

/* Prefetches the first rows of a run of segments, which no earlier segment has prefetched. Read in memory order they
 * take a fifth of the time of the kernels' order. */
static void touch(const ek_tensors_call *c, const ek_attn_operand *x, const ek_tensors_tile *t, int64_t base, int64_t n)
{
    const int64_t from = base < 0 ? 0 : base, to = base + n < c->t->keys ? base + n : c->t->keys;
    const int64_t bytes = c->t->dim * (int64_t)ek_dtype_size(x->at.type);
    for (int64_t j = from; j < to; j++)
        for (int64_t at = 0; at < bytes; at += 64) (void)*(const volatile uint8_t *)(row_at(x, t, j) + at);
}

unsigned ek_tensors_segment(const void *self, const ek_attn_tile *tile, int64_t seg, ek_attn_when when,
                            ek_attn_space *x, ek_attn_node *out)
{
    const ek_tensors_call *c = self;
    const ek_tensors_tile at = ek_tensors_tile_of(c, tile), *t = &at;
    ek_tensors_space space = ek_tensors_space_of(c, x);
    const int64_t base = seg * EK_SEGMENT - ek_tensors_start(c, t->b);
    ek_visible v;
    ek_tensors_visible(c, t, base, &v);
    if (!v.live) return 0;
    if (when.cold && c->k_direct) touch(c, &c->t->k, t, base, AHEAD_PAIRS);
    score(c, t, base, &v, &space);
    if (when.cold && c->v_direct) touch(c, &c->t->v, t, base, EK_VALUES_AHEAD);
    if (c->t->mask.data && !c->t->mask.bytes) ek_tensors_add_mask(c, t, base, &v, space.e);
    ek_attn_segment segment = {.n_q = t->n_q, .head_dim = c->t->dim, .e = space.e};
    const uint8_t *ahead = NULL;
    const ptrdiff_t bytes = c->t->pairs && t->n_q == EK_TILE ? values_ahead(c, t, base, &ahead) : 0;
    ek_attn_rows_weigh(c->t->attn, &segment, &v, c->t->pairs ? space.p : NULL, ahead, bytes);
    for (int i = 0; i < t->n_q; i++) out->m[i] = segment.m[i], out->l[i] = segment.l[i];
    value(c, t, base, &v, &space, out);
    return v.live;
}
