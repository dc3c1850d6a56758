/* An address that is ours before anybody is served: bound, not listening. Who connects is refused by the system, as
 * where nothing runs; another program that wants the port is told at once. */
#ifndef EK_SERVE_BOUND_H
#define EK_SERVE_BOUND_H

#include <stdbool.h>

#include "base/err.h"

typedef struct ek_bound {
    int fd, port;
    bool loopback; /* only this machine can reach it */
} ek_bound;

/* port 0: any free one. Close it unless a server took it (ek_http_opts). EIO with the reason. */
ek_err ek_bound_open(ek_bound *out, const char *host, int port);
ek_err ek_bound_listen(const ek_bound *b, const char *host); /* EIO with the reason */
void ek_bound_close(ek_bound *b);
struct sockaddr_storage;
bool ek_bound_is_loopback(const struct sockaddr_storage *addr); /* of IPv4 or IPv6 */

#endif
