/* One segment of 256 keys for a tile of queries: rows of views for the kernels of ops/attn_rows.h. */
#include <string.h>

#include "lib/sdpa.h"

/* Keys from one that is read to one that is fetched; in Form B they pass faster. */
enum { AHEAD = 2 * EK_SCORE_KEYS, AHEAD_PAIRS = 3 * EK_SCORE_KEYS };

/* ------------------------------------------------------------------ rows of keys and values */

static int64_t head_offset(const lib_view *v, const lib_tile *t)
{
    return t->b * v->stride[0] + t->kv_head * v->stride[1];
}

static const uint8_t *row_at(const lib_kv *x, const lib_tile *t, int64_t j)
{
    return x->dense.data + head_offset(&x->dense, t) + j * x->dense.stride[2];
}

/* Row j as f32. */
static void read_row(const lib_sdpa *s, const lib_kv *x, const lib_tile *t, int64_t j, float *to)
{
    if (!x->quantised) {
        lib_load(s->k, to, row_at(x, t, j), x->dense.type, lib_stride(&x->dense, 1), s->dim);
        return;
    }
    lib_matrix m = lib_matrix_of(&x->q, true);
    m.codes += head_offset(&x->q.codes, t);
    m.scales += head_offset(&x->q.scales, t);
    if (m.biases) m.biases += head_offset(&x->q.biases, t);
    lib_decode(s->k, &m, j, 0, s->dim, to);
}

/* Row j where kernels can read it: as f32, in Form B as it is. Returns the bytes of such a row. */
static ptrdiff_t copy_row(const lib_sdpa *s, const lib_kv *x, const lib_tile *t, int64_t j, int place,
                          lib_leaf_space *space)
{
    if (!s->pairs) {
        read_row(s, x, t, j, space->rows + (ptrdiff_t)place * s->dim);
        return (ptrdiff_t)sizeof(float) * s->dim;
    }
    uint16_t *to = (uint16_t *)space->rows + (ptrdiff_t)place * s->dim;
    const uint8_t *from = row_at(x, t, j);
    for (int d = 0; d < s->dim; d++) memcpy(to + d, from + d * lib_stride(&x->dense, 1), sizeof *to);
    return (ptrdiff_t)sizeof *to * s->dim;
}

static void score(const lib_sdpa *s, const lib_tile *t, int64_t base, const ek_visible *v, lib_leaf_space *space)
{
    ek_score_block b = {
        .type = s->keys.direct ? lib_dtype(s->keys.dense.type) : EK_F32, .dim = s->dim, .q = space->q, .n_q = t->n_q};
    ptrdiff_t copied = s->dim * (s->pairs ? (ptrdiff_t)sizeof(uint16_t) : (ptrdiff_t)sizeof(float));
    const int ahead = s->pairs ? AHEAD_PAIRS : AHEAD;
    b.q16 = space->q16, b.scale = s->scale;
    for (int j0 = 0; j0 < EK_SEGMENT; j0 += EK_SCORE_KEYS) {
        unsigned some = (unsigned)(v->any[j0 / 64] >> (j0 % 64)) & 0xffffu;
        if (!some) continue;
        int first = __builtin_ctz(some); /* stands in for keys that are hidden from all */
        const bool direct = some == 0xffffu && s->keys.direct;
        if (direct) b.key[0] = row_at(&s->keys, t, base + j0);
        for (int j = 1; j < EK_SCORE_KEYS && direct; j++) b.key[j] = b.key[j - 1] + s->keys.dense.stride[2];
        for (int j = 0; j < EK_SCORE_KEYS && !direct; j++) {
            int from = some >> j & 1 ? j : first;
            if (s->keys.direct) b.key[j] = row_at(&s->keys, t, base + j0 + from);
            else {
                b.key[j] = (const uint8_t *)space->rows + from * copied;
                if (from == j) copy_row(s, &s->keys, t, base + j0 + j, j, space);
            }
        }
        b.ahead = s->keys.direct && base + j0 + ahead < s->n_keys ? ahead * s->keys.dense.stride[2] : 0;
        b.e = space->e + j0;
        if (s->pairs) s->k->attn.scores_bf16(&b);
        else s->k->attn.scores(&b);
    }
}

/* The rows of values that are read behind EK_VALUES_AHEAD ones of a segment, as many as a segment has, if they lie one
 * after the other; their bytes. */
static ptrdiff_t values_ahead(const lib_sdpa *s, const lib_tile *t, int64_t base, const uint8_t **ahead)
{
    const lib_kv *x = &s->values;
    int64_t rows = s->n_keys - base - EK_VALUES_AHEAD, stride = 2 * s->dim;
    *ahead = NULL;
    if (!x->direct || x->dense.stride[2] != stride || base < 0) return 0;
    *ahead = row_at(x, t, base + (rows > 0 ? EK_VALUES_AHEAD : 0));
    return rows <= 0 ? 0 : (rows < EK_SEGMENT ? rows : EK_SEGMENT) * stride;
}

/* ------------------------------------------------------------------ values */

