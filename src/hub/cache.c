#include "hub/cache.h"

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

enum { MAX_DEPTH = 8 };

void ek_hub_cache_init(ek_hub_cache *c, const char *dir, const char *repo)
{
    *c = (ek_hub_cache){.dir = dir};
    ek_buf_fmt(&c->repo, "%s/", dir);
    ek_hub_folder(&c->repo, repo);
    ek_buf_fmt(&c->locks, "%s/.locks/", dir);
    ek_hub_folder(&c->locks, repo);
}

void ek_hub_cache_fini(ek_hub_cache *c)
{
    ek_buf_fini(&c->repo);
    ek_buf_fini(&c->locks);
}

/* Makes the folders of path; if file, only those above its last part. */
static ek_err make_dirs(const char *path, bool file)
{
    char *p = ek_strdup(path);
    ek_err err = EK_OK;
    for (char *at = p + 1; !err && *at; at++) {
        if (*at != '/') continue;
        *at = '\0';
        if (mkdir(p, 0777) && errno != EEXIST) err = ek_file_failed(p);
        *at = '/';
    }
    if (!err && !file && mkdir(p, 0777) && errno != EEXIST) err = ek_file_failed(p);
    free(p);
    return err;
}

ek_err ek_hub_cache_make(const ek_hub_cache *c)
{
    static const char *const parts[] = {"blobs", "refs", "snapshots"};
    ek_err err = make_dirs(c->locks.data, false);
    for (size_t i = 0; !err && i < sizeof parts / sizeof *parts; i++) {
        ek_buf path = {0};
        ek_buf_fmt(&path, "%s/%s", c->repo.data, parts[i]);
        err = make_dirs(path.data, false);
        ek_buf_fini(&path);
    }
    return err;
}

void ek_hub_blob_path(ek_buf *out, const ek_hub_cache *c, const char *hash, const char *suffix)
{
    ek_buf_fmt(out, "%s/blobs/%s%s", c->repo.data, hash, suffix);
}

int64_t ek_hub_blob_size(const ek_hub_cache *c, const char *hash, const char *suffix)
{
    ek_buf path = {0};
    struct stat st;
    ek_hub_blob_path(&path, c, hash, suffix);
    int64_t n = stat(path.data, &st) == 0 && S_ISREG(st.st_mode) ? (int64_t)st.st_size : -1;
    ek_buf_fini(&path);
    return n;
}

