/* Stored replies on a server with Redis' protocol, beside the keys of pages (cache/shared/record.h). Processes with
 * equal model and arithmetic share them.
 *
 *   key     evenkeel:reply:1:SPACE:KEY: 32 digits of the identity's SHA-256, 64 of the reply's key
 *   value   the record (replies/record.h)
 *
 * A record with a wrong sum, key or vocabulary is deleted and counted. A server that is slow, unreachable or full costs
 * a lookup at most a second, until the client pauses; records are then not written. After a wrong reply this process
 * does not use the server again. */
#ifndef EK_REPLIES_SHARED_H
#define EK_REPLIES_SHARED_H

#include "replies/replies.h"

typedef struct ek_reply_shared_opts {
    const char *url;      /* cache/shared/link.h */
    const char *ca;       /* PEM file with the authorities for the server; NULL: the system's */
    const char *cert;     /* PEM file with the client's certificate and key; NULL: none */
    const char *identity; /* ek_replies_opts.identity */
    int n_vocab;
    double max_age; /* seconds that the server keeps a reply; 0: no limit */
} ek_reply_shared_opts;

/* Connects in its own time. EINVAL for the URL, EUNSUPPORTED for TLS in a build without it, ENOMEM. */
ek_err ek_reply_shared_open(ek_reply_backend *out, const ek_reply_shared_opts *o);
/* Whether lookups have a connection; for tests. */
bool ek_reply_shared_is_up(const ek_reply_backend *b);

#endif
