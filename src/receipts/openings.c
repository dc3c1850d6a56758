#include "receipts/openings.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/file.h"
#include "base/log.h"
#include "text/json/json.h"

enum { ROOM = 4 << 20, MAX_LINE = 64 << 20 }; /* bytes */

/* fd changes only on the thread that calls reopen and ready. Others use it under the lock. */
struct ek_openings {
    pthread_mutex_t lock;
    int fd;
    off_t torn; /* the offset of a part of a line that could not be cut off; -1: none */
    char *path;
};

/* The offset of a last line without a newline; size: there is none; -1: unreadable. */
static off_t last_line(int fd, off_t size)
{
    char block[4096];
    for (off_t at = size; at > 0;) {
        const off_t n = at < (off_t)sizeof block ? at : (off_t)sizeof block;
        if (pread(fd, block, (size_t)n, at - n) != n) return -1;
        for (off_t i = n; i > 0; i--)
            if (block[i - 1] == '\n') return at - n + i;
        at -= n;
    }
    return 0;
}

static bool is_whole(int fd, off_t from, size_t n)
{
    json_t *v = NULL;
    char *text = n <= MAX_LINE ? ek_alloc(n + 1) : NULL;
    const bool read = text && pread(fd, text, n, from) == (ssize_t)n;
    const bool whole = read && !ek_json_read(&v, text, n, 0) && json_is_object(v);
    json_decref(v);
    free(text);
    return whole;
}

/* A part of a line whose writing was interrupted is dropped. A whole line that only lacks its newline, as editors leave
 * it, is a copy that may have been sent, so it is kept. */
static ek_err end_last_line(const char *path, int fd, off_t size)
{
    const off_t at = last_line(fd, size);
    if (at < 0) return ek_file_failed(path);
    if (at == size) return EK_OK;
    if (is_whole(fd, at, (size_t)(size - at))) return ek_fd_write(fd, "\n", 1) ? ek_file_failed(path) : EK_OK;
    ek_log(EK_LOG_WARN, "%s: %lld bytes of a line that was not finished are cut off", path, (long long)(size - at));
    return ftruncate(fd, at) ? ek_file_failed(path) : EK_OK;
}

static ek_err check(const char *path, int fd)
{
    struct stat st;
    if (fd < 0 || fstat(fd, &st)) return ek_file_failed(path);
    if (!S_ISREG(st.st_mode)) return ek_fail(EK_EINVAL, "%s is no file", path);
    if (st.st_mode & 077)
        return ek_fail(EK_EINVAL, "%s may be read by others (mode %03o), and it has prompts and salts: chmod 600", path,
                       (unsigned)st.st_mode & 0777);
    if (flock(fd, LOCK_EX | LOCK_NB)) return ek_fail(EK_EBUSY, "%s: another process writes into it", path);
    return end_last_line(path, fd, st.st_size);
}

static ek_err open_file(int *out, const char *path)
{
    const int fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0600);
    const ek_err err = check(path, fd);
    if (err && fd >= 0) close(fd);
    *out = err ? -1 : fd;
    return err;
}

ek_err ek_openings_open(ek_openings **out, const char *path)
{
    int fd;
    *out = NULL;
    EK_TRY(open_file(&fd, path));
    ek_openings *o = ek_alloc(sizeof *o);
    *o = (ek_openings){.fd = fd, .torn = -1, .path = ek_strdup(path)};
    pthread_mutex_init(&o->lock, NULL);
    *out = o;
    return EK_OK;
}

void ek_openings_close(ek_openings *o)
{
    if (!o) return;
    close(o->fd);
    pthread_mutex_destroy(&o->lock);
    free(o->path);
    free(o);
}

ek_err ek_openings_reopen(ek_openings *o)
{
    struct stat now, then;
    int fd;
    if (!stat(o->path, &now) && !fstat(o->fd, &then) && now.st_ino == then.st_ino && now.st_dev == then.st_dev)
        return EK_OK;
    EK_TRY(open_file(&fd, o->path));
    pthread_mutex_lock(&o->lock);
    close(o->fd);
    o->fd = fd;
    o->torn = -1;
    pthread_mutex_unlock(&o->lock);
    return EK_OK;
}

/* Appends the whole text, or nothing. */
static ek_err append(ek_openings *o, const ek_buf *line)
{
    struct stat st;
    if (o->torn >= 0 && ftruncate(o->fd, o->torn)) return ek_file_failed(o->path);
    o->torn = -1;
    if (fstat(o->fd, &st)) return ek_file_failed(o->path);
    const ek_err err = ek_fd_write(o->fd, line->data, line->len);
    if (!err) return EK_OK;
    if (ftruncate(o->fd, st.st_size)) o->torn = st.st_size;
    return ek_fail_in(err, "%s", o->path);
}

/* Without the lock, because a worker may hold it while it waits for its disk. */
ek_err ek_openings_ready(ek_openings *o)
{
    struct statvfs fs;
    const bool known = !fstatvfs(o->fd, &fs);
    if (!known) return ek_file_failed(o->path);
    if ((uint64_t)fs.f_bavail * fs.f_frsize >= ROOM) return EK_OK;
    return ek_fail(EK_EIO, "%s has no room on its disk; ask without a receipt, or later", o->path);
}

ek_err ek_openings_add(ek_openings *o, const char *id, int choice, const char *receipt, size_t n)
{
    ek_buf line = {0};
    ek_buf_str(&line, "{\"id\":");
    ek_json_quote(&line, id, strlen(id));
    ek_buf_fmt(&line, ",\"choice\":%d,\"receipt\":", choice);
    ek_buf_add(&line, receipt, n);
    ek_buf_str(&line, "}\n");
    pthread_mutex_lock(&o->lock);
    const ek_err err = append(o, &line);
    pthread_mutex_unlock(&o->lock);
    ek_buf_fini(&line);
    return err;
}
