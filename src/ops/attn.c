/* Scheduling of attention: which task computes which segments of which queries (attn_task.c computes
 * them). Nothing here decides a bit.
 *
 * A run is a stretch of adjacent rows of one view; a tile is up to 8 consecutive queries (row by
 * row, head by head) of a run that read one KV head and begin in the same segment, so that their
 * leaves have the same places in T. An item of work is either a group of whole tiles, which share
 * each segment while it is in the cache, or a chunk: 2^k leaves of one tile, a subtree of T. */
#include "ops/attn.h"

#include <stdlib.h>

#include "base/buf.h"
#include "ops/attn_job.h"
#include "ops/kv_codec.h"

enum {
    TASKS_PER_THREAD = 4, /* below this, tiles are split into chunks */
};

ek_err ek_attn_plan(ek_attn **out, unsigned cpu, const ek_attn_shape *s)
{
    ek_attn_ops ops;
    ek_attn_init(&ops, cpu);
    return ek_attn_plan_ops(out, &ops, s);
}

ek_err ek_attn_plan_ops(ek_attn **out, const ek_attn_ops *ops, const ek_attn_shape *s)
{
    const char *kind = s->kind == EK_FULL ? "full" : "sliding";
    if (s->n_heads < 1 || s->n_kv_heads < 1 || s->n_heads % s->n_kv_heads)
        return ek_fail(EK_EINVAL, "%d query heads cannot share %d key heads evenly", s->n_heads, s->n_kv_heads);
    size_t block = ek_kv_block_bytes(s->k_format, s->v_format, s->n_kv_heads, s->head_dim);
    if (!block || !ops->scores[s->k_format] || !ops->values[s->v_format])
        return ek_fail(EK_EUNSUPPORTED,
                       "no attention kernel for %s layers with keys in %s, values in %s and head_dim %d", kind,
                       ek_kv_format_name(s->k_format), ek_kv_format_name(s->v_format), s->head_dim);
    ek_attn *a = ek_alloc(sizeof *a);
    *a = (ek_attn){
        .shape = *s,
        .scores = ops->scores[s->k_format],
        .weights = ops->weights,
        .values = ops->values[s->v_format],
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
        w.q = take(m, sizeof(float) * EK_ATTN_GROUP * EK_TILE * EK_Q_STRIDE);
        w.e = take(m, sizeof(float) * EK_TILE * EK_SEGMENT);
        w.temp = take_node(m, a);
        for (int g = 0; g < EK_ATTN_GROUP; g++) {
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
    uint8_t *at = ek_kv_view_block(view, pos / EK_PAGE_TOKENS);
    EK_ASSERT(at);
    int dim = a->shape.head_dim;
    for (int h = 0; h < a->shape.n_kv_heads; h++, at += a->k_bytes + a->v_bytes)
        ek_kv_store(a->shape.k_format, a->shape.v_format, dim, at, at + a->k_bytes, pos % EK_PAGE_TOKENS,
                    k + (ptrdiff_t)h * dim, v + (ptrdiff_t)h * dim);
}

/* --- tiles and items */

/* The run that starts at row: adjacent rows of one view whose keys begin in one segment. */
static int run_end(const job *j, int row, int n_rows)
{
    int seg = j->rows[row].lo / EK_SEGMENT, end = row + 1;
    while (end < n_rows && j->rows[end].view == j->rows[row].view && j->rows[end].lo / EK_SEGMENT == seg) end++;
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
            t->seg0 = j->rows[row].lo / EK_SEGMENT;
            for (int i = 0, h; i < t->n_q; i++) {
                int seg1 = (ek_attn_query_row(j, t, i, &h)->end - 1) / EK_SEGMENT + 1;
                if (seg1 > t->seg1) t->seg1 = seg1;
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
    int group = (long)j->n_tiles * kv >= tasks * EK_ATTN_GROUP ? EK_ATTN_GROUP : 1;
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

void ek_attn_run(const ek_attn *a, ek_pool *pool, const ek_kv_view *views, const ek_attn_row *rows, int n_rows,
                 const float *q, ptrdiff_t ldq, float *o, ptrdiff_t ldo, void *scratch)
{
    int n_keys = 1, n_threads = ek_pool_threads(pool);
    for (int r = 0; r < n_rows; r++) {
        EK_ASSERT(rows[r].lo >= 0 && rows[r].lo < rows[r].end);
        if (rows[r].end > n_keys) n_keys = rows[r].end;
    }
    job j = {.a = a, .views = views, .rows = rows, .q = q, .ldq = ldq, .out = o, .ldout = ldo};
    arena m = {scratch, 0};
    lay_out(&j, &m, a, n_rows, n_keys, n_threads);
    cut_items(&j, cut_tiles(&j, n_rows), n_threads);
    ek_pool_run(pool, ek_attn_task, &j, j.n_items * a->shape.n_kv_heads);
}
