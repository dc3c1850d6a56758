/* OUT.part: the results of a run that has not ended, in the order in which they came.
 *
 * A head, one line of JSON that says which run it is, then records {index, length, flags, sum, line}, each appended by
 * one write. A killed process loses no record whose write has ended; fdatasync every second or 4 MiB bounds the loss of
 * a power cut. A torn record, and what follows it, is cut off at the next start. The file is locked while a run has it.
 * At the end the lines go to OUT in their order: it appears whole, or not at all. A line takes 16 bytes of memory. */
#ifndef EK_BATCH_PART_H
#define EK_BATCH_PART_H

#include "base/buf.h"
#include "base/err.h"

typedef struct ek_batch_part ek_batch_part;

/* Opens or makes out.part and locks it. EBUSY where another run has it; EIO with the path. */
ek_err ek_batch_part_open(ek_batch_part **out, const char *path);
void ek_batch_part_close(ek_batch_part *p); /* keeps the file; NULL is fine */

/* Whether OUT is there already, with no part of it. */
bool ek_batch_part_ended(const ek_batch_part *p);

/* Reads the results that are there for n lines, or begins. head: a JSON object in one line. EINVAL where the file is of
 * another run, with the first member that differs and both values; and where OUT exists and the part lacks lines.
 * EPARSE where it has a line beyond n. */
ek_err ek_batch_part_begin(ek_batch_part *p, const ek_buf *head, size_t n);
bool ek_batch_part_has(const ek_batch_part *p, size_t i);
size_t ek_batch_part_count(const ek_batch_part *p);  /* lines that it has */
size_t ek_batch_part_errors(const ek_batch_part *p); /* of these, errors */

/* EIO, as of a full disk: the part is as before. */
ek_err ek_batch_part_add(ek_batch_part *p, size_t i, const ek_buf *line, bool error);

/* All lines to OUT, and its errors to another file too (NULL: nowhere). sha256: of OUT. The part stays. */
ek_err ek_batch_part_write(ek_batch_part *p, const char *errors, char sha256[65]);
/* Removes the part. */
ek_err ek_batch_part_remove(ek_batch_part *p);

/* A new file that takes the place of path at the end, or is removed. */
typedef struct ek_batch_file {
    int fd;
    char *path, *made; /* its name at the end, and until then */
    ek_buf waiting;    /* bytes that are not written yet */
    void *sum;         /* SHA-256 so far */
} ek_batch_file;

ek_err ek_batch_file_open(ek_batch_file *f, const char *path);
ek_err ek_batch_file_line(ek_batch_file *f, const char *s, size_t n); /* and its end */
/* The SHA-256 of all lines so far. */
ek_err ek_batch_file_sum(ek_batch_file *f, char sha256[65]);
/* err is the caller's. EK_OK: the file is synced and takes its place; else it is removed. */
ek_err ek_batch_file_close(ek_batch_file *f, ek_err err, char sha256[65]);

#endif
