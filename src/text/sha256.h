/* SHA-256 (FIPS 180-4), to recognise published files by their hash. Inside src/text. */
#ifndef EK_TEXT_SHA256_H
#define EK_TEXT_SHA256_H

#include <stddef.h>

void ek_sha256_hex(char out[65], const void *data, size_t n); /* lower case, NUL-terminated */

#endif
