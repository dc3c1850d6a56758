/* Files: read whole, mapped into memory, or written whole. Regular ones; what else a path names is EIO and called by
 * its kind, and nothing is waited for. */
#ifndef EK_BASE_FILE_H
#define EK_BASE_FILE_H

#include <stdint.h>
#include <stdio.h>

#include "base/buf.h"
#include "base/err.h"

/* A read-only mapping. data is NULL for an empty file. */
typedef struct ek_map {
    const uint8_t *data;
    size_t size;
} ek_map;

ek_err ek_map_open(ek_map *m, const char *path); /* ENOTFOUND or EIO, with the path */
void ek_map_close(ek_map *m);
/* Takes the mapped pages off the process; they stay in the system's cache, and return when they are read again. */
void ek_map_drop_pages(const ek_map *m);

/* Appends the file to b. ENOTFOUND, EIO; ETOOLARGE if it is longer than limit bytes. */
ek_err ek_file_read(ek_buf *b, const char *path, size_t limit);
ek_err ek_fd_read(ek_buf *b, int fd, size_t limit); /* the same from fd until end of file, for standard input */
/* All n bytes, whatever interrupts it. EIO: not all are written, and errno says why. */
ek_err ek_fd_write(int fd, const void *data, size_t n);
ek_err ek_file_check(const char *path); /* whether it could be read now: OK, ENOTFOUND or EIO */
/* The file is these n bytes afterwards, with that mode less the umask, or as it was: nobody sees half of it. Its folder
 * may be everybody's: what was laid there under the temporary file's name is not written to. EIO with the path. */
ek_err ek_file_replace(const char *path, const void *data, size_t n, unsigned mode);
/* The same of a file that is written bit by bit, with that mode; on its disk when it has closed. */
typedef struct ek_new_file {
    FILE *to;
    char *path, *part; /* part: its name until it is whole */
} ek_new_file;
ek_err ek_new_file_open(ek_new_file *f, const char *path, unsigned mode); /* EIO */
/* err: of who wrote; then, as after EIO, nothing has changed. Once, after an open that did not fail. */
ek_err ek_new_file_close(ek_new_file *f, ek_err err);
/* Makes the folders above a file, its user's alone. What fails shows when the file is written. */
void ek_file_make_folders(const char *path);
int ek_is_dir(const char *path);
int ek_is_file(const char *path);

/* The folder of the program or the shared library that this code is in, without a slash at the end. EIO. */
ek_err ek_own_folder(char *out, size_t room);

#endif