/* Keys [from, to) for queries [i, i + n_q). */
static void add_run(const lib_sdpa *s, const lib_tile *t, int64_t base, lib_leaf_space *space, const ek_attn_node *out,
                    int i, int n_q, int from, int to)
{
    const lib_kv *x = &s->values;
    ek_value_run r = {.type = EK_F32, .dim = s->dim, .n_q = n_q, .ldo = s->ldo, .o = out->o + i * s->ldo};
    for (int j = from, end; j < to; j = end) {
        if (x->direct) {
            r.v = row_at(x, t, base + j), r.stride = x->dense.stride[2], r.type = lib_dtype(x->dense.type);
            end = to;
        } else { /* whole pairs at a time */
            end = j / EK_SCORE_KEYS * EK_SCORE_KEYS + EK_SCORE_KEYS < to
                      ? j / EK_SCORE_KEYS * EK_SCORE_KEYS + EK_SCORE_KEYS
                      : to;
            for (int n = j; n < end; n++) r.stride = copy_row(s, x, t, base + n, n - j, space);
            r.v = (const uint8_t *)space->rows;
        }
        r.n_keys = end - j, r.slot = j;
        if (s->pairs && r.n_keys == EK_SEGMENT) {
            const ptrdiff_t early = n_q == EK_TILE ? EK_VALUES_EARLY * 2 * s->dim : 0,
                            bytes = values_ahead(s, t, base, &r.ahead);
            r.fresh = n_q == t->n_q;
            if (bytes > early) r.ahead += early, r.ahead_bytes = bytes - early;
        }
        r.e = space->e + i * EK_SEGMENT + j, r.p = space->p + i * EK_SEGMENT + j;
        if (s->pairs) s->k->attn.values_bf16(&r);
        else s->k->attn.values(&r);
    }
}

/* Whether slots [j, j + step) are visible to all queries, to some. */
static void visible_to(const ek_visible *v, int j, int step, bool *all, bool *some)
{
    *all = ek_visible_at(v->all, j) && ek_visible_at(v->all, j + step - 1);
    *some = ek_visible_at(v->any, j) || ek_visible_at(v->any, j + step - 1);
}

/* Keys that are visible to all queries in one go; the others query by query. Each query takes its keys in
 * ascending order; in Form B pairs of slots stay together. */
static void value(const lib_sdpa *s, const lib_tile *t, int64_t base, const ek_visible *v, lib_leaf_space *space,
                  const ek_attn_node *out)
{
    const int step = s->pairs ? 2 : 1;
    const bool whole = (v->all[0] & v->all[1] & v->all[2] & v->all[3]) == ~UINT64_C(0); /* the usual case */
    if (!whole || !s->pairs || !s->values.direct) memset(out->o, 0, sizeof *out->o * (size_t)(t->n_q * s->ldo));
    if (whole) {
        add_run(s, t, base, space, out, 0, t->n_q, 0, EK_SEGMENT);
        return;
    }
    for (int j = 0, end; j < EK_SEGMENT; j = end) {
        bool all, some, next_all, next_some;
        visible_to(v, j, step, &all, &some);
        for (end = j + step; end < EK_SEGMENT; end += step) {
            visible_to(v, end, step, &next_all, &next_some);
            if (next_all != all || next_some != some) break;
        }
        if (all) add_run(s, t, base, space, out, 0, t->n_q, j, end);
        else if (some)
            for (int i = 0; i < t->n_q; i++)
                for (int from = j, to; from < end; from = to) {
                    const bool visible = ek_visible_at(v->keys[i], from);
                    for (to = from + 1; to < end && ek_visible_at(v->keys[i], to) == visible;) to++;
                    if (visible) add_run(s, t, base, space, out, i, 1, from, to);
                }
    }
}

/* The first rows of a stretch of segments, which no segment before has fetched. Read in the order of memory they take
 * a fifth of the time that the kernels' order would take. */
static void touch(const lib_sdpa *s, const lib_kv *x, const lib_tile *t, int64_t base, int64_t n)
{
    const int64_t from = base < 0 ? 0 : base, to = base + n < s->n_keys ? base + n : s->n_keys;
    const int64_t bytes = s->dim * (int64_t)lib_type_size(x->dense.type);
    for (int64_t j = from; j < to; j++)
        for (int64_t at = 0; at < bytes; at += 64) (void)*(const volatile uint8_t *)(row_at(x, t, j) + at);
}

unsigned lib_leaf(const void *self, const ek_attn_tile *tile, int64_t seg, ek_attn_when when, ek_attn_space *x,
                  ek_attn_node *out)
{
    const lib_sdpa *s = self;
    const lib_tile at = lib_tile_of(s, tile), *t = &at;
    lib_leaf_space space = lib_leaf_space_of(s, x);
    const int64_t base = seg * EK_SEGMENT - s->key_start[t->b];
    ek_visible v;
    lib_find_visible(s, t, base, &v);
    if (!v.live) return 0;
    if (when.cold && s->keys.direct) touch(s, &s->keys, t, base, AHEAD_PAIRS);
    score(s, t, base, &v, &space);
    if (when.cold && s->values.direct) touch(s, &s->values, t, base, EK_VALUES_AHEAD);
    if (s->masked && s->mask.type != EK_TYPE_U8) lib_add_mask(s, t, base, &v, space.e);
    ek_attn_leaf leaf = {.n_q = t->n_q, .head_dim = s->dim, .e = space.e};
    const uint8_t *ahead = NULL;
    const ptrdiff_t bytes = s->pairs && t->n_q == EK_TILE ? values_ahead(s, t, base, &ahead) : 0;
    ek_attn_rows_weigh(&s->k->attn, &leaf, &v, s->pairs ? space.p : NULL, ahead, bytes);
    for (int i = 0; i < t->n_q; i++) out->m[i] = leaf.m[i], out->l[i] = leaf.l[i];
    value(s, t, base, &v, &space, out);
    return v.live;
}
