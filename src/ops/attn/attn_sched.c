/* Attention's scheduler: the tree T over the segments of a query (ops/attn/attn.h), tasks and workers. */
#include <string.h>

#include "ops/attn/attn_sched_state.h"
#include "ops/math.h"
#include "ops/tree.h"
#include "tensor/dtype.h"

enum { JOIN_ALONE = 1 << 14 /* floats that the caller joins alone, because asking other threads takes longer */ };

/* --- the tree T: a stack holds its nodes by level; i: the query --- */

/* 2^n for n <= 0, +0 below 2^-125. */
static float factor(int64_t n)
{
    return n < -125 ? 0.0f : ek_bits_f32((uint32_t)(n + 127) << 23);
}

/* Adds query i of `earlier` to `later`. */
static void combine(const ek_attn_source *s, const ek_attn_node *earlier, ek_attn_node *later, int i)
{
    const int ma = earlier->m[i], mb = later->m[i], m = ma > mb ? ma : mb;
    const float fa = factor((int64_t)ma - m), fb = factor((int64_t)mb - m);
    later->l[i] = earlier->l[i] * fa + later->l[i] * fb;
    later->m[i] = m;
    s->combine(later->o + i * s->ldo, earlier->o + i * s->ldo, fb, fa, (int)s->ldo);
}

static void node_copy(const ek_attn_source *s, ek_attn_node *to, const ek_attn_node *from, int i)
{
    to->m[i] = from->m[i], to->l[i] = from->l[i];
    memcpy(to->o + i * s->ldo, from->o + i * s->ldo, sizeof(float) * (size_t)s->ldo);
}

/* Adds query i of a node of 2^level leaves, a whole branch of the tree, after count leaves. */
static void tree_push(const ek_attn_source *s, ek_attn_node *stack, ek_attn_node *node, unsigned count, int level,
                      int i)
{
    EK_ASSERT((count & ((1u << level) - 1)) == 0);
    const int to = level + ek_tree_level(count >> level);
    for (; level < to; level++) combine(s, &stack[level], node, i);
    node_copy(s, &stack[to], node, i);
}

/* Adds a leaf of n queries that have count leaves each. Its sums are exchanged with the stack's. */
static void tree_push_all(const ek_attn_source *s, ek_attn_node *stack, ek_attn_node *leaf, unsigned count, int n)
{
    const int to = ek_tree_level(count);
    for (int level = 0; level < to; level++)
        for (int i = 0; i < n; i++) combine(s, &stack[level], leaf, i);
    const ek_attn_node was = stack[to];
    stack[to] = *leaf;
    *leaf = was;
}

/* The sum of query i over the nodes of `count` leaves, and after them of tail unless it is NULL; NULL for none.
 * Overwrites the nodes. */
static ek_attn_node *tree_fold(const ek_attn_source *s, ek_attn_node *stack, unsigned count, ek_attn_node *tail, int i)
{
    ek_attn_node *sum = tail;
    for (int level = ek_tree_node(count, 0); level >= 0; level = ek_tree_node(count, level + 1)) {
        if (sum) combine(s, &stack[level], sum, i);
        else sum = &stack[level];
    }
    return sum;
}

/* Passes the result of query i to s->result; sum NULL: no key was visible. row: memory for it. -0 becomes +0, because a
 * sum that underflowed would be -0 or +0 depending on whether unseen keys were added as zeros or not at all. */
static void tree_finish(const ek_attn_source *s, const ek_attn_tile *t, const ek_attn_node *sum, int i,
                        float *restrict row)
{
    const float *restrict o = sum ? sum->o + i * s->ldo : NULL, l = sum ? sum->l[i] : 1;
    for (ptrdiff_t d = 0; d < s->ldo; d++) row[d] = o ? (o[d] + 0.0f) / l : 0.0f;
    s->result(s->self, t, i, row);
}

/* --- tasks --- */

/* The worker's memory. Each worker lays out its own, because cores may be far from each other. */
static ek_attn_worker *worker_of(const ek_attn_job *j, int number)
{
    ek_attn_worker *w = (ek_attn_worker *)(j->workers + (size_t)number * j->worker_bytes);
    if (!w->ready) ek_attn_worker_lay(j->s, j->levels, (uint8_t *)w);
    return w;
}

