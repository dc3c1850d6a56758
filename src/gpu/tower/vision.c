#include "gpu/tower/vision.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "cuda/tower/tensors.h"
#include "cuda/tower_args.h"
#include "gpu/tower/vision_run.h"
#include "gpu/weights/launch.h"
#include "ops/linear/linear_layout.h"

enum { ALIGN = 256 };

/* Visits everything twice: first it counts, then (base is set) it copies. */
typedef struct visit {
    ek_gpu_vision *x;
    CUdeviceptr base;
    size_t at;
    ek_err err;
} visit;

static CUdeviceptr take(visit *u, size_t bytes)
{
    const CUdeviceptr p = u->base + u->at;
    u->at += (bytes + ALIGN - 1) / ALIGN * ALIGN;
    return p;
}

static void note(visit *u, ek_err err)
{
    if (!u->err) u->err = err;
}

/* ------------------------------------------------------------------ weights */

static void matrix(visit *u, ek_gpu_matrix *to, const ek_linear *from)
{
    note(u, ek_cuda_linear_plan(&to->l, from));
    to->at = take(u, to->l.bytes);
    for (int p = 0, n; u->base && !u->err && p < from->n_panels; p += n) {
        n = ek_linear_adjacent(from, p);
        note(u, ek_cuda_upload(u->x->g->c, to->at + (size_t)p * from->panel_bytes, ek_linear_panel(from, p),
                               (size_t)n * from->panel_bytes));
    }
}

static void vector(visit *u, CUdeviceptr *to, const float *from, int n)
{
    if (!from) return;
    *to = take(u, sizeof *from * (size_t)n);
    if (u->base) note(u, ek_cuda_upload(u->x->g->c, *to, from, sizeof *from * (size_t)n));
}

static void weights(visit *u)
{
    ek_gpu_vision *x = u->x;
    const ek_vision *v = x->v;
    matrix(u, &x->input, &v->input), matrix(u, &x->projection, &v->projection);
    vector(u, &x->std_bias, v->std_bias, v->width), vector(u, &x->std_scale, v->std_scale, v->width);
    for (int i = 0; i < v->n_layers; i++) {
        const ek_vision_layer *from = &v->layer[i];
        ek_gpu_vision_layer *to = &x->layer[i];
        matrix(u, &to->q, &from->q.w), matrix(u, &to->k, &from->k.w), matrix(u, &to->v, &from->v.w);
        matrix(u, &to->o, &from->o.w), matrix(u, &to->gate, &from->gate.w), matrix(u, &to->up, &from->up.w);
        matrix(u, &to->down, &from->down.w);
        vector(u, &to->input_norm, from->input_norm, v->width);
        vector(u, &to->q_norm, from->q_norm, v->head_dim), vector(u, &to->k_norm, from->k_norm, v->head_dim);
        vector(u, &to->post_attention_norm, from->post_attention_norm, v->width);
        vector(u, &to->pre_mlp_norm, from->pre_mlp_norm, v->width);
        vector(u, &to->post_mlp_norm, from->post_mlp_norm, v->width);
    }
}

static bool floats(const ek_linear *w)
{
    return !ek_wform_is_q(w->form);
}

ek_err ek_gpu_vision_check(const ek_vision *v)
{
    bool all = floats(&v->input) && floats(&v->projection);
    for (int i = 0; i < v->n_layers; i++) {
        const ek_vision_layer *l = &v->layer[i];
        all &= floats(&l->q.w) && floats(&l->k.w) && floats(&l->v.w) && floats(&l->o.w) && floats(&l->gate.w) &&
               floats(&l->up.w) && floats(&l->down.w);
    }
    if (!all)
        return ek_fail(EK_EUNSUPPORTED, "a vision tower with quantised weights; there are no CUDA kernels for it");
    if (v->head_dim > EK_CUDA_TENSORS_MAX_DIM)
        return ek_fail(EK_EUNSUPPORTED, "a vision tower's head_dim of %d; the CUDA kernels take up to %d", v->head_dim,
                       EK_CUDA_TENSORS_MAX_DIM);
    if (v->width > EK_CUDA_TOWER_WIDTH)
        return ek_fail(EK_EUNSUPPORTED, "a vision tower's hidden_size of %d; the CUDA kernels take up to %d", v->width,
                       EK_CUDA_TOWER_WIDTH);
    return EK_OK;
}

