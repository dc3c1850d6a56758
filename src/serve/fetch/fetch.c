#include "serve/fetch/fetch.h"

#include <errno.h>
#include <ifaddrs.h>
#ifdef __linux__
#include <linux/rtnetlink.h>
#endif
#include <netinet/in.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/linux.h"
#include "hub/curl.h"
#include "media/limits.h"
#include "serve/http/http.h"

/* After FREE_SECONDS a transfer must have received MIN_RATE bytes for each further second, redirects included. */
enum { MAX_SECONDS = 10, MAX_REDIRECTS = 5, FREE_SECONDS = 3, MIN_RATE = 32 << 10 };

ek_err ek_fetch_parse(ek_fetch_from *out, const char *word)
{
    static const char *const words[] = {"off", "public", "all"};
    for (int i = 0; i < 3; i++)
        if (!strcmp(word, words[i])) {
            *out = (ek_fetch_from)i;
            return EK_OK;
        }
    return ek_fail(EK_EINVAL, "off, public or all is needed, not %.80s", word);
}

/* --- addresses --- */

/* An IPv4 address, or an IPv6 one; an IPv4 address within an IPv6 one is itself. */
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

static bool is_public_4(uint32_t a)
{
    static const struct {
        uint32_t net;
        int bits;
    } others[] = {
        {0x00000000, 8},  {0x0a000000, 8},  {0x64400000, 10}, {0x7f000000, 8},  {0xa9fe0000, 16},
        {0xac100000, 12}, {0xc0000000, 24}, {0xc0000200, 24}, {0xc0586300, 24}, {0xc0a80000, 16},
        {0xc6120000, 15}, {0xc6336400, 24}, {0xcb007100, 24}, {0xe0000000, 3}, /* multicast, reserved, broadcast */
    };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if ((a ^ others[i].net) >> (32 - others[i].bits) == 0) return false;
    return true;
}

