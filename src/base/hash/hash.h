/* Digests and checksums of bytes. */
#ifndef EK_BASE_HASH_HASH_H
#define EK_BASE_HASH_HASH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* CRC-32 (zlib, PNG, ISO 3309), for names of bytes in reports. It detects damage, not an adversary. */

/* The CRC after n more bytes; crc: the CRC of the bytes before, 0 at the beginning. */
uint32_t ek_crc32(uint32_t crc, const void *bytes, size_t n);

/* SHA-1 (FIPS 180-4), git's name of objects. It detects damage, not an adversary. */

typedef struct ek_sha1_state {
    uint32_t h[5];
    uint64_t n; /* bytes so far; the last n % 64 wait in rest */
    uint8_t rest[64];
} ek_sha1_state;

/* Call init, add for parts of any size, then end once. */
void ek_sha1_init(ek_sha1_state *s);
void ek_sha1_add(ek_sha1_state *s, const void *data, size_t n);
void ek_sha1_end(ek_sha1_state *s, char out[41]); /* 40 lower-case digits and NUL */

/* SHA-256 (FIPS 180-4): recognises published chat templates, images in prompts, and downloads. */

void ek_sha256(uint8_t out[32], const void *data, size_t n);
void ek_sha256_hex(char out[65], const void *data, size_t n); /* 64 lower-case digits and NUL; n in bytes */

/* Hashes two messages of n bytes each; faster than two calls, because the instructions of one fill the waits of the
 * other. */
void ek_sha256_two(uint8_t a_out[32], uint8_t b_out[32], const void *a, const void *b, size_t n);

/* Hashing in parts of any size: init, any number of adds, one end. */
typedef struct ek_sha256_state {
    uint32_t h[8];
    uint64_t n; /* bytes so far; the last n % 64 wait in rest */
    uint8_t rest[64];
} ek_sha256_state;

void ek_sha256_init(ek_sha256_state *s);
void ek_sha256_add(ek_sha256_state *s, const void *data, size_t n);
void ek_sha256_add_u64(ek_sha256_state *s, uint64_t v); /* adds 8 bytes, little-endian */
void ek_sha256_end(ek_sha256_state *s, char out[65]);   /* hexadecimal, like ek_sha256_hex */
void ek_sha256_end_bytes(ek_sha256_state *s, uint8_t out[32]);

/* --- the compression function of SHA-256, plain and with x86's SHA instructions; inside src/base and for its test ---
 */

extern const uint32_t ek_sha256_keys[64];

/* Hashes n blocks of 64 bytes into h. Both give the same result. */
void ek_sha256_blocks(uint32_t h[8], const uint8_t *p, size_t n);
void ek_sha256_blocks_x86(uint32_t h[8], const uint8_t *p, size_t n); /* only if ek_sha256_has_x86 */
/* Hashes n blocks of p into a, and n blocks of q into b. */
void ek_sha256_two_blocks_x86(uint32_t a[8], uint32_t b[8], const uint8_t *p, const uint8_t *q, size_t n);
bool ek_sha256_has_x86(void);

#endif
