/* The files of a repository, as the Hub's API lists them or as they lie in the cache, and which of them a model needs.
 */
#ifndef EK_HUB_FILES_H
#define EK_HUB_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

typedef struct ek_hub_file {
    char *path;    /* checked by ek_hub_is_path; owned */
    int64_t size;  /* bytes */
    char hash[65]; /* names the blob: sha256 of the content, or git's sha1 of it (40 digits); "" if not known */
    bool wanted;   /* set by ek_hub_choose */
} ek_hub_file;

typedef struct ek_hub_files {
    char commit[41];
    ek_hub_file *v; /* by path */
    int n;
} ek_hub_files;

/* Reads the reply of ek_hub_url_list, n bytes. EFORMAT names what is wrong: no JSON, no commit, a file without size or
 * hash, one name twice, or a name that would leave the folder it is put into. *out is empty after a failure. */
ek_err ek_hub_files_parse(ek_hub_files *out, const char *json, size_t n);
void ek_hub_files_add(ek_hub_files *f, const char *path, int64_t size,
                      const char *hash); /* ek_hub_files_sort after it */
void ek_hub_files_sort(ek_hub_files *f);
void ek_hub_files_fini(ek_hub_files *f);
const ek_hub_file *ek_hub_files_find(const ek_hub_files *f, const char *path); /* NULL if absent */

/* Marks what a model needs and nothing else, and gives what is to be opened: *main is the path of a file, or NULL for
 * the folder.
 *
 *   which ""   safetensors, if there are any: model*.safetensors at the top (of an indexed set only its parts), JSON
 *              and template files beside them, and the tokenizer. Else the one GGUF file.
 *   a path     that file; of a split GGUF (-00002-of-00005.gguf) all parts.
 *   else       the GGUF file with that quantisation in its name, in any case, between separators: Q4_K_M is in
 *              x-Q4_K_M.gguf, not in x-Q4_K_M_L.gguf. Files of projections (mmproj) and drafters are not looked at.
 *
 * ENOTFOUND lists what there is; EINVAL where several fit; EFORMAT where parts of a set are missing. repo is for
 * messages. */
ek_err ek_hub_choose(ek_hub_files *f, const char *repo, const char *which, const char **main);

/* A GGUF file, or the first part of a split one. */
bool ek_hub_is_gguf(const char *path);

#endif
