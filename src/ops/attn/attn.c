/* Attention over pages: plans, and the source of their work for the scheduler (attn_sched.h). */
#include "ops/attn/attn.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "ops/attn/attn_int.h"
#include "ops/attn/attn_sched.h"
#include "ops/kv/kv_codec.h"

/* The layout of keys and values in a page, and the kernels that read it. */
typedef struct codec {
    ek_kv_format k_format, v_format;
    ek_attn_fn *scores, *values;
    size_t k_bytes, v_bytes; /* of one KV head in a block */
} codec;

struct ek_attn {
    ek_attn_shape shape;
    codec start, rest; /* of positions [0, shape.n_start), and of later positions */
    ek_attn_fn *weights;
    ek_attn_combine_fn *combine;
    ek_attn_encode_fn *encode;
    ek_attn_rotate_fn *rotate_back;
    size_t limb_bytes; /* of ek_attn_segment.limbs */
    int ratio;         /* query heads per KV head */
    ptrdiff_t ldo;     /* head_dim rounded up to 16 */
};

static const codec *codec_at(const ek_attn *a, int64_t pos)
{
    return pos < a->shape.n_start ? &a->start : &a->rest;
}

/* A tile: queries [first, first + n) of the rows from `row` on, row by row, head by head of a KV head's group. */
typedef struct place {
    int row, kv_head, first, n;
} place;

typedef struct pages {
    const ek_attn *a;
    const ek_kv_view *views;
    const ek_attn_row *rows;
    const float *q;
    ptrdiff_t ldq;
    float *out;
    ptrdiff_t ldout;
    place *place; /* [n_tiles] */
} pages;

ek_err ek_attn_plan(ek_attn **out, unsigned cpu, const ek_attn_shape *s)
{
    ek_attn_ops ops;
    ek_attn_init(&ops, cpu);
    return ek_attn_plan_ops(out, &ops, s);
}

static ek_err plan_codec(codec *c, const ek_attn_ops *ops, const ek_attn_shape *s, ek_kv_format k, ek_kv_format v)
{
    const char *kind = s->kind == EK_FULL ? "full" : "sliding";
    if (!ek_kv_block_bytes(k, v, s->n_kv_heads, s->head_dim) || !ops->scores[k] || !ops->values[v])
        return ek_fail(EK_EUNSUPPORTED,
                       "no attention kernel for %s layers with keys in %s, values in %s and head_dim %d", kind,
                       ek_kv_format_name(k), ek_kv_format_name(v), s->head_dim);
    *c = (codec){.k_format = k,
                 .v_format = v,
                 .scores = ops->scores[k],
                 .values = ops->values[v],
                 .k_bytes = ek_kv_k_bytes(k, s->head_dim),
                 .v_bytes = ek_kv_v_bytes(v, s->head_dim)};
    return EK_OK;
}

static bool keeps_limbs(const codec *start, const codec *rest)
{
    return start->k_format == EK_KV_I12 || start->v_format == EK_KV_I12 || rest->k_format == EK_KV_I12 ||
           rest->v_format == EK_KV_I12;
}

ek_err ek_attn_plan_ops(ek_attn **out, const ek_attn_ops *ops, const ek_attn_shape *s)
{
    codec start, rest;
    if (s->n_heads < 1 || s->n_kv_heads < 1 || s->n_heads % s->n_kv_heads)
        return ek_fail(EK_EINVAL, "%d query heads cannot share %d key heads evenly", s->n_heads, s->n_kv_heads);
    if (s->n_start < 0 || s->n_start % EK_SEGMENT)
        return ek_fail(EK_EINVAL, "the first %d positions apart; it must be a multiple of %d", s->n_start, EK_SEGMENT);
    EK_TRY(plan_codec(&rest, ops, s, s->k_format, s->v_format));
    start = rest;
    if (s->n_start > 0)
        EK_TRY(plan_codec(&start, ops, s, ek_kv_start_format(s->k_format), ek_kv_start_format(s->v_format)));
    ek_attn *a = ek_alloc(sizeof *a);
    *a = (ek_attn){
        .shape = *s,
        .start = start,
        .rest = rest,
        .weights = ops->weights,
        .combine = ops->combine,
        .encode = ops->encode,
        .rotate_back = ops->rotate_back,
        .limb_bytes = ops->limb_bytes && keeps_limbs(&start, &rest) ? ops->limb_bytes(s->head_dim) : 0,
        .ratio = s->n_heads / s->n_kv_heads,
        .ldo = (s->head_dim + 15) / 16 * 16,
    };
    *out = a;
    return EK_OK;
}

