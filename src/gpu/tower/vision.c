/* The vision tower on a device (model/tower/tower_vision.h): weights, and the memory of a picture. */
#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "cuda/tower/tensors.h"
#include "gpu/tower/state.h"
#include "gpu/weights/weights.h"

static ek_gpu_vision *of(ek_gpu_tower *t)
{
    return (ek_gpu_vision *)t;
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
    ek_gpu_vision *x = of(t);
    x->v = ek_vision_of(t->part);
    x->layer = ek_alloc(sizeof *x->layer * (size_t)x->v->n_layers);
}

static void close_vision(ek_gpu_tower *t)
{
    free(of(t)->layer);
}

static void weights(ek_gpu_tower *t)
{
    ek_gpu_vision *x = of(t);
    const ek_vision *v = x->v;
    ek_gpu_tower_matrix(t, &x->input, &v->input), ek_gpu_tower_matrix(t, &x->projection, &v->projection);
    ek_gpu_tower_vector(t, &x->std_bias, v->std_bias, v->width);
    ek_gpu_tower_vector(t, &x->std_scale, v->std_scale, v->width);
    for (int i = 0; i < v->n_layers; i++) {
        const ek_vision_layer *from = &v->layer[i];
        ek_gpu_vision_layer *to = &x->layer[i];
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
    ek_gpu_vision *x = of(t);
    const ek_image_fit *fit = &t->media->picture.fit;
    ek_tower_cost cost;
    EK_TRY(ek_vision_cost(&cost, t->part, fit));
    x->across = fit->width / x->v->patching.side, x->down = fit->height / x->v->patching.side;
    x->n = x->across * x->down;
    t->tokens = fit->tokens, t->steps = x->v->n_layers;
    return EK_OK;
}

static void need(ek_gpu_vision *x)
{
    ek_gpu_tower *t = &x->t;
    const size_t attention = ek_gpu_vision_attention(x).stack;
    ek_gpu_tower_need(t, &x->input, x->n), ek_gpu_tower_need(t, &x->projection, t->tokens);
    for (int i = 0; i < x->v->n_layers; i++) {
        const ek_gpu_vision_layer *l = &x->layer[i];
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
static size_t gates_bytes(const ek_gpu_vision *x)
{
    const ek_vision *v = x->v;
    const size_t gates = sizeof(float) * (size_t)x->n * (size_t)x->layer[0].gates.width,
                 codes = ek_cuda_tensors_codes_bytes(v->heads, v->kv_heads, x->n, v->head_dim);
    return ek_vision_in_integers(v, x->n) && codes > gates ? codes : gates;
}

static void lay_out(ek_gpu_tower *t)
{
    ek_gpu_vision *x = of(t);
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

static float *host_at(const ek_gpu_vision *x, CUdeviceptr p)
{
    return (float *)(void *)(x->t.host + (p - x->t.scratch));
}

static void write_tables(ek_gpu_tower *t)
{
    ek_gpu_vision *x = of(t);
    const ek_image *image = &t->media->picture.image;
    const ek_vision *v = x->v;
    const int each = v->head_dim / 4, grid = larger(x->across, x->down);
    ek_patch_values(host_at(x, x->value), EK_PATCH_TOWER);
    for (int i = 0; i < x->across; i++)
        ek_embedding_row(&v->positions, i, 0, v->width, host_at(x, x->column) + (size_t)i * (size_t)v->width);
    for (int i = 0; i < x->down; i++)
        ek_embedding_row(&v->positions, v->n_positions + i, 0, v->width,
                         host_at(x, x->line) + (size_t)i * (size_t)v->width);
    for (int i = 0; i < grid; i++)
        ek_rope_row(host_at(x, x->cos) + i * each, host_at(x, x->sin) + i * each, v->freq, each, i);
    ek_gpu_note(t->g, ek_cuda_upload(t->g->c, x->rgb, image->rgb, ek_image_bytes(image)));
}

static double macs(const ek_gpu_tower *t, int step)
{
    const ek_gpu_vision *x = (const ek_gpu_vision *)t;
    const ek_vision *v = x->v;
    const double q = (double)v->heads * v->head_dim, kv = (double)v->kv_heads * v->head_dim, width = v->width;
    (void)step;
    return x->n * (width * (2 * q + 2 * kv + 3.0 * v->inner) + 2.0 * x->n * q);
}

static void step(ek_gpu_tower *t, int layer)
{
    if (layer == 0) ek_gpu_vision_embed(of(t));
    ek_gpu_vision_layer_of(of(t), layer);
    if (layer + 1 == of(t)->v->n_layers) ek_gpu_vision_tokens(of(t));
}

const ek_gpu_tower_ops ek_gpu_vision_ops = {.takes = takes,
                                            .check = check,
                                            .bytes = sizeof(ek_gpu_vision),
                                            .open = open_vision,
                                            .close = close_vision,
                                            .weights = weights,
                                            .measure = measure,
                                            .lay_out = lay_out,
                                            .write = write_tables,
                                            .macs = macs,
                                            .step = step};
