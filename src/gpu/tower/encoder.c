#include "gpu/tower/encoder.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "base/log.h"
#include "gpu/tower/vision.h"

typedef struct device {
    ek_encoder host;
    ek_gpu *g;
    ek_towers *towers;
    ek_gpu_vision *vision; /* NULL: pictures are the host's, too */
    bool here;             /* what was begun is on the device */
} device;

static ek_err load(void *arg, uint8_t digest[32])
{
    device *d = arg;
    EK_TRY(d->host.load(d->host.arg, digest));
    const ek_vision *v = ek_towers_vision(d->towers);
    if (!v || d->vision) return EK_OK;
    const ek_err err = ek_gpu_vision_open(&d->vision, d->g, v);
    if (!err || ek_cuda_broken(d->g->c)) return err;
    ek_log(EK_LOG_WARN, "images are encoded on the CPU: %s", ek_err_text());
    return EK_OK;
}

static ek_err begin(void *arg, const ek_media *m, float *rows)
{
    device *d = arg;
    d->here = d->vision && m->kind != EK_PART_SOUND;
    return d->here ? ek_gpu_vision_begin(d->vision, &m->picture, rows) : d->host.begin(d->host.arg, m, rows);
}

static ek_err advance(void *arg, double macs, bool *done)
{
    device *d = arg;
    return d->here ? ek_gpu_vision_advance(d->vision, macs, done) : d->host.advance(d->host.arg, macs, done);
}

static void drop(void *arg)
{
    device *d = arg;
    if (d->here) ek_gpu_vision_drop(d->vision);
    else d->host.drop(d->host.arg);
}

static void close_device(void *arg)
{
    device *d = arg;
    ek_gpu_vision_close(d->vision);
    d->host.close(d->host.arg);
    free(d);
}

ek_err ek_gpu_encoder_open(ek_executor *on, ek_gpu *g, ek_towers *t)
{
    ek_encoder host = {0};
    EK_TRY(ek_encoder_open(&host, t, on->model));
    if (!host.begin) return EK_OK;
    device *d = ek_alloc(sizeof *d);
    d->host = host, d->g = g, d->towers = t;
    on->encoder = host;
    on->encoder.arg = d;
    on->encoder.load = load, on->encoder.begin = begin, on->encoder.advance = advance;
    on->encoder.drop = drop, on->encoder.close = close_device;
    if (ek_towers_get(t)->image) on->room -= (double)ek_towers_image_bytes(t) + EK_GPU_VISION_SCRATCH;
    if (on->room < 1) on->room = 1; /* 0 would ask for the host's */
    return EK_OK;
}
