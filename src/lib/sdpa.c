/* Attention over views: checks, tiles, and the tree over segments. What a leaf is: sdpa_leaf.c. */
#include "lib/sdpa.h"

#include <math.h>
#include <string.h>

#include "ops/math.h"
#include "tensor/dtype.h"

enum {
    TILES_A_WORKER = 4,  /* fewer, and tiles are split into segments */
    PIECES_A_WORKER = 4, /* of split tiles */
    MOST_LEVEL = 6,      /* of a block: leaves are counted in a byte */
    SPLIT_MOST = 256 << 20, /* bytes of leaves; more, and they are not */
};
#define FAR (INT64_C(1) << 40) /* of absolute positions */

/* ------------------------------------------------------------------ tiles */

lib_tile lib_tile_at(const lib_sdpa *s, int64_t number)
{
    lib_tile t = {.b = number / s->tiles_a_head / s->kv_heads, .kv_head = number / s->tiles_a_head % s->kv_heads};
    t.first = number % s->tiles_a_head * EK_TILE;
    int64_t left = s->rows * s->ratio - t.first, ks = s->key_start[t.b];
    t.n_q = left < EK_TILE ? (int)left : EK_TILE;
    int64_t lo_all = INT64_MAX, hi_all = INT64_MIN;
    for (int i = 0; i < t.n_q; i++) {
        int64_t at = lib_query_row(s, &t, i) + s->n_keys - s->rows; /* the key that stands where the query does */
        int64_t lo = s->window ? at - s->window + 1 : 0, hi = s->causal && at < s->n_keys ? at + 1 : s->n_keys;
        if (lo < 0) lo = 0;
        if (lo < -ks) lo = -ks;
        t.lo[i] = lo, t.hi[i] = hi;
        if (lo >= hi) continue;
        if (lo < lo_all) lo_all = lo;
        if (hi > hi_all) hi_all = hi;
    }
    if (lo_all < hi_all) t.seg0 = (lo_all + ks) / EK_SEGMENT, t.seg1 = (hi_all - 1 + ks) / EK_SEGMENT + 1;
    return t;
}

void lib_tile_queries(const lib_sdpa *s, const lib_tile *t, lib_leaf_space *space)
{
    memset(space->q16, 0, sizeof *space->q16 * EK_TILE * EK_MAX_HEAD_DIM);
    for (int i = 0; i < EK_TILE; i++) {
        float *q = space->q + i * EK_Q_STRIDE;
        memset(q, 0, sizeof *q * EK_Q_STRIDE);
        if (i >= t->n_q) continue;
        const uint8_t *from = s->q.data + t->b * s->q.stride[0] + lib_query_head(s, t, i) * s->q.stride[1] +
                              lib_query_row(s, t, i) * s->q.stride[2];
        lib_load(s->k, q, from, s->q.type, s->q.stride[3], s->dim);
        if (s->pairs) {
            uint16_t row[EK_MAX_HEAD_DIM] = {0};
            lib_store(s->k, (uint8_t *)row, EK_TYPE_BF16, 2, q, s->dim);
            for (int d = 0; d < s->dim; d += 32) memcpy(space->q16 + lib_q16(i, d), row + d, 32 * sizeof *row);
        } else if (s->scale != 1)
            for (int d = 0; d < s->dim; d++) q[d] *= s->scale;
    }
}

/* ------------------------------------------------------------------ the tree T over leaves */

/* 2^n for n <= 0, +0 below 2^-125. */
static float factor(int64_t n)
{
    return n < -125 ? 0.0f : ek_bits_f32((uint32_t)(n + 127) << 23);
}

/* Query i of later = earlier + later. */
static void combine(const lib_sdpa *s, const lib_node *earlier, lib_node *later, int i)
{
    int ma = earlier->m[i], mb = later->m[i], m = ma > mb ? ma : mb;
    float fa = factor((int64_t)ma - m), fb = factor((int64_t)mb - m);
    later->l[i] = earlier->l[i] * fa + later->l[i] * fb;
    later->m[i] = m;
    s->k->combine(later->o + i * s->ldo, earlier->o + i * s->ldo, fb, fa, (int)s->ldo); /* in the kernel's order */
}

