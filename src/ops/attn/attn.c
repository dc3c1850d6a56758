#include "ops/attn/attn.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "ops/attn/attn_pages.h"
#include "ops/kv/kv_codec.h"

ek_err ek_attn_plan(ek_attn **out, unsigned cpu, const ek_attn_shape *s)
{
    ek_attn_ops ops;
    ek_attn_init(&ops, cpu);
    return ek_attn_plan_ops(out, &ops, s);
}

static ek_err plan_codec(ek_attn_codec *c, const ek_attn_ops *ops, const ek_attn_shape *s, ek_kv_format k,
                         ek_kv_format v)
{
    const char *kind = s->kind == EK_FULL ? "full" : "sliding";
    if (!ek_kv_block_bytes(k, v, s->n_kv_heads, s->head_dim) || !ops->scores[k] || !ops->values[v])
        return ek_fail(EK_EUNSUPPORTED,
                       "no attention kernel for %s layers with keys in %s, values in %s and head_dim %d", kind,
                       ek_kv_format_name(k), ek_kv_format_name(v), s->head_dim);
    *c = (ek_attn_codec){.k_format = k,
                         .v_format = v,
                         .scores = ops->scores[k],
                         .values = ops->values[v],
                         .k_bytes = ek_kv_k_bytes(k, s->head_dim),
                         .v_bytes = ek_kv_v_bytes(v, s->head_dim)};
    return EK_OK;
}

static bool keeps_limbs(const ek_attn_codec *start, const ek_attn_codec *rest)
{
    return start->k_format == EK_KV_I12 || start->v_format == EK_KV_I12 || rest->k_format == EK_KV_I12 ||
           rest->v_format == EK_KV_I12;
}

ek_err ek_attn_plan_ops(ek_attn **out, const ek_attn_ops *ops, const ek_attn_shape *s)
{
    ek_attn_codec start, rest;
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
    const ek_attn_codec *c = ek_attn_codec_at(a, pos);
    int dim = a->shape.head_dim;
    for (int h = 0; h < a->shape.n_kv_heads; h++, at += c->k_bytes + c->v_bytes)
        ek_kv_store(c->k_format, c->v_format, dim, at, at + c->k_bytes, pos % EK_PAGE_TOKENS, k + (ptrdiff_t)h * dim,
                    v + (ptrdiff_t)h * dim);
}

static size_t place_bytes(int64_t n_tiles)
{
    return (sizeof(ek_attn_place) * (size_t)n_tiles + 63) / 64 * 64;
}

size_t ek_attn_scratch_bytes(const ek_attn *a, int max_rows, int max_keys, int n_threads)
{
    const int64_t n_tiles = ek_attn_max_tiles(a, max_rows);
    const ek_attn_source s = ek_attn_source_of(a, NULL, n_tiles);
    return place_bytes(n_tiles) + ek_attn_schedule_bytes(&s, n_tiles, max_keys / EK_SEGMENT + 2, n_threads);
}

void ek_attn_run(const ek_attn *a, ek_pool *pool, const ek_kv_view *views, const ek_attn_row *rows, int n_rows,
                 const float *q, ptrdiff_t ldq, float *o, ptrdiff_t ldo, void *scratch)
{
    for (int r = 0; r < n_rows; r++) EK_ASSERT(0 <= rows[r].lo && rows[r].lo < rows[r].end);
    ek_attn_pages p = {
        .a = a, .views = views, .rows = rows, .q = q, .ldq = ldq, .out = o, .ldout = ldo, .place = scratch};
    const ek_attn_source s = ek_attn_source_of(a, &p, ek_attn_place_tiles(&p, n_rows));
    const ek_attn_workers workers = ek_attn_workers_of(pool);
    ek_attn_cut cut;
    ek_attn_cut_work(&cut, &s, workers.n_workers);
    ek_attn_schedule(&s, &cut, &workers, (uint8_t *)scratch + place_bytes(s.n_tiles));
}
