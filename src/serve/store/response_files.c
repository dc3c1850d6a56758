#include "serve/store/response_state.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/linux.h"
#include "base/log.h"

static const char suffix[] = ".response", part_suffix[] = ".part", lock_name[] = "lock";
enum { FILE_NAME = EK_RESPONSE_RECORD_NAME + sizeof suffix, WARN_SECONDS = 60, AGE_SECONDS = 60, RETRY_SECONDS = 1 };

/* A file to be removed. */
typedef struct gone {
    struct gone *next;
    char name[EK_RESPONSE_RECORD_NAME];
} gone;

struct ek_response_files {
    ek_response_store *s;
    char *dir;
    int folder, lock;
    double max_age; /* seconds; 0: no limit */
    pthread_t thread;
    bool has_thread;
    double warned; /* ek_now() of the last warning; used by the thread, and by the start */
    /* Under the lock of the store: */
    pthread_cond_t news, idle;
    bool closing, busy;
    ek_response_entry *first, **last; /* entries to be written, linked by dirty_next */
    gone *gone;                       /* files to be removed; entries that were never written have none */
    double retry_at;                  /* ek_now() before which nothing is written, after a failed write */
};

/* --- waiting entries --- */

static void add_dirty(ek_response_files *f, ek_response_entry *e)
{
    e->dirty = true;
    e->dirty_next = NULL;
    e->dirty_at = f->last;
    *f->last = e;
    f->last = &e->dirty_next;
    pthread_cond_signal(&f->news);
}

static void remove_dirty(ek_response_files *f, ek_response_entry *e)
{
    if (!e->dirty) return;
    *e->dirty_at = e->dirty_next;
    if (e->dirty_next) e->dirty_next->dirty_at = e->dirty_at;
    else f->last = e->dirty_at;
    e->dirty = false;
}

/* The new entry takes the old one's position, so that repeated changes do not delay the write. */
static void take_turn(ek_response_files *f, ek_response_entry *e, ek_response_entry *by)
{
    if (!e->dirty) return;
    by->dirty = true;
    by->dirty_at = e->dirty_at;
    by->dirty_next = e->dirty_next;
    *by->dirty_at = by;
    if (by->dirty_next) by->dirty_next->dirty_at = &by->dirty_next;
    else f->last = &by->dirty_next;
    e->dirty = false;
}

void ek_response_files_put(ek_response_files *f, ek_response_entry *e)
{
    if (!e->dirty) add_dirty(f, e);
}

void ek_response_files_forget(ek_response_files *f, ek_response_entry *e, ek_response_entry *by)
{
    const bool has_file = e->has_file || e->writing;
    if (by) {
        by->has_file = has_file;
        take_turn(f, e, by);
        return;
    }
    remove_dirty(f, e);
    if (!has_file) return;
    gone *g = ek_alloc(sizeof *g);
    ek_response_record_name(g->name, e->owner_id, e->id);
    g->next = f->gone;
    f->gone = g;
    pthread_cond_signal(&f->news);
}

/* --- the thread --- */

/* At most one line per minute, because with a full disk every write fails. */
static void warn(ek_response_files *f, const char *doing)
{
    const double now = ek_now();
    if (f->warned > 0 && now - f->warned < WARN_SECONDS) return;
    f->warned = now;
    ek_log(EK_LOG_WARN, "event=store_failed folder=%s doing=%s: %s", f->dir, doing, ek_err_text());
}

static void file_name(char out[FILE_NAME], const char *name)
{
    snprintf(out, FILE_NAME, "%s%s", name, suffix);
}

static void remove_file(ek_response_files *f, const char *name)
{
    char file[FILE_NAME];
    file_name(file, name);
    if (!unlinkat(f->folder, file, 0) || errno == ENOENT) return;
    (void)ek_fail(EK_EIO, "%s: %s", file, strerror(errno));
    warn(f, "removing");
}

static ek_err failed(const char *file)
{
    return ek_fail(EK_EIO, "%s: %s", file, strerror(errno));
}

/* Sets the time, because the system's own is equal for writes within some milliseconds, and times give the order after
 * a restart. */
static void set_time(int fd, double seconds)
{
    const double whole = (double)(int64_t)seconds;
    const struct timespec t = {.tv_sec = (time_t)whole, .tv_nsec = (long)((seconds - whole) * 1e9)}, both[] = {t, t};
    (void)futimens(fd, both);
}

static ek_err write_file(const ek_response_files *f, const ek_response_entry *e)
{
    char name[EK_RESPONSE_RECORD_NAME], file[FILE_NAME], part[FILE_NAME + sizeof part_suffix];
    ek_response_record_name(name, e->owner_id, e->id);
    file_name(file, name);
    snprintf(part, sizeof part, "%s%s", file, part_suffix);
    unlinkat(f->folder, part, 0);
    const int fd = openat(f->folder, part, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0) return failed(part);
    ek_err err = ek_response_record_write(fd, e);
    set_time(fd, e->changed);
    if (close(fd) && !err) err = failed(part);
    if (!err && renameat(f->folder, part, f->folder, file)) err = failed(file);
    if (err) unlinkat(f->folder, part, 0);
    return err;
}

