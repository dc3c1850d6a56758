/* data: URLs (RFC 2397), as clients put files into them and as browsers read them (WHATWG). Inside src/serve. */
#ifndef EK_SERVE_DATA_URL_H
#define EK_SERVE_DATA_URL_H

#include "base/buf.h"

typedef struct ek_data_url {
    const char *type; /* TYPE/SUBTYPE as it was written, n_type bytes; n_type 0: none is said */
    size_t n_type;
    const char *data; /* behind the comma */
    size_t n_data;
    bool base64;
} ek_data_url;

/* Blanks and control characters around a URL are none of it. */
void ek_url_trim(const char **s, size_t *n);
/* Does it begin with "data:", in any case of letters, behind blanks? */
bool ek_is_data_url(const char *s, size_t n);
/* data:[TYPE/SUBTYPE][;PARAMETER]…[;base64],DATA, with blanks beside each of them. NULL, or why it is none, a clause
 * for a sentence; out is then undefined. Spans point into s. Time is linear in the bytes before the comma, of which
 * there may be 1,024; DATA is not looked at. */
const char *ek_data_url_parse(ek_data_url *out, const char *s, size_t n);
/* At least the bytes that DATA stands for; linear. */
size_t ek_data_url_bytes(const ek_data_url *u);
/* Appends them: escapes such as %2B are resolved, base64 is forgiving (base/hash/base64.h), a fragment is dropped.
 * false, and nothing appended, where it is not base64 although it says so, or the system has no memory. */
bool ek_data_url_decode(ek_buf *out, const ek_data_url *u);

#endif
