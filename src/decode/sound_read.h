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

#endif