static void write_first(ek_response_files *f)
{
    ek_response_entry *e = f->first;
    remove_dirty(f, e);
    e->writing = true; /* while it is set, the entry stays unchanged */
    pthread_mutex_unlock(&f->s->lock);
    const ek_err err = write_file(f, e);
    if (err) warn(f, "writing");
    pthread_mutex_lock(&f->s->lock);
    e->writing = false;
    if (!err) e->has_file = true;
    else if (e->kept && !e->dirty && !f->closing) add_dirty(f, e); /* a full disk may have room again later */
    if (err) f->retry_at = ek_now() + RETRY_SECONDS;
    ek_response_entry_drop(e);
}

static void remove_gone(ek_response_files *f)
{
    gone *g = f->gone;
    f->gone = g->next;
    pthread_mutex_unlock(&f->s->lock);
    remove_file(f, g->name);
    free(g);
    pthread_mutex_lock(&f->s->lock);
}

static void *run(void *arg)
{
    ek_response_files *f = arg;
    double aged = ek_now();
    pthread_mutex_lock(&f->s->lock);
    for (;;) {
        if (f->max_age > 0 && ek_now() >= aged + AGE_SECONDS) {
            ek_response_store_forget_older(f->s, ek_unix_now() - f->max_age);
            aged = ek_now();
        }
        f->busy = f->gone || f->first;
        if (f->gone) {
            remove_gone(f); /* first, so that no removed file is one that is written below */
        } else if (f->first && (f->closing || ek_now() >= f->retry_at)) {
            write_first(f);
        } else if (f->first) {
            (void)ek_wait_until(&f->news, &f->s->lock, f->retry_at);
        } else {
            pthread_cond_broadcast(&f->idle);
            if (f->closing) break;
            if (f->max_age <= 0) pthread_cond_wait(&f->news, &f->s->lock);
            else (void)ek_wait_until(&f->news, &f->s->lock, aged + AGE_SECONDS);
        }
    }
    pthread_mutex_unlock(&f->s->lock);
    return NULL;
}

void ek_response_store_flush(ek_response_store *s)
{
    ek_response_files *f = s->files;
    if (!f) return;
    pthread_mutex_lock(&s->lock);
    while (f->gone || f->first || f->busy) pthread_cond_wait(&f->idle, &s->lock);
    pthread_mutex_unlock(&s->lock);
}

/* --- at the start --- */

typedef struct found {
    char name[EK_RESPONSE_RECORD_NAME];
    size_t size;
    struct timespec changed;
} found;

typedef struct list {
    found *at;
    int n, cap;
} list;

static bool is_name(char out[EK_RESPONSE_RECORD_NAME], const char *file)
{
    enum { N = EK_RESPONSE_RECORD_NAME - 1 };
    if (strlen(file) != N + sizeof suffix - 1 || strcmp(file + N, suffix) != 0) return false;
    if (strspn(file, "0123456789abcdef") < N) return false;
    memcpy(out, file, N);
    out[N] = '\0';
    return true;
}

static bool ends_with(const char *s, const char *tail)
{
    const size_t n = strlen(s), k = strlen(tail);
    return n >= k && !strcmp(s + n - k, tail);
}

/* Files that are not regular are not the store's. */
static void add_found(list *l, int folder, const char *file)
{
    found one;
    struct stat st;
    if (!is_name(one.name, file) || fstatat(folder, file, &st, AT_SYMLINK_NOFOLLOW) || !S_ISREG(st.st_mode)) return;
    one.size = (size_t)st.st_size;
    one.changed = st.st_mtim;
    if (l->n == l->cap) {
        l->cap = l->cap ? 2 * l->cap : 256;
        l->at = ek_realloc(l->at, (size_t)l->cap * sizeof *l->at);
    }
    l->at[l->n++] = one;
}

static int by_change(const void *a, const void *b)
{
    const struct timespec *x = &((const found *)a)->changed, *y = &((const found *)b)->changed;
    if (x->tv_sec != y->tv_sec) return x->tv_sec < y->tv_sec ? -1 : 1;
    return (x->tv_nsec > y->tv_nsec) - (x->tv_nsec < y->tv_nsec);
}

static ek_err list_files(list *l, const ek_response_files *f)
{
    const int fd = openat(f->folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC); /* opens the folder that was checked */
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (!d) {
        const ek_err err = failed(f->dir);
        if (fd >= 0) close(fd);
        return err;
    }
    for (const struct dirent *e; (e = readdir(d)) != NULL;) {
        if (ends_with(e->d_name, ".response.part")) unlinkat(f->folder, e->d_name, 0); /* of a killed process */
        else add_found(l, f->folder, e->d_name);
    }
    closedir(d);
    if (l->n) qsort(l->at, (size_t)l->n, sizeof *l->at, by_change);
    return EK_OK;
}