static ek_err upload(ek_gpu_vision *x)
{
    visit u = {.x = x};
    EK_TRY(ek_cuda_enter(x->g->c));
    weights(&u);
    EK_TRY(u.err);
    EK_TRY(ek_cuda_alloc(x->g->c, &x->block, u.at, "the vision tower's weights"));
    ek_log(EK_LOG_DEBUG, "weights of the vision tower: %.2f GB of the device's memory", (double)u.at / 1e9);
    u.base = x->block, u.at = 0;
    weights(&u);
    note(&u, ek_cuda_sync(x->g->c));
    return u.err;
}

ek_err ek_gpu_vision_open(ek_gpu_vision **out, ek_gpu *g, const ek_vision *v)
{
    EK_TRY(ek_gpu_vision_check(v));
    ek_gpu_vision *x = ek_alloc(sizeof *x);
    x->g = g, x->v = v;
    x->layer = ek_alloc(sizeof *x->layer * (size_t)v->n_layers);
    const ek_err err = upload(x);
    if (err) ek_gpu_vision_close(x);
    else *out = x;
    return err;
}

void ek_gpu_vision_close(ek_gpu_vision *x)
{
    if (!x) return;
    ek_gpu_vision_drop(x);
    if (ek_cuda_enter(x->g->c) == EK_OK) ek_cuda_free(x->g->c, x->block);
    free(x->layer);
    free(x);
}

/* ------------------------------------------------------------------ a picture */

/* Scratch memory, and what the host writes there: tables for each column and line. */
static void lay_out(ek_gpu_vision *x, visit *u, size_t *host)
{
    const ek_vision *v = x->v;
    const size_t f = sizeof(float), n = (size_t)x->n, w = (size_t)v->width, pixels = ek_image_bytes(&x->picture->image);
    const size_t q = (size_t)(v->heads * v->head_dim), kv = (size_t)(v->kv_heads * v->head_dim);
    const size_t each = (size_t)v->head_dim / 4, grid = (size_t)(x->across > x->down ? x->across : x->down);
    x->value = take(u, 256 * f);
    x->column = take(u, (size_t)x->across * w * f), x->line = take(u, (size_t)x->down * w * f);
    x->cos = take(u, grid * each * f), x->sin = take(u, grid * each * f);
    *host = u->at;
    x->rgb = take(u, pixels);
    x->h = take(u, n * w * f), x->y = take(u, n * w * f);
    x->q = take(u, n * q * f), x->k = take(u, n * kv * f), x->val = take(u, n * kv * f), x->o = take(u, n * q * f);
    x->gate = take(u, n * (size_t)v->inner * f), x->up = take(u, n * (size_t)v->inner * f);
    for (int i = 0; i < EK_GPU_VISION_INPUTS; i++)
        x->x[i] = take(u, n * f * (i == 0 && (size_t)v->input.k > w ? (size_t)v->input.k : w));
    x->pooled = take(u, (size_t)x->tokens * w * f);
    x->rows = take(u, (size_t)x->tokens * (size_t)v->part.hidden * f);
    x->stack = take(u, ek_gpu_vision_stack(x));
}

static float *host_at(const ek_gpu_vision *x, CUdeviceptr p)
{
    return (float *)(void *)(x->host + (p - x->scratch));
}

