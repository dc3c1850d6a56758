/* Computes model/tower/tower_vision_run.c's row by row steps. */
#include <math.h>
#include <string.h>

#include "cuda/tower/tensors.h"
#include "gpu/tower/state.h"
#include "gpu/weights/weights.h"

static ek_cuda_tower_stage_args stage(const ek_gpu_vision *x)
{
    return (ek_cuda_tower_stage_args){.h = x->h,
                                      .ld = x->v->width,
                                      .limit = INFINITY,
                                      .factor = 1,
                                      .eps = x->v->eps,
                                      .n = x->v->width,
                                      .across = x->across};
}

static void run_stage(ek_gpu_vision *x, const ek_cuda_tower_stage_args *a)
{
    ek_gpu_launch(x->t.g, "ek_tower_stage", ek_gpu_tower_row_grid(x->n, x->v->width), a);
}

/* Adds the output of a layer's block in y to h. */
static void set_sum(const ek_gpu_vision *x, ek_cuda_tower_stage_args *a, const ek_clipped *by, CUdeviceptr norm)
{
    a->y = x->y, a->y_norm = norm;
    memcpy(a->y_clip, by->clip.out, sizeof by->clip.out);
}

/* The norms of the first layer's input have their own launch; those of later layers end the layer before. */
static void stage_for_heads(const ek_gpu_vision *x, int layer, ek_cuda_tower_stage_args *a)
{
    const ek_gpu_vision_layer *l = &x->layer[layer];
    ek_gpu_tower_stage_for(a, &l->heads, x->x, l->input_norm, x->v->eps);
}

void ek_gpu_vision_embed(ek_gpu_vision *x)
{
    const int side = x->v->patching.side, floats = 3 * side * side;
    const ek_cuda_patch_args patch = {
        .x = x->x[0], .rgb = x->rgb, .value = x->value, .ldx = floats, .side = side, .across = x->across};
    ek_gpu_launch(x->t.g, "ek_tower_patch",
                  (ek_cuda_grid){.x = ek_gpu_over(floats, 256), .y = (unsigned)x->n, .threads = 256}, &patch);
    ek_gpu_tower_product(&x->t, &x->input, x->n, x->x[0], floats, x->h, x->v->width);
    ek_cuda_tower_stage_args a = stage(x);
    a.column = x->column, a.line = x->line;
    stage_for_heads(x, 0, &a);
    run_stage(x, &a);
}

static CUdeviceptr part_of(CUdeviceptr rows, const ek_gpu_group *m, int i)
{
    return rows + sizeof(float) * (size_t)m->at[i];
}

static void heads(ek_gpu_vision *x, int layer)
{
    const ek_vision *v = x->v;
    const ek_vision_layer *w = &v->layer[layer];
    const ek_gpu_vision_layer *l = &x->layer[layer];
    ek_gpu_tower_products(&x->t, &l->heads, x->n, x->x, x->qkv);
    ek_cuda_tower_heads_args a = {.q = x->qkv,
                                  .k = part_of(x->qkv, &l->heads, 1),
                                  .v = part_of(x->qkv, &l->heads, 2),
                                  .q_norm = l->q_norm,
                                  .k_norm = l->k_norm,
                                  .cos = x->cos,
                                  .sin = x->sin,
                                  .ld = l->heads.width,
                                  .eps = v->eps,
                                  .heads = v->heads,
                                  .kv_heads = v->kv_heads,
                                  .dim = v->head_dim,
                                  .across = x->across};
    const ek_clipped *const m[] = {&w->q, &w->k, &w->v};
    for (int i = 0; i < 3; i++) memcpy(a.clip[i], m[i]->clip.out, sizeof a.clip[i]);
    ek_gpu_launch(x->t.g, "ek_tower_heads",
                  (ek_cuda_grid){.x = (unsigned)x->n, .threads = EK_CUDA_TOWER_HEADS_THREADS, .overlap = true}, &a);
}

ek_cuda_product ek_gpu_vision_attention(const ek_gpu_vision *x)
{
    const ek_vision *v = x->v;
    const ek_cuda_chip *chip = ek_cuda_chip_of(x->t.g->c);
    return ek_vision_in_integers(v, x->n) ? ek_cuda_tensors_int_plan(v->heads, x->n, v->head_dim, chip)
                                          : ek_cuda_tensors_plan(v->heads, x->n, x->n, v->head_dim, chip);
}

