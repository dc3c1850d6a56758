/* FLAC, OGG and MP3 by libsndfile, out of memory. */
#include <stdlib.h>
#include <string.h>

#include <sndfile.h>

#include "base/alloc.h"
#include "media/sound_read.h"

typedef struct source {
    ek_media_bytes file;
    size_t at;
} source;

static sf_count_t length(void *user)
{
    return (sf_count_t)((source *)user)->file.n;
}

static sf_count_t seek(sf_count_t offset, int whence, void *user)
{
    source *s = user;
    sf_count_t n = (sf_count_t)s->file.n;
    sf_count_t from = whence == SEEK_CUR ? (sf_count_t)s->at : whence == SEEK_END ? n : 0;
    if (offset < -from || offset > n - from) return -1;
    s->at = (size_t)(from + offset);
    return (sf_count_t)s->at;
}

static sf_count_t read_bytes(void *to, sf_count_t n, void *user)
{
    source *s = user;
    size_t left = s->file.n - s->at, take = n < 0 ? 0 : (size_t)n < left ? (size_t)n : left;
    memcpy(to, s->file.p + s->at, take);
    s->at += take;
    return (sf_count_t)take;
}

static sf_count_t tell(void *user)
{
    return (sf_count_t)((source *)user)->at;
}

static bool is_mp3(ek_media_bytes f)
{
    if (f.n >= 10 && memcmp(f.p, "ID3", 3) == 0) return true;
    /* A frame's head: eleven bits set, a layer, a bit rate and a sampling rate that exist. */
    return f.n >= 4 && f.p[0] == 0xFF && (f.p[1] & 0xE0) == 0xE0 && (f.p[1] & 0x18) != 0x08 && (f.p[1] & 0x06) != 0 &&
           f.p[2] >> 4 != 15 && (f.p[2] >> 2 & 3) != 3;
}

static const char *format_of(ek_media_bytes f)
{
    if (ek_is_wav(f)) return "WAV";
    if (f.n >= 4 && memcmp(f.p, "fLaC", 4) == 0) return "FLAC";
    if (f.n >= 4 && memcmp(f.p, "OggS", 4) == 0) return "OGG";
    return is_mp3(f) ? "MP3" : NULL;
}

bool ek_is_sndfile(ek_media_bytes f)
{
    return format_of(f) != NULL;
}

static SNDFILE *open_file(source *s, SF_INFO *info)
{
    static SF_VIRTUAL_IO io = {length, seek, read_bytes, NULL, tell};
    *info = (SF_INFO){0};
    return sf_open_virtual(&io, SFM_READ, info, s);
}

ek_err ek_sndfile_header(ek_sound_header *h, ek_media_bytes f)
{
    source s = {f, 0};
    SF_INFO info;
    h->format = format_of(f);
    SNDFILE *file = open_file(&s, &info);
    if (!file) return ek_sound_damaged(h->format, sf_strerror(NULL));
    h->rate = info.samplerate;
    h->channels = info.channels;
    h->frames = info.frames;
    sf_close(file);
    return EK_OK;
}

ek_err ek_sndfile_mono(float *to, const ek_sound_header *h, ek_media_bytes f)
{
    enum { PART = 4096 };
    source s = {f, 0};
    SF_INFO info;
    SNDFILE *file = open_file(&s, &info);
    if (!file) return ek_sound_damaged(h->format, sf_strerror(NULL));
    ek_err err = info.channels == h->channels ? EK_OK : ek_sound_damaged(h->format, "its number of channels changes");
    float *part = ek_alloc(PART * (size_t)h->channels * sizeof *part);
    for (int64_t done = 0; !err && done < h->frames;) {
        sf_count_t got = sf_readf_float(file, part, h->frames - done < PART ? h->frames - done : PART);
        if (got <= 0) err = ek_sound_damaged(h->format, "it ends before its last sample");
        for (sf_count_t i = 0; i < got; i++) {
            float sum = 0.0f;
            for (int64_t c = 0; c < h->channels; c++) sum += part[i * h->channels + c];
            to[done + i] = h->channels > 1 ? sum / (float)h->channels : sum;
        }
        done += got;
    }
    free(part);
    sf_close(file);
    return err;
}
