/* A growing byte string. Zero-initialise; free with ek_buf_fini. The program ends when memory runs out, so callers
 * limit the appended bytes. Lengths are in bytes. */
#ifndef EK_BASE_BUF_H
#define EK_BASE_BUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ek_buf {
    char *data; /* data[len] is '\0' after the first append; NULL: empty */
    size_t len, cap;
} ek_buf;

/* Makes room for n more bytes, for large n. False if the system has no memory; b is unchanged then. */
bool ek_buf_reserve(ek_buf *b, size_t n);
void ek_buf_add(ek_buf *b, const void *bytes, size_t n);
void ek_buf_str(ek_buf *b, const char *s);
void ek_buf_char(ek_buf *b, char c);
__attribute__((format(printf, 2, 3))) void ek_buf_fmt(ek_buf *b, const char *fmt, ...);
/* Appends a finite number as JSON, always with a point or an exponent, so that typed readers do not take it for an
 * integer: the fewest digits that read back as the same float, or double, laid out as in Python: 30.0, 1e-06 */
void ek_buf_float(ek_buf *b, float x);
void ek_buf_double(ek_buf *b, double x);
void ek_buf_clear(ek_buf *b); /* the memory stays */
void ek_buf_fini(ek_buf *b);
const char *ek_buf_text(const ek_buf *b); /* NUL-terminated, never NULL; valid until b changes */

#endif
