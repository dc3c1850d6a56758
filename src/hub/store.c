#include "hub/store.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"

/* --- the contents of the cache --- */

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
        if (!d && errno != ENOENT) return ek_file_failed(cache);
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

/* --- removing some of them --- */

/* ------------------------------------------------------------------ the plan */

/* Marks the files of a snapshot that are removed: all, or the files of a choice. */
static ek_err mark(ek_hub_files *files, const ek_hub_name *name)
{
    const char *main;
    if (*name->file) return ek_hub_choose(files, name->repo, name->file, &main);
    for (int i = 0; i < files->n; i++) files->v[i].wanted = true;
    return EK_OK;
}

static const ek_hub_file *find_hash(const ek_hub_files *f, const char *hash)
{
    for (int i = 0; i < f->n; i++)
        if (f->v[i].hash[0] && !strcmp(f->v[i].hash, hash)) return &f->v[i];
    return NULL;
}

/* Adds a snapshot's removed files to gone, and its remaining ones to kept. */
static void divide(ek_hub_removal *r, ek_hub_files *kept, const ek_hub_files *files, const char *commit)
{
    ek_buf path = {0};
    for (int i = 0; i < files->n; i++) {
        const ek_hub_file *f = &files->v[i];
        ek_buf_clear(&path);
        ek_buf_fmt(&path, "snapshots/%s/%s", commit, f->path);
        ek_hub_files_add(f->wanted ? &r->gone : kept, path.data, f->size, f->hash);
    }
    ek_buf_fini(&path);
}

/* Adds the blobs of removed files that no remaining file has. */
static void add_blobs(ek_hub_removal *r, const ek_hub_files *kept)
{
    ek_hub_files blobs = {0};
    ek_buf path = {0};
    for (int i = 0; i < r->gone.n; i++) {
        const ek_hub_file *f = &r->gone.v[i];
        if (!f->hash[0]) r->bytes += (double)f->size;
        if (!f->hash[0] || find_hash(kept, f->hash) || find_hash(&blobs, f->hash)) continue;
        ek_buf_clear(&path);
        ek_buf_fmt(&path, "blobs/%s", f->hash);
        ek_hub_files_add(&blobs, path.data, f->size, f->hash);
        r->bytes += (double)f->size;
    }
    for (int i = 0; i < blobs.n; i++) ek_hub_files_add(&r->gone, blobs.v[i].path, blobs.v[i].size, "");
    ek_hub_files_fini(&blobs);
    ek_buf_fini(&path);
}

static ek_err plan_part(ek_hub_removal *r, const ek_hub_cache *c, const ek_hub_name *name)
{
    char commit[41] = "";
    int n, hits = 0;
    ek_hub_files kept = {0};
    if (name->has_revision) {
        ek_err err = ek_hub_ref_read(c, name->revision, commit);
        if (err) return ek_fail(EK_ENOTFOUND, "%s has no revision %s in the cache", name->repo, name->revision);
    }
    char **commits = ek_hub_commits(c, &n);
    ek_err err = EK_OK;
    for (int i = 0; i < n; i++) {
        ek_hub_files files;
        if (ek_hub_snapshot(&files, c, commits[i])) continue;
        bool asked = !commit[0] || !strcmp(commit, commits[i]);
        ek_err missing = asked ? mark(&files, name) : EK_OK;
        if (asked && !missing) hits++;
        else if (asked) {
            err = missing;
            for (int k = 0; k < files.n; k++) files.v[k].wanted = false;
        }
        divide(r, &kept, &files, commits[i]);
        ek_hub_files_fini(&files);
    }
    ek_hub_commits_free(commits, n);
    if (hits) err = EK_OK;
    else if (!err) err = ek_fail(EK_ENOTFOUND, "%s has no revision %s in the cache", name->repo, name->revision);
    if (!err) add_blobs(r, &kept);
    r->all = kept.n == 0;
    ek_hub_files_fini(&kept);
    return err;
}

static double repo_bytes(const char *cache, const char *repo)
{
    ek_hub_entries e;
    double bytes = ek_hub_entries_read(&e, cache, repo) ? 0 : e.bytes;
    ek_hub_entries_fini(&e);
    return bytes;
}

ek_err ek_hub_removal_plan(ek_hub_removal *r, const char *cache, const ek_hub_name *name)
{
    ek_hub_cache c;
    ek_err err = EK_OK;
    *r = (ek_hub_removal){.all = !name->has_revision && !*name->file};
    ek_hub_cache_init(&c, cache, name->repo);
    ek_buf_str(&r->repo, c.repo.data);
    if (!ek_is_dir(r->repo.data)) err = ek_fail(EK_ENOTFOUND, "%s is not in the cache %s", name->repo, cache);
    if (!err && !r->all) err = plan_part(r, &c, name);
    if (!err && r->all) r->bytes = repo_bytes(cache, name->repo);
    ek_hub_cache_fini(&c);
    return err;
}

