#include "gpu/tower/towers.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "base/log.h"
#include "gpu/tower/state.h"
#include "gpu/weights/weights.h"

/* ------------------------------------------------------------------ opening */

static ek_err upload(ek_gpu_tower *t)
{
    ek_cuda *c = t->g->c;
    EK_TRY(ek_cuda_enter(c));
    t->buffer.bytes = 0;
    t->ops->weights(t);
    EK_TRY(t->err);
    EK_TRY(ek_cuda_alloc(c, &t->weights, t->at, "a tower's weights"));
    ek_log(EK_LOG_DEBUG, "weights of a tower: %.2f GB of the device's memory", (double)t->at / 1e9);
    if (t->buffer.bytes) {
        const size_t all = t->at < EK_GPU_BUFFER ? t->at : EK_GPU_BUFFER;
        if (t->buffer.bytes < all) t->buffer.bytes = all;
        EK_TRY(ek_cuda_alloc(c, &t->buffer.at, t->buffer.bytes, "weights on their way"));
    }
    t->base = t->weights, t->at = 0;
    t->g->err = EK_OK;
    t->ops->weights(t);
    if (!t->err) t->err = ek_cuda_sync(c);
    ek_cuda_free(c, t->buffer.at);
    t->buffer.at = 0;
    return t->err;
}

/* EUNSUPPORTED names what row kernels lack; matrices are checked when their layout is planned. */
static ek_err find(const ek_gpu_tower_ops **out, const ek_tower_part *p, const ek_cuda_chip *chip)
{
    static const ek_gpu_tower_ops *const all[] = {&ek_gpu_vision_ops, &ek_gpu_patches_ops, &ek_gpu_conformer_ops,
                                                  &ek_gpu_runs_ops};
    int i = 0;
    while (!all[i]->takes(p)) i++;
    *out = all[i];
    return all[i]->check ? all[i]->check(p, chip) : EK_OK;
}

ek_err ek_gpu_tower_open(ek_gpu_tower **out, ek_gpu *g, const ek_tower_part *p)
{
    const ek_gpu_tower_ops *ops;
    if (ek_cuda_chip_of(g->c)->plain)
        return ek_fail(EK_EUNSUPPORTED, "%s has no kernels for pictures and sounds", ek_cuda_maker(g->c));
    EK_TRY(find(&ops, p, ek_cuda_chip_of(g->c)));
    ek_gpu_tower *t = ek_alloc(ops->bytes);
    t->ops = ops, t->part = p, t->g = g;
    if (ops->open) ops->open(t);
    const ek_err err = upload(t);
    if (err) ek_gpu_tower_close(t);
    else *out = t;
    return err;
}

void ek_gpu_tower_close(ek_gpu_tower *t)
{
    if (!t) return;
    ek_gpu_tower_drop(t);
    if (ek_cuda_enter(t->g->c) == EK_OK) ek_cuda_free(t->g->c, t->weights), ek_cuda_free(t->g->c, t->buffer.at);
    if (t->ops->close) t->ops->close(t);
    free(t);
}

/* ------------------------------------------------------------------ a content */

static void lay_out(ek_gpu_tower *t, CUdeviceptr base)
{
    ek_gpu_run *x = &t->run;
    t->base = base, t->at = 0;
    x->buf.stack_bytes = x->buf.operand_bytes = t->acts_bytes = t->parts_bytes = 0;
    t->ops->lay_out(t);
    t->rows = ek_gpu_tower_take_rows(t, t->tokens, t->part->hidden);
    ek_gpu_tower_take_products(t);
}

static ek_err begin(ek_gpu_tower *t)
{
    ek_cuda *c = t->g->c;
    EK_TRY(t->ops->measure(t));
    EK_TRY(ek_cuda_enter(c));
    lay_out(t, 0);
    EK_TRY(ek_cuda_alloc(c, &t->scratch, t->at, "an image or a sound"));
    lay_out(t, t->scratch);
    t->host = ek_alloc(t->host_bytes);
    t->g->err = EK_OK;
    t->ops->write(t);
    EK_TRY(t->g->err);
    return ek_cuda_upload(c, t->scratch, t->host, t->host_bytes);
}

ek_err ek_gpu_tower_begin(ek_gpu_tower *t, const ek_media *m, float *rows)
{
    EK_ASSERT(!t->media);
    t->media = m, t->to = rows, t->next = 0;
    const ek_err err = begin(t);
    if (err) ek_gpu_tower_drop(t);
    return err;
}

static ek_err advance(ek_gpu_tower *t, double macs, bool *done)
{
    ek_gpu *g = t->g;
    g->err = EK_OK;
    EK_TRY(ek_cuda_enter(g->c));
    do {
        macs -= t->ops->macs(t, t->next);
        t->ops->step(t, t->next++);
    } while (t->next < t->steps && macs > 0);
    *done = t->next == t->steps;
    if (*done)
        ek_gpu_note(
            g, ek_cuda_download(g->c, t->to, t->rows, sizeof(float) * (size_t)t->tokens * (size_t)t->part->hidden));
    ek_gpu_note(g, ek_cuda_sync(g->c));
    return g->err;
}

ek_err ek_gpu_tower_advance(ek_gpu_tower *t, double macs, bool *done)
{
    const ek_err err = advance(t, macs, done);
    if (err || *done) ek_gpu_tower_drop(t);
    return err;
}

void ek_gpu_tower_drop(ek_gpu_tower *t)
{
    if (!t->media) return;
    if (ek_cuda_enter(t->g->c) == EK_OK) {
        ek_cuda_sync(t->g->c); /* waits for copies from the host's memory */
        ek_cuda_free(t->g->c, t->scratch);
    }
    free(t->host);
    t->media = NULL, t->host = NULL, t->scratch = 0;
}

/* ------------------------------------------------------------------ the encoder of an executor */

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

static ek_err load_device(void *arg, uint8_t digest[32])
{
    device *d = arg;
    EK_TRY(d->host.load(d->host.arg, digest));
    EK_TRY(open_sense(d, IMAGE, ek_towers_image_part(d->towers)));
    return open_sense(d, SOUND, ek_towers_sound_part(d->towers));
}

static ek_err begin_device(void *arg, const ek_media *m, float *rows)
{
    device *d = arg;
    d->at = d->tower[m->kind == EK_PART_SOUND ? SOUND : IMAGE];
    return d->at ? ek_gpu_tower_begin(d->at, m, rows) : d->host.begin(d->host.arg, m, rows);
}

static ek_err advance_device(void *arg, double macs, bool *done)
{
    device *d = arg;
    return d->at ? ek_gpu_tower_advance(d->at, macs, done) : d->host.advance(d->host.arg, macs, done);
}

static void drop_device(void *arg)
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

/* Bytes for encoding the largest content of the published towers: an image of 1,120 tokens, 30 s of sound. */
static const double IMAGE_SCRATCH = 1.1e9, SOUND_SCRATCH = 0.3e9;

double ek_gpu_encoder_bytes(ek_towers *t)
{
    const ek_towers_info *info = ek_towers_get(t);
    double bytes = 0;
    if (info->image) bytes += (double)ek_towers_image_bytes(t) + IMAGE_SCRATCH;
    if (info->sound) bytes += (double)ek_towers_sound_bytes(t) + (info->image ? 0 : SOUND_SCRATCH);
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
    on->encoder.load = load_device, on->encoder.begin = begin_device, on->encoder.advance = advance_device;
    on->encoder.drop = drop_device, on->encoder.close = close_device;
    return EK_OK;
}
