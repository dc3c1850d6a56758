/* The loop's turns, addresses, listening, and the deadlines of connections. */
#define _GNU_SOURCE /* accept4, POLLRDHUP */
#include "serve/http/http.h"

#include <errno.h>
#include <event2/event.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/linux.h"
#include "serve/http/http_state.h"

enum {
    MIN_BYTES_PER_SECOND = 64 << 10, /* a body that arrives this fast is not cut off */
    MIN_READ_PER_SECOND = 4 << 10,   /* a whole reply that is read this fast is not cut off */
    REFUSED = 5,                     /* seconds without progress for a reader that was told that it is too slow */
    SWEEP_MS = 250,
    ACCEPTS_PER_TURN = 64
};

/* --- turns of the loop --- */

static const double BUDGET = 2e-3; /* seconds of a turn after which no more work is begun */

int ek_loop_run(ek_loop *l)
{
    int bad = 0;
    l->begin = ek_thread_time();
    while (!l->stopping && bad == 0) {
        l->not_before = 0;
        bad = event_base_loop(l->base, EVLOOP_ONCE);
        const double end = ek_thread_time(), took = end - l->begin;
        l->begin = end;
        ek_histogram_add(&l->turns, EK_HISTOGRAM_MICRO, took);
        if (took > l->max) l->max = took;
    }
    l->begin = 0;
    return bad;
}

void ek_loop_stop(ek_loop *l)
{
    l->stopping = true;
    event_base_loopbreak(l->base);
}

bool ek_loop_spent(ek_loop *l)
{
    if (!l || l->begin <= 0) return false;
    const double now = ek_now(); /* once per token, so without a system call */
    if (now < l->not_before) return false;
    const double left = BUDGET - (ek_thread_time() - l->begin);
    l->not_before = now + left;
    if (left > 0) return false;
    event_base_loopbreak(l->base); /* the rest of what is active stays active */
    return true;
}

void ek_loop_again(struct event *timer)
{
    static const struct timeval now = {0, 0}; /* timers are checked once per turn, before events */
    event_add(timer, &now);
}

/* --- addresses --- */

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

static ek_err start_listening(const ek_bound *b, const char *host)
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

/* --- accepting --- */

static void free_dead(ek_http *s)
{
    for (ek_conn *c = s->dead, *next; c; c = next) {
        next = c->next;
        ek_buf_fini(&c->in);
        free(c);
    }
    s->dead = NULL;
}

static void on_acceptable(evutil_socket_t fd, short what, void *arg)
{
    ek_http *s = arg;
    (void)what;
    for (int i = 0; i < ACCEPTS_PER_TURN && (i == 0 || !ek_loop_spent(s->opts.loop)); i++) {
        int client = accept4(fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (client < 0) {
            if (errno == EMFILE || errno == ENFILE || errno == ENOMEM) event_del(s->acceptable); /* until the sweep */
            return;
        }
        int max = s->opts.max_connections;
        if (s->n_conns >= max) ek_crowd_make_room(s, s->n_conns >= max + EK_HTTP_RESERVED);
        if (s->n_conns >= max + EK_HTTP_RESERVED) close(client);
        else ek_conn_open(s, client)->reserved = s->n_conns >= max;
    }
}

/* --- deadlines --- */

/* 1: the peer has closed its sending side; 2: it is gone. Nothing is read while a handler has the request. */
static int peer_left(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLRDHUP};
    if (poll(&p, 1, 0) != 1) return 0;
    return p.revents & (POLLHUP | POLLERR | POLLNVAL) ? 2 : p.revents & POLLRDHUP ? 1 : 0;
}

/* A client that closed its sending side may still wait for its answer, or may be gone; the kernel cannot tell before
 * something is sent. An interim response is harmless to the first and makes the second answer with a reset. */
static void probe(ek_conn *c)
{
    static const char interim[] = "HTTP/1.1 100 Continue\r\n\r\n";
    if (c->probed || c->x->begun || c->x->head.minor == 0) return;
    c->probed = true;
    if (send(c->fd, interim, sizeof interim - 1, MSG_NOSIGNAL) < 0 && errno != EAGAIN) ek_conn_kill(c);
}

static void sweep_reply(ek_conn *c, double now)
{
    const ek_http *s = c->http;
    ek_exchange *x = c->x;
    size_t unsent = ek_exchange_unsent(x);
    double grace = x->ended ? (double)unsent / MIN_READ_PER_SECOND : 0, silent = now - c->last_sent;
    double limit = s->cuts_slow_readers ? 1 : x->hasty ? REFUSED : s->opts.idle_timeout;
    if (x->cut || (unsent > 0 && silent > limit)) {
        ek_conn_kill(c);
        return;
    }
    if (unsent == 0) c->since = now; /* a whole reply also has a time limit for sending */
    if (x->ended && unsent > 0 && now - c->since > s->opts.idle_timeout + 60 + grace) {
        ek_conn_kill(c);
        return;
    }
    int left = peer_left(c->fd);
    if (left == 2) ek_conn_kill(c);
    else if (left == 1) probe(c);
}

