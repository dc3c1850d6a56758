#include "model/tower/tower_audio.h"

/* Sounds are not encoded yet: a model with an audio tower opens as one without. */
ek_err ek_tower_audio_open(ek_tower_part **out, ek_sound_kind *kind, ek_tower_binder *b, const ek_tower_ops *kernels,
                           int hidden)
{
    (void)kind, (void)b, (void)kernels, (void)hidden;
    *out = NULL;
    return EK_OK;
}

void ek_tower_audio_cost(ek_tower_cost *out, const ek_tower_part *p, int samples, int tokens)
{
    (void)p, (void)samples;
    *out = (ek_tower_cost){.rows = tokens};
}

ek_err ek_tower_audio_begin(ek_tower_work **out, const ek_tower_part *p, const ek_sound *sound, int tokens)
{
    (void)p, (void)sound, (void)tokens;
    *out = NULL;
    return ek_fail(EK_EUNSUPPORTED, "audio cannot be encoded yet");
}
