/* The names of the reply's markers. Inside src/text. */
#ifndef EK_TEXT_REPLY_MARKS_H
#define EK_TEXT_REPLY_MARKS_H

#include "text/reply/reply.h"

const char *ek_mark_text(ek_mark m); /* its spelling; "" for TEXT and OTHER */
/* True if s[0..n) starts with a marker: sets *m, and *used to its length. If false, *used is n when s could be the
 * beginning of a marker, else 0. */
bool ek_mark_spelled(const char *s, size_t n, ek_mark *m, size_t *used);

#endif
