/* The division of a call's work by attention's scheduler (attn_sched.h), and its memory. */
#include <string.h>

#include "ops/attn/attn_sched_state.h"

enum {
    TASKS_PER_WORKER = 4,     /* tiles with more than one part in so many of all leaves are split */
    MAX_SPLIT_BYTES = 1 << 28 /* bytes of leaves that stand alone; if there are more, nothing is split */
};

/* ------------------------------------------------------------------ memory */

static size_t lines(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

static size_t node_bytes(const ek_attn_source *s)
{
    return lines(sizeof(float) * EK_TILE * (size_t)(s->ldo + 2));
}

void ek_attn_node_lay(const ek_attn_source *s, ek_attn_node *n, uint8_t *at)
{
    EK_ASSERT(2 * EK_TILE * sizeof(float) % 64 == 0 && s->ldo % 16 == 0);
    n->m = (int *)at, n->l = (float *)at + EK_TILE, n->o = (float *)at + 2 * EK_TILE;
}

/* The number of levels of a tree of n leaves. */
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

size_t ek_attn_worker_lay(const ek_attn_source *s, int levels, uint8_t *at)
{
    ek_attn_worker x = {.ready = true, .keys = -1, .queries = -1};
    size_t used = lines(sizeof x), n_nodes = (size_t)(1 + levels * (1 + s->group));
    float *e = reserve(at, &used, sizeof *e * EK_TILE * EK_SEGMENT);
    void *shared = reserve(at, &used, s->shared_bytes);
    for (int g = 0; g < s->group; g++) {
        x.space[g].q = reserve(at, &used, sizeof *x.space[g].q * EK_TILE * EK_Q_STRIDE);
        x.space[g].own = reserve(at, &used, s->own_bytes);
        x.space[g].e = e, x.space[g].shared = shared;
    }
    ek_attn_node *node = reserve(at, &used, sizeof *node * n_nodes);
    uint8_t *sums = reserve(at, &used, node_bytes(s) * n_nodes);
    if (!at) return used;
    for (size_t i = 0; i < n_nodes; i++) ek_attn_node_lay(s, &node[i], sums + i * node_bytes(s));
    for (int g = 0; g < s->group; g++) x.stack[g] = node + (size_t)(g * levels);
    x.joined = node + (size_t)(s->group * levels);
    x.now = node[n_nodes - 1];
    if (s->shared_bytes) memset(shared, 0, EK_ATTN_SHARED_HEAD);
    memcpy(at, &x, sizeof x);
    return used;
}

/* ------------------------------------------------------------------ the cut */

static int64_t leaves_of(const ek_attn_source *s, const ek_attn_tile *t)
{
    return t->seg1 - t->seg0 + s->sinks;
}

ek_attn_tile ek_attn_tile_at(const ek_attn_source *s, int64_t number)
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

/* Splits tile t; false: it stays whole. If a mask makes gaps, blocks are single leaves. Other tiles with gaps are rare,
 * and stay whole. */
static bool split_tile(const ek_attn_source *s, const ek_attn_cut *cut, const ek_attn_tile *t, ek_attn_split *x)
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

/* The memory of the division, without that of the workers. */
static size_t shared_bytes(const ek_attn_source *s, const ek_attn_cut *cut)
{
    return lines(sizeof(ek_attn_item) * (size_t)cut->n_items) + lines(sizeof(ek_attn_split) * (size_t)cut->n_split) +
           lines(sizeof(ek_attn_span) * (size_t)cut->n_blocks) + lines(sizeof(ek_attn_node) * (size_t)cut->n_nodes) +
           node_bytes(s) * (size_t)cut->n_nodes;
}

static size_t all_bytes(const ek_attn_source *s, const ek_attn_cut *cut, int n_workers)
{
    return shared_bytes(s, cut) + (size_t)n_workers * ek_attn_worker_lay(s, levels_of(cut->max_leaves), NULL);
}

static void count_splits(ek_attn_cut *cut, const ek_attn_source *s)
{
    cut->n_items = s->n_tiles, cut->n_split = cut->n_blocks = cut->n_nodes = 0;
    for (int64_t i = 0; i < s->n_tiles && cut->limit < cut->max_leaves; i++) {
        const ek_attn_tile t = ek_attn_tile_at(s, i);
        ek_attn_split x;
        if (!split_tile(s, cut, &t, &x)) continue;
        cut->n_split++;
        cut->n_blocks += x.n_blocks;
        cut->n_nodes += x.n_blocks * ek_attn_nodes_per_block(&x);
        cut->n_items += (x.n_blocks - 1) / blocks_per_task(cut, &t);
    }
}

size_t ek_attn_cut_work(ek_attn_cut *cut, const ek_attn_source *s, int n_workers)
{
    const int64_t tasks = TASKS_PER_WORKER * (int64_t)n_workers;
    *cut = (ek_attn_cut){.max_leaves = 1, .limit = INT64_MAX, .group = 1};
    int64_t total = 0;
    for (int64_t i = 0; i < s->n_tiles; i++) {
        const ek_attn_tile t = ek_attn_tile_at(s, i);
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

static void fill_items(ek_attn_job *j)
{
    const ek_attn_source *s = j->s;
    const ek_attn_cut *cut = j->cut;
    int64_t n_blocks = 0, n_nodes = 0;
    for (int64_t number = s->n_tiles - 1; number >= 0;) { /* the last tiles of a prompt have the most keys */
        const ek_attn_tile t = ek_attn_tile_at(s, number);
        ek_attn_split x = {.first_block = n_blocks, .first_node = n_nodes};
        if (!split_tile(s, cut, &t, &x)) {
            ek_attn_item *last = j->n_items ? &j->items[j->n_items - 1] : NULL;
            if (last && last->split < 0 && last->tile == number + 1 && last->keys == t.keys && last->n < cut->group)
                last->tile = number, last->n++;
            else j->items[j->n_items++] = (ek_attn_item){.tile = number, .keys = t.keys, .n = 1, .split = -1};
            number--;
            continue;
        }
        const int64_t each = blocks_per_task(cut, &t);
        for (int64_t b = 0; b < x.n_blocks; b += each)
            j->items[j->n_items++] = (ek_attn_item){.tile = number,
                                                    .block = n_blocks + b,
                                                    .n = (int)(x.n_blocks - b < each ? x.n_blocks - b : each),
                                                    .split = (int)j->n_split};
        n_blocks += x.n_blocks, n_nodes += x.n_blocks * ek_attn_nodes_per_block(&x);
        j->splits[j->n_split++] = x;
        number--;
    }
    EK_ASSERT(j->n_items <= cut->n_items && j->n_split == cut->n_split && n_blocks == cut->n_blocks);
}

void ek_attn_job_init(ek_attn_job *j, const ek_attn_source *s, const ek_attn_cut *cut, void *memory, int n_workers)
{
    *j = (ek_attn_job){.s = s, .cut = cut, .levels = levels_of(cut->max_leaves), .node_bytes = node_bytes(s)};
    size_t used = 0;
    j->items = reserve(memory, &used, sizeof *j->items * (size_t)cut->n_items);
    j->splits = reserve(memory, &used, sizeof *j->splits * (size_t)cut->n_split);
    j->spans = reserve(memory, &used, sizeof *j->spans * (size_t)cut->n_blocks);
    j->nodes = reserve(memory, &used, sizeof *j->nodes * (size_t)cut->n_nodes);
    j->sums = reserve(memory, &used, j->node_bytes * (size_t)cut->n_nodes);
    j->workers = (uint8_t *)memory + used;
    j->worker_bytes = ek_attn_worker_lay(s, j->levels, NULL);
    for (int i = 0; i < n_workers; i++) ((ek_attn_worker *)(j->workers + (size_t)i * j->worker_bytes))->ready = false;
    fill_items(j);
}
