/* Fetches a model from the Hub into the cache.
 *
 * Several connections fetch ranges of 8 MiB. What has come lies in blobs/HASH.incomplete, which is always the beginning
 * of the file: ranges that arrive early wait in memory. A pull that was interrupted, in whatever way, goes on there,
 * and so do older versions of Hugging Face's own client. Every file is compared with the hash that the API gave before
 * it gets its name. Two processes that pull the same model share the work.
 *
 * Never printed from here: a watcher is told. One thread. */
#ifndef EK_HUB_PULL_H
#define EK_HUB_PULL_H

#include "base/hash/hash.h"
#include "hub/cache.h"
#include "hub/client.h"
#include "hub/name.h"

typedef struct ek_hub_progress {
    int n_files, n_done;
    double bytes, bytes_done; /* of all files; what was there already counts as done */
} ek_hub_progress;

typedef struct ek_hub_watch {
    void (*line)(void *arg, const char *text);                       /* something happened; a line without newline */
    void (*progress)(void *arg, const ek_hub_progress *p, bool end); /* often */
    bool (*stop)(void *arg);                                         /* asked often; true ends the pull */
    /* Asked once, before anything is fetched: n bytes, of which some may be in the folder `to` already. false ends the
     * pull with ECANCELLED. NULL: agreed. */
    bool (*agree)(void *arg, double n, double there, const char *to);
    void *arg;
} ek_hub_watch;

typedef struct ek_hub_opts {
    const ek_hub_places *places;
    const ek_hub_watch *watch;
    int connections; /* at a time */
    int retries;     /* tries after a failure without progress */
} ek_hub_opts;

/* Fetches what `name` needs and appends what is to be opened, a folder or a file, to path. Offline, what is in the
 * cache is found or it fails. The reference of the revision is written last, so that it never names half a model.
 * ECANCELLED after stop; ENOTFOUND, EINVAL, EIO, EFORMAT with one sentence each. What came stays in the cache. */
ek_err ek_hub_pull(ek_buf *path, const ek_hub_opts *opts, const ek_hub_name *name);

/* Fetching the blobs of a list of files: inside src/hub. */

enum { EK_HUB_RANGE = 8 << 20, EK_HUB_MAX_WAIT = 300 };

/* Fetches what is wanted of `files` and not in the cache yet, in order of size: small files first. */
ek_err ek_hub_fetch(ek_client *client, const ek_hub_opts *opts, const ek_hub_cache *cache, const ek_hub_name *name,
                    const ek_hub_files *files);

/* A whole reply of at most limit bytes, with tries. */
ek_err ek_hub_get_text(ek_buf *out, ek_client *client, const ek_hub_opts *opts, const ek_hub_name *name,
                       const char *url, size_t limit);

/* Seconds to wait before try number `failures`, counted from 1; -1: give up. */
double ek_hub_wait_before(const ek_hub_opts *opts, const ek_get *g, int failures);
/* The sentence for a get that failed for good; what names what was fetched. */
ek_err ek_hub_failed(const ek_hub_opts *opts, const ek_hub_name *name, const char *what, const ek_get *g);
ek_err ek_hub_interrupted(const ek_hub_name *name);

/* One blob while it is fetched: its lock, its file, its hash. Inside src/hub. */

typedef struct ek_hub_blob {
    const ek_hub_cache *cache;
    const ek_hub_file *file;
    int lock, fd;    /* -1 without */
    int64_t written; /* bytes of HASH.incomplete, all of them from the beginning of the file */
    int64_t hashed;  /* of those */
    union {
        ek_sha1_state sha1;
        ek_sha256_state sha256;
    } hash;
} ek_hub_blob;

typedef enum ek_hub_claim { EK_HUB_OURS, EK_HUB_THERE, EK_HUB_HELD } ek_hub_claim;

/* Locks the blob and opens what there is of it: OURS. THERE: it is complete. HELD: another process fetches it. */
ek_err ek_hub_blob_claim(ek_hub_blob *b, ek_hub_claim *claim, const ek_hub_cache *cache, const ek_hub_file *file);
/* Hashes at most n of the bytes that were there before. */
ek_err ek_hub_blob_hash(ek_hub_blob *b, int64_t n);
/* Appends; hashed must have reached written. EIO: the disk is full, or the file may not grow. */
ek_err ek_hub_blob_write(ek_hub_blob *b, const void *data, size_t n);
/* All bytes are written and hashed: the hash is compared and the blob gets its name. EFORMAT: they are not what they
 * should be, and what was written is gone; claim it again to start from the beginning. */
ek_err ek_hub_blob_finish(ek_hub_blob *b);
void ek_hub_blob_release(ek_hub_blob *b); /* what was written stays */

#endif
