#define _GNU_SOURCE /* POLLRDHUP */
#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <linux/tcp.h> /* tcp_info with bytes_received */
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "serve/http_state.h"

enum {
    CONNECTION_MEMORY = 64 << 10,    /* a head may take half of it */
    SEND_BUFFER = 128 << 10,         /* the kernel's */
    BODIES_AT_ONCE = 8,              /* times max_body: all bodies together */
    MIN_BYTES_PER_SECOND = 64 << 10, /* a body that comes this fast is not cut off */
    SWEEP_MS = 250
};

/* --- the loop --- */

static void run_library(ek_http *s)
{
    MHD_run(s->daemon);
    MHD_UNSIGNED_LONG_LONG ms;
    if (MHD_get_timeout(s->daemon, &ms) != MHD_YES || ms > SWEEP_MS) ms = SWEEP_MS;
    struct timeval tv = {0, (suseconds_t)ms * 1000};
    event_add(s->again, &tv);
}

static void on_ready(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what;
    run_library(arg);
}

/* --- requests come in --- */

static void refuse(ek_exchange *x, int status, const char *text)
{
    if (x->refusal) return;
    x->refusal = text;
    x->refusal_status = status;
    x->http->body_bytes -= x->body_counted; /* what still comes is thrown away */
    x->body_counted = 0;
    ek_buf_fini(&x->body);
}

static void receive_body(ek_exchange *x, const char *p, size_t n)
{
    ek_http *s = x->http;
    if (x->refusal) return;
    if (x->body.len + n > s->opts.max_body) {
        refuse(x, 413, "the request's body is larger than the limit");
    } else if (s->body_bytes + n > BODIES_AT_ONCE * s->opts.max_body) {
        /* Many half-sent large bodies must not add up to all memory. */
        refuse(x, 503, "too many large requests are arriving at once, try again later");
    } else {
        ek_buf_add(&x->body, p, n);
        s->body_bytes += n;
        x->body_counted += n;
    }
}

static void dispatch(ek_exchange *x)
{
    ek_http *s = x->http;
    x->dispatched = true;
    s->n_busy++;
    if (!x->refusal) {
        s->handler(s->arg, x);
        return;
    }
    ek_buf b = {0};
    s->error(s->arg, &b, x->path, x->refusal_status, x->refusal);
    ek_exchange_header(x, "connection", "close");
    ek_exchange_reply(x, x->refusal_status, "application/json", ek_buf_text(&b), b.len);
    ek_buf_fini(&b);
}

static ek_conn *conn_of(struct MHD_Connection *mhd)
{
    const union MHD_ConnectionInfo *i = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return i ? i->socket_context : NULL;
}

/* The head is here. */
static enum MHD_Result open_exchange(ek_http *s, struct MHD_Connection *mhd, const char *url, const char *method,
                                     void **slot)
{
    ek_conn *c = conn_of(mhd);
    if (!c) return MHD_NO;
    ek_exchange *x = ek_alloc(sizeof *x);
    *slot = x;
    x->http = s;
    x->conn = c;
    x->number = ++s->n_requests;
    x->method = ek_strdup(method);
    x->path = ek_strdup(url);
    c->x = x;
    if (c->since_byte == 0) c->since_byte = ek_now();
    const char *length = ek_exchange_find(x, "content-length"), *expect = ek_exchange_find(x, "expect");
    if (length && ek_exchange_find(x, "transfer-encoding"))
        refuse(x, 400,
               "a request has a content-length or a transfer-encoding, not both"); /* two readers would disagree */
    if (length && strtoull(length, NULL, 10) > s->opts.max_body) {
        refuse(x, 413, "the request's body is larger than the limit");
        /* A client that waits for leave to send gets its answer now. One that sends at once reads
         * nothing before it is done, and closing on it could take the answer back. */
        if (expect) {
            dispatch(x);
            return ek_exchange_queue(x);
        }
    }
    return MHD_YES;
}

/* The library calls this for the head, for each piece of body, at the end of the body, and again
 * when a suspended connection goes on. */