static void write_tables(ek_gpu_vision *x)
{
    const ek_vision *v = x->v;
    const int each = v->head_dim / 4, grid = x->across > x->down ? x->across : x->down;
    ek_patch_values(host_at(x, x->value), EK_PATCH_TOWER);
    for (int i = 0; i < x->across; i++)
        ek_embedding_row(&v->positions, i, 0, v->width, host_at(x, x->column) + (size_t)i * (size_t)v->width);
    for (int i = 0; i < x->down; i++)
        ek_embedding_row(&v->positions, v->n_positions + i, 0, v->width,
                         host_at(x, x->line) + (size_t)i * (size_t)v->width);
    for (int i = 0; i < grid; i++)
        ek_rope_row(host_at(x, x->cos) + i * each, host_at(x, x->sin) + i * each, v->freq, each, i);
}

static ek_err begin(ek_gpu_vision *x)
{
    const ek_image *image = &x->picture->image;
    visit u = {.x = x};
    size_t host;
    EK_TRY(ek_cuda_enter(x->g->c));
    lay_out(x, &u, &host);
    EK_TRY(ek_cuda_alloc(x->g->c, &x->scratch, u.at, "a picture"));
    u.base = x->scratch, u.at = 0;
    lay_out(x, &u, &host);
    x->host = ek_alloc(host);
    write_tables(x);
    EK_TRY(ek_cuda_upload(x->g->c, x->scratch, x->host, host));
    return ek_cuda_upload(x->g->c, x->rgb, image->rgb, ek_image_bytes(image));
}

ek_err ek_gpu_vision_begin(ek_gpu_vision *x, const ek_picture *picture, float *rows)
{
    const ek_vision *v = x->v;
    ek_tower_cost cost;
    EK_ASSERT(!x->picture);
    EK_TRY(ek_vision_cost(&cost, &v->part, &picture->fit));
    x->picture = picture, x->to = rows, x->next = -1;
    x->across = picture->fit.width / v->patching.side, x->down = picture->fit.height / v->patching.side;
    x->n = x->across * x->down, x->tokens = picture->fit.tokens;
    const ek_err err = begin(x);
    if (err) ek_gpu_vision_drop(x);
    return err;
}

/* Multiply-adds of a layer. */
static double layer_macs(const ek_gpu_vision *x)
{
    const ek_vision *v = x->v;
    const double q = (double)v->heads * v->head_dim, kv = (double)v->kv_heads * v->head_dim, width = v->width;
    return x->n * (width * (2 * q + 2 * kv + 3.0 * v->inner) + 2.0 * x->n * q);
}

static ek_err advance(ek_gpu_vision *x, double macs, bool *done)
{
    ek_gpu *g = x->g;
    const double each = layer_macs(x);
    g->err = EK_OK;
    EK_TRY(ek_cuda_enter(g->c));
    if (x->next < 0) ek_gpu_vision_embed(x), x->next = 0;
    do {
        ek_gpu_vision_layer_of(x, x->next++);
        macs -= each;
    } while (x->next < x->v->n_layers && macs > 0);
    *done = x->next == x->v->n_layers;
    if (*done) {
        ek_gpu_vision_tokens(x);
        ek_gpu_note(
            g, ek_cuda_download(g->c, x->to, x->rows, sizeof(float) * (size_t)x->tokens * (size_t)x->v->part.hidden));
    }
    ek_gpu_note(g, ek_cuda_sync(g->c));
    return g->err;
}

ek_err ek_gpu_vision_advance(ek_gpu_vision *x, double macs, bool *done)
{
    const ek_err err = advance(x, macs, done);
    if (err || *done) ek_gpu_vision_drop(x);
    return err;
}

void ek_gpu_vision_drop(ek_gpu_vision *x)
{
    if (!x->picture) return;
    if (ek_cuda_enter(x->g->c) == EK_OK) {
        ek_cuda_sync(x->g->c); /* of copies from the host's memory */
        ek_cuda_free(x->g->c, x->scratch);
    }
    free(x->host);
    x->picture = NULL, x->host = NULL, x->scratch = 0;
}
