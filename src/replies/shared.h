/* Stored replies on a server of Redis' protocol, beside the pages' keys (cache/shared/record.h): every process of one
 * model and arithmetic answers from what the others computed.
 *
 *   key     evenkeel:reply:1:SPACE:KEY: 32 digits of the identity's SHA-256, 64 of the reply's key
 *   value   the record (replies/record.h)
 *
 * A record of another sum, key or vocabulary is deleted and counted. A server that is slow, away or full costs lookups
 * at most a second each until it rests, and what is not written; one that held a wrong reply is not asked again by this
 * process. */
#ifndef EK_REPLIES_SHARED_H
#define EK_REPLIES_SHARED_H

#include "replies/replies.h"

typedef struct ek_reply_shared_opts {
    const char *url;      /* cache/shared/link.h */
    const char *ca;       /* PEM file of whom to believe about the server; NULL: the system's */
    const char *cert;     /* PEM file with the client's certificate and key; NULL: none */
    const char *identity; /* ek_replies_opts.identity */
    int n_vocab;
    double max_age; /* seconds that the server keeps a reply; 0: as long as it wants to */
} ek_reply_shared_opts;

/* Connects in its own time. EINVAL for the URL, EUNSUPPORTED for TLS in a build without it, ENOMEM. */
ek_err ek_reply_shared_open(ek_reply_backend *out, const ek_reply_shared_opts *o);
/* Whether lookups have a connection; for tests. */
bool ek_reply_shared_is_up(const ek_reply_backend *b);

#endif
