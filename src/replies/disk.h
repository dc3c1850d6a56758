/* Stored replies in an SQLite file beside the pages' one (cache/backends.h says why SQLite): of one model and
 * arithmetic, its owner's alone, one process's at a time. Each record has its own sum; one that does not fit is deleted
 * and counted. A file whose structure is damaged is deleted and begun anew; a full disk costs what is not written. */
#ifndef EK_REPLIES_DISK_H
#define EK_REPLIES_DISK_H

#include "replies/replies.h"

typedef struct ek_reply_disk_opts {
    const char *dir;      /* created if it is not there, not its parents */
    const char *identity; /* ek_replies_opts.identity: the file's name is a hash of it */
    int n_vocab;
    double max_bytes; /* of records: the least recently used ones go, of the owner that has most */
    double max_age;   /* seconds; 0: no limit */
    bool read_only;   /* for a command that exports; no file is made */
} ek_reply_disk_opts;

/* EIO with the path, EFORMAT for another program's database, EBUSY if another process uses the file, ENOTFOUND for a
 * read-only one that is not there. */
ek_err ek_reply_disk_open(ek_reply_backend *out, const ek_reply_disk_opts *o);

/* The identity of each store in a folder, sorted; until fn fails. ENOTFOUND: there is no such folder. A file that is no
 * store is passed over with a warning. */
ek_err ek_reply_disk_list(const char *dir, ek_err (*fn)(void *arg, const char *identity), void *arg);

/* Every record that was stored since (seconds since 1970), by key; until fn says false. */
ek_err ek_reply_disk_each(const ek_reply_backend *b, double since, bool (*fn)(void *arg, ek_reply_record *r),
                          void *arg);

#endif
