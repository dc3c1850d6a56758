/* Places for stored replies besides memory and cassettes: a file on disk, and a server that processes share. */
#ifndef EK_REPLIES_BACKENDS_H
#define EK_REPLIES_BACKENDS_H

#include "replies/replies.h"

/* --- on disk ---
 *
 * Stored replies in an SQLite file beside that of the pages (cache/store.h has the reason for SQLite). A file
 * belongs to one model and arithmetic, to one user, and to one process at a time. Each record has a sum; a record with
 * a wrong sum is deleted and counted. A file with a damaged structure is deleted and begun anew. Replies that find a
 * full disk are lost. */

typedef struct ek_reply_disk_opts {
    const char *dir;      /* created if it is missing; its parents are not */
    const char *identity; /* ek_replies_opts.identity: the file's name is a hash of it */
    int n_vocab;
    double max_bytes; /* of records; the owner with the most loses the least recently used ones */
    double max_age;   /* seconds; 0: no limit */
    bool read_only;   /* for exports; makes no file */
} ek_reply_disk_opts;

/* EIO with the path, EFORMAT for another program's database, EBUSY if another process uses the file; with read_only,
 * ENOTFOUND if it is missing. */
ek_err ek_reply_disk_open(ek_reply_backend *out, const ek_reply_disk_opts *o);

/* Calls fn with the identity of each store in a folder, sorted, until fn fails. Other files are skipped with a warning.
 * ENOTFOUND: there is no such folder, or no store in it; EBUSY: a server uses a store. */
ek_err ek_reply_disk_list(const char *dir, ek_err (*fn)(void *arg, const char *identity), void *arg);

/* Calls fn with each record stored since a time (seconds since 1970), sorted by key, until fn returns false. */
ek_err ek_reply_disk_each(const ek_reply_backend *b, double since, bool (*fn)(void *arg, ek_reply_record *r),
                          void *arg);

/* --- on a server ---
 *
 * Stored replies on a server with Redis' protocol, beside the keys of pages (cache/shared/shared.h). Processes with
 * equal model and arithmetic share them.
 *
 *   key     evenkeel:reply:1:SPACE:KEY: 32 digits of the identity's SHA-256, 64 of the reply's key
 *   value   the record (replies/record.h)
 *
 * A record with a wrong sum, key or vocabulary is deleted and counted. A server that is slow, unreachable or full costs
 * a lookup at most a second, until the client pauses; records are then not written. After a wrong reply this process
 * does not use the server again. */

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
