/* Bytes as text: hexadecimal digits and base64; integers as bytes. */
#ifndef EK_BASE_ENCODING_H
#define EK_BASE_ENCODING_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

/* The value of a hexadecimal digit of either case, 0 to 15; -1: not a digit. */
static inline int ek_hex_digit(int c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* The byte of two hexadecimal digits at s, n bytes long; -1: not two digits. */
static inline int ek_hex_byte(const char *s, size_t n)
{
    const int high = n >= 2 ? ek_hex_digit(s[0]) : -1, low = high >= 0 ? ek_hex_digit(s[1]) : -1;
    return low >= 0 ? high << 4 | low : -1;
}

/* Writes the 2 n lower-case digits of n bytes, and NUL. */
void ek_hex(char *out, const void *bytes, size_t n);

/* Little-endian integers of n bytes, 1 to 8. */
static inline void ek_put_le(void *to, uint64_t v, int n)
{
    uint8_t *p = (uint8_t *)to;
    for (int i = 0; i < n; i++) p[i] = (uint8_t)(v >> 8 * i);
}

static inline uint64_t ek_get_le(const void *from, int n)
{
    const uint8_t *p = (const uint8_t *)from;
    uint64_t v = 0;
    for (int i = 0; i < n; i++) v |= (uint64_t)p[i] << 8 * i;
    return v;
}

static inline void ek_buf_le(ek_buf *out, uint64_t v, int n)
{
    uint8_t bytes[8];
    ek_put_le(bytes, v, n);
    ek_buf_add(out, bytes, (size_t)n);
}

/* Base64 (RFC 4648, with + and /). */

/* Appends the digits of n bytes, padded to a multiple of four. */
void ek_base64_encode(ek_buf *out, const void *bytes, size_t n);
/* Appends the bytes of n base64 digits, by the rules of WHATWG's forgiving decoder: blanks and line breaks are skipped,
 * and padding may be missing. False, with nothing appended, for invalid digits and without memory. */
bool ek_base64_decode(ek_buf *out, const char *s, size_t n);
/* The same for digits that may be escaped as in a URL: %2B for +. */
bool ek_base64_decode_escaped(ek_buf *out, const char *s, size_t n);
/* An upper bound of the decoded bytes; at most 6 too many if all n bytes are digits. Looks only at digits. */
size_t ek_base64_bytes(const char *s, size_t n, bool escaped);

#endif
