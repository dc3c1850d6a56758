/* The server that shares pages: its URL, and connections whose every wait ends. Inside src/cache/shared; the URL also
 * for the check of an option. */
#ifndef EK_CACHE_SHARED_LINK_H
#define EK_CACHE_SHARED_LINK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

/* redis://[[USER]:PASSWORD@]HOST[:PORT][/DB] */

enum { EK_SHARED_PORT = 6379, EK_SHARED_TEXT = 400 };

typedef struct ek_shared_url {
    bool tls;
    char *host; /* a name or an address, that of IPv6 without brackets */
    int port, db;
    char *user, *password; /* decoded; NULL: none. No user without a password */
} ek_shared_url;

/* redis and valkey, or rediss and valkeys for TLS. USER and PASSWORD may hold %XX for bytes that would end them. EINVAL
 * says what is wrong with it, and shows nothing in front of the last @. out is
 * empty then. */
ek_err ek_shared_url_parse(ek_shared_url *out, const char *text);
void ek_shared_url_fini(ek_shared_url *u); /* a zeroed one is allowed */

/* For logs: without the password. Returns out. */
const char *ek_shared_url_text(const ek_shared_url *u, char out[EK_SHARED_TEXT]);

/* A connection: TCP, or TLS over it, with a deadline for each call. */
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
