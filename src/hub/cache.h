/* The cache of models on disk, in the layout that Hugging Face's tools and llama.cpp share (huggingface.co,
 * "Hub Local Cache"):
 *
 *   CACHE/models--org--name/blobs/HASH            contents; HASH.incomplete while one is fetched, always its beginning
 *                          /refs/main             the commit of a branch or tag, 40 digits
 *                          /snapshots/COMMIT/...  links ../../blobs/HASH by the files' names
 *   CACHE/.locks/models--org--name/HASH.lock      flock'ed while HASH is written
 *
 * Names that reach these functions were checked by hub/name.h. Errors name the path. */
#ifndef EK_HUB_CACHE_H
#define EK_HUB_CACHE_H

#include "hub/files.h"
#include "hub/name.h"

typedef struct ek_hub_cache {
    const char *dir; /* borrowed: CACHE */
    ek_buf repo;     /* CACHE/models--org--name */
    ek_buf locks;    /* CACHE/.locks/models--org--name */
} ek_hub_cache;

void ek_hub_cache_init(ek_hub_cache *c, const char *dir, const char *repo); /* touches no disk */
void ek_hub_cache_fini(ek_hub_cache *c);
ek_err ek_hub_cache_make(const ek_hub_cache *c); /* the folders that are missing; EIO */

/* Appends a path: repo/blobs/HASH + suffix. */
void ek_hub_blob_path(ek_buf *out, const ek_hub_cache *c, const char *hash, const char *suffix);
/* Bytes of repo/blobs/HASH + suffix, -1 if it is not there. */
int64_t ek_hub_blob_size(const ek_hub_cache *c, const char *hash, const char *suffix);

/* Locks a blob against other processes without waiting: *fd is the lock, closing it releases it; -1 where another
 * process holds it, -2 where this file system knows no locks, which is safe: every writer of a blob writes the same
 * bytes at the same places. */
ek_err ek_hub_lock(int *fd, const ek_hub_cache *c, const char *hash);

/* snapshots/COMMIT/PATH -> the blob; replaces another link. Where the file system has no links the blob becomes the
 * file. */
ek_err ek_hub_link(const ek_hub_cache *c, const char *commit, const ek_hub_file *file);

/* refs/REVISION. Reading gives ENOTFOUND without one; a commit stands for itself. Writing is atomic. */
ek_err ek_hub_ref_read(const ek_hub_cache *c, const char *revision, char commit[41]);
ek_err ek_hub_ref_write(const ek_hub_cache *c, const char *revision, const char *commit);

/* The commits that are in snapshots/, the newest first; of the same second by name. The list is the caller's, and each
 * of its entries; *n is 0 without any. */
char **ek_hub_commits(const ek_hub_cache *c, int *n);
void ek_hub_commits_free(char **list, int n);

/* The files of a snapshot with their sizes; files whose blob is gone are not there. ENOTFOUND without the folder.
 * Hashes are those of the links, "" for files that are no links. */
ek_err ek_hub_snapshot(ek_hub_files *out, const ek_hub_cache *c, const char *commit);

/* What to open for a name, without any network: appends the path of a folder or a file. The revision's own snapshot
 * comes first; where none was written, another one that has
 * everything will do, the newest first. ENOTFOUND says which command
 * fetches it; EINVAL where the name fits several files. */
ek_err ek_hub_find(ek_buf *out, const char *cache, const ek_hub_name *name);

#endif