static ek_err read_bytes(ek_buf *out, int folder, const char *file, size_t max)
{
    const int fd = openat(folder, file, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) return failed(file);
    const ek_err err = ek_fd_read(out, fd, max);
    close(fd);
    return err;
}

/* A damaged file is removed. A file that cannot be read now, or has another version, stays where it is, unused. */
static void read_one(ek_response_files *f, const found *one, size_t max)
{
    char file[FILE_NAME];
    ek_buf bytes = {0};
    ek_response_record r;
    file_name(file, one->name);
    ek_err err = read_bytes(&bytes, f->folder, file, max);
    const bool read = !err || err == EK_ETOOLARGE;
    if (!err) err = ek_response_record_read(&r, f->s, one->name, bytes.data, bytes.len);
    ek_buf_fini(&bytes);
    if (err) {
        const bool goes = read && err != EK_EUNSUPPORTED;
        ek_log(EK_LOG_WARN, "event=store_skipped file=%s/%s %s: %s", f->dir, file, goes ? "removed" : "left",
               ek_err_text());
        if (goes) remove_file(f, one->name);
        return;
    }
    const bool kept = ek_response_store_put_read(f->s, &r);
    ek_response_record_fini(&r);
    if (!kept) remove_file(f, one->name);
}

static void forget_old(ek_response_files *f)
{
    pthread_mutex_lock(&f->s->lock);
    ek_response_store_forget_older(f->s, ek_unix_now() - f->max_age);
    pthread_mutex_unlock(&f->s->lock);
}

static ek_err read_all(ek_response_files *f)
{
    list l = {0};
    ek_err err = list_files(&l, f);
    for (int i = 0; i < l.n && !err; i++) read_one(f, &l.at[i], f->s->max_bytes + (1 << 20));
    if (f->max_age > 0) forget_old(f); /* once all exist, because an entry's age follows from those that continue it */
    if (!err)
        ek_log(EK_LOG_INFO, "event=store folder=%s entries=%d bytes=%zu of=%d", f->dir, f->s->n, f->s->bytes, l.n);
    free(l.at);
    return err;
}

/* Refuses a folder that others may write: they could leave responses for any key. */
static ek_err check_folder(const ek_response_files *f)
{
    struct stat st;
    if (fstat(f->folder, &st)) return failed(f->dir);
    if (st.st_uid != geteuid()) return ek_fail(EK_EINVAL, "%s: the folder is another user's", f->dir);
    if (!(st.st_mode & 022)) return EK_OK;
    return ek_fail(EK_EINVAL, "%s: others may write into the folder (mode %03o): chmod 700", f->dir,
                   (unsigned)st.st_mode & 0777);
}

static ek_err open_folder(ek_response_files *f)
{
    if (mkdir(f->dir, 0700) && errno != EEXIST) return failed(f->dir);
    f->folder = open(f->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (f->folder < 0) return failed(f->dir);
    EK_TRY(check_folder(f));
    f->lock = openat(f->folder, lock_name, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (f->lock < 0) return failed(f->dir);
    if (flock(f->lock, LOCK_EX | LOCK_NB) == 0) return EK_OK;
    return errno == EWOULDBLOCK ? ek_fail(EK_EBUSY, "%s: another server has it", f->dir) : failed(f->dir);
}

ek_err ek_response_store_keep(ek_response_store *s, const char *dir, double max_age)
{
    ek_response_files *f = ek_alloc(sizeof *f);
    *f = (ek_response_files){.s = s, .dir = ek_strdup(dir), .folder = -1, .lock = -1, .max_age = max_age};
    f->last = &f->first;
    pthread_cond_init(&f->news, NULL);
    pthread_cond_init(&f->idle, NULL);
    s->files = f;
    ek_err err = open_folder(f);
    if (!err) err = read_all(f);
    if (!err && pthread_create(&f->thread, NULL, run, f))
        err = ek_fail(EK_ENOMEM, "no thread can be started that keeps responses");
    f->has_thread = !err;
    if (!err) return EK_OK;
    ek_response_files_close(f);
    s->files = NULL;
    return err;
}

void ek_response_files_close(ek_response_files *f)
{
    if (!f) return;
    if (f->has_thread) {
        pthread_mutex_lock(&f->s->lock);
        f->closing = true;
        pthread_cond_signal(&f->news);
        pthread_mutex_unlock(&f->s->lock);
        pthread_join(f->thread, NULL);
    }
    for (gone *g; (g = f->gone) != NULL;) {
        f->gone = g->next;
        free(g);
    }
    if (f->lock >= 0) close(f->lock);
    if (f->folder >= 0) close(f->folder);
    pthread_cond_destroy(&f->news);
    pthread_cond_destroy(&f->idle);
    free(f->dir);
    free(f);
}