/* A node of 2^level leaves, a whole branch of the tree, behind count leaves. */
static void push(const lib_sdpa *s, lib_node *stack, lib_node *node, unsigned count, int level, int i)
{
    EK_ASSERT((count & ((1u << level) - 1)) == 0);
    for (; count >> level & 1; level++) combine(s, &stack[level], node, i);
    stack[level].m[i] = node->m[i], stack[level].l[i] = node->l[i];
    memcpy(stack[level].o + i * s->ldo, node->o + i * s->ldo, sizeof(float) * (size_t)s->ldo);
}

static void swap(lib_node *a, lib_node *b)
{
    lib_node was = *a;
    *a = *b;
    *b = was;
}

/* A leaf of n queries that have count leaves each: the sums change places with what lay on the stack. */
static void push_all(const lib_sdpa *s, lib_node *stack, lib_node *leaf, unsigned count, int n)
{
    int level = 0;
    for (; count >> level & 1; level++)
        for (int i = 0; i < n; i++) combine(s, &stack[level], leaf, i);
    swap(&stack[level], leaf);
}

/* The head's sink, the leaf before all segments: weight without value. */
static unsigned push_sink(const lib_sdpa *s, const lib_tile *t, lib_node *stack, lib_node *leaf, int i)
{
    if (!s->sinks) return 0;
    leaf->l[i] = ek_exp_split(s->sinks[lib_query_head(s, t, i)], &leaf->m[i]);
    memset(leaf->o + i * s->ldo, 0, sizeof(float) * (size_t)s->ldo);
    push(s, stack, leaf, 0, 0, i);
    return 1;
}

/* Writes query i's row from the count leaves pushed. row has ldo floats. */
static void finish(const lib_sdpa *s, const lib_tile *t, lib_node *stack, unsigned count, int i, float *row)
{
    lib_node *sum = NULL;
    for (int level = 0; count >> level; level++) {
        if (!(count >> level & 1)) continue;
        if (sum) combine(s, &stack[level], sum, i);
        else sum = &stack[level];
    }
    for (int d = 0; d < s->ldo; d++) row[d] = sum ? (sum->o[i * s->ldo + d] + 0.0f) / sum->l[i] : 0.0f;
    if (s->pairs && s->k->order_bf16) s->k->order_bf16(row, s->dim);
    uint8_t *to = s->y.data + t->b * s->y.stride[0] + lib_query_head(s, t, i) * s->y.stride[1] +
                  lib_query_row(s, t, i) * s->y.stride[2];
    lib_store(s->k, to, s->y.type, s->y.stride[3], row, s->dim);
}

/* ------------------------------------------------------------------ tasks */

typedef struct worker_space {
    lib_leaf_space leaf;
    int64_t tile; /* whose queries leaf has; -1: none */
    lib_node now;
    lib_node *stack;
} worker_space;

typedef struct work {
    const lib_sdpa *s;
    worker_space *space;
    int64_t n_tiles, most_leaves; /* of a tile */
    /* If tiles are split: into blocks of 2^level leaves, the leaves of a tile numbered from its first
     * segment, or its sink. Either each query sees the segments from the first on without a gap, so that
     * a block is a branch of its tree; or level is 0. */
    int level;
    int64_t blocks, blocks_a_task; /* of a tile */
    lib_node *nodes;     /* [tile][block][level + 1] */
    uint8_t *count;      /* [tile][block][EK_TILE]: leaves of a query in a block */
} work;

/* Leaves [first, end) of a tile go on the stack; count is of each query. */
static void push_leaves(const lib_sdpa *s, const lib_tile *t, int64_t first, int64_t end, worker_space *space, lib_node *stack,
                        unsigned *count)
{
    for (int i = 0; i < t->n_q; i++) count[i] = first == 0 ? push_sink(s, t, stack, &space->now, i) : 0;
    for (int64_t leaf = first; leaf < end; leaf++) {
        int64_t seg = t->seg0 + leaf - (s->sinks != NULL);
        if (seg < t->seg0 || seg >= t->seg1) continue;
        unsigned live = lib_leaf(s, t, seg, &space->leaf, &space->now), odd = live ^ ((1u << t->n_q) - 1);
        for (int i = 1; i < t->n_q; i++) odd |= count[i] ^ count[0];
        if (!odd) push_all(s, stack, &space->now, count[0], t->n_q);
        for (int i = 0; i < t->n_q; i++)
            if (!odd) count[i]++;
            else if (live >> i & 1) push(s, stack, &space->now, count[i]++, 0, i);
    }
}

