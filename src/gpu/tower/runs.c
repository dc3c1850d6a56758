/* The 12B's sounds on a device: runs of samples without a tower (model/tower/tower_part.h), a norm and a projection. */
#include <string.h>

#include "gpu/tower/state.h"
#include "gpu/weights/weights.h"
#include "model/tower/tower_part.h"

typedef struct ek_gpu_runs {
    ek_gpu_tower t;
    const ek_sound_runs *r;
    ek_gpu_matrix embed;
    CUdeviceptr x; /* [tokens][EK_SOUND_RUN] */
} runs;

static runs *of(ek_gpu_tower *t)
{
    return (runs *)t;
}

static bool takes(const ek_tower_part *p)
{
    return ek_sound_runs_of(p) != NULL;
}

static void open_runs(ek_gpu_tower *t)
{
    of(t)->r = ek_sound_runs_of(t->part);
}

static void weights(ek_gpu_tower *t)
{
    ek_gpu_tower_matrix(t, &of(t)->embed, &of(t)->r->embed);
}

static ek_err measure(ek_gpu_tower *t)
{
    t->steps = 1;
    return ek_sound_tokens(&t->tokens, t->media->sound.samples, EK_SOUND_UNIFIED);
}

static void lay_out(ek_gpu_tower *t)
{
    of(t)->x = ek_gpu_tower_take_rows(t, t->tokens, EK_SOUND_RUN);
    t->host_bytes = t->at;
    ek_gpu_tower_need(t, &of(t)->embed, t->tokens);
}

/* The rest of the last run is zeros, because the memory is zeroed. */
static void write_samples(ek_gpu_tower *t)
{
    const ek_sound *s = &t->media->sound;
    memcpy(t->host, s->v, sizeof *s->v * (size_t)s->samples);
}

static double macs(const ek_gpu_tower *t, int step)
{
    (void)step;
    return (double)t->tokens * EK_SOUND_RUN * t->part->hidden;
}

static void step(ek_gpu_tower *t, int number)
{
    runs *x = of(t);
    (void)number;
    const ek_cuda_rows_args norm = {
        .y = x->x, .x = x->x, .ldy = EK_SOUND_RUN, .ldx = EK_SOUND_RUN, .a = x->r->eps, .n = EK_SOUND_RUN};
    ek_gpu_launch(t->g, "ek_rms_norm", (ek_cuda_grid){.x = (unsigned)t->tokens, .threads = 256, .overlap = true},
                  &norm);
    ek_gpu_tower_product(t, &x->embed, t->tokens, x->x, EK_SOUND_RUN, t->rows, t->part->hidden);
}

const ek_gpu_tower_ops ek_gpu_runs_ops = {.takes = takes,
                                          .bytes = sizeof(runs),
                                          .open = open_runs,
                                          .weights = weights,
                                          .measure = measure,
                                          .lay_out = lay_out,
                                          .write = write_samples,
                                          .macs = macs,
                                          .step = step};
