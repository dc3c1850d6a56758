/* The page server's URL, and connections whose waits are all bounded. Inside src/cache/shared; the URL also for the
 * check of an option. */
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
    char *host; /* a name or an address; IPv6 without brackets */
    int port, db;
    char *user, *password; /* decoded; NULL: none. A user requires a password */
} ek_shared_url;

/* Schemes: redis and valkey, or rediss and valkeys for TLS. USER and PASSWORD may hold %XX for bytes that would end
 * them. EINVAL names the fault without the text before the last @; out is empty then. */
ek_err ek_shared_url_parse(ek_shared_url *out, const char *text);
void ek_shared_url_fini(ek_shared_url *u); /* a zeroed one is allowed */

/* The URL without the password, for logs. Returns out. */
const char *ek_shared_url_text(const ek_shared_url *u, char out[EK_SHARED_TEXT]);

/* A connection: TCP, or TLS over it, with a deadline for each call. */
typedef struct ek_link ek_link;

typedef struct ek_link_opts {
    const ek_shared_url *url;
    const char *ca;          /* PEM file of trusted authorities; NULL: the system's */
    const char *cert;        /* PEM file of the client's certificate and key; NULL: none */
    const atomic_bool *stop; /* when set, every wait ends at once */
} ek_link_opts;

bool ek_link_has_tls(void); /* whether this build has TLS */

/* deadline, here and below: by ek_now. EIO, or ETIMEOUT, with the reason; for TLS also if the certificate is not the
 * host's. EUNSUPPORTED: TLS in a build without it. */
ek_err ek_link_open(ek_link **out, const ek_link_opts *o, double deadline);
void ek_link_close(ek_link *l); /* NULL is allowed */

ek_err ek_link_send(ek_link *l, const void *bytes, size_t n, double deadline);
/* Receives at least one byte, at most room. */
ek_err ek_link_receive(ek_link *l, void *bytes, size_t room, size_t *got, double deadline);

#endif