static void tile_task(void *arg, int64_t task, int worker)
{
    const work *w = arg;
    worker_space *space = &w->space[worker];
    lib_tile t = lib_tile_at(w->s, task);
    unsigned count[EK_TILE];
    lib_tile_queries(w->s, &t, &space->leaf);
    push_leaves(w->s, &t, 0, w->most_leaves, space, space->stack, count);
    for (int i = 0; i < t.n_q; i++) finish(w->s, &t, space->stack, count[i], i, space->leaf.e);
}

static void block_task(void *arg, int64_t task, int worker)
{
    const work *w = arg;
    int64_t tasks = (w->blocks + w->blocks_a_task - 1) / w->blocks_a_task, number = task / tasks;
    int64_t first = task % tasks * w->blocks_a_task;
    worker_space *space = &w->space[worker];
    lib_tile t = lib_tile_at(w->s, number);
    unsigned count[EK_TILE];
    if (space->tile != number) lib_tile_queries(w->s, &t, &space->leaf);
    space->tile = number;
    for (int64_t b = first; b < first + w->blocks_a_task && b < w->blocks; b++) {
        int64_t at = number * w->blocks + b;
        unsigned some = 0;
        push_leaves(w->s, &t, b << w->level, (b + 1) << w->level, space, space->stack, count);
        for (int i = 0; i < t.n_q; i++) some |= count[i], w->count[at * EK_TILE + i] = (uint8_t)count[i];
        for (int level = 0; level <= w->level; level++)
            if (some >> level & 1) swap(&w->nodes[at * (w->level + 1) + level], &space->stack[level]);
    }
}

static void join_task(void *arg, int64_t task, int worker)
{
    const work *w = arg;
    worker_space *space = &w->space[worker];
    lib_tile t = lib_tile_at(w->s, task / EK_TILE);
    int i = (int)(task % EK_TILE);
    if (i >= t.n_q) return;
    unsigned count = 0;
    for (int64_t at = task / EK_TILE * w->blocks, end = at + w->blocks; at < end; at++)
        for (int level = w->level; level >= 0; level--) /* a block with fewer leaves is the query's last */
            if (w->count[at * EK_TILE + i] >> level & 1) {
                push(w->s, space->stack, &w->nodes[at * (w->level + 1) + level], count, level, i);
                count += 1u << level;
            }
    finish(w->s, &t, space->stack, count, i, space->leaf.e);
}

static bool take_node(lib_call *c, const lib_sdpa *s, lib_node *n)
{
    n->o = lib_take_array(c, EK_TILE * (size_t)s->ldo, sizeof *n->o);
    n->l = lib_take(c, EK_TILE * sizeof *n->l);
    n->m = lib_take(c, EK_TILE * sizeof *n->m);
    return n->o && n->l && n->m;
}

static ek_err take_space(lib_call *c, work *w)
{
    const lib_sdpa *s = w->s;
    int levels = 1;
    for (int64_t n = w->most_leaves; n > 1; n /= 2) levels++;
    w->space = lib_take_array(c, (size_t)c->n_workers, sizeof *w->space);
    if (!w->space) return EK_ENOMEM;
    for (int i = 0; i < c->n_workers; i++) {
        worker_space *p = &w->space[i];
        p->tile = -1;
        p->leaf.q = lib_take(c, sizeof(float) * EK_TILE * EK_Q_STRIDE);
        p->leaf.e = lib_take(c, sizeof(float) * EK_TILE * EK_SEGMENT);
        p->leaf.q16 = lib_take(c, sizeof(uint16_t) * EK_TILE * EK_MAX_HEAD_DIM);
        p->leaf.p = lib_take(c, sizeof(uint16_t) * EK_TILE * EK_SEGMENT);
        p->leaf.rows = lib_take(c, sizeof(float) * LIB_KEYS * (size_t)s->ldo);
        p->stack = lib_take_array(c, (size_t)levels, sizeof *p->stack);
        if (!p->leaf.q || !p->leaf.e || !p->leaf.q16 || !p->leaf.p || !p->leaf.rows || !p->stack || !take_node(c, s, &p->now)) return EK_ENOMEM;
        for (int l = 0; l < levels; l++)
            if (!take_node(c, s, &p->stack[l])) return EK_ENOMEM;
    }
    return EK_OK;
}

