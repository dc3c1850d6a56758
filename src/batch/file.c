#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/hash/hash.h"
#include "batch/part.h"

enum { WAITING = 1 << 20 };

static ek_err failed(const char *path)
{
    return ek_fail(EK_EIO, "%s: %s", path, strerror(errno));
}

ek_err ek_batch_file_open(ek_batch_file *f, const char *path)
{
    ek_buf made = {0};
    ek_buf_fmt(&made, "%s.tmp", path);
    *f = (ek_batch_file){.path = ek_strdup(path), .made = made.data, .sum = ek_alloc(sizeof(ek_sha256_state))};
    ek_sha256_init(f->sum);
    unlink(f->made); /* left by a killed run, or a link that somebody put there */
    f->fd = open(f->made, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    return f->fd < 0 ? failed(f->made) : EK_OK;
}

static ek_err flush(ek_batch_file *f)
{
    for (size_t at = 0; at < f->waiting.len;) {
        const ssize_t n = write(f->fd, f->waiting.data + at, f->waiting.len - at);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return failed(f->made);
        at += (size_t)n;
    }
    ek_sha256_add(f->sum, ek_buf_text(&f->waiting), f->waiting.len);
    ek_buf_clear(&f->waiting);
    return EK_OK;
}

ek_err ek_batch_file_line(ek_batch_file *f, const char *s, size_t n)
{
    ek_buf_add(&f->waiting, s, n);
    ek_buf_char(&f->waiting, '\n');
    return f->waiting.len < WAITING ? EK_OK : flush(f);
}

ek_err ek_batch_file_sum(ek_batch_file *f, char sha256[65])
{
    EK_TRY(flush(f));
    ek_sha256_state s = *(const ek_sha256_state *)f->sum;
    ek_sha256_end(&s, sha256);
    return EK_OK;
}

/* A new name is part of the folder, so the folder is synced, too. */
static ek_err sync_folder(const char *path)
{
    char *copy = ek_strdup(path);
    const int fd = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    free(copy);
    if (fd < 0) return failed(path);
    const int bad = fsync(fd) && errno != EINVAL && errno != EROFS;
    close(fd);
    return bad ? failed(path) : EK_OK;
}

static ek_err end(ek_batch_file *f)
{
    EK_TRY(flush(f));
    if (fsync(f->fd) && errno != EINVAL) return failed(f->made);
    if (rename(f->made, f->path)) return failed(f->path);
    return sync_folder(f->path);
}

ek_err ek_batch_file_close(ek_batch_file *f, ek_err err, char sha256[65])
{
    char hex[65];
    if (!err) err = end(f);
    if (err && f->fd >= 0) unlink(f->made);
    ek_sha256_end(f->sum, hex);
    if (sha256) memcpy(sha256, hex, sizeof hex);
    if (f->fd >= 0) close(f->fd);
    ek_buf_fini(&f->waiting);
    free(f->sum);
    free(f->path);
    free(f->made);
    *f = (ek_batch_file){.fd = -1};
    return err;
}
