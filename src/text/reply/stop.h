/* Stop strings: a streaming search in visible text. Text is held back only while it may be the start of a match. */
#ifndef EK_TEXT_STOP_H
#define EK_TEXT_STOP_H

#include "base/buf.h"
#include "base/err.h"

enum { EK_STOP_MAX = 64, EK_STOP_BYTES = 4096 }; /* maximum strings, maximum bytes per string */

typedef struct ek_stop ek_stop;

/* Copies n strings; empty ones are ignored. EINVAL beyond the limits. */
ek_err ek_stop_open(ek_stop **out, const char *const *strings, const size_t *lengths, int n);
void ek_stop_close(ek_stop *s);

/* Takes more text; appends to out the text that is certain to be visible. Returns -1, or the index of
 * the string that matched: out then ends before the match, and everything later is ignored
 * (the same index is returned again). The match that ends first wins, of those the longest;
 * where the text is cut does not matter. s may be NULL: no strings. */
int ek_stop_feed(ek_stop *s, const char *text, size_t n, ek_buf *out);
/* The text ended, or something that is no text interrupts it: appends the text that was held back; nothing after a
 * match. What comes next begins a text of its own. */
void ek_stop_end(ek_stop *s, ek_buf *out);

#endif
