/* Digests and checksums of bytes. */
#ifndef EK_BASE_HASH_HASH_H
#define EK_BASE_HASH_HASH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* CRC-32 (zlib, PNG, ISO 3309): to name bytes in reports. It finds damage, not an adversary. */

/* Of n more bytes behind those whose CRC is crc; 0 to begin. */
uint32_t ek_crc32(uint32_t crc, const void *bytes, size_t n);

/* SHA-1 (FIPS 180-4), which git names its objects by. It protects against damage, not against an adversary. */

typedef struct ek_sha1_state {
    uint32_t h[5];
    uint64_t n; /* bytes so far; the last n % 64 wait in rest */
    uint8_t rest[64];
} ek_sha1_state;

/* Parts of any size; end once. */
void ek_sha1_init(ek_sha1_state *s);
void ek_sha1_add(ek_sha1_state *s, const void *data, size_t n);
void ek_sha1_end(ek_sha1_state *s, char out[41]); /* 40 lower-case digits and NUL */

/* SHA-256 (FIPS 180-4): to recognise published chat templates, images in prompts, and what was fetched. */

void ek_sha256(uint8_t out[32], const void *data, size_t n);
void ek_sha256_hex(char out[65], const void *data, size_t n); /* 64 lower-case digits and NUL; n in bytes */

/* Of two messages of n bytes each; faster than one after the other where the instructions wait for each other. */
void ek_sha256_two(uint8_t a_out[32], uint8_t b_out[32], const void *a, const void *b, size_t n);

/* The same in parts, of any size. init, add as often as wanted, end once. */
typedef struct ek_sha256_state {
    uint32_t h[8];
    uint64_t n; /* bytes so far; the last n % 64 wait in rest */
    uint8_t rest[64];
} ek_sha256_state;

void ek_sha256_init(ek_sha256_state *s);
void ek_sha256_add(ek_sha256_state *s, const void *data, size_t n);
void ek_sha256_add_u64(ek_sha256_state *s, uint64_t v); /* 8 bytes, the lowest first */
void ek_sha256_end(ek_sha256_state *s, char out[65]);   /* hexadecimal as above */
void ek_sha256_end_bytes(ek_sha256_state *s, uint8_t out[32]);

/* The compression function of SHA-256, plain and with the SHA instructions of x86. Inside src/base and for its test. */

extern const uint32_t ek_sha256_keys[64];

/* Takes n blocks of 64 bytes into h. Both give the same. */
void ek_sha256_blocks(uint32_t h[8], const uint8_t *p, size_t n);
void ek_sha256_blocks_x86(uint32_t h[8], const uint8_t *p, size_t n); /* only if ek_sha256_has_x86 */
/* Takes n blocks of p into a and of q into b. */
void ek_sha256_two_blocks_x86(uint32_t a[8], uint32_t b[8], const uint8_t *p, const uint8_t *q, size_t n);
bool ek_sha256_has_x86(void);

#endif
