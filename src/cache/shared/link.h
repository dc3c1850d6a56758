/* A connection whose every wait ends: TCP, or TLS over it, with a deadline for each call. Inside src/cache/shared. */
#ifndef EK_CACHE_SHARED_LINK_H
#define EK_CACHE_SHARED_LINK_H

#include <stdatomic.h>
#include <stddef.h>

#include "cache/shared/url.h"

typedef struct ek_link ek_link;

typedef struct ek_link_opts {
    const ek_shared_url *url;
    const char *ca;          /* PEM file: whose certificates are believed; NULL: those that the system believes */
    const char *cert;        /* PEM file: the client's certificate and its key; NULL: none */
    const atomic_bool *stop; /* set: every wait ends at once */
} ek_link_opts;

bool ek_link_has_tls(void); /* this build */

/* deadline, here and below: of ek_now. EIO, or ETIMEOUT, with the reason; for TLS also if the certificate is not
 * the host's. EUNSUPPORTED: TLS in a build without it. */
ek_err ek_link_open(ek_link **out, const ek_link_opts *o, double deadline);
void ek_link_close(ek_link *l); /* NULL is allowed */

ek_err ek_link_send(ek_link *l, const void *bytes, size_t n, double deadline);
/* At least one byte, at most room. */
ek_err ek_link_receive(ek_link *l, void *bytes, size_t room, size_t *got, double deadline);

#endif
