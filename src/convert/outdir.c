#define _GNU_SOURCE /* fallocate, renameat2 */
#include "convert/stream.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/file.h"
#include "base/linux.h"

struct ek_outdir {
    char *path, *temp; /* path: of the folder, or of the first file; temp: its temporary name */
    bool folder, force;
    int lock; /* a lock on the folder or on the first file */
    int n;
    char **name; /* the final path of each file */
    char **part; /* the path while it is written */
    int *fd;
};

static ek_err io(const char *path, const char *what)
{
    return ek_fail(EK_EIO, "%s: %s: %s", path, what, strerror(errno));
}

static char *join(const char *a, const char *sep, const char *b)
{
    ek_buf text = {0};
    ek_buf_fmt(&text, "%s%s%s", a, sep, b);
    return text.data;
}

static void free_all(ek_outdir *o)
{
    for (int i = 0; i < o->n; i++) {
        if (o->fd[i] >= 0) close(o->fd[i]);
        free(o->name[i]);
        free(o->part[i]);
    }
    if (o->lock >= 0) close(o->lock);
    free(o->name);
    free(o->part);
    free(o->fd);
    free(o->path);
    free(o->temp);
    free(o);
}

/* Removes the files directly in a folder, but not those in folders below it. */
static ek_err empty_folder(const char *path)
{
    DIR *d = opendir(path);
    if (!d) return io(path, "cannot be read");
    for (struct dirent *e; (e = readdir(d));) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
        char *file = join(path, "/", e->d_name);
        unlink(file);
        free(file);
    }
    closedir(d);
    return EK_OK;
}

static bool exists(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0;
}

/* A folder may be replaced if it holds a model: it has a config.json and no folders. */
static ek_err check_replaced_folder(const char *path)
{
    char *config = join(path, "/", "config.json");
    bool is_model = ek_is_file(config);
    free(config);
    DIR *d = is_model ? opendir(path) : NULL;
    for (struct dirent *e; d && (e = readdir(d));) {
        char *inner = join(path, "/", e->d_name);
        if (e->d_name[0] != '.' && ek_is_dir(inner)) is_model = false;
        free(inner);
    }
    if (d) closedir(d);
    return is_model ? EK_OK : ek_fail(EK_EINVAL, "%s is no folder of a model alone; --force does not replace it", path);
}

static ek_err check_free(const ek_outdir *o)
{
    if (o->folder) {
        if (!exists(o->path)) return EK_OK;
        if (!o->force) return ek_fail(EK_EINVAL, "%s exists; --force replaces it", o->path);
        return check_replaced_folder(o->path);
    }
    for (int i = 0; i < o->n; i++) {
        if (!exists(o->name[i])) continue;
        if (!o->force) return ek_fail(EK_EINVAL, "%s exists; --force replaces it", o->name[i]);
        if (!ek_is_file(o->name[i])) return ek_fail(EK_EINVAL, "%s is not a file", o->name[i]);
    }
    return EK_OK;
}

/* The model that is read must not be where the new one is written first. */
static ek_err check_source(const ek_outdir *o, const char *from)
{
    bool same = ek_is_same_place(from, o->temp);
    for (int i = 0; i < o->n && !same; i++) same = ek_is_same_place(from, o->part[i]);
    return same ? ek_fail(EK_EINVAL, "%s would be overwritten on the way to %s; name another DST", from, o->path)
                : EK_OK;
}

/* A killed writer leaves a folder with files of these names alone. */
static ek_err check_left_over(const char *path)
{
    static const char *const ends[] = {".safetensors", ".json", ".jinja"};
    ek_err err = EK_OK;
    DIR *d = opendir(path);
    if (!d) return io(path, "cannot be read");
    for (struct dirent *e; !err && (e = readdir(d));) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
        const char *end = strrchr(e->d_name, '.');
        char *file = join(path, "/", e->d_name);
        bool own = false;
        for (size_t i = 0; end && i < sizeof ends / sizeof *ends; i++) own |= !strcmp(end, ends[i]) && ek_is_file(file);
        if (!own) err = ek_fail(EK_EINVAL, "%s is not left over from a conversion: move it, or name another DST", file);
        free(file);
    }
    closedir(d);
    return err;
}

