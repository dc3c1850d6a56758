/* The bytes of a request's body while they arrive. Large ones are mapped: growing moves pages instead of copying
 * bytes, which would stop the event loop, and what is freed goes back to the system at once. Being out of memory is an
 * answer here, not the end of the program. */
#ifndef EK_SERVE_BODY_H
#define EK_SERVE_BODY_H

#include <stdbool.h>
#include <stddef.h>

/* Zero-initialise. Owned by one thread at a time. */
typedef struct ek_body {
    char *data; /* NUL-terminated; NULL while empty */
    size_t len, cap;
    bool mapped;
} ek_body;

bool ek_body_add(ek_body *b, const char *bytes, size_t n); /* false: no memory; b is as before */
void ek_body_fini(ek_body *b);                             /* empty again */
const char *ek_body_text(const ek_body *b);                /* never NULL */

#endif
