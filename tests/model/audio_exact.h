/* An audio tower of audio_scene.h in float64, in the steps of transformers (blocks of queries, padding, relative
 * shift), which share nothing with the program. */
#ifndef EK_TESTS_MODEL_AUDIO_EXACT_H
#define EK_TESTS_MODEL_AUDIO_EXACT_H

#include "audio_scene.h"

/* What the rows must be; free them. clipped: the fraction of values that bounds cut. */
double *audio_exact(const audio_spec *s, const ek_sound *sound, int *n, double *clipped);

#endif
