/* Attention over tensors as a source of work for the scheduler (attn_sched.h). */
#include "ops/attn/attn_tensors.h"

#include <string.h>

/* A call: the data that its tiles share. */
typedef struct call {
    const ek_attn_tensors *t;
    int ratio;               /* heads / kv_heads */
    bool k_direct, v_direct; /* kernels read the rows in place */
    int64_t tiles_per_head;  /* tiles of one KV head of one entry */
    ptrdiff_t ldo;           /* dim rounded up to 32 */
} call;

/* A tile of the scheduler: its KV head, its first query (row * ratio + head within the KV head's group), and the
 * absolute positions that each query sees if no mask hides them. */
typedef struct place {
    int64_t b, kv_head, first;
    int n_q;
    const int64_t *lo, *end;
} place;

static place place_of(const call *c, const ek_attn_tile *t)
{
    const int64_t head = t->number / c->tiles_per_head;
    return (place){.b = head / c->t->kv_heads,
                   .kv_head = head % c->t->kv_heads,
                   .first = t->number % c->tiles_per_head * EK_TILE,
                   .n_q = t->n_q,
                   .lo = t->lo,
                   .end = t->end};
}

static int64_t row_number(const call *c, const place *t, int i)
{
    return (t->first + i) / c->ratio;
}
static int64_t head_number(const call *c, const place *t, int i)
{
    return t->kv_head * c->ratio + (t->first + i) % c->ratio;
}
static int64_t start_of(const call *c, int64_t b)
{
    return c->t->key_start ? c->t->key_start[b] : 0;
}

/* Working memory of a tile. */
typedef struct work {
    float *q, *e;  /* of the scheduler */
    float *rows;   /* [EK_SCORE_KEYS][ldo]: keys or values that cannot be read in place; Form B: in bf16 */
    uint16_t *q16; /* Form B: the queries, element d of query i at ek_q16(i, d) */
    uint16_t *p;   /* Form B: [EK_TILE][EK_SEGMENT], the rounded e in bf16 */
} work;

static size_t work_bytes(const call *c)
{
    return sizeof(float) * (size_t)(EK_SCORE_KEYS * c->ldo) +
           sizeof(uint16_t) * EK_TILE * (EK_MAX_HEAD_DIM + EK_SEGMENT);
}

static work work_of(const call *c, const ek_attn_space *x)
{
    work own = {.q = x->q, .e = x->e, .rows = x->own};
    own.q16 = (uint16_t *)(own.rows + EK_SCORE_KEYS * c->ldo);
    own.p = own.q16 + EK_TILE * EK_MAX_HEAD_DIM;
    return own;
}

/* Loads a row's dim elements as floats. */
static void load_row(const ek_attn_tensors *t, const ek_attn_tensor *x, const uint8_t *from, float *to)
{
    if (x->element == (ptrdiff_t)ek_dtype_size(x->type) || t->dim == 1) {
        t->convert->widen(to, from, x->type, t->dim);
        return;
    }
    for (int d = 0; d < t->dim; d++, from += x->element) to[d] = ek_load_float(from, x->type);
}

/* ------------------------------------------------------------------ visible keys, as bits */

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

static const uint8_t *mask_row(const call *c, const place *t, int i)
{
    return ek_attn_mask_row(&c->t->mask, t->b, head_number(c, t, i), row_number(c, t, i));
}

/* Every key is visible to every query. */
static void show_all(int n_q, ek_visible *v)
{
    memset(v->keys, 0xff, sizeof v->keys), memset(v->any, 0xff, sizeof v->any), memset(v->all, 0xff, sizeof v->all);
    for (int i = 0; i < n_q; i++) v->from[i] = 0, v->to[i] = EK_SEGMENT, v->holes[i] = false;
    v->live = (1u << n_q) - 1;
}

