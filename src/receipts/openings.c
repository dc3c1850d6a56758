#include "receipts/openings.h"

#include <errno.h>
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
#include "base/log.h"
#include "text/json/json.h"

enum { ROOM = 4 << 20 }; /* bytes */

struct ek_openings {
    pthread_mutex_t lock;
    int fd;
    char *path;
};

static ek_err failed(const char *path)
{
    return ek_fail(EK_EIO, "%s: %s", path, strerror(errno));
}

/* Where the last whole line ends; -1: it cannot be read. */
static off_t end_of_lines(int fd, off_t size)
{
    char block[4096];
    while (size > 0) {
        const off_t n = size < (off_t)sizeof block ? size : (off_t)sizeof block;
        if (pread(fd, block, (size_t)n, size - n) != n) return -1;
        for (off_t i = n; i > 0; i--)
            if (block[i - 1] == '\n') return size - n + i;
        size -= n;
    }
    return 0;
}

static ek_err check(const char *path, int fd)
{
    struct stat st;
    if (fd < 0 || fstat(fd, &st)) return failed(path);
    if (!S_ISREG(st.st_mode)) return ek_fail(EK_EINVAL, "%s is no file", path);
    if (st.st_mode & 077)
        return ek_fail(EK_EINVAL, "%s may be read by others (mode %03o), and it has prompts and salts: chmod 600", path,
                       (unsigned)st.st_mode & 0777);
    if (flock(fd, LOCK_EX | LOCK_NB)) return ek_fail(EK_EBUSY, "%s: another process writes into it", path);
    const off_t end = end_of_lines(fd, st.st_size);
    if (end < 0) return failed(path);
    if (end == st.st_size) return EK_OK;
    ek_log(EK_LOG_WARN, "%s: %lld bytes of a line that was not finished are cut off", path,
           (long long)(st.st_size - end));
    return ftruncate(fd, end) ? failed(path) : EK_OK;
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
    *o = (ek_openings){.fd = fd, .path = ek_strdup(path)};
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
    pthread_mutex_unlock(&o->lock);
    return EK_OK;
}

/* As a whole, or nothing. */
static ek_err append(ek_openings *o, const ek_buf *line)
{
    struct stat st;
    size_t at = 0;
    ssize_t n = 0;
    if (fstat(o->fd, &st)) return failed(o->path);
    while (at < line->len && (n = write(o->fd, line->data + at, line->len - at)) > 0) at += (size_t)n;
    if (at == line->len) return EK_OK;
    const int why = n < 0 ? errno : ENOSPC;
    if (ftruncate(o->fd, st.st_size)) return failed(o->path); /* the next start cuts it off */
    return ek_fail(EK_EIO, "%s: %s", o->path, strerror(why));
}

ek_err ek_openings_ready(ek_openings *o)
{
    struct statvfs fs;
    pthread_mutex_lock(&o->lock);
    const bool known = !fstatvfs(o->fd, &fs);
    pthread_mutex_unlock(&o->lock);
    if (!known) return failed(o->path);
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
