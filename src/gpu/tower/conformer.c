/* The audio tower on a device (model/tower/tower_audio_state.h): weights, and the memory of a clip. */
#include <stdlib.h>

#include "base/alloc.h"
#include "gpu/tower/state.h"

static ek_gpu_conformer *of(ek_gpu_tower *t)
{
    return (ek_gpu_conformer *)t;
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
    ek_gpu_conformer *x = of(t);
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

static void layer_weights(ek_gpu_tower *t, ek_gpu_conformer_layer *to, const ek_audio_layer *from,
                          const ek_audio_config *c)
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
    ek_gpu_conformer *x = of(t);
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
    ek_gpu_conformer *x = of(t);
    const int samples = t->media->sound.samples;
    EK_TRY(ek_sound_tokens(&t->tokens, samples, EK_SOUND_TOWER));
    x->frames = ek_mel_frames(samples), x->half = (x->frames + 1) / 2, x->n = t->tokens;
    t->steps = x->a->c.n_layers + 2;
    return EK_OK;
}

static void need(ek_gpu_conformer *x)
{
    ek_gpu_tower *t = &x->t;
    const ek_audio_config *c = &x->a->c;
    ek_gpu_tower_need(t, &x->conv[0], x->half * (c->bins / 2));
    ek_gpu_tower_need(t, &x->conv[1], x->n * ek_audio_bands(c));
    ek_gpu_tower_need(t, &x->input, x->n), ek_gpu_tower_need(t, &x->output, x->n);
    ek_gpu_tower_need(t, &x->embed, x->n);
    for (int i = 0; i < c->n_layers; i++) {
        const ek_gpu_conformer_layer *l = &x->layer[i];
        for (int f = 0; f < 2; f++)
            ek_gpu_tower_need_group(t, &l->ffw[f].up, x->n), ek_gpu_tower_need(t, &l->ffw[f].down, x->n);
        ek_gpu_tower_need_group(t, &l->heads, x->n), ek_gpu_tower_need_group(t, &l->start, x->n);
        ek_gpu_tower_need(t, &l->post, x->n), ek_gpu_tower_need(t, &l->end, x->n);
    }
}

static void lay_out(ek_gpu_tower *t)
{
    ek_gpu_conformer *x = of(t);
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

static double macs(const ek_gpu_tower *t, int step)
{
    const ek_gpu_conformer *x = (const ek_gpu_conformer *)t;
    const ek_audio_config *c = &x->a->c;
    return x->n * (step == 0             ? ek_audio_macs_begin(c)
                   : step <= c->n_layers ? ek_audio_macs_layer(c)
                                         : ek_audio_macs_end(c));
}

static void step(ek_gpu_tower *t, int number)
{
    if (number == 0) ek_gpu_conformer_begin(of(t));
    else if (number < t->steps - 1) ek_gpu_conformer_layer_of(of(t), number - 1);
    else ek_gpu_conformer_tokens(of(t));
}

const ek_gpu_tower_ops ek_gpu_conformer_ops = {.takes = takes,
                                               .check = check,
                                               .bytes = sizeof(ek_gpu_conformer),
                                               .open = open_conformer,
                                               .close = close_conformer,
                                               .weights = weights,
                                               .measure = measure,
                                               .lay_out = lay_out,
                                               .write = write_mel,
                                               .macs = macs,
                                               .step = step};
