/* Chooses the reader of a sound, checks the limits that all readers share, and converts the rate. */
#include "decode/decode.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#ifdef EK_SO_SOXR
#include <soxr.h>
#endif

#include "base/alloc.h"
#include "decode/libraries.h"
#include "decode/sound_read.h"
#include "media/limits.h"

ek_err ek_sound_damaged(const char *format, const char *why)
{
    return ek_fail(EK_EPARSE, "damaged %s sound: %s", format, why);
}

/* *own: a reader of this program takes the file. */
static ek_err find(ek_sound_header *h, ek_media_bytes f, bool *own)
{
    *h = (ek_sound_header){0};
    *own = false;
    EK_TRY(ek_media_check_bytes("sound", f.n));
    if (ek_is_wav(f)) {
        EK_TRY(ek_wav_header(h, f, own));
        if (*own) return EK_OK;
    }
#ifdef EK_SO_SNDFILE
    if (!ek_is_sndfile(f)) return ek_fail(EK_EINVAL, "not a sound of a known kind; known are WAV, FLAC, OGG, MP3");
    EK_TRY(ek_library_need(EK_LIBRARY_SNDFILE, "FLAC, OGG and MP3 sounds, and WAV of rare codecs,"));
    return ek_sndfile_header(h, f);
#else
    return ek_library_need(EK_LIBRARY_SNDFILE, "FLAC, OGG and MP3 sounds, and WAV of rare codecs,");
#endif
}

static ek_err check(const ek_sound_header *h, int max_seconds)
{
    if (h->rate < EK_SOUND_MIN_RATE || h->rate > EK_SOUND_MAX_RATE)
        return ek_fail(EK_EINVAL, "%s sound of %lld samples per second; %d to %d are read", h->format,
                       (long long)h->rate, EK_SOUND_MIN_RATE, EK_SOUND_MAX_RATE);
    if (h->channels < 1 || h->channels > EK_SOUND_MAX_CHANNELS)
        return ek_fail(EK_EINVAL, "%s sound of %lld channels, 1 to %d are read", h->format, (long long)h->channels,
                       EK_SOUND_MAX_CHANNELS);
    if (h->frames < 1) return ek_fail(EK_EINVAL, "%s sound of 0 samples", h->format);
    int64_t max = max_seconds * h->rate;
    if (h->frames > max)
        return ek_fail(EK_EINVAL, "%s sound of %.1f s, %lld samples at %lld per second; at most %d s, %lld samples",
                       h->format, (double)h->frames / (double)h->rate, (long long)h->frames, (long long)h->rate,
                       max_seconds, (long long)max);
    return EK_OK;
}

static ek_err probe(ek_sound_header *h, ek_sound_info *out, ek_media_bytes f, int max_seconds, bool *own)
{
    EK_TRY(find(h, f, own));
    EK_TRY(check(h, max_seconds));
    *out = (ek_sound_info){
        .format = h->format, .rate = (int)h->rate, .channels = (int)h->channels, .frames = h->frames};
    out->samples = (int)((h->frames * EK_SOUND_RATE + h->rate - 1) / h->rate);
    /* The samples at both rates, the resampler's memory for them, and the tables of resampler and decoder. */
    out->memory = sizeof(float) * 2 * ((size_t)h->frames + (size_t)out->samples) + ((size_t)8 << 20);
    return EK_OK;
}

ek_err ek_decode_sound_probe(ek_sound_info *out, const void *bytes, size_t n, int max_seconds)
{
    ek_sound_header h;
    bool own;
    ek_libraries_open();
    return probe(&h, out, (ek_media_bytes){bytes, n}, max_seconds, &own);
}

/* HQ, 20 bits, linear phase, one thread, over the whole sound: librosa's settings. */
static ek_err sound_resample(float *out, int n_out, const float *in, size_t n, int rate)
{
    EK_TRY(ek_library_need(EK_LIBRARY_SOXR, "sounds of another rate than 16000 samples per second"));
#ifdef EK_SO_SOXR
    soxr_io_spec_t io = soxr_io_spec(SOXR_FLOAT32_I, SOXR_FLOAT32_I);
    soxr_quality_spec_t quality = soxr_quality_spec(SOXR_HQ, 0);
    soxr_runtime_spec_t runtime = soxr_runtime_spec(1);
    size_t used, made = 0;
    soxr_error_t bad = soxr_oneshot(rate, EK_SOUND_RATE, 1, in, n, &used, out, (size_t)n_out, &made, &io, &quality,
                                    &runtime);
    if (bad)
        return ek_fail(EK_ENOMEM, "a sound of %d samples per second cannot be resampled: %s", rate, soxr_strerror(bad));
    memset(out + made, 0, ((size_t)n_out - made) * sizeof *out);
#else
    (void)out, (void)n_out, (void)in, (void)n, (void)rate;
#endif
    return EK_OK;
}

static ek_err check_finite(const ek_sound_header *h, const float *v, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(v[i]))
            return ek_fail(EK_EPARSE, "damaged %s sound: sample %lld is not a finite number", h->format, (long long)i);
    return EK_OK;
}

static ek_err read_samples(ek_sound *out, const ek_sound_header *h, float *v, ek_media_bytes f, bool own)
{
    if (own) ek_wav_mono(v, h, f);
#ifdef EK_SO_SNDFILE
    else EK_TRY(ek_sndfile_mono(v, h, f));
#endif
    EK_TRY(check_finite(h, v, h->frames));
    if (v == out->v) return EK_OK;
    EK_TRY(sound_resample(out->v, out->samples, v, (size_t)h->frames, (int)h->rate));
    return check_finite(h, out->v, out->samples);
}

ek_err ek_decode_sound(ek_sound *out, const void *bytes, size_t n, int max_seconds)
{
    ek_media_bytes f = {bytes, n};
    ek_sound_header h;
    ek_sound_info info;
    bool own;
    *out = (ek_sound){0};
    ek_libraries_open();
    EK_TRY(probe(&h, &info, f, max_seconds, &own));
    *out = (ek_sound){.samples = info.samples, .v = ek_alloc((size_t)info.samples * sizeof(float))};
    float *v = info.rate == EK_SOUND_RATE ? out->v : ek_alloc((size_t)info.frames * sizeof *v);
    ek_err err = read_samples(out, &h, v, f, own);
    if (v != out->v) free(v);
    if (err) {
        free(out->v);
        *out = (ek_sound){0};
    }
    return err;
}
