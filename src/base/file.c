#define _GNU_SOURCE
#include "base/file.h"

#include <dlfcn.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#ifdef __linux__
#include <link.h>
#endif

#include "base/alloc.h"

ek_err ek_file_failed(const char *path)
{
    return ek_fail(EK_EIO, "%s: %s", path, strerror(errno));
}

static ek_err failed(const char *path)
{
    const ek_err err = errno == ENOENT ? EK_ENOTFOUND : EK_EIO;
    (void)ek_file_failed(path);
    return err;
}

static ek_err no_file(const char *path, mode_t mode)
{
    return ek_fail(EK_EIO, "%s: is %s, not a file", path,
                   S_ISDIR(mode)    ? "a folder"
                   : S_ISFIFO(mode) ? "a pipe"
                   : S_ISSOCK(mode) ? "a socket"
                                    : "a device");
}

/* Checks the file before it is opened, because opening a pipe waits for its writer. */
static ek_err open_read(const char *path, int *fd, struct stat *st)
{
    *fd = -1;
    if (stat(path, st) != 0) return failed(path);
    if (!S_ISREG(st->st_mode)) return no_file(path, st->st_mode);
    *fd = open(path, O_RDONLY | O_CLOEXEC);
    if (*fd < 0) return failed(path);
    if (fstat(*fd, st) == 0) return EK_OK;
    close(*fd);
    return failed(path);
}

ek_err ek_file_check(const char *path)
{
    int fd;
    struct stat st;
    EK_TRY(open_read(path, &fd, &st));
    close(fd);
    return EK_OK;
}

ek_err ek_map_open(ek_map *m, const char *path)
{
    int fd;
    struct stat st;
    *m = (ek_map){0};
    EK_TRY(open_read(path, &fd, &st));
    m->size = (size_t)st.st_size;
    if (m->size) {
        void *p = mmap(NULL, m->size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (p == MAP_FAILED) {
            close(fd);
            return ek_file_failed(path);
        }
        m->data = p;
    }
    close(fd);
    return EK_OK;
}

void ek_map_close(ek_map *m)
{
    if (m->data) munmap((void *)m->data, m->size);
    *m = (ek_map){0};
}

void ek_map_drop_pages(const ek_map *m)
{
    if (m->data) madvise((void *)m->data, m->size, MADV_DONTNEED);
}

ek_err ek_fd_read(ek_buf *b, int fd, size_t limit)
{
    char chunk[65536];
    size_t took = 0;
    for (;;) {
        ssize_t n = read(fd, chunk, sizeof chunk);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return ek_fail(EK_EIO, "read: %s", strerror(errno));
        if (n == 0) return EK_OK;
        took += (size_t)n;
        if (took > limit) return ek_fail(EK_ETOOLARGE, "more than %zu bytes", limit);
        ek_buf_add(b, chunk, (size_t)n);
    }
}

ek_err ek_file_read(ek_buf *b, const char *path, size_t limit)
{
    int fd;
    struct stat st;
    EK_TRY(open_read(path, &fd, &st));
    ek_err err = ek_fd_read(b, fd, limit);
    close(fd);
    return err ? ek_fail_in(err, "%s", path) : EK_OK;
}

ek_err ek_fd_write(int fd, const void *data, size_t n)
{
    for (const char *p = data; n > 0;) {
        const ssize_t got = write(fd, p, n);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) {
            const int why = got < 0 ? errno : ENOSPC;
            const ek_err err = ek_fail(EK_EIO, "write: %s", strerror(why));
            errno = why;
            return err;
        }
        p += got, n -= (size_t)got;
    }
    return EK_OK;
}

/* A device or a pipe, such as /dev/null, would be gone when a file takes its name. */
static ek_err check_replaced(const char *path)
{
    struct stat st;
    return stat(path, &st) || S_ISREG(st.st_mode) ? EK_OK : no_file(path, st.st_mode);
}

