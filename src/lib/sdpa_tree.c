/* The work of attention: tiles of queries, the tree over their segments, and who adds which part. What a leaf is:
 * sdpa_leaf.c. */
#include <math.h>
#include <string.h>

#include "lib/sdpa.h"
#include "ops/math.h"

enum {
    TILES_A_WORKER = 4,     /* fewer, and tiles are split into segments */
    PIECES_A_WORKER = 4,    /* of split tiles */
    SPLIT_MOST = 256 << 20, /* bytes of leaves; more, and they are not */
    JOIN_ALONE = 1 << 14    /* floats that the caller joins by itself */
};

/* ------------------------------------------------------------------ tiles */

static lib_tile tile_at(const lib_sdpa *s, int64_t number)
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

/* A row of q in bf16, as Form B reads it. */
static void pair_query(const lib_sdpa *s, uint16_t *q16, const uint8_t *from, int i)
{
    const int64_t stride = lib_stride(&s->q, 1);
    for (int d = 0; d < s->dim; d += 32) {
        const int n = s->dim - d < 32 ? s->dim - d : 32;
        uint16_t *to = q16 + lib_q16(i, d);
        if (stride == 2) memcpy(to, from + 2 * d, (size_t)n * sizeof *to);
        else
            for (int j = 0; j < n; j++) memcpy(to + j, from + (d + j) * stride, sizeof *to);
    }
}

