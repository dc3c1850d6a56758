/* The vision tower on a device (model/tower/tower_vision.h): weights, the memory of a picture, and the row by row steps
 * of model/tower/tower_vision_run.c. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "cuda/tower/tensors.h"
#include "gpu/tower/state.h"
#include "gpu/weights/weights.h"

typedef struct vision_layer {
    ek_gpu_group heads, gates; /* q, k, v; gate, up */
    ek_gpu_matrix o, down;
    CUdeviceptr input_norm, q_norm, k_norm, post_attention_norm, pre_mlp_norm, post_mlp_norm;
} vision_layer;

typedef struct vision {
    ek_gpu_tower t;
    const ek_vision *v;
    ek_gpu_matrix input, projection;
    vision_layer *layer;
    CUdeviceptr std_bias, std_scale;
    /* Of the picture: */
    int n, across, down;                            /* patches in all, per line and per column */
    CUdeviceptr rgb, value, column, line, cos, sin; /* tables per column and line */
    CUdeviceptr h, y, qkv, o, gates, pooled;        /* rows of all patches; pooled: rows of tokens */
    CUdeviceptr codes;                  /* for attention in integers; the memory of gates, which are written later */
    CUdeviceptr x[EK_GPU_TOWER_INPUTS]; /* inputs of products; the first holds the patches at the beginning */
} vision;

static vision *of(ek_gpu_tower *t)
{
    return (vision *)t;
}

/* ------------------------------------------------------------------ weights */

static bool takes(const ek_tower_part *p)
{
    return ek_vision_of(p) != NULL;
}

static ek_err check(const ek_tower_part *p, const ek_cuda_chip *chip)
{
    const ek_vision *v = ek_vision_of(p);
    if (v->head_dim > EK_CUDA_TENSORS_MAX_DIM)
        return ek_fail(EK_EUNSUPPORTED, "a vision tower's head_dim of %d; the CUDA kernels take up to %d", v->head_dim,
                       EK_CUDA_TENSORS_MAX_DIM);
    if (v->width > EK_CUDA_TOWER_WIDTH)
        return ek_fail(EK_EUNSUPPORTED, "a vision tower's hidden_size of %d; the CUDA kernels take up to %d", v->width,
                       EK_CUDA_TOWER_WIDTH);
    const size_t shared = ek_cuda_tensors_plan(v->heads, 1, 1, v->head_dim, chip).grid.shared;
    if (shared > chip->block_shared)
        return ek_fail(EK_EUNSUPPORTED,
                       "a vision tower's head_dim of %d takes %zu KB of shared memory; a block may have %zu",
                       v->head_dim, (shared + 1023) / 1024, chip->block_shared / 1024);
    return EK_OK;
}

static void open_vision(ek_gpu_tower *t)
{
    vision *x = of(t);
    x->v = ek_vision_of(t->part);
    x->layer = ek_alloc(sizeof *x->layer * (size_t)x->v->n_layers);
}

static void close_vision(ek_gpu_tower *t)
{
    free(of(t)->layer);
}

static void weights(ek_gpu_tower *t)
{
    vision *x = of(t);
    const ek_vision *v = x->v;
    ek_gpu_tower_matrix(t, &x->input, &v->input), ek_gpu_tower_matrix(t, &x->projection, &v->projection);
    ek_gpu_tower_vector(t, &x->std_bias, v->std_bias, v->width);
    ek_gpu_tower_vector(t, &x->std_scale, v->std_scale, v->width);
    for (int i = 0; i < v->n_layers; i++) {
        const ek_vision_layer *from = &v->layer[i];
        vision_layer *to = &x->layer[i];
        const ek_clipped *const heads[] = {&from->q, &from->k, &from->v}, *const gates[] = {&from->gate, &from->up};
        ek_gpu_tower_group(t, &to->heads, heads, 3), ek_gpu_tower_group(t, &to->gates, gates, 2);
        ek_gpu_tower_matrix(t, &to->o, &from->o.w), ek_gpu_tower_matrix(t, &to->down, &from->down.w);
        ek_gpu_tower_vector(t, &to->input_norm, from->input_norm, v->width);
        ek_gpu_tower_vector(t, &to->q_norm, from->q_norm, v->head_dim);
        ek_gpu_tower_vector(t, &to->k_norm, from->k_norm, v->head_dim);
        ek_gpu_tower_vector(t, &to->post_attention_norm, from->post_attention_norm, v->width);
        ek_gpu_tower_vector(t, &to->pre_mlp_norm, from->pre_mlp_norm, v->width);
        ek_gpu_tower_vector(t, &to->post_mlp_norm, from->post_mlp_norm, v->width);
    }
}

/* ------------------------------------------------------------------ a picture */

