/* The audio tower on a device (model/tower/tower_audio_state.h): weights, the memory of a clip, and the row by row
 * steps of model/tower/tower_audio_layer.c for all rows. One kernel stands between two products: it adds a block's
 * output and makes the next block's input. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "gpu/tower/state.h"
#include "gpu/weights/weights.h"

typedef struct conformer_ffw {
    ek_gpu_group up;
    ek_gpu_matrix down;
    CUdeviceptr pre, post;
} conformer_ffw;

typedef struct conformer_layer {
    conformer_ffw ffw[2];
    ek_gpu_group heads, start; /* q, k, v; of the convolution */
    ek_gpu_matrix post, end;
    CUdeviceptr pre_attn, post_attn, out, conv_pre, conv_norm, tap, q_scale, rel_row;
} conformer_layer;

typedef struct conformer {
    ek_gpu_tower t;
    const ek_audio *a;
    ek_gpu_matrix conv[2], input, output, embed;
    CUdeviceptr conv_norm[2], bias;
    conformer_layer *layer;
    /* For the clip: n rows, one per token. */
    int frames, half, n;                            /* half: rows after the first convolution */
    CUdeviceptr mel, window[2], map[2];             /* [frames][bins]; inputs and outputs of the convolutions */
    CUdeviceptr h, y, heads, o, wide;               /* rows; wide: four times as wide */
    CUdeviceptr gate, last, x[EK_GPU_TOWER_INPUTS]; /* last: [n][output] */
} conformer;

static conformer *of(ek_gpu_tower *t)
{
    return (conformer *)t;
}

/* ------------------------------------------------------------------ weights */

static bool takes(const ek_tower_part *p)
{
    return ek_audio_of(p) != NULL;
}

static int larger(int a, int b)
{
    return a > b ? a : b;
}

static ek_err check(const ek_tower_part *p, const ek_cuda_chip *chip)
{
    (void)chip;
    const ek_audio_config *c = &ek_audio_of(p)->c;
    const int wide = larger(larger(c->hidden, c->output), larger(c->channels[0], c->channels[1]));
    if (wide > EK_CUDA_TOWER_WIDTH)
        return ek_fail(EK_EUNSUPPORTED, "an audio tower with rows of %d; the CUDA kernels take up to %d", wide,
                       EK_CUDA_TOWER_WIDTH);
    if (c->hidden / c->n_heads > EK_CUDA_NEAR_MAX_DIM)
        return ek_fail(EK_EUNSUPPORTED, "an audio tower's heads of %d; the CUDA kernels take up to %d",
                       c->hidden / c->n_heads, EK_CUDA_NEAR_MAX_DIM);
    return EK_OK;
}

static void open_conformer(ek_gpu_tower *t)
{
    conformer *x = of(t);
    x->a = ek_audio_of(t->part);
    x->layer = ek_alloc(sizeof *x->layer * (size_t)x->a->c.n_layers);
}

static void close_conformer(ek_gpu_tower *t)
{
    free(of(t)->layer);
}

static void one(ek_gpu_tower *t, ek_gpu_group *to, const ek_clipped *from)
{
    ek_gpu_tower_group(t, to, &from, 1);
}

static void layer_weights(ek_gpu_tower *t, conformer_layer *to, const ek_audio_layer *from, const ek_audio_config *c)
{
    const ek_clipped *const heads[] = {&from->q, &from->k, &from->v};
    const int h = c->hidden;
    const struct {
        CUdeviceptr *to;
        const float *from;
        int n;
    } v[] = {{&to->pre_attn, from->pre_attn, h}, {&to->post_attn, from->post_attn, h},
             {&to->out, from->out, h},           {&to->conv_pre, from->conv_pre, h},
             {&to->q_scale, from->q_scale, h},   {&to->conv_norm, from->conv_norm, h},
             {&to->tap, from->tap, c->taps * h}, {&to->rel_row, from->rel_row, c->span * h}};
    for (int i = 0; i < 2; i++) {
        one(t, &to->ffw[i].up, &from->ffw[i].up), ek_gpu_tower_matrix(t, &to->ffw[i].down, &from->ffw[i].down.w);
        ek_gpu_tower_vector(t, &to->ffw[i].pre, from->ffw[i].pre, h);
        ek_gpu_tower_vector(t, &to->ffw[i].post, from->ffw[i].post, h);
    }
    ek_gpu_tower_group(t, &to->heads, heads, 3), one(t, &to->start, &from->start);
    ek_gpu_tower_matrix(t, &to->post, &from->post.w), ek_gpu_tower_matrix(t, &to->end, &from->end.w);
    for (size_t i = 0; i < sizeof v / sizeof *v; i++) ek_gpu_tower_vector(t, v[i].to, v[i].from, v[i].n);
}