static ek_err take_lock(ek_outdir *o)
{
    if (o->folder && mkdir(o->temp, 0777) != 0 && errno != EEXIST) return io(o->temp, "cannot be made");
    /* A link in this place would lead to a file of somebody else. */
    o->lock = open(o->temp, (o->folder ? O_RDONLY | O_DIRECTORY : O_RDWR | O_CREAT) | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (o->lock < 0) return io(o->temp, "cannot be opened");
    if (flock(o->lock, LOCK_EX | LOCK_NB) == 0) return EK_OK;
    close(o->lock);
    o->lock = -1;
    return ek_fail(EK_EBUSY, "%s is being written by another process", o->temp);
}

static ek_err open_files(ek_outdir *o)
{
    if (o->folder) EK_TRY(empty_folder(o->temp)); /* a killed run may have had other files */
    for (int i = 0; i < o->n; i++) {
        o->fd[i] = open(o->part[i], O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0666);
        if (o->fd[i] < 0) return io(o->part[i], "cannot be written");
    }
    return EK_OK;
}

ek_err ek_outdir_open(ek_outdir **out, const char *path, const char *from, bool folder, bool force,
                      const char *const *name, int n_files)
{
    ek_outdir *o = ek_alloc(sizeof *o);
    *out = NULL;
    *o = (ek_outdir){.path = ek_strdup(path), .folder = folder, .force = force, .lock = -1, .n = n_files};
    for (size_t end = strlen(o->path); folder && end > 1 && o->path[end - 1] == '/';) o->path[--end] = 0;
    o->temp = join(folder ? o->path : name[0], "", ".part");
    o->name = ek_alloc(sizeof *o->name * (size_t)n_files);
    o->part = ek_alloc(sizeof *o->part * (size_t)n_files);
    o->fd = ek_alloc(sizeof *o->fd * (size_t)n_files);
    for (int i = 0; i < n_files; i++) {
        o->fd[i] = -1;
        o->name[i] = folder ? join(o->path, "/", name[i]) : ek_strdup(name[i]);
        o->part[i] = folder ? join(o->temp, "/", name[i]) : join(name[i], "", ".part");
    }
    ek_err err = check_free(o);
    if (!err && from) err = check_source(o, from);
    if (!err) err = take_lock(o);
    if (!err && folder) err = check_left_over(o->temp);
    if (err) {
        free_all(o);
        return err;
    }
    err = open_files(o);
    if (err) ek_outdir_cancel(o);
    else *out = o;
    return err;
}

ek_err ek_outdir_room(const ek_outdir *o, double bytes)
{
    struct statvfs st;
    if (fstatvfs(o->fd[0], &st) != 0) return io(o->part[0], "free space cannot be read");
    double free_bytes = (double)st.f_bavail * (double)st.f_frsize;
    if (bytes <= free_bytes) return EK_OK;
    return ek_fail(EK_EIO, "%s needs %.2f GB, %.2f GB are free on that disk", o->path, bytes / 1e9, free_bytes / 1e9);
}

ek_err ek_outdir_size(ek_outdir *o, int file, uint64_t bytes)
{
    if (bytes == 0 || fallocate(o->fd[file], 0, 0, (off_t)bytes) == 0) return EK_OK;
    bool cannot = errno == EOPNOTSUPP || errno == ENOSYS || errno == EINTR;
    if (cannot && ftruncate(o->fd[file], (off_t)bytes) == 0) return EK_OK;
    return io(o->part[file], "cannot be written");
}

ek_err ek_outdir_write(ek_outdir *o, int file, uint64_t at, const void *bytes, size_t n)
{
    for (const uint8_t *p = bytes; n;) {
        ssize_t did = pwrite(o->fd[file], p, n, (off_t)at);
        if (did < 0 && errno == EINTR) continue;
        if (did <= 0) return io(o->part[file], "cannot be written");
        p += did, at += (uint64_t)did, n -= (size_t)did;
    }
    return EK_OK;
}

static ek_err sync_all(ek_outdir *o)
{
    for (int i = 0; i < o->n; i++)
        if (fsync(o->fd[i]) != 0) return io(o->part[i], "cannot be synced");
    return o->folder && fsync(o->lock) != 0 ? io(o->temp, "cannot be synced") : EK_OK;
}

/* Syncs the folder that holds the new names. */
static ek_err sync_parent(const ek_outdir *o)
{
    const char *of = o->folder ? o->path : o->name[0], *slash = strrchr(of, '/');
    char *dir = slash ? strndup(of, slash > of ? (size_t)(slash - of) : 1) : ek_strdup(".");
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    ek_err err = fd >= 0 && fsync(fd) == 0 ? EK_OK : io(dir, "cannot be synced");
    if (fd >= 0) close(fd);
    free(dir);
    return err;
}

static ek_err rename_folder(ek_outdir *o)
{
    if (!exists(o->path)) return rename(o->temp, o->path) == 0 ? EK_OK : io(o->path, "cannot be renamed to");
    if (renameat2(AT_FDCWD, o->temp, AT_FDCWD, o->path, RENAME_EXCHANGE) != 0) return io(o->path, "cannot be replaced");
    EK_TRY(empty_folder(o->temp)); /* the old folder is here now */
    return rmdir(o->temp) == 0 ? EK_OK : io(o->temp, "cannot be removed");
}

static ek_err rename_files(ek_outdir *o)
{
    for (int i = 0; i < o->n; i++)
        if (rename(o->part[i], o->name[i]) != 0) return io(o->name[i], "cannot be renamed to");
    return EK_OK;
}

ek_err ek_outdir_commit(ek_outdir *o)
{
    ek_err err = sync_all(o);
    if (!err) err = check_free(o); /* nothing may have appeared there since the work began */
    if (!err) err = o->folder ? rename_folder(o) : rename_files(o);
    if (err) {
        ek_outdir_cancel(o);
        return err;
    }
    err = sync_parent(o);
    free_all(o);
    return err;
}

void ek_outdir_cancel(ek_outdir *o)
{
    if (!o) return;
    for (int i = 0; i < o->n; i++) unlink(o->part[i]);
    if (o->folder) rmdir(o->temp);
    free_all(o);
}