/* Pushes the leaf before all segments: a weight without a value. */
static void push_sinks(const ek_attn_job *j, const ek_attn_tile *t, ek_attn_worker *w, int g, unsigned *count)
{
    const ek_attn_source *s = j->s;
    for (int i = 0; s->sinks && i < t->n_q; i++) {
        w->now.l[i] = ek_exp_split(s->sink(s->self, t, i), &w->now.m[i]);
        memset(w->now.o + i * s->ldo, 0, sizeof(float) * (size_t)s->ldo);
        tree_push(s, w->stack[g], &w->now, 0, 0, i);
        count[i] = 1;
    }
}

static void push_segment(const ek_attn_job *j, const ek_attn_tile *t, ek_attn_worker *w, int g, int64_t seg,
                         ek_attn_when when, unsigned *count)
{
    const ek_attn_source *s = j->s;
    const unsigned live = s->segment(s->self, t, seg, when, &w->space[g], &w->now);
    unsigned odd = live ^ ((1u << t->n_q) - 1);
    for (int i = 1; i < t->n_q; i++) odd |= count[i] ^ count[0];
    if (!odd) tree_push_all(s, w->stack[g], &w->now, count[0], t->n_q);
    for (int i = 0; i < t->n_q; i++)
        if (!odd) count[i]++;
        else if (live >> i & 1) tree_push(s, w->stack[g], &w->now, count[i]++, 0, i);
}

/* Computes the trees of n tiles that read the same keys. */
static void run_whole(const ek_attn_job *j, ek_attn_worker *w, const ek_attn_item *it)
{
    const ek_attn_source *s = j->s;
    const int n = it->n;
    ek_attn_tile t[EK_ATTN_GROUP];
    unsigned count[EK_ATTN_GROUP][EK_TILE] = {0};
    int64_t seg0 = INT64_MAX, seg1 = 0;
    w->span = NULL, w->queries = -1;
    for (int g = 0; g < n; g++) {
        t[g] = ek_attn_tile_at(s, it->tile + g);
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
                                       .alone = n == 1,
                                       .last = g == n - 1 && seg + 1 < seg1};
            push_segment(j, &t[g], w, g, seg, when, count[g]);
        }
    for (int g = 0; g < n; g++)
        for (int i = 0; i < t[g].n_q; i++)
            tree_finish(s, &t[g], tree_fold(s, w->stack[g], count[g][i], NULL, i), i, w->space[0].e);
}

/* The number of a query's leaves behind its last whole block. */
static unsigned tail_of(const ek_attn_split *x, unsigned count)
{
    return count & ((1u << x->level) - 1);
}

/* The node of a span for a level of whole blocks. If `away`, the node for leaves behind these comes before them. */
static ek_attn_node *node_at(const ek_attn_split *x, const ek_attn_span *at, int level)
{
    return &at->stack[at->away && x->level ? 1 + level - x->level : at->away ? level - x->level : level];
}

static void lay_away(const ek_attn_job *j, ek_attn_node *node)
{
    ek_attn_node_lay(j->s, node, j->sums + (size_t)(node - j->nodes) * j->node_bytes);
}

/* Puts the nodes on the stack away, to make room for the next span. */
static void put_away(const ek_attn_job *j, ek_attn_worker *w)
{
    ek_attn_span *old = w->span;
    w->span = NULL;
    if (!old) return;
    const ek_attn_split *x = w->on;
    ek_attn_node *stack = old->stack;
    old->stack = j->nodes + x->first_node + (w->first - x->first_block) * ek_attn_nodes_per_block(x);
    old->away = true;
    for (int level = x->level; level < j->levels; level++)
        for (int i = 0, laid = 0; i < EK_TILE; i++) {
            if (!(old->count[i] >> level & 1)) continue;
            ek_attn_node *to = node_at(x, old, level);
            if (!laid++) lay_away(j, to);
            node_copy(j->s, to, &stack[level], i);
        }
    for (int i = 0, laid = 0; i < EK_TILE; i++) {
        const ek_attn_node *tail = tree_fold(j->s, stack, tail_of(x, old->count[i]), NULL, i);
        if (!tail) continue;
        if (!laid++) lay_away(j, old->stack);
        node_copy(j->s, old->stack, tail, i);
    }
}

/* Whether a block continues the span on the stack: consecutive blocks stay on one stack while its branches are branches
 * of the tile's tree, up to the largest one that can begin where the span does. */
static bool goes_on(const ek_attn_worker *w, const ek_attn_split *x, const ek_attn_tile *t, int64_t block)
{
    const int64_t first = w->first - x->first_block, n = block + 1 - w->first;
    return w->span && w->on == x && t->gapless && block == w->end && (first == 0 || n <= (first & -first));
}

