/* Listing and removing the contents of the cache. */
#ifndef EK_HUB_STORE_H
#define EK_HUB_STORE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "hub/cache.h"

/* A revision of a repository. */
typedef struct ek_hub_entry {
    char repo[EK_HUB_REPO];
    char commit[41];                /* "" for a repository with incomplete files only */
    char revision[EK_HUB_REVISION]; /* the reference that names it; "": none */
    char *path;                     /* the snapshot's folder */
    double bytes;                   /* of its files; shared ones count with each revision */
    double rest_bytes;              /* incomplete files of the whole repository, counted with its first entry */
    int64_t used;                   /* seconds since 1970 of the latest reading of a file */
} ek_hub_entry;

typedef struct ek_hub_entries {
    ek_hub_entry *v; /* by repository, then commit */
    int n;
    double bytes; /* on disk; shared ones count once */
} ek_hub_entries;

/* repo NULL: all models. A missing cache is empty. EIO. */
ek_err ek_hub_entries_read(ek_hub_entries *out, const char *cache, const char *repo);
void ek_hub_entries_fini(ek_hub_entries *e);

/* The effect of removing `name`: a whole repository, one of its revisions (with @), or the files of one choice (with
 * :). ENOTFOUND if it does not exist. Blobs that another snapshot links to stay. */
typedef struct ek_hub_removal {
    ek_buf repo;       /* the repository's folder */
    ek_hub_files gone; /* paths relative to it */
    bool all;          /* nothing remains: the folder is removed, with the locks */
    double bytes;
} ek_hub_removal;
ek_err ek_hub_removal_plan(ek_hub_removal *r, const char *cache, const ek_hub_name *name);
/* EBUSY while another process fetches a file of the repository. */
ek_err ek_hub_removal_run(const ek_hub_removal *r, const char *cache, const ek_hub_name *name);
void ek_hub_removal_fini(ek_hub_removal *r);

#endif
