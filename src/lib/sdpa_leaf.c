/* One segment of 256 keys for a tile of queries (contract: ops/attn.h; masks: evenkeel_ops.h). */
#include <math.h>
#include <string.h>

#include "lib/attn_plain.h"
#include "lib/sdpa.h"
#include "ops/math.h"
#include "ops/tree.h"

/* Keys from one that is read to one that is fetched; in Form B they pass faster. */
enum { AHEAD = 2 * LIB_KEYS, AHEAD_PAIRS = 3 * LIB_KEYS };

typedef struct visible {
    uint64_t see[EK_TILE][LIB_WORDS];        /* keys of the segment, a bit each */
    uint64_t any[LIB_WORDS], all[LIB_WORDS]; /* of the queries that see any */
    int from[EK_TILE], to[EK_TILE];
    bool holes[EK_TILE];
    unsigned live; /* queries that see any */
} visible;

static inline bool bit(const uint64_t *set, int j)
{
    return set[j / 64] >> (j % 64) & 1;
}

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
    *add = plain_one(at, mask->type);
    return !(*add <= -1e30f);
}

static const uint8_t *mask_row(const lib_sdpa *s, const lib_tile *t, int i)
{
    const lib_view *m = &s->mask;
    return m->data + t->b * m->stride[0] + lib_query_head(s, t, i) * m->stride[1] +
           lib_query_row(s, t, i) * m->stride[2];
}

/* What the queries see of the segment whose slot 0 is key `base`, which may be negative. */
static void find_visible(const lib_sdpa *s, const lib_tile *t, int64_t base, visible *v)
{
    const int64_t slot0 = base + s->key_start[t->b];
    bool whole = !s->masked;
    for (int i = 0; i < t->n_q; i++) whole &= t->lo[i] <= slot0 && slot0 + EK_SEGMENT <= t->end[i];
    if (whole) { /* as most segments are */
        memset(v->see, 0xff, sizeof v->see), memset(v->any, 0xff, sizeof v->any), memset(v->all, 0xff, sizeof v->all);
        for (int i = 0; i < t->n_q; i++) v->from[i] = 0, v->to[i] = EK_SEGMENT, v->holes[i] = false;
        v->live = (1u << t->n_q) - 1;
        return;
    }
    memset(v, 0, sizeof *v);
    memset(v->all, 0xff, sizeof v->all);
    for (int i = 0; i < t->n_q; i++) {
        int from = clamp(t->lo[i] - slot0, EK_SEGMENT), to = clamp(t->end[i] - slot0, EK_SEGMENT);
        uint64_t *see = v->see[i];
        for (int w = 0; w < LIB_WORDS; w++)
            see[w] = low_bits(clamp(to - w * 64, 64)) & ~low_bits(clamp(from - w * 64, 64));
        if (s->masked) {
            const uint8_t *row = mask_row(s, t, i);
            float add;
            for (int j = from; j < to; j++)
                if (!lib_mask_at(&s->mask, row, base + j, &add)) see[j / 64] &= ~(UINT64_C(1) << j % 64);
        }
        int n = 0, first = -1, last = -1;
        for (int w = 0; w < LIB_WORDS; w++) {
            if (!see[w]) continue;
            n += see[w] == ~UINT64_C(0) ? 64 : __builtin_popcountll(see[w]);
            if (first < 0) first = w * 64 + __builtin_ctzll(see[w]);
            last = w * 64 + 63 - __builtin_clzll(see[w]);
        }
        if (n == 0) continue;
        v->from[i] = first, v->to[i] = last + 1;
        v->holes[i] = n != last + 1 - first;
        v->live |= 1u << i;
        for (int w = 0; w < LIB_WORDS; w++) v->any[w] |= see[w], v->all[w] &= see[w];
    }
}

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

