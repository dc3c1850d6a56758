/* Computes model/tower/tower_audio_layer.c's row by row steps for all rows of a clip. One kernel stands between two
 * products: it adds a block's output and makes the next block's input. */
#include <math.h>
#include <string.h>

#include "gpu/tower/state.h"
#include "gpu/weights/weights.h"

static const ek_audio_config *config(const ek_gpu_conformer *x)
{
    return &x->a->c;
}

/* The bounds of a matrix' output, and those of the normed row. */
static void set_limited(const ek_gpu_conformer *x, float to[2], const float clip[2])
{
    const float limit = config(x)->limit;
    for (int i = 0; i < 2; i++) to[i] = clip[i] < -limit ? -limit : clip[i] > limit ? limit : clip[i];
}

static void rows_kernel(ek_gpu_conformer *x, const char *name, const void *args)
{
    ek_gpu_launch(x->t.g, name, ek_gpu_tower_row_grid(x->n, config(x)->hidden), args);
}

/* ------------------------------------------------------------------ four frames become a row */

/* The windows of map `from`, of rows x cols; their product; and norms over channels: map[i]. */
static void convolve(ek_gpu_conformer *x, int i, CUdeviceptr from, int rows, int cols, int rows_out)
{
    const ek_audio_config *c = config(x);
    const int channels = i ? c->channels[0] : 1, n = c->channels[i], out = rows_out * (cols / 2);
    const ek_cuda_tower_windows_args windows = {
        .y = x->window[i], .x = from, .rows = rows, .cols = cols, .channels = channels};
    const ek_cuda_tower_norms_args norms = {.x = x->map[i],
                                            .y = x->map[i],
                                            .w = {x->conv_norm[i]},
                                            .ldx = n,
                                            .ldy = n,
                                            .ln_eps = c->eps,
                                            .clip = {0, INFINITY},
                                            .n = n,
                                            .layer_norms = 1};
    ek_gpu_launch(x->t.g, "ek_tower_windows",
                  (ek_cuda_grid){.x = ek_gpu_over(cols / 2 * 9 * channels, 256 * EK_CUDA_TOWER_EACH),
                                 .y = (unsigned)rows_out,
                                 .threads = 256,
                                 .overlap = true},
                  &windows);
    ek_gpu_tower_product(&x->t, &x->conv[i], out, x->window[i], 9 * channels, x->map[i], n);
    ek_gpu_launch(x->t.g, "ek_tower_norms", ek_gpu_tower_row_grid(out, n), &norms);
}

/* ------------------------------------------------------------------ between products */

static ek_cuda_tower_stage_args stage(const ek_gpu_conformer *x)
{
    const ek_audio_config *c = config(x);
    return (ek_cuda_tower_stage_args){
        .h = x->h, .ld = c->hidden, .limit = c->limit, .factor = 1, .eps = EK_AUDIO_NORM_EPS, .n = c->hidden};
}

/* Adds a block's output in y, from matrix `by`, to h. */
static void set_sum(const ek_gpu_conformer *x, ek_cuda_tower_stage_args *a, const ek_clipped *by, CUdeviceptr norm)
{
    a->y = x->y, a->y_norm = norm;
    set_limited(x, a->y_clip, by->clip.out);
}

static void stage_for(const ek_gpu_conformer *x, ek_cuda_tower_stage_args *a, const ek_gpu_group *m, CUdeviceptr norm)
{
    ek_gpu_tower_stage_for(a, m, x->x, norm, EK_AUDIO_NORM_EPS);
}

static void gate(ek_gpu_conformer *x, ek_cuda_tower_gate_args *a, int n)
{
    a->sigmoid = true, a->n = n;
    ek_gpu_launch(x->t.g, "ek_tower_gate", ek_gpu_tower_gate_grid(x->n, n), a);
}

/* ------------------------------------------------------------------ a layer */

/* From the input of up to the output of down, which is in y. */
static void feed_forward(ek_gpu_conformer *x, const ek_gpu_ffw *f, const ek_audio_ffw *w)
{
    const int wide = f->up.width;
    ek_gpu_tower_products(&x->t, &f->up, x->n, x->x, x->wide);
    ek_cuda_tower_gate_args a = {.y = x->wide, .g = x->wide, .u = x->wide, .ldy = wide, .ld = wide};
    memcpy(a.g_clip, w->up.clip.out, sizeof a.g_clip), memcpy(a.u_clip, w->up.clip.out, sizeof a.u_clip);
    memcpy(a.y_clip, w->down.clip.in, sizeof a.y_clip);
    gate(x, &a, wide);
    ek_gpu_tower_product(&x->t, &f->down, x->n, x->wide, wide, x->y, config(x)->hidden);
}