static ek_err take_blocks(lib_call *c, work *w)
{
    size_t blocks = (size_t)(w->n_tiles * w->blocks), n = blocks * (size_t)(w->level + 1);
    w->nodes = lib_take_array(c, n, sizeof *w->nodes);
    w->count = lib_take_array(c, blocks, EK_TILE);
    if (!w->nodes || !w->count) return EK_ENOMEM;
    for (size_t i = 0; i < n; i++)
        if (!take_node(c, w->s, &w->nodes[i])) return EK_ENOMEM;
    return EK_OK;
}

static ek_err run(lib_call *c, const lib_sdpa *s)
{
    work w = {.s = s, .n_tiles = s->batch * s->kv_heads * s->tiles_a_head, .most_leaves = s->n_keys / EK_SEGMENT + 2 + (s->sinks != NULL)};
    EK_TRY(take_space(c, &w));
    bool split = w.n_tiles < (int64_t)c->n_workers * TILES_A_WORKER && c->n_workers > 1 && s->n_keys > EK_SEGMENT &&
                 w.n_tiles * w.most_leaves < SPLIT_MOST / (EK_TILE * s->ldo * (int64_t)sizeof(float));
    if (!split) {
        lib_run(c, tile_task, &w, w.n_tiles);
        return EK_OK;
    }
    int64_t leaves = w.n_tiles * w.most_leaves / ((int64_t)c->n_workers * PIECES_A_WORKER); /* of a task */
    bool gapless = !s->masked && (!s->window || s->rows == 1);
    w.blocks_a_task = gapless || leaves < 1 ? 1 : leaves;
    while (gapless && w.level < MOST_LEVEL && leaves >> (w.level + 1)) w.level++;
    w.blocks = ((w.most_leaves - 1) >> w.level) + 1;
    EK_TRY(take_blocks(c, &w));
    lib_run(c, block_task, &w, w.n_tiles * ((w.blocks + w.blocks_a_task - 1) / w.blocks_a_task));
    lib_run(c, join_task, &w, w.n_tiles * EK_TILE);
    return EK_OK;
}

/* ------------------------------------------------------------------ checks */

static ek_err check_kv(lib_call *c, lib_sdpa *s, lib_kv *x, const ek_view *dense, const ek_qview *quantised, const char *what)
{
    char a[LIB_SHAPE_TEXT], b[LIB_SHAPE_TEXT]; /* written where they are wanted: texts take microseconds */
    lib_view shape;
    if (dense) {
        EK_TRY(lib_view_check(&x->dense, dense, what));
        shape = x->dense;
        if (!lib_is_float(shape.type)) return ek_fail(EK_EINVAL, "%s %s must be f32, f16 or bf16", what, lib_shape(a, &shape));
    } else {
        x->quantised = true;
        EK_TRY(lib_quant_check(&x->q, quantised, what));
        EK_TRY(lib_quant_settle(c, &x->q));
        shape = x->q.codes;
        shape.dim[shape.n_dims - 1] = x->q.cols;
    }
    if (shape.n_dims != 4 || shape.dim[0] != s->batch || shape.dim[3] != s->dim || shape.dim[1] < 1 || s->heads % shape.dim[1])
        return ek_fail(EK_EINVAL, "%s %s does not fit q %s: [B, Hkv, kL, D] with %lld heads a multiple of Hkv is wanted", what,
                       lib_shape(b, &shape), lib_shape(a, &s->q), (long long)s->heads);
    if (x == &s->values && (shape.dim[1] != s->kv_heads || shape.dim[2] != s->n_keys))
        return ek_fail(EK_EINVAL, "v %s does not fit the keys, [%lld, %lld, %lld, %d]", lib_shape(b, &shape), (long long)s->batch,
                       (long long)s->kv_heads, (long long)s->n_keys, s->dim);
    s->kv_heads = shape.dim[1], s->n_keys = shape.dim[2];
    x->direct = dense && (s->dim == 1 || lib_stride(&x->dense, 1) == (int64_t)lib_type_size(shape.type));
    return EK_OK;
}

