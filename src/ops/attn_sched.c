#include "ops/attn_sched.h"

#include <string.h>

#include "ops/math.h"
#include "ops/tree.h"
#include "tensor/dtype.h"

enum {
    TASKS_PER_WORKER = 4,      /* tiles larger than such a share of all leaves are split */
    MAX_SPLIT_BYTES = 1 << 28, /* of leaves that stand alone; more, and nothing is split */
    JOIN_ALONE = 1 << 14       /* floats that the caller joins by itself: cheaper than asking for help */
};

/* ------------------------------------------------------------------ memory */

/* Leaves of a tile that one worker added, from a block on: nodes of T by level. */
typedef struct span {
    _Alignas(64) int64_t blocks;
    ek_attn_node *stack;     /* by level; if away, see node_at */
    bool away;               /* left the stack of its worker */
    unsigned count[EK_TILE]; /* leaves of a query */
} span;

/* A tile that is cut into blocks of 2^level leaves, numbered over all split tiles. */
typedef struct split {
    int64_t tile, first_block, n_blocks;
    int64_t first_node; /* nodes_per_block for each, for sums that leave the stack of their worker */
    int level;
} split;

typedef struct item {
    int64_t tile;
    int64_t keys;  /* of whole tiles: n from `tile` on */
    int64_t block; /* of a split tile: n from this one on */
    int n, split;  /* split: -1 for whole tiles */
} item;

typedef struct worker {
    bool ready;
    int64_t keys, queries; /* last read: tile.keys, and the tile whose queries stand in space[0]; -1: none */
    ek_attn_space space[EK_ATTN_GROUP];
    ek_attn_node now;
    ek_attn_node *stack[EK_ATTN_GROUP], *joined; /* levels each */
    struct span *span;                           /* the one on stack[0], or NULL */
    const split *on;                             /* whose it is */
    int64_t first, end;                          /* its blocks */
} worker;

typedef struct job {
    const ek_attn_source *s;
    const ek_attn_cut *cut;
    int levels;
    size_t node_bytes, worker_bytes;
    item *items;
    int64_t n_items, n_split;
    split *splits;
    span *spans;         /* [block]: those that begin there */
    ek_attn_node *nodes; /* what left its stack */
    uint8_t *sums;       /* of these */
    uint8_t *workers;
} job;

