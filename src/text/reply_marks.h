/* The markers by name; inside src/text. */
#ifndef EK_TEXT_REPLY_MARKS_H
#define EK_TEXT_REPLY_MARKS_H

#include "text/reply.h"

const char *ek_mark_text(ek_mark m); /* as it is spelled; "" for TEXT and OTHER */
/* Is a marker spelled at s? Its mark and length in *used. If not, *used is n when s could be the
 * beginning of one, else 0. */
bool ek_mark_spelled(const char *s, size_t n, ek_mark *m, size_t *used);

#endif
