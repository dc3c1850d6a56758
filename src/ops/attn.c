/* Scheduling of attention: which task computes which segments of which queries, and the tree T
 * over their leaves. Nothing here decides a bit: leaves come from the kernels of one instruction
 * set, and T is the same however its parts are spread.
 *
 * A run is a stretch of adjacent rows of one view; a tile is up to 8 consecutive queries (row by
 * row, head by head) of a run that read one KV head and begin in the same segment, so that their
 * leaves have the same places in T. An item of work is either a group of whole tiles, which share
 * each segment while it is in the cache, or a chunk: 2^k leaves of one tile, a subtree of T. */
#include "ops/attn.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "ops/attn_kernels.h"
#include "ops/kv_layout.h"

enum {
    GROUP = 4,            /* tiles that share a segment; 4 trees of partial sums fit the L2 cache */
    TASKS_PER_THREAD = 4, /* below this, tiles are split into chunks */
};

struct ek_attn {
    ek_attn_shape shape;
    ek_attn_fn *scores, *weights, *values;
    int ratio;               /* query heads of one KV head */
    ptrdiff_t ldo;
    size_t k_bytes, v_bytes; /* of one KV head in a block */
};

/* A node of T for the queries of a tile: sum of e v relative to 2^m, and of e. */
typedef struct node {
    float *o; /* [EK_TILE][ldo] */
    int *m;   /* [EK_TILE] */
    float *l;
} node;

typedef struct tile {
    int row, head;   /* the first query: row, head within the KV head's group */
    int n_q;
    int seg0, seg1;  /* touched by any of the queries */
    int slot;        /* of the first chunk's result; -1: the tile is not split */
    int n_chunks;
} tile;

typedef struct item {
    int tile, n_tiles;
    int chunk;       /* of a split tile; -1: whole tiles */
} item;

typedef struct worker {
    float *q;             /* [GROUP][EK_TILE][EK_Q_STRIDE] */
    float *e;             /* [EK_TILE][EK_SEGMENT] */
    node temp;
    node *stack[GROUP];   /* [levels] */
} worker;

typedef struct job {
    const ek_attn *a;
    const ek_kv_view *views;
    const ek_attn_row *rows;
    const float *q;
    ptrdiff_t ldq;
    float *out;
    ptrdiff_t ldout;
    tile *tiles;
    item *items;
    int n_tiles, n_items, n_slots;
    int log_chunk;        /* k */
    worker *workers;
    node *slots;          /* [slot][KV head] */
    atomic_int *left;     /* chunks not yet done, [tile][KV head] */
} job;

ek_err ek_attn_plan(ek_attn **out, unsigned cpu, const ek_attn_shape *s)
{
    const char *kind = s->kind == EK_FULL ? "full" : "sliding";
    if (s->n_heads < 1 || s->n_kv_heads < 1 || s->n_heads % s->n_kv_heads)
        return ek_fail(EK_EINVAL, "%d query heads cannot share %d key heads evenly", s->n_heads, s->n_kv_heads);
    if ((s->kind == EK_SLIDING) != (s->window > 0))
        return ek_fail(EK_EINVAL, "a %s layer with a window of %d", kind, s->window);
    ek_attn_ops ops;
    ek_attn_init(&ops, cpu);
    size_t block = ek_kv_block_bytes(s->k_format, s->v_format, s->n_kv_heads, s->head_dim);
    if (!block || !ops.scores[s->k_format] || !ops.values[s->v_format])
        return ek_fail(EK_EUNSUPPORTED, "no attention kernel for %s layers with keys in %s, values in %s and head_dim %d",
                       kind, ek_kv_format_name(s->k_format), ek_kv_format_name(s->v_format), s->head_dim);
    ek_attn *a = ek_alloc(sizeof *a);
    *a = (ek_attn){
        .shape = *s,
        .scores = ops.scores[s->k_format],
        .weights = ops.weights,
        .values = ops.values[s->v_format],
        .ratio = s->n_heads / s->n_kv_heads,
        .ldo = (s->head_dim + 15) / 16 * 16,
        .k_bytes = ek_kv_k_bytes(s->k_format, s->head_dim),
        .v_bytes = ek_kv_v_bytes(s->v_format, s->head_dim),
    };
    *out = a;
    return EK_OK;
}

