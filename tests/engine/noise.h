/* The sampler's noise by its definition (docs/NUMERICS.md 7), one token at a time. */
#ifndef EK_TESTS_ENGINE_NOISE_H
#define EK_TESTS_ENGINE_NOISE_H

#include <stdint.h>

/* Gumbel noise of one token for EK_NOISE_SAMPLE: ek_standard_gumbel of a word of Philox4x32-10 with key
 * seed and counter (pos, token / 4, purpose, 0), lane token % 4. In [-3.13, 22.875). */
float gumbel_of(uint64_t seed, int pos, int32_t token);

#endif
