/* Sounds that exceed a model's limit, divided into pieces of 30 s. Each piece is a sound of its own: a model's input
 * for one piece does not depend on the others. */
#ifndef EK_MEDIA_SPLIT_H
#define EK_MEDIA_SPLIT_H

#include "base/buf.h"
#include "media/mel.h"

/* As ek_sound_probe and ek_sound_read, up to EK_SOUND_MAX_SECONDS. */
ek_err ek_sound_probe_long(ek_sound_info *out, const void *bytes, size_t n);
ek_err ek_sound_read_long(ek_sound *out, const void *bytes, size_t n);

/* The number of pieces: EK_SOUND_MAX_SAMPLES samples each, the last with the rest. A rest too short for one token (10
 * ms of a tower) is dropped. 0: the whole sound is too short. */
int ek_sound_pieces(int samples, ek_sound_kind kind);
/* Piece i, i < ek_sound_pieces: borrowed from s, never freed by itself. */
ek_sound ek_sound_piece(const ek_sound *s, int i);
/* Soft tokens of all pieces together. EINVAL if there are none, or more than EK_SOUND_MAX_SECONDS. */
ek_err ek_sound_tokens_long(int *out, int samples, ek_sound_kind kind);

/* Appends a WAV file of n samples of 16 kHz, float32, to out. Reading the file gives the same samples. False: no
 * memory. */
bool ek_sound_wav(ek_buf *out, const float *v, int n);

#endif
