/* Reading a regular expression: the reader's place, and what a single character of the text may be there. Inside
 * src/text/regex/regex_*.c. */
#ifndef EK_TEXT_REGEX_READ_H
#define EK_TEXT_REGEX_READ_H

#include "text/regex/regex_work.h"

typedef struct ek_regex_reader {
    ek_regex_work *w;
    const char *s;
    size_t n, at;
    int depth; /* groups that are open */
} ek_regex_reader;

/* EINVAL "at character N: …", for where the reader stands. */
__attribute__((format(printf, 2, 3))) ek_err ek_regex_refuse(const ek_regex_reader *p, const char *fmt, ...);

/* The byte so many further on, or -1. */
static inline int ek_regex_peek(const ek_regex_reader *p, size_t ahead)
{
    return p->at + ahead < p->n ? (uint8_t)p->s[p->at + ahead] : -1;
}

/* The set of every character: the first of an expression. */
ek_err ek_regex_any_set(ek_regex_reader *p, int32_t *out);
/* The set that is spelled here; the reader moves behind it. */
ek_err ek_regex_read_set(ek_regex_reader *p, int32_t *out);

#endif
