/* Text that a client gets as an opaque string and sends back in a later request: the reasoning of APIs whose clients
 * keep it without showing it. It is encoded, not encrypted, and nothing relies on it: a client that makes one up has
 * written the reasoning itself, which every API lets it do anyway. */
#ifndef EK_SERVE_SEALED_H
#define EK_SERVE_SEALED_H

#include <stdbool.h>

#include "base/buf.h"

/* Appends n bytes of text as an opaque string of ASCII letters, digits, '+', '/' and '='. */
void ek_seal(ek_buf *out, const char *text, size_t n);
/* Appends the text of a string that ek_seal made. False, with out unchanged, for any other. */
bool ek_unseal(ek_buf *out, const char *s, size_t n);

#endif
