/* The interface between readers of sounds and their dispatch. Inside src/decode. */
#ifndef EK_DECODE_SOUND_READ_H
#define EK_DECODE_SOUND_READ_H

#include "decode/image_read.h"
#include "media/sound.h"

typedef struct ek_sound_header {
    const char *format;
    int64_t rate, channels, frames;
    size_t data; /* WAV: offset of the frames */
    int bits;    /* WAV: bits per sample */
    bool floats; /* WAV: samples are floats */
} ek_sound_header;

/* WAV: integers of 8, 16, 24 or 32 bits, floats of 32 or 64. For other codecs *known becomes false, without an error.
 */
bool ek_is_wav(ek_media_bytes file);
ek_err ek_wav_header(ek_sound_header *out, ek_media_bytes file, bool *known);
/* Averages the channels of h->frames frames; the header was checked. */
void ek_wav_mono(float *to, const ek_sound_header *h, ek_media_bytes file);

bool ek_is_sndfile(ek_media_bytes file);
ek_err ek_sndfile_header(ek_sound_header *out, ek_media_bytes file);
/* The same by libsndfile; EPARSE if there are fewer frames than in the header. */
ek_err ek_sndfile_mono(float *to, const ek_sound_header *h, ek_media_bytes file);

ek_err ek_sound_damaged(const char *format, const char *why);

/* The streams in a file of coded sound. Recorders, and programs that join files, write files that libraries read only
 * in part or not at all: MP3 without a frame that gives the number of frames, FLAC without its length, Ogg without an
 * end, and several streams one after the other. This code finds and completes the streams without decoding a byte. */

enum {
    EK_STREAMS_MAX = 64, /* per file */
    EK_STREAM_HEAD = 512 /* bytes */
};

/* A stream: a part of the file, with bytes before it and some of its bytes replaced. */
typedef struct ek_stream {
    ek_media_bytes part;
    uint8_t head[EK_STREAM_HEAD]; /* bytes before the part */
    size_t n_head;
    uint8_t patch[5]; /* replaces the part's bytes from patch_at on, */
    size_t n_patch, patch_at;
    uint8_t crc[4]; /* and from crc_at on, unless it is 0 */
    size_t crc_at;
} ek_stream;

/* The bytes after leading ID3v2 tags. */
ek_media_bytes ek_streams_untagged(ek_media_bytes file);
/* Takes the next stream from *left; false: there is none. Linear in the stream's bytes. */
typedef bool ek_stream_next(ek_stream *out, ek_media_bytes *left);
ek_stream_next ek_stream_next_mpeg, ek_stream_next_ogg, ek_stream_next_flac;
/* Whether a frame of MPEG audio begins here, followed by others. */
bool ek_is_mpeg(ek_media_bytes file);

#endif