static void tile_queries(const lib_sdpa *s, const lib_tile *t, lib_leaf_space *space)
{
    if (s->pairs) memset(space->q16, 0, sizeof *space->q16 * EK_TILE * EK_MAX_HEAD_DIM);
    else memset(space->q, 0, sizeof *space->q * EK_TILE * EK_Q_STRIDE);
    for (int i = 0; i < t->n_q; i++) {
        const uint8_t *from = s->q.data + t->b * s->q.stride[0] + lib_query_head(s, t, i) * s->q.stride[1] +
                              lib_query_row(s, t, i) * s->q.stride[2];
        float *q = space->q + i * EK_Q_STRIDE;
        if (s->pairs) {
            pair_query(s, space->q16, from, i);
            continue;
        }
        lib_load(s->k, q, from, s->q.type, s->q.stride[3], s->dim);
        for (int d = 0; d < s->dim && s->scale != 1; d++) q[d] *= s->scale;
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
    s->k->attn.combine(later->o + i * s->ldo, earlier->o + i * s->ldo, fb, fa, (int)s->ldo); /* in the kernel's order */
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

/* The head's sink, the leaf before all segments: weight without value. Returns how many there are. */
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
    if (s->pairs && s->k->attn.order_bf16) s->k->attn.order_bf16(row, s->dim);
    uint8_t *to = s->y.data + t->b * s->y.stride[0] + lib_query_head(s, t, i) * s->y.stride[1] +
                  lib_query_row(s, t, i) * s->y.stride[2];
    lib_store(s->k, to, s->y.type, s->y.stride[3], row, s->dim);
}

/* ------------------------------------------------------------------ tasks */

/* Of a worker, in memory of its own that it lays out itself: cores may be far from each other. */
typedef struct worker_space {
    bool ready;
    lib_leaf_space leaf;
    int64_t tile; /* the last one; -1: none */
    lib_node now;
    lib_node *stack, *joined; /* of the blocks it adds, and of what it joins */
    struct span *span;        /* the one that is on the stack, or NULL */
    int64_t first, end;       /* its blocks, numbered over all tiles */
} worker_space;

/* Leaves of a tile that one worker added, from a block on. */
typedef struct span {
    _Alignas(64) int64_t blocks;
    lib_node *stack;
    unsigned count[EK_TILE]; /* of a query */
} span;

typedef struct work {
    const lib_sdpa *s;
    uint8_t *space;
    size_t space_bytes, node_bytes;
    int64_t n_tiles, most_leaves; /* of a tile */
    int levels;
    /* If tiles are split: into blocks of 2^level leaves, the leaves of a tile numbered from its first
     * segment, or its sink. Gapless: each query sees the segments from the first on without a gap, so that
     * a block is a branch of its tree, and blocks that follow each other may be; else level is 0. */
    bool gapless;
    int level;
    int64_t blocks, blocks_a_task; /* of a tile */
    span *span;                    /* [tile][block]: those that begin there */
    lib_node *nodes;               /* [tile][block][level + 1]: what left the stack of its worker */
    uint8_t *sums;                 /* of these */
} work;

static size_t lines(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

static void lay_node(const lib_sdpa *s, lib_node *n, uint8_t *at)
{
    n->m = (int *)at, n->l = (float *)at + EK_TILE, n->o = (float *)at + 2 * EK_TILE;
    EK_ASSERT(2 * EK_TILE * sizeof(float) % 64 == 0 && s->ldo % 16 == 0);
}

/* With at = NULL: the bytes that it takes. */
static size_t lay_space(const work *w, uint8_t *at)
{
    const lib_sdpa *s = w->s;
    worker_space x = {.ready = true, .tile = -1};
    size_t used = lines(sizeof x);
#define LAY(member, n) (x.member = (void *)(at ? at + used : NULL), used += lines(sizeof *x.member * (size_t)(n)))
    LAY(leaf.q, EK_TILE * EK_Q_STRIDE);
    LAY(leaf.e, EK_TILE * EK_SEGMENT);
    LAY(leaf.q16, EK_TILE * EK_MAX_HEAD_DIM);
    LAY(leaf.p, EK_TILE * EK_SEGMENT);
    LAY(leaf.rows, LIB_KEYS * s->ldo);
    LAY(stack, w->levels);
    LAY(joined, w->levels);
#undef LAY
    for (int i = 0; i <= 2 * w->levels; i++, used += w->node_bytes)
        if (at)
            lay_node(s, i == 0 ? &x.now : i <= w->levels ? &x.stack[i - 1] : &x.joined[i - 1 - w->levels], at + used);
    if (at) memcpy(at, &x, sizeof x);
    return used;
}

static worker_space *space_of(const work *w, int worker)
{
    worker_space *space = (worker_space *)(w->space + (size_t)worker * w->space_bytes);
    if (!space->ready) lay_space(w, (uint8_t *)space);
    return space;
}

/* Leaves [first, end) of a tile go on the stack of count ones. */
static void push_leaves(const lib_sdpa *s, const lib_tile *t, int64_t first, int64_t end, worker_space *space,
                        unsigned *count)
{
    for (int i = 0; first == 0 && i < t->n_q; i++) count[i] = push_sink(s, t, space->stack, &space->now, i);
    for (int64_t leaf = first; leaf < end; leaf++) {
        int64_t seg = t->seg0 + leaf - (s->sinks != NULL);
        if (seg < t->seg0 || seg >= t->seg1) continue;
        unsigned live = lib_leaf(s, t, seg, &space->leaf, &space->now), odd = live ^ ((1u << t->n_q) - 1);
        for (int i = 1; i < t->n_q; i++) odd |= count[i] ^ count[0];
        if (!odd) push_all(s, space->stack, &space->now, count[0], t->n_q);
        for (int i = 0; i < t->n_q; i++)
            if (!odd) count[i]++;
            else if (live >> i & 1) push(s, space->stack, &space->now, count[i]++, 0, i);
    }
}

static void tile_task(void *arg, int64_t task, int worker)
{
    const work *w = arg;
    worker_space *space = space_of(w, worker);
    lib_tile t = tile_at(w->s, task);
    unsigned count[EK_TILE] = {0};
    tile_queries(w->s, &t, &space->leaf);
    if (space->tile < 0 || space->tile / w->s->tiles_a_head != task / w->s->tiles_a_head) space->leaf.cold = true;
    space->tile = task;
    push_leaves(w->s, &t, 0, w->most_leaves, space, count);
    for (int i = 0; i < t.n_q; i++) finish(w->s, &t, space->stack, count[i], i, space->leaf.e);
}

/* What is on the stack makes room for the next span. A span of n blocks has at most n (level + 1) nodes. */
static void put_away(const work *w, worker_space *space)
{
    span *old = space->span;
    if (!old) return;
    const int64_t at = space->first * (w->level + 1);
    old->stack = w->nodes + at;
    for (int level = 0; level < w->levels; level++)
        for (int i = 0, laid = 0; i < EK_TILE; i++) {
            if (!(old->count[i] >> level & 1)) continue;
            lib_node *from = &space->stack[level], *to = &old->stack[level];
            if (!laid++) lay_node(w->s, to, w->sums + (size_t)(at + level) * w->node_bytes);
            to->m[i] = from->m[i], to->l[i] = from->l[i];
            memcpy(to->o + i * w->s->ldo, from->o + i * w->s->ldo, sizeof(float) * (size_t)w->s->ldo);
        }
}

/* Blocks that follow each other stay on one stack as long as its branches are branches of the tile's tree:
 * up to the largest one that can begin where the span does. */
static bool goes_on(const work *w, const worker_space *space, int64_t block)
{
    const int64_t first = space->first % w->blocks, n = block + 1 - space->first;
    return space->span && w->gapless && block == space->end && block % w->blocks != 0 &&
           (first == 0 || n <= (first & -first));
}

static void block_task(void *arg, int64_t task, int worker)
{
    const work *w = arg;
    int64_t tasks = (w->blocks + w->blocks_a_task - 1) / w->blocks_a_task, number = task / tasks;
    int64_t begin = task % tasks * w->blocks_a_task;
    worker_space *space = space_of(w, worker);
    lib_tile t = tile_at(w->s, number);
    if (space->tile != number) tile_queries(w->s, &t, &space->leaf);
    space->tile = number;
    for (int64_t b = begin; b < begin + w->blocks_a_task && b < w->blocks; b++) {
        const int64_t block = number * w->blocks + b;
        if (!goes_on(w, space, block)) {
            put_away(w, space);
            space->span = &w->span[block];
            *space->span = (span){.stack = space->stack};
            space->leaf.cold = true;
            space->first = block;
        }
        push_leaves(w->s, &t, b << w->level, (b + 1) << w->level, space, space->span->count);
        space->span->blocks++;
        space->end = block + 1;
    }
}

static void join_task(void *arg, int64_t task, int worker)
{
    const work *w = arg;
    worker_space *space = space_of(w, worker);
    lib_tile t = tile_at(w->s, task / EK_TILE);
    int i = (int)(task % EK_TILE);
    if (i >= t.n_q) return;
    unsigned count = 0;
    const span *at = &w->span[task / EK_TILE * w->blocks], *end = at + w->blocks;
    for (; at < end; at += at->blocks)
        for (int level = w->levels - 1; level >= 0; level--) /* a span with fewer leaves is the query's last */
            if (at->count[i] >> level & 1) {
                const lib_node *from = &at->stack[level];
                space->now.m[i] = from->m[i], space->now.l[i] = from->l[i];
                memcpy(space->now.o + i * w->s->ldo, from->o + i * w->s->ldo, sizeof(float) * (size_t)w->s->ldo);
                push(w->s, space->joined, &space->now, count, level, i);
                count += 1u << level;
            }
    finish(w->s, &t, space->joined, count, i, space->leaf.e);
}

/* By the caller: for little, cheaper than asking for help. */
static void join_all(void *arg, int64_t task, int worker)
{
    const work *w = arg;
    for (int64_t i = task; i < w->n_tiles * EK_TILE; i++) join_task(arg, i, worker);
}

/* ------------------------------------------------------------------ a call */

static ek_err take_space(lib_call *c, work *w)
{
    w->levels = 1;
    for (int64_t n = w->most_leaves; n > 1; n /= 2) w->levels++;
    w->node_bytes = lines(sizeof(float) * EK_TILE * (size_t)(w->s->ldo + 2));
    w->space_bytes = lay_space(w, NULL);
    w->space = lib_take_array(c, (size_t)c->n_workers, w->space_bytes);
    if (!w->space) return EK_ENOMEM;
    for (int i = 0; i < c->n_workers; i++) ((worker_space *)(w->space + (size_t)i * w->space_bytes))->ready = false;
    return EK_OK;
}

/* Tiles become blocks: fewer tiles than workers can share. */
static ek_err split(lib_call *c, work *w)
{
    const lib_sdpa *s = w->s;
    int64_t most = 1;
    for (int64_t i = 0; i < w->n_tiles; i++) {
        lib_tile t = tile_at(s, i);
        if (t.seg1 - t.seg0 > most) most = t.seg1 - t.seg0;
    }
    w->most_leaves = most + (s->sinks != NULL);
    int64_t leaves = w->n_tiles * w->most_leaves / ((int64_t)c->n_workers * PIECES_A_WORKER); /* of a task */
    w->gapless = !s->masked && (!s->window || s->rows == 1);
    w->blocks_a_task = w->gapless || leaves < 1 ? 1 : leaves;
    while (w->gapless && leaves >> (w->level + 1)) w->level++;
    w->blocks = ((w->most_leaves - 1) >> w->level) + 1;
    const size_t blocks = (size_t)(w->n_tiles * w->blocks), nodes = blocks * (size_t)(w->level + 1);
    w->span = lib_take_array(c, blocks, sizeof *w->span);
    w->nodes = lib_take_array(c, nodes, sizeof *w->nodes);
    w->sums = lib_take_array(c, nodes, w->node_bytes);
    return w->span && w->nodes && w->sums ? EK_OK : EK_ENOMEM;
}

ek_err lib_attend(lib_call *c, const lib_sdpa *s)
{
    work w = {.s = s,
              .n_tiles = s->batch * s->kv_heads * s->tiles_a_head,
              .most_leaves = s->n_keys / EK_SEGMENT + 2 + (s->sinks != NULL)};
    EK_TRY(take_space(c, &w));
    if (w.n_tiles >= (int64_t)c->n_workers * TILES_A_WORKER || c->n_workers == 1 || s->n_keys <= EK_SEGMENT ||
        w.n_tiles * w.most_leaves >= SPLIT_MOST / (EK_TILE * s->ldo * (int64_t)sizeof(float))) {
        lib_run(c, tile_task, &w, w.n_tiles);
        return EK_OK;
    }
    EK_TRY(split(c, &w));
    lib_run(c, block_task, &w, w.n_tiles * ((w.blocks + w.blocks_a_task - 1) / w.blocks_a_task));
    const int64_t joins = w.n_tiles * EK_TILE;
    if (joins * s->ldo * c->n_workers > JOIN_ALONE) lib_run(c, join_task, &w, joins);
    else lib_run(c, join_all, &w, 1);
    return EK_OK;
}