static ek_err measure(ek_gpu_tower *t)
{
    vision *x = of(t);
    const ek_image_fit *fit = &t->media->picture.fit;
    ek_tower_cost cost;
    EK_TRY(ek_vision_cost(&cost, t->part, fit));
    x->across = fit->width / x->v->patching.side, x->down = fit->height / x->v->patching.side;
    x->n = x->across * x->down;
    t->tokens = fit->tokens, t->steps = x->v->n_layers;
    return EK_OK;
}

/* The launch of attention. */
static ek_cuda_product attention_of(const vision *x)
{
    const ek_vision *v = x->v;
    const ek_cuda_chip *chip = ek_cuda_chip_of(x->t.g->c);
    return ek_vision_in_integers(v, x->n) ? ek_cuda_tensors_int_plan(v->heads, x->n, v->head_dim, chip)
                                          : ek_cuda_tensors_plan(v->heads, x->n, x->n, v->head_dim, chip);
}

static void need(vision *x)
{
    ek_gpu_tower *t = &x->t;
    const size_t attention = attention_of(x).stack;
    ek_gpu_tower_need(t, &x->input, x->n), ek_gpu_tower_need(t, &x->projection, t->tokens);
    for (int i = 0; i < x->v->n_layers; i++) {
        const vision_layer *l = &x->layer[i];
        ek_gpu_tower_need_group(t, &l->heads, x->n), ek_gpu_tower_need_group(t, &l->gates, x->n);
        ek_gpu_tower_need(t, &l->o, x->n), ek_gpu_tower_need(t, &l->down, x->n);
    }
    if (attention > t->run.buf.stack_bytes)
        t->run.buf.stack_bytes = attention; /* attention shares the products' stack */
}

static int larger(int a, int b)
{
    return a > b ? a : b;
}

/* Gates use the memory of attention's integer codes, which are no longer needed then. */
static size_t gates_bytes(const vision *x)
{
    const ek_vision *v = x->v;
    const size_t gates = sizeof(float) * (size_t)x->n * (size_t)x->layer[0].gates.width,
                 codes = ek_cuda_tensors_codes_bytes(v->heads, v->kv_heads, x->n, v->head_dim);
    return ek_vision_in_integers(v, x->n) && codes > gates ? codes : gates;
}

static void lay_out(ek_gpu_tower *t)
{
    vision *x = of(t);
    const ek_vision *v = x->v;
    const int grid = larger(x->across, x->down), each = v->head_dim / 4, q = v->heads * v->head_dim;
    int inputs = 1;
    for (int i = 0; i < v->n_layers; i++) inputs = larger(inputs, larger(x->layer[i].heads.n_x, x->layer[i].gates.n_x));
    x->value = ek_gpu_tower_take_rows(t, 1, 256);
    x->column = ek_gpu_tower_take_rows(t, x->across, v->width), x->line = ek_gpu_tower_take_rows(t, x->down, v->width);
    x->cos = ek_gpu_tower_take_rows(t, grid, each), x->sin = ek_gpu_tower_take_rows(t, grid, each);
    t->host_bytes = t->at;
    x->rgb = ek_gpu_tower_take(t, ek_image_bytes(&t->media->picture.image));
    x->h = ek_gpu_tower_take_rows(t, x->n, v->width), x->y = ek_gpu_tower_take_rows(t, x->n, v->width);
    x->qkv = ek_gpu_tower_take_rows(t, x->n, x->layer[0].heads.width), x->o = ek_gpu_tower_take_rows(t, x->n, q);
    x->codes = x->gates = ek_gpu_tower_take(t, gates_bytes(x));
    for (int i = 0; i < inputs; i++)
        x->x[i] = ek_gpu_tower_take_rows(t, x->n, i == 0 ? larger(v->input.k, v->width) : v->width);
    x->pooled = ek_gpu_tower_take_rows(t, t->tokens, v->width);
    need(x);
}

static void write_tables(ek_gpu_tower *t)
{
    vision *x = of(t);
    const ek_image *image = &t->media->picture.image;
    const ek_vision *v = x->v;
    const int each = v->head_dim / 4, grid = larger(x->across, x->down);
    ek_patch_values(ek_gpu_tower_host(t, x->value), EK_PATCH_TOWER);
    for (int i = 0; i < x->across; i++)
        ek_embedding_row(&v->positions, i, 0, v->width, ek_gpu_tower_host(t, x->column) + (size_t)i * (size_t)v->width);
    for (int i = 0; i < x->down; i++)
        ek_embedding_row(&v->positions, v->n_positions + i, 0, v->width,
                         ek_gpu_tower_host(t, x->line) + (size_t)i * (size_t)v->width);
    for (int i = 0; i < grid; i++)
        ek_rope_row(ek_gpu_tower_host(t, x->cos) + i * each, ek_gpu_tower_host(t, x->sin) + i * each, v->freq, each, i);
    ek_gpu_note(t->g, ek_cuda_upload(t->g->c, x->rgb, image->rgb, ek_image_bytes(image)));
}

