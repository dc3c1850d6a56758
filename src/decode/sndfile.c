/* FLAC, OGG and MP3 by libsndfile, from memory. */
#include <stdlib.h>
#include <string.h>

#include <sndfile.h>

#include "base/alloc.h"
#include "decode/sound_read.h"

typedef struct source {
    const ek_stream *stream;
    size_t at;
} source;

static size_t bytes_of(const ek_stream *s)
{
    return s->n_head + s->part.n;
}

static sf_count_t length(void *user)
{
    return (sf_count_t)bytes_of(((source *)user)->stream);
}

static sf_count_t seek(sf_count_t offset, int whence, void *user)
{
    source *s = user;
    sf_count_t n = length(user);
    sf_count_t from = whence == SEEK_CUR ? (sf_count_t)s->at : whence == SEEK_END ? n : 0;
    if (offset < -from || offset > n - from) return -1;
    s->at = (size_t)(from + offset);
    return (sf_count_t)s->at;
}

/* The n bytes from byte `at` on are in `to`. Replaces those among them that belong to the n_new bytes from byte new_at
 * on. */
static void replace(uint8_t *to, size_t at, size_t n, const uint8_t *new, size_t n_new, size_t new_at)
{
    for (size_t i = 0; i < n_new; i++)
        if (new_at + i >= at && new_at + i - at < n) to[new_at + i - at] = new[i];
}

static sf_count_t read_bytes(void *to, sf_count_t n, void *user)
{
    source *s = user;
    const ek_stream *from = s->stream;
    const size_t left = bytes_of(from) - s->at, take = n < 0 ? 0 : (size_t)n < left ? (size_t)n : left;
    const size_t before = s->at < from->n_head ? from->n_head - s->at : 0, head = take < before ? take : before;
    memcpy(to, from->head + s->at * (before > 0), head);
    if (take > head) {
        uint8_t *part = (uint8_t *)to + head;
        const size_t at = s->at + head - from->n_head;
        memcpy(part, from->part.p + at, take - head);
        replace(part, at, take - head, from->patch, from->n_patch, from->patch_at);
        replace(part, at, take - head, from->crc, from->crc_at ? sizeof from->crc : 0, from->crc_at);
    }
    s->at += take;
    return (sf_count_t)take;
}

static sf_count_t tell(void *user)
{
    return (sf_count_t)((source *)user)->at;
}

static const char *format_of(ek_media_bytes f)
{
    if (ek_is_wav(f)) return "WAV";
    if (f.n >= 4 && memcmp(f.p, "fLaC", 4) == 0) return "FLAC";
    if (f.n >= 4 && memcmp(f.p, "OggS", 4) == 0) return "OGG";
    /* A frame's head has eleven bits set, and a layer, a bit rate and a sampling rate that exist. */
    const bool frame = f.n >= 4 && f.p[0] == 0xFF && (f.p[1] & 0xE0) == 0xE0 && (f.p[1] & 0x18) != 0x08 &&
                       (f.p[1] & 0x06) != 0 && f.p[2] >> 4 != 15 && (f.p[2] >> 2 & 3) != 3;
    return frame || ek_is_mpeg(f) ? "MP3" : NULL;
}

bool ek_is_sndfile(ek_media_bytes f)
{
    return format_of(ek_streams_untagged(f)) != NULL;
}

/* The next stream of a file; NULL: there is none. In an unknown format, the file is the only stream. */
typedef struct streams {
    const char *format;
    ek_media_bytes left;
    ek_stream at;
    int n; /* so far */
} streams;

static streams streams_of(ek_media_bytes f)
{
    f = ek_streams_untagged(f);
    return (streams){.format = format_of(f), .left = f};
}

