/* The operator's own copies of receipts with what opens them: a file of lines {"id", "choice", "receipt"}, mode 0600,
 * each of which `verify` takes. Without such a file nobody but the client has the salts. Where a line is deleted, the
 * hash in the log of receipts says nothing any more.
 *
 * A line is there as a whole before its receipt is sent, or the receipt is not sent. Any thread. */
#ifndef EK_RECEIPTS_OPENINGS_H
#define EK_RECEIPTS_OPENINGS_H

#include <stddef.h>

#include "base/err.h"

typedef struct ek_openings ek_openings;

/* Opens or begins the file, for this process alone; half a line at its end is cut off. EINVAL for one that others may
 * read; EBUSY if another process has it; EIO. */
ek_err ek_openings_open(ek_openings **out, const char *path);
void ek_openings_close(ek_openings *o); /* NULL is allowed */
/* Begins to write to what the path names now, after an operator has put another file there. Errors as of open: the old
 * file stays. */
ek_err ek_openings_reopen(ek_openings *o);
ek_err ek_openings_ready(ek_openings *o); /* EIO: its disk has no room for a line */
/* receipt: n bytes of JSON; id: of the reply. EIO: the line is not there. */
ek_err ek_openings_add(ek_openings *o, const char *id, int choice, const char *receipt, size_t n);

#endif
