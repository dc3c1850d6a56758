/* Compares queries, keys and values of each kind of layers: stored in pages and read by attention, for up to two KV
 * heads. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "cuda/attn/choose.h"
#include "cuda/attn_work.h"
#include "cuda/model_args.h"
#include "gpu/evidence/evidence.h"
#include "ops/attn/attn.h"
#include "ops/kv/kv_codec.h"
#include "ops/rows/rows.h"

enum { KEYS = 300, PAGES = 5, ROWS = 4, MAX_TILES = 1024 };
static const int32_t page[PAGES] = {4, 0, 2, 1, 3};
static const ek_attn_row seen[ROWS] = {{0, 0, KEYS}, {0, 100, KEYS}, {0, 200, 256}, {0, KEYS - 1, KEYS}};

typedef struct scene {
    ek_attn_shape shape;
    ek_attn *cpu;
    size_t stride, width, kv_width; /* bytes of a page; floats per row of queries and of keys */
    uint8_t *pages;
    float *q, *k, *v, *o;
    int o_group; /* group size if a row of o is also quantised; 0: it is not */
    void *scratch;
    CUdeviceptr on, table; /* pages and their table on the device */
} scene;

/* The same rule as in gpu/recipe/heads.c. */
static int o_group_of(const ek_model *m, const ek_layer_config *l)
{
    const int group = m->w.layer[l - m->config.layer].o.a_group;
    return (group == 32 || group == 64) && l->head_dim % group == 0 ? group : 0;
}

static ek_err open_scene(scene *s, const ek_model *m, const ek_layer_config *l)
{
    const int ratio = m->config.n_heads / l->n_kv_heads, kv = l->n_kv_heads < 2 ? 1 : 2;
    *s = (scene){.shape = {l->kind, m->k_format, m->v_format, ratio * kv, kv, l->head_dim, 0}};
    s->o_group = o_group_of(m, l);
    EK_TRY(ek_attn_plan(&s->cpu, 0, &s->shape));
    s->stride = (ek_kv_block_bytes(m->k_format, m->v_format, kv, l->head_dim) + 63) / 64 * 64;
    s->width = (size_t)(ratio * kv * l->head_dim), s->kv_width = (size_t)(kv * l->head_dim);
    s->pages = ek_alloc_big(s->stride * PAGES);
    s->scratch = ek_alloc_big(ek_attn_scratch_bytes(s->cpu, ROWS, KEYS, 1) + 64);
    if (!s->pages || !s->scratch) return EK_ENOMEM;
    s->q = ek_trial_hard(s->width * ROWS, 11, 0), s->o = ek_alloc(sizeof(float) * s->width * ROWS);
    s->k = ek_trial_hard(s->kv_width * KEYS, 12, 1), s->v = ek_trial_hard(s->kv_width * KEYS, 13, 2);
    return EK_OK;
}

static void close_scene(scene *s)
{
    if (s->scratch) ek_free_big(s->scratch, ek_attn_scratch_bytes(s->cpu, ROWS, KEYS, 1) + 64);
    if (s->pages) ek_free_big(s->pages, s->stride * PAGES);
    ek_attn_free(s->cpu);
    free(s->q), free(s->k), free(s->v), free(s->o);
}

static ek_cuda_kv kv_of(const scene *s)
{
    ek_cuda_kv kv = {.pages = s->table,
                     .base = s->on,
                     .stride = (int64_t)s->stride,
                     .ld_pages = PAGES,
                     .n_kv_heads = s->shape.n_kv_heads};
    ek_cuda_kv_formats(&kv, s->shape.k_format, s->shape.v_format, s->shape.head_dim);
    return kv;
}

/* Compares norm and rotation of the queries, which attention then uses. */
static ek_err prove_heads(ek_trial *t, scene *s)
{
    const int dim = s->shape.head_dim, rotated = t->m->n_rotated[s->shape.kind];
    const size_t bytes = sizeof(float) * s->width * ROWS, turns = sizeof(float) * (size_t)(ROWS * rotated);
    float *norm = ek_trial_hard((size_t)dim, 14, 1), *cos = ek_alloc(2 * turns + 64), *sin = cos + ROWS * rotated;
    ek_row_ops ops;
    ek_row_init(&ops, 0);
    for (int r = 0; r < ROWS; r++)
        ek_rope_row(cos + r * rotated, sin + r * rotated, t->m->rope[s->shape.kind], rotated, 37 + 100 * r);
    ek_cuda_heads_args a = {.ldq = (int64_t)s->width, .head_dim = dim};
    a.q = ek_trial_up(t, s->q, bytes);
    a.head = (ek_cuda_head){.ld_table = rotated, .eps = t->m->config.rms_norm_eps, .rotated = rotated};
    a.head.norm = ek_trial_up(t, norm, sizeof *norm * (size_t)dim);
    a.head.cos = ek_trial_up(t, cos, turns), a.head.sin = ek_trial_up(t, sin, turns);
    for (int r = 0; r < ROWS; r++)
        for (int h = 0; h < s->shape.n_heads; h++) {
            float *x = s->q + (size_t)r * s->width + (size_t)(h * dim);
            ops.rms_norm(x, x, norm, dim, a.head.eps);
            ops.rope(x, cos + r * rotated, sin + r * rotated, dim / 2, rotated);
        }
    ek_gpu_launch(t->g, "ek_heads", (ek_cuda_grid){.x = (unsigned)s->shape.n_heads, .y = ROWS, .threads = 128}, &a);
    free(norm), free(cos);
    return ek_trial_floats(t, "ek_heads", a.q, s->q, s->width * ROWS);
}