void ek_attn_free(ek_attn *a)
{
    free(a);
}

/* --- scratch: taken piece by piece from one block; with base NULL only the size is counted. */

typedef struct arena {
    uint8_t *base;
    size_t used;
} arena;

static void *take(arena *m, size_t bytes)
{
    void *p = m->base ? m->base + m->used : NULL;
    m->used += (bytes + 63) / 64 * 64;
    return p;
}

static node take_node(arena *m, const ek_attn *a)
{
    node n;
    n.o = take(m, sizeof(float) * EK_TILE * (size_t)a->ldo);
    n.m = take(m, sizeof(int) * EK_TILE);
    n.l = take(m, sizeof(float) * EK_TILE);
    return n;
}

static int tree_levels(int n_keys)
{
    int levels = 1;
    for (int n = n_keys / EK_SEGMENT + 2; n > 1; n /= 2) levels++;
    return levels;
}

static void lay_out(job *j, arena *m, const ek_attn *a, int n_rows, int n_keys, int n_threads)
{
    int kv = a->shape.n_kv_heads, levels = tree_levels(n_keys);
    size_t tiles = (size_t)n_rows * (size_t)((a->ratio + EK_TILE - 1) / EK_TILE);
    /* a chunk has more than half of total / (threads * TASKS_PER_THREAD) leaves and a tile rounds
     * its number of chunks up to at most twice the quotient */
    size_t slots = 4 * TASKS_PER_THREAD * (size_t)n_threads + (size_t)kv;
    j->tiles = take(m, sizeof(tile) * tiles);
    j->items = take(m, sizeof(item) * (tiles + slots));
    j->left = take(m, sizeof(atomic_int) * tiles * (size_t)kv);
    j->slots = take(m, sizeof(node) * slots);
    j->n_slots = (int)slots;
    for (size_t i = 0; i < slots; i++) {
        node n = take_node(m, a);
        if (m->base) j->slots[i] = n;
    }
    j->workers = take(m, sizeof(worker) * (size_t)n_threads);
    for (int t = 0; t < n_threads; t++) {
        worker w;
        w.q = take(m, sizeof(float) * GROUP * EK_TILE * EK_Q_STRIDE);
        w.e = take(m, sizeof(float) * EK_TILE * EK_SEGMENT);
        w.temp = take_node(m, a);
        for (int g = 0; g < GROUP; g++) {
            w.stack[g] = take(m, sizeof(node) * (size_t)levels);
            for (int i = 0; i < levels; i++) {
                node n = take_node(m, a);
                if (m->base) w.stack[g][i] = n;
            }
        }
        if (m->base) j->workers[t] = w;
    }
}

size_t ek_attn_scratch_bytes(const ek_attn *a, int max_rows, int max_keys, int n_threads)
{
    job j;
    arena m = {NULL, 0};
    lay_out(&j, &m, a, max_rows, max_keys, n_threads);
    return m.used;
}

/* --- storing */

void ek_attn_store(const ek_attn *a, const ek_kv_view *view, int pos, const float *k, const float *v)
{
    uint8_t *page = view->page[pos / EK_PAGE_TOKENS];
    EK_ASSERT(page);
    uint8_t *at = page + view->offset;
    int dim = a->shape.head_dim;
    for (int h = 0; h < a->shape.n_kv_heads; h++, at += a->k_bytes + a->v_bytes)
        ek_kv_store(a->shape.k_format, a->shape.v_format, dim, at, at + a->k_bytes, pos % EK_PAGE_TOKENS,
                    k + (ptrdiff_t)h * dim, v + (ptrdiff_t)h * dim);
}

