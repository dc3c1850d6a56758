/* SHA-1 (FIPS 180-4), which git names its objects by. It protects against damage, not against an adversary. */
#ifndef EK_BASE_SHA1_H
#define EK_BASE_SHA1_H

#include <stddef.h>
#include <stdint.h>

typedef struct ek_sha1_state {
    uint32_t h[5];
    uint64_t n; /* bytes so far; the last n % 64 wait in rest */
    uint8_t rest[64];
} ek_sha1_state;

/* Parts of any size; end once. */
void ek_sha1_init(ek_sha1_state *s);
void ek_sha1_add(ek_sha1_state *s, const void *data, size_t n);
void ek_sha1_end(ek_sha1_state *s, char out[41]); /* 40 lower-case digits and NUL */

#endif
