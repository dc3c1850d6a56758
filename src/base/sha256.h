/* SHA-256 (FIPS 180-4): to recognise published chat templates, and images in prompts. */
#ifndef EK_BASE_SHA256_H
#define EK_BASE_SHA256_H

#include <stddef.h>
#include <stdint.h>

void ek_sha256(uint8_t out[32], const void *data, size_t n);
void ek_sha256_hex(char out[65], const void *data, size_t n); /* 64 lower-case digits and NUL; n in bytes */

#endif
