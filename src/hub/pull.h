/* Fetches a model from the Hub into the cache.
 *
 * Several connections fetch ranges of 8 MiB. Received bytes are stored in blobs/HASH.incomplete, always a beginning of
 * the file; ranges that arrive early wait in memory. An interrupted pull continues there, and so do older versions of
 * Hugging Face's own client. Every file is compared with the API's hash before it gets its name. Two processes that
 * pull the same model share the work.
 *
 * Nothing is printed here: a watcher is called. One thread. */
#ifndef EK_HUB_PULL_H
#define EK_HUB_PULL_H

#include "base/hash/hash.h"
#include "hub/cache.h"
#include "hub/client.h"
#include "hub/name.h"

typedef struct ek_hub_progress {
    int n_files, n_done;
    double bytes, bytes_done; /* of all files; bytes that were there already count as done */
} ek_hub_progress;

typedef struct ek_hub_watch {
    void (*line)(void *arg, const char *text);                       /* an event, as a line without newline */
    void (*progress)(void *arg, const ek_hub_progress *p, bool end); /* called often */
    bool (*stop)(void *arg);                                         /* called often; true ends the pull */
    /* Called once, before anything is fetched: n bytes, of which `there` lie in the folder `to` already. False ends the
     * pull with ECANCELLED. NULL: agreed. */
    bool (*agree)(void *arg, double n, double there, const char *to);
    void *arg;
} ek_hub_watch;

typedef struct ek_hub_opts {
    const ek_hub_places *places;
    const ek_hub_watch *watch;
    int connections; /* at the same time */
    int retries;     /* after a failure without progress */
} ek_hub_opts;

/* Fetches the files of `name` and appends the path to open, a folder or a file. Offline, the model must be in the
 * cache. The revision's reference is written last, so that it never names half a model. ECANCELLED after stop;
 * ENOTFOUND, EINVAL, EIO, EFORMAT with one sentence each. Received bytes stay in the cache. */
ek_err ek_hub_pull(ek_buf *path, const ek_hub_opts *opts, const ek_hub_name *name);

/* --- fetching the blobs of a list of files; inside src/hub --- */

enum { EK_HUB_RANGE = 8 << 20, EK_HUB_MAX_WAIT = 300 };

/* Fetches the wanted files that are not in the cache yet, in order of size: small files first. */
ek_err ek_hub_fetch(ek_client *client, const ek_hub_opts *opts, const ek_hub_cache *cache, const ek_hub_name *name,
                    const ek_hub_files *files);

/* Fetches a whole reply of at most limit bytes, with retries. */
ek_err ek_hub_get_text(ek_buf *out, ek_client *client, const ek_hub_opts *opts, const ek_hub_name *name,
                       const char *url, size_t limit);

/* Seconds to wait before try number `failures`, counted from 1; -1: give up. */
double ek_hub_wait_before(const ek_hub_opts *opts, const ek_get *g, int failures);
/* Makes the sentence for a get that failed for good. what: the name of the fetched object. */
ek_err ek_hub_failed(const ek_hub_opts *opts, const ek_hub_name *name, const char *what, const ek_get *g);
ek_err ek_hub_interrupted(const ek_hub_name *name);

/* A blob while it is fetched: lock, file, hash. Inside src/hub. */

typedef struct ek_hub_blob {
    const ek_hub_cache *cache;
    const ek_hub_file *file;
    int lock, fd;    /* -1: none */
    int64_t written; /* bytes of HASH.incomplete, a beginning of the file */
    int64_t hashed;  /* the part of these bytes that is hashed */
    union {
        ek_sha1_state sha1;
        ek_sha256_state sha256;
    } hash;
} ek_hub_blob;

typedef enum ek_hub_claim { EK_HUB_OURS, EK_HUB_THERE, EK_HUB_HELD } ek_hub_claim;

/* Locks the blob and opens its received bytes. OURS: to be fetched here. THERE: complete. HELD: another process fetches
 * it. */
ek_err ek_hub_blob_claim(ek_hub_blob *b, ek_hub_claim *claim, const ek_hub_cache *cache, const ek_hub_file *file);
/* Hashes at most n of the bytes that an earlier pull received. */
ek_err ek_hub_blob_hash(ek_hub_blob *b, int64_t n);
/* Appends; hashed must equal written. EIO: the disk is full, or the file may not grow. */
ek_err ek_hub_blob_write(ek_hub_blob *b, const void *data, size_t n);
/* Call when all bytes are written and hashed: compares the hash and gives the blob its name. EFORMAT: the hash differs,
 * and the bytes were deleted; claim the blob again to start over. */
ek_err ek_hub_blob_finish(ek_hub_blob *b);
void ek_hub_blob_release(ek_hub_blob *b); /* written bytes stay */

#endif