static void attend(ek_gpu_conformer *x, const ek_gpu_conformer_layer *l, const ek_audio_layer *w)
{
    const ek_audio_config *c = config(x);
    const ek_gpu_group *m = &l->heads;
    ek_gpu_tower_products(&x->t, m, x->n, x->x, x->heads);
    ek_cuda_near_args a = {.o = x->o,
                           .q = x->heads,
                           .k = x->heads + sizeof(float) * (size_t)m->at[1],
                           .v = x->heads + sizeof(float) * (size_t)m->at[2],
                           .rel = l->rel_row,
                           .q_scale = l->q_scale,
                           .ldo = c->hidden,
                           .ld = m->width,
                           .k_scale = EK_AUDIO_K_SCALE,
                           .cap = c->cap,
                           .heads = c->n_heads,
                           .dim = c->hidden / c->n_heads,
                           .span = c->span,
                           .rows = x->n};
    memcpy(a.q_clip, w->q.clip.out, sizeof a.q_clip), memcpy(a.k_clip, w->k.clip.out, sizeof a.k_clip);
    memcpy(a.v_clip, w->v.clip.out, sizeof a.v_clip), memcpy(a.o_clip, w->post.clip.in, sizeof a.o_clip);
    ek_gpu_launch(x->t.g, "ek_attn_near",
                  (ek_cuda_grid){.x = ek_gpu_over(x->n, EK_CUDA_NEAR_QUERIES),
                                 .y = (unsigned)c->n_heads,
                                 .threads = EK_CUDA_NEAR_QUERIES * 16,
                                 .shared = EK_CUDA_NEAR_SHARED(c->span),
                                 .overlap = true},
                  &a);
    ek_gpu_tower_product(&x->t, &l->post, x->n, x->o, c->hidden, x->y, c->hidden);
}

static void light_conv(ek_gpu_conformer *x, const ek_gpu_conformer_layer *l, const ek_audio_layer *w)
{
    const ek_audio_config *c = config(x);
    const int h = c->hidden;
    ek_gpu_tower_products(&x->t, &l->start, x->n, x->x, x->wide);
    ek_cuda_tower_gate_args glu = {.y = x->gate,
                                   .g = x->wide + sizeof(float) * (size_t)h,
                                   .u = x->wide,
                                   .ldy = h,
                                   .ld = l->start.width,
                                   .y_clip = {-INFINITY, INFINITY}};
    memcpy(glu.g_clip, w->start.clip.out, sizeof glu.g_clip), memcpy(glu.u_clip, w->start.clip.out, sizeof glu.u_clip);
    gate(x, &glu, h);
    ek_cuda_tower_taps_args taps = {.y = x->o,
                                    .x = x->gate,
                                    .tap = l->tap,
                                    .norm = l->conv_norm,
                                    .ld = h,
                                    .limit = c->limit,
                                    .eps = c->eps,
                                    .n = h,
                                    .taps = c->taps};
    memcpy(taps.clip, w->end.clip.in, sizeof taps.clip);
    rows_kernel(x, "ek_tower_taps", &taps);
    ek_gpu_tower_product(&x->t, &l->end, x->n, x->o, h, x->y, h);
}

void ek_gpu_conformer_layer_of(ek_gpu_conformer *x, int layer)
{
    const ek_audio_layer *w = &x->a->layer[layer];
    const ek_gpu_conformer_layer *l = &x->layer[layer];
    ek_cuda_tower_stage_args a;
    feed_forward(x, &l->ffw[0], &w->ffw[0]);
    a = stage(x);
    set_sum(x, &a, &w->ffw[0].down, l->ffw[0].post);
    a.factor = config(x)->residual;
    stage_for(x, &a, &l->heads, l->pre_attn);
    rows_kernel(x, "ek_tower_stage", &a);

    attend(x, l, w);
    a = stage(x);
    set_sum(x, &a, &w->post, l->post_attn);
    stage_for(x, &a, &l->start, l->conv_pre);
    a.limit = INFINITY, a.x_eps = config(x)->eps;
    rows_kernel(x, "ek_tower_stage", &a);

    light_conv(x, l, w);
    a = stage(x);
    set_sum(x, &a, &w->end, 0);
    memcpy(a.y_clip, w->end.clip.out, sizeof a.y_clip); /* there is no norm and no limit */
    stage_for(x, &a, &l->ffw[1].up, l->ffw[1].pre);
    rows_kernel(x, "ek_tower_stage", &a);

    feed_forward(x, &l->ffw[1], &w->ffw[1]);
    a = stage(x);
    set_sum(x, &a, &w->ffw[1].down, l->ffw[1].post);
    a.factor = config(x)->residual, a.h_norm = l->out;
    if (layer + 1 < config(x)->n_layers) stage_for(x, &a, &l[1].ffw[0].up, l[1].ffw[0].pre);
    rows_kernel(x, "ek_tower_stage", &a);
}

void ek_gpu_conformer_begin(ek_gpu_conformer *x)
{
    const ek_audio_config *c = config(x);
    ek_cuda_tower_stage_args a = stage(x);
    convolve(x, 0, x->mel, x->frames, c->bins, x->half);
    convolve(x, 1, x->map[0], x->half, c->bins / 2, x->n);
    ek_gpu_tower_product(&x->t, &x->input, x->n, x->map[1], x->input.l.k, x->h, c->hidden);
    stage_for(x, &a, &x->layer[0].ffw[0].up, x->layer[0].ffw[0].pre);
    rows_kernel(x, "ek_tower_stage", &a);
}

void ek_gpu_conformer_tokens(ek_gpu_conformer *x)
{
    const ek_audio_config *c = config(x);
    const ek_cuda_tower_norms_args norms = {.x = x->last,
                                            .y = x->last,
                                            .bias = x->bias,
                                            .ldx = c->output,
                                            .ldy = c->output,
                                            .eps = c->eps,
                                            .clip = {-INFINITY, INFINITY},
                                            .n = c->output,
                                            .rms = true};
    ek_gpu_tower_product(&x->t, &x->output, x->n, x->h, c->hidden, x->last, c->output);
    ek_gpu_launch(x->t.g, "ek_tower_norms", ek_gpu_tower_row_grid(x->n, c->output), &norms);
    ek_gpu_tower_product(&x->t, &x->embed, x->n, x->last, c->output, x->t.rows, x->t.part->hidden);
}