/* The result of ek_kv_store for a token's keys and values: both are normed, keys with weights, and keys are rotated. */
static void finish(const scene *s, const ek_cuda_head *head, const float *norm, const float *cos, const float *sin)
{
    const int dim = s->shape.head_dim;
    ek_row_ops ops;
    ek_row_init(&ops, 0);
    for (int i = 0; i < KEYS * s->shape.n_kv_heads; i++) {
        const int at = i / s->shape.n_kv_heads * head->rotated;
        float *const k = s->k + i * dim, *const v = s->v + i * dim;
        ops.rms_norm(k, k, norm, dim, head->eps);
        ops.rope(k, cos + at, sin + at, dim / 2, head->rotated);
        ops.rms_norm(v, v, NULL, dim, head->eps);
    }
}

static ek_err prove_store(ek_trial *t, scene *s)
{
    const int dim = s->shape.head_dim, rotated = t->m->n_rotated[s->shape.kind];
    const size_t bytes = sizeof(float) * s->kv_width * KEYS, turns = sizeof(float) * (size_t)(KEYS * rotated);
    ek_cuda_place place[KEYS];
    const ek_kv_view view = {.base = s->pages, .stride = s->stride, .page = page};
    float *const norm = ek_trial_hard((size_t)dim, 17, 1), *const cos = ek_alloc(2 * turns + 64),
                 *const sin = cos + KEYS * rotated;
    for (int i = 0; i < KEYS; i++) {
        place[i] = (ek_cuda_place){0, i};
        ek_rope_row(cos + i * rotated, sin + i * rotated, t->m->rope[s->shape.kind], rotated, i);
    }
    s->on = ek_trial_up(t, s->pages, s->stride * PAGES), s->table = ek_trial_up(t, page, sizeof page);
    ek_cuda_store_args a = {.kv = kv_of(s), .ldk = (int64_t)s->kv_width, .ldv = (int64_t)s->kv_width, .rows = KEYS};
    a.head = (ek_cuda_head){.ld_table = rotated, .eps = t->m->config.rms_norm_eps, .rotated = rotated};
    a.head.norm = ek_trial_up(t, norm, sizeof *norm * (size_t)dim);
    a.head.cos = ek_trial_up(t, cos, turns), a.head.sin = ek_trial_up(t, sin, turns);
    a.place = ek_trial_up(t, place, sizeof place);
    a.k = ek_trial_up(t, s->k, bytes), a.v = ek_trial_up(t, s->v, bytes);
    finish(s, &a.head, norm, cos, sin);
    for (int i = 0; i < KEYS; i++)
        ek_attn_store(s->cpu, &view, i, s->k + (size_t)i * s->kv_width, s->v + (size_t)i * s->kv_width);
    const ek_cuda_grid grid = {.x = (unsigned)s->shape.n_kv_heads, .y = KEYS, .z = 2, .threads = 128};
    ek_gpu_launch(t->g, "ek_kv_store", grid, &a);
    free(norm), free(cos);
    return ek_trial_bytes(t, "ek_kv_store", s->on, s->pages, s->stride * PAGES);
}