void ek_attn_free(ek_attn *a)
{
    free(a);
}

void ek_attn_store(const ek_attn *a, const ek_kv_view *view, int pos, const float *k, const float *v)
{
    uint8_t *at = ek_kv_block(view, pos / EK_PAGE_TOKENS);
    EK_ASSERT(at);
    const codec *c = codec_at(a, pos);
    int dim = a->shape.head_dim;
    for (int h = 0; h < a->shape.n_kv_heads; h++, at += c->k_bytes + c->v_bytes)
        ek_kv_store(c->k_format, c->v_format, dim, at, at + c->k_bytes, pos % EK_PAGE_TOKENS, k + (ptrdiff_t)h * dim,
                    v + (ptrdiff_t)h * dim);
}

/* ------------------------------------------------------------------ the source */

static int tiles_of(const ek_attn *a, int n_rows)
{
    return (n_rows * a->ratio + EK_TILE - 1) / EK_TILE;
}

static int64_t max_tiles(const ek_attn *a, int n_rows)
{
    return (int64_t)n_rows * tiles_of(a, 1) * a->shape.n_kv_heads;
}

/* Makes tiles: adjacent rows of one view share a tile, and tiles that read the same keys are adjacent. */
static int64_t place_tiles(pages *p, int n_rows)
{
    const int ratio = p->a->ratio;
    int64_t n = 0;
    for (int row = 0, end; row < n_rows; row = end) {
        for (end = row + 1; end < n_rows && p->rows[end].view == p->rows[row].view;) end++;
        for (int kv = 0; kv < p->a->shape.n_kv_heads; kv++)
            for (int at = 0, queries = (end - row) * ratio; at < queries; at += EK_TILE)
                p->place[n++] = (place){.row = row + at / ratio,
                                        .kv_head = kv,
                                        .first = at % ratio,
                                        .n = queries - at < EK_TILE ? queries - at : EK_TILE};
    }
    return n;
}

/* The row and the head of query i of a tile. */
static int query_row(const pages *p, const place *at, int i)
{
    return at->row + (at->first + i) / p->a->ratio;
}

static ptrdiff_t query_head(const pages *p, const place *at, int i)
{
    return at->kv_head * p->a->ratio + (at->first + i) % p->a->ratio;
}

static void tile(const void *self, ek_attn_tile *t)
{
    const pages *p = self;
    const place *at = &p->place[t->number];
    t->n_q = at->n;
    t->keys = (int64_t)p->rows[at->row].view * p->a->shape.n_kv_heads + at->kv_head;
    const ek_attn_row *row = &p->rows[at->row];
    for (int i = 0, head = at->first; i < at->n; i++) {
        t->lo[i] = row->lo, t->end[i] = row->end;
        if (++head == p->a->ratio) head = 0, row++;
    }
}

/* The codes of a tile's queries: the source's own part of a worker's space. */
typedef struct codes {
    int16_t code[EK_TILE][EK_CODE_STRIDE];
    float scale[EK_TILE];
} codes;

