/* Fetches a model from the Hub into the cache.
 *
 * Several connections fetch pieces of 8 MiB. What has come lies in blobs/HASH.incomplete, which is always the beginning
 * of the file: pieces that arrive early wait in memory. A pull that was interrupted, in whatever way, goes on there,
 * and so do older versions of Hugging Face's own client. Every file is compared with the hash that the API gave before
 * it gets its name. Two processes that pull the same model share the work.
 *
 * Never printed from here: a watcher is told. One thread. */
#ifndef EK_HUB_PULL_H
#define EK_HUB_PULL_H

#include "hub/files.h"
#include "hub/name.h"
#include "hub/places.h"

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

#endif
