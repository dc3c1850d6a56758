/* data: URLs (RFC 2397), as clients put files into them. Inside src/serve. */
#ifndef EK_SERVE_DATA_URL_H
#define EK_SERVE_DATA_URL_H

#include <stdbool.h>
#include <stddef.h>

typedef struct ek_data_url {
    const char *type; /* TYPE/SUBTYPE as it was written, n_type bytes; n_type 0: none is said */
    size_t n_type;
    const char *data; /* behind the comma */
    size_t n_data;
    bool base64;
} ek_data_url;

/* Does it begin with "data:", in any case of letters? */
bool ek_is_data_url(const char *s, size_t n);
/* data:[TYPE/SUBTYPE][;NAME=VALUE]…[;base64],DATA. NULL, or why it is none, a clause for a sentence; out is then
 * undefined. Spans point into s. Time is linear in the bytes before the comma, of which there may be 1,024; DATA is not
 * looked at. */
const char *ek_data_url_parse(ek_data_url *out, const char *s, size_t n);

#endif
