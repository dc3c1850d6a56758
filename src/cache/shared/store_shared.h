/* Cached pages on a server of Redis' protocol (Redis, Valkey), which any number of processes share: a backend of the
 * store, behind memory and disk or alone.
 *
 * Pages are named by what they are made of, so that nobody can find another model's, another tenant's or another
 * prompt's, and one that is not what its name says is seen by its checksum. A server that is slow, full, away or wrong
 * costs time and no more: threads of its own wait for it (reads.h, writes.h), and what does not come in time is
 * computed. What the server keeps and for how long is the server's business (docs/SCALE.md). */
#ifndef EK_CACHE_STORE_SHARED_H
#define EK_CACHE_STORE_SHARED_H

#include "cache/store.h"

typedef struct ek_shared_opts {
    const char *url;  /* shared/url.h */
    const char *ca;   /* PEM file of whom to believe about the server; NULL: the system's */
    const char *cert; /* PEM file with the client's certificate and key; NULL: none */
    double rate;      /* bytes per second, each way; 0: any */
    double max_bytes; /* that wait to be written, and that were asked for at a time */
    bool read_only;   /* nothing is written but the end of wrong pages */
} ek_shared_opts;

/* what: everything that the bytes of a page depend on besides its tokens. Connects in its own time: a server that
 * cannot be reached is told in the log, and asked again. EINVAL for the URL, EUNSUPPORTED for TLS in a build
 * without OpenSSL. */
ek_err ek_store_shared_open(ek_store_backend *out, const ek_shared_opts *o, const char *what,
                            const ek_kv_layout *layout);

/* EINVAL, EUNSUPPORTED as above, without opening anything. */
ek_err ek_store_shared_check(const char *url);

/* Both as one backend: what is written goes to both, what `upper` lacks is read in `lower` and not kept above. Both are
 * taken over. */
void ek_store_both(ek_store_backend *out, const ek_store_backend *upper, const ek_store_backend *lower);

#endif
