#include "serve/http/http.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/linux.h"

bool ek_bound_is_loopback(const struct sockaddr_storage *addr)
{
    if (addr->ss_family == AF_INET) return ntohl(((const struct sockaddr_in *)addr)->sin_addr.s_addr) >> 24 == 127;
    const struct in6_addr *v6 = &((const struct sockaddr_in6 *)addr)->sin6_addr;
    return IN6_IS_ADDR_LOOPBACK(v6) || (IN6_IS_ADDR_V4MAPPED(v6) && v6->s6_addr[12] == 127);
}

static bool set_reuse(int fd, int on)
{
    return !setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
}

/* Two sockets that may reuse an address can both be bound to it until one listens. Reuse is therefore requested only if
 * connections of an earlier server are in the way, and then withdrawn. */
static bool bind_to(int fd, const struct addrinfo *a)
{
    if (!bind(fd, a->ai_addr, a->ai_addrlen)) return true;
    return errno == EADDRINUSE && set_reuse(fd, 1) && !bind(fd, a->ai_addr, a->ai_addrlen) && set_reuse(fd, 0);
}

static ek_err failed(const char *host, int port, int why)
{
    return ek_fail(EK_EIO, "cannot listen on %s port %d: %s%s", host, port, strerror(why),
                   why == EADDRINUSE ? "; `evenkeel ps` lists your servers, --port 0 takes a free port" : "");
}

ek_err ek_bound_open(ek_bound *out, const char *host, int port)
{
    char service[16];
    snprintf(service, sizeof service, "%d", port);
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV}, *list;
    int bad = getaddrinfo(host, service, &hints, &list);
    if (bad) return ek_fail(EK_EIO, "cannot listen on %s: %s", host, gai_strerror(bad));
    int fd = ek_socket(list->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    struct sockaddr_storage addr;
    socklen_t len = sizeof addr;
    bool ok = fd >= 0 && bind_to(fd, list) && !getsockname(fd, (struct sockaddr *)&addr, &len);
    int why = errno;
    freeaddrinfo(list);
    if (!ok) {
        if (fd >= 0) close(fd);
        return failed(host, port, why);
    }
    *out = (ek_bound){.fd = fd,
                      .port = ntohs(addr.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&addr)->sin6_port
                                                               : ((struct sockaddr_in *)&addr)->sin_port),
                      .loopback = ek_bound_is_loopback(&addr)};
    return EK_OK;
}

ek_err ek_bound_listen(const ek_bound *b, const char *host)
{
    /* connections inherit it, so that they do not block a later server */
    if (set_reuse(b->fd, 1) && !listen(b->fd, 1024)) return EK_OK;
    return failed(host, b->port, errno);
}

void ek_bound_close(ek_bound *b)
{
    if (b->fd >= 0) close(b->fd);
    b->fd = -1;
}
