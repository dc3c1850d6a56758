/* Cached pages on a server of Redis' protocol (Redis, Valkey), which any number of processes share: a backend of the
 * store, behind memory and disk or alone.
 *
 * A page's name follows from its model, tenant and tokens, so that nobody finds the page of another one. A checksum
 * exposes a page that does not belong to its name. A server that is slow, full, away or wrong costs time and nothing
 * else: separate threads wait for it (reads.c, writes.c), and pages that come too late are computed. The server alone
 * decides which pages it keeps, and for how long (docs/SCALE.md). */
#ifndef EK_CACHE_STORE_SHARED_H
#define EK_CACHE_STORE_SHARED_H

#include "cache/store.h"

typedef struct ek_shared_opts {
    const char *url;  /* see link.h */
    const char *ca;   /* PEM file of the authorities that may certify the server; NULL: the system's */
    const char *cert; /* PEM file with the client's certificate and key; NULL: none */
    double rate;      /* bytes per second, each way; 0: any */
    double max_bytes; /* maximum bytes waiting to be written; maximum bytes requested at a time */
    bool read_only;   /* writes nothing, but still deletes wrong pages */
} ek_shared_opts;

/* what: everything but the tokens that a page's bytes depend on. Connects later, on its own thread: the log reports a
 * server that cannot be reached, and the thread tries again. EINVAL for the URL, EUNSUPPORTED for TLS in a build
 * without OpenSSL. */
ek_err ek_store_shared_open(ek_store_backend *out, const ek_shared_opts *o, const char *what,
                            const ek_kv_layout *layout);

/* EINVAL, EUNSUPPORTED as above, without opening anything. */
ek_err ek_store_shared_check(const char *url);

/* Both as one backend: pages are written to both; pages that `upper` lacks are read from `lower` and not copied to
 * `upper`. The caller gives up both. */
void ek_store_both(ek_store_backend *out, const ek_store_backend *upper, const ek_store_backend *lower);

#endif
