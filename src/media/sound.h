/* Sounds: bytes of a file to mono samples of 16 kHz. WAV by our own reader; FLAC, OGG, MP3 and WAV with rare codecs by
 * libsndfile; other rates by libsoxr's HQ recipe.
 *
 * A pure function of the bytes and of the version of these libraries. Functions may run on any thread, on several
 * at once. Errors are one sentence with the numbers: EINVAL for an unknown format, and for a sound that is
 * too short or too long, EPARSE for a damaged or cut one, ETOOLARGE for more than EK_MEDIA_MAX_BYTES, ENOMEM. */
#ifndef EK_MEDIA_SOUND_H
#define EK_MEDIA_SOUND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

/* The header's contents. */
typedef struct ek_sound_info {
    const char *format; /* "WAV", "FLAC", "OGG" or "MP3" */
    int rate;           /* frames per second */
    int channels;
    int64_t frames; /* of the file */
    int samples;    /* mono, of 16 kHz: ceil(frames x 16000 / rate), of max_seconds at most */
    size_t memory;  /* bytes that ek_sound_read takes at its peak, an upper bound */
} ek_sound_info;

/* Reads the header and checks every limit. The memory that it takes does not grow with the header's numbers.
 * max_seconds: EK_SOUND_SECONDS, or EK_SOUND_MAX_SECONDS for a sound that is divided (media/mel.h). */
ek_err ek_sound_probe(ek_sound_info *out, const void *bytes, size_t n, int max_seconds);

typedef struct ek_sound {
    int samples;
    float *v; /* owned; -1 to 1, unless the file exceeds that; never NaN or infinite */
} ek_sound;

/* Channels are averaged (float32, in ascending order), then resampled. Integers of b bits are divided by 2^(b-1). */
ek_err ek_sound_read(ek_sound *out, const void *bytes, size_t n, int max_seconds);
void ek_sound_free(ek_sound *s); /* also of a zeroed one */

/* Appends a WAV file of n samples of 16 kHz, float32, to out. Reading the file gives the same samples. False: no
 * memory. */
bool ek_sound_wav(ek_buf *out, const float *v, int n);

#endif
