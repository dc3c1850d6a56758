/* Random numbers as pure functions of a key, without stream state, so that batching and resumption change nothing; and
 * the system's random numbers, for keys, ids and salts. */
#ifndef EK_BASE_RNG_H
#define EK_BASE_RNG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Philox4x32-10 (Salmon et al., 2011): out = f(key, counter). */
void ek_philox(uint32_t out[4], const uint32_t counter[4], const uint32_t key[2]);

/* The finaliser of SplitMix64: a hash of an integer, for digests, tests and synthetic weights. */
static inline uint64_t ek_mix64(uint64_t x)
{
    x += 0x9E3779B97F4A7C15u;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
}

uint64_t ek_fnv1a64(const char *s); /* of a NUL-terminated string */

/* 64-bit hash of bytes, chained through seed. For comparisons and indexes, not for secrets. */
uint64_t ek_hash64(uint64_t seed, const void *data, uint64_t n);

/* Fills out with n unpredictable bytes. False if the system has none; out then has bytes that differ per call and
 * process, good for ids and not for secrets. Any thread. */
bool ek_random(void *out, size_t n);

#endif