static ek_err check_mask(lib_sdpa *s, const ek_view *mask)
{
    char a[LIB_SHAPE_TEXT], b[LIB_SHAPE_TEXT];
    EK_TRY(lib_view_check(&s->mask, mask, "mask"));
    lib_view given = s->mask, want = {.n_dims = 4, .type = s->mask.type, .dim = {s->batch, s->heads, s->rows, s->n_keys}};
    if (s->mask.type == EK_TYPE_U32 || s->mask.n_dims > 4 || !lib_broadcast(&s->mask, 4, want.dim, 0))
        return ek_fail(EK_EINVAL, "mask %s does not broadcast to %s; u8, f32, f16 or bf16 are possible", lib_shape(a, &given), lib_shape(b, &want));
    s->masked = true;
    return EK_OK;
}

/* Whether the mask shows key j to any query of b. */
static bool shown(const lib_sdpa *s, int64_t b, int64_t j)
{
    const lib_view *m = &s->mask;
    float add;
    for (int64_t h = 0; h < (m->stride[1] ? s->heads : 1); h++)
        for (int64_t i = 0; i < (m->stride[2] ? s->rows : 1); i++)
            if (lib_mask_at(m, m->data + b * m->stride[0] + h * m->stride[1] + i * m->stride[2], j, &add)) return true;
    return false;
}

static ek_err find_starts(lib_call *c, lib_sdpa *s, const int64_t *given)
{
    s->key_start = lib_take_array(c, (size_t)s->batch, sizeof *s->key_start);
    if (!s->key_start) return EK_ENOMEM;
    for (int64_t b = 0; b < s->batch; b++) {
        int64_t *start = &s->key_start[b];
        *start = 0;
        if (given) {
            if (given[b] <= -FAR || given[b] >= FAR)
                return ek_fail(EK_EINVAL, "key_start %lld of batch entry %lld is out of range", (long long)given[b], (long long)b);
            *start = given[b];
        } else if (s->masked)
            while (-*start < s->n_keys && !shown(s, b, -*start)) --*start;
    }
    return EK_OK;
}

static ek_err check_precision(lib_sdpa *s, ek_precision precision, bool dense)
{
    if (precision == EK_EXACT) return EK_OK;
    if (precision != EK_BFLOAT16) return ek_fail(EK_EINVAL, "precision %d, attention has EK_EXACT and EK_BFLOAT16", (int)precision);
    char q[LIB_SHAPE_TEXT], k[LIB_SHAPE_TEXT], v[LIB_SHAPE_TEXT];
    if (!dense) return ek_fail(EK_EINVAL, "EK_BFLOAT16 is for keys and values in bf16, these are quantised");
    s->pairs = s->q.type == EK_TYPE_BF16 && s->keys.dense.type == EK_TYPE_BF16 && s->values.dense.type == EK_TYPE_BF16;
    if (!s->pairs)
        return ek_fail(EK_EINVAL, "EK_BFLOAT16 is for bf16; q is %s, k %s, v %s", lib_shape(q, &s->q), lib_shape(k, &s->keys.dense),
                       lib_shape(v, &s->values.dense));
    return EK_OK;
}

