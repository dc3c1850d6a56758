#include "gpu/step/step.h"

#include "cuda/attn_work.h"
#include "gpu/weights/weights.h"
#include "ops/kv/kv_codec.h"

bool ek_gpu_finishes(const ek_gpu_list *list)
{
    return list->whole && !list->n_prompt;
}

static void attend_few(ek_gpu_run *x, ek_cuda_attn_args a, const ek_gpu_list *list, const ek_gpu_wave *wave)
{
    const ek_model *m = x->g->m;
    const ek_cuda_attn_segment p = list->deep ? ek_cuda_attn_deep_plan(a.kv.head_dim)
                                              : ek_cuda_attn_segment_plan(list->tile, a.kv.head_dim, m->k_format,
                                                                          m->v_format, list->whole, wave->n_items,
                                                                          ek_cuda_chip_of(x->g->c));
    a.tiles = wave->tiles, a.items = wave->items, a.n_tiles = wave->n_tiles, a.tile = list->tile;
    a.slots = p.slots, a.starts = list->joined && ek_kv_rotated(m->v_format);
    const bool many = ek_cuda_attn_is_many(list->tile, m->v_format, ek_cuda_chip_of(x->g->c));
    const size_t codes = many ? (size_t)wave->n_tiles * ek_cuda_attn_code_bytes(list->tile, a.kv.head_dim) : 0;
    size_t max_segments = (x->buf.segment_bytes - codes) / sizeof(float) /
                          (size_t)(a.kv.head_dim + 2); /* per query of the tile */
    a.leaf_o = x->buf.segments + codes;
    a.leaf_l = a.leaf_o + sizeof(float) * max_segments * (size_t)a.kv.head_dim;
    a.leaf_m = a.leaf_l + sizeof(float) * max_segments;
    const bool joins = list->whole || ek_cuda_attn_few_joins(list->tile, m->v_format, ek_cuda_chip_of(x->g->c));
    a.ended = joins ? x->buf.ended : 0;
    if (many) {
        a.k = x->buf.segments;
        ek_gpu_launch(x->g, "ek_attn_int_queries",
                      (ek_cuda_grid){.x = (unsigned)wave->n_tiles, .y = (unsigned)list->tile / 8, .threads = 256}, &a);
    }
    ek_gpu_launch(
        x->g, p.name,
        (ek_cuda_grid){.x = (unsigned)wave->n_items, .threads = p.threads, .shared = p.shared, .overlap = true}, &a);
    if (joins) return;
    a.slots = 0; /* the join needs no slots, because every leaf is one */
    const ek_cuda_attn_joiner j = ek_cuda_attn_join_plan(m->v_format, a.kv.head_dim);
    ek_gpu_launch(
        x->g, j.name,
        (ek_cuda_grid){
            .x = (unsigned)wave->n_tiles, .y = (unsigned)list->tile, .z = j.z, .threads = j.threads, .overlap = true},
        &a);
}

static void attend_prompt(ek_gpu_run *x, ek_cuda_attn_args a, const ek_gpu_list *list)
{
    const ek_cuda_attn_segment p = ek_cuda_attn_prompt_plan(x->g->m->k_format, a.kv.head_dim, ek_cuda_chip_of(x->g->c));
    const int blocks = ek_cuda_multiprocessors(x->g->c) * p.slots;
    a.tiles = list->prompt, a.n_tiles = list->n_prompt, a.tile = p.tile, a.levels = list->levels;
    a.leaf_o = x->buf.segments, a.ended = x->buf.ended, a.items = 0;
    if (list->n_cut) {
        const size_t stacks = (size_t)blocks * ek_cuda_attn_stack_floats(list->levels, a.kv.head_dim),
                     queries = (size_t)list->n_prompt * EK_CUDA_PROMPT_TILE;
        a.items = x->buf.segments, a.leaf_o = a.items + sizeof(float) * stacks;
        a.leaf_l = a.leaf_o + sizeof(float) * queries * (size_t)a.kv.head_dim;
        a.leaf_m = a.leaf_l + sizeof(float) * queries;
    }
    ek_gpu_launch(x->g, p.name,
                  (ek_cuda_grid){.x = (unsigned)(list->n_prompt < blocks ? list->n_prompt : blocks),
                                 .threads = p.threads,
                                 .shared = p.shared,
                                 .overlap = true},
                  &a);
    if (!list->n_cut) return;
    const ek_cuda_attn_joiner j = ek_cuda_attn_join_plan(x->g->m->v_format, a.kv.head_dim);
    a.tiles = list->cut, a.n_tiles = list->n_cut, a.slots = list->part;
    ek_gpu_launch(
        x->g, j.name,
        (ek_cuda_grid){
            .x = (unsigned)list->n_cut, .y = EK_CUDA_PROMPT_TILE, .z = j.z, .threads = j.threads, .overlap = true},
        &a);
}

void ek_gpu_attend(ek_gpu_run *x, ek_cuda_attn_args a, const ek_gpu_list *list)
{
    a.rows = list->rows;
    a.single = list->single && (ek_gpu_finishes(list) || list->deep);
    for (int w = 0; w < list->n_waves; w++) attend_few(x, a, list, &list->wave[w]);
    if (list->n_prompt) attend_prompt(x, a, list);
}
