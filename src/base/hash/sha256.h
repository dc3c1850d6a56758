/* SHA-256 (FIPS 180-4): to recognise published chat templates, images in prompts, and what was fetched. */
#ifndef EK_BASE_SHA256_H
#define EK_BASE_SHA256_H

#include <stddef.h>
#include <stdint.h>

void ek_sha256(uint8_t out[32], const void *data, size_t n);
void ek_sha256_hex(char out[65], const void *data, size_t n); /* 64 lower-case digits and NUL; n in bytes */

/* The same in parts, of any size. init, add as often as wanted, end once. */
typedef struct ek_sha256_state {
    uint32_t h[8];
    uint64_t n; /* bytes so far; the last n % 64 wait in rest */
    uint8_t rest[64];
} ek_sha256_state;

void ek_sha256_init(ek_sha256_state *s);
void ek_sha256_add(ek_sha256_state *s, const void *data, size_t n);
void ek_sha256_end(ek_sha256_state *s, char out[65]); /* hexadecimal as above */

#endif