/* --- the tree T */

/* 2^(n) for n <= 0, +0 below 2^-125. */
static float factor(int n)
{
    return n < -125 ? 0.0f : ek_bits_f32((uint32_t)(n + 127) << 23);
}

/* Query i of dst = earlier + later; dst may be one of them. */
static void combine(const ek_attn *a, node *dst, const node *earlier, const node *later, int i)
{
    int ma = earlier->m[i], mb = later->m[i], m = ma > mb ? ma : mb;
    float fa = factor(ma - m), fb = factor(mb - m);
    const float *oa = earlier->o + i * a->ldo, *ob = later->o + i * a->ldo;
    float *o = dst->o + i * a->ldo;
    dst->l[i] = earlier->l[i] * fa + later->l[i] * fb;
    dst->m[i] = m;
    for (int d = 0; d < a->shape.head_dim; d++) o[d] = oa[d] * fa + ob[d] * fb;
}

static void copy(const ek_attn *a, node *dst, const node *src, int i)
{
    dst->l[i] = src->l[i], dst->m[i] = src->m[i];
    memcpy(dst->o + i * a->ldo, src->o + i * a->ldo, sizeof(float) * (size_t)a->shape.head_dim);
}

/* Pushes query i of leaf, which is used up, as number count. */
static void push(const ek_attn *a, node *stack, node *leaf, unsigned count, int i)
{
    int level = 0;
    for (; count >> level & 1; level++) {
        int last = !(count >> (level + 1) & 1);
        combine(a, last ? &stack[level + 1] : leaf, &stack[level], leaf, i);
    }
    if (level == 0) copy(a, &stack[0], leaf, i);
}

/* The sum of the count nodes pushed for query i, and of tail behind them unless NULL; the result
 * lies in tail or in the stack. */
static const node *fold(const ek_attn *a, node *stack, unsigned count, node *tail, int i)
{
    node *sum = tail;
    for (int level = 0; count >> level; level++) {
        if (!(count >> level & 1)) continue;
        if (sum) combine(a, sum, &stack[level], sum, i);
        else sum = &stack[level];
    }
    return sum;
}

/* --- tiles and items */

static int first_key(const ek_attn *a, int pos)
{
    int w = a->shape.window;
    return w && pos >= w ? pos - w + 1 : 0;
}

/* Where query i of a tile stands. */
static const ek_attn_row *query_row(const job *j, const tile *t, int i, int *head)
{
    int at = t->head + i;
    *head = at % j->a->ratio;
    return &j->rows[t->row + at / j->a->ratio];
}

static int leaves_of(const tile *t, int pos)
{
    return pos / EK_SEGMENT - t->seg0 + 1;
}

/* The run that starts at row: adjacent rows of one view whose keys begin in one segment. */
static int run_end(const job *j, int row, int n_rows)
{
    int seg = first_key(j->a, j->rows[row].pos) / EK_SEGMENT, end = row + 1;
    while (end < n_rows && j->rows[end].view == j->rows[row].view &&
           first_key(j->a, j->rows[end].pos) / EK_SEGMENT == seg)
        end++;
    return end;
}

/* Returns the number of leaves of all tiles, for one KV head. */
static long cut_tiles(job *j, int n_rows)
{
    int ratio = j->a->ratio;
    long leaves = 0;
    for (int row = 0, end; row < n_rows; row = end) {
        end = run_end(j, row, n_rows);
        for (int at = 0, n = (end - row) * ratio; at < n; at += EK_TILE) {
            tile *t = &j->tiles[j->n_tiles++];
            *t = (tile){.row = row + at / ratio, .head = at % ratio, .slot = -1};
            t->n_q = n - at < EK_TILE ? n - at : EK_TILE;
            t->seg0 = first_key(j->a, j->rows[row].pos) / EK_SEGMENT;
            for (int i = 0, h; i < t->n_q; i++) {
                int seg = query_row(j, t, i, &h)->pos / EK_SEGMENT;
                if (seg >= t->seg1) t->seg1 = seg + 1;
            }
            leaves += t->seg1 - t->seg0;
        }
    }
    return leaves;
}