static void weights(ek_gpu_tower *t)
{
    conformer *x = of(t);
    const ek_audio *a = x->a;
    for (int i = 0; i < 2; i++) {
        ek_gpu_tower_matrix(t, &x->conv[i], &a->conv[i]);
        ek_gpu_tower_vector(t, &x->conv_norm[i], a->conv_norm[i], a->c.channels[i]);
    }
    ek_gpu_tower_matrix(t, &x->input, &a->input);
    ek_gpu_tower_matrix(t, &x->output, &a->output), ek_gpu_tower_vector(t, &x->bias, a->bias, a->c.output);
    ek_gpu_tower_matrix(t, &x->embed, &a->embed);
    for (int i = 0; i < a->c.n_layers; i++) layer_weights(t, &x->layer[i], &a->layer[i], &a->c);
}

/* ------------------------------------------------------------------ a clip */

static ek_err measure(ek_gpu_tower *t)
{
    conformer *x = of(t);
    const int samples = t->media->sound.samples;
    EK_TRY(ek_sound_tokens(&t->tokens, samples, EK_SOUND_TOWER));
    x->frames = ek_mel_frames(samples), x->half = (x->frames + 1) / 2, x->n = t->tokens;
    t->steps = x->a->c.n_layers + 2;
    return EK_OK;
}

static void need(conformer *x)
{
    ek_gpu_tower *t = &x->t;
    const ek_audio_config *c = &x->a->c;
    ek_gpu_tower_need(t, &x->conv[0], x->half * (c->bins / 2));
    ek_gpu_tower_need(t, &x->conv[1], x->n * ek_audio_bands(c));
    ek_gpu_tower_need(t, &x->input, x->n), ek_gpu_tower_need(t, &x->output, x->n);
    ek_gpu_tower_need(t, &x->embed, x->n);
    for (int i = 0; i < c->n_layers; i++) {
        const conformer_layer *l = &x->layer[i];
        for (int f = 0; f < 2; f++)
            ek_gpu_tower_need_group(t, &l->ffw[f].up, x->n), ek_gpu_tower_need(t, &l->ffw[f].down, x->n);
        ek_gpu_tower_need_group(t, &l->heads, x->n), ek_gpu_tower_need_group(t, &l->start, x->n);
        ek_gpu_tower_need(t, &l->post, x->n), ek_gpu_tower_need(t, &l->end, x->n);
    }
}

static void lay_out(ek_gpu_tower *t)
{
    conformer *x = of(t);
    const ek_audio_config *c = &x->a->c;
    const int n = x->n, h = c->hidden;
    const int64_t near = (int64_t)x->half * (c->bins / 2), far = (int64_t)n * ek_audio_bands(c);
    x->mel = ek_gpu_tower_take_rows(t, x->frames, c->bins);
    t->host_bytes = t->at;
    x->window[0] = ek_gpu_tower_take_rows(t, near, 9), x->map[0] = ek_gpu_tower_take_rows(t, near, c->channels[0]);
    x->window[1] = ek_gpu_tower_take_rows(t, far, 9 * c->channels[0]);
    x->map[1] = ek_gpu_tower_take_rows(t, far, c->channels[1]);
    x->h = ek_gpu_tower_take_rows(t, n, h), x->y = ek_gpu_tower_take_rows(t, n, h);
    x->heads = ek_gpu_tower_take_rows(t, n, 3 * h), x->o = ek_gpu_tower_take_rows(t, n, h);
    x->wide = ek_gpu_tower_take_rows(t, n, 4 * h), x->gate = ek_gpu_tower_take_rows(t, n, h);
    x->last = ek_gpu_tower_take_rows(t, n, c->output);
    for (int i = 0; i < EK_GPU_TOWER_INPUTS; i++) x->x[i] = ek_gpu_tower_take_rows(t, n, h);
    need(x);
}

static void write_mel(ek_gpu_tower *t)
{
    ek_mel_rows((float *)(void *)t->host, &t->media->sound);
}

static const ek_audio_config *config(const conformer *x)
{
    return &x->a->c;
}

/* The bounds of a matrix' output, and those of the normed row. */
static void set_limited(const conformer *x, float to[2], const float clip[2])
{
    const float limit = config(x)->limit;
    for (int i = 0; i < 2; i++) to[i] = clip[i] < -limit ? -limit : clip[i] > limit ? limit : clip[i];
}

static void rows_kernel(conformer *x, const char *name, const void *args)
{
    ek_gpu_launch(x->t.g, name, ek_gpu_tower_row_grid(x->n, config(x)->hidden), args);
}

/* ------------------------------------------------------------------ four frames become a row */

