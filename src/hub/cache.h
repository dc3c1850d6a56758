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

#include "base/buf.h"
#include "base/err.h"
#include "hub/name.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The files of a repository, from the Hub's API or from the cache, and the choice of those that a model needs. */

typedef struct ek_hub_file {
    char *path;    /* checked by ek_hub_is_path; owned */
    int64_t size;  /* bytes */
    char hash[65]; /* name of the blob: sha256 of the content, or git's sha1 of it (40 digits); "": unknown */
    bool wanted;   /* set by ek_hub_choose */
} ek_hub_file;

typedef struct ek_hub_files {
    char commit[41];
    ek_hub_file *v; /* by path */
    int n;
} ek_hub_files;

/* Parses the reply of ek_hub_url_list, n bytes. EFORMAT names the fault: no JSON, no commit, a file without size or
 * hash, a duplicate name, or a name that would leave its folder. *out is empty after an error. */
ek_err ek_hub_files_parse(ek_hub_files *out, const char *json, size_t n);
/* Call ek_hub_files_sort afterwards. */
void ek_hub_files_add(ek_hub_files *f, const char *path, int64_t size, const char *hash);
void ek_hub_files_sort(ek_hub_files *f);
void ek_hub_files_fini(ek_hub_files *f);
const ek_hub_file *ek_hub_files_find(const ek_hub_files *f, const char *path); /* NULL if absent */

/* Marks exactly the files that a model needs. *main: the path of the file to open, or NULL for the folder.
 *   which ""   safetensors, if there are any: model*.safetensors at the top (of an indexed set only its files), JSON
 *              and template files beside them, and the tokenizer. Else the only GGUF file.
 *   a path     that file; of a split GGUF (-00002-of-00005.gguf) all files.
 *   else       the GGUF file with that quantisation in its name, in any case, between separators: Q4_K_M matches
 *              x-Q4_K_M.gguf, not x-Q4_K_M_L.gguf. Files of projections (mmproj) and drafters are skipped.
 * ENOTFOUND lists the files; EINVAL if several fit; EFORMAT if files of a set are missing. repo: for messages. */
ek_err ek_hub_choose(ek_hub_files *f, const char *repo, const char *which, const char **main);

/* Whether it is a GGUF file, or the first of a split one. */
bool ek_hub_is_gguf(const char *path);

typedef struct ek_hub_cache {
    const char *dir; /* borrowed: CACHE */
    ek_buf repo;     /* CACHE/models--org--name */
    ek_buf locks;    /* CACHE/.locks/models--org--name */
} ek_hub_cache;

void ek_hub_cache_init(ek_hub_cache *c, const char *dir, const char *repo); /* does not touch the disk */
void ek_hub_cache_fini(ek_hub_cache *c);
ek_err ek_hub_cache_make(const ek_hub_cache *c); /* makes missing folders; EIO */

/* Appends a path: repo/blobs/HASH + suffix. */
void ek_hub_blob_path(ek_buf *out, const ek_hub_cache *c, const char *hash, const char *suffix);
/* Bytes of repo/blobs/HASH + suffix, -1 if it is not there. */
int64_t ek_hub_blob_size(const ek_hub_cache *c, const char *hash, const char *suffix);

/* Locks a blob against other processes, without waiting: *fd is the lock, released by close; -1 if another process
 * holds it; -2 if the file system has no locks, which is safe, because every writer of a blob writes the same bytes at
 * the same offsets. */
ek_err ek_hub_lock(int *fd, const ek_hub_cache *c, const char *hash);

/* Makes snapshots/COMMIT/PATH a link to the blob; replaces an older link. Without links in the file system the blob is
 * moved there. */
ek_err ek_hub_link(const ek_hub_cache *c, const char *commit, const ek_hub_file *file);

/* refs/REVISION. Reading: ENOTFOUND if it does not exist; a commit stands for itself. Writing is atomic. */
ek_err ek_hub_ref_read(const ek_hub_cache *c, const char *revision, char commit[41]);
ek_err ek_hub_ref_write(const ek_hub_cache *c, const char *revision, const char *commit);

/* The commits in snapshots/, the newest first; with equal seconds by name. The caller owns the list and its entries; *n
 * is 0 without any. */
char **ek_hub_commits(const ek_hub_cache *c, int *n);
void ek_hub_commits_free(char **list, int n);

/* The files of a snapshot with their sizes, except files without a blob. ENOTFOUND without the folder. Hashes come from
 * the links; "" for files that are not links. */
ek_err ek_hub_snapshot(ek_hub_files *out, const ek_hub_cache *c, const char *commit);

/* Appends the path to open for a name, a folder or a file, without any network. The revision's own snapshot comes
 * first; without one, the newest complete snapshot. ENOTFOUND names the command that fetches it; EINVAL if the name
 * fits several files. */
ek_err ek_hub_find(ek_buf *out, const char *cache, const ek_hub_name *name);

#endif
