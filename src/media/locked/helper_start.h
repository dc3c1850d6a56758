/* One helper process: found, started, asked for its version, ended. Inside src/media/locked. */
#ifndef EK_MEDIA_LOCKED_HELPER_START_H
#define EK_MEDIA_LOCKED_HELPER_START_H

#include <sys/types.h>

#include "base/err.h"
#include "media/locked/ask.h"

typedef struct ek_helper {
    struct ek_helper *next;
    pid_t pid;
    int ask, control; /* our ends */
    ek_hello hello;
} ek_helper;

/* says: what its standard error becomes; borrowed. EIO. */
ek_err ek_helper_start(ek_helper **out, int says);
void ek_helper_end(ek_helper *h); /* at once, with what it decodes */

#endif