/* The windows of map `from`, of rows x cols; their product; and norms over channels: map[i]. */
static void convolve(conformer *x, int i, CUdeviceptr from, int rows, int cols, int rows_out)
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

static ek_cuda_tower_stage_args stage(const conformer *x)
{
    const ek_audio_config *c = config(x);
    return (ek_cuda_tower_stage_args){
        .h = x->h, .ld = c->hidden, .limit = c->limit, .factor = 1, .eps = EK_AUDIO_NORM_EPS, .n = c->hidden};
}

/* Adds a block's output in y, from matrix `by`, to h. */
static void set_sum(const conformer *x, ek_cuda_tower_stage_args *a, const ek_clipped *by, CUdeviceptr norm)
{
    a->y = x->y, a->y_norm = norm;
    set_limited(x, a->y_clip, by->clip.out);
}

static void stage_for(const conformer *x, ek_cuda_tower_stage_args *a, const ek_gpu_group *m, CUdeviceptr norm)
{
    ek_gpu_tower_stage_for(a, m, x->x, norm, EK_AUDIO_NORM_EPS);
}

static void gate(conformer *x, ek_cuda_tower_gate_args *a, int n)
{
    a->sigmoid = true, a->n = n;
    ek_gpu_launch(x->t.g, "ek_tower_gate", ek_gpu_tower_gate_grid(x->n, n), a);
}

/* ------------------------------------------------------------------ a layer */

/* From the input of up to the output of down, which is in y. */
static void feed_forward(conformer *x, const conformer_ffw *f, const ek_audio_ffw *w)
{
    const int wide = f->up.width;
    ek_gpu_tower_products(&x->t, &f->up, x->n, x->x, x->wide);
    ek_cuda_tower_gate_args a = {.y = x->wide, .g = x->wide, .u = x->wide, .ldy = wide, .ld = wide};
    memcpy(a.g_clip, w->up.clip.out, sizeof a.g_clip), memcpy(a.u_clip, w->up.clip.out, sizeof a.u_clip);
    memcpy(a.y_clip, w->down.clip.in, sizeof a.y_clip);
    gate(x, &a, wide);
    ek_gpu_tower_product(&x->t, &f->down, x->n, x->wide, wide, x->y, config(x)->hidden);
}

static void attend(conformer *x, const conformer_layer *l, const ek_audio_layer *w)
{
    const ek_audio_config *c = config(x);
    const ek_gpu_group *m = &l->heads;
    ek_gpu_tower_products(&x->t, m, x->n, x->x, x->heads);
    ek_cuda_near_args a = {.o = x->o,
                           .q = x->heads,
                           .k = ek_gpu_tower_part(x->heads, m, 1),
                           .v = ek_gpu_tower_part(x->heads, m, 2),
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

static void light_conv(conformer *x, const conformer_layer *l, const ek_audio_layer *w)
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

static void run_layer(conformer *x, int layer)
{
    const ek_audio_layer *w = &x->a->layer[layer];
    const conformer_layer *l = &x->layer[layer];
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

static void begin(conformer *x)
{
    const ek_audio_config *c = config(x);
    ek_cuda_tower_stage_args a = stage(x);
    convolve(x, 0, x->mel, x->frames, c->bins, x->half);
    convolve(x, 1, x->map[0], x->half, c->bins / 2, x->n);
    ek_gpu_tower_product(&x->t, &x->input, x->n, x->map[1], x->input.l.k, x->h, c->hidden);
    stage_for(x, &a, &x->layer[0].ffw[0].up, x->layer[0].ffw[0].pre);
    rows_kernel(x, "ek_tower_stage", &a);
}

static void make_tokens(conformer *x)
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

/* ------------------------------------------------------------------ steps */

static double macs(const ek_gpu_tower *t, int step)
{
    const conformer *x = (const conformer *)t;
    const ek_audio_config *c = &x->a->c;
    return x->n * (step == 0             ? ek_audio_macs_begin(c)
                   : step <= c->n_layers ? ek_audio_macs_layer(c)
                                         : ek_audio_macs_end(c));
}

static void step(ek_gpu_tower *t, int number)
{
    if (number == 0) begin(of(t));
    else if (number < t->steps - 1) run_layer(of(t), number - 1);
    else make_tokens(of(t));
}

const ek_gpu_tower_ops ek_gpu_conformer_ops = {.takes = takes,
                                               .check = check,
                                               .bytes = sizeof(conformer),
                                               .open = open_conformer,
                                               .close = close_conformer,
                                               .weights = weights,
                                               .measure = measure,
                                               .lay_out = lay_out,
                                               .write = write_mel,
                                               .macs = macs,
                                               .step = step};