static ek_err sdpa(lib_call *c, const ek_view *y, const ek_view *q, const ek_view *k, const ek_view *v, const ek_qview *kq,
                   const ek_qview *vq, const ek_sdpa_options *options)
{
    char a[LIB_SHAPE_TEXT], b[LIB_SHAPE_TEXT];
    ek_sdpa_options how = options ? *options : (ek_sdpa_options){0};
    lib_kernels kernels;
    lib_sdpa s = {.k = &kernels, .causal = how.causal, .sinks = how.sinks};
    lib_out out;
    lib_view yv;
    lib_kernels_init(&kernels, c->cpu);
    EK_TRY(lib_view_check(&s.q, q, "q"));
    EK_TRY(lib_view_check(&yv, y, "y"));
    EK_TRY(lib_out_check(&yv, "y"));
    if (s.q.n_dims != 4 || yv.n_dims != 4 || memcmp(s.q.dim, yv.dim, 4 * sizeof s.q.dim[0]) || !lib_is_float(s.q.type) ||
        !lib_is_float(yv.type))
        return ek_fail(EK_EINVAL, "q %s and y %s must have one shape [B, H, qL, D], f32, f16 or bf16", lib_shape(a, &s.q), lib_shape(b, &yv));
    s.batch = s.q.dim[0], s.heads = s.q.dim[1], s.rows = s.q.dim[2];
    if (s.q.dim[3] < 1 || s.q.dim[3] > EK_MAX_HEAD_DIM)
        return ek_fail(EK_EINVAL, "heads of %lld elements in q %s; 1 to %d are possible", (long long)s.q.dim[3], lib_shape(a, &s.q), EK_MAX_HEAD_DIM);
    s.dim = (int)s.q.dim[3];
    EK_TRY(check_kv(c, &s, &s.keys, k, kq, "k"));
    EK_TRY(check_kv(c, &s, &s.values, v, vq, "v"));
    if (how.mask) EK_TRY(check_mask(&s, how.mask));
    if (how.window < 0) return ek_fail(EK_EINVAL, "a window of %lld keys; q is %s", (long long)how.window, lib_shape(a, &s.q));
    EK_TRY(check_precision(&s, how.precision, k && v));
    s.window = how.window < s.n_keys + s.rows ? how.window : 0; /* a longer one hides nothing */
    s.scale = how.scale != 0 ? how.scale : 1 / sqrtf((float)s.dim);
    if (yv.count == 0) return EK_OK;
    if (s.rows > (INT64_C(1) << 40) / s.heads) return ek_fail(EK_EINVAL, "q %s has too many rows", lib_shape(a, &s.q));
    EK_TRY(find_starts(c, &s, how.key_start));
    s.ratio = (int)(s.heads / s.kv_heads);
    s.tiles_a_head = (s.rows * s.ratio + EK_TILE - 1) / EK_TILE;
    s.ldo = (s.dim + 31) / 32 * 32;
    const lib_kv *kp = &s.keys, *vp = &s.values; /* absent views have no elements */
    EK_TRY(lib_out_begin(c, &out, &yv, 10,
                         (const lib_view *[]){&s.q, &s.mask, &kp->dense, &vp->dense, &kp->q.codes, &kp->q.scales, &kp->q.biases,
                                              &vp->q.codes, &vp->q.scales, &vp->q.biases}));
    s.y = out.view;
    EK_TRY(run(c, &s));
    lib_out_end(c, &out);
    return EK_OK;
}

ek_status ek_sdpa(ek_view y, ek_view q, ek_view k, ek_view v, const ek_sdpa_options *options)
{
    lib_call c;
    ek_err e = lib_enter(&c);
    if (e != EK_OK) return lib_status(e);
    e = sdpa(&c, &y, &q, &k, &v, NULL, NULL, options);
    lib_leave(&c);
    return lib_status(e);
}

ek_status ek_sdpa_quantized(ek_view y, ek_view q, const ek_qview *k, const ek_qview *v, const ek_sdpa_options *options)
{
    if (!k || !v) return lib_status(ek_fail(EK_EINVAL, "%s is missing", k ? "v" : "k"));
    lib_call c;
    ek_err e = lib_enter(&c);
    if (e != EK_OK) return lib_status(e);
    e = sdpa(&c, &y, &q, NULL, NULL, k, v, options);
    lib_leave(&c);
    return lib_status(e);
}
