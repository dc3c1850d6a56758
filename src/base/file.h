/* Regular files: read whole, mapped, or written whole. Any other kind of file is EIO, named in the message, and never
 * waited for. */
#ifndef EK_BASE_FILE_H
#define EK_BASE_FILE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"

/* A read-only mapping. data is NULL for an empty file. */
typedef struct ek_map {
    const uint8_t *data;
    size_t size;
} ek_map;

ek_err ek_map_open(ek_map *m, const char *path); /* ENOTFOUND or EIO, with the path */
void ek_map_close(ek_map *m);
/* Unmaps the pages from the process; they stay in the system's cache, and return when they are read again. */
void ek_map_drop_pages(const ek_map *m);

/* Appends the file to b. ENOTFOUND, EIO; ETOOLARGE if it is longer than limit bytes. */
ek_err ek_file_read(ek_buf *b, const char *path, size_t limit);
ek_err ek_fd_read(ek_buf *b, int fd, size_t limit); /* the same for fd, until end of file, for standard input */
/* Writes all n bytes, despite interruptions. EIO if some are missing; errno has the reason. */
ek_err ek_fd_write(int fd, const void *data, size_t n);
/* EIO with the path and the reason, which errno has. */
ek_err ek_file_failed(const char *path);
ek_err ek_file_check(const char *path); /* whether the file is readable now: OK, ENOTFOUND or EIO */
/* Replaces a file's contents atomically by n bytes, with `mode` less the umask; after an error it is unchanged. The
 * folder may be shared: a foreign file under the temporary name is never written to. EIO with the path, also for
 * anything but a regular file, such as a device. */
ek_err ek_file_replace(const char *path, const void *data, size_t n, unsigned mode);
/* Replaces a file atomically with contents that are written in parts; they are on the disk after close. */
typedef struct ek_new_file {
    FILE *to;
    char *path, *part; /* part: its temporary name */
} ek_new_file;
ek_err ek_new_file_open(ek_new_file *f, const char *path, unsigned mode); /* EIO */
/* Ends the writing; err: the writer's result. After an error of either the old file is unchanged. Call once after a
 * successful open. */
ek_err ek_new_file_close(ek_new_file *f, ek_err err);
/* Makes the folders above a file, accessible to its user only. Errors appear when the file is written. */
void ek_file_make_folders(const char *path);
int ek_is_dir(const char *path);
int ek_is_file(const char *path);
/* Whether both paths are one place, where there may be no file yet: one file, or one name in the same folder. */
int ek_is_same_place(const char *a, const char *b);

static inline bool ek_ends_with(const char *s, const char *end)
{
    const size_t n = strlen(s), m = strlen(end);
    return n >= m && strcmp(s + n - m, end) == 0;
}

struct dirent;
/* The order of scandir's entries. Not alphasort, whose order depends on the locale. */
int ek_by_bytes(const struct dirent **a, const struct dirent **b);

/* The folder of the program or shared library with this code, without a slash at the end. EIO. */
ek_err ek_own_folder(char *out, size_t room);

#endif
