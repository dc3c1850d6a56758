#include "gpu/tower/towers.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "base/log.h"

enum { IMAGE, SOUND, SENSES };

typedef struct device {
    ek_encoder host;
    ek_gpu *g;
    ek_towers *towers;
    ek_gpu_tower *tower[SENSES]; /* NULL: the host encodes */
    ek_gpu_tower *at;            /* the tower of the running encoding; NULL: the host's */
} device;

/* The only place that decides whether the CPU encodes: if kernels or memory are missing, it does, and the log names the
 * reason. A broken device is an error. */
static ek_err open_sense(device *d, int sense, const ek_tower_part *p)
{
    static const char *const name[] = {"images", "sounds"};
    if (!p || d->tower[sense]) return EK_OK;
    const ek_err err = ek_gpu_tower_open(&d->tower[sense], d->g, p);
    if (!err || ek_cuda_broken(d->g->c)) return err;
    ek_log(EK_LOG_WARN, "%s are encoded on the CPU: %s", name[sense], ek_err_text());
    return EK_OK;
}

static ek_err load(void *arg, uint8_t digest[32])
{
    device *d = arg;
    EK_TRY(d->host.load(d->host.arg, digest));
    EK_TRY(open_sense(d, IMAGE, ek_towers_image_part(d->towers)));
    return open_sense(d, SOUND, ek_towers_sound_part(d->towers));
}

static ek_err begin(void *arg, const ek_media *m, float *rows)
{
    device *d = arg;
    d->at = d->tower[m->kind == EK_PART_SOUND ? SOUND : IMAGE];
    return d->at ? ek_gpu_tower_begin(d->at, m, rows) : d->host.begin(d->host.arg, m, rows);
}

static ek_err advance(void *arg, double macs, bool *done)
{
    device *d = arg;
    return d->at ? ek_gpu_tower_advance(d->at, macs, done) : d->host.advance(d->host.arg, macs, done);
}

static void drop(void *arg)
{
    device *d = arg;
    if (d->at) ek_gpu_tower_drop(d->at);
    else d->host.drop(d->host.arg);
}

static void close_device(void *arg)
{
    device *d = arg;
    for (int i = 0; i < SENSES; i++) ek_gpu_tower_close(d->tower[i]);
    d->host.close(d->host.arg);
    free(d);
}

double ek_gpu_encoder_bytes(ek_towers *t)
{
    const ek_towers_info *info = ek_towers_get(t);
    double bytes = 0;
    if (info->image) bytes += (double)ek_towers_image_bytes(t) + EK_GPU_IMAGE_SCRATCH;
    if (info->sound) bytes += (double)ek_towers_sound_bytes(t) + (info->image ? 0 : EK_GPU_SOUND_SCRATCH);
    return bytes;
}

void ek_gpu_encoder_reserve(ek_gpu *g, ek_towers *t)
{
    g->reserved = ek_cuda_chip_of(g->c)->plain ? 0 : ek_gpu_encoder_bytes(t); /* else the CPU encodes */
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
    return EK_OK;
}