/* Compares attention by tiles of `tile` queries with the definition, s->o. */
static ek_err prove_tiles(ek_trial *t, const scene *s, int tile)
{
    const ek_cuda_chip *chip = ek_cuda_chip_of(t->g->c);
    const ek_attn_shape *p = &s->shape;
    const int ratio = p->n_heads / p->n_kv_heads, dim = p->head_dim;
    ek_cuda_attn_work w = {.max_tiles = MAX_TILES, .max_items = 2 * MAX_TILES};
    ek_cuda_attn_row rows[ROWS];
    w.tiles = ek_alloc(sizeof *w.tiles * MAX_TILES), w.items = ek_alloc(sizeof *w.items * 2 * MAX_TILES);
    ek_err err = ek_cuda_attn_add(&w, seen, 0, ROWS, p->n_heads, p->n_kv_heads, tile);
    for (int r = 0; r < ROWS; r++) rows[r] = (ek_cuda_attn_row){seen[r].lo, seen[r].end};
    const size_t leaves = (size_t)(w.n_items * tile), floats = sizeof(float), before = t->used;
    ek_cuda_attn_args a = {.kv = kv_of(s), .ldq = (int64_t)s->width, .ldo = (int64_t)s->width, .ratio = ratio};
    a.n_tiles = w.n_tiles, a.tile = tile;
    a.rows = ek_trial_up(t, rows, sizeof rows), a.tiles = ek_trial_up(t, w.tiles, sizeof *w.tiles * (size_t)w.n_tiles);
    a.items = ek_trial_up(t, w.items, sizeof *w.items * (size_t)w.n_items);
    a.q = ek_trial_up(t, s->q, floats * s->width * ROWS), a.o = ek_trial_up(t, NULL, floats * s->width * ROWS);
    a.leaf_o = ek_trial_up(t, NULL, floats * leaves * (size_t)dim);
    a.leaf_l = ek_trial_up(t, NULL, floats * leaves), a.leaf_m = ek_trial_up(t, NULL, floats * leaves);
    a.to = ek_trial_acts(t, (int)s->width, s->o_group, ROWS);
    const ek_cuda_attn_segment leaf = ek_cuda_attn_segment_plan(tile, dim, p->k_format, p->v_format, false, w.n_items,
                                                                chip);
    const ek_cuda_attn_joiner join = ek_cuda_attn_join_plan(p->v_format, dim);
    const bool joins = ek_cuda_attn_few_joins(tile, p->v_format, chip);
    if (joins) {
        a.ended = ek_trial_up(t, NULL, sizeof(int32_t) * (size_t)w.n_tiles);
        ek_gpu_note(t->g, ek_cuda_fill(t->g->c, a.ended, 0, sizeof(int32_t) * (size_t)w.n_tiles));
    }
    if (ek_cuda_attn_is_many(tile, p->v_format, chip)) {
        a.k = ek_trial_up(t, NULL, (size_t)w.n_tiles * ek_cuda_attn_code_bytes(tile, dim));
        ek_gpu_launch(t->g, "ek_attn_int_queries",
                      (ek_cuda_grid){.x = (unsigned)w.n_tiles, .y = (unsigned)tile / 8, .threads = 256}, &a);
    }
    ek_gpu_launch(t->g, leaf.name, (ek_cuda_grid){.x = (unsigned)w.n_items, .threads = leaf.threads}, &a);
    const ek_cuda_grid all = {.x = (unsigned)w.n_tiles, .y = (unsigned)tile, .z = join.z, .threads = join.threads};
    if (!joins) ek_gpu_launch(t->g, join.name, all, &a);
    free(w.tiles), free(w.items);
    if (!err) err = ek_trial_floats(t, leaf.name, a.o, s->o, s->width * ROWS);
    if (!err && a.to.q) err = ek_trial_records(t, joins ? leaf.name : join.name, &a.to, s->o, (int64_t)s->width, ROWS);
    t->used = before;
    return err;
}

static ek_err prove_attention(ek_trial *t, scene *s)
{
    const ek_cuda_chip *chip = ek_cuda_chip_of(t->g->c);
    const ek_attn_shape *p = &s->shape;
    const int few = ek_kv_rotated(p->v_format) ? EK_CUDA_ATTN_INT_TILE
                                               : ek_cuda_attn_few_tile(p->n_heads / p->n_kv_heads, ROWS);
    const int many = ek_cuda_attn_many_tile(p->head_dim, p->k_format, p->v_format, chip);
    const ek_kv_view view = {.base = s->pages, .stride = s->stride, .page = page};
    ek_attn_run(s->cpu, NULL, &view, seen, ROWS, s->q, (ptrdiff_t)s->width, s->o, (ptrdiff_t)s->width, s->scratch);
    EK_TRY(prove_tiles(t, s, few));
    for (int tile = ek_kv_rotated(p->v_format) ? 1 : 2; tile < few; tile *= 2) EK_TRY(prove_tiles(t, s, tile));
    return many ? prove_tiles(t, s, many) : EK_OK;
}

ek_err ek_trial_attention(ek_trial *t)
{
    for (int k = 0; k < EK_KIND_COUNT; k++) {
        const ek_layer_config *l = NULL;
        for (int i = 0; i < t->m->config.n_layers && !l; i++)
            if ((int)t->m->config.layer[i].kind == k) l = &t->m->config.layer[i];
        if (!l) continue;
        scene s;
        t->used = 0;
        ek_err err = open_scene(&s, t->m, l);
        if (!err) err = prove_heads(t, &s);
        if (!err) err = prove_store(t, &s);
        if (!err) err = prove_attention(t, &s);
        close_scene(&s);
        EK_TRY(err);
    }
    return EK_OK;
}