static uint32_t word(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static bool is_public_6(const uint8_t a[16])
{
    if ((a[0] & 0xe0) != 0x20) return false; /* only 2000::/3, which excludes NAT64's own prefixes */
    uint32_t first = word(a);
    const uint32_t host = word(a + 8);
    bool carries = first == 0x20010000 || first >> 16 == 0x2002 || /* Teredo, 6to4, */
                   host == 0x00005efe || host == 0x02005efe;       /* ISATAP */
    bool special = (first & 0xfffffe00) == 0x20010000 || first == 0x20010db8 || first >> 12 == 0x3fff0;
    return !carries && !special;
}

bool ek_fetch_is_public(const struct sockaddr *address)
{
    plain a;
    if (!read_address(&a, address)) return false;
    return a.family == AF_INET ? is_public_4(word(a.bytes)) : is_public_6(a.bytes);
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

/* --- transfers --- */

typedef struct transfer {
    ek_fetched *to;
    ek_fetch_from from;
    ek_request_memory *memory;
    CURL *easy;
    double begun;
    bool forbidden, too_large, no_memory, ended;
} transfer;

static curl_socket_t on_socket(void *arg, curlsocktype purpose, struct curl_sockaddr *address)
{
    transfer *t = arg;
    const bool any = t->from == EK_FETCH_ALL;
    if (purpose != CURLSOCKTYPE_IPCXN ||
        (!any && (!ek_fetch_is_public(&address->addr) || ek_own_address(&address->addr)))) {
        t->forbidden = true;
        return CURL_SOCKET_BAD;
    }
    return ek_socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
}

static size_t on_body(char *data, size_t one, size_t n, void *arg)
{
    transfer *t = arg;
    n *= one;
    t->too_large = t->to->bytes.len + n > EK_MEDIA_MAX_BYTES;
    t->no_memory = !t->too_large && t->memory && ek_request_memory_take(t->memory, t->to->bytes.len, n) != EK_OK;
    if (t->too_large || t->no_memory) return 0;
    ek_buf_add(&t->to->bytes, data, n);
    return n;
}

static void set_up(const ek_curl *lib, transfer *t)
{
    CURL *c = t->easy;
    const bool secure = !strncasecmp(t->to->url, "https:", 6);
#if CURL_AT_LEAST_VERSION(7, 85, 0)
    lib->easy_setopt(c, CURLOPT_PROTOCOLS_STR, "http,https");
    lib->easy_setopt(c, CURLOPT_REDIR_PROTOCOLS_STR, secure ? "https" : "http,https");
#else
    const long web = CURLPROTO_HTTP | CURLPROTO_HTTPS;
    lib->easy_setopt(c, CURLOPT_PROTOCOLS, web);
    lib->easy_setopt(c, CURLOPT_REDIR_PROTOCOLS, secure ? (long)CURLPROTO_HTTPS : web);
#endif
    lib->easy_setopt(c, CURLOPT_URL, t->to->url);
    lib->easy_setopt(c, CURLOPT_FOLLOWLOCATION, 1L);
    lib->easy_setopt(c, CURLOPT_MAXREDIRS, (long)MAX_REDIRECTS);
    lib->easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
    lib->easy_setopt(c, CURLOPT_TIMEOUT, (long)MAX_SECONDS);
#if CURL_AT_LEAST_VERSION(7, 87, 0)
    lib->easy_setopt(c, CURLOPT_QUICK_EXIT, 1L); /* the end does not wait for a name server */
#endif
    lib->easy_setopt(c, CURLOPT_MAXFILESIZE_LARGE, (curl_off_t)EK_MEDIA_MAX_BYTES);
    lib->easy_setopt(c, CURLOPT_PROXY, ""); /* no proxy, so that the judged address is the contacted one */
    lib->easy_setopt(c, CURLOPT_USERAGENT, "evenkeel/" EK_VERSION);
    lib->easy_setopt(c, CURLOPT_OPENSOCKETFUNCTION, on_socket);
    lib->easy_setopt(c, CURLOPT_OPENSOCKETDATA, t);
    lib->easy_setopt(c, CURLOPT_WRITEFUNCTION, on_body);
    lib->easy_setopt(c, CURLOPT_WRITEDATA, t);
}

static const char no_memory[] = "the system has no memory for a transfer now, try again later";

static void say(const transfer *t, CURLcode code, long status, const char *why)
{
    ek_fetched *f = t->to;
    f->err = t->no_memory ? EK_ENOMEM : EK_EINVAL;
    if (t->no_memory) snprintf(f->why, sizeof f->why, "%s", no_memory);
    else if (t->too_large || code == CURLE_FILESIZE_EXCEEDED)
        snprintf(f->why, sizeof f->why, "the URL gives more than %d bytes", EK_MEDIA_MAX_BYTES);
    else if (t->forbidden)
        snprintf(f->why, sizeof f->why,
                 "the URL leads to an address that is not fetched from: of this machine, of a "
                 "private network or the like");
    else if (code == CURLE_OPERATION_TIMEDOUT && ek_now() - t->begun < MAX_SECONDS)
        snprintf(f->why, sizeof f->why,
                 "the URL's host is too slow: it is to send %d KiB a second from the fourth second on", MIN_RATE >> 10);
    else if (code == CURLE_OPERATION_TIMEDOUT)
        snprintf(f->why, sizeof f->why, "the URL's host did not send it within %d seconds", MAX_SECONDS);
    else if (code == CURLE_TOO_MANY_REDIRECTS)
        snprintf(f->why, sizeof f->why, "the URL leads through more than %d redirects", MAX_REDIRECTS);
    else if (code != CURLE_OK) snprintf(f->why, sizeof f->why, "the URL cannot be fetched: %s", why);
    else snprintf(f->why, sizeof f->why, "the URL's host answered with status %ld", status);
}

static void forget(ek_request_memory *memory, ek_fetched *f)
{
    if (memory) ek_request_memory_give(memory, f->bytes.len);
    ek_buf_fini(&f->bytes);
}

static void end(const ek_curl *lib, transfer *t, CURLcode code)
{
    long status = 0;
    t->ended = true;
    lib->easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &status);
    t->to->err = EK_OK;
    if (code == CURLE_OK && status == 200) return;
    forget(t->memory, t->to);
    say(t, code, status, lib->easy_strerror(code));
}

static bool is_slow(const transfer *t)
{
    const double taken = ek_now() - t->begun - FREE_SECONDS;
    return taken > 0 && (double)t->to->bytes.len < MIN_RATE * taken;
}

static void end_slow(const ek_curl *lib, CURLM *multi, transfer *all, int n)
{
    for (int i = 0; i < n; i++) {
        if (!all[i].easy || all[i].ended || !is_slow(&all[i])) continue;
        lib->multi_remove_handle(multi, all[i].easy);
        end(lib, &all[i], CURLE_OPERATION_TIMEDOUT);
    }
}

/* Runs all transfers until they have ended; each has its own time limit. */
static void work(const ek_curl *lib, CURLM *multi, transfer *all, int n, const atomic_bool *dropped)
{
    int running = 1, left;
    while (running && !(dropped && atomic_load(dropped))) {
        if (lib->multi_perform(multi, &running)) return;
        for (CURLMsg *m; (m = lib->multi_info_read(multi, &left));)
            for (int i = 0; i < n; i++)
                if (m->msg == CURLMSG_DONE && all[i].easy == m->easy_handle) end(lib, &all[i], m->data.result);
        if (running) lib->multi_poll(multi, NULL, 0, 200, NULL);
        end_slow(lib, multi, all, n);
    }
}

void ek_fetches_run(ek_fetches *f, ek_fetch_from from, const atomic_bool *dropped)
{
    const ek_curl *lib = ek_curl_lib();
    int n = f->n - f->n_done;
    transfer *all = ek_alloc((size_t)(n + 1) * sizeof *all);
    CURLM *multi = lib->multi_init();
    for (int i = 0; i < n; i++) {
        all[i] = (transfer){.to = &f->at[f->n_done + i], .from = from, .easy = multi ? lib->easy_init() : NULL};
        all[i].memory = f->memory;
        all[i].begun = ek_now();
        all[i].to->err = EK_ENOMEM;
        snprintf(all[i].to->why, sizeof all[i].to->why, "%s", no_memory);
        if (!all[i].easy) continue;
        set_up(lib, &all[i]);
        lib->multi_add_handle(multi, all[i].easy);
    }
    if (multi) work(lib, multi, all, n, dropped);
    for (int i = 0; i < n; i++) {
        if (!all[i].easy) continue;
        lib->multi_remove_handle(multi, all[i].easy);
        lib->easy_cleanup(all[i].easy);
    }
    if (multi) lib->multi_cleanup(multi);
    free(all);
    f->n_done = f->n;
}

/* --- lists of addresses --- */

void ek_fetches_add(ek_fetches *f, const char *url, size_t n)
{
    ek_buf copy = {0};
    ek_buf_add(&copy, url, n);
    f->at = ek_realloc(f->at, (size_t)(f->n + 1) * sizeof *f->at);
    f->at[f->n++] = (ek_fetched){.url = copy.data};
}

ek_fetched *ek_fetches_find(const ek_fetches *f, const char *url, size_t n)
{
    for (int i = 0; i < f->n; i++)
        if (strlen(f->at[i].url) == n && !memcmp(f->at[i].url, url, n)) return &f->at[i];
    return NULL;
}

void ek_fetches_fini(ek_fetches *f)
{
    for (int i = 0; i < f->n; i++) {
        free(f->at[i].url);
        forget(f->memory, &f->at[i]);
    }
    free(f->at);
    *f = (ek_fetches){0};
}
