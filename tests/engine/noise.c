#include "noise.h"

#include "base/hash/rng.h"
#include "engine/sample/sampler.h"
#include "ops/math.h"

float gumbel_of(uint64_t seed, int pos, int32_t token)
{
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    const uint32_t counter[4] = {(uint32_t)pos, (uint32_t)token / 4, EK_NOISE_SAMPLE, 0};
    uint32_t word[4];
    ek_philox(word, counter, key);
    return ek_standard_gumbel(word[token % 4]);
}