static enum MHD_Result on_request(void *arg, struct MHD_Connection *mhd, const char *url, const char *method,
                                  const char *version, const char *data, size_t *n, void **slot)
{
    (void)version;
    ek_exchange *x = *slot;
    if (!x) return open_exchange(arg, mhd, url, method, slot);
    if (*n > 0) {
        receive_body(x, data, *n);
        *n = 0;
        return MHD_YES;
    }
    if (x->cut) return MHD_NO;
    if (!x->dispatched) dispatch(x);
    if (x->response) return ek_exchange_queue(x);
    if (!x->suspended) {
        x->suspended = true;
        MHD_suspend_connection(mhd);
    }
    return MHD_YES;
}

/* --- and end --- */

static uint64_t bytes_received(int fd)
{
    struct tcp_info info = {0};
    socklen_t n = sizeof info;
    return getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &n) ? 0 : info.tcpi_bytes_received;
}

static void on_completed(void *arg, struct MHD_Connection *mhd, void **slot, enum MHD_RequestTerminationCode how)
{
    ek_exchange *x = *slot;
    (void)arg, (void)mhd, (void)how;
    *slot = NULL;
    if (!x) return;
    ek_conn *c = x->conn;
    c->x = NULL;
    c->fresh = false;
    c->since = ek_now();
    c->since_byte = 0;
    c->bytes_before = bytes_received(c->fd);
    if (x->gone) x->gone(x->gone_user);
    ek_exchange_free(x);
}

static void on_connection(void *arg, struct MHD_Connection *mhd, void **context,
                          enum MHD_ConnectionNotificationCode what)
{
    ek_http *s = arg;
    if (what == MHD_CONNECTION_NOTIFY_CLOSED) {
        ek_conn *c = *context;
        *c->link = c->next;
        if (c->next) c->next->link = c->link;
        free(c);
        *context = NULL;
        return;
    }
    ek_conn *c = ek_alloc(sizeof *c);
    c->http = s;
    c->mhd = mhd;
    c->fd = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
    c->since = ek_now();
    c->fresh = true;
    c->next = s->first;
    if (c->next) c->next->link = &c->next;
    c->link = &s->first;
    s->first = c;
    int yes = 1, unsent = SEND_BUFFER;
    setsockopt(c->fd, SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof yes);
    /* What a slow reader leaves should pile up with us, where it is counted, not in the kernel. */
    setsockopt(c->fd, SOL_SOCKET, SO_SNDBUF, &unsent, sizeof unsent);
    *context = c;
}

/* --- deadlines --- */

/* The library does not look at suspended connections; the kernel knows whether the peer is there. */
static bool peer_gone(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLRDHUP};
    return poll(&p, 1, 0) == 1 && (p.revents & (POLLRDHUP | POLLHUP | POLLERR | POLLNVAL));
}

static void sweep_one(ek_conn *c, double now)
{
    const ek_http_opts *o = &c->http->opts;
    ek_exchange *x = c->x;
    if (x && x->dispatched) {
        if (x->cut || (x->suspended && peer_gone(c->fd))) ek_http_kill(c);
        return;
    }
    if (c->since_byte == 0 && bytes_received(c->fd) > c->bytes_before) c->since_byte = now;
    if (c->since_byte == 0) {
        double limit = c->fresh ? o->body_timeout : o->idle_timeout;
        if (c->http->draining || now - c->since > limit) ek_http_kill(c);
    } else {
        double grace = x ? (double)x->body.len / MIN_BYTES_PER_SECOND : 0;
        if (now - c->since_byte > o->body_timeout + grace) ek_http_kill(c);
    }
}

static void on_sweep(evutil_socket_t fd, short what, void *arg)
{
    ek_http *s = arg;
    (void)fd, (void)what;
    double now = ek_now();
    for (ek_conn *c = s->first; c; c = c->next) sweep_one(c, now);
    run_library(s);
}

/* --- open and close --- */