static void score(const lib_sdpa *s, const lib_tile *t, int64_t base, const visible *v, lib_leaf_space *space)
{
    lib_score_block b = {
        .type = s->keys.direct ? s->keys.dense.type : EK_TYPE_F32, .dim = s->dim, .q = space->q, .n_q = t->n_q};
    ptrdiff_t copied = s->dim * (s->pairs ? (ptrdiff_t)sizeof(uint16_t) : (ptrdiff_t)sizeof(float));
    const int ahead = s->pairs ? AHEAD_PAIRS : AHEAD;
    b.q16 = space->q16, b.scale = s->scale;
    for (int j0 = 0; j0 < EK_SEGMENT; j0 += LIB_KEYS) {
        unsigned some = (unsigned)(v->any[j0 / 64] >> (j0 % 64)) & 0xffffu;
        if (!some) continue;
        int first = __builtin_ctz(some); /* stands in for keys that nobody sees */
        const bool plain = some == 0xffffu && s->keys.direct;
        if (plain) b.key[0] = row_at(&s->keys, t, base + j0);
        for (int j = 1; j < LIB_KEYS && plain; j++) b.key[j] = b.key[j - 1] + s->keys.dense.stride[2];
        for (int j = 0; j < LIB_KEYS && !plain; j++) {
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

/* The rows of values that are read behind LIB_AHEAD ones of a segment, as many as a segment has, if they lie one after
 * the other; their bytes. */
static ptrdiff_t values_soon(const lib_sdpa *s, const lib_tile *t, int64_t base, const uint8_t **soon)
{
    const lib_kv *x = &s->values;
    int64_t rows = s->n_keys - base - LIB_AHEAD, stride = 2 * s->dim;
    *soon = NULL;
    if (!x->direct || x->dense.stride[2] != stride || base < 0) return 0;
    *soon = row_at(x, t, base + (rows > 0 ? LIB_AHEAD : 0));
    return rows <= 0 ? 0 : (rows < EK_SEGMENT ? rows : EK_SEGMENT) * stride;
}

/* ------------------------------------------------------------------ masks */

static void add_mask(const lib_sdpa *s, const lib_tile *t, int64_t base, const visible *v, float *e)
{
    for (int i = 0; i < t->n_q; i++) {
        const uint8_t *row = mask_row(s, t, i);
        float add;
        for (int j = v->from[i]; j < v->to[i]; j++)
            if (bit(v->see[i], j)) {
                lib_mask_at(&s->mask, row, base + j, &add);
                e[i * EK_SEGMENT + j] += add;
            }
    }
}

/* A hidden key between seen ones is given the least score there is: its weight is +0, for its
 * exponent is far below that of any seen key. */
static void hide(const lib_tile *t, const visible *v, float *e)
{
    for (int i = 0; i < t->n_q; i++)
        if (v->holes[i])
            for (int j = v->from[i]; j < v->to[i]; j++)
                if (!bit(v->see[i], j)) e[i * EK_SEGMENT + j] = -INFINITY;
}

/* Unless the seen keys have no better one: then these have equal weights, and the hidden are
 * taken out here. p: the weights in bf16, or NULL. */
static void hide_again(const lib_tile *t, const visible *v, ek_attn_leaf *leaf, uint16_t *p)
{
    int least;
    ek_exp_split(-INFINITY, &least);
    for (int i = 0; i < t->n_q; i++) {
        if (!v->holes[i] || leaf->m[i] > least) continue;
        float *e = leaf->e + i * EK_SEGMENT, lane[16] = {0};
        for (int j = v->from[i]; j < v->to[i]; j++) {
            if (bit(v->see[i], j)) lane[j % 16] += e[j];
            else {
                e[j] = 0;
                if (p) p[i * EK_SEGMENT + j] = 0;
            }
        }
        leaf->l[i] = ek_add_lanes(lane);
    }
}

/* Weights of Form B. For a whole tile, values are fetched meanwhile: memory would rest. */
static void weigh_pairs(const lib_sdpa *s, const lib_tile *t, int64_t base, const visible *v, ek_attn_leaf *leaf,
                        uint16_t *p)
{
    const uint8_t *soon = NULL;
    ptrdiff_t bytes = t->n_q == EK_TILE ? values_soon(s, t, base, &soon) : 0, share = LIB_EARLY / EK_TILE * 2 * s->dim;
    for (int i = 0; i < t->n_q; i++) {
        for (ptrdiff_t at = i * share; at < bytes && at < (i + 1) * share; at += 64)
            __builtin_prefetch(soon + at, 0, 2);
        if (!(v->live >> i & 1)) continue;
        float *e = leaf->e + i * EK_SEGMENT;
        if (s->k->attn.weights_bf16) {
            s->k->attn.weights_bf16(e, p + i * EK_SEGMENT, v->from[i], v->to[i], &leaf->m[i], &leaf->l[i]);
            continue;
        }
        ek_attn_leaf one = {.n_q = 1, .head_dim = s->dim, .from = {v->from[i]}, .to = {v->to[i]}, .e = e};
        s->k->attn.weights(&one);
        leaf->m[i] = one.m[0];
        s->k->attn.round_bf16(e, p + i * EK_SEGMENT, v->from[i], v->to[i], &leaf->l[i]);
    }
}

/* ------------------------------------------------------------------ values */

/* Keys [from, to) for queries [i, i + n_q). */
static void add_run(const lib_sdpa *s, const lib_tile *t, int64_t base, lib_leaf_space *space, const ek_attn_node *out,
                    int i, int n_q, int from, int to)
{
    const lib_kv *x = &s->values;
    lib_value_run r = {.type = EK_TYPE_F32, .dim = s->dim, .n_q = n_q, .ldo = s->ldo, .o = out->o + i * s->ldo};
    for (int j = from, end; j < to; j = end) {
        if (x->direct) {
            r.v = row_at(x, t, base + j), r.stride = x->dense.stride[2], r.type = x->dense.type;
            end = to;
        } else { /* whole pairs at a time */
            end = j / LIB_KEYS * LIB_KEYS + LIB_KEYS < to ? j / LIB_KEYS * LIB_KEYS + LIB_KEYS : to;
            for (int n = j; n < end; n++) r.stride = copy_row(s, x, t, base + n, n - j, space);
            r.v = (const uint8_t *)space->rows;
        }
        r.n_keys = end - j, r.slot = j;
        if (s->pairs && r.n_keys == EK_SEGMENT) {
            const ptrdiff_t early = n_q == EK_TILE ? LIB_EARLY * 2 * s->dim : 0,
                            bytes = values_soon(s, t, base, &r.soon);
            r.fresh = n_q == t->n_q;
            if (bytes > early) r.soon += early, r.soon_bytes = bytes - early;
        }
        r.e = space->e + i * EK_SEGMENT + j, r.p = space->p + i * EK_SEGMENT + j;
        if (s->pairs) s->k->attn.values_bf16(&r);
        else s->k->attn.values(&r);
    }
}

/* What the queries see of slots [j, j + step). */
static void seen_by(const visible *v, int j, int step, bool *all, bool *some)
{
    *all = bit(v->all, j) && bit(v->all, j + step - 1);
    *some = bit(v->any, j) || bit(v->any, j + step - 1);
}

/* Keys that all queries see in one go; the others query by query. Each query meets its keys in
 * ascending order; in Form B pairs of slots stay together. */
static void value(const lib_sdpa *s, const lib_tile *t, int64_t base, const visible *v, lib_leaf_space *space,
                  const ek_attn_node *out)
{
    const int step = s->pairs ? 2 : 1;
    const bool whole = (v->all[0] & v->all[1] & v->all[2] & v->all[3]) == ~UINT64_C(0); /* as most segments are */
    if (!whole || !s->pairs || !s->values.direct) memset(out->o, 0, sizeof *out->o * (size_t)(t->n_q * s->ldo));
    if (whole) {
        add_run(s, t, base, space, out, 0, t->n_q, 0, EK_SEGMENT);
        return;
    }
    for (int j = 0, end; j < EK_SEGMENT; j = end) {
        bool all, some, next_all, next_some;
        seen_by(v, j, step, &all, &some);
        for (end = j + step; end < EK_SEGMENT; end += step) {
            seen_by(v, end, step, &next_all, &next_some);
            if (next_all != all || next_some != some) break;
        }
        if (all) add_run(s, t, base, space, out, 0, t->n_q, j, end);
        else if (some)
            for (int i = 0; i < t->n_q; i++)
                for (int from = j, to; from < end; from = to) {
                    bool seen = bit(v->see[i], from);
                    for (to = from + 1; to < end && bit(v->see[i], to) == seen;) to++;
                    if (seen) add_run(s, t, base, space, out, i, 1, from, to);
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
    visible v;
    find_visible(s, t, base, &v);
    if (!v.live) return 0;
    if (when.cold && s->keys.direct) touch(s, &s->keys, t, base, AHEAD_PAIRS);
    score(s, t, base, &v, &space);
    if (when.cold && s->values.direct) touch(s, &s->values, t, base, LIB_AHEAD);
    if (s->masked && s->mask.type != EK_TYPE_U8) add_mask(s, t, base, &v, space.e);
    hide(t, &v, space.e);
    ek_attn_leaf leaf = {.n_q = t->n_q, .head_dim = s->dim, .e = space.e};
    memcpy(leaf.from, v.from, sizeof v.from);
    memcpy(leaf.to, v.to, sizeof v.to);
    if (s->pairs) weigh_pairs(s, t, base, &v, &leaf, space.p);
    else s->k->attn.weights(&leaf);
    hide_again(t, &v, &leaf, s->pairs ? space.p : NULL);
    for (int i = 0; i < t->n_q; i++) {
        out->m[i] = leaf.m[i], out->l[i] = leaf.l[i];
        /* a query that sees nothing takes part in the sums of the others, without effect */
        if (!(v.live >> i & 1)) {
            memset(space.e + i * EK_SEGMENT, 0, sizeof *space.e * EK_SEGMENT);
            memset(space.p + i * EK_SEGMENT, 0, sizeof *space.p * EK_SEGMENT);
        }
    }
    value(s, t, base, &v, &space, out);
    return v.live;
}
