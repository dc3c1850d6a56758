/* Deflate (RFC 1951) within zlib's frame (RFC 1950), for the few texts of a picture's header: no library that a header
 * would wait for, and a bound on what comes out. Inside src/decode. */
#ifndef EK_DECODE_INFLATE_H
#define EK_DECODE_INFLATE_H

#include <stddef.h>
#include <stdint.h>

/* Bytes written to `to`, max at most; fewer where the data end or are damaged. Linear in both. */
size_t ek_inflate(uint8_t *to, size_t max, const uint8_t *from, size_t n);

#endif