static void encode_queries(const ek_attn *a, const ek_attn_space *space, int n)
{
    const int dim = a->shape.head_dim;
    codes *c = space->own;
    const float by = 1.0f / (float)ek_attn_block(dim);
    float x[EK_MAX_HEAD_DIM];
    memset(c, 0, sizeof *c);
    for (int i = 0; i < n; i++) {
        memcpy(x, space->q + i * EK_Q_STRIDE, sizeof *x * (size_t)dim);
        c->scale[i] = a->encode(x, dim, EK_QUERY_CODE, c->code[i]) * by;
    }
}

static void queries(const void *self, const ek_attn_tile *t, ek_attn_space *space)
{
    const pages *p = self;
    const place *at = &p->place[t->number];
    const int dim = p->a->shape.head_dim;
    for (int i = 0; i < EK_TILE; i++) {
        float *q = space->q + i * EK_Q_STRIDE;
        if (i < at->n)
            memcpy(q, p->q + query_row(p, at, i) * p->ldq + query_head(p, at, i) * dim, sizeof *q * (size_t)dim);
        else memset(q, 0, sizeof *q * (size_t)dim);
    }
    if (ek_kv_rotated(p->a->rest.k_format)) encode_queries(p->a, space, at->n);
}

static int clamp(int64_t x)
{
    return x < 0 ? 0 : x > EK_SEGMENT ? EK_SEGMENT : (int)x;
}

/* Fills in the visible ranges of segment seg for the queries of t; returns those with a visible key, a bit each. */
static unsigned set_ranges(const ek_attn_tile *t, int64_t seg, ek_attn_segment *segment)
{
    unsigned live = 0;
    segment->n_q = t->n_q;
    segment->all_from = segment->common_to = EK_SEGMENT;
    segment->all_to = segment->common_from = 0;
    for (int i = 0; i < t->n_q; i++) {
        const int from = segment->from[i] = clamp(t->lo[i] - seg * EK_SEGMENT);
        const int to = segment->to[i] = clamp(t->end[i] - seg * EK_SEGMENT);
        if (from >= to) continue;
        live |= 1u << i;
        if (from < segment->all_from) segment->all_from = from;
        if (from > segment->common_from) segment->common_from = from;
        if (to > segment->all_to) segment->all_to = to;
        if (to < segment->common_to) segment->common_to = to;
    }
    return live;
}

/* Whether a key of page p of the segment is visible to some query. */
static bool wanted(const ek_attn_segment *segment, int p)
{
    for (int i = 0; i < segment->n_q; i++)
        if (segment->from[i] < segment->to[i] && segment->from[i] < (p + 1) * EK_PAGE_TOKENS &&
            segment->to[i] > p * EK_PAGE_TOKENS)
            return true;
    return false;
}

/* Finds the segment's keys and values of this KV head in its pages, and the keys of the next segment if that will be
 * read too. */
static void find_pages(const pages *p, const codec *c, const ek_attn_tile *t, int64_t seg, bool more,
                       ek_attn_segment *segment)
{
    const place *at = &p->place[t->number];
    const ek_kv_view *view = &p->views[p->rows[at->row].view];
    const size_t head = (size_t)at->kv_head * (c->k_bytes + c->v_bytes);
    const int first = (int)seg * EK_SEGMENT_PAGES;
    const int last = (p->rows[at->row].end - 1) / EK_PAGE_TOKENS; /* surely there */
    for (int i = 0; i < EK_SEGMENT_PAGES; i++) {
        segment->k[i] = segment->v[i] = segment->k_next[i] = NULL;
        if (more && first + i + EK_SEGMENT_PAGES <= last) {
            const uint8_t *next = ek_kv_block(view, first + i + EK_SEGMENT_PAGES);
            if (next) segment->k_next[i] = next + head;
        }
        if (!wanted(segment, i)) continue;
        const uint8_t *block = ek_kv_block(view, first + i);
        EK_ASSERT(block);
        segment->k[i] = block + head;
        segment->v[i] = block + head + c->k_bytes;
    }
}

