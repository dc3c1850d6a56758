#include "serve/fetch/fetch.h"

#include <errno.h>
#include <ifaddrs.h>
#ifdef __linux__
#include <linux/rtnetlink.h>
#endif
#include <netinet/in.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

typedef struct plain {
    int family;
    size_t n;
    uint8_t bytes[16];
} plain;

/* False: neither an IPv4 nor an IPv6 address. */
static bool read_address(plain *out, const struct sockaddr *a)
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    struct sockaddr_in four;
    struct sockaddr_in6 six;
    *out = (plain){.family = a->sa_family};
    if (a->sa_family == AF_INET) {
        memcpy(&four, a, sizeof four);
        memcpy(out->bytes, &four.sin_addr, out->n = 4);
        return true;
    }
    if (a->sa_family != AF_INET6) return false;
    memcpy(&six, a, sizeof six);
    memcpy(out->bytes, &six.sin6_addr, out->n = 16);
    if (memcmp(out->bytes, mapped, sizeof mapped)) return true;
    *out = (plain){.family = AF_INET, .n = 4};
    memcpy(out->bytes, (const uint8_t *)&six.sin6_addr + sizeof mapped, 4);
    return true;
}

/* --- interfaces --- */

/* Whether an interface has it. An IPv6 address that ends with an interface's IPv4 address counts, because a NAT64 of
 * this network makes such ones. */
static bool is_of_interface(const plain *a)
{
    struct ifaddrs *all;
    bool own = false;
    if (getifaddrs(&all)) return true;
    for (const struct ifaddrs *i = all; i && !own; i = i->ifa_next) {
        plain b;
        if (!i->ifa_addr || !read_address(&b, i->ifa_addr)) continue;
        own = b.n <= a->n && !memcmp(b.bytes, a->bytes + a->n - b.n, b.n);
    }
    freeifaddrs(all);
    return own;
}

/* --- routes --- */

#ifdef __linux__

typedef struct question {
    struct nlmsghdr head;
    struct rtmsg route;
    struct rtattr to;
    uint8_t bytes[16];
} question;

/* The type of the route to the address. RTN_UNSPEC: the system does not tell. RTN_UNREACHABLE: there is no route. */
static int ask_route(int fd, const plain *a)
{
    question q = {.head = {.nlmsg_type = RTM_GETROUTE, .nlmsg_flags = NLM_F_REQUEST},
                  .route = {.rtm_family = (unsigned char)a->family, .rtm_dst_len = (unsigned char)(8 * a->n)},
                  .to = {.rta_type = RTA_DST, .rta_len = (unsigned short)RTA_LENGTH(a->n)}};
    union {
        struct nlmsghdr head;
        uint8_t bytes[4096];
    } reply;
    memcpy(q.bytes, a->bytes, a->n);
    q.head.nlmsg_len = (uint32_t)(offsetof(question, bytes) + a->n);
    if (send(fd, &q, q.head.nlmsg_len, 0) < 0) return RTN_UNSPEC;
    const ssize_t n = recv(fd, &reply, sizeof reply, 0);
    if (n < (ssize_t)sizeof reply.head) return RTN_UNSPEC;
    if (reply.head.nlmsg_type == NLMSG_ERROR && n >= (ssize_t)NLMSG_LENGTH(sizeof(struct nlmsgerr))) {
        struct nlmsgerr e;
        memcpy(&e, reply.bytes + NLMSG_HDRLEN, sizeof e);
        const bool none = e.error == -ENETUNREACH || e.error == -EHOSTUNREACH || e.error == -EACCES;
        return none ? RTN_UNREACHABLE : RTN_UNSPEC;
    }
    if (reply.head.nlmsg_type != RTM_NEWROUTE || n < (ssize_t)NLMSG_LENGTH(sizeof(struct rtmsg))) return RTN_UNSPEC;
    struct rtmsg route;
    memcpy(&route, reply.bytes + NLMSG_HDRLEN, sizeof route);
    return route.rtm_type;
}

static int route_type(const plain *a)
{
    const struct timeval second = {.tv_sec = 1};
    const int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    if (fd < 0) return RTN_UNSPEC;
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &second, sizeof second);
    const int type = ask_route(fd, a);
    close(fd);
    return type;
}

/* Whether packets to it may reach more than one other machine, or the route is unknown. */
static bool is_of_route(const plain *a)
{
    const int type = route_type(a);
    return type != RTN_UNICAST && type != RTN_UNREACHABLE;
}
#else
static bool is_of_route(const plain *a)
{
    (void)a;
    return false;
}
#endif

bool ek_own_address(const struct sockaddr *address)
{
    plain a;
    return !read_address(&a, address) || is_of_interface(&a) || is_of_route(&a);
}