static int open_part(ek_buf *part, const char *path, unsigned mode)
{
    ek_buf_fmt(part, "%s.%d.part", path, (int)getpid());
    unlink(part->data);
    return open(part->data, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
}

static ek_err not_written(const char *path, int why)
{
    return ek_fail(EK_EIO, "cannot write %s: %s", path, strerror(why));
}

ek_err ek_file_replace(const char *path, const void *data, size_t n, unsigned mode)
{
    EK_TRY(check_replaced(path));
    ek_buf part = {0};
    const int fd = open_part(&part, path, mode);
    bool ok = fd >= 0 && !ek_fd_write(fd, data, n);
    int why = errno;
    if (fd >= 0 && close(fd) && ok) ok = false, why = errno;
    if (ok && rename(part.data, path)) ok = false, why = errno;
    if (!ok && fd >= 0) unlink(part.data);
    ek_buf_fini(&part);
    return ok ? EK_OK : not_written(path, why);
}

ek_err ek_new_file_open(ek_new_file *f, const char *path, unsigned mode)
{
    EK_TRY(check_replaced(path));
    ek_buf part = {0};
    const int fd = open_part(&part, path, mode);
    *f = (ek_new_file){.to = fd < 0 ? NULL : fdopen(fd, "wb"), .path = ek_strdup(path), .part = ek_strdup(part.data)};
    ek_buf_fini(&part);
    if (f->to) return EK_OK;
    const int why = errno;
    if (fd >= 0) close(fd), unlink(f->part);
    free(f->path), free(f->part);
    return not_written(path, why);
}

ek_err ek_new_file_close(ek_new_file *f, ek_err err)
{
    bool good = !err && !ferror(f->to) && !fflush(f->to) && !fsync(fileno(f->to));
    int why = errno;
    if (fclose(f->to) && good) good = false, why = errno;
    if (good && rename(f->part, f->path)) good = false, why = errno;
    if (!good) unlink(f->part);
    if (!err && !good) err = not_written(f->path, why);
    free(f->path), free(f->part);
    return err;
}

void ek_file_make_folders(const char *path)
{
    ek_buf folder = {0};
    for (const char *p = path; *p && (p = strchr(p + 1, '/'));) {
        ek_buf_clear(&folder);
        ek_buf_add(&folder, path, (size_t)(p - path));
        mkdir(folder.data, 0700);
    }
    ek_buf_fini(&folder);
}

int ek_is_dir(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static int is_same_file(const char *a, const char *b)
{
    struct stat x, y;
    return !stat(a, &x) && !stat(b, &y) && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

int ek_is_same_place(const char *a, const char *b)
{
    if (is_same_file(a, b)) return 1;
    struct stat st;
    if (!stat(a, &st) && !stat(b, &st)) return 0;
    char *copy[] = {ek_strdup(a), ek_strdup(b), ek_strdup(a), ek_strdup(b)}; /* basename and dirname may change them */
    const int same = !strcmp(basename(copy[0]), basename(copy[1])) && is_same_file(dirname(copy[2]), dirname(copy[3]));
    for (size_t i = 0; i < sizeof copy / sizeof *copy; i++) free(copy[i]);
    return same;
}

int ek_is_file(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

/* --- the folder of this code --- */

#ifdef __linux__
/* The path of the shared library with this function; NULL: the function is in the program itself. */
static const char *library(void)
{
    Dl_info info;
    struct link_map *map = NULL;
    const void *here = (const void *)(uintptr_t)ek_own_folder;
    if (!dladdr1(here, &info, (void **)&map, RTLD_DL_LINKMAP) || !map || !map->l_name || !*map->l_name) return NULL;
    return map->l_name;
}
#else
/* The path of the library, or of the program. */
static const char *library(void)
{
    Dl_info info;
    return dladdr((const void *)(uintptr_t)ek_own_folder, &info) ? info.dli_fname : NULL;
}
#endif

ek_err ek_own_folder(char *out, size_t room)
{
    char self[PATH_MAX];
    const char *name = library();
    const ssize_t n = name ? 0 : readlink("/proc/self/exe", self, sizeof self - 1);
    if (name && !realpath(name, self)) return ek_fail(EK_EIO, "the path of the library, %s, is not there", name);
    if (n < 0) return ek_fail(EK_EIO, "/proc/self/exe is unreadable");
    if (!name) self[n] = '\0';
    char *slash = strrchr(self, '/');
    if (!slash) return ek_fail(EK_EIO, "%s is no path", self);
    *slash = '\0';
    if ((size_t)snprintf(out, room, "%s", self) >= room)
        return ek_fail(EK_EIO, "the path of the program has %zu bytes", strlen(self));
    return EK_OK;
}

int ek_by_bytes(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}
