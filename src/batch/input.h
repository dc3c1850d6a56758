/* A file of lines, each found again by its offset. A line takes 32 bytes of memory. */
#ifndef EK_BATCH_INPUT_H
#define EK_BATCH_INPUT_H

#include "batch/line.h"

typedef struct ek_batch_entry {
    uint64_t at, n;  /* the line's bytes in the file, without its end */
    uint64_t hash;   /* first 8 bytes of their SHA-256 */
    uint64_t number; /* in the file, from 1, blank lines counted */
} ek_batch_entry;

typedef struct ek_batch_input {
    int fd;
    char *path;
    char sha256[65]; /* of the file */
    ek_batch_entry *lines;
    size_t n;
    uint64_t bytes;
} ek_batch_input;

/* Opens a regular file and reads it once. Blank lines, a byte order mark and CR before LF are left out; the last line
 * may lack its end. requests: its lines are requests, and EINVAL where two have one custom_id, with both lines'
 * numbers. ENOTFOUND, EIO with the path. ek_batch_input_close also after a failure, and for a zeroed one. */
ek_err ek_batch_input_open(ek_batch_input *in, const char *path, bool requests);
void ek_batch_input_close(ek_batch_input *in);

/* Line i into out, which is emptied first. EIO where the file is no longer as it was. */
ek_err ek_batch_input_line(const ek_batch_input *in, size_t i, ek_buf *out);
/* The same as a request. text: its bytes, which line points into; empty for a line that is too long. id:
 * ek_batch_line_id, of that one by its hash. */
ek_err ek_batch_input_request(const ek_batch_input *in, size_t i, ek_buf *text, ek_batch_line *line,
                              char id[EK_BATCH_ID]);

#endif