static void attend_in_integers(ek_gpu_vision *x, int layer)
{
    const ek_vision *v = x->v;
    const ek_gpu_group *m = &x->layer[layer].heads;
    const ek_cuda_product p = ek_gpu_vision_attention(x);
    ek_cuda_tensors_int_args a = {.q = x->qkv,
                                  .k = part_of(x->qkv, m, 1),
                                  .v = part_of(x->qkv, m, 2),
                                  .o = x->o,
                                  .ld = m->width,
                                  .ldo = m->at[1],
                                  .codes = x->codes,
                                  .stack = x->t.run.buf.stack,
                                  .heads = v->heads,
                                  .kv_heads = v->kv_heads,
                                  .rows = x->n,
                                  .dim = v->head_dim,
                                  .levels = p.levels};
    memcpy(a.clip, v->layer[layer].o.clip.in, sizeof a.clip);
    ek_gpu_launch(x->t.g, "ek_tensors_codes", ek_cuda_tensors_codes_grid(v->heads, v->kv_heads, x->n), &a);
    ek_gpu_launch(x->t.g, p.name, p.grid, &a);
}

static void attend(ek_gpu_vision *x, int layer)
{
    const ek_vision *v = x->v;
    const ek_gpu_group *m = &x->layer[layer].heads;
    const ek_cuda_product p = ek_gpu_vision_attention(x);
    ek_cuda_tensors_args a = {.q = x->qkv,
                              .k = part_of(x->qkv, m, 1),
                              .v = part_of(x->qkv, m, 2),
                              .o = x->o,
                              .ldq = m->width,
                              .ldk = m->width,
                              .ldv = m->width,
                              .ldo = m->at[1],
                              .stack = x->t.run.buf.stack,
                              .heads = v->heads,
                              .kv_heads = v->kv_heads,
                              .rows = x->n,
                              .keys = x->n,
                              .dim = v->head_dim,
                              .levels = p.levels};
    memcpy(a.clip, v->layer[layer].o.clip.in, sizeof a.clip);
    ek_gpu_launch(x->t.g, p.name, p.grid, &a);
}

static void gate(ek_gpu_vision *x, int layer)
{
    const ek_vision_layer *w = &x->v->layer[layer];
    const ek_gpu_group *m = &x->layer[layer].gates;
    ek_cuda_tower_gate_args a = {
        .y = x->gates, .g = x->gates, .u = part_of(x->gates, m, 1), .ldy = m->width, .ld = m->width, .n = x->v->inner};
    memcpy(a.g_clip, w->gate.clip.out, sizeof a.g_clip);
    memcpy(a.u_clip, w->up.clip.out, sizeof a.u_clip);
    memcpy(a.y_clip, w->down.clip.in, sizeof a.y_clip);
    ek_gpu_launch(x->t.g, "ek_tower_gate", ek_gpu_tower_gate_grid(x->n, x->v->inner), &a);
}

void ek_gpu_vision_layer_of(ek_gpu_vision *x, int layer)
{
    const ek_vision_layer *w = &x->v->layer[layer];
    const ek_gpu_vision_layer *l = &x->layer[layer];
    const int width = x->v->width;
    heads(x, layer);
    if (ek_vision_in_integers(x->v, x->n)) attend_in_integers(x, layer);
    else attend(x, layer);
    ek_gpu_tower_product(&x->t, &l->o, x->n, x->o, l->o.l.k, x->y, width);
    ek_cuda_tower_stage_args mixed = stage(x);
    set_sum(x, &mixed, &w->o, l->post_attention_norm);
    ek_gpu_tower_stage_for(&mixed, &l->gates, x->x, l->pre_mlp_norm, x->v->eps);
    run_stage(x, &mixed);
    ek_gpu_tower_products(&x->t, &l->gates, x->n, x->x, x->gates);
    gate(x, layer);
    ek_gpu_tower_product(&x->t, &l->down, x->n, x->gates, l->gates.width, x->y, width);
    ek_cuda_tower_stage_args done = stage(x);
    set_sum(x, &done, &w->down, l->post_mlp_norm);
    if (layer + 1 < x->v->n_layers) stage_for_heads(x, layer + 1, &done);
    run_stage(x, &done);
}

void ek_gpu_vision_tokens(ek_gpu_vision *x)
{
    const ek_vision *v = x->v;
    const int pool = v->patching.pool, tokens = x->t.tokens;
    const ek_cuda_tower_pool_args a = {.x = x->pooled,
                                       .h = x->h,
                                       .bias = x->std_bias,
                                       .scale = x->std_scale,
                                       .ldx = v->width,
                                       .ldh = v->width,
                                       .share = 1.0f / (float)(pool * pool),
                                       .factor = (float)sqrt((double)v->width),
                                       .eps = v->eps,
                                       .n = v->width,
                                       .side = pool,
                                       .across = x->across};
    ek_gpu_launch(x->t.g, "ek_tower_pool", ek_gpu_tower_row_grid(tokens, v->width), &a);
    ek_gpu_tower_product(&x->t, &x->projection, tokens, x->pooled, v->width, x->t.rows, x->t.part->hidden);
}
