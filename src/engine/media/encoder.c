#include "engine/media/encoder.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash/hash.h"

typedef struct host {
    ek_towers *towers;
    ek_tower_work *work;
    float *rows; /* the engine's */
} host;

static ek_err begin(void *arg, const ek_media *m, float *rows)
{
    host *h = arg;
    h->rows = rows;
    if (m->kind == EK_PART_SOUND) return ek_tower_begin_sound(&h->work, h->towers, &m->sound);
    return ek_tower_begin_image(&h->work, h->towers, &m->picture);
}

static void drop(void *arg)
{
    host *h = arg;
    ek_tower_free(h->work);
    h->work = NULL;
}

static ek_err advance(void *arg, double macs, bool *done)
{
    host *h = arg;
    ek_tower_advance(h->work, macs, done);
    if (!*done) return EK_OK;
    int n;
    const float *rows = ek_tower_rows(h->work, &n);
    memcpy(h->rows, rows, sizeof *rows * (size_t)n * (size_t)ek_towers_get(h->towers)->hidden);
    drop(h);
    return EK_OK;
}

static void close_host(void *arg)
{
    drop(arg);
    free(arg);
}

static ek_err load(void *arg, uint8_t digest[32])
{
    const host *h = arg;
    const ek_towers_info *info = ek_towers_get(h->towers);
    uint64_t of[2] = {0};
    if (info->image) EK_TRY(ek_towers_digest_image(h->towers, &of[0]));
    if (info->sound) EK_TRY(ek_towers_digest_sound(h->towers, &of[1]));
    ek_sha256(digest, of, sizeof of);
    return EK_OK;
}

ek_err ek_encoder_load(ek_encoder *x)
{
    if (x->loaded || !x->begin) return EK_OK;
    if (x->load) EK_TRY(x->load(x->arg, x->digest));
    x->loaded = true;
    return EK_OK;
}

ek_err ek_encoder_open(ek_encoder *out, ek_towers *t, const ek_model *m)
{
    const ek_towers_info *info = ek_towers_get(t);
    if (!info->image && !info->sound) return EK_OK;
    if (info->hidden != ek_model_config(m)->hidden_size)
        return ek_fail(EK_EFORMAT, "the towers make rows of %d, the model has %d", info->hidden,
                       ek_model_config(m)->hidden_size);
    host *h = ek_alloc(sizeof *h);
    h->towers = t;
    *out = (ek_encoder){.takes = {info->image, info->image, info->sound},
                        .everywhere = info->image_kind == EK_PATCH_UNIFIED,
                        .max_tokens = EK_IMAGE_TOKENS,
                        .row_macs = ek_model_macs_prompt_row(m),
                        .arg = h,
                        .load = load,
                        .begin = begin,
                        .advance = advance,
                        .drop = drop,
                        .close = close_host};
    return EK_OK;
}

/* The first guess of a slice's time: matrix units multiply codes 30 times as fast as the processor multiplies
 * floats. */
static const double START = 1.0 / 32, LEAST = 1.0 / 1024;

void ek_pace_step(ek_pace *p, int rows, double seconds)
{
    if (rows < EK_PACE_ROWS || !(seconds > 0)) return;
    const double each = seconds / rows;
    if (p->row_seconds == 0 || each < p->row_seconds) p->row_seconds = each;
    else p->row_seconds += (each - p->row_seconds) / 8; /* a slice that was held up counts little */
}

static double fraction_of(const ek_pace *p)
{
    return p->fraction > 0 ? p->fraction : START;
}

double ek_pace_slice(const ek_pace *p, int rows, double row_macs)
{
    return fraction_of(p) * rows * row_macs;
}

void ek_pace_note(ek_pace *p, int rows, double seconds)
{
    if (p->row_seconds == 0 || !(seconds > 0)) return;
    double change = rows * p->row_seconds / seconds;
    if (change > 1.25) change = 1.25; /* the following part, attention, may be slower */
    double fraction = fraction_of(p) * change;
    p->fraction = fraction > 1 ? 1 : fraction < LEAST ? LEAST : fraction;
}
