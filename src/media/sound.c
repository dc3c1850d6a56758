/* Sounds by the helper. Its answers are checked, because a process that decodes untrusted files may give any answer. */
#include "media/sound.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/encoding.h"
#include "media/header.h"
#include "media/limits.h"
#include "media/locked/helper.h"

static ek_err damaged(void)
{
    return ek_fail(EK_EPARSE, "damaged sound: its decoder gave what is none");
}

static ek_err check_answer(ek_sound_info *out, const ek_decoded *a, int max_seconds)
{
    static const char *const format[] = {"WAV", "FLAC", "OGG", "MP3"};
    *out = (ek_sound_info){
        .rate = a->rate, .channels = a->channels, .frames = a->frames, .samples = a->samples, .memory = a->memory};
    for (size_t i = 0; i < sizeof format / sizeof *format; i++)
        if (strcmp(a->format, format[i]) == 0) out->format = format[i];
    if (!out->format || a->rate < EK_SOUND_MIN_RATE || a->rate > EK_SOUND_MAX_RATE || a->channels < 1 ||
        a->channels > EK_SOUND_MAX_CHANNELS || a->frames < 1 || a->frames > (int64_t)max_seconds * a->rate ||
        a->samples < 1 || a->samples > max_seconds * EK_SOUND_RATE || a->memory > (size_t)1 << 40)
        return damaged();
    return EK_OK;
}

ek_err ek_sound_probe(ek_sound_info *out, const void *bytes, size_t n, int max_seconds)
{
    ek_ask ask = {.what = EK_ASK_SOUND_PROBE, .max_seconds = max_seconds};
    ek_decoded a;
    EK_TRY(ek_media_check_bytes("sound", n));
    EK_TRY(ek_helper_decode(&a, NULL, &ask, bytes, n));
    return check_answer(out, &a, max_seconds);
}

static ek_err check_samples(const ek_sound *s, const ek_decoded *a)
{
    if (a->samples != s->samples) return damaged();
    for (int i = 0; i < s->samples; i++)
        if (!isfinite(s->v[i])) return damaged();
    return EK_OK;
}

ek_err ek_sound_read(ek_sound *out, const void *bytes, size_t n, int max_seconds)
{
    ek_sound_info info;
    ek_decoded a;
    *out = (ek_sound){0};
    EK_TRY(ek_sound_probe(&info, bytes, n, max_seconds));
    *out = (ek_sound){.samples = info.samples, .v = ek_alloc((size_t)info.samples * sizeof(float))};
    ek_ask ask = {.what = EK_ASK_SOUND,
                  .max_seconds = max_seconds,
                  .memory = info.memory,
                  .room = (size_t)info.samples * sizeof(float)};
    ek_err err = ek_helper_decode(&a, out->v, &ask, bytes, n);
    if (!err) err = check_samples(out, &a);
    if (err) ek_sound_free(out);
    return err;
}

void ek_sound_free(ek_sound *s)
{
    free(s->v);
    *s = (ek_sound){0};
}

bool ek_sound_wav(ek_buf *out, const float *v, int n)
{
    enum { HEAD = 44, FLOAT = 3 };
    const uint32_t bytes = (uint32_t)n * 4;
    uint8_t head[HEAD] = "RIFF....WAVEfmt ";
    if (!ek_buf_reserve(out, HEAD + (size_t)bytes)) return false;
    ek_put_le(head + 4, HEAD - 8 + bytes, 4);
    ek_put_le(head + 16, 16, 4), ek_put_le(head + 20, FLOAT, 2), ek_put_le(head + 22, 1, 2);
    ek_put_le(head + 24, EK_SOUND_RATE, 4), ek_put_le(head + 28, 4 * EK_SOUND_RATE, 4);
    ek_put_le(head + 32, 4, 2), ek_put_le(head + 34, 32, 2);
    memcpy(head + 36, "data", 4);
    ek_put_le(head + 40, bytes, 4);
    ek_buf_add(out, head, HEAD);
    for (int i = 0; i < n; i++) {
        uint8_t p[4];
        uint32_t u;
        memcpy(&u, &v[i], sizeof u);
        ek_put_le(p, u, 4);
        ek_buf_add(out, p, 4);
    }
    return true;
}
