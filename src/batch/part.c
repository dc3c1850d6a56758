#include "batch/part.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/hash/hash.h"
#include "base/linux.h"
#include "batch/batch.h"

#define HEAD_INDEX UINT64_MAX
enum { SYNC_BYTES = 4 << 20, ERROR = 1 };
static const double SYNC_SECONDS = 1;

typedef struct record {
    uint64_t index;
    uint32_t n, flags;
    uint64_t sum; /* the first 8 bytes of a SHA-256 over the three numbers and the line */
} record;

typedef struct entry {
    uint64_t at; /* the offset of its line in the file; 0: none */
    uint32_t n, flags;
} entry;

struct ek_batch_part {
    char *out, *path;
    int fd;
    bool locked;
    uint64_t end; /* the offset of the next record */
    size_t n, n_has, n_errors;
    entry *lines;
    uint64_t unsynced;
    double synced;
};

static ek_err failed(const ek_batch_part *p)
{
    return ek_file_failed(p->path);
}

static uint64_t sum_of(const record *r, const char *line)
{
    char hex[65];
    ek_sha256_state s;
    ek_sha256_init(&s);
    ek_sha256_add(&s, r, offsetof(record, sum));
    ek_sha256_add(&s, line, r->n);
    ek_sha256_end(&s, hex);
    return ek_batch_sum(hex);
}

