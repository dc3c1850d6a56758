/* A growing byte string. Zero-initialise; free with ek_buf_fini. Running out of memory ends the program, so
 * callers bound what they append. */
#ifndef EK_BASE_BUF_H
#define EK_BASE_BUF_H

#include <stddef.h>
#include <stdint.h>

typedef struct ek_buf {
    char *data; /* data[len] is '\0' once anything was appended; NULL when empty */
    size_t len, cap;
} ek_buf;

void ek_buf_add(ek_buf *b, const void *bytes, size_t n);
void ek_buf_str(ek_buf *b, const char *s);
void ek_buf_char(ek_buf *b, char c);
__attribute__((format(printf, 2, 3))) void ek_buf_fmt(ek_buf *b, const char *fmt, ...);
void ek_buf_clear(ek_buf *b); /* keeps the memory */
void ek_buf_fini(ek_buf *b);
const char *ek_buf_text(const ek_buf *b); /* never NULL */

/* malloc and friends that never return NULL: they print one line and abort. */
void *ek_alloc(size_t n); /* zeroed */
void *ek_realloc(void *p, size_t n);
char *ek_strdup(const char *s);
/* 64-byte aligned, zeroed on demand by the kernel; NULL with ek_fail when refused. */
void *ek_alloc_big(size_t n);
void ek_free_big(void *p, size_t n);

#endif