static ek_err listen_on(const char *host, int port, int *fd_out, int *port_out)
{
    char service[16];
    snprintf(service, sizeof service, "%d", port);
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV}, *list;
    int bad = getaddrinfo(host, service, &hints, &list);
    if (bad) return ek_fail(EK_EIO, "cannot listen on %s: %s", host, gai_strerror(bad));
    int fd = socket(list->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), yes = 1;
    struct sockaddr_storage addr;
    socklen_t len = sizeof addr;
    bool ok = fd >= 0 && !setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) &&
              !bind(fd, list->ai_addr, list->ai_addrlen) && !listen(fd, 1024) &&
              !getsockname(fd, (struct sockaddr *)&addr, &len);
    int why = errno;
    freeaddrinfo(list);
    if (!ok) {
        if (fd >= 0) close(fd);
        return ek_fail(EK_EIO, "cannot listen on %s port %d: %s", host, port, strerror(why));
    }
    *fd_out = fd;
    *port_out = ntohs(addr.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&addr)->sin6_port
                                                 : ((struct sockaddr_in *)&addr)->sin_port);
    return EK_OK;
}

static void no_log(void *arg, const char *fmt, va_list args)
{
    (void)arg, (void)fmt, (void)args;
}

static ek_err start_library(ek_http *s)
{
    int fd = -1;
    EK_TRY(listen_on(s->opts.host, s->opts.port, &fd, &s->port));
    s->daemon = MHD_start_daemon(
        MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG, 0, NULL, NULL, on_request, s,
        MHD_OPTION_EXTERNAL_LOGGER, no_log, NULL, MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_LIMIT,
        (unsigned)s->opts.max_connections, MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)s->opts.idle_timeout,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CONNECTION_MEMORY, MHD_OPTION_STRICT_FOR_CLIENT, 1,
        MHD_OPTION_NOTIFY_COMPLETED, on_completed, s, MHD_OPTION_NOTIFY_CONNECTION, on_connection, s, MHD_OPTION_END);
    if (!s->daemon) {
        close(fd);
        return ek_fail(EK_EIO, "the HTTP library did not start");
    }
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(s->daemon, MHD_DAEMON_INFO_EPOLL_FD);
    if (!info || info->epoll_fd < 0) return ek_fail(EK_EIO, "the HTTP library has no event descriptor");
    s->ready = event_new(s->base, info->epoll_fd, EV_READ | EV_PERSIST, on_ready, s);
    s->again = event_new(s->base, -1, 0, on_ready, s);
    s->sweep = event_new(s->base, -1, EV_PERSIST, on_sweep, s);
    struct timeval every = {0, SWEEP_MS * 1000};
    event_add(s->ready, NULL);
    event_add(s->sweep, &every);
    return EK_OK;
}

ek_err ek_http_open(ek_http **out, struct event_base *base, const ek_http_opts *opts, ek_handler_fn *handler,
                    ek_http_error_fn *error, void *arg)
{
    ek_http *s = ek_alloc(sizeof *s);
    s->base = base;
    s->opts = *opts;
    s->handler = handler;
    s->error = error;
    s->arg = arg;
    ek_err err = start_library(s);
    if (err) {
        ek_http_close(s);
        return err;
    }
    *out = s;
    return EK_OK;
}

int ek_http_port(const ek_http *s)
{
    return s->port;
}

int ek_http_busy(const ek_http *s)
{
    return s->n_busy;
}

void ek_http_drain(ek_http *s)
{
    s->draining = true;
    MHD_socket fd = MHD_quiesce_daemon(s->daemon);
    if (fd != MHD_INVALID_SOCKET) close(fd);
}

void ek_http_close(ek_http *s)
{
    if (s->daemon) {
        for (ek_conn *c = s->first; c; c = c->next) ek_http_kill(c);
        MHD_run(s->daemon); /* stopping with suspended connections is an error */
        MHD_stop_daemon(s->daemon);
    }
    if (s->ready) event_free(s->ready);
    if (s->again) event_free(s->again);
    if (s->sweep) event_free(s->sweep);
    free(s);
}
