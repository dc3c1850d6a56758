/* The compression function of SHA-256, plain and with the SHA instructions of x86. Inside src/base, and for its test.
 */
#ifndef EK_BASE_SHA256_BLOCKS_H
#define EK_BASE_SHA256_BLOCKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

extern const uint32_t ek_sha256_keys[64];

/* Takes n blocks of 64 bytes into h. Both give the same. */
void ek_sha256_blocks(uint32_t h[8], const uint8_t *p, size_t n);
void ek_sha256_blocks_x86(uint32_t h[8], const uint8_t *p, size_t n); /* only if ek_sha256_has_x86 */
bool ek_sha256_has_x86(void);

#endif
