/* A sound as model input: log-mel rows for a tower, runs of samples for a model without one, and their number of soft
 * tokens. */
#ifndef EK_MEDIA_MEL_H
#define EK_MEDIA_MEL_H

#include "media/sound.h"

enum { EK_MEL_BINS = 128, EK_SOUND_RUN = 640 };

typedef enum ek_sound_kind {
    EK_SOUND_TOWER,  /* log-mel rows; four to a token */
    EK_SOUND_UNIFIED /* no tower (12B): runs of 640 samples, the last filled up with zeros; one per token */
} ek_sound_kind;

int ek_mel_frames(int samples); /* valid frames: floor((samples - 1) / 160) from 161 samples on, else 0 */

/* Soft tokens of a number of samples at 16 kHz, known from the header. EINVAL if there are none or more than 30 s. */
ek_err ek_sound_tokens(int *out, int samples, ek_sound_kind kind);

/* A longer sound is divided into pieces of EK_SOUND_MAX_SAMPLES samples, the last with the rest. Each piece is a sound
 * of its own: a model's input for one does not depend on the others. Returns their number. A rest too short for one
 * token (10 ms of a tower) is dropped. 0: the whole sound is too short. */
int ek_sound_pieces(int samples, ek_sound_kind kind);
/* Piece i, i < ek_sound_pieces: borrowed from s, never freed by itself. */
ek_sound ek_sound_piece(const ek_sound *s, int i);
/* Soft tokens of all pieces together. EINVAL if there are none, or more than EK_SOUND_MAX_SECONDS. */
ek_err ek_sound_tokens_long(int *out, int samples, ek_sound_kind kind);

/* rows: ek_mel_frames(s->samples) x EK_MEL_BINS floats, ln(mel + 0.001). Row t covers the samples [160 t - 160, 160 t +
 * 160), with zeros before the first: a periodic Hann window of 320 (float32), magnitudes of a transform of 512, a bank
 * of triangles (HTK's scale, 0 to 8000 Hz, no area norm). Float64 in a fixed order, without libm: the same bits on any
 * machine. Cannot fail. Formula: transformers, Gemma4AudioFeatureExtractor. */
void ek_mel_rows(float *rows, const ek_sound *s);

#endif