static size_t lines(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

static size_t node_bytes(const ek_attn_source *s)
{
    return lines(sizeof(float) * EK_TILE * (size_t)(s->ldo + 2));
}

static void lay_node(const ek_attn_source *s, ek_attn_node *n, uint8_t *at)
{
    EK_ASSERT(2 * EK_TILE * sizeof(float) % 64 == 0 && s->ldo % 16 == 0);
    n->m = (int *)at, n->l = (float *)at + EK_TILE, n->o = (float *)at + 2 * EK_TILE;
}

/* Levels of a tree of n leaves. */
static int levels_of(int64_t n)
{
    int levels = 1;
    for (; n > 1; n /= 2) levels++;
    return levels;
}

/* Reserves bytes at `at`; with at = NULL only counts them. */
static void *reserve(uint8_t *at, size_t *used, size_t bytes)
{
    void *p = at ? at + *used : NULL;
    *used += lines(bytes);
    return p;
}

/* Lays out a worker's memory; with at = NULL: the bytes that it takes. */
static size_t lay_worker(const ek_attn_source *s, int levels, uint8_t *at)
{
    worker x = {.ready = true, .keys = -1, .queries = -1};
    size_t used = lines(sizeof x), n_nodes = (size_t)(1 + levels * (1 + s->group));
    float *e = reserve(at, &used, sizeof *e * EK_TILE * EK_SEGMENT);
    for (int g = 0; g < s->group; g++) {
        x.space[g].q = reserve(at, &used, sizeof *x.space[g].q * EK_TILE * EK_Q_STRIDE);
        x.space[g].own = reserve(at, &used, s->own_bytes);
        x.space[g].e = e;
    }
    ek_attn_node *node = reserve(at, &used, sizeof *node * n_nodes);
    uint8_t *sums = reserve(at, &used, node_bytes(s) * n_nodes);
    if (!at) return used;
    for (size_t i = 0; i < n_nodes; i++) lay_node(s, &node[i], sums + i * node_bytes(s));
    for (int g = 0; g < s->group; g++) x.stack[g] = node + (size_t)(g * levels);
    x.joined = node + (size_t)(s->group * levels);
    x.now = node[n_nodes - 1];
    memcpy(at, &x, sizeof x);
    return used;
}

/* Cores may be far from each other: each lays out its memory itself. */
static worker *worker_of(const job *j, int number)
{
    worker *w = (worker *)(j->workers + (size_t)number * j->worker_bytes);
    if (!w->ready) lay_worker(j->s, j->levels, (uint8_t *)w);
    return w;
}

/* ------------------------------------------------------------------ the cut */

static int64_t leaves_of(const ek_attn_source *s, const ek_attn_tile *t)
{
    return t->seg1 - t->seg0 + s->sinks;
}

static ek_attn_tile tile_at(const ek_attn_source *s, int64_t number)
{
    ek_attn_tile t;
    t.number = number;
    s->tile(s->self, &t);
    int64_t lo = INT64_MAX, end = 0, last_lo = 0;
    for (int i = 0; i < t.n_q; i++) {
        if (t.lo[i] >= t.end[i]) continue;
        if (t.lo[i] < lo) lo = t.lo[i];
        if (t.lo[i] > last_lo) last_lo = t.lo[i];
        if (t.end[i] > end) end = t.end[i];
    }
    t.seg0 = end > 0 ? lo / EK_SEGMENT : 0;
    t.seg1 = (end + EK_SEGMENT - 1) / EK_SEGMENT;
    t.gapless = !s->masked && (end == 0 || last_lo / EK_SEGMENT == t.seg0);
    return t;
}

/* Cuts tile t; false: it stays whole. Where a mask makes gaps, blocks are single leaves; other tiles with gaps are
 * rare, and stay whole. */
static bool split_tile(const ek_attn_source *s, const ek_attn_cut *cut, const ek_attn_tile *t, split *x)
{
    const int64_t leaves = leaves_of(s, t);
    if (leaves <= cut->limit || (!t->gapless && !s->masked)) return false;
    x->tile = t->number;
    x->level = t->gapless ? cut->level : 0;
    x->n_blocks = ((leaves - 1) >> x->level) + 1;
    return true;
}

/* Blocks of a task. */
static int64_t blocks_per_task(const ek_attn_cut *cut, const ek_attn_tile *t)
{
    return t->gapless ? 1 : cut->limit;
}

/* A span of n blocks has at most n levels of whole blocks, and what is behind them in one more node. */
static int64_t nodes_per_block(const split *x)
{
    return x->level ? 2 : 1;
}

/* What the cut takes of memory, besides that of the workers. */
static size_t shared_bytes(const ek_attn_source *s, const ek_attn_cut *cut)
{
    return lines(sizeof(item) * (size_t)cut->n_items) + lines(sizeof(split) * (size_t)cut->n_split) +
           lines(sizeof(span) * (size_t)cut->n_blocks) + lines(sizeof(ek_attn_node) * (size_t)cut->n_nodes) +
           node_bytes(s) * (size_t)cut->n_nodes;
}

static size_t all_bytes(const ek_attn_source *s, const ek_attn_cut *cut, int n_workers)
{
    return shared_bytes(s, cut) + (size_t)n_workers * lay_worker(s, levels_of(cut->max_leaves), NULL);
}

static void count_splits(ek_attn_cut *cut, const ek_attn_source *s)
{
    cut->n_items = s->n_tiles, cut->n_split = cut->n_blocks = cut->n_nodes = 0;
    for (int64_t i = 0; i < s->n_tiles && cut->limit < cut->max_leaves; i++) {
        const ek_attn_tile t = tile_at(s, i);
        split x;
        if (!split_tile(s, cut, &t, &x)) continue;
        cut->n_split++;
        cut->n_blocks += x.n_blocks;
        cut->n_nodes += x.n_blocks * nodes_per_block(&x);
        cut->n_items += (x.n_blocks - 1) / blocks_per_task(cut, &t);
    }
}

size_t ek_attn_cut_work(ek_attn_cut *cut, const ek_attn_source *s, int n_workers)
{
    const int64_t tasks = TASKS_PER_WORKER * (int64_t)n_workers;
    *cut = (ek_attn_cut){.max_leaves = 1, .limit = INT64_MAX, .group = 1};
    int64_t total = 0;
    for (int64_t i = 0; i < s->n_tiles; i++) {
        const ek_attn_tile t = tile_at(s, i);
        const int64_t leaves = leaves_of(s, &t);
        total += leaves;
        if (leaves > cut->max_leaves) cut->max_leaves = leaves;
    }
    if (s->n_tiles >= tasks * s->group) cut->group = s->group;
    if (n_workers > 1) cut->limit = total < tasks ? 1 : total / tasks;
    while (n_workers > 1 && cut->limit >> (cut->level + 1)) cut->level++;
    count_splits(cut, s);
    if (s->masked && (size_t)cut->n_nodes * node_bytes(s) > MAX_SPLIT_BYTES) {
        cut->limit = INT64_MAX;
        count_splits(cut, s);
    }
    return all_bytes(s, cut, n_workers);
}

size_t ek_attn_schedule_bytes(const ek_attn_source *s, int64_t n_tiles, int64_t max_leaves, int n_workers)
{
    /* A split tile has more than total / tasks leaves, a block more than half of that: at most three times as many
     * blocks as tasks. */
    const int64_t blocks = 3 * TASKS_PER_WORKER * (int64_t)n_workers;
    ek_attn_cut cut = {.max_leaves = max_leaves, .n_items = n_tiles + blocks, .n_split = blocks, .n_blocks = blocks};
    cut.n_nodes = 2 * blocks;
    return all_bytes(s, &cut, n_workers);
}

static void fill_items(job *j)
{
    const ek_attn_source *s = j->s;
    const ek_attn_cut *cut = j->cut;
    int64_t n_blocks = 0, n_nodes = 0;
    for (int64_t number = s->n_tiles - 1; number >= 0;) { /* the last tiles of a prompt have the most keys */
        const ek_attn_tile t = tile_at(s, number);
        split x = {.first_block = n_blocks, .first_node = n_nodes};
        if (!split_tile(s, cut, &t, &x)) {
            item *last = j->n_items ? &j->items[j->n_items - 1] : NULL;
            if (last && last->split < 0 && last->tile == number + 1 && last->keys == t.keys && last->n < cut->group)
                last->tile = number, last->n++;
            else j->items[j->n_items++] = (item){.tile = number, .keys = t.keys, .n = 1, .split = -1};
            number--;
            continue;
        }
        const int64_t each = blocks_per_task(cut, &t);
        for (int64_t b = 0; b < x.n_blocks; b += each)
            j->items[j->n_items++] = (item){.tile = number,
                                            .block = n_blocks + b,
                                            .n = (int)(x.n_blocks - b < each ? x.n_blocks - b : each),
                                            .split = (int)j->n_split};
        n_blocks += x.n_blocks, n_nodes += x.n_blocks * nodes_per_block(&x);
        j->splits[j->n_split++] = x;
        number--;
    }
    EK_ASSERT(j->n_items <= cut->n_items && j->n_split == cut->n_split && n_blocks == cut->n_blocks);
}

/* ------------------------------------------------------------------ the tree T */

/* 2^n for n <= 0, +0 below 2^-125. */
static float factor(int64_t n)
{
    return n < -125 ? 0.0f : ek_bits_f32((uint32_t)(n + 127) << 23);
}

/* Query i of later = earlier + later. */
static void combine(const ek_attn_source *s, const ek_attn_node *earlier, ek_attn_node *later, int i)
{
    const int ma = earlier->m[i], mb = later->m[i], m = ma > mb ? ma : mb;
    const float fa = factor((int64_t)ma - m), fb = factor((int64_t)mb - m);
    later->l[i] = earlier->l[i] * fa + later->l[i] * fb;
    later->m[i] = m;
    s->combine(later->o + i * s->ldo, earlier->o + i * s->ldo, fb, fa, (int)s->ldo);
}

static void copy(const ek_attn_source *s, ek_attn_node *to, const ek_attn_node *from, int i)
{
    to->m[i] = from->m[i], to->l[i] = from->l[i];
    memcpy(to->o + i * s->ldo, from->o + i * s->ldo, sizeof(float) * (size_t)s->ldo);
}

/* Query i of a node of 2^level leaves, a whole branch of the tree, behind count leaves. */
static void push(const ek_attn_source *s, ek_attn_node *stack, ek_attn_node *node, unsigned count, int level, int i)
{
    EK_ASSERT((count & ((1u << level) - 1)) == 0);
    const int to = level + ek_tree_level(count >> level);
    for (; level < to; level++) combine(s, &stack[level], node, i);
    copy(s, &stack[to], node, i);
}

/* A leaf of n queries that have count leaves each: the sums change places with what lay on the stack. */
static void push_all(const ek_attn_source *s, ek_attn_node *stack, ek_attn_node *leaf, unsigned count, int n)
{
    const int to = ek_tree_level(count);
    for (int level = 0; level < to; level++)
        for (int i = 0; i < n; i++) combine(s, &stack[level], leaf, i);
    const ek_attn_node was = stack[to];
    stack[to] = *leaf;
    *leaf = was;
}

/* The leaf before all segments: weight without value. */
static void push_sinks(const job *j, const ek_attn_tile *t, worker *w, int g, unsigned *count)
{
    const ek_attn_source *s = j->s;
    for (int i = 0; s->sinks && i < t->n_q; i++) {
        w->now.l[i] = ek_exp_split(s->sink(s->self, t, i), &w->now.m[i]);
        memset(w->now.o + i * s->ldo, 0, sizeof(float) * (size_t)s->ldo);
        push(s, w->stack[g], &w->now, 0, 0, i);
        count[i] = 1;
    }
}

static void push_segment(const job *j, const ek_attn_tile *t, worker *w, int g, int64_t seg, ek_attn_when when,
                         unsigned *count)
{
    const ek_attn_source *s = j->s;
    const unsigned live = s->leaf(s->self, t, seg, when, &w->space[g], &w->now);
    unsigned odd = live ^ ((1u << t->n_q) - 1);
    for (int i = 1; i < t->n_q; i++) odd |= count[i] ^ count[0];
    if (!odd) push_all(s, w->stack[g], &w->now, count[0], t->n_q);
    for (int i = 0; i < t->n_q; i++)
        if (!odd) count[i]++;
        else if (live >> i & 1) push(s, w->stack[g], &w->now, count[i]++, 0, i);
}

/* The sum of query i over the nodes of `count`, and of tail behind them unless NULL; NULL for none. Nodes are used
 * up. */
static ek_attn_node *fold(const ek_attn_source *s, ek_attn_node *stack, unsigned count, ek_attn_node *tail, int i)
{
    ek_attn_node *sum = tail;
    for (int level = ek_tree_node(count, 0); level >= 0; level = ek_tree_node(count, level + 1)) {
        if (sum) combine(s, &stack[level], sum, i);
        else sum = &stack[level];
    }
    return sum;
}

/* The result of query i. -0 becomes +0: whether a sum that underflowed ends in -0 would depend on unseen keys having
 * been added as zeros or not at all. */
static void finish(const ek_attn_source *s, const ek_attn_tile *t, const ek_attn_node *sum, int i, float *restrict row)
{
    const float *restrict o = sum ? sum->o + i * s->ldo : NULL, l = sum ? sum->l[i] : 1;
    for (ptrdiff_t d = 0; d < s->ldo; d++) row[d] = o ? (o[d] + 0.0f) / l : 0.0f;
    s->result(s->self, t, i, row);
}

/* ------------------------------------------------------------------ tasks */

/* The tree of each of n tiles that read the same keys. */
static void run_whole(const job *j, worker *w, const item *it)
{
    const ek_attn_source *s = j->s;
    const int n = it->n;
    ek_attn_tile t[EK_ATTN_GROUP];
    unsigned count[EK_ATTN_GROUP][EK_TILE] = {0};
    int64_t seg0 = INT64_MAX, seg1 = 0;
    w->span = NULL, w->queries = -1;
    for (int g = 0; g < n; g++) {
        t[g] = tile_at(s, it->tile + g);
        s->queries(s->self, &t[g], &w->space[g]);
        push_sinks(j, &t[g], w, g, count[g]);
        if (t[g].seg0 < t[g].seg1 && t[g].seg0 < seg0) seg0 = t[g].seg0;
        if (t[g].seg1 > seg1) seg1 = t[g].seg1;
    }
    const bool cold = w->keys != it->keys;
    w->keys = it->keys;
    for (int64_t seg = seg0; seg < seg1; seg++)
        for (int g = 0; g < n; g++) {
            if (seg < t[g].seg0 || seg >= t[g].seg1) continue;
            const ek_attn_when when = {.cold = cold && seg == seg0,
                                       .begins = seg == seg0,
                                       .first = g == 0,
                                       .last = g == n - 1 && seg + 1 < seg1};
            push_segment(j, &t[g], w, g, seg, when, count[g]);
        }
    for (int g = 0; g < n; g++)
        for (int i = 0; i < t[g].n_q; i++)
            finish(s, &t[g], fold(s, w->stack[g], count[g][i], NULL, i), i, w->space[0].e);
}

/* Leaves of a query behind its last whole block: its last ones. */
static unsigned tail_of(const split *x, unsigned count)
{
    return count & ((1u << x->level) - 1);
}

/* The node of a span for a level of whole blocks; away, what is behind these is one node before them. */
static ek_attn_node *node_at(const split *x, const span *at, int level)
{
    return &at->stack[at->away && x->level ? 1 + level - x->level : at->away ? level - x->level : level];
}

static void lay_away(const job *j, ek_attn_node *node)
{
    lay_node(j->s, node, j->sums + (size_t)(node - j->nodes) * j->node_bytes);
}

/* What is on the stack makes room for the next span. */
static void put_away(const job *j, worker *w)
{
    span *old = w->span;
    w->span = NULL;
    if (!old) return;
    const split *x = w->on;
    ek_attn_node *stack = old->stack;
    old->stack = j->nodes + x->first_node + (w->first - x->first_block) * nodes_per_block(x);
    old->away = true;
    for (int level = x->level; level < j->levels; level++)
        for (int i = 0, laid = 0; i < EK_TILE; i++) {
            if (!(old->count[i] >> level & 1)) continue;
            ek_attn_node *to = node_at(x, old, level);
            if (!laid++) lay_away(j, to);
            copy(j->s, to, &stack[level], i);
        }
    for (int i = 0, laid = 0; i < EK_TILE; i++) {
        const ek_attn_node *tail = fold(j->s, stack, tail_of(x, old->count[i]), NULL, i);
        if (!tail) continue;
        if (!laid++) lay_away(j, old->stack);
        copy(j->s, old->stack, tail, i);
    }
}

/* Blocks that follow each other stay on one stack as long as its branches are branches of the tile's tree: up to the
 * largest one that can begin where the span does. */
static bool goes_on(const worker *w, const split *x, const ek_attn_tile *t, int64_t block)
{
    const int64_t first = w->first - x->first_block, n = block + 1 - w->first;
    return w->span && w->on == x && t->gapless && block == w->end && (first == 0 || n <= (first & -first));
}

static void run_blocks(const job *j, worker *w, const item *it)
{
    const ek_attn_source *s = j->s;
    const split *x = &j->splits[it->split];
    const ek_attn_tile t = tile_at(s, it->tile);
    if (w->queries != t.number) s->queries(s->self, &t, &w->space[0]);
    w->queries = t.number, w->keys = t.keys;
    for (int64_t block = it->block; block < it->block + it->n; block++) {
        bool begins = !goes_on(w, x, &t, block);
        if (begins) {
            put_away(j, w);
            w->span = &j->spans[block];
            *w->span = (span){.stack = w->stack[0]};
            w->on = x, w->first = block;
        }
        int64_t leaf = (block - x->first_block) << x->level, end = leaf + ((int64_t)1 << x->level);
        if (leaf == 0) push_sinks(j, &t, w, 0, w->span->count);
        for (; leaf < end; leaf++) {
            const int64_t seg = t.seg0 + leaf - s->sinks;
            if (seg < t.seg0 || seg >= t.seg1) continue;
            const ek_attn_when when = {.cold = begins, .begins = begins, .first = true, .last = seg + 1 < t.seg1};
            push_segment(j, &t, w, 0, seg, when, w->span->count);
            begins = false;
        }
        w->span->blocks++;
        w->end = block + 1;
    }
}

static void run_item(void *arg, int64_t task, int number)
{
    const job *j = arg;
    const item *it = &j->items[task];
    worker *w = worker_of(j, number);
    if (it->split < 0) put_away(j, w), run_whole(j, w, it);
    else run_blocks(j, w, it);
}

/* Query task % EK_TILE of a split tile: T over the spans. */
static void join_query(void *arg, int64_t task, int number)
{
    const job *j = arg;
    const split *x = &j->splits[task / EK_TILE];
    const int i = (int)(task % EK_TILE);
    const ek_attn_tile t = tile_at(j->s, x->tile);
    if (i >= t.n_q) return;
    worker *w = worker_of(j, number);
    unsigned count = 0;
    ek_attn_node *tail = NULL;
    const span *at = &j->spans[x->first_block], *end = at + x->n_blocks;
    for (; at < end; at += at->blocks) {
        for (int level = j->levels - 1; level >= x->level; level--) {
            if (!(at->count[i] >> level & 1)) continue;
            copy(j->s, &w->now, node_at(x, at, level), i);
            push(j->s, w->joined, &w->now, count, level, i);
            count += 1u << level;
        }
        const unsigned rest = tail_of(x, at->count[i]);
        if (rest) tail = at->away ? at->stack : fold(j->s, at->stack, rest, NULL, i);
    }
    finish(j->s, &t, fold(j->s, w->joined, count, tail, i), i, w->space[0].e);
}

static void join_all(void *arg, int64_t task, int number)
{
    const job *j = arg;
    for (int64_t i = task; i < j->n_split * EK_TILE; i++) join_query(arg, i, number);
}

void ek_attn_schedule(const ek_attn_source *s, const ek_attn_cut *cut, const ek_attn_workers *workers, void *memory)
{
    job j = {.s = s, .cut = cut, .levels = levels_of(cut->max_leaves), .node_bytes = node_bytes(s)};
    size_t used = 0;
    j.items = reserve(memory, &used, sizeof *j.items * (size_t)cut->n_items);
    j.splits = reserve(memory, &used, sizeof *j.splits * (size_t)cut->n_split);
    j.spans = reserve(memory, &used, sizeof *j.spans * (size_t)cut->n_blocks);
    j.nodes = reserve(memory, &used, sizeof *j.nodes * (size_t)cut->n_nodes);
    j.sums = reserve(memory, &used, j.node_bytes * (size_t)cut->n_nodes);
    j.workers = (uint8_t *)memory + used;
    j.worker_bytes = lay_worker(s, j.levels, NULL);
    for (int i = 0; i < workers->n_workers; i++) ((worker *)(j.workers + (size_t)i * j.worker_bytes))->ready = false;
    fill_items(&j);
    workers->run(workers->self, run_item, &j, j.n_items);
    const int64_t joins = j.n_split * EK_TILE;
    if (joins * s->ldo * workers->n_workers > JOIN_ALONE) workers->run(workers->self, join_query, &j, joins);
    else workers->run(workers->self, join_all, &j, joins > 0);
}
