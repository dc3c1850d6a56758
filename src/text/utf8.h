/* UTF-8: reading, cleaning, a streaming decoder, and the Unicode properties that the chat template needs. Strings are
 * (pointer, length in bytes); NUL is an ordinary character. */
#ifndef EK_TEXT_UTF8_H
#define EK_TEXT_UTF8_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"

#define EK_UTF8_BAD "\xEF\xBF\xBD" /* U+FFFD */

/* Reads one scalar from s[0..n), n >= 1. Returns its length and sets *cp; for ill-formed
 * input returns minus the length of the maximal ill-formed subpart (Unicode 15, 3.9) and
 * sets *cp to U+FFFD. */
int ek_utf8_next(const char *s, size_t n, uint32_t *cp);
int ek_utf8_put(char out[4], uint32_t cp);  /* cp is a scalar; returns 1..4 */
void ek_utf8_add(ek_buf *out, uint32_t cp); /* appends the scalar cp */
bool ek_utf8_valid(const char *s, size_t n);
/* Scalars of well-formed s; of other s the bytes that are no continuation. */
size_t ek_utf8_count(const char *s, size_t n);
/* Appends s with every maximal ill-formed subpart replaced by one U+FFFD. */
void ek_utf8_clean(ek_buf *out, const char *s, size_t n);

/* Streaming decoder: writes each scalar once it is complete. Bytes that can no longer become a scalar are written as
 * U+FFFD, one per maximal subpart. The result equals ek_utf8_clean of the whole, wherever the input is divided.
 * Zero-initialise. */
typedef struct ek_utf8_stream {
    char pending[4];
    int n;
} ek_utf8_stream;

void ek_utf8_stream_add(ek_utf8_stream *u, ek_buf *out, const char *s, size_t n);
void ek_utf8_stream_end(ek_utf8_stream *u, ek_buf *out); /* pending bytes become one U+FFFD */

/* Unicode properties of Python's str (unicodedata 14.0). Input is well-formed. */
bool ek_utf8_is_space(uint32_t cp);                       /* str.isspace: characters that str.strip removes */
void ek_utf8_strip(const char **s, size_t *n);            /* str.strip, in place */
void ek_utf8_lower(ek_buf *out, const char *s, size_t n); /* str.lower, with final sigma */
void ek_utf8_upper(ek_buf *out, const char *s, size_t n); /* str.upper */
bool ek_utf8_is_printable(uint32_t cp);                   /* str.isprintable */
bool ek_utf8_is_word(uint32_t cp);                        /* \w of a regular expression */

#endif