static void cut_items(job *j, long leaves, int n_threads)
{
    int kv = j->a->shape.n_kv_heads, slots = 0;
    long tasks = TASKS_PER_THREAD * (long)n_threads;
    while (n_threads > 1 && (2L << j->log_chunk) * tasks <= leaves * kv) j->log_chunk++;
    if (n_threads == 1) j->log_chunk = 30;
    int group = (long)j->n_tiles * kv >= tasks * GROUP ? GROUP : 1;
    for (int t = 0, n; t < j->n_tiles; t += n) {
        tile *first = &j->tiles[t];
        int n_leaves = first->seg1 - first->seg0;
        n = 1;
        if (n_leaves <= 1 << j->log_chunk) {
            while (n < group && t + n < j->n_tiles && first[n].seg1 - first[n].seg0 <= 1 << j->log_chunk &&
                   j->rows[first[n].row].view == j->rows[first->row].view)
                n++;
            j->items[j->n_items++] = (item){t, n, -1};
            continue;
        }
        first->slot = slots;
        first->n_chunks = (n_leaves - 1) / (1 << j->log_chunk) + 1;
        slots += first->n_chunks;
        for (int h = 0; h < kv; h++) atomic_init(&j->left[t * kv + h], first->n_chunks);
        for (int c = 0; c < first->n_chunks; c++) j->items[j->n_items++] = (item){t, 1, c};
    }
    EK_ASSERT(slots * kv <= j->n_slots);
}

/* --- tasks */

static void load_queries(const job *j, const tile *t, int kv_head, float *q)
{
    size_t bytes = sizeof *q * (size_t)j->a->shape.head_dim;
    for (int i = 0, h; i < EK_TILE; i++, q += EK_Q_STRIDE) {
        if (i >= t->n_q) {
            memset(q, 0, bytes);
            continue;
        }
        ptrdiff_t row = query_row(j, t, i, &h) - j->rows;
        memcpy(q, j->q + row * j->ldq + (ptrdiff_t)(kv_head * j->a->ratio + h) * j->a->shape.head_dim, bytes);
    }
}

static int clamp(int x, int most)
{
    return x < 0 ? 0 : x > most ? most : x;
}

/* Fills in what the queries of t see of segment seg; false if nothing. */
static bool see(const job *j, const tile *t, int seg, ek_attn_leaf *leaf)
{
    leaf->n_q = t->n_q;
    leaf->all_from = leaf->common_to = EK_SEGMENT;
    leaf->all_to = leaf->common_from = 0;
    for (int i = 0, h; i < t->n_q; i++) {
        int pos = query_row(j, t, i, &h)->pos;
        int from = leaf->from[i] = clamp(first_key(j->a, pos) - seg * EK_SEGMENT, EK_SEGMENT);
        int to = leaf->to[i] = clamp(pos + 1 - seg * EK_SEGMENT, EK_SEGMENT);
        if (from >= to) continue;
        if (from < leaf->all_from) leaf->all_from = from;
        if (from > leaf->common_from) leaf->common_from = from;
        if (to > leaf->all_to) leaf->all_to = to;
        if (to < leaf->common_to) leaf->common_to = to;
    }
    return leaf->all_from < leaf->all_to;
}

/* Whether some query sees a key of page p of the segment. */
static bool wanted(const ek_attn_leaf *leaf, int p)
{
    for (int i = 0; i < leaf->n_q; i++)
        if (leaf->from[i] < leaf->to[i] && leaf->from[i] < (p + 1) * EK_PAGE_TOKENS && leaf->to[i] > p * EK_PAGE_TOKENS)
            return true;
    return false;
}

