/* Attention over pages: a source of the scheduler (attn_sched.h). */
#include "ops/attn/attn_pages.h"

#include <string.h>

#include "ops/attn/attn_int.h"

static int tiles_of(const ek_attn *a, int n_rows)
{
    return (n_rows * a->ratio + EK_TILE - 1) / EK_TILE;
}

int64_t ek_attn_max_tiles(const ek_attn *a, int n_rows)
{
    return (int64_t)n_rows * tiles_of(a, 1) * a->shape.n_kv_heads;
}

/* Makes tiles: adjacent rows of one view share a tile, and tiles that read the same keys are adjacent. */
int64_t ek_attn_place_tiles(ek_attn_pages *p, int n_rows)
{
    const int ratio = p->a->ratio;
    int64_t n = 0;
    for (int row = 0, end; row < n_rows; row = end) {
        for (end = row + 1; end < n_rows && p->rows[end].view == p->rows[row].view;) end++;
        for (int kv = 0; kv < p->a->shape.n_kv_heads; kv++)
            for (int at = 0, queries = (end - row) * ratio; at < queries; at += EK_TILE)
                p->place[n++] = (ek_attn_place){.row = row + at / ratio,
                                                .kv_head = kv,
                                                .first = at % ratio,
                                                .n = queries - at < EK_TILE ? queries - at : EK_TILE};
    }
    return n;
}

/* The row and the head of query i of a tile. */
static int query_row(const ek_attn_pages *p, const ek_attn_place *at, int i)
{
    return at->row + (at->first + i) / p->a->ratio;
}

static ptrdiff_t query_head(const ek_attn_pages *p, const ek_attn_place *at, int i)
{
    return at->kv_head * p->a->ratio + (at->first + i) % p->a->ratio;
}

static void tile(const void *self, ek_attn_tile *t)
{
    const ek_attn_pages *p = self;
    const ek_attn_place *at = &p->place[t->number];
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
    const ek_attn_pages *p = self;
    const ek_attn_place *at = &p->place[t->number];
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
static void find_pages(const ek_attn_pages *p, const ek_attn_codec *c, const ek_attn_tile *t, int64_t seg, bool more,
                       ek_attn_segment *segment)
{
    const ek_attn_place *place = &p->place[t->number];
    const ek_kv_view *view = &p->views[p->rows[place->row].view];
    const size_t at = (size_t)place->kv_head * (c->k_bytes + c->v_bytes);
    const int first = (int)seg * EK_SEGMENT_PAGES;
    const int last = (p->rows[place->row].end - 1) / EK_PAGE_TOKENS; /* surely there */
    for (int i = 0; i < EK_SEGMENT_PAGES; i++) {
        segment->k[i] = segment->v[i] = segment->k_next[i] = NULL;
        if (more && first + i + EK_SEGMENT_PAGES <= last) {
            const uint8_t *next = ek_kv_block(view, first + i + EK_SEGMENT_PAGES);
            if (next) segment->k_next[i] = next + at;
        }
        if (!wanted(segment, i)) continue;
        const uint8_t *block = ek_kv_block(view, first + i);
        EK_ASSERT(block);
        segment->k[i] = block + at;
        segment->v[i] = block + at + c->k_bytes;
    }
}

static unsigned add_segment(const void *self, const ek_attn_tile *t, int64_t seg, ek_attn_when when,
                            ek_attn_space *space, ek_attn_node *out)
{
    const ek_attn_pages *p = self;
    const ek_attn *a = p->a;
    const ek_attn_codec *c = ek_attn_codec_at(a, seg * EK_SEGMENT), *next = ek_attn_codec_at(a, (seg + 1) * EK_SEGMENT);
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
    const ek_attn_pages *p = self;
    const ek_attn_place *at = &p->place[t->number];
    const int dim = p->a->shape.head_dim;
    if (ek_kv_rotated(p->a->rest.v_format)) p->a->rotate_back(row, dim);
    memcpy(p->out + query_row(p, at, i) * p->ldout + query_head(p, at, i) * dim, row, sizeof *row * (size_t)dim);
}

ek_attn_source ek_attn_source_of(const ek_attn *a, const ek_attn_pages *p, int64_t n_tiles)
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