ek_err ek_batch_part_open(ek_batch_part **out, const char *path)
{
    ek_buf name = {0};
    ek_buf_fmt(&name, "%s.part", path);
    ek_batch_part *p = ek_alloc(sizeof *p);
    p->out = ek_strdup(path);
    p->path = name.data;
    p->fd = open(p->path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
    ek_err err = p->fd < 0 ? failed(p) : EK_OK;
    if (!err && flock(p->fd, LOCK_EX | LOCK_NB))
        err = errno == EWOULDBLOCK ? ek_fail(EK_EBUSY, "%s: another run is writing it", p->path) : failed(p);
    p->locked = !err;
    if (err) ek_batch_part_close(p);
    else *out = p;
    return err;
}

void ek_batch_part_close(ek_batch_part *p)
{
    struct stat st;
    if (!p) return;
    if (p->locked && !fstat(p->fd, &st) && st.st_size == 0) unlink(p->path); /* nothing was begun */
    if (p->fd >= 0) close(p->fd);
    free(p->out);
    free(p->path);
    free(p->lines);
    free(p);
}

bool ek_batch_part_ended(const ek_batch_part *p)
{
    struct stat st;
    return access(p->out, F_OK) == 0 && !fstat(p->fd, &st) && st.st_size == 0;
}

/* --- reading --- */

static bool read_at(const ek_batch_part *p, void *to, size_t n, uint64_t at)
{
    for (size_t k = 0; k < n;) {
        const ssize_t got = pread(p->fd, (char *)to + k, n - k, (off_t)(at + k));
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return false;
        k += (size_t)got;
    }
    return true;
}

/* Reads the record at p->end, if it is whole and its sum is right, and moves past it. False at the end, or if the
 * record is torn. */
static bool read_record(ek_batch_part *p, record *r, ek_buf *line, uint64_t size)
{
    if (size - p->end < sizeof *r || !read_at(p, r, sizeof *r, p->end)) return false;
    if (r->n > size - p->end - sizeof *r) return false;
    ek_buf_clear(line);
    if (!ek_buf_reserve(line, (size_t)r->n + 1)) return false;
    if (!read_at(p, line->data, r->n, p->end + sizeof *r)) return false;
    line->len = r->n;
    line->data[r->n] = '\0';
    if (sum_of(r, line->data) != r->sum) return false;
    p->end += sizeof *r + r->n;
    return true;
}

static void note(ek_batch_part *p, size_t i, uint64_t at, uint32_t n, uint32_t flags)
{
    if (p->lines[i].at) return;
    p->lines[i] = (entry){at, n, flags};
    p->n_has++;
    p->n_errors += flags & ERROR;
}

static ek_err append(ek_batch_part *p, uint64_t index, const char *line, size_t n, uint32_t flags)
{
    if (n > UINT32_MAX) return ek_fail(EK_ETOOLARGE, "a result of %zu bytes", n);
    record r = {.index = index, .n = (uint32_t)n, .flags = flags};
    r.sum = sum_of(&r, line);
    struct iovec v[] = {{&r, sizeof r}, {(char *)(uintptr_t)line, n}};
    ssize_t done;
    do done = pwritev(p->fd, v, 2, (off_t)p->end);
    while (done < 0 && errno == EINTR);
    if (done != (ssize_t)(sizeof r + n)) {
        const int why = done < 0 ? errno : ENOSPC;
        if (ftruncate(p->fd, (off_t)p->end)) {
        } /* the next start also cuts off a torn record */
        errno = why;
        return failed(p);
    }
    p->end += sizeof r + n;
    p->unsynced += sizeof r + n;
    const double now = ek_now();
    if (p->unsynced < SYNC_BYTES && now - p->synced < SYNC_SECONDS) return EK_OK;
    p->unsynced = 0;
    p->synced = now;
    return fdatasync(p->fd) && errno != EINVAL ? failed(p) : EK_OK;
}

static ek_err read_records(ek_batch_part *p, uint64_t size)
{
    record r;
    ek_buf line = {0};
    ek_err err = EK_OK;
    while (read_record(p, &r, &line, size)) {
        if (r.index >= p->n) {
            err = ek_fail(EK_EPARSE, "%s: it has a line %llu of %zu; remove it to begin anew", p->path,
                          (unsigned long long)r.index, p->n);
            break;
        }
        note(p, (size_t)r.index, p->end - r.n, r.n, r.flags);
    }
    ek_buf_fini(&line);
    return !err && ftruncate(p->fd, (off_t)p->end) ? failed(p) : err;
}

/* Whether the file may be the torn beginning of a part: its first bytes are a head's, or zeros after a power cut. */
static bool may_be_torn(const ek_batch_part *p, uint64_t size)
{
    static const uint64_t head = HEAD_INDEX, none = 0;
    uint64_t first = 0;
    const size_t n = size < sizeof first ? (size_t)size : sizeof first;
    return read_at(p, &first, n, 0) && (!memcmp(&first, &head, n) || !memcmp(&first, &none, n));
}

ek_err ek_batch_part_begin(ek_batch_part *p, const ek_buf *head, size_t n)
{
    struct stat st;
    record r;
    ek_buf there = {0};
    ek_batch_other other;
    p->n = n;
    p->lines = ek_alloc((n + 1) * sizeof *p->lines);
    if (fstat(p->fd, &st)) return failed(p);
    const bool any = read_record(p, &r, &there, (uint64_t)st.st_size) && r.index == HEAD_INDEX;
    ek_err err = EK_OK;
    if (!any && !may_be_torn(p, (uint64_t)st.st_size)) {
        err = ek_fail(EK_EINVAL, "%s: it is no unfinished result; remove it, or name another file", p->path);
    } else if (!any) { /* the file does not even have a head */
        p->end = 0;
        err = ftruncate(p->fd, 0) ? failed(p) : append(p, HEAD_INDEX, head->data, head->len, 0);
    } else if (there.len != head->len || memcmp(there.data, head->data, head->len) != 0) {
        ek_batch_find_other(&other, &there, head);
        err = ek_fail(EK_EINVAL, "%s: it is of another run, with %s %s, not %s; remove it to begin anew", p->path,
                      other.member, other.there, other.here);
    } else {
        err = read_records(p, (uint64_t)st.st_size);
    }
    ek_buf_fini(&there);
    if (!err && p->n_has < n && access(p->out, F_OK) == 0)
        err = ek_fail(EK_EINVAL, "%s: it exists; remove it, or name another file", p->out);
    return err;
}

bool ek_batch_part_has(const ek_batch_part *p, size_t i)
{
    return p->lines[i].at != 0;
}

size_t ek_batch_part_count(const ek_batch_part *p)
{
    return p->n_has;
}

size_t ek_batch_part_errors(const ek_batch_part *p)
{
    return p->n_errors;
}

ek_err ek_batch_part_add(ek_batch_part *p, size_t i, const ek_buf *line, bool error)
{
    const uint64_t at = p->end + sizeof(record);
    EK_TRY(append(p, i, line->data, line->len, error ? ERROR : 0));
    note(p, i, at, (uint32_t)line->len, error ? ERROR : 0);
    return EK_OK;
}

/* --- the end --- */

static ek_err write_lines(ek_batch_part *p, ek_batch_file *out, ek_batch_file *errors)
{
    ek_buf line = {0};
    ek_err err = EK_OK;
    for (size_t i = 0; i < p->n && !err; i++) {
        const entry *e = &p->lines[i];
        ek_buf_clear(&line);
        if (!ek_buf_reserve(&line, (size_t)e->n + 1)) err = ek_fail(EK_ENOMEM, "%s: no memory for a line", p->path);
        else if (!read_at(p, line.data, e->n, e->at)) err = failed(p);
        if (!err) err = ek_batch_file_line(out, line.data, e->n);
        if (!err && errors && e->flags & ERROR) err = ek_batch_file_line(errors, line.data, e->n);
    }
    ek_buf_fini(&line);
    return err;
}

ek_err ek_batch_part_write(ek_batch_part *p, const char *errors, char sha256[65])
{
    ek_batch_file out, other;
    EK_ASSERT(p->n_has == p->n);
    ek_err err = ek_batch_file_open(&out, p->out);
    const bool both = !err && errors;
    if (both) err = ek_batch_file_open(&other, errors);
    if (!err) err = write_lines(p, &out, both ? &other : NULL);
    if (both) err = ek_batch_file_close(&other, err, NULL);
    return ek_batch_file_close(&out, err, sha256);
}

ek_err ek_batch_part_remove(ek_batch_part *p)
{
    return unlink(p->path) && errno != ENOENT ? failed(p) : EK_OK;
}

/* --- a new file that replaces another --- */

enum { WAITING = 1 << 20 };

ek_err ek_batch_file_open(ek_batch_file *f, const char *path)
{
    ek_buf made = {0};
    ek_buf_fmt(&made, "%s.tmp", path);
    *f = (ek_batch_file){.path = ek_strdup(path), .made = made.data, .sum = ek_alloc(sizeof(ek_sha256_state))};
    ek_sha256_init(f->sum);
    unlink(f->made); /* left by a killed run, or a link that somebody put there */
    f->fd = open(f->made, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    return f->fd < 0 ? ek_file_failed(f->made) : EK_OK;
}

static ek_err flush(ek_batch_file *f)
{
    if (ek_fd_write(f->fd, f->waiting.data, f->waiting.len)) return ek_file_failed(f->made);
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
    if (fd < 0) return ek_file_failed(path);
    const int bad = fsync(fd) && errno != EINVAL && errno != EROFS;
    close(fd);
    return bad ? ek_file_failed(path) : EK_OK;
}

static ek_err end(ek_batch_file *f)
{
    EK_TRY(flush(f));
    if (fsync(f->fd) && errno != EINVAL) return ek_file_failed(f->made);
    if (rename(f->made, f->path)) return ek_file_failed(f->path);
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
