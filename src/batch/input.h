/* A file of lines, indexed by offset. A line takes 32 bytes of memory. */
#ifndef EK_BATCH_INPUT_H
#define EK_BATCH_INPUT_H

#include "batch/line.h"

typedef struct ek_batch_entry {
    uint64_t at, n;  /* offset and bytes of the line, without its newline */
    uint64_t hash;   /* first 8 bytes of its SHA-256 */
    uint64_t number; /* line number in the file, from 1, blank lines counted */
} ek_batch_entry;

typedef struct ek_batch_input {
    int fd;
    char *path;
    char sha256[65]; /* of the file */
    ek_batch_entry *lines;
    size_t n;
    uint64_t bytes;
} ek_batch_input;

/* Opens a regular file and reads it once. Skips blank lines, a byte order mark and CR before LF; the last line may lack
 * its newline. requests: lines are requests; EINVAL, with both line numbers, if two have the same custom_id. ENOTFOUND,
 * EIO with the path. ek_batch_input_close is allowed after a failure and for a zeroed struct. */
ek_err ek_batch_input_open(ek_batch_input *in, const char *path, bool requests);
void ek_batch_input_close(ek_batch_input *in);

/* Reads line i into out, which is emptied first. EIO if the file has changed. */
ek_err ek_batch_input_line(const ek_batch_input *in, size_t i, ek_buf *out);
/* Reads line i as a request. text: the bytes that line points into; empty for a line that is too long. id:
 * ek_batch_line_id; for a line that is too long, from its hash. */
ek_err ek_batch_input_request(const ek_batch_input *in, size_t i, ek_buf *text, ek_batch_line *line,
                              char id[EK_BATCH_ID]);

#endif