static void run_blocks(const ek_attn_job *j, ek_attn_worker *w, const ek_attn_item *it)
{
    const ek_attn_source *s = j->s;
    const ek_attn_split *x = &j->splits[it->split];
    const ek_attn_tile t = ek_attn_tile_at(s, it->tile);
    if (w->queries != t.number) s->queries(s->self, &t, &w->space[0]);
    w->queries = t.number, w->keys = t.keys;
    for (int64_t block = it->block; block < it->block + it->n; block++) {
        bool begins = !goes_on(w, x, &t, block);
        if (begins) {
            put_away(j, w);
            w->span = &j->spans[block];
            *w->span = (ek_attn_span){.stack = w->stack[0]};
            w->on = x, w->first = block;
        }
        int64_t leaf = (block - x->first_block) << x->level, end = leaf + ((int64_t)1 << x->level);
        if (leaf == 0) push_sinks(j, &t, w, 0, w->span->count);
        for (; leaf < end; leaf++) {
            const int64_t seg = t.seg0 + leaf - s->sinks;
            if (seg < t.seg0 || seg >= t.seg1) continue;
            const ek_attn_when when = {
                .cold = begins, .begins = begins, .first = true, .alone = true, .last = seg + 1 < t.seg1};
            push_segment(j, &t, w, 0, seg, when, w->span->count);
            begins = false;
        }
        w->span->blocks++;
        w->end = block + 1;
    }
}

static void run_item(void *arg, int64_t task, int number)
{
    const ek_attn_job *j = arg;
    const ek_attn_item *it = &j->items[task];
    ek_attn_worker *w = worker_of(j, number);
    if (it->split < 0) put_away(j, w), run_whole(j, w, it);
    else run_blocks(j, w, it);
}

/* Query task % EK_TILE of a split tile: T over the spans. */
static void join_query(void *arg, int64_t task, int number)
{
    const ek_attn_job *j = arg;
    const ek_attn_split *x = &j->splits[task / EK_TILE];
    const int i = (int)(task % EK_TILE);
    const ek_attn_tile t = ek_attn_tile_at(j->s, x->tile);
    if (i >= t.n_q) return;
    ek_attn_worker *w = worker_of(j, number);
    unsigned count = 0;
    ek_attn_node *tail = NULL;
    const ek_attn_span *at = &j->spans[x->first_block], *end = at + x->n_blocks;
    for (; at < end; at += at->blocks) {
        for (int level = j->levels - 1; level >= x->level; level--) {
            if (!(at->count[i] >> level & 1)) continue;
            node_copy(j->s, &w->now, node_at(x, at, level), i);
            tree_push(j->s, w->joined, &w->now, count, level, i);
            count += 1u << level;
        }
        const unsigned rest = tail_of(x, at->count[i]);
        if (rest) tail = at->away ? at->stack : tree_fold(j->s, at->stack, rest, NULL, i);
    }
    tree_finish(j->s, &t, tree_fold(j->s, w->joined, count, tail, i), i, w->space[0].e);
}

static void join_all(void *arg, int64_t task, int number)
{
    const ek_attn_job *j = arg;
    for (int64_t i = task; i < j->n_split * EK_TILE; i++) join_query(arg, i, number);
}

void ek_attn_schedule(const ek_attn_source *s, const ek_attn_cut *cut, const ek_attn_workers *workers, void *memory)
{
    ek_attn_job j;
    ek_attn_job_init(&j, s, cut, memory, workers->n_workers);
    workers->run(workers->self, run_item, &j, j.n_items);
    const int64_t joins = j.n_split * EK_TILE;
    if (joins * s->ldo * workers->n_workers > JOIN_ALONE) workers->run(workers->self, join_query, &j, joins);
    else workers->run(workers->self, join_all, &j, joins > 0);
}

/* --- workers --- */

typedef struct pool_task {
    ek_attn_task_fn *fn;
    void *arg;
} pool_task;

static void run_task(void *arg, int task, int worker)
{
    const pool_task *t = arg;
    t->fn(t->arg, task, worker);
}

static void run_pool(void *pool, ek_attn_task_fn *fn, void *arg, int64_t n_tasks)
{
    ek_pool_run(pool, run_task, &(pool_task){fn, arg}, (int)n_tasks);
}

ek_attn_workers ek_attn_workers_of(ek_pool *pool)
{
    return (ek_attn_workers){pool, ek_pool_threads(pool), run_pool};
}