/* ------------------------------------------------------------------ a layer */

static ek_cuda_tower_stage_args stage(const vision *x)
{
    return (ek_cuda_tower_stage_args){.h = x->h,
                                      .ld = x->v->width,
                                      .limit = INFINITY,
                                      .factor = 1,
                                      .eps = x->v->eps,
                                      .n = x->v->width,
                                      .across = x->across};
}

static void run_stage(vision *x, const ek_cuda_tower_stage_args *a)
{
    ek_gpu_launch(x->t.g, "ek_tower_stage", ek_gpu_tower_row_grid(x->n, x->v->width), a);
}

/* Adds the output of a layer's block in y to h. */
static void set_sum(const vision *x, ek_cuda_tower_stage_args *a, const ek_clipped *by, CUdeviceptr norm)
{
    a->y = x->y, a->y_norm = norm;
    memcpy(a->y_clip, by->clip.out, sizeof by->clip.out);
}

/* The norms of the first layer's input have their own launch; those of later layers end the layer before. */
static void stage_for_heads(const vision *x, int layer, ek_cuda_tower_stage_args *a)
{
    const vision_layer *l = &x->layer[layer];
    ek_gpu_tower_stage_for(a, &l->heads, x->x, l->input_norm, x->v->eps);
}

static void embed(vision *x)
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

static void heads(vision *x, int layer)
{
    const ek_vision *v = x->v;
    const ek_vision_layer *w = &v->layer[layer];
    const vision_layer *l = &x->layer[layer];
    ek_gpu_tower_products(&x->t, &l->heads, x->n, x->x, x->qkv);
    ek_cuda_tower_heads_args a = {.q = x->qkv,
                                  .k = ek_gpu_tower_part(x->qkv, &l->heads, 1),
                                  .v = ek_gpu_tower_part(x->qkv, &l->heads, 2),
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

static void attend_in_integers(vision *x, int layer)
{
    const ek_vision *v = x->v;
    const ek_gpu_group *m = &x->layer[layer].heads;
    const ek_cuda_product p = attention_of(x);
    ek_cuda_tensors_int_args a = {.q = x->qkv,
                                  .k = ek_gpu_tower_part(x->qkv, m, 1),
                                  .v = ek_gpu_tower_part(x->qkv, m, 2),
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

static void attend(vision *x, int layer)
{
    const ek_vision *v = x->v;
    const ek_gpu_group *m = &x->layer[layer].heads;
    const ek_cuda_product p = attention_of(x);
    ek_cuda_tensors_args a = {.q = x->qkv,
                              .k = ek_gpu_tower_part(x->qkv, m, 1),
                              .v = ek_gpu_tower_part(x->qkv, m, 2),
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

static void gate(vision *x, int layer)
{
    const ek_vision_layer *w = &x->v->layer[layer];
    const ek_gpu_group *m = &x->layer[layer].gates;
    ek_cuda_tower_gate_args a = {.y = x->gates,
                                 .g = x->gates,
                                 .u = ek_gpu_tower_part(x->gates, m, 1),
                                 .ldy = m->width,
                                 .ld = m->width,
                                 .n = x->v->inner};
    memcpy(a.g_clip, w->gate.clip.out, sizeof a.g_clip);
    memcpy(a.u_clip, w->up.clip.out, sizeof a.u_clip);
    memcpy(a.y_clip, w->down.clip.in, sizeof a.y_clip);
    ek_gpu_launch(x->t.g, "ek_tower_gate", ek_gpu_tower_gate_grid(x->n, x->v->inner), &a);
}

static void run_layer(vision *x, int layer)
{
    const ek_vision_layer *w = &x->v->layer[layer];
    const vision_layer *l = &x->layer[layer];
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

static void make_tokens(vision *x)
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

/* ------------------------------------------------------------------ steps */

static double macs(const ek_gpu_tower *t, int step)
{
    const vision *x = (const vision *)t;
    const ek_vision *v = x->v;
    const double q = (double)v->heads * v->head_dim, kv = (double)v->kv_heads * v->head_dim, width = v->width;
    (void)step;
    return x->n * (width * (2 * q + 2 * kv + 3.0 * v->inner) + 2.0 * x->n * q);
}

static void step(ek_gpu_tower *t, int layer)
{
    if (layer == 0) embed(of(t));
    run_layer(of(t), layer);
    if (layer + 1 == of(t)->v->n_layers) make_tokens(of(t));
}

const ek_gpu_tower_ops ek_gpu_vision_ops = {.takes = takes,
                                            .check = check,
                                            .bytes = sizeof(vision),
                                            .open = open_vision,
                                            .close = close_vision,
                                            .weights = weights,
                                            .measure = measure,
                                            .lay_out = lay_out,
                                            .write = write_tables,
                                            .macs = macs,
                                            .step = step};