static unsigned add_segment(const void *self, const ek_attn_tile *t, int64_t seg, ek_attn_when when,
                            ek_attn_space *space, ek_attn_node *out)
{
    const pages *p = self;
    const ek_attn *a = p->a;
    const codec *c = codec_at(a, seg * EK_SEGMENT), *next = codec_at(a, (seg + 1) * EK_SEGMENT);
    ek_attn_segment segment = {.head_dim = a->shape.head_dim,
                               .fetch_k = when.begins && when.first,
                               .fetch_v = when.first,
                               .k_bytes = c->k_bytes,
                               .v_bytes = c->v_bytes,
                               .q = space->q,
                               .q_code = space->own ? ((const codes *)space->own)->code[0] : NULL,
                               .q_scale = space->own ? ((const codes *)space->own)->scale : NULL,
                               .limbs = when.alone || !a->limb_bytes ? NULL : space->shared,
                               .e = space->e,
                               .o = out->o,
                               .ldo = a->ldo};
    const unsigned live = set_ranges(t, seg, &segment);
    if (!live) return 0;
    find_pages(p, c, t, seg, when.last && next == c, &segment);
    c->scores(&segment);
    a->weights(&segment);
    c->values(&segment);
    for (int i = 0; i < t->n_q; i++) out->m[i] = segment.m[i], out->l[i] = segment.l[i];
    return live;
}

static void result(const void *self, const ek_attn_tile *t, int i, float *row)
{
    const pages *p = self;
    const place *at = &p->place[t->number];
    const int dim = p->a->shape.head_dim;
    if (ek_kv_rotated(p->a->rest.v_format)) p->a->rotate_back(row, dim);
    memcpy(p->out + query_row(p, at, i) * p->ldout + query_head(p, at, i) * dim, row, sizeof *row * (size_t)dim);
}

static ek_attn_source source_of(const ek_attn *a, const pages *p, int64_t n_tiles)
{
    return (ek_attn_source){.self = p,
                            .n_tiles = n_tiles,
                            .group = EK_ATTN_GROUP,
                            .ldo = a->ldo,
                            .own_bytes = ek_kv_rotated(a->rest.k_format) ? sizeof(codes) : 0,
                            .shared_bytes = a->limb_bytes,
                            .combine = a->combine,
                            .tile = tile,
                            .queries = queries,
                            .segment = add_segment,
                            .result = result};
}

/* ------------------------------------------------------------------ a call */

static size_t place_bytes(int64_t n_tiles)
{
    return (sizeof(place) * (size_t)n_tiles + 63) / 64 * 64;
}

size_t ek_attn_scratch_bytes(const ek_attn *a, int max_rows, int max_keys, int n_threads)
{
    const int64_t n_tiles = max_tiles(a, max_rows);
    const ek_attn_source s = source_of(a, NULL, n_tiles);
    return place_bytes(n_tiles) + ek_attn_schedule_bytes(&s, n_tiles, max_keys / EK_SEGMENT + 2, n_threads);
}

void ek_attn_run(const ek_attn *a, ek_pool *pool, const ek_kv_view *views, const ek_attn_row *rows, int n_rows,
                 const float *q, ptrdiff_t ldq, float *o, ptrdiff_t ldo, void *scratch)
{
    for (int r = 0; r < n_rows; r++) EK_ASSERT(0 <= rows[r].lo && rows[r].lo < rows[r].end);
    pages p = {.a = a, .views = views, .rows = rows, .q = q, .ldq = ldq, .out = o, .ldout = ldo, .place = scratch};
    const ek_attn_source s = source_of(a, &p, place_tiles(&p, n_rows));
    const ek_attn_workers workers = ek_attn_workers_of(pool);
    ek_attn_cut cut;
    ek_attn_cut_work(&cut, &s, workers.n_workers);
    ek_attn_schedule(&s, &cut, &workers, (uint8_t *)scratch + place_bytes(s.n_tiles));
}