static ek_err next_stream(streams *s, bool *more)
{
    const ek_media_bytes all = s->left;
    ek_stream_next *next = !strcmp(s->format, "OGG")    ? ek_stream_next_ogg
                           : !strcmp(s->format, "FLAC") ? ek_stream_next_flac
                           : !strcmp(s->format, "MP3")  ? ek_stream_next_mpeg
                                                        : NULL;
    *more = next ? next(&s->at, &s->left) : false;
    if (!*more && s->n == 0) {
        s->at = (ek_stream){.part = all};
        s->left.n = 0;
        *more = true;
    }
    if (*more && ++s->n > EK_STREAMS_MAX)
        return ek_fail(EK_EINVAL, "%s sound of more than %d streams", s->format, EK_STREAMS_MAX);
    return EK_OK;
}

static SNDFILE *open_stream(source *s, SF_INFO *info)
{
    static SF_VIRTUAL_IO io = {length, seek, read_bytes, NULL, tell};
    *info = (SF_INFO){0};
    return sf_open_virtual(&io, SFM_READ, info, s);
}

/* Adds one stream of several. The first stream set the header. */
static ek_err add_header(ek_sound_header *h, const streams *s)
{
    source from = {&s->at, 0};
    SF_INFO info;
    SNDFILE *file = open_stream(&from, &info);
    if (!file) return ek_sound_damaged(h->format, sf_strerror(NULL));
    sf_close(file);
    if (s->n > 1 && (info.samplerate != h->rate || info.channels != h->channels))
        return ek_fail(EK_EINVAL,
                       "%s sound of several streams, of which the first has %lld samples per second and %lld "
                       "channels, and another %d and %d",
                       h->format, (long long)h->rate, (long long)h->channels, info.samplerate, info.channels);
    h->rate = info.samplerate;
    h->channels = info.channels;
    if (info.frames < 0 || info.frames > INT64_MAX / 2 - h->frames)
        return ek_sound_damaged(h->format, "it does not say how long it is");
    h->frames += info.frames;
    return EK_OK;
}

ek_err ek_sndfile_header(ek_sound_header *h, ek_media_bytes f)
{
    streams s = streams_of(f);
    h->format = s.format;
    for (bool more = true;;) {
        EK_TRY(next_stream(&s, &more));
        if (!more) return EK_OK;
        EK_TRY(add_header(h, &s));
    }
}

/* Reads up to max frames of a stream. */
static ek_err read_stream(float *to, int64_t max, int64_t *done, const ek_sound_header *h, const ek_stream *stream)
{
    enum { PART = 4096 };
    source s = {stream, 0};
    SF_INFO info;
    SNDFILE *file = open_stream(&s, &info);
    if (!file) return ek_sound_damaged(h->format, sf_strerror(NULL));
    ek_err err = info.channels == h->channels ? EK_OK : ek_sound_damaged(h->format, "its number of channels changes");
    if (!err && info.frames > max) err = ek_sound_damaged(h->format, "its length changes");
    float *part = ek_alloc(PART * (size_t)h->channels * sizeof *part);
    for (int64_t n = 0; !err && n < info.frames;) {
        sf_count_t got = sf_readf_float(file, part, info.frames - n < PART ? info.frames - n : PART);
        if (got <= 0) err = ek_sound_damaged(h->format, "it ends before its last sample");
        for (sf_count_t i = 0; i < got; i++) {
            float sum = 0.0f;
            for (int64_t c = 0; c < h->channels; c++) sum += part[i * h->channels + c];
            to[n + i] = h->channels > 1 ? sum / (float)h->channels : sum;
        }
        n += got;
        *done = n;
    }
    free(part);
    sf_close(file);
    return err;
}

ek_err ek_sndfile_mono(float *to, const ek_sound_header *h, ek_media_bytes f)
{
    streams s = streams_of(f);
    int64_t at = 0;
    for (bool more = true;;) {
        int64_t done = 0;
        EK_TRY(next_stream(&s, &more));
        if (!more) break;
        EK_TRY(read_stream(to + at, h->frames - at, &done, h, &s.at));
        at += done;
    }
    return at == h->frames ? EK_OK : ek_sound_damaged(h->format, "its length changes");
}
