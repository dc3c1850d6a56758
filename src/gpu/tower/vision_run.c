/* What model/tower/tower_vision_run.c computes row by row. */
#include "gpu/tower/vision_run.h"

#include <math.h>
#include <string.h>

#include "cuda/product/choose.h"
#include "cuda/tower/tensors.h"
#include "cuda/tower_args.h"
#include "gpu/weights/launch.h"

static unsigned over(int n, int by)
{
    return (unsigned)ek_cuda_over(n, by);
}

/* A block for each row. */
static ek_cuda_grid rows_grid(const ek_gpu_vision *x, int rows)
{
    return (ek_cuda_grid){.x = (unsigned)rows, .threads = over(x->v->width, 256) * 32, .overlap = true};
}

static int multiprocessors(const ek_gpu_vision *x)
{
    return ek_cuda_multiprocessors(x->g->c);
}

static void multiply(ek_gpu_vision *x, const ek_gpu_matrix *m, int rows, CUdeviceptr from, CUdeviceptr y)
{
    const ek_cuda_product p = ek_cuda_product_plan(&m->l, rows, multiprocessors(x), 0);
    ek_cuda_linear_args a = {.f = from,
                             .ldf = m->l.k,
                             .y = y,
                             .ldy = m->l.n,
                             .stack = x->stack,
                             .rows = rows,
                             .pass = p.pass,
                             .levels = p.levels};
    ek_cuda_linear_args_of(&a, &m->l, m->at);
    ek_gpu_launch(x->g, p.name, p.grid, &a);
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

static size_t stack_of(const ek_gpu_vision *x, const ek_gpu_matrix *m, int rows)
{
    return ek_cuda_product_plan(&m->l, rows, multiprocessors(x), 0).stack;
}

size_t ek_gpu_vision_stack(const ek_gpu_vision *x)
{
    const ek_vision *v = x->v;
    const ek_gpu_vision_layer *l = &x->layer[0];
    const ek_gpu_matrix *const m[] = {&x->input, &l->q, &l->k, &l->v, &l->o, &l->gate, &l->up, &l->down};
    size_t most = ek_cuda_tensors_plan(v->heads, x->n, x->n, v->head_dim, multiprocessors(x)).stack;
    for (size_t i = 0; i < sizeof m / sizeof *m; i++) most = larger(most, stack_of(x, m[i], x->n));
    return larger(most, stack_of(x, &x->projection, x->tokens));
}

/* ------------------------------------------------------------------ inputs of products, each held within its bounds */

/* Which of the inputs x[] a matrix reads: the first that is clamped like it. */
static int input_of(const ek_clipped *const *w, int i)
{
    int j = 0;
    while (memcmp(w[j]->clip.in, w[i]->clip.in, sizeof w[i]->clip.in) != 0) j++;
    return j;
}

/* How the inputs of n matrices are written: x[j] as matrix of[j] reads it; from[i]: which of them matrix i reads. */
static void inputs(const ek_gpu_vision *x, ek_cuda_tower_stage_args *a, const ek_clipped *const *w, int n, int *from)
{
    int place[EK_GPU_VISION_INPUTS];
    a->n_x = 0;
    for (int i = 0; i < n; i++) {
        const int first = input_of(w, i);
        if (first == i) {
            place[i] = a->n_x;
            memcpy(a->x_clip[a->n_x], w[i]->clip.in, sizeof w[i]->clip.in);
            a->x[a->n_x] = x->x[a->n_x];
            a->n_x++;
        }
        from[i] = place[first];
    }
}

static ek_cuda_tower_stage_args stage(const ek_gpu_vision *x)
{
    return (ek_cuda_tower_stage_args){
        .h = x->h, .ld = x->v->width, .eps = x->v->eps, .n = x->v->width, .across = x->across};
}

/* What a block of a layer left in y, into h. */
static void set_sum(const ek_gpu_vision *x, ek_cuda_tower_stage_args *a, const ek_clipped *by, CUdeviceptr norm)
{
    a->y = x->y, a->y_norm = norm;
    memcpy(a->y_clip, by->clip.out, sizeof by->clip.out);
}

/* ------------------------------------------------------------------ parts of the tower */

/* Norms of the first layer's input are its own launch's (first); those of the others end the layer before. */
static void heads_inputs(ek_gpu_vision *x, int layer, ek_cuda_tower_stage_args *a, int *from)
{
    const ek_vision_layer *w = &x->v->layer[layer];
    const ek_clipped *const m[] = {&w->q, &w->k, &w->v};
    a->x_norm = x->layer[layer].input_norm;
    inputs(x, a, m, 3, from);
}

void ek_gpu_vision_embed(ek_gpu_vision *x)
{
    const int side = x->v->patching.side, floats = 3 * side * side;
    const ek_cuda_patch_args patch = {
        .x = x->x[0], .rgb = x->rgb, .value = x->value, .ldx = floats, .side = side, .across = x->across};
    int from[EK_GPU_VISION_INPUTS];
    ek_gpu_launch(x->g, "ek_tower_patch", (ek_cuda_grid){.x = over(floats, 256), .y = (unsigned)x->n, .threads = 256},
                  &patch);
    multiply(x, &x->input, x->n, x->x[0], x->h);
    ek_cuda_tower_stage_args a = stage(x);
    a.column = x->column, a.line = x->line;
    heads_inputs(x, 0, &a, from);
    ek_gpu_launch(x->g, "ek_tower_stage", rows_grid(x, x->n), &a);
}

static void heads(ek_gpu_vision *x, int layer)
{
    const ek_vision *v = x->v;
    const ek_vision_layer *w = &v->layer[layer];
    const ek_gpu_vision_layer *l = &x->layer[layer];
    ek_cuda_tower_stage_args unused = {0};
    int from[EK_GPU_VISION_INPUTS];
    heads_inputs(x, layer, &unused, from);
    multiply(x, &l->q, x->n, x->x[from[0]], x->q);
    multiply(x, &l->k, x->n, x->x[from[1]], x->k);
    multiply(x, &l->v, x->n, x->x[from[2]], x->val);
    ek_cuda_tower_heads_args a = {.q = x->q,
                                  .k = x->k,
                                  .v = x->val,
                                  .q_norm = l->q_norm,
                                  .k_norm = l->k_norm,
                                  .cos = x->cos,
                                  .sin = x->sin,
                                  .ldq = l->q.l.n,
                                  .ldk = l->k.l.n,
                                  .ldv = l->v.l.n,
                                  .eps = v->eps,
                                  .heads = v->heads,
                                  .kv_heads = v->kv_heads,
                                  .dim = v->head_dim,
                                  .across = x->across};
    const ek_clipped *const m[] = {&w->q, &w->k, &w->v};
    for (int i = 0; i < 3; i++) memcpy(a.clip[i], m[i]->clip.out, sizeof a.clip[i]);
    ek_gpu_launch(x->g, "ek_tower_heads",
                  (ek_cuda_grid){.x = (unsigned)x->n, .threads = EK_CUDA_TOWER_HEADS_THREADS, .overlap = true}, &a);
}

static void attend(ek_gpu_vision *x, int layer)
{
    const ek_vision *v = x->v;
    const ek_gpu_vision_layer *l = &x->layer[layer];
    const ek_cuda_product p = ek_cuda_tensors_plan(v->heads, x->n, x->n, v->head_dim, multiprocessors(x));
    ek_cuda_tensors_args a = {.q = x->q,
                              .k = x->k,
                              .v = x->val,
                              .o = x->o,
                              .ldq = l->q.l.n,
                              .ldk = l->k.l.n,
                              .ldv = l->v.l.n,
                              .ldo = l->q.l.n,
                              .stack = x->stack,
                              .heads = v->heads,
                              .kv_heads = v->kv_heads,
                              .rows = x->n,
                              .keys = x->n,
                              .dim = v->head_dim,
                              .levels = p.levels};
    memcpy(a.clip, v->layer[layer].o.clip.in, sizeof a.clip);
    ek_gpu_launch(x->g, p.name, p.grid, &a);
}

void ek_gpu_vision_layer_of(ek_gpu_vision *x, int layer)
{
    const ek_vision *v = x->v;
    const ek_vision_layer *w = &v->layer[layer];
    const ek_gpu_vision_layer *l = &x->layer[layer];
    const ek_clipped *const m[] = {&w->gate, &w->up};
    int from[EK_GPU_VISION_INPUTS];
    heads(x, layer);
    attend(x, layer);
    multiply(x, &l->o, x->n, x->o, x->y);
    ek_cuda_tower_stage_args mixed = stage(x);
    set_sum(x, &mixed, &w->o, l->post_attention_norm);
    mixed.x_norm = l->pre_mlp_norm;
    inputs(x, &mixed, m, 2, from);
    ek_gpu_launch(x->g, "ek_tower_stage", rows_grid(x, x->n), &mixed);
    multiply(x, &l->gate, x->n, x->x[from[0]], x->gate);
    multiply(x, &l->up, x->n, x->x[from[1]], x->up);
    ek_cuda_tower_gate_args gate = {.y = x->gate, .g = x->gate, .u = x->up, .ld = v->inner, .n = v->inner};
    memcpy(gate.g_clip, w->gate.clip.out, sizeof gate.g_clip);
    memcpy(gate.u_clip, w->up.clip.out, sizeof gate.u_clip);
    memcpy(gate.y_clip, w->down.clip.in, sizeof gate.y_clip);
    ek_gpu_launch(x->g, "ek_tower_gate",
                  (ek_cuda_grid){.x = over(v->inner, 1024), .y = (unsigned)x->n, .threads = 256, .overlap = true},
                  &gate);
    multiply(x, &l->down, x->n, x->gate, x->y);
    ek_cuda_tower_stage_args done = stage(x);
    set_sum(x, &done, &w->down, l->post_mlp_norm);
    if (layer + 1 < v->n_layers) heads_inputs(x, layer + 1, &done, from);
    ek_gpu_launch(x->g, "ek_tower_stage", rows_grid(x, x->n), &done);
}

void ek_gpu_vision_tokens(ek_gpu_vision *x)
{
    const ek_vision *v = x->v;
    const int pool = v->patching.pool;
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
    ek_gpu_launch(x->g, "ek_tower_pool", rows_grid(x, x->tokens), &a);
    multiply(x, &x->projection, x->tokens, x->pooled, x->rows);
}
