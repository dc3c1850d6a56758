/* Listing the cache. */
#include "hub/store.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/file.h"

/* Finds the reference to a commit; main comes first; "" if there is none. */
static void find_ref(char out[EK_HUB_REVISION], const ek_hub_cache *c, ek_buf *path, size_t root, const char *commit)
{
    DIR *d = opendir(path->data);
    size_t len = path->len;
    for (struct dirent *e; d && (e = readdir(d));) {
        char has[41];
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..")) continue;
        ek_buf_fmt(path, "/%s", e->d_name);
        const char *name = path->data + root;
        if (ek_is_dir(path->data) && len - root < EK_HUB_REVISION) find_ref(out, c, path, root, commit);
        else if (strlen(name) < EK_HUB_REVISION && !ek_hub_is_commit(name) && !ek_hub_ref_read(c, name, has) &&
                 !strcmp(has, commit) &&
                 (!*out || !strcmp(name, "main") || (strcmp(out, "main") && strcmp(name, out) < 0)))
            snprintf(out, EK_HUB_REVISION, "%s", name);
        path->len = len;
        path->data[len] = '\0';
    }
    if (d) closedir(d);
}

/* Bytes of the repository's blobs: the complete ones, and the rest. */
static void blob_bytes(const ek_hub_cache *c, double *whole, double *rest)
{
    ek_buf path = {0};
    ek_buf_fmt(&path, "%s/blobs", c->repo.data);
    size_t len = path.len;
    DIR *d = opendir(path.data);
    *whole = *rest = 0;
    for (struct dirent *e; d && (e = readdir(d));) {
        struct stat st;
        path.len = len;
        ek_buf_fmt(&path, "/%s", e->d_name);
        if (stat(path.data, &st) || !S_ISREG(st.st_mode)) continue;
        *(ek_hub_is_hash(e->d_name) ? whole : rest) += (double)st.st_size;
    }
    if (d) closedir(d);
    ek_buf_fini(&path);
}

static ek_hub_entry *add_entry(ek_hub_entries *all, const char *repo)
{
    if ((all->n & (all->n - 1)) == 0) all->v = ek_realloc(all->v, sizeof *all->v * (all->n ? 2 * (size_t)all->n : 1));
    ek_hub_entry *e = &all->v[all->n++];
    *e = (ek_hub_entry){0};
    snprintf(e->repo, sizeof e->repo, "%s", repo);
    return e;
}

static void add_snapshot(ek_hub_entries *all, const ek_hub_cache *c, const char *repo, const char *commit)
{
    ek_hub_files files;
    ek_buf path = {0}, refs = {0};
    ek_hub_entry *e = add_entry(all, repo);
    memcpy(e->commit, commit, sizeof e->commit);
    ek_buf_fmt(&path, "%s/snapshots/%s", c->repo.data, commit);
    e->path = ek_strdup(path.data);
    ek_buf_fmt(&refs, "%s/refs", c->repo.data);
    find_ref(e->revision, c, &refs, refs.len + 1, commit);
    if (ek_hub_snapshot(&files, c, commit) == EK_OK) {
        size_t len = path.len;
        for (int i = 0; i < files.n; i++) {
            struct stat st;
            path.len = len;
            ek_buf_fmt(&path, "/%s", files.v[i].path);
            e->bytes += (double)files.v[i].size;
            if (!files.v[i].hash[0]) all->bytes += (double)files.v[i].size; /* the file is not a blob */
            if (!stat(path.data, &st) && st.st_atime > e->used) e->used = (int64_t)st.st_atime;
        }
    }
    ek_hub_files_fini(&files);
    ek_buf_fini(&path);
    ek_buf_fini(&refs);
}

static void add_repo(ek_hub_entries *all, const char *cache, const char *repo)
{
    ek_hub_cache c;
    int n, first = all->n;
    double whole, rest;
    ek_hub_cache_init(&c, cache, repo);
    char **commits = ek_hub_commits(&c, &n);
    for (int i = 0; i < n; i++) add_snapshot(all, &c, repo, commits[i]);
    ek_hub_commits_free(commits, n);
    blob_bytes(&c, &whole, &rest);
    all->bytes += whole + rest;
    if (n == 0 && whole + rest > 0) rest += whole, add_entry(all, repo);
    if (all->n > first) all->v[first].rest_bytes = rest;
    ek_hub_cache_fini(&c);
}

static int by_repo(const void *a, const void *b)
{
    const ek_hub_entry *x = a, *y = b;
    int order = strcmp(x->repo, y->repo);
    return order ? order : strcmp(x->commit, y->commit);
}

ek_err ek_hub_entries_read(ek_hub_entries *out, const char *cache, const char *repo)
{
    *out = (ek_hub_entries){0};
    if (repo) {
        add_repo(out, cache, repo);
    } else {
        DIR *d = opendir(cache);
        char name[EK_HUB_REPO];
        if (!d && errno != ENOENT) return ek_fail(EK_EIO, "%s: %s", cache, strerror(errno));
        for (struct dirent *e; d && (e = readdir(d));)
            if (ek_hub_repo_of(name, e->d_name)) add_repo(out, cache, name);
        if (d) closedir(d);
    }
    if (out->n) qsort(out->v, (size_t)out->n, sizeof *out->v, by_repo);
    return EK_OK;
}

void ek_hub_entries_fini(ek_hub_entries *e)
{
    for (int i = 0; i < e->n; i++) free(e->v[i].path);
    free(e->v);
    *e = (ek_hub_entries){0};
}
