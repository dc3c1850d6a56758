/* The operator's own copies of receipts, openings included: a file of lines {"id", "choice", "receipt"}, mode 0600.
 * `verify` reads each line. Without such a file only the client has the salts. After a line is deleted, nobody can
 * connect its hash in the receipts' log with a prompt or a reply.
 *
 * The whole line is written before its receipt is sent; if that fails, the receipt is not sent. Any thread; reopen and
 * ready on one and the same. */
#ifndef EK_RECEIPTS_OPENINGS_H
#define EK_RECEIPTS_OPENINGS_H

#include <stddef.h>

#include "base/err.h"

typedef struct ek_openings ek_openings;

/* Opens or creates the file for this process alone. An incomplete last line is removed; a whole one without a newline
 * gets it. EINVAL if other users may read the file; EBUSY if another process has it; EIO. */
ek_err ek_openings_open(ek_openings **out, const char *path);
void ek_openings_close(ek_openings *o); /* NULL is allowed */
/* Opens the path again, after an operator has moved the file away. Errors as for ek_openings_open; the old file then
 * stays in use. */
ek_err ek_openings_reopen(ek_openings *o);
/* EIO: the disk has no room for a line. Does not wait for a write. */
ek_err ek_openings_ready(ek_openings *o);
/* receipt: n bytes of JSON; id: the reply's. EIO: the line was not written. */
ek_err ek_openings_add(ek_openings *o, const char *id, int choice, const char *receipt, size_t n);

#endif
