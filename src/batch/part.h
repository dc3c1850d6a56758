/* OUT.part: the results of an unfinished run, in order of arrival.
 *
 * The file has a head, one line of JSON that identifies the run, then records {index, length, flags, sum, line}, each
 * appended by one write. A killed process loses no record whose write has ended; fdatasync every second or 4 MiB bounds
 * the loss in a power cut. The next start removes a torn record and everything after it. A run locks the file. At the
 * end the lines go to OUT in their order; OUT appears whole or not at all. A line takes 16 bytes of memory. */
#ifndef EK_BATCH_PART_H
#define EK_BATCH_PART_H

#include "base/buf.h"
#include "base/err.h"

typedef struct ek_batch_part ek_batch_part;

/* Opens or makes out.part and locks it. EBUSY if another run has it; EIO with the path. */
ek_err ek_batch_part_open(ek_batch_part **out, const char *path);
void ek_batch_part_close(ek_batch_part *p); /* keeps the file; NULL is allowed */

/* Whether OUT exists already, without a part. */
bool ek_batch_part_ended(const ek_batch_part *p);

/* Reads the results so far of n lines, or begins a part. head: a JSON object in one line. EINVAL if the file belongs to
 * another run, with the first different member and both values; also if it is no part, or OUT exists and the part lacks
 * lines. EPARSE for a line beyond n. */
ek_err ek_batch_part_begin(ek_batch_part *p, const ek_buf *head, size_t n);
bool ek_batch_part_has(const ek_batch_part *p, size_t i);
size_t ek_batch_part_count(const ek_batch_part *p);  /* number of finished lines */
size_t ek_batch_part_errors(const ek_batch_part *p); /* errors among them */

/* EIO, such as a full disk; the part is then unchanged. */
ek_err ek_batch_part_add(ek_batch_part *p, size_t i, const ek_buf *line, bool error);

/* Writes all lines to OUT, and errors also to another file (NULL: none). sha256: OUT's. The part stays. */
ek_err ek_batch_part_write(ek_batch_part *p, const char *errors, char sha256[65]);
/* Removes the part. */
ek_err ek_batch_part_remove(ek_batch_part *p);

/* A new file that finally replaces path, or is removed. */
typedef struct ek_batch_file {
    int fd;
    char *path, *made; /* the final name; the temporary name */
    ek_buf waiting;    /* bytes not written yet */
    void *sum;         /* SHA-256 so far */
} ek_batch_file;

ek_err ek_batch_file_open(ek_batch_file *f, const char *path);
ek_err ek_batch_file_line(ek_batch_file *f, const char *s, size_t n); /* adds the newline */
/* The SHA-256 of all lines so far. */
ek_err ek_batch_file_sum(ek_batch_file *f, char sha256[65]);
/* err: the caller's result. EK_OK: the file is synced and replaces path; else it is removed. */
ek_err ek_batch_file_close(ek_batch_file *f, ek_err err, char sha256[65]);

#endif
