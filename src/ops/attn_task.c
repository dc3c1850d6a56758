/* The leaves of attention and the tree T over them: what a task computes (attn_job.h). Leaves come from
 * the kernels of one instruction set, and T is the same however its parts are spread. */
#include <string.h>

#include "ops/attn_job.h"
#include "tensor/dtype.h"

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

/* Segments that query i touches: it sees something of each from the tile's first one on. */
static int leaves_of(const job *j, const tile *t, int i)
{
    int head;
    return (ek_attn_query_row(j, t, i, &head)->end - 1) / EK_SEGMENT - t->seg0 + 1;
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
        ptrdiff_t row = ek_attn_query_row(j, t, i, &h) - j->rows;
        memcpy(q, j->q + row * j->ldq + (ptrdiff_t)(kv_head * j->a->ratio + h) * j->a->shape.head_dim, bytes);
    }
}

static int clamp(int x, int max)
{
    return x < 0 ? 0 : x > max ? max : x;
}

/* Fills in what the queries of t see of segment seg; false if nothing. */
static bool find_visible(const job *j, const tile *t, int seg, ek_attn_leaf *leaf)
{
    leaf->n_q = t->n_q;
    leaf->all_from = leaf->common_to = EK_SEGMENT;
    leaf->all_to = leaf->common_from = 0;
    for (int i = 0, h; i < t->n_q; i++) {
        const ek_attn_row *row = ek_attn_query_row(j, t, i, &h);
        int from = leaf->from[i] = clamp(row->lo - seg * EK_SEGMENT, EK_SEGMENT);
        int to = leaf->to[i] = clamp(row->end - seg * EK_SEGMENT, EK_SEGMENT);
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
    const int first = seg * EK_SEGMENT_PAGES;
    const int last = (j->rows[t->row].end - 1) / EK_PAGE_TOKENS; /* surely there */
    size_t at = (size_t)kv_head * (j->a->k_bytes + j->a->v_bytes);
    for (int p = 0; p < EK_SEGMENT_PAGES; p++) {
        leaf->k[p] = leaf->v[p] = leaf->k_next[p] = NULL;
        if (more && first + p + EK_SEGMENT_PAGES <= last)
            leaf->k_next[p] = ek_kv_view_block(view, first + p + EK_SEGMENT_PAGES) + at;
        if (!wanted(leaf, p)) continue;
        const uint8_t *block = ek_kv_view_block(view, first + p);
        EK_ASSERT(block);
        leaf->k[p] = block + at;
        leaf->v[p] = block + at + j->a->k_bytes;
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
            if (!find_visible(j, &t[g], seg, &leaf)) continue;
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
    ptrdiff_t row = ek_attn_query_row(j, t, i, &head) - j->rows;
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
        for (int i = 0; i < t[g].n_q; i++) {
            unsigned leaves = (unsigned)leaves_of(j, &t[g], i);
            finish(j, &t[g], kv_head, fold(j->a, w->stack[g], leaves, NULL, i), i);
        }
}

/* All chunks of a tile are there: T over them. */
static void join_chunks(const job *j, worker *w, const tile *t, int kv_head)
{
    int kv = j->a->shape.n_kv_heads;
    for (int i = 0; i < t->n_q; i++) {
        int leaves = leaves_of(j, t, i);
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
    for (int i = 0; i < t->n_q; i++) {
        int leaves = leaves_of(j, t, i) - place;
        leaves = clamp(leaves, 1 << j->log_chunk);
        if (leaves == 0) continue;
        copy(j->a, &j->slots[(t->slot + chunk) * kv + kv_head], fold(j->a, w->stack[0], (unsigned)leaves, NULL, i), i);
    }
    if (atomic_fetch_sub_explicit(&j->left[number * kv + kv_head], 1, memory_order_acq_rel) == 1)
        join_chunks(j, w, t, kv_head);
}

/* The last items come first: in a prompt they see the most keys. */
void ek_attn_task(void *arg, int task, int number)
{
    job *j = arg;
    int kv = j->a->shape.n_kv_heads;
    const item *it = &j->items[j->n_items - 1 - task / kv];
    worker *w = &j->workers[number];
    if (it->chunk < 0) run_tiles(j, w, &j->tiles[it->tile], it->n_tiles, task % kv);
    else run_chunk(j, w, it->tile, it->chunk, task % kv);
}
