/* A sound as models hear it: log-mel rows for a tower, runs of samples for a model without one, and how many soft
 * tokens they take. */
#ifndef EK_MEDIA_MEL_H
#define EK_MEDIA_MEL_H

#include "media/sound.h"

enum { EK_MEL_BINS = 128, EK_SOUND_RUN = 640 };

typedef enum ek_sound_kind {
    EK_SOUND_TOWER,  /* log-mel rows; four to a token */
    EK_SOUND_UNIFIED /* without a tower (12B): runs of 640 samples, the last filled with zeros; one to a token */
} ek_sound_kind;

int ek_mel_frames(int samples); /* valid ones: floor((samples - 1) / 160) from 161 samples on, else 0 */

/* Soft tokens of so many samples of 16 kHz, which the header tells. EINVAL if there are none or more than 30 s. */
ek_err ek_sound_tokens(int *out, int samples, ek_sound_kind kind);

/* rows: ek_mel_frames(s->samples) x EK_MEL_BINS, ln(mel + 0.001). Row t sees the samples [160 t - 160, 160 t + 160),
 * zeros before the first: a periodic Hann window of 320 (float32), magnitudes of a transform of 512, a bank of
 * triangles (HTK's scale, 0 to 8000 Hz, no area norm). Float64 in a written order, without libm: the same bits on any
 * machine. Cannot fail. Formula: transformers, Gemma4AudioFeatureExtractor. */
void ek_mel_rows(float *rows, const ek_sound *s);

#endif