/* Writes the visible keys of a segment to v. Slot 0 of the segment is key `base`, which may be negative. */
static void find_visible(const call *c, const place *t, int64_t base, ek_visible *v)
{
    const int64_t slot0 = base + start_of(c, t->b);
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

/* Adds a float mask to the scores e of visible keys. */
static void add_mask(const call *c, const place *t, int64_t base, const ek_visible *v, float *e)
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

/* Distance in keys between reading and prefetching; in Form B keys are read faster. */
enum { AHEAD = 2 * EK_SCORE_KEYS, AHEAD_PAIRS = 3 * EK_SCORE_KEYS };

/* ------------------------------------------------------------------ rows of keys and values */

static const uint8_t *row_at(const ek_attn_operand *x, const place *t, int64_t j)
{
    return x->at.data + t->b * x->at.entry + t->kv_head * x->at.head + j * x->at.row;
}

/* Copies row j into a form that kernels read: f32, in Form B unchanged. Returns the bytes of such a row. */
static ptrdiff_t copy_row(const call *c, const ek_attn_operand *x, const place *t, int64_t j, int at, work *space)
{
    const int dim = c->t->dim;
    if (!c->t->pairs) {
        float *to = space->rows + (ptrdiff_t)at * dim;
        if (x->read) x->read(x->self, t->b, t->kv_head, j, to);
        else load_row(c->t, &x->at, row_at(x, t, j), to);
        return (ptrdiff_t)sizeof(float) * dim;
    }
    uint16_t *to = (uint16_t *)space->rows + (ptrdiff_t)at * dim;
    const uint8_t *from = row_at(x, t, j);
    for (int d = 0; d < dim; d++) memcpy(to + d, from + d * x->at.element, sizeof *to);
    return (ptrdiff_t)sizeof *to * dim;
}

/* The block of 16 turned keys from j on. */
static const float *block_at(const ek_attn_operand *x, const place *t, int64_t j, int dim)
{
    return (const float *)(x->at.data + t->b * x->at.entry + t->kv_head * x->at.head) + j * dim;
}

static void score(const call *c, const place *t, int64_t base, const ek_visible *v, work *space)
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
static ptrdiff_t values_ahead(const call *c, const place *t, int64_t base, const uint8_t **ahead)
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
static void add_run(const call *c, const place *t, int64_t base, work *space, const ek_attn_node *out, int i, int n_q,
                    int from, int to)
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
static void value(const call *c, const place *t, int64_t base, const ek_visible *v, work *space,
                  const ek_attn_node *out)
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
static void touch(const call *c, const ek_attn_operand *x, const place *t, int64_t base, int64_t n)
{
    const int64_t from = base < 0 ? 0 : base, to = base + n < c->t->keys ? base + n : c->t->keys;
    const int64_t bytes = c->t->dim * (int64_t)ek_dtype_size(x->at.type);
    for (int64_t j = from; j < to; j++)
        for (int64_t at = 0; at < bytes; at += 64) (void)*(const volatile uint8_t *)(row_at(x, t, j) + at);
}

static unsigned add_segment(const void *self, const ek_attn_tile *of, int64_t seg, ek_attn_when when, ek_attn_space *x,
                            ek_attn_node *out)
{
    const call *c = self;
    const place at = place_of(c, of), *t = &at;
    work space = work_of(c, x);
    const int64_t base = seg * EK_SEGMENT - start_of(c, t->b);
    ek_visible v;
    find_visible(c, t, base, &v);
    if (!v.live) return 0;
    if (when.cold && c->k_direct) touch(c, &c->t->k, t, base, AHEAD_PAIRS);
    score(c, t, base, &v, &space);
    if (when.cold && c->v_direct) touch(c, &c->t->v, t, base, EK_VALUES_AHEAD);
    if (c->t->mask.data && !c->t->mask.bytes) add_mask(c, t, base, &v, space.e);
    ek_attn_segment segment = {.n_q = t->n_q, .head_dim = c->t->dim, .e = space.e};
    const uint8_t *ahead = NULL;
    const ptrdiff_t bytes = c->t->pairs && t->n_q == EK_TILE ? values_ahead(c, t, base, &ahead) : 0;
    ek_attn_rows_weigh(c->t->attn, &segment, &v, c->t->pairs ? space.p : NULL, ahead, bytes);
    for (int i = 0; i < t->n_q; i++) out->m[i] = segment.m[i], out->l[i] = segment.l[i];
    value(c, t, base, &v, &space, out);
    return v.live;
}

/* ------------------------------------------------------------------ the source */

/* The tile's keys by causal, window and padding; masks hide more keys, per segment. */
static void tile(const void *self, ek_attn_tile *out)
{
    const call *c = self;
    const ek_attn_tensors *t = c->t;
    const int64_t left = t->rows * c->ratio - out->number % c->tiles_per_head * EK_TILE;
    out->n_q = left < EK_TILE ? (int)left : EK_TILE;
    out->keys = out->number / c->tiles_per_head;
    const place at = place_of(c, out);
    const int64_t start = start_of(c, at.b);
    for (int i = 0; i < out->n_q; i++) {
        const int64_t own = row_number(c, &at, i) + t->keys - t->rows; /* the key at the query's position */
        int64_t lo = t->window ? own - t->window + 1 : 0, end = t->causal && own < t->keys ? own + 1 : t->keys;
        if (lo < 0) lo = 0;
        if (lo < -start) lo = -start;
        out->lo[i] = lo + start, out->end[i] = end + start;
    }
}

/* Copies a row of q in bf16, in Form B's order. */
static void pair_query(const ek_attn_tensors *t, uint16_t *q16, const uint8_t *from, int i)
{
    for (int d = 0; d < t->dim; d += 32) {
        const int n = t->dim - d < 32 ? t->dim - d : 32;
        uint16_t *to = q16 + ek_q16(i, d);
        if (t->q.element == 2) memcpy(to, from + 2 * d, (size_t)n * sizeof *to);
        else
            for (int j = 0; j < n; j++) memcpy(to + j, from + (d + j) * t->q.element, sizeof *to);
    }
}

static uint8_t *row_of(const call *c, const ek_attn_tensor *x, const place *t, int i)
{
    return x->data + t->b * x->entry + head_number(c, t, i) * x->head + row_number(c, t, i) * x->row;
}

static void queries(const void *self, const ek_attn_tile *of, ek_attn_space *x)
{
    const call *c = self;
    const ek_attn_tensors *t = c->t;
    const place at = place_of(c, of);
    const work space = work_of(c, x);
    if (t->pairs) memset(space.q16, 0, sizeof *space.q16 * EK_TILE * EK_MAX_HEAD_DIM);
    else memset(space.q, 0, sizeof *space.q * EK_TILE * EK_Q_STRIDE);
    for (int i = 0; i < at.n_q; i++) {
        const uint8_t *from = row_of(c, &t->q, &at, i);
        float *q = space.q + i * EK_Q_STRIDE;
        if (t->pairs) {
            pair_query(t, space.q16, from, i);
            continue;
        }
        load_row(t, &t->q, from, q);
        for (int d = 0; d < t->dim && t->scale != 1; d++) q[d] *= t->scale;
    }
}

static float sink(const void *self, const ek_attn_tile *of, int i)
{
    const call *c = self;
    const place at = place_of(c, of);
    return c->t->sinks[head_number(c, &at, i)];
}

static void result(const void *self, const ek_attn_tile *of, int i, float *row)
{
    const call *c = self;
    const ek_attn_tensors *t = c->t;
    const ek_attn_tensor *y = &t->y;
    const place at = place_of(c, of);
    if (t->pairs && t->attn->order_bf16) t->attn->order_bf16(row, t->dim);
    uint8_t *to = row_of(c, y, &at, i);
    if (y->element == (ptrdiff_t)ek_dtype_size(y->type) || t->dim == 1) {
        t->convert->narrow(to, y->type, row, t->dim);
        return;
    }
    for (int d = 0; d < t->dim; d++, to += y->element) ek_store_float(to, y->type, row[d]);
}

static bool is_direct(const ek_attn_tensors *t, const ek_attn_operand *x)
{
    return !x->read && !x->turned && (t->dim == 1 || x->at.element == (ptrdiff_t)ek_dtype_size(x->at.type));
}

static call call_of(const ek_attn_tensors *t)
{
    const int ratio = (int)(t->heads / t->kv_heads);
    return (call){.t = t,
                  .ratio = ratio,
                  .k_direct = is_direct(t, &t->k),
                  .v_direct = is_direct(t, &t->v),
                  .tiles_per_head = (t->rows * ratio + EK_TILE - 1) / EK_TILE,
                  .ldo = (t->dim + 31) / 32 * 32};
}

static ek_attn_source source_of(const call *c)
{
    const ek_attn_tensors *t = c->t;
    return (ek_attn_source){.self = c,
                            .n_tiles = t->entries * t->kv_heads * c->tiles_per_head,
                            .group = t->pairs ? 1 : EK_ATTN_GROUP, /* Form B prefetches its keys and values itself */
                            .masked = t->mask.data != NULL,
                            .sinks = t->sinks != NULL,
                            .ldo = c->ldo,
                            .own_bytes = work_bytes(c),
                            .combine = t->attn->combine,
                            .tile = tile,
                            .queries = queries,
                            .segment = add_segment,
                            .sink = sink,
                            .result = result};
}

size_t ek_attn_tensors_bytes(const ek_attn_tensors *t, int n_workers)
{
    const call c = call_of(t);
    const ek_attn_source source = source_of(&c);
    ek_attn_cut cut;
    return ek_attn_cut_work(&cut, &source, n_workers);
}

void ek_attn_tensors_run(const ek_attn_tensors *t, const ek_attn_workers *workers, void *memory)
{
    const call c = call_of(t);
    const ek_attn_source source = source_of(&c);
    ek_attn_cut cut;
    ek_attn_cut_work(&cut, &source, workers->n_workers);
    ek_attn_schedule(&source, &cut, workers, memory);
}