void ek_hub_removal_fini(ek_hub_removal *r)
{
    ek_buf_fini(&r->repo);
    ek_hub_files_fini(&r->gone);
}

/* ------------------------------------------------------------------ doing it */

/* Removes a folder with its content. Links are removed, not followed. */
static ek_err remove_tree(ek_buf *path)
{
    struct stat st;
    size_t len = path->len;
    ek_err err = EK_OK;
    if (lstat(path->data, &st)) return errno == ENOENT ? EK_OK : ek_file_failed(path->data);
    DIR *d = S_ISDIR(st.st_mode) ? opendir(path->data) : NULL;
    for (struct dirent *e; !err && d && (e = readdir(d));) {
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..")) continue;
        ek_buf_fmt(path, "/%s", e->d_name);
        err = remove_tree(path);
        path->len = len;
        path->data[len] = '\0';
    }
    if (d) closedir(d);
    if (!err && remove(path->data) && errno != ENOENT) err = ek_file_failed(path->data);
    return err;
}

/* EBUSY if a process holds one of the repository's locks. */
static ek_err check_locks(const ek_hub_cache *c, const char *repo)
{
    ek_buf path = {0};
    ek_buf_str(&path, c->locks.data);
    size_t len = path.len;
    DIR *d = opendir(path.data);
    ek_err err = EK_OK;
    for (struct dirent *e; !err && d && (e = readdir(d));) {
        path.len = len;
        ek_buf_fmt(&path, "/%s", e->d_name);
        int fd = e->d_name[0] == '.' ? -1 : open(path.data, O_RDWR | O_CLOEXEC);
        if (fd < 0) continue;
        if (flock(fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK)
            err = ek_fail(EK_EBUSY, "%s: another process is fetching it", repo);
        close(fd);
    }
    if (d) closedir(d);
    ek_buf_fini(&path);
    return err;
}

/* Removes references to snapshots that no longer exist, and empty folders. */
static void tidy(ek_buf *path, const ek_hub_cache *c, size_t refs)
{
    DIR *d = opendir(path->data);
    size_t len = path->len;
    for (struct dirent *e; d && (e = readdir(d));) {
        char commit[41];
        ek_buf snapshot = {0};
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..")) continue;
        ek_buf_fmt(path, "/%s", e->d_name);
        if (ek_is_dir(path->data)) {
            tidy(path, c, refs);
            rmdir(path->data); /* fails if something is left in it */
        } else if (refs && ek_hub_is_path(path->data + refs) && !ek_hub_ref_read(c, path->data + refs, commit)) {
            ek_buf_fmt(&snapshot, "%s/snapshots/%s", c->repo.data, commit);
            if (!ek_is_dir(snapshot.data)) unlink(path->data);
        }
        ek_buf_fini(&snapshot);
        path->len = len;
        path->data[len] = '\0';
    }
    if (d) closedir(d);
}

static ek_err remove_files(const ek_hub_removal *r, const ek_hub_cache *c)
{
    ek_buf path = {0};
    ek_err err = EK_OK;
    for (int i = 0; i < r->gone.n && !err; i++) {
        ek_buf_clear(&path);
        ek_buf_fmt(&path, "%s/%s", r->repo.data, r->gone.v[i].path);
        if (unlink(path.data) && errno != ENOENT) err = ek_file_failed(path.data);
    }
    static const char *const parts[] = {"snapshots", "refs"};
    for (size_t i = 0; i < 2 && !err; i++) {
        ek_buf_clear(&path);
        ek_buf_fmt(&path, "%s/%s", r->repo.data, parts[i]);
        tidy(&path, c, i ? path.len + 1 : 0);
    }
    ek_buf_fini(&path);
    return err;
}

ek_err ek_hub_removal_run(const ek_hub_removal *r, const char *cache, const ek_hub_name *name)
{
    ek_hub_cache c;
    ek_hub_cache_init(&c, cache, name->repo);
    ek_err err = check_locks(&c, name->repo);
    if (!err && !r->all) err = remove_files(r, &c);
    if (!err && r->all) {
        ek_buf path = {0};
        ek_buf_str(&path, r->repo.data);
        err = remove_tree(&path);
        ek_buf_clear(&path);
        ek_buf_str(&path, c.locks.data);
        if (!err) err = remove_tree(&path);
        ek_buf_fini(&path);
    }
    ek_hub_cache_fini(&c);
    return err;
}
