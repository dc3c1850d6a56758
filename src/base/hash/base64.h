/* Base64 (RFC 4648, with the digits + and /). */
#ifndef EK_BASE_BASE64_H
#define EK_BASE_BASE64_H

#include <stdbool.h>

#include "base/buf.h"

/* Appends the digits of n bytes, padded to a multiple of four. */
void ek_base64_encode(ek_buf *out, const void *bytes, size_t n);
/* Appends the bytes that n digits stand for, as WHATWG's forgiving decoder reads them: blanks and line breaks between
 * them are skipped; the padding may be missing. false, and nothing appended, for anything else, and where the system
 * has no memory for them. */
bool ek_base64_decode(ek_buf *out, const char *s, size_t n);
/* The same of digits that may be written as in a URL: %2B for +. */
bool ek_base64_decode_escaped(ek_buf *out, const char *s, size_t n);
/* At least the bytes that decoding appends, and at most 6 more where all n are digits; it reads the digits alone. */
size_t ek_base64_bytes(const char *s, size_t n, bool escaped);

#endif