ek_err ek_hub_lock(int *fd, const ek_hub_cache *c, const char *hash)
{
    ek_buf path = {0};
    ek_buf_fmt(&path, "%s/%s.lock", c->locks.data, hash);
    *fd = open(path.data, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    ek_err err = *fd < 0 ? ek_file_failed(path.data) : EK_OK;
    if (!err && flock(*fd, LOCK_EX | LOCK_NB)) {
        int why = errno;
        close(*fd);
        *fd = why == EWOULDBLOCK ? -1 : -2;
    }
    ek_buf_fini(&path);
    return err;
}

/* ------------------------------------------------------------------ links */

/* Makes a name beside path that no other process uses. */
static void beside(ek_buf *out, const char *path)
{
    ek_buf_fmt(out, "%s.%d.tmp", path, (int)getpid());
}

static ek_err make_link(const ek_hub_cache *c, const char *target, const char *path, const ek_hub_file *file)
{
    char now[EK_HUB_FILE + 256];
    ssize_t n = readlink(path, now, sizeof now - 1);
    if (n > 0 && (size_t)n == strlen(target) && !memcmp(now, target, (size_t)n)) return EK_OK;
    ek_buf tmp = {0}, blob = {0};
    beside(&tmp, path);
    unlink(tmp.data);
    ek_err err = EK_OK;
    if (symlink(target, tmp.data) == 0) {
        if (rename(tmp.data, path)) err = ek_file_failed(path);
    } else if (errno == EPERM || errno == EOPNOTSUPP || errno == ENOSYS) {
        ek_hub_blob_path(&blob, c, file->hash, "");
        if (rename(blob.data, path)) err = ek_file_failed(path);
    } else {
        err = ek_file_failed(path);
    }
    if (err) unlink(tmp.data);
    ek_buf_fini(&tmp);
    ek_buf_fini(&blob);
    return err;
}

ek_err ek_hub_link(const ek_hub_cache *c, const char *commit, const ek_hub_file *file)
{
    ek_buf path = {0}, target = {0};
    ek_buf_fmt(&path, "%s/snapshots/%s/%s", c->repo.data, commit, file->path);
    ek_buf_str(&target, "../../");
    for (const char *p = file->path; *p; p++)
        if (*p == '/') ek_buf_str(&target, "../");
    ek_buf_fmt(&target, "blobs/%s", file->hash);
    ek_err err = make_dirs(path.data, true);
    if (!err) err = make_link(c, target.data, path.data, file);
    ek_buf_fini(&path);
    ek_buf_fini(&target);
    return err;
}

/* ------------------------------------------------------------------ refs */

ek_err ek_hub_ref_read(const ek_hub_cache *c, const char *revision, char commit[41])
{
    if (ek_hub_is_commit(revision)) {
        memcpy(commit, revision, 41);
        return EK_OK;
    }
    ek_buf path = {0}, text = {0};
    ek_buf_fmt(&path, "%s/refs/%s", c->repo.data, revision);
    ek_err err = ek_file_read(&text, path.data, 256);
    while (!err && text.len && strchr(" \t\r\n", text.data[text.len - 1])) text.data[--text.len] = '\0';
    if (!err && !ek_hub_is_commit(ek_buf_text(&text))) err = ek_fail(EK_EFORMAT, "%s: holds no commit", path.data);
    if (!err) memcpy(commit, text.data, 41);
    ek_buf_fini(&path);
    ek_buf_fini(&text);
    return err;
}

ek_err ek_hub_ref_write(const ek_hub_cache *c, const char *revision, const char *commit)
{
    ek_buf path = {0};
    if (ek_hub_is_commit(revision)) return EK_OK;
    ek_buf_fmt(&path, "%s/refs/%s", c->repo.data, revision);
    ek_err err = make_dirs(path.data, true);
    if (!err) err = ek_file_replace(path.data, commit, 40, 0666);
    ek_buf_fini(&path);
    return err;
}

/* ------------------------------------------------------------------ snapshots */

/* Reads the blob's hash from the target of a link. */
static void hash_of(char hash[65], const char *path)
{
    char target[EK_HUB_FILE + 256];
    ssize_t n = readlink(path, target, sizeof target - 1);
    hash[0] = '\0';
    if (n <= 0) return;
    target[n] = '\0';
    const char *slash = strrchr(target, '/');
    if (slash && ek_hub_is_hash(slash + 1)) memcpy(hash, slash + 1, strlen(slash + 1) + 1);
}

static void walk(ek_hub_files *out, ek_buf *path, size_t root, int depth)
{
    DIR *d = depth < MAX_DEPTH ? opendir(path->data) : NULL;
    size_t len = path->len;
    for (struct dirent *e; d && (e = readdir(d));) {
        struct stat st;
        char hash[65];
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..")) continue;
        ek_buf_fmt(path, "/%s", e->d_name);
        if (lstat(path->data, &st) == 0 && S_ISDIR(st.st_mode)) walk(out, path, root, depth + 1);
        else if (stat(path->data, &st) == 0 && S_ISREG(st.st_mode)) {
            hash_of(hash, path->data);
            ek_hub_files_add(out, path->data + root, (int64_t)st.st_size, hash);
        }
        path->len = len;
        path->data[len] = '\0';
    }
    if (d) closedir(d);
}

ek_err ek_hub_snapshot(ek_hub_files *out, const ek_hub_cache *c, const char *commit)
{
    ek_buf path = {0};
    *out = (ek_hub_files){0};
    ek_buf_fmt(&path, "%s/snapshots/%s", c->repo.data, commit);
    ek_err err = ek_is_dir(path.data) ? EK_OK : ek_fail(EK_ENOTFOUND, "%s: there is no such folder", path.data);
    if (!err) walk(out, &path, path.len + 1, 0);
    ek_hub_files_sort(out);
    ek_buf_fini(&path);
    return err;
}

/* --- the path that is opened --- */

static ek_err find_in(ek_buf *out, const ek_hub_cache *c, const char *commit, const ek_hub_name *name)
{
    ek_hub_files files;
    const char *main;
    EK_TRY(ek_hub_snapshot(&files, c, commit));
    ek_err err = ek_hub_choose(&files, name->repo, name->file, &main);
    if (!err && !main && !ek_hub_files_find(&files, "config.json"))
        err = ek_fail(EK_EFORMAT, "%s: config.json is missing", name->repo);
    if (!err) {
        ek_buf_fmt(out, "%s/snapshots/%s", c->repo.data, commit);
        if (main) ek_buf_fmt(out, "/%s", main);
    }
    ek_hub_files_fini(&files);
    return err;
}

typedef struct aged {
    char *commit;
    int64_t time;
} aged;

static int newest_first(const void *a, const void *b)
{
    const aged *x = a, *y = b;
    return x->time != y->time ? (x->time < y->time) - (x->time > y->time) : strcmp(x->commit, y->commit);
}

char **ek_hub_commits(const ek_hub_cache *c, int *n)
{
    aged *found = NULL;
    ek_buf path = {0};
    ek_buf_fmt(&path, "%s/snapshots", c->repo.data);
    size_t len = path.len;
    DIR *d = opendir(path.data);
    *n = 0;
    for (struct dirent *e; d && (e = readdir(d));) {
        struct stat st;
        if (!ek_hub_is_commit(e->d_name)) continue;
        path.len = len;
        ek_buf_fmt(&path, "/%s", e->d_name);
        if (stat(path.data, &st) || !S_ISDIR(st.st_mode)) continue;
        found = ek_realloc(found, sizeof *found * (size_t)(*n + 1));
        found[(*n)++] = (aged){ek_strdup(e->d_name), (int64_t)st.st_mtime};
    }
    if (d) closedir(d);
    ek_buf_fini(&path);
    if (*n) qsort(found, (size_t)*n, sizeof *found, newest_first);
    char **list = ek_alloc(sizeof *list * (size_t)(*n + 1));
    for (int i = 0; i < *n; i++) list[i] = found[i].commit;
    free(found);
    return list;
}

void ek_hub_commits_free(char **list, int n)
{
    for (int i = 0; i < n; i++) free(list[i]);
    free(list);
}

static ek_err find_anywhere(ek_buf *out, const ek_hub_cache *c, const ek_hub_name *name)
{
    int n;
    char **list = ek_hub_commits(c, &n);
    ek_err err = EK_ENOTFOUND;
    for (int i = 0; i < n && err; i++) err = find_in(out, c, list[i], name);
    ek_hub_commits_free(list, n);
    return err;
}

ek_err ek_hub_find(ek_buf *out, const char *cache, const ek_hub_name *name)
{
    ek_hub_cache c;
    ek_buf text = {0};
    char commit[41], why[768] = "";
    ek_hub_cache_init(&c, cache, name->repo);
    ek_hub_name_text(&text, name);
    ek_err err = ek_hub_ref_read(&c, name->revision, commit);
    if (!err) err = find_in(out, &c, commit, name);
    if (err != EK_ENOTFOUND) snprintf(why, sizeof why, "%s", ek_err_text());
    if (err && err != EK_EINVAL && !name->has_revision && find_anywhere(out, &c, name) == EK_OK) err = EK_OK;
    if (err == EK_EINVAL) ek_fail(err, "%s", why);
    else if (err && ek_is_dir(c.repo.data) && why[0])
        err = ek_fail(EK_ENOTFOUND, "%s; `evenkeel pull %s` fetches what is missing", why, text.data);
    else if (err)
        err = ek_fail(EK_ENOTFOUND, "%s is not in the cache %s; `evenkeel pull %s` fetches it", text.data, cache,
                      text.data);
    ek_buf_fini(&text);
    ek_hub_cache_fini(&c);
    return err;
}
