/* The addresses of a host, with a deadline: the system's resolver knows none. */
#ifndef EK_BASE_RESOLVE_H
#define EK_BASE_RESOLVE_H

#include <netdb.h>
#include <stdatomic.h>

#include "base/err.h"

/* An address is read here. A name is looked up by a thread of its own, which is left behind where it takes too long; of
 * those at most four, in the whole process. *out: for freeaddrinfo. deadline: of ek_now. stop: NULL, or set: the wait
 * ends at once. EIO, ETIMEOUT or ENOMEM, with the reason. */
ek_err ek_resolve(struct addrinfo **out, const char *host, int port, double deadline, const atomic_bool *stop);

#endif
