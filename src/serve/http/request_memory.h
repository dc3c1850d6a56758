/* Memory that all requests may hold together. It is counted before it is taken, so that a request is refused while the
 * server can still answer. Any thread. */
#ifndef EK_SERVE_REQUEST_MEMORY_H
#define EK_SERVE_REQUEST_MEMORY_H

#include <stdatomic.h>
#include <stddef.h>

#include "base/err.h"

typedef struct ek_request_memory {
    size_t total; /* bytes; set once */
    _Atomic size_t used;
} ek_request_memory;

/* Sets the program's reserve aside: it serves small amounts, which are not counted, if the system refuses them
 * (base/alloc.h). The libraries that requests use allocate from it too. Once, before they allocate. ENOMEM. */
ek_err ek_request_memory_open(void);
/* EK_OK while the reserve is there or can be filled again; else ENOMEM, and no new request should begin. */
ek_err ek_request_memory_check(void);

/* A total that leaves room for everything else: an eighth of the available memory, 64 MiB to 2 GiB. */
size_t ek_request_memory_default(void);
/* Counts bytes that are about to be taken. held: bytes counted for the same request before. ETOOLARGE where both
 * together are more than the total; ENOMEM where others hold too much now, or the system or a control group would not
 * give them: nothing was counted then. */
ek_err ek_request_memory_take(ek_request_memory *m, size_t held, size_t bytes);
void ek_request_memory_give(ek_request_memory *m, size_t bytes);

#endif