static void sweep_one(ek_conn *c, double now)
{
    const ek_http_opts *o = &c->http->opts;
    switch (c->state) {
    case EK_CONN_REPLY: sweep_reply(c, now); return;
    case EK_CONN_LINGER:
        if (now - c->last_byte > 2 || now - c->since > o->body_timeout || c->http->cuts_slow_readers) ek_conn_kill(c);
        return;
    case EK_CONN_DEAD: return;
    default: break;
    }
    if (ek_crowd_is_late(c, now)) {
        ek_conn_refuse(c, 503, "too many connections are open, try again later");
    } else if (ek_crowd_is_slow(c, now)) {
        ek_conn_refuse(c, 408, "the request's body comes slower than --limits body-rate");
    } else if (c->since_byte > 0) {
        double grace = c->x ? (double)c->x->body.len / MIN_BYTES_PER_SECOND : 0;
        if (now - c->since_byte > o->body_timeout + grace) ek_conn_refuse(c, 408, "the request did not arrive in time");
    } else if (c->http->draining || now - c->since > (c->fresh ? o->body_timeout : o->idle_timeout)) {
        ek_conn_kill(c);
    }
}

/* Many deadlines can pass at once, so connections end over several turns. */
static void on_sweep_rest(evutil_socket_t fd, short what, void *arg)
{
    ek_http *s = arg;
    (void)fd, (void)what;
    double now = ek_now();
    for (ek_conn *c; (c = s->swept) != NULL;) {
        s->swept = c->next;
        sweep_one(c, now);
        if (!s->swept || !ek_loop_spent(s->opts.loop)) continue;
        ek_loop_again(s->sweep_rest);
        break;
    }
    free_dead(s);
}

static void on_sweep(evutil_socket_t fd, short what, void *arg)
{
    ek_http *s = arg;
    if (!s->draining) event_add(s->acceptable, NULL);
    if (s->swept) return; /* the last sweep still runs */
    s->swept = s->first;
    on_sweep_rest(fd, what, arg);
}

static void on_turn(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what;
    ek_conns_go_on(arg);
}

/* --- open and close --- */

ek_err ek_http_open(ek_http **out, struct event_base *base, const ek_http_opts *opts, ek_handler_fn *handler,
                    ek_http_error_fn *error, void *arg)
{
    ek_bound bound = opts->bound ? *opts->bound : (ek_bound){.fd = -1};
    if (!opts->bound) EK_TRY(ek_bound_open(&bound, opts->host, opts->port));
    ek_err err = start_listening(&bound, opts->host);
    if (err) {
        if (!opts->bound) ek_bound_close(&bound);
        return err;
    }
    ek_http *s = ek_alloc(sizeof *s);
    s->base = base;
    s->opts = *opts;
    s->opts.bound = NULL;
    if (s->opts.body_memory == 0) s->opts.body_memory = 8 * opts->max_body;
    if (s->opts.rate_window <= 0) s->opts.rate_window = 5;
    s->handler = handler;
    s->error = error;
    s->arg = arg;
    s->listen_fd = bound.fd;
    s->port = bound.port;
    s->loopback = bound.loopback;
    s->acceptable = event_new(base, bound.fd, EV_READ | EV_PERSIST, on_acceptable, s);
    s->sweep = event_new(base, -1, EV_PERSIST, on_sweep, s);
    s->sweep_rest = event_new(base, -1, 0, on_sweep_rest, s);
    s->turn = event_new(base, -1, 0, on_turn, s);
    s->later_end = &s->later;
    EK_ASSERT(s->acceptable && s->sweep && s->sweep_rest && s->turn);
    struct timeval every = {0, SWEEP_MS * 1000};
    event_add(s->acceptable, NULL);
    event_add(s->sweep, &every);
    *out = s;
    return EK_OK;
}

int ek_http_port(const ek_http *s)
{
    return s->port;
}

bool ek_http_is_loopback(const ek_http *s)
{
    return s->loopback;
}

int ek_http_busy(const ek_http *s)
{
    return s->n_busy;
}

int ek_http_connections(const ek_http *s)
{
    return s->n_conns;
}

uint64_t ek_http_responses(const ek_http *s, int status)
{
    return s->n_responses[status];
}

size_t ek_http_body_bytes(const ek_http *s)
{
    return s->body_bytes;
}

static void stop_listening(ek_http *s)
{
    if (s->listen_fd < 0) return;
    event_del(s->acceptable);
    close(s->listen_fd);
    s->listen_fd = -1;
}

void ek_http_drain(ek_http *s)
{
    s->draining = true;
    stop_listening(s);
}

void ek_http_cut_slow_readers(ek_http *s)
{
    s->cuts_slow_readers = true;
}

void ek_http_close(ek_http *s)
{
    stop_listening(s);
    while (s->first) ek_conn_kill(s->first);
    free_dead(s);
    event_free(s->acceptable);
    event_free(s->sweep);
    event_free(s->sweep_rest);
    event_free(s->turn);
    free(s);
}
