/* Text from outside (files, names, arguments, requests) in a form that a terminal can be given: no byte of it moves the
 * cursor, turns text around or ends the line. Escaped are control characters (C0, DEL and the C1 of ISO 6429, which
 * terminals obey as one byte and as UTF-8), separators of lines, controls of direction, and bytes that are no UTF-8:
 * \x1b for a byte, \u009b for a character. Everything else stays, backslashes too. */
#ifndef EK_BASE_PLAIN_H
#define EK_BASE_PLAIN_H

#include <stdbool.h>
#include <stddef.h>

/* Bytes of the character that s, n > 0 bytes, begins with; *plain: a terminal may have it as it is. */
size_t ek_plain_char(const char *s, size_t n, bool *plain);

/* n bytes of text, escaped, into size > 0 bytes of out, with a NUL; cut between characters where there is no more room.
 * Returns the bytes written, without the NUL. */
size_t ek_plain(char *out, size_t size, const char *text, size_t n);

/* A name or value in a sentence: escaped, cut behind 80 characters, with an ellipsis then. Returns out. */
enum { EK_PLAIN_NAME = 80 * 6 + 4 };
const char *ek_plain_name(char out[EK_PLAIN_NAME], const char *text);

#endif