/* Where the pages of a segment hold this KV head's keys and values, and its keys in the segment
 * behind, if that is going to be read too. */
static void find_pages(const job *j, const tile *t, int seg, bool more, int kv_head, ek_attn_leaf *leaf)
{
    const ek_kv_view *view = &j->views[j->rows[t->row].view];
    uint8_t *const *page_of = view->page + seg * EK_SEGMENT_PAGES;
    int last = j->rows[t->row].pos / EK_PAGE_TOKENS - seg * EK_SEGMENT_PAGES; /* surely there */
    size_t at = view->offset + (size_t)kv_head * (j->a->k_bytes + j->a->v_bytes);
    for (int p = 0; p < EK_SEGMENT_PAGES; p++) {
        leaf->k[p] = leaf->v[p] = leaf->k_next[p] = NULL;
        if (more && p + EK_SEGMENT_PAGES <= last) leaf->k_next[p] = page_of[p + EK_SEGMENT_PAGES] + at;
        if (!wanted(leaf, p)) continue;
        const uint8_t *page = page_of[p];
        EK_ASSERT(page);
        leaf->k[p] = page + at;
        leaf->v[p] = page + at + j->a->k_bytes;
    }
}

/* Pushes the leaves of segments [seg0, seg1) for tiles [t, t + n): all of a tile's, or one chunk's. */
static void add_segments(const job *j, worker *w, const tile *t, int n, int kv_head, int seg0, int seg1)
{
    const ek_attn *a = j->a;
    for (int g = 0; g < n; g++) load_queries(j, &t[g], kv_head, w->q + g * EK_TILE * EK_Q_STRIDE);
    for (int seg = seg0; seg < seg1; seg++)
        for (int g = 0; g < n; g++) {
            ek_attn_leaf leaf = {.head_dim = a->shape.head_dim,
                                 .fetch_k = g == 0 && seg == seg0,
                                 .fetch_v = g == 0,
                                 .k_bytes = a->k_bytes,
                                 .v_bytes = a->v_bytes,
                                 .q = w->q + g * EK_TILE * EK_Q_STRIDE,
                                 .e = w->e,
                                 .o = w->temp.o,
                                 .ldo = a->ldo};
            if (!see(j, &t[g], seg, &leaf)) continue;
            find_pages(j, &t[g], seg, g == n - 1 && seg + 1 < seg1, kv_head, &leaf);
            a->scores(&leaf);
            a->weights(&leaf);
            a->values(&leaf);
            int first = seg0 > t[g].seg0 ? seg0 : t[g].seg0;
            for (int i = 0; i < leaf.n_q; i++) {
                if (leaf.from[i] >= leaf.to[i]) continue;
                w->temp.m[i] = leaf.m[i], w->temp.l[i] = leaf.l[i];
                push(a, w->stack[g], &w->temp, (unsigned)(seg - first), i);
            }
        }
}

/* o / l for query i. -0 becomes +0: whether a sum that underflowed ends in -0 would depend on
 * unseen keys having been added as zeros or not at all. */
static void finish(const job *j, const tile *t, int kv_head, const node *sum, int i)
{
    int head, dim = j->a->shape.head_dim;
    ptrdiff_t row = query_row(j, t, i, &head) - j->rows;
    float *out = j->out + row * j->ldout + (ptrdiff_t)(kv_head * j->a->ratio + head) * dim;
    const float *o = sum->o + i * j->a->ldo;
    float l = sum->l[i];
    for (int d = 0; d < dim; d++) out[d] = (o[d] + 0.0f) / l;
}

