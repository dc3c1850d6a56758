/* Inside src/model/tower: the encoders of sounds, the conformer and the 12B's runs of samples. */
#ifndef EK_MODEL_TOWER_AUDIO_H
#define EK_MODEL_TOWER_AUDIO_H

#include "model/tower/tower_part.h"

/* The 12B's: runs of EK_SOUND_RUN samples, normed, and a projection. */
typedef struct ek_sound_runs {
    ek_tower_part part;
    float eps;
    ek_linear embed;
} ek_sound_runs;

const ek_sound_runs *ek_sound_runs_of(const ek_tower_part *p); /* NULL: an encoder of another kind, or none */

/* Reads audio_config of b->from, binds all weights and allocates the part. *out NULL: the model takes no sounds. kind
 * is set otherwise. */
ek_err ek_tower_audio_open(ek_tower_part **out, ek_sound_kind *kind, ek_tower_binder *b, const ek_tower_ops *kernels,
                           int hidden);
/* tokens: of ek_sound_tokens for that many samples, which tower.c has checked. */
void ek_tower_audio_cost(ek_tower_cost *out, const ek_tower_part *p, int samples, int tokens);
/* The weights are packed and ready. Copies what it needs of the sound. ENOMEM. */
ek_err ek_tower_audio_begin(ek_tower_work **out, const ek_tower_part *p, const ek_sound *sound, int tokens);

#endif