static void run_tiles(const job *j, worker *w, const tile *t, int n, int kv_head)
{
    int seg0 = t[0].seg0, seg1 = t[0].seg1;
    for (int g = 1; g < n; g++) {
        if (t[g].seg0 < seg0) seg0 = t[g].seg0;
        if (t[g].seg1 > seg1) seg1 = t[g].seg1;
    }
    add_segments(j, w, t, n, kv_head, seg0, seg1);
    for (int g = 0; g < n; g++)
        for (int i = 0, h; i < t[g].n_q; i++) {
            unsigned leaves = (unsigned)leaves_of(&t[g], query_row(j, &t[g], i, &h)->pos);
            finish(j, &t[g], kv_head, fold(j->a, w->stack[g], leaves, NULL, i), i);
        }
}

/* All chunks of a tile are there: T over them. */
static void join_chunks(const job *j, worker *w, const tile *t, int kv_head)
{
    int kv = j->a->shape.n_kv_heads;
    for (int i = 0, h; i < t->n_q; i++) {
        int leaves = leaves_of(t, query_row(j, t, i, &h)->pos);
        unsigned whole = (unsigned)(leaves >> j->log_chunk);
        node *slot = &j->slots[t->slot * kv + kv_head];
        for (unsigned c = 0; c < whole; c++) push(j->a, w->stack[0], &slot[c * (unsigned)kv], c, i);
        node *tail = leaves & ((1 << j->log_chunk) - 1) ? &slot[whole * (unsigned)kv] : NULL;
        finish(j, t, kv_head, fold(j->a, w->stack[0], whole, tail, i), i);
    }
}

static void run_chunk(const job *j, worker *w, int number, int chunk, int kv_head)
{
    const tile *t = &j->tiles[number];
    int kv = j->a->shape.n_kv_heads, place = chunk << j->log_chunk;
    int seg0 = t->seg0 + place, seg1 = seg0 + (1 << j->log_chunk);
    add_segments(j, w, t, 1, kv_head, seg0, seg1 < t->seg1 ? seg1 : t->seg1);
    for (int i = 0, h; i < t->n_q; i++) {
        int leaves = leaves_of(t, query_row(j, t, i, &h)->pos) - place;
        leaves = clamp(leaves, 1 << j->log_chunk);
        if (leaves == 0) continue;
        copy(j->a, &j->slots[(t->slot + chunk) * kv + kv_head], fold(j->a, w->stack[0], (unsigned)leaves, NULL, i), i);
    }
    if (atomic_fetch_sub_explicit(&j->left[number * kv + kv_head], 1, memory_order_acq_rel) == 1)
        join_chunks(j, w, t, kv_head);
}

/* The last items come first: in a prompt they see the most keys. */
static void run_task(void *arg, int task, int number)
{
    job *j = arg;
    int kv = j->a->shape.n_kv_heads;
    const item *it = &j->items[j->n_items - 1 - task / kv];
    worker *w = &j->workers[number];
    if (it->chunk < 0) run_tiles(j, w, &j->tiles[it->tile], it->n_tiles, task % kv);
    else run_chunk(j, w, it->tile, it->chunk, task % kv);
}

void ek_attn_run(const ek_attn *a, ek_pool *pool, const ek_kv_view *views, const ek_attn_row *rows, int n_rows,
                 const float *q, ptrdiff_t ldq, float *o, ptrdiff_t ldo, void *scratch)
{
    int n_keys = 1, n_threads = ek_pool_threads(pool);
    for (int r = 0; r < n_rows; r++) {
        EK_ASSERT(rows[r].pos >= 0);
        if (rows[r].pos >= n_keys) n_keys = rows[r].pos + 1;
    }
    job j = {.a = a, .views = views, .rows = rows, .q = q, .ldq = ldq, .out = o, .ldout = ldo};
    arena m = {scratch, 0};
    lay_out(&j, &m, a, n_rows, n_keys, n_threads);
    cut_items(&j, cut_tiles(&j, n_rows), n_threads);
    ek_pool_run(pool, run_task, &j, j.n_items * a->shape.n_kv_heads);
}
